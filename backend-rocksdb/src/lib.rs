//! Keyed state as bytes in RocksDB on local disk: for state that is larger than memory.
//!
//! Each keyed operator subtask has a database of its own, in a folder that lives as long as the subtask. Nothing in it is durable:
//! durability comes from snapshots. Flink's counterpart is `EmbeddedRocksDBStateBackend`.
//!
//! Everything here is behind the feature `rocksdb`, because RocksDB is compiled from source.
#![cfg_attr(
    feature = "rocksdb",
    doc = r#"
```
let mut backends = state_api::BackendRegistry::new();
backend_rocksdb::register(&mut backends).unwrap();
assert_eq!(backends.names(), ["rocksdb"]);
```

| file | what it holds |
| --- | --- |
| `backend` | the factory |
| `config`, `config_text` | the settings, and how they are read from options given as text |
| `tuning` | the settings as RocksDB's own options |
| `memory` | the one memory budget of all databases in a process |
| `folder` | the folder of a database, and what dead processes left |
| `log_folder` | where RocksDB's own logs go |
| `process_end` | what a process waits for at its end |
| `database` | an open database with its columns |
| `flushes` | which memory has become files |
| `store` | the byte store on it |
| `pages` | iterators to pages |
| `view` | a frozen database |
| `expiry`, `lent` | what compactions leave out |
| `snapshot` | snapshots that are files |
| `key_access` | which write buffers find keys by hash |
| `compactor`, `compactions` | compactions on demand, and what they wrote |
| `gauges` | RocksDB's own figures as metrics |
| `error` | RocksDB's errors as ours |
"#
)]

#[cfg(feature = "rocksdb")]
mod backend;
#[cfg(feature = "rocksdb")]
mod compactions;
#[cfg(feature = "rocksdb")]
mod compactor;
#[cfg(feature = "rocksdb")]
mod config;
#[cfg(feature = "rocksdb")]
mod config_text;
#[cfg(feature = "rocksdb")]
mod database;
#[cfg(feature = "rocksdb")]
mod error;
#[cfg(feature = "rocksdb")]
mod expiry;
#[cfg(all(test, feature = "rocksdb"))]
mod fault_tests;
#[cfg(feature = "rocksdb")]
mod flushes;
#[cfg(feature = "rocksdb")]
mod folder;
#[cfg(feature = "rocksdb")]
mod gauges;
#[cfg(feature = "rocksdb")]
mod key_access;
#[cfg(feature = "rocksdb")]
mod lent;
#[cfg(feature = "rocksdb")]
mod log_folder;
#[cfg(feature = "rocksdb")]
mod memory;
#[cfg(feature = "rocksdb")]
mod pages;
#[cfg(feature = "rocksdb")]
mod process_end;
#[cfg(feature = "rocksdb")]
mod snapshot;
#[cfg(feature = "rocksdb")]
mod store;
#[cfg(feature = "rocksdb")]
mod tuning;
#[cfg(feature = "rocksdb")]
mod view;

#[cfg(feature = "rocksdb")]
pub use backend::{RocksDbBackend, register};
#[cfg(feature = "rocksdb")]
pub use compactor::Compactor;
#[cfg(feature = "rocksdb")]
pub use config::{
    BloomFilter, CompactionStyle, Compression, InfoLog, MemoryConfig, Predefined, RocksDbConfig,
};
#[cfg(feature = "rocksdb")]
pub use gauges::NativeGauge;
#[cfg(feature = "rocksdb")]
pub use memory::SharedMemory;
#[cfg(feature = "rocksdb")]
pub use rocksdb;
#[cfg(feature = "rocksdb")]
pub use snapshot::RestoreStats;
#[cfg(feature = "rocksdb")]
pub use store::RocksDbStore;

/// The name by which a configuration chooses this backend.
pub const NAME: &str = "rocksdb";
