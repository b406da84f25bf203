use std::cell::RefCell;
use std::sync::Arc;

use rocksdb::{ReadOptions, SnapshotWithThreadMode};
use self_cell::self_cell;
use state_api::{ByteView, Column, Page, Result, unknown_column};

use crate::database::{ColumnCell, Database, Db};
use crate::error::failed;
use crate::expiry::HeldTime;
use crate::pages::{self, RawIter};
use crate::store::SORTED_AT_ONCE;

type Snapshot<'a> = SnapshotWithThreadMode<'a, Db>;

self_cell! {
    /// A snapshot of a database, which stays open as long as it is held.
    struct Frozen {
        owner: Arc<Database>,
        #[covariant]
        dependent: Snapshot,
    }
}

/// What an iterator over a snapshot is bound to.
struct CursorOwner {
    frozen: Arc<Frozen>,
    column: Arc<ColumnCell>,
}

self_cell! {
    /// An iterator over a column of a snapshot.
    struct Cursor {
        owner: CursorOwner,
        #[not_covariant]
        dependent: RawIter,
    }
}

/// Bytes that are read ahead: a view is read from end to end.
const READ_AHEAD: usize = 2 << 20;

/// A database as it was, for reading on another thread.
///
/// A view is read through, group by group and in each group column by column, so that each column keeps an iterator that goes on
/// where the last page ended.
pub(crate) struct RocksDbView {
    /// Before the snapshot, which they refer to.
    positions: RefCell<Vec<Position>>,
    columns: Vec<Arc<ColumnCell>>,
    frozen: Arc<Frozen>,
    /// Compactions drop what has expired whether a snapshot sees it or not.
    _time: HeldTime,
}

/// Where the iterator of a column is.
#[derive(Default)]
struct Position {
    cursor: Option<Cursor>,
    /// The last key before the iterator.
    passed: Vec<u8>,
}

impl RocksDbView {
    pub(crate) fn new(database: &Arc<Database>, columns: &[Arc<ColumnCell>]) -> Self {
        let time = database.tuning().expiry().hold();
        let frozen = Frozen::new(Arc::clone(database), |database| database.db().snapshot());
        Self {
            positions: RefCell::default(),
            columns: columns.to_vec(),
            frozen: Arc::new(frozen),
            _time: time,
        }
    }

    fn cursor(&self, column: &Arc<ColumnCell>) -> Cursor {
        // Else the next view would have to sort them once more.
        if column.access().is_hashed() && column.buffered() > SORTED_AT_ONCE {
            column.write_out();
        }
        let owner = CursorOwner {
            frozen: Arc::clone(&self.frozen),
            column: Arc::clone(column),
        };
        Cursor::new(owner, |owner| {
            let mut options = ReadOptions::default();
            options.set_total_order_seek(true);
            options.set_readahead_size(READ_AHEAD);
            // The task's blocks stay in the cache.
            options.fill_cache(false);
            let snapshot = owner.frozen.borrow_dependent();
            snapshot.raw_iterator_cf_opt(owner.column.handle(), options)
        })
    }
}

impl ByteView for RocksDbView {
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        let index = column.0 as usize;
        let cell = self
            .columns
            .get(index)
            .ok_or_else(|| unknown_column(column))?;
        if pages::is_empty_range(start, end) || limit == 0 {
            page.entries.clear();
            return Ok(());
        }
        let mut positions = self.positions.borrow_mut();
        if positions.len() <= index {
            positions.resize_with(index + 1, Position::default);
        }
        let Position { cursor, passed } = &mut positions[index];
        let is_new = cursor.is_none();
        let cursor = cursor.get_or_insert_with(|| self.cursor(cell));
        let filled = cursor.with_dependent_mut(|_, iter| {
            let is_there =
                !is_new && start > passed.as_slice() && iter.key().is_none_or(|next| start <= next);
            if !is_there {
                iter.seek(start);
            }
            pages::fill(iter, end, limit, page)
        });
        match page.entries.last() {
            Some((key, _)) => passed.clone_from(key),
            // Nothing lies between the start and the iterator.
            None => start.clone_into(passed),
        }
        filled.map_err(|e| {
            let path = self.frozen.borrow_owner().path();
            failed("read snapshot", path, e).with("state", cell.state())
        })
    }
}

#[cfg(test)]
mod tests {
    use state_api::{ByteStore, CodecKind, StateKind, StateMeta, TypeMeta};

    use crate::RocksDbStore;
    use crate::fault_tests::open;

    use super::*;

