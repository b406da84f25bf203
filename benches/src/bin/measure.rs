//! Prints tables of measurements: all of them, or the parts that are named.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tables are what it is for"
)]
use std::process::ExitCode;
use std::time::Duration;

use benches::cache::Behind;
use benches::process::OtherCores;
use benches::table::Table;
use benches::{
    cache, capture, changes, coordinator, cuts, job, memory, meter, operations, overhead, ratios,
    settings, snapshots, stalls, writers,
};
use state_api::Result;

#[global_allocator]
static ALLOCATOR: meter::Metered = meter::Metered;

const USAGE: &str = "measure [PART]...

parts   ratios   single operations on values, against bare tables, alternated
        kinds    every kind of state, against bare tables
        cache    hot keys behind the object cache of a byte store, against live tables
        stalls   the longest single operations
        layers   writes around a snapshot
        sync     the sync part of a snapshot
        disk     snapshot and restore, MB/s
        writers  throughput while a snapshot is being written
        capture  change capture
        changes  checkpoints of change streams beside full ones, and updates under them beside those of hashmap
        memory   bytes per key
        job      a whole job: words, key by, count, discard

only if named:
        hang         every key rewritten while the store hangs
        coordinator  the coordinator's side of checkpoints of very many subtasks, acks simulated
        rocksdb-checkpoints  checkpoints, restores and rescales of the RocksDB backend by file (feature rocksdb)
        overhead     the job with a checkpoint every second and without, in turns: throughput
        windows      one job, with a checkpoint every second and without in turns of BENCH_WINDOW (5) seconds: throughput; BENCH_ROUNDS is 30 here
        rocksdb      state over RocksDB against the bare crate (needs the feature rocksdb)
        rocksdb-cache   the same as cache, over RocksDB (needs the feature rocksdb)
        rocksdb-memory  resident memory of state over RocksDB that is much larger than its budget (needs the feature rocksdb)

BENCH_KEYS (1000000) is the number of keys, BENCH_HOT (100000) that of hot ones behind a cache, BENCH_ROUNDS (5) that of alternations, BENCH_RECORDS (5000000) that of the job's records, BENCH_HANG (60) the seconds that a store hangs,
BENCH_SUBTASKS (10000) and BENCH_OBJECTS (100) the coordinator's subtasks and the shared objects of each, BENCH_SECONDS (60) those of one run of the overhead,
BENCH_MEGABYTES (1024, for checkpoints 1000) and BENCH_BUDGET (64) the MiB of state over RocksDB and of its memory, BENCH_ROCKSDB more options of the backend (name=value, separated by spaces),
TMPDIR the place for snapshots.";

const PARTS: [&str; 12] = [
    "ratios", "kinds", "cache", "stalls", "layers", "sync", "disk", "writers", "capture",
    "changes", "memory", "job",
];

/// Parts that take long, or much memory.
const IF_NAMED: &[&str] = &[
    "hang",
    "coordinator",
    "overhead",
    "windows",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb-cache",
    #[cfg(feature = "rocksdb")]
    "rocksdb-memory",
    #[cfg(feature = "rocksdb")]
    "rocksdb-checkpoints",
];

fn main() -> ExitCode {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let parts: Vec<&str> = match named.is_empty() {
        true => PARTS.to_vec(),
        false => named.iter().map(String::as_str).collect(),
    };
    if let Some(unknown) = parts
        .iter()
        .find(|part| !PARTS.contains(part) && !IF_NAMED.contains(part))
    {
        eprintln!("unknown part {unknown:?}\n\n{USAGE}");
        return ExitCode::from(2);
    }
    for part in parts {
        let others = OtherCores::start();
        match measure(part) {
            Ok(table) => println!("{table}"),
            Err(error) => {
                eprintln!("{part}: {error}");
                return ExitCode::FAILURE;
            }
        }
        if let Some(cores) = others.cores() {
            println!("Other processes took {cores:.2} cores meanwhile.\n");
        }
    }
    ExitCode::SUCCESS
}

fn hot() -> usize {
    settings::number("BENCH_HOT", 100_000)
}

fn measure(part: &str) -> Result<Table> {
    let (n, rounds) = (settings::keys(), settings::rounds());
    match part {
        "ratios" => ratios::table(n, rounds),
        "kinds" => operations::table(n, rounds),
        "cache" => cache::table(Behind::REFERENCE, hot(), rounds),
        #[cfg(feature = "rocksdb")]
        "rocksdb-cache" => cache::table(Behind::ROCKSDB, hot(), rounds),
        "stalls" => stalls::table(n),
        "layers" => cuts::layer_table(n, rounds),
        "sync" => cuts::sync_table(n),
        "disk" => snapshots::throughput_table(n, rounds),
        "writers" => writers::table(n, rounds),
        "capture" => capture::table(n, rounds),
        "changes" => changes::table(n, rounds),
        "memory" => memory::table(n),
        "job" => {
            let records = settings::number("BENCH_RECORDS", 5_000_000);
            job::table(n, records as u64, rounds)
        }
        "coordinator" => {
            let subtasks = settings::number("BENCH_SUBTASKS", 10_000);
            let shared = settings::number("BENCH_OBJECTS", 100);
            coordinator::table(u32::try_from(subtasks).unwrap_or(u32::MAX), shared)
        }
        #[cfg(feature = "rocksdb")]
        "rocksdb-checkpoints" => {
            let megabytes = settings::number("BENCH_MEGABYTES", 1_000);
            let given = settings::options("BENCH_ROCKSDB");
            let options: Vec<(&str, &str)> = given
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            let place = std::env::temp_dir();
            benches::rocksdb_checkpoints::table(megabytes as f64 / 1e3, &options, &place)
        }
        "overhead" => {
            let seconds = settings::number("BENCH_SECONDS", 60);
            overhead::table(n, Duration::from_secs(seconds as u64), rounds)
        }
        "windows" => {
            let seconds = settings::number("BENCH_WINDOW", 5);
            let pairs = settings::number("BENCH_ROUNDS", 30);
            overhead::windows_table(n, Duration::from_secs(seconds as u64), pairs)
        }
        #[cfg(feature = "rocksdb")]
        "rocksdb" => benches::rocksdb::table(n, rounds),
        #[cfg(feature = "rocksdb")]
        "rocksdb-memory" => {
            let megabytes = settings::number("BENCH_MEGABYTES", 1 << 10);
            let budget = settings::number("BENCH_BUDGET", 64);
            benches::rocksdb_memory::table(megabytes, (budget as u64) << 20)
        }
        _ => {
            let seconds = settings::number("BENCH_HANG", 60);
            writers::hang_table(n, Duration::from_secs(seconds as u64))
        }
    }
}
