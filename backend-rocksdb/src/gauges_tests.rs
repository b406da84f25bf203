use std::collections::BTreeMap;

use backend_testkit::storage::MemoryStorage;
use backend_testkit::{RecordedGauges, block_on};
use metrics::with_local_recorder;
use state_api::{ByteStore, KeyGroup, KeyGroupRange};

use super::*;
use crate::fault_tests::{cut, open_range, open_with, restore, restore_range};

/// Returns the figure of a gauge of the database.
fn one(recorded: &RecordedGauges, name: &str) -> f64 {
    let figures = recorded.of(name);
    assert_eq!(
        figures.keys().collect::<Vec<_>>(),
        ["operator=op subtask=0"],
        "{name}"
    );
    figures["operator=op subtask=0"]
}

/// Returns the figure of a gauge of memory that all databases share.
fn shared(recorded: &RecordedGauges, name: &str) -> f64 {
    let figures = recorded.of(name);
    assert_eq!(figures.keys().collect::<Vec<_>>(), [""], "{name}");
    figures[""]
}

fn all_gauges() -> Vec<(String, String)> {
    let option = |gauge: NativeGauge| (format!("metrics.{}", gauge.option()), "true".to_owned());
    NativeGauge::all().map(option).collect()
}

fn as_options(options: &[(String, String)]) -> Vec<(&str, &str)> {
    options
        .iter()
        .map(|(key, text)| (key.as_str(), text.as_str()))
        .collect()
}

#[test]
fn every_gauge_that_can_be_chosen_is_reported_at_a_snapshot_with_its_figure() {
    let dir = tempfile::tempdir().unwrap();
    let options = all_gauges();
    let mut store = open_with(dir.path(), &as_options(&options));
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        let one = store.open_column("one").unwrap();
        let two = store.open_column("two").unwrap();
        for n in 0..300_u16 {
            store.put(one, &n.to_be_bytes(), b"value").unwrap();
        }
        store.flush(one).unwrap();
        for n in 0..20_u16 {
            store.put(two, &n.to_be_bytes(), b"value").unwrap();
        }
        store.delete(two, &7_u16.to_be_bytes()).unwrap();
        for n in 0..300_u16 {
            let found = store.get(one, &n.to_be_bytes(), &mut Vec::new());
            assert!(found.unwrap());
        }
        assert!(recorded.is_empty());
        drop(store.view().unwrap());
    });
    for gauge in NativeGauge::all() {
        let name = gauge.name();
        match gauge.source {
            Source::Levels => {
                let levels = (0..LEVELS).map(|level| one(&recorded, &format!("{name}{level}")));
                assert_eq!(levels.collect::<Vec<_>>(), [1., 0., 0., 0., 0., 0., 0.]);
            }
            Source::Cache(_) | Source::Memory(_) => {
                assert!(shared(&recorded, &name) >= 0.0, "{name}");
            }
            // By default there is none for RocksDB to count for.
            _ => assert!(one(&recorded, &name) >= 0.0, "{name}"),
        }
    }
    let figure = |name: &str| one(&recorded, &format!("holdfast_rocksdb_{name}"));
    assert_eq!(figure("num_entries_active_mem_table"), 21.0);
    assert_eq!(figure("num_deletes_active_mem_table"), 1.0);
    assert_eq!(
        (figure("background_errors"), figure("is_write_stopped")),
        (0., 0.)
    );
    assert!(figure("estimate_num_keys") >= 318.0);
    assert!(figure("bytes_written") >= 320.0 * 7.0);
    assert!(figure("bytes_read") >= 300.0 * 5.0);
    assert!(figure("block_cache_hit") >= 290.0 && figure("block_cache_miss") >= 1.0);
    assert!(figure("total_sst_files_size") > 300.0);
    let figure = |name: &str| shared(&recorded, &format!("holdfast_rocksdb_{name}"));
    assert!(figure("block_cache_capacity") > 1e6);
    assert!(figure("memory_budget") >= figure("block_cache_capacity"));
    assert!(figure("memory_used") >= figure("memory_write_buffers"));
    assert!(figure("memory_write_buffers") > 0.0);
}

#[test]
fn memory_that_each_subtask_has_for_itself_is_told_by_subtask() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("metrics.memory-budget", "true"),
        ("memory.fixed-per-slot", "64mb"),
    ];
    let mut store = open_with(dir.path(), &options);
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        store.open_column("one").unwrap();
        drop(store.view().unwrap());
    });
    let budgets = recorded.of("holdfast_rocksdb_memory_budget");
    let expected = BTreeMap::from([("subtask=0".to_owned(), f64::from(64 << 20))]);
    assert_eq!(budgets, expected);
}

