//! One memory budget for all databases of a program.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::path::Path;
use std::sync::Arc;

use backend_rocksdb::{RocksDbBackend, RocksDbStore, SharedMemory};
use backend_testkit::only_subtask;
use state_api::{ByteStore, Subtask};

fn open(
    backend: &RocksDbBackend,
    local_dir: &Path,
    index: u32,
    options: &[(&str, &str)],
) -> RocksDbStore {
    let mut cx = only_subtask(128, local_dir, options);
    cx.subtask = Subtask {
        index,
        parallelism: 4,
    };
    backend.open(&cx).unwrap()
}

#[test]
fn k_264_k_266_k_267_databases_with_the_same_settings_share_one_budget() {
    let dir = tempfile::tempdir().unwrap();
    let backend = RocksDbBackend::new();
    let budget = |index, options: &[(&str, &str)]| {
        let store = open(&backend, dir.path(), index, options);
        let memory = store.memory().cloned();
        (store, memory)
    };
    let (_a, one) = budget(0, &[]);
    let (_b, two) = budget(1, &[]);
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.total(), 512 << 20);
    // As Flink divides it: two thirds of the part for write buffers.
    assert_eq!(one.write_buffer_limit(), (512 << 20) / 3);
    let slot = [("memory.fixed-per-slot", "64mb")];
    let (_c, three) = budget(0, &slot);
    let (_d, four) = budget(1, &slot);
    let (_e, five) = budget(1, &slot);
    let (three, four, five) = (three.unwrap(), four.unwrap(), five.unwrap());
    assert!(!Arc::ptr_eq(&three, &four) && Arc::ptr_eq(&four, &five));
    assert_eq!(four.total(), 64 << 20);
    assert!(budget(0, &[("memory.managed", "false")]).1.is_none());
    // The budget ends with the last database that draws on it.
    let weak = Arc::downgrade(&one);
    drop((one, two, _a));
    assert!(weak.upgrade().is_some());
    drop(_b);
    assert!(weak.upgrade().is_none());
}

#[test]
fn live_objects_have_their_part_of_the_budget_if_one_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let backend = RocksDbBackend::new();
    assert!(open(&backend, dir.path(), 0, &[]).object_cache().is_none());
    let options = [
        ("memory.fixed-per-tm", "64mb"),
        ("memory.object-cache-ratio", "0.25"),
    ];
    let (one, two) = (
        open(&backend, dir.path(), 0, &options),
        open(&backend, dir.path(), 1, &options),
    );
    let (objects, same) = (one.object_cache().unwrap(), two.object_cache().unwrap());
    assert!(Arc::ptr_eq(&objects, &same));
    assert_eq!(objects.capacity(), 16 << 20);
    let memory = one.memory().unwrap();
    // Of the 48 MiB that are left, a third.
    assert_eq!(memory.write_buffer_limit(), 16 << 20);
    let before = memory.used();
    assert!(objects.draw(1 << 20));
    assert_eq!(memory.used(), before + (1 << 20));
}

#[test]
fn the_budget_is_held_under_load() {
    const BUDGET: u64 = 24 << 20;
    /// Of each of six columns, with values of 1 KiB.
    const KEYS: u64 = 8_192;
    let dir = tempfile::tempdir().unwrap();
    let backend = RocksDbBackend::new().with_memory(SharedMemory::new(BUDGET, 0.5));
    let mut stores: Vec<_> = (0..2)
        .map(|index| open(&backend, dir.path(), index, &[]))
        .collect();
    let memory = Arc::clone(stores[0].memory().unwrap());
    let columns: Vec<_> = stores
        .iter_mut()
        .map(|store| ["a", "b", "c"].map(|name| store.open_column(name).unwrap()))
        .collect();
    let value = [3; 1 << 10];
    let mut highest = 0;
    let mut read = Vec::new();
    // 48 MiB through a budget of 24.
    for key in 0..KEYS {
        for (store, columns) in stores.iter_mut().zip(&columns) {
            for column in columns {
                let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                store.put(*column, &key, &value).unwrap();
                store.get(*column, &key, &mut read).unwrap();
            }
        }
        highest = highest.max(memory.used());
    }
    for (store, columns) in stores.iter().zip(&columns) {
        for key in 0..KEYS {
            let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            assert!(store.get(columns[0], &key, &mut read).unwrap());
            highest = highest.max(memory.used());
        }
    }
    assert!(memory.write_buffers() <= memory.write_buffer_limit() * 3 / 2);
    // Blocks in use and the write buffers that are being written may pass it for a moment.
    let margin = BUDGET as usize / 4;
    println!("highest: {highest} of {BUDGET}");
    assert!(highest <= BUDGET as usize + margin, "{highest}");
    assert!(
        highest >= BUDGET as usize / 2,
        "the load fills the budget: {highest}"
    );
}
