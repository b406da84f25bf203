//! Which keys changed since a snapshot that was confirmed.

use std::collections::{BTreeMap, BTreeSet};

use state_api::ErrorKind;

use super::capture::LOOKS;
use super::test_support::{Rng, hasher};
use super::{ChangedKeys, FrozenTable, LiveTable};

type Table = LiveTable<u32, u8, u64>;

fn put(table: &mut Table, key: u32, value: u64) {
    table.insert(
        key as usize % 3,
        hasher().hash(&key, &0_u8),
        &key,
        &0,
        value,
    );
}

fn remove(table: &mut Table, key: u32) -> bool {
    table.remove(key as usize % 3, hasher().hash(&key, &0_u8), &key, &0)
}

fn changes(frozen: &FrozenTable<u32, u8, u64>, since: u64) -> BTreeMap<u32, Option<u64>> {
    let mut changes = BTreeMap::new();
    for group in 0..3 {
        let visit = |key: &u32, _: &u8, value: Option<&u64>| {
            assert!(
                changes.insert(*key, value.copied()).is_none(),
                "each key comes once"
            );
            Ok(())
        };
        frozen
            .for_each_change_since(since, group, |_, _, _| 0, visit)
            .unwrap();
    }
    changes
}

fn table() -> Table {
    Table::new(0, 3, hasher()).with_change_capture()
}

