use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use state_api::{
    BatchEntry, ByteStore, ByteView, Column, Error, ErrorKind, KeyGroup, MaxParallelism, Page,
    Result, StateKey, StateKind, WriteBatch,
};

use super::*;
use crate::format::test_storage::MapStore;

struct Queue {
    store: MapStore,
    timers: ByteTimers,
    max: MaxParallelism,
}

impl Queue {
    fn new(max: u32) -> Self {
        let mut store = MapStore::default();
        let column = store.open_column("timers").unwrap();
        Self::open(store, column, max)
    }

    fn open(store: MapStore, column: Column, max: u32) -> Self {
        let max = MaxParallelism::new(max).unwrap();
        let meta = super::tests::Fixture::meta::<String, (), ()>("timers", StateKind::Timer, None);
        let timers = ByteTimers::new(column, &meta, max.all_groups(), max.prefix_len());
        Self { store, timers, max }
    }

    fn key(&self, key: &str) -> ByteKey {
        // As in K-084: `a` is in group 1, `b` in group 8; others by hash.
        let key = key.to_owned();
        let group = match &key[..] {
            "a" => KeyGroup(1),
            "b" => KeyGroup(8),
            _ => self.max.group_of_hash64(key.stable_hash()),
        };
        let mut bound = ByteKey::new(self.max.prefix_len());
        bound.bind(&key, group);
        bound
    }

    fn add(&mut self, key: &str, time: i64) -> bool {
        let key = self.key(key);
        self.timers.add(&mut self.store, &key, &(), time).unwrap()
    }

    fn remove(&mut self, key: &str, time: i64) -> bool {
        let key = self.key(key);
        self.timers
            .remove(&mut self.store, &key, &(), time)
            .unwrap()
    }

    fn pop(&mut self, up_to: i64) -> Option<(i64, String)> {
        let timer = self.timers.pop_due(&mut self.store, up_to).unwrap()?;
        let (key, ()) = timer.decode::<String, ()>().unwrap();
        Some((timer.time, key))
    }
}

#[test]
fn k_084_k_085_k_086_add_says_when_the_head_changes_and_keeps_a_set() {
    let mut queue = Queue::new(10);
    assert_eq!(queue.pop(i64::MAX), None);
    assert!(queue.add("a", 44));
    assert!(queue.add("b", 1));
    assert!(!queue.add("b", 1));
    assert!(!queue.add("b", 3));
    assert!(!queue.add("a", 42));
    assert_eq!(queue.timers.count(&queue.store).unwrap(), 4);
    assert_eq!(queue.timers.next_time(&queue.store).unwrap(), Some(1));
    assert_eq!(queue.pop(0), None);
    let popped: Vec<_> = std::iter::from_fn(|| queue.pop(100)).collect();
    let expected =
        [(1, "b"), (3, "b"), (42, "a"), (44, "a")].map(|(time, key)| (time, key.to_owned()));
    assert_eq!(popped, expected);
    assert_eq!(queue.timers.count(&queue.store).unwrap(), 0);
    assert_eq!(queue.timers.next_time(&queue.store).unwrap(), None);
}

#[test]
fn k_087_remove_says_when_the_head_changes() {
    let mut queue = Queue::new(10);
    for (key, time) in [("a", 44), ("b", 1), ("b", -3)] {
        queue.add(key, time);
    }
    assert!(!queue.remove("b", 2));
    assert!(!queue.remove("a", 44));
    assert!(queue.remove("b", -3));
    assert!(!queue.remove("b", -3));
    assert!(queue.remove("b", 1));
    assert_eq!(queue.pop(i64::MAX), None);
}

#[test]
fn k_089_the_timers_of_one_key_group_are_listed_in_order() {
    let mut queue = Queue::new(10);
    for time in 0..300 {
        queue.add("a", 300 - time);
        queue.add("b", time);
    }
    let of_group = queue.timers.of_group(&queue.store, KeyGroup(1)).unwrap();
    assert_eq!(
        of_group.iter().map(|timer| timer.time).collect::<Vec<_>>(),
        (1..=300).collect::<Vec<_>>()
    );
    assert!(
        of_group
            .iter()
            .all(|timer| timer.decode::<String, ()>().unwrap().0 == "a")
    );
    assert_eq!(
        queue.timers.of_group(&queue.store, KeyGroup(2)).unwrap(),
        []
    );
}

