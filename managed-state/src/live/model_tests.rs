//! Random operations, snapshots included, against a plain map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::test_support::{Rng, hasher};
use super::{Change, FrozenTable, HeapSize, LiveTable, OverlayLimit, PageCursor, SweepCursor};

/// Two kilobytes, so that tables are small and split often.
#[derive(Clone, Debug, PartialEq)]
struct Wide {
    number: u64,
    padding: [u64; 255],
}

impl Wide {
    fn new(number: u64) -> Self {
        Self {
            number,
            padding: [number; 255],
        }
    }

    fn set(&mut self, number: u64) {
        *self = Self::new(number);
    }
}

fn heap(value: &Wide) -> usize {
    (value.number % 97) as usize
}

type Key = (u32, u8);
type Table = LiveTable<u32, u8, Wide>;

#[derive(Clone, Debug)]
enum Op {
    Insert(Key, u64),
    GetMut(Key, u64),
    GetOrInsert(Key, u64),
    Replace(Key, u64),
    Modify(Key, u64, u8),
    Remove(Key),
    Take(Key),
    ClearGroup(usize),
    Clear,
    Freeze,
    Release(usize),
    ReleaseGroup(usize, usize),
    DropOnThread(usize),
    Leak(usize),
    AbortAll,
    ReadSnapshot(usize),
    Maintain(usize),
    Sweep(usize),
    Pages(usize),
    Iterate(usize),
}

struct Snapshot {
    frozen: FrozenTable<u32, u8, Wide>,
    expected: BTreeMap<Key, u64>,
    released: BTreeSet<usize>,
}

struct Model {
    table: Table,
    entries: BTreeMap<Key, u64>,
    snapshots: Vec<Snapshot>,
    leaked: usize,
    sweep: SweepCursor,
    groups: usize,
    ids: u64,
}

fn sorted(mut entries: Vec<(Key, u64)>) -> BTreeMap<Key, u64> {
    let len = entries.len();
    entries.sort_unstable();
    let map: BTreeMap<_, _> = entries.into_iter().collect();
    assert_eq!(map.len(), len, "each key comes once");
    map
}

impl Model {
    fn new(groups: usize) -> Self {
        let mut table = Table::new(7, groups, hasher()).with_heap_size(HeapSize {
            of_key: |_, _| 0,
            of_value: heap,
        });
        table.set_overlay_limit(OverlayLimit {
            fraction: 1e9,
            floor: usize::MAX,
        });
        Self {
            table,
            entries: BTreeMap::new(),
            snapshots: Vec::new(),
            leaked: 0,
            sweep: SweepCursor::default(),
            groups,
            ids: 0,
        }
    }

    fn group(&self, key: Key) -> usize {
        key.0 as usize % self.groups
    }

    fn at(&self, key: Key) -> (usize, u64) {
        (self.group(key), hasher().hash(&key.0, &key.1))
    }

