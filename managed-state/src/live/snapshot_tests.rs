//! What snapshots promise, one story per test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use state_api::ErrorKind;

use super::test_support::{Rng, hasher};
use super::{FrozenTable, LiveTable, OverlayLimit};

/// Counts its clones.
#[derive(Debug)]
struct Counted {
    number: u64,
    clones: Arc<AtomicUsize>,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Ordering::Relaxed);
        Self {
            number: self.number,
            clones: Arc::clone(&self.clones),
        }
    }
}

/// A table of counted values over some groups.
struct Bench {
    table: LiveTable<u32, u8, Counted>,
    clones: Arc<AtomicUsize>,
}

impl Bench {
    fn new(groups: usize) -> Self {
        Self {
            table: LiveTable::new(0, groups, hasher()),
            clones: Arc::default(),
        }
    }

    fn filled(groups: usize, keys: u32) -> Self {
        let mut bench = Self::new(groups);
        (0..keys).for_each(|key| bench.put(key, 0));
        bench
    }

    fn at(&self, key: u32) -> (usize, u64) {
        (
            key as usize % self.table.groups(),
            hasher().hash(&key, &0_u8),
        )
    }

    fn put(&mut self, key: u32, number: u64) {
        let (group, hash) = self.at(key);
        let clones = Arc::clone(&self.clones);
        self.table
            .insert(group, hash, &key, &0, Counted { number, clones });
    }

    fn bump(&mut self, key: u32) {
        let (group, hash) = self.at(key);
        self.table.get_mut(group, hash, &key, &0).unwrap().number += 1;
    }

    fn remove(&mut self, key: u32) {
        let (group, hash) = self.at(key);
        assert!(self.table.remove(group, hash, &key, &0));
    }

    fn get(&self, key: u32) -> Option<&Counted> {
        let (group, hash) = self.at(key);
        self.table.get(group, hash, &key, &0)
    }

    fn clones(&self) -> usize {
        self.clones.load(Ordering::Relaxed)
    }

    fn settle(&mut self) {
        while self.table.maintain(10_000) {}
    }
}

fn read(frozen: &FrozenTable<u32, u8, Counted>) -> Vec<(u32, u64)> {
    let mut entries = Vec::new();
    for group in 0..frozen.groups() {
        let visit = |key: &u32, _: &u8, value: &Counted| {
            entries.push((*key, value.number));
            Ok(())
        };
        frozen.for_each(group, visit).unwrap();
    }
    entries.sort_unstable();
    entries
}

#[test]
fn k_119_an_entry_whose_value_is_nothing_is_present_and_counted() {
    let mut table: LiveTable<u32, u8, Option<u64>> = LiveTable::new(0, 1, hasher());
    let hash = hasher().hash(&1, &0_u8);
    assert!(!table.insert(0, hash, &1, &0, None));
    assert!(table.contains(0, hash, &1, &0));
    assert_eq!((table.len(), table.group_len(0)), (1, 1));
    assert_eq!(table.get(0, hash, &1, &0), Some(&None));
}

#[test]
fn k_122_k_126_without_a_snapshot_nothing_is_copied_and_reads_meet_the_same_object() {
    let mut bench = Bench::filled(4, 100);
    let first: *const Counted = bench.get(7).unwrap();
    let second: *const Counted = bench.get(7).unwrap();
    assert_eq!(first, second);
    (0..100).for_each(|key| bench.bump(key));
    assert_eq!(bench.clones(), 0);

    let frozen = bench.table.freeze(1).unwrap();
    drop(frozen);
    bench.settle();
    (0..100).for_each(|key| bench.bump(key));
    assert_eq!((bench.clones(), bench.table.stats().copies), (0, 0));
}

#[test]
fn k_123_an_entry_is_copied_once_for_a_snapshot_and_only_when_written() {
    let mut bench = Bench::filled(1, 100);
    let frozen = bench.table.freeze(1).unwrap();
    assert_eq!(bench.get(7).unwrap().number, 0);
    assert_eq!(bench.clones(), 0, "a read copies nothing");
    bench.bump(7);
    bench.bump(7);
    assert_eq!(bench.clones(), 1);
    assert_eq!(bench.get(7).unwrap().number, 2);
    assert_eq!(
        read(&frozen),
        (0..100).map(|key| (key, 0)).collect::<Vec<_>>()
    );
    bench.put(8, 5);
    bench.remove(9);
    assert_eq!(
        bench.clones(),
        1,
        "what is replaced or removed is not copied"
    );
}

#[test]
fn k_124_an_entry_inserted_after_the_snapshot_is_not_copied() {
    let mut bench = Bench::filled(1, 10);
    let frozen = bench.table.freeze(1).unwrap();
    bench.put(50, 1);
    bench.bump(50);
    assert_eq!(bench.clones(), 0);
    assert_eq!(read(&frozen).len(), 10);
}

