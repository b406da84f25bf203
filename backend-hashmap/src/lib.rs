//! Live tables made durable by full copy-on-write snapshots: the backend to start with, and the one to copy.
//!
//! State lives as typed objects in memory ([`managed_state::live`]). Each snapshot writes all of it, in the canonical
//! format, while the task goes on. Flink's counterpart is `HashMapStateBackend`.
//!
//! ```
//! let mut backends = state_api::BackendRegistry::new();
//! backend_hashmap::register(&mut backends).unwrap();
//! assert_eq!(backends.names(), ["hashmap"]);
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config` | options, read from text |
//! | `backend` | the factory and the strategy behind it |
mod backend;
mod config;

pub use backend::{HashMapBackend, HashMapSnapshots};
pub use config::HashMapConfig;

use state_api::{BackendRegistry, Result};

/// The name by which a configuration chooses this backend.
pub const NAME: &str = "hashmap";

/// Adds this backend to a registry.
///
/// # Errors
/// `AlreadyExists` when the name is taken.
pub fn register(registry: &mut BackendRegistry) -> Result<()> {
    registry.register(HashMapBackend)
}
