use state_api::CheckpointId;

use super::{FailureReason, JobStatus, Plan, TaskId, Trigger};

/// How writing the metadata of a checkpoint went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PublishFault {
    /// The metadata is certainly not there and never will be.
    NotWritten,
    /// Nobody knows whether the metadata is there: its objects must not be deleted.
    Unknown,
    /// A newer attempt of the job has taken over.
    Fenced,
}

/// Something that happened, as the engine tells the coordinator; `A` is what an ack carries.
#[derive(Clone, Debug)]
pub enum Fact<A> {
    /// A point in time that [`next_wakeup`](super::CheckpointCoordinator::next_wakeup) asked for has come.
    Tick,
    /// Somebody asks for a checkpoint.
    Trigger(Trigger),
    /// Every task of the plan runs, for the first time or after a restart; periodic checkpoints begin.
    TasksRunning {
        /// The tasks.
        plan: Plan,
        /// A random number that spreads the first trigger over minimum pause to interval.
        random: u64,
    },
    /// Periodic checkpoints are wanted again after [`Fact::StopScheduler`].
    StartScheduler {
        /// A random number that spreads the first trigger over minimum pause to interval.
        random: u64,
    },
    /// Periodic checkpoints stop, what is pending or waits is aborted as suspended; requests by people stay possible.
    StopScheduler,
    /// The place that [`Action::PrepareLocation`](super::Action::PrepareLocation) asked for is ready.
    LocationReady {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// That place could not be prepared.
    StorageFailed {
        /// The checkpoint.
        id: CheckpointId,
        /// What went wrong, in one line.
        detail: String,
    },
    /// A step between the place and the tasks failed, such as reaching a task that the trigger goes to.
    TriggerFailed {
        /// The checkpoint.
        id: CheckpointId,
        /// What went wrong, in one line.
        detail: String,
    },
    /// A task finished its snapshot.
    Ack {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        id: CheckpointId,
        /// The handles of its state; a task without state acks too.
        state: A,
    },
    /// A task cannot take part.
    Decline {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: FailureReason,
        /// What went wrong, in one line.
        detail: String,
    },
    /// The engine knows that all acks of a checkpoint are in.
    Seal {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// A task came to the end of its input and ended.
    TaskFinished {
        /// The task.
        task: TaskId,
    },
    /// A task failed; checkpoints that wait for its ack end.
    TaskFailed {
        /// The task.
        task: TaskId,
    },
    /// All tasks are stopped for a restart; [`Fact::TasksRunning`] follows. Requests of people go on waiting; one for the final
    /// checkpoint is answered, and made again when the input has ended again.
    Failover,
    /// The metadata of a checkpoint is durable.
    Published {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// The metadata of a checkpoint could not be written.
    PublishFailed {
        /// The checkpoint.
        id: CheckpointId,
        /// What is known about the metadata.
        fault: PublishFault,
        /// What went wrong, in one line.
        detail: String,
    },
    /// The deletions that an action named for this id are over, successful or not.
    Cleaned {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// Another attempt of the job has taken over.
    Fenced,
    /// The job has ended.
    Stop {
        /// How.
        status: JobStatus,
    },
}