#[test]
fn k_125_with_the_newest_snapshot_released_entries_of_the_older_one_are_still_copied() {
    let mut bench = Bench::filled(1, 10);
    let older = bench.table.freeze(1).unwrap();
    let newer = bench.table.freeze(2).unwrap();
    drop(newer);
    bench.bump(3);
    assert_eq!(bench.clones(), 1);
    assert_eq!(read(&older)[3], (3, 0));
}

#[test]
fn k_127_a_snapshot_yields_what_was_there_including_what_was_removed_later() {
    let mut bench = Bench::filled(4, 200);
    let frozen = bench.table.freeze(1).unwrap();
    (0..200).for_each(|key| bench.remove(key));
    assert!(bench.table.is_empty());
    assert!((0..4).all(|group| bench.table.iter(group).next().is_none()));
    assert_eq!(read(&frozen).len(), 200);
    drop(frozen);
    bench.settle();
    assert_eq!(bench.table.overlay_bytes(), 0);
    assert!((0..200).all(|key| bench.get(key).is_none()));
}

#[test]
fn k_128_what_a_reader_leaves_out_does_not_disturb_the_count() {
    let mut bench = Bench::new(1);
    (0..100).for_each(|key| bench.put(key, u64::from(key)));
    let frozen = bench.table.freeze(1).unwrap();
    let mut written = 0;
    let seen = frozen
        .for_each(0, |_, _, value| {
            written += u64::from(value.number.is_multiple_of(2));
            Ok(())
        })
        .unwrap();
    assert_eq!((written, seen), (50, 100));
}

