//! The contract of a state backend as a test suite, a reference byte store and fault-injecting storage.
//!
//! A backend proves itself with one macro call in `tests/conformance.rs`:
//!
//! ```
//! backend_testkit::conformance!(backend_testkit::ReferenceBackend);
//! ```
//!
//! Each rule is a plain function in [`rules`], run in several [`Mode`]s: directly on what was written, and with a checkpoint,
//! a savepoint, increments or a change of parallelism between writing and asserting. [`model`] adds random operations
//! against a plain model; `HOLDFAST_CASES` sets how many, `HOLDFAST_SEED` which. [`Suite::rules`] lists the rules with the
//! cases of the conformance catalogue that each covers.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `suite`, `macros` | the list of rules, and the macros that make tests of them |
//! | [`rules`] | the rules of a backend, a file per area |
//! | [`store_rules`] | the rules of a byte store |
//! | [`model`] | random operations on one backend or several at once, compared with a model |
//! | `context` | a subtask for a backend that is opened without a job |
//! | `setup`, `job` | subtasks with routed keys, snapshots, restores, rescaling |
//! | `dump` | a canonical savepoint as a map, to compare backends |
//! | [`storage`] | storage in memory, counting, late, failing on demand |
//! | `gauges` | what is reported to `metrics` (feature `gauges`) |
//! | `executor` | executors that run work at once, in threads, or when told to |
//! | [`fuzz`], [`meter`] | damaged inputs for decoders, and the memory that they may take |
//! | `reference_store` | the byte store that others are compared with |
//! | `native_store` | a byte store with snapshots in a format of its own |
//!
//! # A strategy for live tables
//!
//! A [`LiveSnapshots`](state_api::LiveSnapshots) strategy needs no factory to be tested:
//!
//! ```
//! # use state_api::*;
//! # struct Mine;
//! # impl LiveSnapshots for Mine {
//! #     fn snapshot(&mut self, _: &SnapshotRequest, tables: Box<dyn FrozenTables>) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
//! #         Ok(Box::new(managed_state::format::FrozenTablesSnapshot::new(tables, managed_state::format::CANONICAL)))
//! #     }
//! #     fn restore<'a>(&'a mut self, handles: &'a [KeyedHandle], cx: &'a RestoreContext, tables: &'a mut dyn LoadTables)
//! #         -> futures_util::future::LocalBoxFuture<'a, Result<()>> {
//! #         Box::pin(managed_state::format::load_tables(handles, managed_state::format::CANONICAL, cx, tables))
//! #     }
//! # }
//! backend_testkit::conformance!(backend_testkit::LiveBackend::new("mine", |_| Ok(Box::new(Mine))));
//! ```
mod context;
#[cfg(feature = "suite")]
mod dump;
#[cfg(feature = "suite")]
mod executor;
#[cfg(feature = "suite")]
mod factories;
pub mod fuzz;
#[cfg(feature = "gauges")]
mod gauges;
#[cfg(feature = "suite")]
mod job;
#[cfg(feature = "suite")]
mod macros;
pub mod meter;
#[cfg(feature = "suite")]
pub mod model;
#[cfg(feature = "suite")]
mod native_store;
mod reference_store;
#[cfg(feature = "suite")]
#[expect(
    clippy::unwrap_used,
    reason = "rules are tests: they fail by panicking"
)]
pub mod rules;
mod settings;
#[cfg(feature = "suite")]
mod setup;
#[cfg(feature = "suite")]
pub mod storage;
#[cfg(feature = "suite")]
#[expect(
    clippy::unwrap_used,
    reason = "rules are tests: they fail by panicking"
)]
pub mod store_rules;
#[cfg(feature = "suite")]
#[doc(hidden)]
pub mod suite;

pub use context::only_subtask;
#[cfg(feature = "suite")]
pub use dump::{Dump, DumpedState, dump};
#[cfg(feature = "suite")]
pub use executor::{
    InlineExecutor, ManualExecutor, ThreadExecutor, block_on, poll_once, poll_until,
};
#[cfg(feature = "suite")]
pub use factories::{ByteBackend, LiveBackend};
#[cfg(feature = "gauges")]
pub use gauges::RecordedGauges;
#[cfg(feature = "suite")]
pub use job::{Cut, Job, Register};
#[cfg(feature = "suite")]
pub use native_store::NativeStore;
pub use reference_store::{ReferenceBackend, ReferenceStore};
pub use settings::Settings;
#[cfg(feature = "suite")]
pub use setup::{Checkpoint, Mode, Setup, fails, ok};
#[cfg(feature = "suite")]
pub use storage::{Call, CountingStorage, Fault, FaultyStorage, MemoryStorage, StorageCounts};
#[cfg(feature = "suite")]
pub use suite::{Rule, Suite, run};

#[cfg(feature = "suite")]
/// What the macros name.
#[doc(hidden)]
pub mod __private {
    pub use state_api::{BackendFactory, ByteStore};
}
