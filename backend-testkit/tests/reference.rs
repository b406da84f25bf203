//! The reference store under the contract that it is the reference for.

backend_testkit::conformance!(backend_testkit::ReferenceBackend);
backend_testkit::byte_store_conformance!(|| Box::new(backend_testkit::ReferenceStore::new()));