#[test]
fn a_first_snapshot_knows_no_changes() {
    let mut table = table();
    put(&mut table, 1, 1);
    let first = table.freeze(1).unwrap();
    assert!(!first.knows_changes_since(0));
    let error = first
        .for_each_change_since(0, 0, |_, _, _| 0, |_, _, _| Ok(()))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn changes_since_a_confirmed_snapshot_are_those_after_it_with_removals() {
    let mut table = table();
    (0..10).for_each(|key| put(&mut table, key, 0));
    let first = table.freeze(1).unwrap();
    put(&mut table, 1, 1);
    table.confirm(1);
    drop(first);
    put(&mut table, 2, 2);
    assert!(remove(&mut table, 3));
    assert!(!remove(&mut table, 99));
    put(&mut table, 20, 20);
    *table.get_or_insert_with(1, hasher().hash(&4, &0_u8), &4, &0, || 0) += 4;
    let second = table.freeze(2).unwrap();
    put(&mut table, 5, 5);
    let expected = [
        (1, Some(1)),
        (2, Some(2)),
        (3, None),
        (4, Some(4)),
        (20, Some(20)),
    ];
    assert_eq!(changes(&second, 1), BTreeMap::from(expected));
}

#[test]
fn changes_of_a_declined_snapshot_stay_in() {
    let mut table = table();
    let first = table.freeze(1).unwrap();
    table.confirm(1);
    put(&mut table, 1, 1);
    let declined = table.freeze(2).unwrap();
    put(&mut table, 2, 2);
    put(&mut table, 1, 3);
    let third = table.freeze(3).unwrap();
    drop((first, declined));
    assert_eq!(
        changes(&third, 1),
        BTreeMap::from([(1, Some(3)), (2, Some(2))])
    );
    table.confirm(3);
    put(&mut table, 7, 7);
    let fourth = table.freeze(4).unwrap();
    assert!(!fourth.knows_changes_since(1));
    assert_eq!(changes(&fourth, 3), BTreeMap::from([(7, Some(7))]));
}

#[test]
fn a_snapshot_confirmed_late_keeps_the_changes_of_the_one_after_it() {
    let mut table = table();
    put(&mut table, 1, 1);
    let first = table.freeze(1).unwrap();
    put(&mut table, 2, 2);
    let second = table.freeze(2).unwrap();
    put(&mut table, 3, 3);
    table.confirm(1);
    let third = table.freeze(3).unwrap();
    assert_eq!(
        changes(&third, 1),
        BTreeMap::from([(2, Some(2)), (3, Some(3))])
    );
    assert_eq!(changes(&third, 2), BTreeMap::from([(3, Some(3))]));
    drop((first, second));
}

#[test]
fn a_restored_table_counts_changes_from_the_snapshot_it_came_from() {
    let mut table = table();
    (0..10).for_each(|key| put(&mut table, key, 0));
    table.restored_from(40, 40);
    put(&mut table, 1, 1);
    let next = table.freeze(41).unwrap();
    assert_eq!(changes(&next, 40), BTreeMap::from([(1, Some(1))]));
}

#[test]
fn clearing_is_a_change_of_every_key() {
    let mut table = table();
    (0..4).for_each(|key| put(&mut table, key, 0));
    table.restored_from(1, 1);
    table.clear();
    let next = table.freeze(2).unwrap();
    assert_eq!(changes(&next, 1), (0..4).map(|key| (key, None)).collect());
}

#[test]
fn a_table_without_capture_knows_no_changes() {
    let mut table = Table::new(0, 3, hasher());
    table.confirm(1);
    assert!(!table.freeze(2).unwrap().knows_changes_since(1));
}

#[test]
fn unconfirmed_snapshots_do_not_pile_up_for_ever() {
    let mut table = table();
    table.restored_from(0, 0);
    for id in 1..=200 {
        put(&mut table, id as u32, id);
        drop(table.freeze(id).unwrap());
        while table.maintain(1000) {}
    }
    let last = table.freeze(201).unwrap();
    assert!(!last.knows_changes_since(0));
    assert!(last.knows_changes_since(150));
    assert_eq!(changes(&last, 150).len(), 50);
}

/// What a table was at a snapshot, and which keys changed since the one before.
struct Past {
    id: u64,
    entries: BTreeMap<u32, u64>,
    touched: BTreeSet<u32>,
}

struct Model {
    table: Table,
    groups: u32,
    entries: BTreeMap<u32, u64>,
    touched: BTreeSet<u32>,
    past: Vec<Past>,
    open: Vec<FrozenTable<u32, u8, u64>>,
    /// Since when all is known, and whether snapshots after it were discarded.
    base: u64,
    discarded: BTreeSet<u64>,
    discards: bool,
    /// Groups that a snapshot said had changed as a whole.
    whole: usize,
}

impl Model {
    fn new(groups: u32, discards: bool, whole_groups: bool) -> Self {
        let table = Table::new(0, groups as usize, hasher()).with_change_capture();
        let mut model = Self {
            table: match whole_groups {
                true => table.with_whole_groups(),
                false => table,
            },
            groups,
            entries: BTreeMap::new(),
            touched: BTreeSet::new(),
            past: Vec::new(),
            open: Vec::new(),
            base: 1,
            discarded: BTreeSet::new(),
            discards,
            whole: 0,
        };
        model.freeze();
        model
    }

    fn at(&self, key: u32) -> (usize, u64) {
        ((key % self.groups) as usize, hasher().hash(&key, &0_u8))
    }

    fn write(&mut self, op: u64, key: u32, value: u64) {
        let (group, hash) = self.at(key);
        let table = &mut self.table;
        let had = match op {
            0..4 => {
                self.entries.insert(key, value);
                table.insert(group, hash, &key, &0, value);
                true
            }
            4..6 => {
                let found = table.get_mut(group, hash, &key, &0);
                assert_eq!(found.is_some(), self.entries.contains_key(&key));
                found.is_some_and(|found| {
                    *found = value;
                    self.entries.insert(key, value);
                    true
                })
            }
            6 => {
                *table.get_or_insert_with(group, hash, &key, &0, || 0) = value;
                self.entries.insert(key, value);
                true
            }
            _ => {
                let had = table.remove(group, hash, &key, &0);
                assert_eq!(had, self.entries.remove(&key).is_some());
                had
            }
        };
        if had {
            self.touched.insert(key);
        }
    }

    fn freeze(&mut self) {
        let id = self.past.last().map_or(1, |past| past.id + 1);
        let Ok(frozen) = self.table.freeze(id) else {
            self.open.clear();
            while self.table.maintain(1000) {}
            return;
        };
        self.past.push(Past {
            id,
            entries: self.entries.clone(),
            touched: std::mem::take(&mut self.touched),
        });
        self.check(&frozen);
        self.open.push(frozen);
        if id > self.base + 10 {
            self.confirm(id - 5);
        }
    }

    fn confirm(&mut self, id: u64) {
        self.base = id;
        self.table.confirm(id);
    }

    fn check(&mut self, frozen: &FrozenTable<u32, u8, u64>) {
        let now = self.past.last().unwrap();
        for since in self
            .past
            .iter()
            .map(|past| past.id)
            .filter(|id| *id >= self.base)
        {
            assert!(frozen.knows_changes_since(since));
            let (mut seen, mut whole) = (BTreeMap::new(), BTreeSet::new());
            for group in 0..self.groups as usize {
                let visit = |key: &u32, _: &u8, value: Option<&u64>| {
                    assert!(
                        seen.insert(*key, value.copied()).is_none(),
                        "{key} comes once"
                    );
                    Ok(())
                };
                let changed = frozen
                    .for_each_change_since(since, group, |_, _, _| 0, visit)
                    .unwrap();
                if changed == ChangedKeys::All {
                    whole.insert(group as u32);
                    let mut all = BTreeMap::new();
                    let entry = |key: &u32, _: &u8, value: &u64| {
                        all.insert(*key, *value);
                        Ok(())
                    };
                    frozen.for_each(group, entry).unwrap();
                    let is_here = |(key, _): &(&u32, &u64)| *key % self.groups == group as u32;
                    let expected = now.entries.iter().filter(is_here);
                    assert!(all.iter().eq(expected), "group {group} at {}", now.id);
                }
            }
            self.whole += whole.len();
            let later = self.past.iter().filter(|past| past.id > since);
            let touched: BTreeSet<u32> = later
                .flat_map(|past| past.touched.iter().copied())
                .collect();
            let is_noted = |key: &u32| !whole.contains(&(key % self.groups));
            let noted = touched.iter().filter(|key| is_noted(key)).count();
            for key in &touched {
                let is_seen = seen.contains_key(key);
                assert_eq!(is_seen, is_noted(key), "{key} changed after {since}");
            }
            let entries = now.entries.keys().filter(|key| !is_noted(key)).count();
            for (key, value) in &seen {
                assert_eq!(*value, now.entries.get(key).copied(), "{key} at {}", now.id);
            }
            assert!(frozen.changed_since(since) >= (noted + entries) as u64);
            if self.discarded.is_empty() {
                assert_eq!(seen.len(), noted, "since {since} at {}", now.id);
            }
        }
    }

    fn step(&mut self, rng: &mut Rng, keys: u32) {
        let roll = rng.next();
        match roll % 64 {
            0 => self.freeze(),
            1 if !self.open.is_empty() => {
                self.open.swap_remove(rng.next() as usize % self.open.len());
            }
            2 => {
                self.table.maintain(rng.next() as usize % 64);
            }
            3 => {
                let id = self.past[rng.next() as usize % self.past.len()].id;
                if id > self.base && !self.discarded.contains(&id) {
                    self.confirm(id);
                }
            }
            4 if self.discards => {
                let id = self.past[rng.next() as usize % self.past.len()].id;
                if id > self.base {
                    self.discarded.insert(id);
                    self.table.discard(id);
                }
            }
            _ => self.write((roll >> 8) % 9, rng.next() as u32 % keys, roll >> 32),
        }
    }
}

#[test]
fn every_change_since_every_snapshot_is_known_whatever_happens_between_them() {
    // Few keys that come and go, and tables that grow and split; a group a region, and many groups a region.
    let mut whole = 0;
    for (seed, groups, keys, steps) in [
        (1, 3, 20, 20_000),
        (2, 3, 2_000, 20_000),
        (3, 1, 60_000, 60_000),
        (4, 300, 2_000, 10_000),
        (5, 2, 300, 20_000),
    ] {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for (discards, whole_groups) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut model = Model::new(groups, discards, whole_groups);
            for _ in 0..steps {
                model.step(&mut rng, keys);
            }
            assert!(model.past.len() > 50, "{} snapshots", model.past.len());
            assert!(whole_groups || model.whole == 0, "nobody asked for them");
            whole += model.whole;
        }
    }
    assert!(whole > 1_000, "{whole} groups changed as a whole");
}

