//! The checkpoint coordinator: a pure state machine that decides when a checkpoint begins, completes and ends.
//!
//! Facts go in, actions come out. There is no I/O, no clock, no thread and no barrier in here: the engine tells the
//! [`CheckpointCoordinator`] what happened and when, carries out the [`Action`]s in order, and calls again at
//! [`CheckpointCoordinator::next_wakeup`]. How a trigger travels through the job and how it is known that all acks are
//! in is the engine's business ([`Sealing`]).
//!
//! A checkpoint passes through three phases ([`Phase`]):
//!
//! ```text
//! request -> [queue] -> Preparing -> Snapshotting -> Publishing -> completed
//!                           |             |              |
//!                           +-------------+--------------+--> aborted
//! ```
//!
//! Once its metadata is being written a checkpoint is no longer undone by the failure of a task or a restart: it is
//! consistent, and only the store knows whether it became durable. If it expires there or is overtaken, the
//! engine is asked to cancel the write, and what was acked stays untouched until the outcome is known. So an engine
//! that restores waits until [`CheckpointCoordinator::is_settled`], and looks into the store when
//! [`CheckpointCoordinator::unresolved`] is not empty.

mod action;
mod completed;
mod config;
mod fact;
mod failure;
mod finish;
mod machine;
mod pending;
mod plan;
mod progress;
mod request;
mod trigger;

pub use action::{Acked, Acks, Action, Outcome, Remark};
pub use completed::{
    CompletedCheckpoint, CompletedCheckpoints, JobStatus, Retention, Subsumed, Verdict,
};
pub use config::{CoordinatorConfig, Sealing};
pub use fact::{Fact, PublishFault};
pub use failure::{CheckpointFailure, FailureCounter, FailureReason};
pub use machine::{CheckpointCoordinator, Restored};
pub use pending::{PendingView, Phase};
pub use plan::{Connection, Participants, Plan, PlanVertex, TaskId};
pub use request::{CheckpointKind, RequestId, SavepointFormat, Trigger};