#[test]
fn gauges_of_columns_are_told_apart_if_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("metrics.num-entries-active-mem-table", "true"),
        ("metrics.num-snapshots", "true"),
        ("metrics.estimate-num-keys", "false"),
        ("metrics.column-family-as-variable", "true"),
    ];
    let mut store = open_with(dir.path(), &options);
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        let one = store.open_column("one").unwrap();
        store.open_column("two").unwrap();
        store.put(one, b"key", b"value").unwrap();
        drop(store.view().unwrap());
    });
    let entries = recorded.of("holdfast_rocksdb_num_entries_active_mem_table");
    let of = |state: &str| format!("operator=op subtask=0 state={state}");
    let expected = BTreeMap::from([(of("one"), 1.0), (of("two"), 0.0)]);
    assert_eq!(entries, expected);
    assert_eq!(one(&recorded, "holdfast_rocksdb_num_snapshots"), 0.0);
    assert!(recorded.of("holdfast_rocksdb_estimate_num_keys").is_empty());
}

#[test]
fn gauges_are_reported_after_many_writes_without_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let options = [("metrics.estimate-num-keys", "true")];
    let mut store = open_with(dir.path(), &options);
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        let column = store.open_column("state").unwrap();
        let mut put = |n: u32| store.put(column, &n.to_be_bytes(), b"v").unwrap();
        (1..1 << 16).for_each(&mut put);
        assert!(recorded.is_empty());
        put(1 << 16);
        // Before the write that is counted last.
        let keys = one(&recorded, "holdfast_rocksdb_estimate_num_keys");
        assert_eq!(keys, f64::from((1 << 16) - 1));
    });
}

#[test]
fn what_a_restore_by_file_did_is_reported_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = [("incremental", "true")];
    let mut store = open_with(dir.path(), &options);
    assert_eq!(store.restored(), None);
    let column = store.open_column("state").unwrap();
    for group in 0..100_u8 {
        store.put(column, &[group, 1], &[7; 100]).unwrap();
    }
    let storage = Arc::new(MemoryStorage::new());
    let (cx, cut) = cut(&mut store, &storage, 1);
    let handles = block_on(cut.persist(cx)).unwrap();
    let bytes = store.file_bytes("state");
    let mut restored = open_with(dir.path(), &options);
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        restore(&mut restored, &handles, &storage).unwrap();
        let stats = restored.restored().unwrap();
        assert_eq!((stats.fetched_files, stats.fetched_bytes), (1, bytes));
        assert_eq!((stats.copied_bytes, stats.rewritten_bytes), (0, 0));
    });
    let figure = |name: &str| one(&recorded, &format!("holdfast_rocksdb_restored_{name}"));
    assert_eq!(figure("fetched_files"), 1.0);
    assert_eq!(figure("fetched_bytes"), bytes as f64);
    for none in [
        "copied_files",
        "copied_bytes",
        "skipped_files",
        "skipped_bytes",
        "rewritten_bytes",
        "cleaned_parts",
    ] {
        assert_eq!(figure(none), 0.0, "{none}");
    }
}

#[test]
fn files_that_are_left_out_and_bytes_that_are_rewritten_are_reported_at_the_next_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("incremental", "true"),
        ("compression.per.level", "NO_COMPRESSION"),
        ("compaction.level.target-file-size-base", "16kb"),
    ];
    let mut store = open_with(dir.path(), &options);
    let column = store.open_column("state").unwrap();
    for group in 0..128_u8 {
        for n in 0..10 {
            store.put(column, &[group, n], &[7; 100]).unwrap();
        }
    }
    store.compact().unwrap();
    let storage = Arc::new(MemoryStorage::new());
    let (cx, cut) = cut(&mut store, &storage, 1);
    let handles = block_on(cut.persist(cx)).unwrap();
    let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(60));
    let mut half = open_range(dir.path(), &options, range);
    let recorded = RecordedGauges::default();
    with_local_recorder(&recorded, || {
        restore_range(&mut half, &handles, range, &storage).unwrap();
        half.wait_for_rewriting();
        drop(half.view().unwrap());
    });
    let stats = half.restored().unwrap();
    assert!(stats.skipped_files > 0 && stats.skipped_bytes > 30_000);
    assert!(stats.rewritten_bytes > 0, "{stats:?}");
    let figure = |name: &str| one(&recorded, &format!("holdfast_rocksdb_restored_{name}"));
    assert_eq!(figure("skipped_files"), stats.skipped_files as f64);
    assert_eq!(figure("skipped_bytes"), stats.skipped_bytes as f64);
    assert_eq!(figure("rewritten_bytes"), stats.rewritten_bytes as f64);
}