#[test]
fn a_key_that_comes_and_goes_is_noted_once_and_a_moment_longer() {
    let mut table = table();
    table.restored_from(0, 0);
    put(&mut table, 1, 1);
    remove(&mut table, 1);
    let before = table.bytes();
    for _ in 0..10_000 {
        put(&mut table, 1, 1);
        remove(&mut table, 1);
    }
    assert!(table.bytes() < before + 4096, "{} bytes", table.bytes());
    let frozen = table.freeze(1).unwrap();
    assert_eq!(changes(&frozen, 0), BTreeMap::from([(1, None)]));
}

#[test]
fn snapshots_that_fail_for_ever_keep_each_changed_key_about_once() {
    let mut table = table();
    table.restored_from(0, 0);
    let mut most = 0;
    for id in 1..=500 {
        (0..300).for_each(|key| put(&mut table, key, id));
        drop(table.freeze(id).unwrap());
        table.discard(id);
        while table.maintain(1000) {}
        most = most.max(table.bytes());
    }
    let mut plain = Table::new(0, 3, hasher());
    (0..300).for_each(|key| put(&mut plain, key, 1));
    assert!(
        most < plain.bytes() + 40_000,
        "{most} bytes, {} without notes",
        plain.bytes()
    );
    let last = table.freeze(501).unwrap();
    assert_eq!(changes(&last, 0).len(), 300);
}

