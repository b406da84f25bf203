use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use state_api::{Attempt, CheckpointId, JobId};

use super::{CheckpointRecord, JobReport, JobState, RestoredFrom, SubtaskRecord};
use crate::coordinator::{CheckpointFailure, CheckpointKind, FailureReason, Outcome, TaskId};

/// What a job remembers for those who ask how it stands.
pub(super) struct Journal {
    pub(super) job: JobId,
    pub(super) state: JobState,
    pub(super) attempt: Attempt,
    pub(super) run: u32,
    pub(super) started_ms: i64,
    pub(super) restored: Option<RestoredFrom>,
    completed: u64,
    aborted: BTreeMap<FailureReason, u64>,
    /// What subtasks contributed to checkpoints that have not ended.
    acked: BTreeMap<CheckpointId, BTreeMap<TaskId, SubtaskRecord>>,
    /// The last ones that ended, as many as are to be kept.
    history: VecDeque<Arc<CheckpointRecord>>,
    kept: usize,
    last_completed: Option<Arc<CheckpointRecord>>,
    last_savepoint: Option<Arc<CheckpointRecord>>,
    last_failed: Option<Arc<CheckpointRecord>>,
}

/// An end of a checkpoint, as the coordinator says it.
pub(super) struct Ending {
    pub(super) id: CheckpointId,
    pub(super) kind: CheckpointKind,
    pub(super) started_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) outcome: Outcome,
    /// Bytes in all and written for it, as its metadata says; unknown if it has none.
    pub(super) bytes: Option<(u64, u64)>,
    pub(super) path: Option<String>,
}

impl Journal {
    /// Creates a journal that keeps the statistics of so many ended checkpoints, of one at least.
    pub(super) fn new(job: JobId, now_ms: i64, kept: u32) -> Self {
        Self {
            job,
            state: JobState::Starting,
            attempt: Attempt(1),
            run: 0,
            started_ms: now_ms,
            restored: None,
            completed: 0,
            aborted: BTreeMap::new(),
            acked: BTreeMap::new(),
            history: VecDeque::new(),
            kept: usize::try_from(kept).unwrap_or(usize::MAX).max(1),
            last_completed: None,
            last_savepoint: None,
            last_failed: None,
        }
    }

    /// Takes note of an ack for a pending checkpoint; the first of a subtask counts.
    pub(super) fn acked(&mut self, id: CheckpointId, record: SubtaskRecord) {
        let of_checkpoint = self.acked.entry(id).or_default();
        of_checkpoint.entry(record.task).or_insert(record);
    }

    pub(super) fn ended(&mut self, end: Ending) {
        let subtasks: Vec<_> = self
            .acked
            .remove(&end.id)
            .unwrap_or_default()
            .into_values()
            .collect();
        let (total_bytes, new_bytes) = end.bytes.unwrap_or_else(|| {
            subtasks.iter().fold((0, 0), |(total, new), subtask| {
                (total + subtask.total_bytes, new + subtask.new_bytes)
            })
        });
        let completed = end.outcome == Outcome::Completed;
        let record = Arc::new(CheckpointRecord {
            id: end.id,
            kind: end.kind,
            outcome: end.outcome,
            trigger_ms: i64::try_from(end.started_ms).unwrap_or(i64::MAX),
            duration_ms: end.ended_ms.saturating_sub(end.started_ms),
            total_bytes,
            new_bytes,
            path: end.path.filter(|_| completed),
            subtasks,
        });
        if let Some(CheckpointFailure { reason, .. }) = record.failure() {
            *self.aborted.entry(*reason).or_default() += 1;
            self.last_failed = Some(Arc::clone(&record));
        } else {
            self.completed += 1;
            if record.kind.is_savepoint() {
                self.last_savepoint = Some(Arc::clone(&record));
            } else {
                self.last_completed = Some(Arc::clone(&record));
            }
        }
        self.history.push_back(record);
        if self.history.len() > self.kept {
            self.history.pop_front();
        }
    }

    /// Returns the record of a checkpoint that ended lately; the last one that completed is there whatever ended after it.
    pub(super) fn record(&self, id: CheckpointId) -> Option<&CheckpointRecord> {
        // Those that a checkpoint subsumes end after it, and may push it out of the history.
        let last = self.last_completed.iter().chain(&self.last_savepoint);
        self.history
            .iter()
            .rev()
            .chain(last)
            .map(AsRef::as_ref)
            .find(|record| record.id == id)
    }

    /// Makes a report without what the coordinator alone knows.
    pub(super) fn report(&self, now_ms: i64) -> JobReport {
        JobReport {
            job: self.job.clone(),
            now_ms,
            state: self.state.clone(),
            attempt: self.attempt,
            run: self.run,
            uptime_ms: u64::try_from(now_ms.saturating_sub(self.started_ms)).unwrap_or(0),
            restored: self.restored.clone(),
            completed: self.completed,
            aborted: self.aborted.clone(),
            waiting_requests: 0,
            waiting_for_deletions: 0,
            pending: Vec::new(),
            history: self.history.iter().cloned().collect(),
            last_completed: self.last_completed.clone(),
            last_savepoint: self.last_savepoint.clone(),
            last_failed: self.last_failed.clone(),
        }
    }
}
