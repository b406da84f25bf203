//! Which keys changed since a snapshot that was confirmed.

use std::collections::BTreeMap;

use state_api::ErrorKind;

use super::test_support::hasher;
use super::{FrozenTable, LiveTable};

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
        frozen.for_each_change_since(since, group, visit).unwrap();
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
        .for_each_change_since(0, 0, |_, _, _| Ok(()))
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
    table.restored_from(40);
    put(&mut table, 1, 1);
    let next = table.freeze(41).unwrap();
    assert_eq!(changes(&next, 40), BTreeMap::from([(1, Some(1))]));
}

#[test]
fn clearing_is_a_change_of_every_key() {
    let mut table = table();
    (0..4).for_each(|key| put(&mut table, key, 0));
    table.restored_from(1);
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
    table.restored_from(0);
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
