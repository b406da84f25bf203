use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use state_api::{Attempt, CheckpointId, JobId};

use super::ReadBytes;
use crate::coordinator::{
    CheckpointFailure, CheckpointKind, FailureReason, Outcome, PendingView, Phase, TaskId,
};
use crate::task::{ActivityPhase, SnapshotReport};

/// Missing subtasks that a line of text names one by one.
const SHOWN: usize = 10;

/// What a job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Its subtasks are being initialised.
    Starting,
    /// All subtasks run.
    Running,
    /// A run has failed, and the next one is to come.
    Restarting {
        /// Why the run failed.
        reason: String,
        /// When it failed, in milliseconds of wall-clock time.
        failed_ms: i64,
        /// When the next one begins, in milliseconds of wall-clock time.
        restart_ms: i64,
    },
    /// It ends: its subtasks are told to leave, or last deletions are waited for.
    Stopping,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Restarting { .. } => "restarting",
            Self::Stopping => "stopping",
        })
    }
}

/// How a job stands, as whoever is on call wants to see it.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// The job.
    pub job: JobId,
    /// When the report was made, in milliseconds of wall-clock time.
    pub now_ms: i64,
    /// What it is doing.
    pub state: JobState,
    /// How often the job was started, this time included.
    pub attempt: Attempt,
    /// Restarts within the attempt.
    pub run: u32,
    /// Milliseconds since the attempt began.
    pub uptime_ms: u64,
    /// The checkpoint that the current run began from.
    pub restored: Option<RestoredFrom>,
    /// Number of checkpoints and savepoints that completed in this attempt.
    pub completed: u64,
    /// Number of those that were given up, by reason.
    pub aborted: BTreeMap<FailureReason, u64>,
    /// Requests that wait for their turn.
    pub waiting_requests: usize,
    /// Checkpoints that are being deleted, if the requests wait for that: more than may be pending; 0 if they wait for something else.
    pub waiting_for_deletions: usize,
    /// The checkpoints under way, oldest first.
    pub pending: Vec<PendingReport>,
    /// The last checkpoints that ended, oldest first.
    pub history: Vec<Arc<CheckpointRecord>>,
    /// The last checkpoint that completed; savepoints don't count.
    pub last_completed: Option<Arc<CheckpointRecord>>,
    /// The last savepoint that completed.
    pub last_savepoint: Option<Arc<CheckpointRecord>>,
    /// The last one that was given up.
    pub last_failed: Option<Arc<CheckpointRecord>>,
}

/// What a run began from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredFrom {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Where it was found, if that was named.
    pub path: Option<String>,
    /// What was read of it, and from where; nothing before all subtasks run.
    pub read: ReadBytes,
}

/// A checkpoint under way, with what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingReport {
    /// Its id.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// How far it is.
    pub phase: Phase,
    /// Milliseconds since its trigger.
    pub age_ms: u64,
    /// Milliseconds until it expires.
    pub left_ms: u64,
    /// Number of subtasks that are done.
    pub acked: usize,
    /// Number of subtasks that are not needed, since they had ended before.
    pub finished: usize,
    /// The subtasks that are not done: first those that a barrier has reached.
    pub missing: Vec<MissingSubtask>,
}

/// A subtask that a checkpoint waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingSubtask {
    /// Which one.
    pub task: TaskId,
    /// The names of its operators.
    pub vertex: Arc<str>,
    /// How far it is; `None` while no barrier has reached it.
    pub phase: Option<ActivityPhase>,
    /// Since when, in milliseconds of wall-clock time.
    pub since_ms: i64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// Bytes so far, as [`Activity::bytes`](crate::task::Activity::bytes) says.
    pub bytes: u64,
    /// The subtasks in front of it whose barrier it waits for.
    pub waits_for: Vec<TaskId>,
}

/// A checkpoint that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointRecord {
    /// Its id.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was triggered, in milliseconds of wall-clock time.
    pub trigger_ms: i64,
    /// Milliseconds from the trigger to the end.
    pub duration_ms: u64,
    /// All bytes it refers to; of one that was given up, those that were acked.
    pub total_bytes: u64,
    /// The bytes written for it.
    pub new_bytes: u64,
    /// Its folder, if it completed and has one.
    pub path: Option<String>,
    /// What each subtask that acked contributed, in order.
    pub subtasks: Vec<SubtaskRecord>,
}

/// What a subtask contributed to a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct SubtaskRecord {
    /// Which one.
    pub task: TaskId,
    /// The names of its operators.
    pub vertex: Arc<str>,
    /// What it cost: start delay, alignment, sync and async part.
    pub cost: SnapshotReport,
    /// All bytes it refers to.
    pub total_bytes: u64,
    /// The bytes written for it.
    pub new_bytes: u64,
}

impl CheckpointRecord {
    /// Returns why it was given up, if it was.
    #[must_use]
    pub fn failure(&self) -> Option<&CheckpointFailure> {
        match &self.outcome {
            Outcome::Completed => None,
            Outcome::Aborted(failure) => Some(failure),
        }
    }
}

impl PendingReport {
    /// Names the missing subtasks of a pending checkpoint.
    pub(super) fn new(view: &PendingView, missing: impl FnMut(TaskId) -> MissingSubtask) -> Self {
        let mut missing: Vec<_> = view.missing.iter().copied().map(missing).collect();
        // Those that no barrier has reached wait for the others.
        missing.sort_by_key(|missing| (missing.phase.is_none(), missing.task));
        Self {
            id: view.id,
            kind: view.kind,
            phase: view.phase,
            age_ms: view.age_ms,
            left_ms: view.left_ms,
            acked: view.acked,
            finished: view.finished,
            missing,
        }
    }

    /// Writes in one line what its [`Display`](fmt::Display) writes in several.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        let text = self.to_string();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        lines.join("; ")
    }

    /// Returns the number of subtasks that take part.
    #[must_use]
    pub fn total(&self) -> usize {
        self.acked + self.finished + self.missing.len()
    }
}

impl fmt::Display for PendingReport {
    /// Writes one line, and one per missing subtask, of which the first ten are named; those that are at work first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {} for {}, {} of {} subtasks done",
            self.kind,
            self.id,
            self.phase,
            Seconds(self.age_ms),
            self.acked + self.finished,
            self.total()
        )?;
        if self.finished > 0 {
            write!(f, " ({} of them had ended before)", self.finished)?;
        }
        for missing in self.missing.iter().take(SHOWN) {
            write!(f, "\n  {missing}")?;
        }
        match self.missing.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl fmt::Display for MissingSubtask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.task, self.vertex)?;
        match &self.phase {
            None => f.write_str("no barrier has come")?,
            Some(ActivityPhase::Aligning { .. }) => f.write_str("aligning")?,
            Some(ActivityPhase::RecordingInFlight { .. }) => {
                f.write_str("recording records in flight")?;
            }
            Some(ActivityPhase::Reported) => f.write_str("its word is on its way")?,
            Some(phase) => phase.fmt(f)?,
        }
        write!(f, " for {}", Seconds(self.for_ms))?;
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        for (i, task) in self.waits_for.iter().take(SHOWN).enumerate() {
            let before = if i == 0 { ", no barrier yet from" } else { "," };
            write!(f, "{before} {task}")?;
        }
        match self.waits_for.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Milliseconds, written as seconds with one digit.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} s", self.0 / 1000, self.0 % 1000 / 100)
    }
}
