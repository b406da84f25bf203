//! A byte store behind the object cache, under the contract of a backend: a cache of a few KiB, which gives entries up all the
//! time, and one that holds everything, so that the store is read by nobody; snapshots of the store's own and canonical ones.

use backend_testkit::{ByteBackend, NativeStore, ReferenceStore};
use state_api::{BackendFactory, ByteStore, ObjectCacheBudget};

/// Less than a key of each state, for all subtasks together.
const TINY: usize = 4 << 10;
const BIG: usize = 64 << 20;

fn canonical(bytes: usize) -> impl BackendFactory {
    let budget = ObjectCacheBudget::new(bytes);
    ByteBackend::new("cached reference", move |_| {
        let store = ReferenceStore::new().with_object_cache(budget.clone());
        Ok(Box::new(store) as Box<dyn ByteStore>)
    })
}

fn native(bytes: usize) -> impl BackendFactory {
    let budget = ObjectCacheBudget::new(bytes);
    ByteBackend::new("cached native", move |cx| {
        let store = NativeStore::new(cx, Some(budget.clone()));
        Ok(Box::new(store) as Box<dyn ByteStore>)
    })
}

backend_testkit::conformance!(mod tiny => super::canonical(super::TINY));
backend_testkit::conformance!(mod tiny_native => super::native(super::TINY));
backend_testkit::conformance!(mod big_native => super::native(super::BIG));
