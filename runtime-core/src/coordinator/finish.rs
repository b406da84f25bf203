//! How a checkpoint and the coordinator itself end: publishing, completion, abort, expiry, fencing, stop.

use state_api::CheckpointId;

use super::machine::Life;
use super::pending::Pending;
use super::request::Queued;
use super::trigger::refuse;
use super::{
    Acks, Action, CheckpointCoordinator, CheckpointFailure, CheckpointKind, CompletedCheckpoint,
    Fact, FailureReason, JobStatus, Outcome, Phase, PublishFault, Remark, Verdict,
};

/// What happens to the objects of a checkpoint that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftovers {
    Discard,
    /// The metadata may exist.
    LeaveBehind,
}

impl<A> CheckpointCoordinator<A> {
    pub(super) fn on_published(&mut self, now_ms: u64, id: CheckpointId, out: &mut Vec<Action<A>>) {
        if let Some(acks) = self.abandoned.remove(&id) {
            self.cleaning.insert(id);
            return out.push(Action::Retract { id, acks });
        }
        match self.pending.get(&id).map(|p| p.phase) {
            Some(Phase::Publishing) => {
                if let Some(pending) = self.pending.remove(&id) {
                    self.complete(now_ms, pending, out);
                }
            }
            _ => self.remark_absent(id, out),
        }
    }

    pub(super) fn on_publish_failed(
        &mut self,
        now_ms: u64,
        id: CheckpointId,
        fault: PublishFault,
        detail: String,
        out: &mut Vec<Action<A>>,
    ) {
        if fault == PublishFault::Fenced {
            return self.fence(now_ms, out);
        }
        if let Some(acks) = self.abandoned.remove(&id) {
            return match fault {
                PublishFault::NotWritten => self.discard(id, acks, out),
                _ => self.leave_behind(id, out),
            };
        }
        match self.pending.get(&id).map(|p| p.phase) {
            Some(Phase::Publishing) => {
                let leftovers = match fault {
                    PublishFault::NotWritten => Leftovers::Discard,
                    _ => Leftovers::LeaveBehind,
                };
                if let Some(pending) = self.pending.remove(&id) {
                    self.give_up(
                        now_ms,
                        pending,
                        FailureReason::Publish,
                        detail,
                        Some(leftovers),
                        out,
                    );
                }
            }
            _ => self.remark_absent(id, out),
        }
    }

    fn complete(&mut self, now_ms: u64, pending: Pending<A>, out: &mut Vec<Action<A>>) {
        let (id, kind) = (pending.id, pending.kind);
        self.last_completion_ms = Some(now_ms);
        if kind.is_savepoint() {
            self.untouchable.insert(id);
        }
        self.ended |= kind.ends_the_job();
        if kind.is_bystander() {
            self.reply(&pending, Ok(id), out);
            return self.note_end(now_ms, &pending, Outcome::Completed, out);
        }
        self.reply(&pending, Ok(id), out);
        self.note_end(now_ms, &pending, Outcome::Completed, out);
        let subsumed = self.retain(now_ms, &pending, out);
        self.failures.on_success(id);
        if !kind.is_savepoint() {
            self.force_full = false;
        }
        let later = self.unresolved.split_off(&id);
        for overtaken in std::mem::replace(&mut self.unresolved, later) {
            self.overtake(overtaken, out);
        }
        for older in self.ids_of(|p| p.id < id && p.can_be_subsumed()) {
            self.abort(
                now_ms,
                older,
                FailureReason::Subsumed,
                format!("by checkpoint {id}"),
                out,
            );
        }
        out.push(Action::NotifyComplete {
            id,
            timestamp_ms: pending.started_ms,
            subsumed,
        });
    }

