use state_api::{Attempt, CheckpointId, Error};

use super::{ReadBytes, RestorePlan};

use crate::coordinator::{CheckpointFailure, CheckpointKind, JobStatus};

/// What a completed checkpoint was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointStats {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// Milliseconds from its trigger to the published metadata.
    pub duration_ms: u64,
    /// All bytes it refers to.
    pub total_bytes: u64,
    /// The bytes written for it.
    pub new_bytes: u64,
    /// The longest alignment of a subtask, in nanoseconds.
    pub alignment_ns: u64,
    /// The most bytes of records that a subtask processed while aligning. Where the stream makes records in flight part of
    /// checkpoints, each batch counts as so many times its first record, encoded without its key; elsewhere as the memory of the
    /// records themselves, without what they own elsewhere.
    pub alignment_bytes: u64,
    /// The bytes of records in flight that are part of it, of all subtasks, as they are encoded.
    pub persisted_bytes: u64,
    /// The longest sync part of a subtask, in nanoseconds.
    pub sync_ns: u64,
    /// The longest async part of a subtask, in nanoseconds.
    pub async_ns: u64,
    /// Number of subtasks in it.
    pub subtasks: usize,
}

/// Something that happened to a job.
#[derive(Debug)]
pub enum JobEvent {
    /// A run begins.
    RunStarted {
        /// The attempt of the job.
        attempt: Attempt,
        /// Restarts within the attempt so far.
        run: u32,
        /// The checkpoint that the run starts from.
        restored: Option<CheckpointId>,
    },
    /// What becomes of each operator in the first run; nothing of it is applied yet.
    RestorePlanned(RestorePlan),
    /// All subtasks of a run are initialised.
    Running {
        /// The checkpoint that the run started from.
        restored: Option<CheckpointId>,
        /// The source positions in it, for people.
        positions: Vec<String>,
        /// What was read of it, and from where.
        read: ReadBytes,
    },
    /// The subtasks were told to begin a checkpoint.
    CheckpointTriggered(CheckpointId),
    /// A checkpoint is complete and durable.
    CheckpointCompleted(CheckpointStats),
    /// A checkpoint was given up.
    CheckpointAborted {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        failure: CheckpointFailure,
    },
    /// Something around checkpoints failed without harm to the job, such as a deletion.
    Warning(Error),
    /// A run failed.
    RunFailed {
        /// Why.
        error: Error,
        /// Milliseconds until the next run; `None` if there is none.
        restart_in_ms: Option<u64>,
    },
    /// The job has ended.
    Ended(JobStatus),
}

/// Learns what happens to a job.
///
/// # Contract
/// Implemented by users; called on the coordinator's thread; must not wait.
pub trait JobEvents: Send + Sync {
    /// Takes note of an event.
    fn on_event(&self, event: &JobEvent);
}

/// Takes note of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl JobEvents for NoEvents {
    fn on_event(&self, _event: &JobEvent) {}
}

impl<F: Fn(&JobEvent) + Send + Sync> JobEvents for F {
    fn on_event(&self, event: &JobEvent) {
        self(event);
    }
}

/// Writes an event to `tracing` and `metrics`.
pub(super) fn record(event: &JobEvent) {
    match event {
        JobEvent::RunStarted {
            attempt,
            run,
            restored,
        } => {
            let restored = restored.map(|id| id.0);
            tracing::info!(%attempt, run, restored, "run started");
        }
        JobEvent::RestorePlanned(plan) => tracing::info!(%plan, "state is restored"),
        JobEvent::Running {
            restored,
            positions,
            read,
        } => {
            metrics::gauge!("holdfast_restored_bytes_from_copies").set(read.from_copies as f64);
            metrics::gauge!("holdfast_restored_bytes_from_store").set(read.from_store as f64);
            tracing::info!(
                restored = restored.map(|id| id.0),
                ?positions,
                from_copies = read.from_copies,
                from_store = read.from_store,
                "all subtasks are running"
            );
        }
        JobEvent::CheckpointTriggered(id) => {
            metrics::counter!("holdfast_checkpoints_triggered_total").increment(1);
            tracing::debug!(checkpoint = id.0, "checkpoint triggered");
        }
        JobEvent::CheckpointCompleted(stats) => {
            metrics::counter!("holdfast_checkpoints_completed_total").increment(1);
            metrics::gauge!("holdfast_last_checkpoint_id").set(stats.id.0 as f64);
            metrics::gauge!("holdfast_last_checkpoint_duration_ms").set(stats.duration_ms as f64);
            metrics::gauge!("holdfast_last_checkpoint_bytes").set(stats.total_bytes as f64);
            metrics::gauge!("holdfast_last_checkpoint_new_bytes").set(stats.new_bytes as f64);
            metrics::gauge!("holdfast_last_checkpoint_alignment_ns").set(stats.alignment_ns as f64);
            metrics::gauge!("holdfast_last_checkpoint_alignment_bytes")
                .set(stats.alignment_bytes as f64);
            metrics::gauge!("holdfast_last_checkpoint_persisted_bytes")
                .set(stats.persisted_bytes as f64);
            metrics::gauge!("holdfast_last_checkpoint_sync_ns").set(stats.sync_ns as f64);
            metrics::gauge!("holdfast_last_checkpoint_async_ns").set(stats.async_ns as f64);
            tracing::info!(
                checkpoint = stats.id.0,
                duration_ms = stats.duration_ms,
                bytes = stats.total_bytes,
                new_bytes = stats.new_bytes,
                alignment_ns = stats.alignment_ns,
                sync_ns = stats.sync_ns,
                async_ns = stats.async_ns,
                "checkpoint completed"
            );
        }
        JobEvent::CheckpointAborted { id, failure } => {
            metrics::counter!("holdfast_checkpoints_aborted_total").increment(1);
            tracing::warn!(checkpoint = id.0, error = %failure.to_error(), "checkpoint aborted");
        }
        JobEvent::Warning(error) => tracing::warn!(%error, "checkpointing goes on"),
        JobEvent::RunFailed {
            error,
            restart_in_ms,
        } => {
            metrics::counter!("holdfast_run_failures_total").increment(1);
            tracing::error!(%error, restart_in_ms, "run failed");
        }
        JobEvent::Ended(status) => tracing::info!(?status, "job ended"),
    }
}
