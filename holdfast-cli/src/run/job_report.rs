use std::sync::Arc;

use runtime_core::coordinator::FailureReason;
use runtime_core::execution::{
    CheckpointDone, CheckpointRecord, JobReport, JobState, MissingSubtask, PendingReport,
    SubtaskRecord,
};

use super::shown;
use crate::control::protocol::Taken;
use crate::control::report::{Ended, Missing, Pending, Restored, RunReport, SubtaskCost};
use crate::failure::{one_line, plain};
use crate::terminal::counted;

/// What the runtime does not know of the process that it runs in.
pub(super) struct More {
    pub(super) records: u64,
    pub(super) checkpoints: String,
}

impl More {
    pub(super) fn report(self, report: &JobReport) -> RunReport {
        let because = match &report.state {
            JobState::Restarting { reason, .. } => Some(one_line(reason)),
            _ => None,
        };
        let some = |record: &Option<Arc<CheckpointRecord>>| {
            record.as_deref().map(|record| Ended {
                subtasks: Vec::new(),
                ..ended_checkpoint(record)
            })
        };
        RunReport {
            job: report.job.to_string(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            now_ms: report.now_ms,
            state: report.state.to_string(),
            because,
            attempt: report.attempt.0,
            restarts: report.run,
            uptime_ms: report.uptime_ms,
            restored: report.restored.as_ref().map(|restored| Restored {
                id: restored.id.0,
                path: restored.path.as_deref().map(shown),
                bytes_from_copies: restored.read.from_copies,
                bytes_from_store: restored.read.from_store,
            }),
            records: self.records,
            checkpoints: self.checkpoints,
            completed: report.completed,
            given_up: report
                .aborted
                .iter()
                .map(|(reason, times)| (reason_text(*reason), *times))
                .collect(),
            waiting_requests: report.waiting_requests,
            waiting_for_deletions: report.waiting_for_deletions,
            pending: report.pending.iter().map(pending).collect(),
            history: report
                .history
                .iter()
                .map(|record| ended_checkpoint(record))
                .collect(),
            last_completed: some(&report.last_completed),
            last_savepoint: some(&report.last_savepoint),
            last_given_up: some(&report.last_failed),
        }
    }
}

fn reason_text(reason: FailureReason) -> String {
    reason.as_str().to_owned()
}

fn pending(pending: &PendingReport) -> Pending {
    Pending {
        id: pending.id.0,
        kind: pending.kind.to_string(),
        phase: pending.phase.to_string(),
        age_ms: pending.age_ms,
        left_ms: pending.left_ms,
        done: pending.acked + pending.finished,
        subtasks: pending.total(),
        missing: pending.missing.iter().map(missing).collect(),
    }
}

fn missing(missing: &MissingSubtask) -> Missing {
    Missing {
        subtask: missing.task.to_string(),
        operators: missing.vertex.to_string(),
        phase: missing.phase.as_ref().map(ToString::to_string),
        for_ms: missing.for_ms,
        bytes: missing.bytes,
        waits_for: missing.waits_for.iter().map(ToString::to_string).collect(),
        text: missing.to_string(),
    }
}

fn ended_checkpoint(record: &CheckpointRecord) -> Ended {
    Ended {
        id: record.id.0,
        kind: record.kind.to_string(),
        given_up: record.failure().map(|failure| plain(&failure.to_error())),
        trigger_ms: record.trigger_ms,
        duration_ms: record.duration_ms,
        total_bytes: record.total_bytes,
        new_bytes: record.new_bytes,
        path: record.path.as_deref().map(shown),
        subtasks: record.subtasks.iter().map(cost).collect(),
    }
}

fn cost(subtask: &SubtaskRecord) -> SubtaskCost {
    let cost = &subtask.cost;
    SubtaskCost {
        subtask: subtask.task.to_string(),
        operators: subtask.vertex.to_string(),
        start_delay_ms: cost.alignment.start_delay_ms,
        alignment_ns: cost.alignment.duration_ns,
        alignment_bytes: cost.alignment.bytes,
        persisted_bytes: cost.alignment.persisted_bytes,
        sync_ns: cost.sync_ns,
        async_ns: cost.async_ns,
        total_bytes: subtask.total_bytes,
        new_bytes: subtask.new_bytes,
    }
}

/// Describes a checkpoint that was asked for.
pub(super) fn taken(done: &CheckpointDone) -> Taken {
    let kind = if done.kind.is_savepoint() {
        "savepoint"
    } else {
        "checkpoint"
    };
    Taken {
        id: done.id.0,
        kind: kind.into(),
        path: done.path.as_deref().map(shown),
        duration_ms: done.duration_ms,
        total_bytes: done.total_bytes,
        new_bytes: done.new_bytes,
    }
}

/// One line on what the checkpoint waits for that a job is to end with.
pub(super) fn last_one_waits_for(report: &JobReport) -> String {
    let mut pending = report.pending.iter();
    if let Some(last) = pending.rfind(|pending| pending.kind.ends_the_job()) {
        return last.in_one_line();
    }
    let mut parts = vec![waits_for(report)];
    if let Some(failed) = &report.last_failed
        && failed.kind.ends_the_job()
        && let Some(failure) = failed.failure()
    {
        parts.push(format!("the last try: {}", plain(&failure.to_error())));
    }
    parts.join("; ")
}

/// One line on what a request waits for.
pub(super) fn waits_for(report: &JobReport) -> String {
    match (&report.state, report.pending.last()) {
        (JobState::Running, Some(pending)) => {
            let text = pending.to_string();
            let mut lines = text.lines().map(str::trim);
            let first = lines.next().unwrap_or_default().to_owned();
            // The first that is missing stands for all: the rest is for `holdfast explain`.
            match lines.next() {
                Some(missing) => format!("{first}; {missing}"),
                None => first,
            }
        }
        (JobState::Running, None) if report.waiting_for_deletions > 0 => format!(
            "it waits for the store to delete {}",
            counted(report.waiting_for_deletions as u64, "checkpoint")
        ),
        (JobState::Running, None) if report.waiting_requests > 0 => "it waits for its turn".into(),
        (JobState::Running, None) => "the job is running".into(),
        (state, _) => format!("the job is {state}"),
    }
}

#[cfg(test)]
mod tests {
    use runtime_core::alignment::AlignmentReport;
    use runtime_core::coordinator::TaskId;
    use runtime_core::task::SnapshotReport;

    use super::*;

    #[test]
    fn each_figure_of_a_subtask_is_told_in_its_own_place() {
        let record = SubtaskRecord {
            task: TaskId::new(1, 2),
            vertex: "count".into(),
            cost: SnapshotReport {
                alignment: AlignmentReport {
                    duration_ns: 1,
                    bytes: 2,
                    start_delay_ms: 3,
                    persisted_bytes: 4,
                },
                sync_ns: 5,
                async_ns: 6,
            },
            total_bytes: 7,
            new_bytes: 8,
        };
        let SubtaskCost {
            subtask,
            operators,
            start_delay_ms,
            alignment_ns,
            alignment_bytes,
            persisted_bytes,
            sync_ns,
            async_ns,
            total_bytes,
            new_bytes,
        } = cost(&record);
        assert_eq!((subtask.as_str(), operators.as_str()), ("1.2", "count"));
        let told = [
            alignment_ns,
            alignment_bytes,
            start_delay_ms,
            persisted_bytes,
            sync_ns,
            async_ns,
            total_bytes,
            new_bytes,
        ];
        assert_eq!(told, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
