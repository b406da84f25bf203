//! How do I bring a store of my own, with incremental checkpoints? A complete third-party backend over [redb](https://www.redb.org).
//!
//! redb 4.6 and fjall 3.1 are both maintained, in pure Rust, with ordered scans; fjall, an LSM tree of 40 crates with a journal
//! and background threads, takes random writes to large state faster. redb is one B-tree file on one crate (`libc`), used more
//! widely, and its read transaction is just what a snapshot needs: a view that costs nothing and is read on another thread.
//!
//! Here is the factory: how a configuration names the backend, and its options. `store` is the state as ordered bytes with its
//! views, `increments` which keys changed and what a checkpoint writes of them.
//!
//! All that is not redb's own comes from `managed-state`: types, time-to-live, timers, migration, canonical savepoints, what
//! may be built upon, objects, restore at another parallelism. `tests/redb_backend.rs` runs the suite of `backend-testkit`.
mod increments;
mod store;

use state_api::{BackendContext, BackendFactory, Error, KeyedBackend, Result};

/// The name in configurations, and the word for the format in handles.
pub const NAME: &str = "redb";

/// Makes redb databases in the process's local folder. Its one option, `cache-size`, is in bytes: 64 MiB if not given.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedbBackend;

impl BackendFactory for RedbBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        let mut cache_bytes = 64 << 20;
        for (option, text) in &cx.options {
            if option != "cache-size" {
                return Err(Error::config(format!(
                    "the state backend redb has no option {option:?}, only \"cache-size\""
                )));
            }
            let parsed = text.parse::<usize>();
            cache_bytes =
                parsed.map_err(|e| Error::config(format!("cache-size {text:?} is no number")).caused_by(e))?;
        }
        Ok(KeyedBackend::Bytes(Box::new(store::RedbStore::create(cx, cache_bytes)?)))
    }
}