    /// Adds to the retained checkpoints and releases those that drop out; returns the newest of them.
    fn retain(
        &mut self,
        now_ms: u64,
        pending: &Pending<A>,
        out: &mut Vec<Action<A>>,
    ) -> Option<CheckpointId> {
        let added = self.completed.add(CompletedCheckpoint {
            id: pending.id,
            kind: pending.kind,
            retention: pending.retention,
            owned: true,
            timestamp_ms: pending.started_ms,
            completed_ms: now_ms,
        });
        // Ids are given out once and the list closes only when nothing is pending, so adding cannot fail.
        let dropped = added.unwrap_or_default();
        for subsumed in &dropped {
            if subsumed.delete {
                self.cleaning.insert(subsumed.id);
            } else {
                self.untouchable.insert(subsumed.id);
            }
            out.push(Action::Subsume {
                id: subsumed.id,
                delete: subsumed.delete,
            });
        }
        // A stop with savepoint that completes after a later one drops out itself.
        dropped
            .iter()
            .map(|s| s.id)
            .filter(|id| *id < pending.id)
            .max()
    }

    pub(super) fn expire(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        for id in self.ids_of(|p| p.deadline_ms <= now_ms) {
            let detail = self
                .pending
                .get(&id)
                .map(|p| p.view(now_ms).to_string())
                .unwrap_or_default();
            self.abort(now_ms, id, FailureReason::Expired, detail, out);
        }
    }

    /// Gives a pending checkpoint up.
    pub(super) fn abort(
        &mut self,
        now_ms: u64,
        id: CheckpointId,
        reason: FailureReason,
        detail: String,
        out: &mut Vec<Action<A>>,
    ) {
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let leftovers = (pending.phase != Phase::Publishing).then_some(Leftovers::Discard);
        self.give_up(now_ms, pending, reason, detail, leftovers, out);
    }

    /// `leftovers` is `None` while the metadata is being written: then the outcome decides.
    fn give_up(
        &mut self,
        now_ms: u64,
        pending: Pending<A>,
        reason: FailureReason,
        detail: String,
        leftovers: Option<Leftovers>,
        out: &mut Vec<Action<A>>,
    ) {
        let (id, kind) = (pending.id, pending.kind);
        let triggered = pending.phase != Phase::Preparing;
        let failure = CheckpointFailure {
            id: Some(id),
            reason,
            detail,
        };
        if triggered {
            let latest_completed = self.completed.latest().map(|c| c.id);
            out.push(Action::NotifyAbort {
                id,
                latest_completed,
            });
        }
        self.reply(&pending, Err(failure.clone()), out);
        self.note_end(now_ms, &pending, Outcome::Aborted(failure.clone()), out);
        let acks = pending.into_acks();
        match leftovers {
            Some(Leftovers::Discard) => self.discard(id, acks, out),
            Some(Leftovers::LeaveBehind) => self.leave_behind(id, out),
            None => {
                self.abandoned.insert(id, acks);
                out.push(Action::CancelPublish { id });
            }
        }
        if self.fails_the_job(id, kind, reason, triggered) {
            out.push(Action::FailJob { failure });
        }
    }

    /// A savepoint that fails concerns only who asked for it, unless sources have stopped for it.
    fn fails_the_job(
        &mut self,
        id: CheckpointId,
        kind: CheckpointKind,
        reason: FailureReason,
        triggered: bool,
    ) -> bool {
        if self.life != Life::Working || reason == FailureReason::Failover {
            return false;
        }
        match kind {
            CheckpointKind::Savepoint => false,
            CheckpointKind::StopWithSavepoint { .. } => triggered,
            CheckpointKind::StopWithCheckpoint => false,
            CheckpointKind::Checkpoint | CheckpointKind::Final => {
                self.failures.on_failure(id, reason)
            }
        }
    }

    pub(super) fn discard(&mut self, id: CheckpointId, acks: Acks<A>, out: &mut Vec<Action<A>>) {
        self.cleaning.insert(id);
        out.push(Action::Discard { id, acks });
    }

    fn leave_behind(&mut self, id: CheckpointId, out: &mut Vec<Action<A>>) {
        self.untouchable.insert(id);
        out.push(Action::LeaveBehind { id });
        if self.completed.latest().is_none_or(|latest| latest.id < id) {
            self.unresolved.insert(id);
        } else {
            self.overtake(id, out);
        }
    }

