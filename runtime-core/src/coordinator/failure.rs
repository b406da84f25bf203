use std::collections::BTreeSet;
use std::fmt;

use state_api::{CheckpointId, Error};

use super::CoordinatorConfig;

/// Why a checkpoint did not start or did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FailureReason {
    /// The periodic trigger came after the scheduler was stopped.
    SchedulerStopped,
    /// The queue of requests is full, or a better request took the place.
    TooManyRequests,
    /// The periodic trigger came before the end of the minimum pause.
    MinimumPause,
    /// Not every task that the checkpoint needs is running.
    TasksNotRunning,
    /// The place for the checkpoint could not be prepared.
    Storage,
    /// A step before the tasks were triggered failed.
    Trigger,
    /// The coordinator is shut down.
    CoordinatorShutdown,
    /// The job was suspended.
    Suspended,
    /// A task declined, without a more precise reason.
    Declined,
    /// The asynchronous part of a task's snapshot failed.
    AsyncPart,
    /// Writing a file of channel state that tasks share failed.
    ChannelState,
    /// A task declined because it is not ready yet.
    DeclinedNotReady,
    /// A task declined because it is closing.
    DeclinedClosing,
    /// A task declined because it saw a newer barrier.
    DeclinedSubsumed,
    /// A task declined because a cancel marker reached it.
    DeclinedCancelMarker,
    /// A task declined because its input ended.
    DeclinedInputEnded,
    /// The synchronous part of a task's snapshot failed.
    SyncPart,
    /// A task could not take part in a finished region, such as union state with some subtasks finished.
    PartlyFinished,
    /// The checkpoint was older than the timeout.
    Expired,
    /// A later checkpoint completed first.
    Subsumed,
    /// A task that had not acked yet failed.
    TaskFailed,
    /// A task that the trigger was sent to finished first.
    TaskFinished,
    /// The job restarts.
    Failover,
    /// The metadata could not be published.
    Publish,
    /// A newer attempt of the job has taken over.
    Fenced,
}

impl FailureReason {
    /// Tells whether it counts against the tolerable number of failures.
    ///
    /// Those that say nothing about the health of tasks and storage (a restart, a subsumption, a refused trigger)
    /// don't.
    #[must_use]
    pub fn is_counted(self) -> bool {
        matches!(
            self,
            Self::Storage
                | Self::AsyncPart
                | Self::SyncPart
                | Self::ChannelState
                | Self::Declined
                | Self::Expired
                | Self::Publish
        )
    }

    /// Tells whether it ended the checkpoint before any task was involved.
    #[must_use]
    pub fn is_preflight(self) -> bool {
        matches!(
            self,
            Self::SchedulerStopped
                | Self::TooManyRequests
                | Self::MinimumPause
                | Self::TasksNotRunning
                | Self::Storage
                | Self::Trigger
        )
    }

    /// Returns a short phrase for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SchedulerStopped => "periodic checkpoints are stopped",
            Self::TooManyRequests => "too many checkpoint requests are waiting",
            Self::MinimumPause => "the minimum pause since the last checkpoint is not over",
            Self::TasksNotRunning => "not all required tasks are running",
            Self::Storage => "the checkpoint storage failed",
            Self::Trigger => "the trigger failed",
            Self::CoordinatorShutdown => "the coordinator is shut down",
            Self::Suspended => "the job was suspended",
            Self::Declined => "a task declined",
            Self::AsyncPart => "the asynchronous part of a snapshot failed",
            Self::ChannelState => "writing shared channel state failed",
            Self::DeclinedNotReady => "a task was not ready",
            Self::DeclinedClosing => "a task was closing",
            Self::DeclinedSubsumed => "a task saw a newer barrier",
            Self::DeclinedCancelMarker => "a task received a cancel marker",
            Self::DeclinedInputEnded => "the input of a task ended",
            Self::SyncPart => "the synchronous part of a snapshot failed",
            Self::PartlyFinished => "an operator with union state is partly finished",
            Self::Expired => "the checkpoint expired",
            Self::Subsumed => "a later checkpoint completed first",
            Self::TaskFailed => "a task failed",
            Self::TaskFinished => "a task finished while it was being triggered",
            Self::Failover => "the job restarts",
            Self::Publish => "the metadata could not be published",
            Self::Fenced => "a newer attempt of the job has taken over",
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A checkpoint that failed: why, and what is known beyond the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFailure {
    /// The checkpoint; `None` when the request failed before it had an id.
    pub id: Option<CheckpointId>,
    /// The reason.
    pub reason: FailureReason,
    /// One line of detail for people; may be empty.
    pub detail: String,
}

impl CheckpointFailure {
    /// Converts into the error that the requester sees.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let error = match self.reason {
            FailureReason::Fenced => Error::new(state_api::ErrorKind::Fenced, self.to_string()),
            FailureReason::CoordinatorShutdown | FailureReason::Suspended => {
                Error::cancelled(self.to_string())
            }
            FailureReason::TooManyRequests => Error::limit(self.to_string()),
            _ => Error::retryable(self.to_string()),
        };
        match self.id {
            Some(id) => error.with("checkpoint", id),
            None => error,
        }
    }
}

impl fmt::Display for CheckpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "checkpoint {id} failed: {}", self.reason)?,
            None => write!(f, "no checkpoint was started: {}", self.reason)?,
        }
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.detail)
        }
    }
}

/// Counts consecutive failures against the tolerable number (Flink's `CheckpointFailureManager`).
///
/// A checkpoint counts once however often it fails, a success starts the count anew, and failures of checkpoints that
/// are not newer than the last success are history.
#[derive(Clone, Debug)]
pub struct FailureCounter {
    tolerable: u32,
    counted: BTreeSet<CheckpointId>,
    last_success: Option<CheckpointId>,
}

impl FailureCounter {
    /// Creates a counter that tolerates a number of failures; [`CoordinatorConfig::UNLIMITED`] for any number.
    #[must_use]
    pub fn new(tolerable: u32) -> Self {
        Self {
            tolerable,
            counted: BTreeSet::new(),
            last_success: None,
        }
    }

    /// Counts a failure and returns whether the job must fail; then the count starts anew.
    pub fn on_failure(&mut self, id: CheckpointId, reason: FailureReason) -> bool {
        if self.tolerable == CoordinatorConfig::UNLIMITED
            || !reason.is_counted()
            || self.last_success.is_some_and(|last| id <= last)
        {
            return false;
        }
        self.counted.insert(id);
        let too_many = self.counted.len() as u64 > u64::from(self.tolerable);
        if too_many {
            self.counted.clear();
        }
        too_many
    }

    /// Notes a success.
    pub fn on_success(&mut self, id: CheckpointId) {
        self.counted.clear();
        self.last_success = self.last_success.max(Some(id));
    }

    /// Returns the current count.
    #[must_use]
    pub fn count(&self) -> usize {
        self.counted.len()
    }

    /// Starts the count anew, as after a restore.
    pub fn reset(&mut self) {
        self.counted.clear();
    }
}