#[test]
fn a_group_of_which_more_than_half_changed_is_changed_as_a_whole_and_not_noted_any_more() {
    let mut table = table().with_whole_groups();
    (0..30_000).for_each(|key| put(&mut table, key, 0));
    table.restored_from(1, 1);
    let changed_of = |frozen: &FrozenTable<u32, u8, u64>, since: u64| {
        let changed =
            |group| frozen.for_each_change_since(since, group, |_, _, _| 0, |_, _, _| Ok(()));
        [0, 1, 2].map(|group| changed(group).unwrap())
    };
    // Group 0: half of 10,000, again and again; group 1: a few more than that; group 2: a few, one of them new.
    for value in 1..10 {
        (0..15_000)
            .step_by(3)
            .for_each(|key| put(&mut table, key, value));
    }
    (1..15_010)
        .step_by(3)
        .for_each(|key| put(&mut table, key, 1));
    [2, 5, 30_002]
        .into_iter()
        .for_each(|key| put(&mut table, key, 1));
    let noted = table.bytes();
    (1..30_000)
        .step_by(3)
        .for_each(|key| put(&mut table, key, 2));
    assert_eq!(table.bytes(), noted);
    let second = table.freeze(2).unwrap();
    let expected = [
        ChangedKeys::Some(5_000),
        ChangedKeys::All,
        ChangedKeys::Some(3),
    ];
    assert_eq!(changed_of(&second, 1), expected);
    assert_eq!(second.changed_since(1), 5_000 + 10_000 + 3);
    // Whatever was declined is in the next one, and what a complete one holds is over.
    drop(second);
    table.discard(2);
    assert!(remove(&mut table, 4));
    put(&mut table, 3, 3);
    let third = table.freeze(3).unwrap();
    assert_eq!(changed_of(&third, 1), expected);
    table.confirm(3);
    assert!(remove(&mut table, 7));
    let fourth = table.freeze(4).unwrap();
    let expected = [0, 1, 0].map(ChangedKeys::Some);
    assert_eq!(changed_of(&fourth, 3), expected);
    drop((third, fourth));
}

#[test]
fn changed_keys_come_in_the_order_of_the_table_where_marks_tell_them_and_as_noted_elsewhere() {
    // So many that the group has several tables.
    let mut table = table();
    (0..60_000).for_each(|key| put(&mut table, key * 3, 0));
    table.restored_from(1, 1);
    let noted: Vec<u32> = (0..400).rev().map(|key| key * 450).collect();
    noted.iter().for_each(|key| put(&mut table, *key, 1));
    let visited = |frozen: &FrozenTable<u32, u8, u64>, since| {
        let mut keys = Vec::new();
        let visit = |key: &u32, _: &u8, _: Option<&u64>| {
            keys.push(*key);
            Ok(())
        };
        let changed = frozen.for_each_change_since(since, 0, |_, _, _| 0, visit);
        assert_eq!(changed.unwrap(), ChangedKeys::Some(keys.len() as u64));
        keys
    };
    let second = table.freeze(2).unwrap();
    let mut in_order = Vec::new();
    let all = second.for_each(0, |key, _, value| {
        in_order.extend(Some(*key).filter(|_| *value == 1));
        Ok(())
    });
    assert_eq!(all.unwrap(), 60_000);
    assert_eq!(visited(&second, 1), in_order);
    assert_ne!(in_order, noted);
    drop(second);
    // After a removal, and in more than one interval, the keys are looked for as they were noted.
    assert!(remove(&mut table, 0));
    put(&mut table, 3, 1);
    let third = table.freeze(3).unwrap();
    assert_eq!(visited(&third, 2), [0, 3]);
    let both = [&noted[..], &[3]].concat();
    assert_eq!(visited(&third, 1), both);
    drop(third);
}

