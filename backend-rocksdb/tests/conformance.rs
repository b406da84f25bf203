//! The contract of a backend and of a byte store, rule by rule and mode by mode.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use backend_rocksdb::RocksDbBackend;
use state_api::{
    BackendContext, ByteStore, JobId, KeyGroup, KeyGroupRange, ManualClock, MaxParallelism,
    OperatorUid, Subtask,
};

/// One budget for all tests of this process, as for all databases of a program.
fn backend() -> RocksDbBackend {
    static BACKEND: OnceLock<RocksDbBackend> = OnceLock::new();
    BACKEND.get_or_init(RocksDbBackend::new).clone()
}

fn local_dir() -> PathBuf {
    std::env::temp_dir()
}

fn store() -> Box<dyn ByteStore> {
    let cx = BackendContext {
        job: JobId::new("conformance").unwrap(),
        operator: OperatorUid::new("store").unwrap(),
        subtask: Subtask {
            index: 0,
            parallelism: 1,
        },
        max_parallelism: MaxParallelism::new(128).unwrap(),
        range: KeyGroupRange::new(KeyGroup(0), KeyGroup(127)),
        local_dir: local_dir(),
        clock: Arc::new(ManualClock::at(0)),
        options: BTreeMap::new(),
    };
    Box::new(backend().open(&cx).unwrap())
}

backend_testkit::conformance!(backend());
backend_testkit::byte_store_conformance!(store);
