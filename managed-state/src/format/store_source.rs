use futures_util::future::BoxFuture;
use state_api::{
    ByteView, Column, EntryCount, Error, KeyGroup, KeyGroupRange, KeyedHandle, Page,
    PersistContext, Result, Snapshot, StateKind, StateMeta, StateSummary, TtlConfig,
};

use super::composite::{group_end, group_of_prefix, put_group_prefix};
use super::elements::split_timestamp;
use super::group_writer::GroupWriter;
use super::header::CANONICAL;
use super::list_entries::ListEntries;
use super::persist::persist_source;
use super::source::{CHUNK_SIZE, GroupSource, Sink};

/// Pairs read from a store at once.
const PAGE: usize = 256;

/// A state of a byte store that goes into a canonical snapshot.
#[derive(Clone, Debug)]
pub struct CanonicalColumn {
    column: Column,
    meta: StateMeta,
    /// Entries expired by then are left out.
    expiry: Option<(TtlConfig, i64)>,
}

impl CanonicalColumn {
    /// Takes a state as it is.
    #[must_use]
    pub fn new(column: Column, meta: StateMeta) -> Self {
        Self {
            column,
            meta,
            expiry: None,
        }
    }

    /// Leaves out what is expired at a wall-clock time in milliseconds, if the time-to-live asks for it.
    #[must_use]
    pub fn drop_expired(mut self, ttl: TtlConfig, now_ms: i64) -> Self {
        self.expiry =
            (ttl.cleans_full_snapshots() && self.meta.ttl_ms.is_some()).then_some((ttl, now_ms));
        self
    }

    pub(super) fn meta(&self) -> &StateMeta {
        &self.meta
    }

    /// Says whether what was last renewed then is expired and to be left out.
    pub(super) fn leaves_out(&self, timestamp_ms: i64) -> bool {
        self.expiry
            .is_some_and(|(ttl, now_ms)| ttl.is_expired(timestamp_ms, now_ms))
    }

    /// Says whether everything goes in, expired or not.
    pub(super) fn keeps_all(&self) -> bool {
        self.expiry.is_none()
    }

    /// Says whether a stored value goes in that is one value.
    fn keeps(&self, value: &[u8]) -> Result<bool> {
        if self.keeps_all() {
            return Ok(true);
        }
        let (timestamp, _) = split_timestamp(value)?;
        Ok(!self.leaves_out(timestamp))
    }
}

/// Returns the async part of a canonical snapshot of a byte store, out of a frozen view of it.
///
/// Stored keys start with the key group in `prefix_len` bytes, which the canonical format leaves out.
/// Columns become states in the order given. Each column is read once from start to end; memory does not grow with the state.
#[must_use]
pub fn canonical_snapshot(
    view: Box<dyn ByteView>,
    columns: Vec<CanonicalColumn>,
    range: KeyGroupRange,
    prefix_len: usize,
) -> Box<dyn Snapshot<Vec<KeyedHandle>>> {
    let end = if range.is_empty() {
        None
    } else {
        group_end(range.end(), prefix_len)
    };
    let cursors = columns
        .into_iter()
        .map(|column| Cursor::new(column, range, prefix_len))
        .collect();
    Box::new(StoreSnapshot {
        source: StoreSource {
            view,
            cursors,
            range,
            prefix_len,
            end,
        },
    })
}

struct StoreSnapshot {
    source: StoreSource,
}

impl Snapshot<Vec<KeyedHandle>> for StoreSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(persist_source(Box::new(self.source), CANONICAL, cx))
    }
}

struct StoreSource {
    view: Box<dyn ByteView>,
    cursors: Vec<Cursor>,
    range: KeyGroupRange,
    prefix_len: usize,
    end: Option<Vec<u8>>,
}

/// Reads one column, group after group.
struct Cursor {
    column: CanonicalColumn,
    lists: ListEntries,
    entries: u64,
    page: Page,
    position: usize,
    /// Where the next page starts.
    next: Vec<u8>,
    exhausted: bool,
}

impl Cursor {
    fn new(column: CanonicalColumn, range: KeyGroupRange, prefix_len: usize) -> Self {
        let mut next = Vec::new();
        put_group_prefix(range.start(), prefix_len, &mut next);
        Self {
            column,
            lists: ListEntries::default(),
            entries: 0,
            page: Page::default(),
            position: 0,
            next,
            exhausted: range.is_empty(),
        }
    }

    /// Makes sure that there is a pair at `position`; returns false at the end of the range.
    fn fill(&mut self, view: &dyn ByteView, end: Option<&[u8]>) -> Result<bool> {
        if self.position < self.page.entries.len() {
            return Ok(true);
        }
        if self.exhausted {
            return Ok(false);
        }
        view.scan(self.column.column, &self.next, end, PAGE, &mut self.page)?;
        self.position = 0;
        self.exhausted = self.page.entries.len() < PAGE;
        if let Some((key, _)) = self.page.entries.last() {
            self.next.clone_from(key);
            self.next.push(0);
        }
        Ok(!self.page.entries.is_empty())
    }
}

impl GroupSource for StoreSource {
    fn range(&self) -> KeyGroupRange {
        self.range
    }

    fn encode_group(&mut self, group: KeyGroup, sink: &mut Sink<'_>) -> Result<u64> {
        let mut block = std::mem::take(&mut sink.buffer);
        let mut writer = GroupWriter::begin(group, &mut block);
        for (number, cursor) in self.cursors.iter_mut().enumerate() {
            let number = u32::try_from(number)
                .map_err(|_| Error::invalid("more states than can be numbered"))?;
            writer.section(number);
            while cursor.fill(&*self.view, self.end.as_deref())? {
                let Some((key, value)) = cursor.page.entries.get(cursor.position) else {
                    break;
                };
                if group_of_prefix(key, self.prefix_len) != Some(group) {
                    break;
                }
                cursor.position += 1;
                let key = key.get(self.prefix_len..).unwrap_or_default();
                if cursor.column.meta.kind == StateKind::List {
                    let lists = &mut cursor.lists;
                    cursor.entries += lists.entry(&cursor.column, key, value, &mut writer)?;
                } else if cursor.column.keeps(value)? {
                    writer.entry(key, value);
                    cursor.entries += 1;
                }
                if writer.buffered() >= CHUNK_SIZE {
                    sink.send(writer.drain())?;
                }
            }
            cursor.entries += cursor.lists.close(&cursor.column, &mut writer)?;
        }
        let len = writer.finish();
        sink.buffer = block;
        Ok(len)
    }

    fn states(&self) -> Vec<StateSummary> {
        let summary = |cursor: &Cursor| StateSummary {
            meta: cursor.column.meta.clone(),
            entries: EntryCount::Exact(cursor.entries),
        };
        self.cursors.iter().map(summary).collect()
    }
}
