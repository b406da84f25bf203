use std::collections::BTreeSet;
use std::sync::Arc;

use state_api::CheckpointId;

use super::{
    CheckpointFailure, CheckpointKind, FailureReason, RequestId, SavepointFormat, TaskId, Verdict,
};

/// What one task contributed to a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acked<A> {
    /// The task.
    pub task: TaskId,
    /// What its ack carried.
    pub state: A,
}

/// The contributions to one checkpoint by ascending task, shared because a failed publish needs them a second time.
pub type Acks<A> = Arc<[Acked<A>]>;

/// How a checkpoint ended; said exactly once for each that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is complete and durable.
    Completed,
    /// It failed.
    Aborted(CheckpointFailure),
}

/// An event that called for no work; worth a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// A task acked twice; nothing is discarded, since both acks name the same objects.
    DuplicateAck(CheckpointId, TaskId),
    /// An ack, decline, seal or other word on a checkpoint that has ended.
    Late(CheckpointId),
    /// A word on a checkpoint that this coordinator never began; nothing is touched.
    UnknownCheckpoint(CheckpointId),
    /// A word of a task that the checkpoint does not wait for.
    UnknownTask(CheckpointId, TaskId),
    /// A seal while acks are missing, from an engine that left counting to the coordinator.
    PrematureSeal(CheckpointId),
    /// A periodic trigger came to nothing.
    PeriodicRefused(FailureReason),
}

/// Something the engine must do, in the order given; `A` is what an ack carries.
///
/// # Contract
/// - Shared objects of an ack are registered before the ack is handed to the coordinator, also when the checkpoint has
///   ended: discarding an ack deletes its private objects, shared ones go when no retained checkpoint uses them.
/// - Deletions (`Discard`, `DiscardAck`, `Retract`, `Overtaken`, `Subsume`, `AtStop`) are repeatable, run off the critical path and
///   only while no newer attempt exists. `Discard`, `Retract`, `Overtaken` and `Subsume` with `delete` are answered by
///   [`Fact::Cleaned`](super::Fact::Cleaned), also when deleting failed.
/// - `Publish` is answered by exactly one of `Published` and `PublishFailed`, also after `CancelPublish`.
/// - `PrepareLocation` is answered by one of `LocationReady` and `StorageFailed`.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<A> {
    /// Make the place where the checkpoint goes.
    PrepareLocation {
        /// The checkpoint.
        id: CheckpointId,
        /// Its kind.
        kind: CheckpointKind,
        /// How a savepoint is written.
        format: SavepointFormat,
        /// Where a savepoint goes; `None` for the configured place.
        target: Option<String>,
    },
    /// Tell these tasks to begin the checkpoint.
    TriggerTasks {
        /// The checkpoint.
        id: CheckpointId,
        /// Its kind.
        kind: CheckpointKind,
        /// How a savepoint is written.
        format: SavepointFormat,
        /// Whether it may refer to nothing that an earlier one wrote.
        full: bool,
        /// When it was triggered, in milliseconds.
        timestamp_ms: u64,
        /// The tasks that no other running task feeds.
        tasks: BTreeSet<TaskId>,
    },
    /// Write the metadata, atomically and only if absent.
    Publish {
        /// The checkpoint.
        id: CheckpointId,
        /// Its kind.
        kind: CheckpointKind,
        /// When it was triggered, in milliseconds.
        timestamp_ms: u64,
        /// What the tasks contributed.
        acks: Acks<A>,
        /// Tasks that were finished: they contribute nothing and are not to be run again after a restore.
        finished: BTreeSet<TaskId>,
    },
    /// Give up writing the metadata if that is still possible; the answer to `Publish` comes all the same.
    CancelPublish {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// Tell every task that the checkpoint is complete.
    NotifyComplete {
        /// The checkpoint.
        id: CheckpointId,
        /// When it was triggered, in milliseconds.
        timestamp_ms: u64,
        /// The newest checkpoint that it displaced, whose state tasks may forget.
        subsumed: Option<CheckpointId>,
    },
    /// Tell every task that the checkpoint is given up.
    NotifyAbort {
        /// The checkpoint.
        id: CheckpointId,
        /// The newest complete one.
        latest_completed: Option<CheckpointId>,
    },
    /// Delete what an aborted checkpoint left behind: its acks' private objects and its place.
    Discard {
        /// The checkpoint.
        id: CheckpointId,
        /// What tasks had contributed.
        acks: Acks<A>,
    },
    /// Delete the private objects of an ack that came too late or from a task nobody waits for.
    DiscardAck {
        /// The checkpoint.
        id: CheckpointId,
        /// The ack.
        ack: Acked<A>,
    },
    /// Delete the metadata first, then the rest: a checkpoint that was given up became durable all the same.
    Retract {
        /// The checkpoint.
        id: CheckpointId,
        /// What tasks had contributed.
        acks: Acks<A>,
    },
    /// Touch nothing of this checkpoint: it may exist or not, and a restart goes on from it if it does.
    LeaveBehind {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// Delete a checkpoint that was left behind, the metadata first, if it exists: a later one is complete.
    Overtaken {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// Release a completed checkpoint that later ones displaced, and delete its contents if it is ours.
    Subsume {
        /// The checkpoint.
        id: CheckpointId,
        /// Whether to delete its contents.
        delete: bool,
    },
    /// Answer a request.
    ReplyTrigger {
        /// The request.
        request: RequestId,
        /// The completed checkpoint, or why there is none.
        result: Result<CheckpointId, CheckpointFailure>,
    },
    /// Fail the job; while it fails already, that is no second failure.
    FailJob {
        /// The failure that was one too many.
        failure: CheckpointFailure,
    },
    /// Stop at once, write and delete nothing: a newer attempt has taken over.
    Fenced,
    /// Note how a checkpoint ended, for statistics and history.
    Ended {
        /// The checkpoint.
        id: CheckpointId,
        /// Its kind.
        kind: CheckpointKind,
        /// When it was triggered, in milliseconds.
        started_ms: u64,
        /// When it ended, in milliseconds.
        ended_ms: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// The job has ended: delete and keep these checkpoints; what [`LeaveBehind`](Self::LeaveBehind) named stays as well, with the
    /// shared objects it uses, if it is still [unresolved](super::CheckpointCoordinator::unresolved).
    AtStop(Verdict),
    /// Nothing more comes from this coordinator, but refusals and [`Action::DiscardAck`].
    Stopped,
    /// Nothing to do; log it.
    Remark(Remark),
}
