//! Lists of many chunks against a model.
use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use state_api::access::ListAccess;
use state_api::{
    ByteStore, ErrorKind, Filtered, KeyGroup, KeyGroupRange, StateKind, StateMeta, TtlConfig,
    TtlUpdate, TtlVisibility, ValueFilter,
};

use super::tests::{Fixture, bound};
use super::*;
use crate::format::test_storage::{MapStore, Storage, block_on};
use crate::format::{CanonicalColumn, StoredList, canonical_snapshot, restore_into_store};

pub(super) const CHUNK: usize = 60;
const TTL: i64 = 100;

#[derive(Clone, Copy, Debug)]
pub(super) enum Times {
    None,
    Strict,
    Relaxed,
    Renewed,
}

impl Times {
    pub(super) fn ttl(self) -> Option<TtlConfig> {
        let ttl = TtlConfig::new(Duration::from_millis(TTL as u64))
            .unwrap()
            .cleanup_in_compaction(true);
        match self {
            Self::None => None,
            Self::Strict => Some(ttl),
            Self::Relaxed => Some(ttl.visibility(TtlVisibility::ReturnExpiredIfNotCleanedUp)),
            Self::Renewed => Some(ttl.update(TtlUpdate::OnReadAndWrite)),
        }
    }
}

/// A list in a byte store next to a model of it, for one key and several namespaces.
pub(super) struct Pair {
    pub(super) f: Fixture,
    pub(super) state: ByteState,
    pub(super) times: Times,
    model: Vec<VecDeque<(u64, i64)>>,
    next: u64,
}

const NAMESPACES: u32 = 3;

impl Pair {
    fn new(times: Times) -> Self {
        let mut f = Fixture::new();
        let state = Self::open(&mut f, times);
        Self {
            f,
            state: state.starting_empty(),
            times,
            model: vec![VecDeque::new(); NAMESPACES as usize],
            next: 0,
        }
    }

    fn open(f: &mut Fixture, times: Times) -> ByteState {
        f.state::<u64, u32, u64>("l", StateKind::List, times.ttl())
            .with_list_chunks(CHUNK)
    }

