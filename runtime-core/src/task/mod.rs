//! The part of a task that takes checkpoints, whatever engine drives it.
//!
//! [`TaskCore`] is the memory of one subtask about checkpoints: which are old, which were given up before their barrier
//! came, whose uploads are in flight. [`SubtaskSnapshot`] is what the operators of a subtask froze at a cut, on its way
//! to the store. [`PendingCommits`] keeps the transactions of a sink until a checkpoint that names them is complete. A
//! local subtask drives them by barriers; an engine with a progress frontier drives them by that.
mod activity;
mod core;
mod counted_stream;
mod hardening;
mod mailbox;
mod pending_commits;
mod report;
mod snapshot;
mod snapshot_work;
mod subtask;
#[cfg(test)]
pub(crate) mod subtask_tests;

pub use self::activity::{Activity, ActivityPhase};
pub use self::core::{Begin, TaskCore};
pub use hardening::Hardening;
pub use mailbox::{Command, Mailbox};
pub use pending_commits::PendingCommits;
pub use report::{CheckpointAck, Reporter, SnapshotReport, TaskReport};
pub use snapshot::{FailedSnapshot, OperatorParts, SubtaskSnapshot};
pub use snapshot_work::SnapshotWork;
pub(crate) use subtask::NO_CHECKPOINT;
pub use subtask::{Progress, Subtask};