/// A table of values so wide that it has few buckets, with keys that all fall into the first of its tables: past its size no
/// bucket has a number, and so no mark.
#[test]
fn changes_in_a_table_that_has_outgrown_its_marks_are_found_wherever_a_merge_stops() {
    type Wide = LiveTable<u32, u8, [u64; 128]>;
    let hash = |key: u32| hasher().hash(&key, &0_u8);
    let crowded = (0_u32..).filter(|key| hash(*key) >> 40 & 0xff == 0);
    let keys: Vec<u32> = crowded.take(2_000).collect();
    let put = |table: &mut Wide, key: u32, value: u64| {
        table.insert(0, hash(key), &key, &0, [value; 128]);
    };
    for stop in 0..60 {
        let mut table = Wide::new(0, 1, hasher()).with_change_capture();
        keys.iter().for_each(|key| put(&mut table, *key, 0));
        table.restored_from(0, 0);
        let first = table.freeze(1).unwrap();
        let changed = [keys[stop], keys[1_999 - stop], keys[500 + 7 * stop]];
        changed.iter().for_each(|key| put(&mut table, *key, 1));
        drop(first);
        table.maintain(stop);
        let second = table.freeze(2).unwrap();
        let mut found = BTreeSet::new();
        let visit = |key: &u32, _: &u8, value: Option<&[u64; 128]>| {
            assert_eq!(value, Some(&[1; 128]));
            found.insert(*key);
            Ok(())
        };
        let said = second.for_each_change_since(1, 0, |_, _, _| 0, visit);
        assert_eq!(said.unwrap(), ChangedKeys::Some(3), "stopped at {stop}");
        assert_eq!(found, BTreeSet::from(changed), "stopped at {stop}");
    }
}

#[test]
fn a_key_that_comes_and_goes_in_a_group_of_which_nearly_half_changed_costs_no_look_at_all_of_them()
{
    let mut table = table().with_whole_groups();
    (0..24_000).for_each(|key| put(&mut table, key, 0));
    table.restored_from(0, 0);
    (0..11_997).for_each(|key| put(&mut table, key, 1));
    let before = LOOKS.get();
    for _ in 0..20_000 {
        remove(&mut table, 0);
        put(&mut table, 0, 1);
    }
    // Each makes a set of 4,000 keys.
    let looks = LOOKS.get() - before;
    assert!((1..200).contains(&looks), "{looks}");
    let frozen = table.freeze(1).unwrap();
    assert_eq!(changes(&frozen, 0).len(), 11_997);
}

#[test]
fn a_freeze_of_a_table_that_was_emptied_begins_to_note_anew() {
    // One entry in a table with room for many, whose group counts as changed as a whole by keys that came and went.
    let mut table = table().with_whole_groups();
    table.reserve(0, 100);
    put(&mut table, 0, 0);
    table.restored_from(0, 0);
    let first = table.freeze(1).unwrap();
    for key in (3..=210).step_by(3) {
        put(&mut table, key, 1);
        assert!(remove(&mut table, key));
    }
    drop(first);
    while table.maintain(1_000) {}
    let found = table.get_mut(0, hasher().hash(&0, &0_u8), &0, &0);
    *found.unwrap() = 1;
    assert!(remove(&mut table, 0));
    drop(table.freeze(2).unwrap());
    put(&mut table, 9, 9);
    let third = table.freeze(3).unwrap();
    assert_eq!(changes(&third, 2), BTreeMap::from([(9, Some(9))]));
}