    pub(super) fn list(&mut self, namespace: u32) -> ByteList<'_, u64> {
        let at = self.state.at(&mut self.f.store, &bound(&7u64), &namespace);
        ByteList::new(at)
    }

    /// A list in the bytes as they are, of which nothing is known yet.
    pub(super) fn reopened(&self) -> Self {
        let mut f = Fixture::new();
        f.store = self.f.store.clone();
        let state = Self::open(&mut f, self.times);
        Self {
            f,
            state,
            times: self.times,
            model: Vec::new(),
            next: 0,
        }
    }

    fn now(&self) -> i64 {
        state_api::Clock::now_ms(&*self.f.clock)
    }

    fn fresh(&mut self, count: usize) -> Vec<u64> {
        let first = self.next;
        self.next += count as u64;
        (first..self.next).collect()
    }

    fn push(&mut self, namespace: u32, count: usize) {
        let (elements, now) = (self.fresh(count), self.now());
        self.model[namespace as usize].extend(elements.iter().map(|n| (*n, now)));
        match elements[..] {
            [one] => self.list(namespace).push(one).unwrap(),
            _ => self.list(namespace).extend(elements).unwrap(),
        }
    }

    /// Removes what is expired from the model; returns the elements as they were if they are seen once more.
    fn expire(&mut self, namespace: u32) -> Option<Vec<u64>> {
        let (now, model) = (self.now(), &mut self.model[namespace as usize]);
        if matches!(self.times, Times::None) {
            return None;
        }
        let was: Vec<u64> = model.iter().map(|(n, _)| *n).collect();
        model.retain(|(_, stamp)| stamp + TTL > now);
        let seen = matches!(self.times, Times::Relaxed) && model.len() < was.len();
        seen.then_some(was)
    }

    fn values(&self, namespace: u32) -> Vec<u64> {
        self.model[namespace as usize]
            .iter()
            .map(|(n, _)| *n)
            .collect()
    }

    fn check(&mut self, namespace: u32) {
        let now = self.now();
        let expected = self.expire(namespace).unwrap_or_else(|| {
            if matches!(self.times, Times::Renewed) {
                let model = &mut self.model[namespace as usize];
                model.iter_mut().for_each(|(_, stamp)| *stamp = now);
            }
            self.values(namespace)
        });
        assert_eq!(self.list(namespace).get().unwrap(), expected);
    }

    fn pop(&mut self, namespace: u32, count: usize) {
        for _ in 0..count {
            self.expire(namespace);
            let expected = self.model[namespace as usize].pop_front().map(|(n, _)| n);
            assert_eq!(self.list(namespace).pop_front().unwrap(), expected);
        }
    }

    fn retain(&mut self, namespace: u32, keep: impl Fn(u64) -> bool) {
        self.expire(namespace);
        let mut shown = Vec::new();
        let expected = self.values(namespace);
        self.model[namespace as usize].retain(|(n, _)| keep(*n));
        let visit = |n: &u64| {
            shown.push(*n);
            keep(*n)
        };
        self.list(namespace).retain(visit).unwrap();
        assert_eq!(shown, expected);
    }

    fn merge(&mut self, into: u32, from: &[u32]) {
        let now = self.now();
        for namespace in 0..NAMESPACES {
            if !matches!(self.times, Times::None)
                && (namespace == into || from.contains(&namespace))
            {
                self.expire(namespace);
                let model = &mut self.model[namespace as usize];
                model.iter_mut().for_each(|(_, stamp)| *stamp = now);
            }
        }
        for source in from.iter().filter(|source| **source != into) {
            let moved = std::mem::take(&mut self.model[*source as usize]);
            self.model[into as usize].extend(moved);
        }
        let key = bound(&7u64);
        merge_lists(&mut self.state, &mut self.f.store, &key, &into, from).unwrap();
    }

    /// Does what a compaction does that comes through every entry whose bit is set.
    fn compact(&mut self, bits: u64) {
        let Some(filter) = ExpiredValues::of(&self.meta(), self.times.ttl()) else {
            return;
        };
        let (now, column) = (self.now(), self.state.column());
        let stored = self.f.store.column(column).clone();
        for (at, (key, value)) in stored.iter().enumerate() {
            if bits >> (at % 64) & 1 == 0 {
                continue;
            }
            match filter.filter(value, now) {
                Filtered::Keep => {}
                Filtered::Drop => self.f.store.delete(column, key).unwrap(),
                Filtered::Replace(value) => self.f.store.put(column, key, &value).unwrap(),
            }
        }
    }

    pub(super) fn meta(&self) -> StateMeta {
        Fixture::meta::<u64, u32, u64>("l", StateKind::List, self.times.ttl())
    }

    fn entries(&self) -> u64 {
        count_lists(&self.f.store, self.state.column()).unwrap()
    }

    fn chunks(&self) -> usize {
        let stored = self.f.store.column(self.state.column()).values();
        let is_chunk = |value: &&Vec<u8>| {
            matches!(
                StoredList::read(value, self.times.ttl().is_some()),
                Ok(StoredList::Chunk(_))
            )
        };
        stored.filter(is_chunk).count()
    }

    /// Takes a canonical snapshot and goes on from it.
    fn restore(&mut self) {
        let storage = Storage::default();
        let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(127));
        let column = CanonicalColumn::new(self.state.column(), self.meta());
        let view = self.f.store.view().unwrap();
        let snapshot = canonical_snapshot(view, vec![column], range, 1);
        let handles = block_on(snapshot.persist(storage.context())).unwrap();
        let mut restored = MapStore::default();
        let restore = restore_into_store(&handles, range, 1, &mut restored, &storage);
        block_on(restore).unwrap();
        self.f.store = restored;
        self.state = Self::open(&mut self.f, self.times);
        assert_eq!(self.chunks(), 0);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u32, usize),
    Pop(u32, usize),
    Retain(u32, u64),
    RetainFrom(u32, usize),
    Replace(u32, usize),
    Len(u32),
    Scan(u32),
    StopScan(u32, usize),
    Clear(u32),
    Merge(u32, Vec<u32>),
    Advance(i64),
    Compact(u64),
    Reopen,
    Restore,
}