    fn of_group<'a>(&'a self, entries: &'a BTreeMap<Key, u64>, group: usize) -> BTreeMap<Key, u64> {
        entries
            .iter()
            .filter(|(key, _)| self.group(**key) == group)
            .map(|(k, v)| (*k, *v))
            .collect()
    }

    fn apply(&mut self, op: &Op) {
        match op.clone() {
            Op::Insert(key, n) => {
                let (group, hash) = self.at(key);
                let had = self.table.insert(group, hash, &key.0, &key.1, Wide::new(n));
                assert_eq!(had, self.entries.insert(key, n).is_some());
            }
            Op::GetMut(key, n) => {
                let (group, hash) = self.at(key);
                let found = self.table.get_mut(group, hash, &key.0, &key.1);
                assert_eq!(found.is_some(), self.entries.contains_key(&key));
                if let (Some(value), Some(expected)) = (found, self.entries.get_mut(&key)) {
                    assert_eq!(value.number, *expected);
                    let before = heap(value);
                    value.set(n);
                    let delta = heap(value).cast_signed() - before.cast_signed();
                    self.table.adjust_heap(group, hash, &key.0, &key.1, delta);
                    *expected = n;
                }
            }
            Op::GetOrInsert(key, n) => {
                let (group, hash) = self.at(key);
                let value = self
                    .table
                    .get_or_insert_with(group, hash, &key.0, &key.1, || Wide::new(n));
                assert_eq!(value.number, *self.entries.entry(key).or_insert(n));
            }
            Op::Replace(key, n) => {
                let (group, hash) = self.at(key);
                let old = self
                    .table
                    .replace(group, hash, &key.0, &key.1, Wide::new(n));
                assert_eq!(old.map(|old| old.number), self.entries.insert(key, n));
            }
            Op::Modify(key, n, what) => {
                let (group, hash) = self.at(key);
                let old = self.table.modify(group, hash, &key.0, &key.1, |value| {
                    let old = value.as_ref().map(|value| value.number);
                    match what % 4 {
                        0 => (Change::Remove, old),
                        1 => (Change::Put(Wide::new(n)), old),
                        2 => (Change::Keep, old),
                        _ => {
                            if let Some(value) = value {
                                value.set(n);
                            }
                            (Change::Keep, old)
                        }
                    }
                });
                let expected = self.entries.get(&key).copied();
                assert_eq!(old, expected);
                match (what % 4, expected) {
                    (0, _) => drop(self.entries.remove(&key)),
                    (1, _) | (3, Some(_)) => drop(self.entries.insert(key, n)),
                    _ => {}
                }
            }
            Op::Remove(key) => {
                let (group, hash) = self.at(key);
                assert_eq!(
                    self.table.remove(group, hash, &key.0, &key.1),
                    self.entries.remove(&key).is_some()
                );
            }
            Op::Take(key) => {
                let (group, hash) = self.at(key);
                let value = self.table.take(group, hash, &key.0, &key.1);
                assert_eq!(value.map(|value| value.number), self.entries.remove(&key));
            }
            Op::ClearGroup(group) => {
                let group = group % self.groups;
                self.table.clear_group(group);
                let groups = self.groups;
                self.entries
                    .retain(|key, _| key.0 as usize % groups != group);
            }
            Op::Clear => {
                self.table.clear();
                self.entries.clear();
            }
            Op::Freeze => self.freeze(),
            Op::Release(i) => {
                if !self.snapshots.is_empty() {
                    let at = i % self.snapshots.len();
                    let snapshot = self.snapshots.swap_remove(at);
                    self.check(&snapshot);
                }
            }
            Op::ReleaseGroup(i, group) => {
                if !self.snapshots.is_empty() {
                    let (at, group) = (i % self.snapshots.len(), group % self.groups);
                    let snapshot = &mut self.snapshots[at];
                    snapshot.frozen.release_group(group);
                    snapshot.released.insert(group);
                }
            }
            Op::DropOnThread(i) => {
                if !self.snapshots.is_empty() {
                    let at = i % self.snapshots.len();
                    let snapshot = self.snapshots.swap_remove(at);
                    std::thread::spawn(move || drop(snapshot)).join().unwrap();
                }
            }
            Op::Leak(i) => {
                if self.leaked == 0 && !self.snapshots.is_empty() {
                    let at = i % self.snapshots.len();
                    std::mem::forget(self.snapshots.swap_remove(at).frozen);
                    self.leaked += 1;
                }
            }
            Op::AbortAll => self.abort_all(),
            Op::ReadSnapshot(i) => {
                if !self.snapshots.is_empty() {
                    self.check(&self.snapshots[i % self.snapshots.len()]);
                }
            }
            Op::Maintain(budget) => {
                self.table.maintain(budget);
            }
            Op::Sweep(n) => {
                let mut gone = Vec::new();
                let removed = self
                    .table
                    .sweep(&mut self.sweep, n, |key, namespace, value| {
                        let expired = value.number.is_multiple_of(5);
                        if expired {
                            gone.push((*key, *namespace, value.number));
                        }
                        expired
                    });
                assert_eq!(removed, gone.len());
                for (key, namespace, number) in gone {
                    assert_eq!(self.entries.remove(&(key, namespace)), Some(number));
                }
            }
            Op::Pages(group) => self.pages(group % self.groups),
            Op::Iterate(group) => {
                let group = group % self.groups;
                let found = self
                    .table
                    .iter(group)
                    .map(|(k, n, v)| ((*k, *n), v.number))
                    .collect();
                assert_eq!(sorted(found), self.of_group(&self.entries, group));
                assert_eq!(
                    self.table.group_len(group),
                    self.of_group(&self.entries, group).len()
                );
            }
        }
        assert_eq!(self.table.len(), self.entries.len());
    }

    fn freeze(&mut self) {
        self.ids += 1;
        match self.table.freeze(self.ids) {
            Ok(frozen) => {
                assert_eq!(frozen.len(), self.entries.len());
                let expected = self.entries.clone();
                self.snapshots.push(Snapshot {
                    frozen,
                    expected,
                    released: BTreeSet::new(),
                });
            }
            Err(error) => {
                assert_eq!(error.kind(), state_api::ErrorKind::LimitExceeded);
                assert!(
                    self.table.stats().depth > 2,
                    "declined for its depth: {error}"
                );
            }
        }
        if self.snapshots.len() > 3 {
            self.snapshots.remove(0);
        }
    }

    fn check(&self, snapshot: &Snapshot) {
        for group in 0..self.groups {
            let mut found = Vec::new();
            let read = snapshot.frozen.for_each(group, |key, namespace, value| {
                assert_eq!(*value, Wide::new(value.number));
                found.push(((*key, *namespace), value.number));
                Ok(())
            });
            if snapshot.released.contains(&group) {
                assert_eq!(
                    read.unwrap_err().kind(),
                    state_api::ErrorKind::InvalidArgument
                );
            } else {
                assert_eq!(read.unwrap(), found.len() as u64);
                assert_eq!(sorted(found), self.of_group(&snapshot.expected, group));
            }
        }
    }

    fn abort_all(&mut self) {
        if self.table.overlay_bytes() == 0 {
            return;
        }
        self.table.set_overlay_limit(OverlayLimit {
            fraction: 0.0,
            floor: 0,
        });
        self.table.maintain(0);
        self.table.set_overlay_limit(OverlayLimit {
            fraction: 1e9,
            floor: usize::MAX,
        });
        assert_eq!(self.table.stats().open_snapshots, 0);
        for snapshot in self.snapshots.drain(..) {
            if let Some(reason) = snapshot.frozen.aborted() {
                assert!(reason.overlay_bytes > 0);
                let error = snapshot.frozen.for_each(0, |_, _, _| Ok(())).unwrap_err();
                assert_eq!(error.kind(), state_api::ErrorKind::LimitExceeded);
            }
        }
        self.leaked = 0;
    }

    /// Keys come exactly once if they stay, whatever is written between pages.
    fn pages(&mut self, group: usize) {
        let before = self.of_group(&self.entries, group);
        let (mut cursor, mut keys) = (PageCursor::default(), Vec::new());
        let mut n = 1;
        while self.table.keys_page(group, &mut cursor, |key, namespace| {
            keys.push((*key, *namespace));
        }) {
            let key = (group as u32 + n * self.groups as u32, 0);
            self.apply(&Op::Insert(key, u64::from(n)));
            n += 1;
        }
        let mut unique = keys.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), keys.len(), "no key comes twice");
        assert!(before.keys().all(|key| unique.binary_search(key).is_ok()));
    }

    fn check_accounts(&self) {
        for region in &self.table.regions {
            for part in region.parts() {
                assert_eq!(part.counted().0, part.recount());
                let heap: usize = (0..self.table.layout.slots)
                    .flat_map(|slot| part.entries(slot))
                    .map(|entry| heap(&entry.value))
                    .sum();
                assert_eq!(part.counted().1, heap);
            }
        }
    }

    fn finish(mut self) {
        self.check_accounts();
        for snapshot in &self.snapshots {
            self.check(snapshot);
        }
        self.abort_all();
        self.snapshots.clear();
        if self.leaked > 0 {
            return;
        }
        while self.table.maintain(1000) {}
        let stats = self.table.stats();
        assert_eq!((stats.depth, stats.layered_regions), (1, 0), "{stats:?}");
        assert_eq!(self.table.overlay_bytes(), 0);
        self.check_accounts();
        for group in 0..self.groups {
            self.apply(&Op::Iterate(group));
        }
        let keys: Vec<Key> = self.entries.keys().copied().collect();
        for key in keys {
            let (group, hash) = self.at(key);
            let value = self
                .table
                .get(group, hash, &key.0, &key.1)
                .map(|value| value.number);
            assert_eq!(value, self.entries.get(&key).copied());
            self.apply(&Op::Remove(key));
        }
        assert!(self.table.is_empty());
        self.check_accounts();
    }
}

