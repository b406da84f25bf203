use std::sync::Arc;

use checkpoint_storage::{InputEnd, ReadBytes};
use state_api::{CheckpointId, Error, OperatorSnapshot, OperatorUid};

use crate::alignment::AlignmentReport;
use crate::coordinator::{FailureReason, TaskId};

/// What the snapshot of one subtask cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The alignment before it.
    pub alignment: AlignmentReport,
    /// Nanoseconds that the subtask's thread was held up: hooks, sink pre-commits and freezing.
    pub sync_ns: u64,
    /// Nanoseconds from the end of the sync part to the last durable byte.
    pub async_ns: u64,
}

/// What one subtask contributes to a checkpoint: the handles of its operators, by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointAck {
    /// The operators with state, or that are able to have some; the metadata shares them.
    pub operators: Vec<(OperatorUid, Arc<OperatorSnapshot>)>,
    /// Those that had been told something of the end of their input.
    pub input_ends: Vec<(OperatorUid, InputEnd)>,
    /// What it cost.
    pub report: SnapshotReport,
}

impl CheckpointAck {
    /// Creates what a subtask contributes.
    #[must_use]
    pub fn new(operators: Vec<(OperatorUid, OperatorSnapshot)>, report: SnapshotReport) -> Self {
        let shared = |(uid, snapshot)| (uid, Arc::new(snapshot));
        Self {
            operators: operators.into_iter().map(shared).collect(),
            input_ends: Vec::new(),
            report,
        }
    }

    /// Returns what an operator had been told of the end of its input.
    #[must_use]
    pub fn input_end(&self, uid: &OperatorUid) -> InputEnd {
        let told = self.input_ends.iter().find(|(known, _)| known == uid);
        told.map_or(InputEnd::Ahead, |(_, told)| *told)
    }

    /// Returns all bytes pointed at, new and reused.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.operators
            .iter()
            .map(|(_, snapshot)| snapshot.total_bytes())
            .sum()
    }

    /// Returns the bytes written for this checkpoint.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        self.operators
            .iter()
            .map(|(_, snapshot)| snapshot.new_bytes())
            .sum()
    }
}

/// What a subtask tells the engine.
#[derive(Debug)]
pub enum TaskReport {
    /// Its state is initialised; the first record may come.
    Running {
        /// The source positions that it starts from after a restore, for people.
        positions: Vec<String>,
        /// What it read to be restored.
        read: ReadBytes,
    },
    /// Its snapshot is durable.
    Ack {
        /// The checkpoint.
        id: CheckpointId,
        /// The handles.
        ack: CheckpointAck,
    },
    /// It can't take part in a checkpoint.
    Decline {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        reason: FailureReason,
        /// What went wrong, in one line.
        detail: String,
        /// What was durable already and now belongs to nobody.
        orphans: CheckpointAck,
    },
    /// It has processed all its input; only checkpoints keep it alive.
    InputEnded,
    /// It ended as it was told to.
    Ended,
    /// It failed.
    Failed(Error),
}

/// Takes the reports of subtasks.
///
/// # Contract
/// Implemented by engines; called from any thread; never waits.
pub trait Reporter: Send + Sync {
    /// Takes a report.
    fn report(&self, task: TaskId, report: TaskReport);

    /// Takes note that the async part of a snapshot begins; what is returned is dropped when it has ended, after its report if
    /// there is one.
    fn writing(&self) -> Option<Box<dyn Send>> {
        None
    }
}
