//! The contract of a backend, rule by rule and mode by mode.

backend_testkit::conformance!(backend_hashmap::HashMapBackend);