    /// Has a checkpoint deleted that may exist and that nobody goes on from any more.
    fn overtake(&mut self, id: CheckpointId, out: &mut Vec<Action<A>>) {
        self.cleaning.insert(id);
        out.push(Action::Overtaken { id });
    }

    fn reply(
        &self,
        pending: &Pending<A>,
        result: Result<CheckpointId, CheckpointFailure>,
        out: &mut Vec<Action<A>>,
    ) {
        if let Some(request) = pending.request {
            out.push(Action::ReplyTrigger { request, result });
        }
    }

    fn note_end(
        &self,
        now_ms: u64,
        pending: &Pending<A>,
        outcome: Outcome,
        out: &mut Vec<Action<A>>,
    ) {
        out.push(Action::Ended {
            id: pending.id,
            kind: pending.kind,
            started_ms: pending.started_ms,
            ended_ms: now_ms,
            outcome,
        });
    }

    /// Ends everything without touching the store: what is there belongs to the newer attempt.
    pub(super) fn fence(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        out.push(Action::Fenced);
        for (id, pending) in std::mem::take(&mut self.pending) {
            let failure = CheckpointFailure {
                id: Some(id),
                reason: FailureReason::Fenced,
                detail: String::new(),
            };
            self.reply(&pending, Err(failure.clone()), out);
            self.note_end(now_ms, &pending, Outcome::Aborted(failure), out);
        }
        for request in self.queue.drain() {
            refuse(request, FailureReason::Fenced, out);
        }
        self.abandoned.clear();
        self.next_periodic_ms = None;
        let life = std::mem::replace(&mut self.life, Life::Fenced);
        if let Life::Stopping(status) = life {
            // The job had ended and only waited for outcomes, which are nobody's business here any more.
            self.turn_away(Fact::Stop { status }, out);
        }
    }

    pub(super) fn on_stop(&mut self, now_ms: u64, status: JobStatus, out: &mut Vec<Action<A>>) {
        if self.life != Life::Working {
            return;
        }
        self.life = Life::Stopping(status);
        self.next_periodic_ms = None;
        for request in self.queue.drain() {
            refuse(request, FailureReason::CoordinatorShutdown, out);
        }
        self.abort_unsealed(now_ms, FailureReason::CoordinatorShutdown, out);
    }

    pub(super) fn end_if_settled(&mut self, status: JobStatus, out: &mut Vec<Action<A>>) {
        if !self.is_settled() {
            return;
        }
        let verdict = self.completed.close(status, self.config.keep_on_suspend);
        // An ack delivered twice must not delete what is kept.
        let known = verdict.keep.iter().chain(&verdict.delete);
        self.untouchable.extend(known);
        out.push(Action::AtStop(verdict));
        out.push(Action::Stopped);
        self.life = Life::Stopped;
    }

    /// Answers what comes after the end.
    pub(super) fn turn_away(&mut self, fact: Fact<A>, out: &mut Vec<Action<A>>) {
        let fenced = self.life == Life::Fenced;
        match fact {
            Fact::Trigger(trigger) => {
                let reason = if fenced {
                    FailureReason::Fenced
                } else {
                    FailureReason::CoordinatorShutdown
                };
                refuse(
                    Queued {
                        trigger,
                        periodic: false,
                        forced: false,
                    },
                    reason,
                    out,
                );
            }
            Fact::Stop { .. } if fenced => {
                let keep = self.completed.all().iter().map(|c| c.id).collect();
                out.push(Action::AtStop(Verdict {
                    keep,
                    delete: Vec::new(),
                }));
                out.push(Action::Stopped);
                self.life = Life::StoppedFenced;
            }
            // What was on its way when the job ended belongs to nobody now.
            Fact::Ack { task, id, state } if self.life == Life::Stopped => {
                self.on_ack(task, id, state, out)
            }
            Fact::Ack { id, .. } | Fact::Decline { id, .. } | Fact::Published { id } => {
                out.push(Action::Remark(Remark::Late(id)));
            }
            _ => {}
        }
    }
}
