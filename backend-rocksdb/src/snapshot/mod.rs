//! Snapshots that are files: each checkpoint writes the files that the last complete one did not have, a restore puts them
//! together again, for other key groups too, without reading what is in them.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `native` | the store's snapshots |
//! | `frozen` | the files of a database at a cut |
//! | `upload` | a cut on its way to the store |
//! | `layout` | which files a database consists of |
//! | `manifest`, `record_log`, `crc32c` | the same in RocksDB's own format |
//! | `restore` | handles to a database |
//! | `merge` | several databases to one |
//! | `download` | the files of a database, from the store |
//! | `clip` | what lies beyond the key groups, away |
//! | `laps` | what the time of a restore went to |
mod clip;
mod crc32c;
mod download;
mod frozen;
mod laps;
mod layout;
mod manifest;
mod merge;
mod native;
mod record_log;
mod restore;
mod upload;

use std::collections::BTreeMap;

use state_api::StateHandle;

pub(crate) use native::Native;
pub use restore::RestoreStats;

/// The word under which snapshots of this kind stand in handles.
pub(crate) const FORMAT: &str = "rocksdb-files";

/// The name of the layout among the files of a handle.
const LAYOUT: &str = "layout";

/// The objects that hold files of the local database, by number of the file.
///
/// A number is never given to another file of the same database, so that the same number means the same bytes.
type Objects = BTreeMap<u64, StateHandle>;

#[cfg(test)]
mod fuzz_tests;
