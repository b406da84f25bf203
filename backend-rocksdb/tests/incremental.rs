//! The contract of a backend, with checkpoints that are files.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::OnceLock;

use backend_rocksdb::RocksDbBackend;
use backend_testkit::ByteBackend;
use state_api::BackendFactory;

/// One budget for all tests of this process, as for all databases of a program.
fn backend() -> impl BackendFactory {
    static BACKEND: OnceLock<RocksDbBackend> = OnceLock::new();
    ByteBackend::new("rocksdb", |cx| {
        let mut cx = cx.clone();
        cx.options
            .insert("incremental".to_owned(), "true".to_owned());
        Ok(Box::new(
            BACKEND.get_or_init(RocksDbBackend::new).open(&cx)?,
        ))
    })
}

backend_testkit::conformance!(backend());