    fn keys(page: &Page) -> Vec<u8> {
        page.entries.iter().map(|(key, _)| key[0]).collect()
    }

    #[test]
    fn k_239_a_view_lets_go_of_its_snapshot_read_or_not_and_keeps_the_database_until_then() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let column = store.open_column("state").unwrap();
        for key in 0..10_u8 {
            store.put(column, &[key], b"v").unwrap();
        }
        let database = std::sync::Arc::clone(store.database());
        let snapshots = || {
            database
                .db()
                .property_int_value("rocksdb.num-snapshots")
                .unwrap()
        };
        for pages in [0, 1, 9] {
            let view = store.view().unwrap();
            assert_eq!(snapshots(), Some(1));
            let mut page = Page::default();
            for start in 0..pages {
                view.scan(column, &[start], None, 1, &mut page).unwrap();
                assert_eq!(keys(&page), [start]);
            }
            drop(view);
            assert_eq!(snapshots(), Some(0));
        }
        let view = store.view().unwrap();
        let folder = store.folder().to_owned();
        drop((store, database));
        let mut page = Page::default();
        view.scan(column, b"", None, 99, &mut page).unwrap();
        assert_eq!(page.entries.len(), 10);
        assert!(folder.exists());
        drop(view);
        assert!(!folder.exists());
    }

    #[test]
    fn pages_of_a_view_may_be_asked_for_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let column = store.open_column("state").unwrap();
        let other = store.open_column("other").unwrap();
        for key in (0..100_u8).step_by(2) {
            store.put(column, &[key], b"v").unwrap();
            store.put(other, &[key + 1], b"v").unwrap();
        }
        let view = store.view().unwrap();
        let read = |column, start: u8, end: u8, limit| {
            let mut page = Page::default();
            view.scan(column, &[start], Some(&[end]), limit, &mut page)
                .unwrap();
            keys(&page)
        };
        assert_eq!(read(column, 0, 10, 3), [0, 2, 4]);
        assert_eq!(read(column, 5, 10, 9), [6, 8]);
        assert_eq!(read(other, 0, 4, 9), [1, 3]);
        // On, over a gap, within what was passed, back, and to nothing.
        assert_eq!(read(column, 10, 12, 9), [10]);
        assert_eq!(read(column, 20, 24, 9), [20, 22]);
        assert_eq!(read(column, 21, 22, 9), []);
        assert_eq!(read(column, 20, 23, 9), [20, 22]);
        assert_eq!(read(column, 0, 3, 9), [0, 2]);
        assert_eq!(read(column, 99, 200, 9), []);
        assert_eq!(read(column, 100, 200, 9), []);
        assert_eq!(read(column, 98, 200, 9), [98]);
        assert_eq!(read(other, 4, 6, 9), [5]);
    }

    #[test]
    fn write_buffers_that_find_keys_by_hash_are_sorted_for_the_first_view_and_not_again_for_the_next()
     {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let meta = StateMeta {
            name: "value".into(),
            kind: StateKind::Value,
            key: TypeMeta::of::<u64>(CodecKind::Compact),
            namespace: TypeMeta::of::<()>(CodecKind::Compact),
            map_key: None,
            value: TypeMeta::of::<u64>(CodecKind::Compact),
            ttl_ms: None,
        };
        let column = store.open_state_column(&meta).unwrap();
        let count = SORTED_AT_ONCE as u32 + 1;
        let buffered = |store: &RocksDbStore| store.cell(column).buffered();
        let read = |view: &dyn ByteView| {
            let (mut seen, mut page) = (0, Page::default());
            for group in 0..=u8::MAX {
                let end = [group.saturating_add(1)];
                let end = (group < u8::MAX).then_some(&end[..]);
                view.scan(column, &[group], end, usize::MAX, &mut page)
                    .unwrap();
                seen += page.entries.len() as u32;
            }
            seen
        };
        for n in 0..count {
            let key = [&[n as u8][..], &n.to_be_bytes()].concat();
            store.put(column, &key, b"v").unwrap();
        }
        let view = store.view().unwrap();
        store.put(column, b"\0 later", b"v").unwrap();
        assert!(buffered(&store) > u64::from(count));
        assert_eq!(read(&*view), count);
        assert_eq!(buffered(&store), 0, "it is in a file now");
        // Few entries are sorted as they are.
        store.put(column, b"\0 once more", b"v").unwrap();
        assert_eq!(read(&*store.view().unwrap()), count + 2);
        assert_eq!(buffered(&store), 1);
    }
}