#[test]
fn k_092_timers_are_there_after_they_are_opened_again() {
    let mut queue = Queue::new(300);
    for n in 0..500i64 {
        queue.add(&format!("key {}", n % 37), n * 7 % 500);
    }
    let expected: Vec<_> = {
        let mut again = Queue::open(queue.store.clone(), Column(0), 300);
        std::iter::from_fn(|| again.pop(i64::MAX)).collect()
    };
    assert_eq!(expected.len(), 500);
    assert_eq!(
        std::iter::from_fn(|| queue.pop(i64::MAX)).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_stored_timer_that_makes_no_sense_is_refused() {
    let mut store = MapStore::default();
    let column = store.open_column("timers").unwrap();
    store.put(column, &[3, 1, 2], &[]).unwrap();
    let range = MaxParallelism::new(10).unwrap().all_groups();
    let meta = super::tests::Fixture::meta::<String, (), ()>("timers", StateKind::Timer, None);
    let error = ByteTimers::new(column, &meta, range, 1)
        .next_time(&store)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// A store that keeps what is deleted in the way of scans, as one that has not compacted it away yet.
#[derive(Default)]
struct Littered {
    store: MapStore,
    deleted: BTreeSet<Vec<u8>>,
    /// Deleted keys that scans have passed.
    passed: Cell<usize>,
    fails: Cell<bool>,
}

impl ByteStore for Littered {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.store.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.store.column_names()
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        for entry in &batch.entries {
            match entry {
                BatchEntry::Delete(_, key) => self.deleted.insert(key.clone()),
                BatchEntry::Put(_, key, _) | BatchEntry::Merge(_, key, _) => {
                    self.deleted.remove(key)
                }
            };
        }
        self.store.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        if self.fails.get() {
            return Err(Error::retryable("the store can't be read for the moment"));
        }
        ByteStore::scan(&self.store, column, start, end, limit, page)?;
        let last = page.entries.last().map(|(key, _)| key.as_slice()).or(end);
        let passed = self.deleted.range(start.to_vec()..);
        let passed = passed.take_while(|key| last.is_none_or(|last| key.as_slice() < last));
        self.passed.set(self.passed.get() + passed.count());
        Ok(())
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.store.view()
    }
}

#[test]
fn timers_that_have_fired_are_not_looked_through_again_and_earlier_ones_are_found() {
    let of = Queue::new(10);
    let mut store = Littered::default();
    let column = store.open_column("timers").unwrap();
    let meta = super::tests::Fixture::meta::<String, (), ()>("timers", StateKind::Timer, None);
    let mut timers = ByteTimers::new(column, &meta, of.max.all_groups(), of.max.prefix_len());
    let (a, b) = (of.key("a"), of.key("b"));
    for time in 0..2_000 {
        timers.add(&mut store, &a, &(), time).unwrap();
        timers.add(&mut store, &b, &(), time + 5_000).unwrap();
    }
    let mut fired = Vec::new();
    while let Some(timer) = timers.pop_due(&mut store, 3_000).unwrap() {
        fired.push(timer.time);
        // Earlier than all that are left, where many have fired already.
        if timer.time % 300 == 299 {
            assert!(timers.add(&mut store, &a, &(), timer.time - 250).unwrap());
        }
    }
    assert_eq!(fired.len(), 2_006);
    assert_eq!(store.deleted.len(), 2_000);
    // Fifteen looks into the store.
    assert_eq!(store.passed.get(), 0);
    assert_eq!(timers.next_time(&store).unwrap(), Some(5_000));
}

#[test]
fn a_look_into_the_store_that_fails_leaves_no_timer_unseen() {
    let of = Queue::new(10);
    let mut store = Littered::default();
    let column = store.open_column("timers").unwrap();
    let meta = super::tests::Fixture::meta::<String, (), ()>("timers", StateKind::Timer, None);
    let mut timers = ByteTimers::new(column, &meta, of.max.all_groups(), of.max.prefix_len());
    let key = of.key("a");
    for time in 0..300 {
        timers.add(&mut store, &key, &(), time).unwrap();
    }
    for time in 0..127 {
        let popped = timers.pop_due(&mut store, 999).unwrap();
        assert_eq!(popped.map(|timer| timer.time), Some(time));
    }
    store.fails.set(true);
    let error = timers.pop_due(&mut store, 999).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    store.fails.set(false);
    timers.add(&mut store, &key, &(), 500).unwrap();
    let left = std::iter::from_fn(|| timers.pop_due(&mut store, 999).unwrap());
    let left: Vec<_> = left.map(|timer| timer.time).take(1_000).collect();
    assert_eq!(left, (128..300).chain([500]).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8, i64),
    Remove(u8, i64),
    Pop(usize),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u8..4, -400i64..400).prop_map(|(key, time)| Op::Add(key, time)),
        3 => (0u8..4, -400i64..400).prop_map(|(key, time)| Op::Remove(key, time)),
        1 => (1usize..200).prop_map(Op::Pop),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn k_091_more_timers_than_the_cache_holds_agree_with_a_reference(ops in proptest::collection::vec(op(), 200..1500)) {
        // Two groups only, so that each holds more than is cached.
        let mut queue = Queue::new(2);
        let name = |key: u8| format!("key {key}");
        // As live tables have it: by time, then key group, then key.
        let mut model: BTreeSet<(i64, KeyGroup, String)> = BTreeSet::new();
        for op in ops {
            match op {
                Op::Add(key, time) => {
                    let earlier = model.first().is_none_or(|(head, ..)| time < *head);
                    model.insert((time, queue.key(&name(key)).group(), name(key)));
                    prop_assert_eq!(queue.add(&name(key), time), earlier);
                }
                Op::Remove(key, time) => {
                    let timer = (time, queue.key(&name(key)).group(), name(key));
                    let was_head = model.first() == Some(&timer);
                    model.remove(&timer);
                    prop_assert_eq!(queue.remove(&name(key), time), was_head);
                }
                Op::Pop(n) => {
                    for _ in 0..n {
                        let expected = model.pop_first().map(|(time, _, key)| (time, key));
                        prop_assert_eq!(queue.pop(i64::MAX), expected);
                    }
                }
                Op::Reopen => queue = Queue::open(queue.store.clone(), Column(0), 2),
            }
            let next = queue.timers.next_time(&queue.store).unwrap();
            prop_assert_eq!(next, model.first().map(|(time, ..)| *time));
        }
        prop_assert_eq!(queue.timers.count(&queue.store).unwrap(), model.len() as u64);
    }
}
