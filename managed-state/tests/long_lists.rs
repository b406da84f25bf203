//! What an access to a long list asks of the store: appends and pops cost what they touch, however long the list is.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use backend_testkit::ReferenceStore;
use managed_state::bytes::{ByteKey, ByteList, ByteState};
use state_api::access::ListAccess;
use state_api::{
    BatchEntry, ByteStore, ByteView, CodecKind, Column, KeyGroup, ManualClock, Page, Result,
    StateKind, StateMeta, TtlConfig, TypeMeta, WriteBatch,
};

/// What the list state cuts its lists into, in bytes.
const CHUNK: u64 = 4 << 10;

/// Bytes that a store was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    read: u64,
    written: u64,
    /// In one call.
    most_read: u64,
}

struct Counting {
    inner: ReferenceStore,
    asked: Rc<Cell<Asked>>,
}

impl Counting {
    fn count_read(&self, bytes: usize) {
        let mut asked = self.asked.get();
        asked.read += bytes as u64;
        asked.most_read = asked.most_read.max(bytes as u64);
        self.asked.set(asked);
    }

    fn count_written(&self, bytes: usize) {
        let mut asked = self.asked.get();
        asked.written += bytes as u64;
        self.asked.set(asked);
    }
}

impl ByteStore for Counting {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.inner.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.inner.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.inner.get(column, key, value);
        self.count_read(key.len() + value.len());
        found
    }

    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        self.count_written(key.len() + value.len());
        self.inner.put(column, key, value)
    }

    fn merge(&mut self, column: Column, key: &[u8], operand: &[u8]) -> Result<()> {
        self.count_written(key.len() + operand.len());
        self.inner.merge(column, key, operand)
    }

    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        self.count_written(key.len());
        self.inner.delete(column, key)
    }

    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.count_written(start.len());
        self.inner.delete_range(column, start, end)
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        for entry in &batch.entries {
            self.count_written(match entry {
                BatchEntry::Put(_, key, value) | BatchEntry::Merge(_, key, value) => {
                    key.len() + value.len()
                }
                BatchEntry::Delete(_, key) => key.len(),
            });
        }
        self.inner.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(&self.inner, column, start, end, limit, page)?;
        let bytes = |(key, value): &(Vec<u8>, Vec<u8>)| key.len() + value.len();
        self.count_read(page.entries.iter().map(bytes).sum());
        Ok(())
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.inner.view()
    }
}

struct Lists {
    store: Counting,
    state: ByteState,
    key: ByteKey,
}

impl Lists {
    fn new(ttl: Option<TtlConfig>) -> Self {
        let mut store = Counting {
            inner: ReferenceStore::new(),
            asked: Rc::default(),
        };
        let meta = StateMeta {
            name: "list".into(),
            kind: StateKind::List,
            key: TypeMeta::of::<u64>(CodecKind::Compact),
            namespace: TypeMeta::of::<()>(CodecKind::Compact),
            map_key: None,
            value: TypeMeta::of::<u32>(CodecKind::Compact),
            ttl_ms: ttl.map(|ttl| ttl.ttl_ms()),
        };
        let column = store.open_column("list").unwrap();
        let state = ByteState::new(column, &meta, ttl, Arc::new(ManualClock::at(0)));
        let mut key = ByteKey::new(1);
        key.bind(&7u64, KeyGroup(3));
        Self {
            store,
            state: state.starting_empty(),
            key,
        }
    }

