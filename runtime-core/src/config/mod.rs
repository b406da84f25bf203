//! Settings of a job, under Flink's option names, from YAML and TOML files and from the program.
//!
//! A [`Configuration`] holds text that was checked when it came in; typed views read it:
//! [`CheckpointSettings`] (with [`StorageSettings`]), [`RecoverySettings`], [`restart_strategy`], [`local_copies()`], [`protection()`],
//! [`BackendSettings`] and [`ParallelismSettings`]. Each view can also be made without a configuration; the defaults are Flink's.
//!
//! ```
//! use runtime_core::config::{CheckpointSettings, Configuration, Syntax};
//!
//! let file = "execution.checkpointing:\n  interval: 10 s\n  dir: /var/lib/flights/checkpoints\n";
//! let configuration = Configuration::parse(file, Syntax::Yaml, "holdfast.yaml")?
//!     .with("execution.checkpointing.interval", "1 s")?; // the program overrides the file
//! let settings = CheckpointSettings::from_configuration(&configuration)?;
//! assert_eq!(settings.interval, Some(std::time::Duration::from_secs(1)));
//! # Ok::<(), state_api::Error>(())
//! ```

mod backend_settings;
mod checkpoint_settings;
mod configuration;
mod file;
mod local_copies;
mod option;
pub mod options;
mod parallelism_settings;
mod protection;
mod recovery_settings;
mod restart_settings;
mod secrets;
mod storage_settings;
mod toml_text;
mod yaml;

pub use backend_settings::BackendSettings;
pub use checkpoint_settings::{CheckpointMode, CheckpointSettings};
pub use configuration::{Configuration, Origin};
pub use file::Syntax;
pub use local_copies::local_copies;
pub use option::{ConfigOption, Support, ValueKind};
pub use parallelism_settings::ParallelismSettings;
pub use protection::{protection, store_access};
pub use recovery_settings::{ClaimMode, RecoverySettings};
pub use restart_settings::restart_strategy;
pub use state_api::option_text::parse_duration;
pub use storage_settings::{StorageLocation, StorageSettings};
