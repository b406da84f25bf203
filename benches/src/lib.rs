//! Measurements of Holdfast, each beside what it is to be compared with.
//!
//! | command | what it prints |
//! | --- | --- |
//! | `cargo bench -p benches` | criterion's estimates of single operations, then ratios to bare hash tables, alternated |
//! | `cargo run --release -p benches --bin measure` | stalls, snapshots, restore, memory, change capture |
//! | `cargo run --release -p benches --bin compare` | the operations of the peer harness, here and there in turns |
//! | `cargo run --release -p benches --bin instructions` | instructions per operation, free of noise (needs valgrind) |
//!
//! `docs/performance.md` holds figures with their commands.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `workload` | keys, values and orders, the same as the peer harness has |
//! | `subject` | keyed state and bare tables behind one trait |
//! | `stopwatch`, `histogram`, `meter`, `process`, `table` | measuring and printing |
//! | `disk`, `store` | where snapshots go: a local folder; a store that swallows or hangs |
//! | `ratios`, `operations` | single operations |
//! | `stalls`, `writers`, `snapshots`, `cuts`, `memory`, `capture` | everything around snapshots and memory |
//! | `cache` | the object cache in front of a byte store |
//! | `rocksdb` (a feature) | state over RocksDB against the bare crate |
//! | `rocksdb_memory` (a feature) | resident memory of state over RocksDB |
//! | `job`, `overhead` | a whole job; what checkpoints cost it |
//! | `coordinator` | the coordinator's side of checkpoints of very many subtasks |
//! | `rocksdb_checkpoints` (feature `rocksdb`) | checkpoints and rescales of the RocksDB backend by file |
//! | `rocksdb_snapshots` (feature `rocksdb`) | snapshots, restores and rescales as the peer harness takes them over RocksDB |
//! | `peer` | running the peer harness and reading its lines |
pub mod cache;
pub mod capture;
pub mod changes;
pub mod coordinator;
pub mod cuts;
pub mod disk;
pub mod histogram;
pub mod job;
pub mod memory;
pub mod meter;
pub mod operations;
pub mod overhead;
pub mod peer;
pub mod process;
pub mod ratios;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_checkpoints;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_memory;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_snapshots;
pub mod settings;
pub mod snapshots;
pub mod stalls;
pub mod stopwatch;
pub mod store;
pub mod subject;
pub mod table;
pub mod workload;
pub mod writers;