fn op() -> impl Strategy<Value = Op> {
    let ns = 0..NAMESPACES;
    prop_oneof![
        6 => (ns.clone(), 0..60usize).prop_map(|(ns, n)| Op::Push(ns, n)),
        6 => (ns.clone(), 0..3usize).prop_map(|(ns, n)| Op::Push(ns, n)),
        6 => (ns.clone(), 1..30usize).prop_map(|(ns, n)| Op::Pop(ns, n)),
        2 => (ns.clone(), 1..9u64).prop_map(|(ns, n)| Op::Retain(ns, n)),
        2 => (ns.clone(), 0..60usize).prop_map(|(ns, n)| Op::RetainFrom(ns, n)),
        1 => (ns.clone(), 0..60usize).prop_map(|(ns, n)| Op::Replace(ns, n)),
        2 => ns.clone().prop_map(Op::Len),
        2 => ns.clone().prop_map(Op::Scan),
        1 => (ns.clone(), 0..60usize).prop_map(|(ns, n)| Op::StopScan(ns, n)),
        1 => ns.clone().prop_map(Op::Clear),
        1 => (ns, proptest::collection::vec(0..NAMESPACES, 0..4)).prop_map(|(ns, from)| Op::Merge(ns, from)),
        2 => (1..70i64).prop_map(Op::Advance),
        2 => prop_oneof![Just(u64::MAX), any::<u64>()].prop_map(Op::Compact),
        1 => Just(Op::Reopen),
        1 => Just(Op::Restore),
    ]
}

pub(super) fn times() -> impl Strategy<Value = Times> {
    prop_oneof![
        Just(Times::None),
        Just(Times::Strict),
        Just(Times::Relaxed),
        Just(Times::Renewed)
    ]
}

impl Pair {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push(ns, count) => self.push(ns, count),
            Op::Pop(ns, count) => self.pop(ns, count),
            Op::Retain(ns, by) => self.retain(ns, |n| n % by == 0),
            Op::RetainFrom(ns, at) => {
                self.expire(ns);
                let from = self.values(ns).get(at).copied().unwrap_or(0);
                self.retain(ns, |n| n >= from);
            }
            Op::Replace(ns, count) => {
                let (elements, now) = (self.fresh(count), self.now());
                self.model[ns as usize] = elements.iter().map(|n| (*n, now)).collect();
                self.list(ns).replace(elements).unwrap();
            }
            Op::Len(ns) => {
                self.expire(ns);
                let expected = self.model[ns as usize].len();
                assert_eq!(self.list(ns).len().unwrap(), expected);
            }
            Op::Scan(ns) => self.check(ns),
            Op::StopScan(ns, at) => {
                // What a visit that is stopped renews is another matter.
                if !matches!(self.times, Times::None | Times::Strict) {
                    return;
                }
                self.expire(ns);
                let expected = self.values(ns);
                let mut seen = Vec::new();
                let result = self.list(ns).for_each(|n| {
                    seen.push(*n);
                    if seen.len() > at {
                        Err(state_api::Error::user("enough"))
                    } else {
                        Ok(())
                    }
                });
                assert_eq!(result.is_err(), expected.len() > at);
                assert_eq!(seen, expected[..expected.len().min(at + 1)]);
            }
            Op::Clear(ns) => {
                self.model[ns as usize].clear();
                self.list(ns).clear().unwrap();
            }
            Op::Merge(into, ref from) => self.merge(into, from),
            Op::Advance(by) => self.f.clock.advance(by),
            Op::Compact(bits) => {
                // What may be seen once more may be gone before.
                if !matches!(self.times, Times::Relaxed) {
                    self.compact(bits);
                }
            }
            Op::Reopen => self.state = Self::open(&mut self.f, self.times),
            Op::Restore => self.restore(),
        }
        if matches!(self.times, Times::None) {
            let lists = self.model.iter().filter(|list| !list.is_empty()).count();
            assert_eq!(self.entries(), lists as u64);
        }
    }
}

