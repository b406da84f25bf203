//! The contract of a state backend as a test suite, a reference byte store and fault-injecting storage.
