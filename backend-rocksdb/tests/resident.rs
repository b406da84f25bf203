//! Memory of the process, not as RocksDB accounts it but as the system does.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use backend_rocksdb::{RocksDbBackend, SharedMemory};
use backend_testkit::only_subtask;
use state_api::ByteStore;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 24 * MIB;
/// What the process may take above the budget: for the allocator, the tables of open files, and compactions at work.
const MARGIN: u64 = 24 * MIB;
const VALUE: usize = 4 << 10;
const KEYS: u64 = 192 * MIB / VALUE as u64;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[test]
fn resident_memory_stays_near_the_budget_while_eight_times_as_much_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let backend = RocksDbBackend::new().with_memory(SharedMemory::new(BUDGET, 0.5));
    let cx = only_subtask(128, dir.path(), &[]);
    let before = resident();
    let mut store = backend.open(&cx).unwrap();
    let column = store.open_column("state").unwrap();
    let mut most = 0;
    let mut value = vec![0; VALUE];
    let fill = |key: u64, value: &mut [u8]| {
        // Incompressible.
        for (at, word) in value.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(key * 512 + at as u64).to_le_bytes());
        }
    };
    for key in 0..KEYS {
        fill(key, &mut value);
        store.put(column, &mix(key).to_be_bytes(), &value).unwrap();
        if key % 64 == 0 {
            most = most.max(resident());
        }
    }
    let (mut found, mut expected) = (Vec::new(), vec![0; VALUE]);
    for at in 0..KEYS {
        let key = mix(at) % KEYS;
        assert!(
            store
                .get(column, &mix(key).to_be_bytes(), &mut found)
                .unwrap()
        );
        fill(key, &mut expected);
        assert_eq!(found, expected);
        if at % 64 == 0 {
            most = most.max(resident());
        }
    }
    let above = most.saturating_sub(before);
    println!("{} MiB above {}", above / MIB, before / MIB);
    assert!(above <= BUDGET + MARGIN, "{above}");
    assert!(above >= BUDGET / 2, "the load fills the budget: {above}");
}
