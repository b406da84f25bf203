//! The contract of a state backend as a test suite, a reference byte store and fault-injecting storage.
mod reference_store;

pub use reference_store::{ReferenceBackend, ReferenceStore};
