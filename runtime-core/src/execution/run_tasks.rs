use std::collections::BTreeSet;

use state_api::Error;

use super::ReadBytes;
use super::coordination::{Coordination, Effect, to_all};
use super::launch::Run;
use crate::coordinator::{CheckpointKind, Fact, RequestId, TaskId, Trigger};
use crate::task::{CheckpointAck, Command, TaskReport};

/// The final checkpoint's requester: ourselves.
const FINAL_REQUEST: RequestId = RequestId(u64::MAX);

/// How a run ended.
pub(super) enum RunEnd {
    Finished,
    /// Put aside, to be continued from its last checkpoint.
    Suspended,
    /// With what had failed before, if something had.
    Cancelled(Option<Error>),
    Fenced,
    Failed(Error),
}

/// The subtasks of a run as the loop sees them.
pub(super) struct RunTasks {
    pub(super) number: u32,
    pub(super) run: Run,
    pub(super) random: u64,
    pub(super) running: BTreeSet<TaskId>,
    pub(super) input_ended: BTreeSet<TaskId>,
    pub(super) ended: BTreeSet<TaskId>,
    pub(super) positions: Vec<String>,
    /// What the running ones read to be restored.
    pub(super) read: ReadBytes,
    /// How the run ends, once that is decided.
    pub(super) end: Option<RunEnd>,
    /// Somebody wants the job to end: no other run follows, whatever this one ends with.
    pub(super) cancelled: bool,
    pub(super) failed_over: bool,
    /// The checkpoint that the run ends with is complete; the subtasks are not told yet to leave.
    leaving: bool,
    pub(super) final_requested: bool,
    pub(super) final_failed: bool,
    pub(super) final_retry_ms: Option<i64>,
}

impl RunTasks {
    pub(super) fn new(number: u32, run: Run, random: u64) -> Self {
        Self {
            number,
            run,
            random,
            running: BTreeSet::new(),
            input_ended: BTreeSet::new(),
            ended: BTreeSet::new(),
            positions: Vec::new(),
            read: ReadBytes::default(),
            end: None,
            cancelled: false,
            failed_over: false,
            leaving: false,
            final_requested: false,
            final_failed: false,
            final_retry_ms: None,
        }
    }

    pub(super) fn have_ended(&self) -> bool {
        self.ended.len() == self.run.mailboxes.len()
    }

    pub(super) fn end(self) -> RunEnd {
        let number = self.number;
        match self.end {
            Some(RunEnd::Failed(error)) if self.cancelled => RunEnd::Cancelled(Some(error)),
            Some(end) => end,
            None => RunEnd::Failed(Error::bug("subtasks ended by themselves").with("run", number)),
        }
    }

    /// Ends the job with this run; one that has finished ends as it would, unless it fails after all.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
        self.stop(RunEnd::Cancelled(None));
    }

    /// Tells all subtasks to leave; the first reason counts, but a failure while finishing is a failure.
    pub(super) fn stop(&mut self, end: RunEnd) {
        match (&self.end, &end) {
            (None, _)
            | (Some(RunEnd::Finished | RunEnd::Suspended), RunEnd::Failed(_) | RunEnd::Fenced)
            // Who is fenced does not restart.
            | (Some(RunEnd::Failed(_)), RunEnd::Fenced) => self.end = Some(end),
            (Some(_), _) => return,
        }
        to_all(Some(&self.run), Command::Stop);
    }

    /// Tells whether the subtasks leave in peace, as far as is known.
    pub(super) fn ends_well(&self) -> bool {
        matches!(self.end, Some(RunEnd::Finished | RunEnd::Suspended))
    }

    pub(super) fn all_input_ended(&self) -> bool {
        let all = self.run.mailboxes.len();
        self.input_ended.len() == all && self.running.len() == all && self.end.is_none()
    }

    pub(super) fn request_final_if_due(&mut self, coordination: &mut Coordination) {
        if self.all_input_ended() && !self.final_requested {
            self.final_requested = true;
            self.request_final(coordination);
        }
    }

    pub(super) fn request_final(&mut self, coordination: &mut Coordination) {
        if self.end.is_none() {
            self.handle(
                coordination,
                Fact::Trigger(Trigger::new(CheckpointKind::Final, FINAL_REQUEST)),
            );
        }
    }

    pub(super) fn commit_if_due(&mut self) {
        if self.all_input_ended() {
            self.end = Some(RunEnd::Finished);
            to_all(Some(&self.run), Command::CommitAndFinish);
        }
    }

    pub(super) fn handle(&mut self, coordination: &mut Coordination, fact: Fact<CheckpointAck>) {
        let effects = coordination.handle(Some(&self.run), fact);
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::FailRun(failure) => self.stop(RunEnd::Failed(failure.to_error())),
                Effect::Fenced => self.stop(RunEnd::Fenced),
                Effect::LastCompleted(kind) if self.end.is_none() => {
                    self.leaving = true;
                    self.end = Some(match kind {
                        CheckpointKind::StopWithCheckpoint => RunEnd::Suspended,
                        _ => RunEnd::Finished,
                    });
                }
                Effect::Replied(FINAL_REQUEST, Err(_)) => self.final_failed = true,
                Effect::LastCompleted(_) | Effect::Replied(..) | Effect::Stopped => {}
            }
        }
        // Told after the actions: each subtask hears of the completion, and commits, before it leaves.
        if std::mem::take(&mut self.leaving) && self.ends_well() {
            to_all(Some(&self.run), Command::Finish);
        }
    }

    /// Waits no longer for what came of publications.
    pub(super) fn give_up_publishing(&mut self, coordination: &mut Coordination) {
        let effects = coordination.give_up_publishing(Some(&self.run));
        self.take(effects);
    }

    /// Passes on what a subtask, of an earlier run perhaps, says about a checkpoint.
    pub(super) fn late_report(
        &mut self,
        coordination: &mut Coordination,
        task: TaskId,
        report: TaskReport,
    ) {
        let effects = coordination.take_report(Some(&self.run), task, report);
        self.take(effects);
    }
}