fn op(keys: u32, groups: usize) -> impl Strategy<Value = Op> {
    let key = move || (0..keys, 0..2_u8);
    prop_oneof![
        8 => (key(), any::<u64>()).prop_map(|(k, n)| Op::Insert(k, n)),
        6 => (key(), any::<u64>()).prop_map(|(k, n)| Op::GetMut(k, n)),
        4 => (key(), any::<u64>()).prop_map(|(k, n)| Op::GetOrInsert(k, n)),
        2 => (key(), any::<u64>()).prop_map(|(k, n)| Op::Replace(k, n)),
        4 => (key(), any::<u64>(), 0..4_u8).prop_map(|(k, n, w)| Op::Modify(k, n, w)),
        6 => key().prop_map(Op::Remove),
        2 => key().prop_map(Op::Take),
        1 => (0..groups).prop_map(Op::ClearGroup),
        1 => Just(Op::Clear),
        4 => Just(Op::Freeze),
        3 => (0..3_usize).prop_map(Op::Release),
        3 => (0..3_usize, 0..groups).prop_map(|(i, g)| Op::ReleaseGroup(i, g)),
        1 => (0..3_usize).prop_map(Op::DropOnThread),
        1 => (0..3_usize).prop_map(Op::Leak),
        1 => Just(Op::AbortAll),
        2 => (0..3_usize).prop_map(Op::ReadSnapshot),
        2 => (0..200_usize).prop_map(Op::Maintain),
        2 => (0..20_usize).prop_map(Op::Sweep),
        1 => (0..groups).prop_map(Op::Pages),
        2 => (0..groups).prop_map(Op::Iterate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn k_118_k_121_a_few_keys_behave_as_a_plain_map_with_snapshots(
        ops in prop::collection::vec(op(12, 3), 1..250)
    ) {
        let mut model = Model::new(3);
        ops.iter().for_each(|op| model.apply(op));
        model.finish();
    }

    #[test]
    fn regions_of_many_groups_behave_as_a_plain_map_with_snapshots(
        ops in prop::collection::vec(op(600, 300), 1..250)
    ) {
        let mut model = Model::new(300);
        ops.iter().for_each(|op| model.apply(op));
        model.finish();
    }
}

/// Long enough for tables to split, join, be shared and be merged many times.
#[test]
fn k_120_a_table_that_grows_and_shrinks_behaves_as_a_plain_map_with_snapshots() {
    for seed in [1, 2, 3_u64] {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut model = Model::new(2);
        for round in 0..12_u64 {
            let growing = round % 4 < 3;
            for _ in 0..2500 {
                let key = ((rng.next() % 3000) as u32, (rng.next() % 2) as u8);
                let n = rng.next();
                let op = match rng.next() % 1000 {
                    0..500 if growing => Op::Insert(key, n),
                    0..500 => Op::Remove(key),
                    500..600 => Op::GetMut(key, n),
                    600..700 => Op::GetOrInsert(key, n),
                    700..800 => Op::Modify(key, n, n as u8),
                    800..900 => Op::Take(key),
                    900..950 => Op::Sweep(4),
                    950..953 => Op::Freeze,
                    953..957 => Op::Release(n as usize % 3),
                    957..959 => Op::ReleaseGroup(n as usize % 3, n as usize % 2),
                    959 => Op::AbortAll,
                    960..961 => Op::Pages(n as usize % 2),
                    961..963 => Op::Iterate(n as usize % 2),
                    963 => Op::ReadSnapshot(0),
                    _ => Op::Maintain(50),
                };
                model.apply(&op);
            }
            model.check_accounts();
        }
        model.finish();
    }
}
