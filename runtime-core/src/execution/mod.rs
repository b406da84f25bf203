//! Running a job in one process: threads, the coordinator's loop, restarts.
//!
//! The loop is one async function that a thread or a driver polls: it starts the subtasks of a run, turns their reports into
//! facts for the [coordinator](crate::coordinator), carries out its actions, and after a failure starts the next run from
//! the latest completed checkpoint. [`LocalExecution`] gives each subtask a thread; `testing::Driver` (feature `testing`) steps everything on one.
mod checkpoints;
mod control;
mod coordination;
mod deletions;
mod events;
mod failpoints;
mod folder;
mod inbox;
mod inquiries;
mod journal;
mod launch;
mod local;
mod local_copies;
mod master;
mod memory;
mod places;
mod publication;
mod report;
mod restore_plan;
mod run_tasks;
mod settings;
mod shared;
mod unread;

pub use crate::coordinator::SavepointFormat;
pub use checkpoint_storage::{LocalCopyOptions, ReadBytes, TokioExecutor};
pub use checkpoints::{CheckpointStore, LoadedCheckpoint, StoreStart};
pub use control::{CheckpointDone, JobControl, Reply};
pub use events::{CheckpointStats, JobEvent, JobEvents, NoEvents};
pub use failpoints::{Failpoint, Failpoints};
pub use folder::FolderCheckpoints;
pub use local::{JobHandle, LocalExecution};
pub use memory::MemoryCheckpoints;
pub use report::{
    CheckpointRecord, JobReport, JobState, MissingSubtask, PendingReport, RestoredFrom,
    SubtaskRecord,
};
pub use restore_plan::{OperatorFate, OperatorRestore, RestorePlan};
pub use settings::{ExecutionSettings, JobOutcome, JobParts, RestoreFrom};

pub(crate) use places::Places;
pub(crate) use restore_plan::{RestoreSources, other_hash, pair};
pub(crate) use unread::unread_in_flight;
#[cfg(feature = "testing")]
pub(crate) use {inbox::Inbox, launch::Host, launch::Launch, master::Master};