    /// Runs an access; returns its result and what it asked for.
    fn asked<R>(&mut self, f: impl FnOnce(&mut ByteList<'_, u32>) -> Result<R>) -> (R, Asked) {
        self.store.asked.set(Asked::default());
        let at = self.state.at(&mut self.store, &self.key, &());
        let result = f(&mut ByteList::new(at)).unwrap();
        (result, self.store.asked.get())
    }
}

/// A list that was only ever appended to, in elements and bytes.
const LEN: u32 = 1_000_000;
const BYTES: u64 = LEN as u64 * 5;

fn filled(ttl: Option<TtlConfig>) -> Lists {
    let mut lists = Lists::new(ttl);
    for part in 0..10 {
        let elements = (part * LEN / 10..(part + 1) * LEN / 10).collect();
        let (_, asked) = lists.asked(|list| list.extend(elements));
        assert_eq!(asked.read, 0);
    }
    lists
}

#[test]
fn a_pop_from_a_million_elements_touches_a_few_chunks() {
    let week = TtlConfig::new(std::time::Duration::from_secs(7 * 86_400)).unwrap();
    for (ttl, bytes) in [(None, BYTES), (Some(week), LEN as u64 * 13)] {
        let mut lists = filled(ttl);
        // All that was merged has to be read once.
        let (popped, first) = lists.asked(|list| list.pop_front());
        assert_eq!(popped, Some(0));
        assert!(first.read <= bytes + 2 * CHUNK, "{first:?}");
        assert!(first.written <= bytes + bytes / 50, "{first:?}");
        let mut written = 0;
        for n in 1..1_000 {
            let (_, push) = lists.asked(|list| list.push(LEN + n));
            assert_eq!(push.read, 0);
            assert!(push.written < 30, "{push:?}");
            let (popped, pop) = lists.asked(|list| list.pop_front());
            assert_eq!(popped, Some(n));
            assert!(pop.read <= 2 * CHUNK, "{pop:?}");
            assert!(pop.written <= CHUNK, "{pop:?}");
            written += pop.written;
        }
        assert!(written / 1_000 < CHUNK / 8, "{written} in 1000 pops");
        let (len, asked) = lists.asked(|list| list.len());
        assert_eq!(len, LEN as usize - 1);
        if ttl.is_none() {
            assert!(asked.read <= 2 * CHUNK, "{asked:?}");
        }
    }
}

#[test]
fn a_list_in_chunks_is_gone_through_page_by_page() {
    let mut lists = filled(None);
    lists.asked(|list| list.pop_front());
    let (sum, asked) = lists.asked(|list| {
        let mut sum = 0;
        list.for_each(|n| {
            sum += u64::from(*n);
            Ok(())
        })?;
        Ok(sum)
    });
    assert_eq!(sum, u64::from(LEN) * u64::from(LEN - 1) / 2);
    assert_eq!(asked.written, 0);
    assert!(asked.read < BYTES + BYTES / 50, "{asked:?}");
    assert!(asked.most_read <= 20 * CHUNK, "{asked:?}");

    // What goes from the front is not written anew, and a clear does not read what it removes.
    let (_, retain) = lists.asked(|list| list.retain(|n| *n >= LEN / 2));
    assert!(retain.written <= CHUNK, "{retain:?}");
    let (left, asked) = lists.asked(|list| list.len());
    assert_eq!(left, LEN as usize / 2);
    assert!(asked.read <= 2 * CHUNK, "{asked:?}");
    let (_, clear) = lists.asked(|list| list.clear());
    assert!(clear.read <= 2 * CHUNK, "{clear:?}");
    assert_eq!(lists.asked(|list| list.get()).0, []);
}

#[test]
fn a_short_list_is_appended_read_and_cleared_as_one_value() {
    let mut lists = Lists::new(None);
    for n in 0..20 {
        let (_, push) = lists.asked(|list| list.push(n));
        assert_eq!((push.read, push.written), (0, 9 + 5));
    }
    let (elements, get) = lists.asked(|list| list.get());
    assert_eq!(elements.len(), 20);
    assert_eq!((get.read, get.written), (9 + 100, 0));
    let (_, clear) = lists.asked(|list| list.clear());
    assert_eq!((clear.read, clear.written), (0, 9));
}

#[test]
fn a_queue_of_steady_length_moves_each_element_a_few_times() {
    let mut lists = Lists::new(None);
    let (_, _) = lists.asked(|list| list.extend((0..5_000).collect()));
    let mut moved = 0;
    for n in 5_000..25_000 {
        let (_, push) = lists.asked(|list| list.push(n));
        let (popped, pop) = lists.asked(|list| list.pop_front());
        assert_eq!(popped, Some(n - 5_000));
        moved += push.written + pop.written;
    }
    // A pop writes the head and what is behind the chunks, which is at most an eighth of one.
    assert!(moved / 20_000 < CHUNK / 8, "{} a turn", moved / 20_000);
    assert_eq!(lists.asked(|list| list.len()).0, 5_000);
}