proptest! {
    #[test]
    fn long_lists_agree_with_a_model(times in times(), ops in proptest::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new(times);
        for op in &ops {
            pair.apply(op);
        }
        for namespace in 0..NAMESPACES {
            pair.check(namespace);
        }
        for namespace in 0..NAMESPACES {
            let len = pair.model[namespace as usize].len();
            pair.pop(namespace, len + 1);
        }
        // A list that is used up leaves nothing, chunks included; only what a filter has left alone may stay with time-to-live.
        pair.compact(u64::MAX);
        prop_assert_eq!(pair.f.store.column(pair.state.column()).len(), 0);
    }
}

pub(super) fn long(times: Times) -> Pair {
    let mut pair = Pair::new(times);
    pair.push(1, 300);
    assert_eq!(pair.chunks(), 0);
    pair.pop(1, 10);
    assert!(pair.chunks() > 20, "{} chunks", pair.chunks());
    pair.push(1, 2);
    pair
}

#[test]
fn a_list_in_chunks_is_one_entry_and_one_key_beside_its_neighbours() {
    let mut pair = long(Times::None);
    pair.push(0, 1);
    pair.push(2, 300);
    pair.pop(2, 1);
    assert_eq!(pair.entries(), 3);
    let mut pages = KeyPages::<u64, u32>::new(pair.state.column(), 1);
    let mut found = Vec::new();
    while pages.next_page(&pair.f.store, &mut found).unwrap() {}
    assert_eq!(found, [(7, 0), (7, 1), (7, 2)]);
    pair.list(1).clear().unwrap();
    pair.model[1].clear();
    assert_eq!(pair.entries(), 2);
    for namespace in 0..NAMESPACES {
        pair.check(namespace);
    }
}

#[test]
fn a_list_that_is_used_up_stands_whole_again() {
    let mut pair = long(Times::None);
    pair.retain(1, |n| n == 301);
    assert_eq!((pair.chunks(), pair.entries()), (0, 1));
    let value = pair.f.store.column(pair.state.column()).values().next();
    let mut whole = vec![8];
    whole.extend_from_slice(&301u64.to_le_bytes());
    assert_eq!(value, Some(&whole));
}

#[test]
fn nothing_is_rewritten_when_all_stay_or_only_the_front_goes() {
    let mut pair = long(Times::None);
    let chunks = |pair: &Pair| {
        let stored = pair.f.store.column(pair.state.column());
        let chunks = stored.iter().skip(1);
        chunks
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>()
    };
    let before = chunks(&pair);
    pair.retain(1, |_| true);
    assert_eq!(chunks(&pair), before);
    pair.retain(1, |n| n >= 100);
    let after = chunks(&pair);
    assert!(after.len() > 5 && after.len() < before.len());
    assert_eq!(after, before[before.len() - after.len()..]);
    pair.check(1);
}

#[test]
fn a_clear_reads_nothing_until_a_list_was_cut() {
    let mut pair = Pair::new(Times::None);
    pair.push(0, 3);
    assert!(!pair.state.has_chunks);
    pair.list(0).len().unwrap();
    assert!(!pair.state.has_chunks);
    pair.push(0, 100);
    pair.list(0).len().unwrap();
    assert!(pair.state.has_chunks);
}

#[test]
fn elements_of_any_size_are_cut() {
    let mut f = Fixture::new();
    let mut state = f
        .state::<u64, (), Vec<u8>>("l", StateKind::List, None)
        .with_list_chunks(CHUNK);
    let elements: Vec<Vec<u8>> = [0, 1, 400, 0, 59, 57, 58, 60, 61, 200, 0, 0, 300]
        .map(|len| vec![len as u8; len])
        .into();
    let mut list = ByteList::<Vec<u8>>::new(state.at(&mut f.store, &bound(&1u64), &()));
    list.extend(elements.clone()).unwrap();
    assert_eq!(list.len().unwrap(), elements.len());
    assert_eq!(list.get().unwrap(), elements);
    for element in &elements {
        assert_eq!(list.pop_front().unwrap().as_ref(), Some(element));
    }
    assert_eq!(list.pop_front().unwrap(), None);
    assert_eq!(f.store.column(state.column()).len(), 0);
}