#[test]
fn k_129_releasing_a_group_again_is_no_error_and_leaves_other_snapshots_open() {
    let mut bench = Bench::filled(2, 100);
    let (one, two) = (
        bench.table.freeze(1).unwrap(),
        bench.table.freeze(2).unwrap(),
    );
    one.release_group(0);
    one.release_group(0);
    assert_eq!(one.group(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(bench.table.stats().open_snapshots, 2);
    one.release_group(1);
    assert_eq!(bench.table.stats().open_snapshots, 1);
    bench.bump(0);
    assert_eq!(bench.clones(), 1);
    assert_eq!(read(&two)[0], (0, 0));
}

#[test]
fn k_130_a_snapshot_releases_its_own_table_only() {
    let (mut one, mut two) = (Bench::filled(1, 10), Bench::filled(1, 10));
    let (frozen_one, frozen_two) = (one.table.freeze(1).unwrap(), two.table.freeze(1).unwrap());
    drop(frozen_two);
    two.settle();
    one.bump(1);
    two.bump(1);
    assert_eq!((one.clones(), two.clones()), (1, 0));
    drop(frozen_one);
}

#[test]
fn a_released_group_is_written_in_place_while_others_are_still_held() {
    let mut bench = Bench::filled(2, 100);
    let frozen = bench.table.freeze(1).unwrap();
    frozen.release_group(0);
    bench.settle();
    bench.bump(0);
    assert_eq!(bench.clones(), 0);
    bench.bump(1);
    assert_eq!(bench.clones(), 1);
}

#[test]
fn a_thousand_freezes_with_writes_return_to_the_depth_and_bytes_before() {
    let mut bench = Bench::filled(8, 20_000);
    let before = bench.table.bytes();
    let mut rng = Rng::new(11);
    for id in 0..1000 {
        let frozen = bench.table.freeze(id).unwrap();
        for _ in 0..20 {
            bench.bump((rng.next() % 20_000) as u32);
        }
        drop(frozen);
        // Half of them merge while writing, half only within the next freeze.
        if id % 2 == 0 {
            for _ in 0..50 {
                bench.bump((rng.next() % 20_000) as u32);
            }
        }
    }
    bench.settle();
    let stats = bench.table.stats();
    assert_eq!(
        (stats.depth, stats.layered_regions, stats.open_snapshots),
        (1, 0, 0)
    );
    assert_eq!(bench.table.overlay_bytes(), 0);
    assert_eq!(bench.table.bytes(), before);
}

#[test]
fn merging_goes_on_by_writes_alone_and_comes_to_an_end() {
    let mut bench = Bench::filled(4, 4000);
    let frozen = bench.table.freeze(1).unwrap();
    (0..2000).for_each(|key| bench.bump(key));
    drop(frozen);
    let mut writes = 0;
    while bench.table.stats().layered_regions > 0 {
        bench.bump(writes % 4000);
        writes += 1;
        assert!(writes < 4000, "{:?}", bench.table.stats());
    }
    assert_eq!(bench.table.overlay_bytes(), 0);
}

#[test]
fn a_fourth_snapshot_is_declined_with_its_reason_until_one_is_released() {
    let mut bench = Bench::filled(1, 100);
    let mut open = Vec::new();
    for id in 0..3 {
        open.push(bench.table.freeze(id).unwrap());
        bench.bump(id as u32);
    }
    let error = bench.table.freeze(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(error.context("snapshot"), Some("3"));
    open.pop();
    let again = bench.table.freeze(4).unwrap();
    assert_eq!(read(&again)[2], (2, 1));
    assert_eq!(read(&open[0])[0], (0, 0));
    assert_eq!(read(&open[1])[0], (0, 1));
}

#[test]
fn snapshots_without_writes_between_them_add_no_layers() {
    let mut bench = Bench::filled(1, 100);
    let open: Vec<_> = (0..50).map(|id| bench.table.freeze(id).unwrap()).collect();
    assert_eq!(bench.table.stats().depth, 2);
    assert!(open.iter().all(|frozen| read(frozen).len() == 100));
}

#[test]
fn past_the_overlay_limit_a_snapshot_is_aborted_even_if_nobody_looks_at_it() {
    let mut bench = Bench::filled(4, 40_000);
    let limit = OverlayLimit {
        fraction: 0.1,
        floor: 0,
    };
    bench.table.set_overlay_limit(limit);
    let seen = bench.table.freeze(1).unwrap();
    std::mem::forget(bench.table.freeze(2).unwrap());
    let opened = seen.group(0).unwrap();
    let base = bench.table.bytes();
    for key in 0..40_000 {
        bench.bump(key);
        assert!(
            bench.table.overlay_bytes() * 4 < base,
            "the table does not grow on"
        );
    }
    let stats = bench.table.stats();
    assert_eq!((stats.aborted, stats.open_snapshots), (2, 0));
    let reason = seen.aborted().unwrap();
    assert!(reason.overlay_bytes > reason.limit_bytes);
    let error = seen.for_each(3, |_, _, _| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(error.context("snapshot"), Some("1"));
    assert_eq!(opened.check().unwrap_err().kind(), ErrorKind::LimitExceeded);
    drop(opened);
    bench.settle();
    assert_eq!(
        (bench.table.stats().depth, bench.table.overlay_bytes()),
        (1, 0)
    );
    assert!((0..40_000).all(|key| bench.get(key).unwrap().number == 1));
}

#[test]
fn a_snapshot_is_read_on_another_thread_while_the_table_is_written() {
    let mut bench = Bench::filled(8, 20_000);
    let frozen = bench.table.freeze(1).unwrap();
    let (done, finished) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let entries = read(&frozen);
        (0..8).for_each(|group| frozen.release_group(group));
        done.send(()).unwrap();
        entries
    });
    let mut key = 0;
    while finished.try_recv().is_err() {
        bench.bump(key % 20_000);
        key += 1;
    }
    assert_eq!(
        reader.join().unwrap(),
        (0..20_000).map(|key| (key, 0)).collect::<Vec<_>>()
    );
    bench.settle();
    assert_eq!(bench.table.stats().depth, 1);
}

#[test]
fn a_snapshot_outlives_its_table() {
    let mut bench = Bench::filled(2, 100);
    let frozen = bench.table.freeze(1).unwrap();
    drop(bench);
    assert_eq!(read(&frozen).len(), 100);
}

#[test]
fn clearing_the_table_leaves_its_snapshots_alone() {
    let mut bench = Bench::filled(2, 100);
    let frozen = bench.table.freeze(1).unwrap();
    bench.table.clear();
    bench.put(1, 9);
    assert_eq!((bench.table.len(), bench.table.stats().depth), (1, 1));
    assert_eq!(read(&frozen).len(), 100);
}

/// Twenty states over 32,768 groups: the work of freezing is bounded by the regions, whatever they hold.
#[test]
fn freezing_32_768_groups_of_20_states_touches_at_most_32_regions_each() {
    for state in 0..20 {
        let mut bench = Bench::new(32_768);
        assert!(bench.table.regions.len() <= 32);
        assert!(
            bench.table.bytes() < 32 * 1024,
            "an empty table costs nearly nothing"
        );
        (0..2000).for_each(|key| bench.put(key * 16 + state, 1));
        let frozen = bench.table.freeze(1).unwrap();
        assert!(frozen.shared.regions.len() <= 32);
        assert_eq!(bench.clones(), 0);
        bench.bump(16 + state);
        assert_eq!(bench.clones(), 1);
        assert_eq!(
            read(&frozen),
            (0..2000)
                .map(|key| (key * 16 + state, 1))
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_frozen_table_may_go_to_and_be_shared_between_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<FrozenTable<u32, u8, u64>>();
    check::<LiveTable<u32, u8, u64>>();
}
