//! The contract of a backend and of a byte store, rule by rule and mode by mode.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::OnceLock;

use backend_rocksdb::RocksDbBackend;
use backend_testkit::only_subtask;
use state_api::ByteStore;

/// One budget for all tests of this process, as for all databases of a program.
fn backend() -> RocksDbBackend {
    static BACKEND: OnceLock<RocksDbBackend> = OnceLock::new();
    BACKEND.get_or_init(RocksDbBackend::new).clone()
}

fn store() -> Box<dyn ByteStore> {
    let cx = only_subtask(128, &std::env::temp_dir(), &[]);
    Box::new(backend().open(&cx).unwrap())
}

backend_testkit::conformance!(backend());
backend_testkit::byte_store_conformance!(store);
