//! Live tables made durable by checkpoint streams: live-object speed, and checkpoints that cost what changed.
//!
//! State lives as typed objects in memory ([`managed_state::live`]). A checkpoint is a *base* with all of it and *change streams*
//! on top: each appends what changed since the last checkpoint that was reported complete (entries, map entries and list
//! elements one by one). When the changes outweigh the base, the next base is written in the background. Flink's
//! counterpart is `FsStateBackend`, whose checkpoints were always full; choosing this backend is choosing incremental checkpoints.
//!
//! ```
//! let mut backends = state_api::BackendRegistry::new();
//! backend_fs::register(&mut backends).unwrap();
//! assert_eq!(backends.names(), ["filesystem", "fs"]);
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `config` | options, read from text |
//! | `backend` | the factory and the strategy behind it |
//! | `background` | what became of the bases that were written in the background |
//! | `chain` | the objects of a checkpoint that others build upon, and when the next base is due |
//! | `rewrite` | the base that is written in the background |
//! | `snapshot` | the async part |
mod backend;
mod background;
mod chain;
mod config;
mod rewrite;
mod snapshot;

pub use backend::{ChangeStreams, FsBackend};
pub use background::BackgroundBases;
pub use config::FsConfig;

use std::sync::Arc;

use state_api::{BackendRegistry, Result};

/// The name by which a configuration chooses this backend.
pub const NAME: &str = "fs";

/// The name that Flink has for it.
pub const OLD_NAME: &str = "filesystem";

/// The word for the format in handles.
pub const FORMAT: &str = "changes";

/// Adds this backend to a registry, under both of its names.
///
/// # Errors
/// `AlreadyExists` when a name is taken.
pub fn register(registry: &mut BackendRegistry) -> Result<()> {
    registry.register_as(NAME, Arc::new(FsBackend))?;
    registry.register_as(OLD_NAME, Arc::new(FsBackend))
}