#[test]
fn k_198_chunks_whose_elements_are_expired_may_be_gone() {
    for gone in 0..12 {
        let mut pair = Pair::new(Times::Strict);
        for now in [0, 40, 80] {
            pair.f.clock.set(now);
            pair.push(0, 20);
        }
        pair.pop(0, 1);
        pair.f.clock.set(100);
        let column = pair.state.column();
        // A compaction that has come through some of the files.
        pair.compact(((1 << gone) - 1) << 1);
        let before = pair.f.store.clone();
        pair.pop(0, 3);
        pair.check(0);
        pair.f.store = before.clone();
        assert_eq!(pair.list(0).len().unwrap(), 40);
        pair.f.store = before;
        pair.f.clock.set(180);
        pair.compact(u64::MAX);
        assert_eq!(pair.f.store.column(column).len(), 0);
    }
}

#[test]
fn k_189_k_190_a_time_to_live_is_added_to_lists_in_chunks_and_dropped() {
    let mut pair = long(Times::None);
    pair.push(0, 2);
    let column = pair.state.column();
    let plain = pair.meta();
    pair.times = Times::Strict;
    let timed = pair.meta();
    migrate_column::<u64>(&mut pair.f.store, column, &plain, &timed, 0).unwrap();
    pair.state = Pair::open(&mut pair.f, Times::Strict);
    for namespace in 0..2 {
        pair.check(namespace);
    }
    pair.f.clock.advance(50);
    pair.push(1, 100);
    pair.pop(1, 1);
    pair.f.clock.advance(50);
    pair.compact(u64::MAX);
    assert!(pair.chunks() > 5);

    // The chunks that are left become the first ones, and their elements are counted.
    pair.times = Times::None;
    migrate_column::<u64>(&mut pair.f.store, column, &timed, &plain, 0).unwrap();
    pair.state = Pair::open(&mut pair.f, Times::None);
    pair.model[0].clear();
    pair.model[1].retain(|(_, stamp)| *stamp == 50);
    assert_eq!(pair.list(1).len().unwrap(), 100);
    pair.f.clock.advance(500);
    pair.check(0);
    pair.check(1);
    pair.pop(1, 101);
    assert_eq!(pair.f.store.column(column).len(), 0);
}

#[test]
fn k_203_the_elements_of_chunks_are_migrated_all_or_none() {
    let mut f = Fixture::new();
    let mut state = f
        .state::<u64, u32, u32>("l", StateKind::List, None)
        .with_list_chunks(CHUNK);
    for namespace in 0..4u32 {
        let mut list = ByteList::<u32>::new(state.at(&mut f.store, &bound(&1u64), &namespace));
        list.extend((0..3_000).collect()).unwrap();
        list.pop_front().unwrap();
    }
    let old = Fixture::meta::<u64, u32, u32>("l", StateKind::List, None);
    let new = Fixture::meta::<u64, u32, u64>("l", StateKind::List, None);
    let column = state.column();
    let stored = f.store.column(column).clone();
    let victim = stored.keys().nth_back(3).unwrap();
    f.store.put(column, victim, b"\x80\x01\x00\x01").unwrap();
    let damaged = f.store.column(column).clone();
    let error = migrate_column::<u64>(&mut f.store, column, &old, &new, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.context("state"), Some("l"));
    assert_eq!(f.store.column(column), &damaged);

    f.store.put(column, victim, &stored[victim]).unwrap();
    migrate_column::<u64>(&mut f.store, column, &old, &new, 0).unwrap();
    let mut state = f.state::<u64, u32, u64>("l", StateKind::List, None);
    for namespace in 0..4u32 {
        let mut list = ByteList::<u64>::new(state.at(&mut f.store, &bound(&1u64), &namespace));
        assert_eq!(list.get().unwrap(), (1..3_000).collect::<Vec<u64>>());
        assert_eq!(list.pop_front().unwrap(), Some(1));
        list.clear().unwrap();
    }
    assert_eq!(f.store.column(column).len(), 0);
}
