//! What tasks say while a checkpoint is under way: acks, declines, the seal, ends and failures of tasks.

use state_api::CheckpointId;

use super::pending::AckResult;
use super::trigger::refuse;
use super::{Acked, Action, CheckpointCoordinator, FailureReason, Phase, Remark, Sealing, TaskId};

impl<A> CheckpointCoordinator<A> {
    pub(super) fn on_ack(
        &mut self,
        task: TaskId,
        id: CheckpointId,
        state: A,
        out: &mut Vec<Action<A>>,
    ) {
        let Some(pending) = self.pending.get_mut(&id) else {
            self.remark_absent(id, out);
            // The objects of a completed checkpoint are in use: an ack delivered twice must not delete them.
            if self.may_discard(id) {
                out.push(Action::DiscardAck {
                    id,
                    ack: Acked { task, state },
                });
            }
            return;
        };
        match pending.acknowledge(task, state) {
            (AckResult::Accepted, _) => {
                if self.config.sealing == Sealing::ByCount {
                    self.seal_if_complete(id, out);
                }
            }
            (AckResult::Duplicate, _) => out.push(Action::Remark(Remark::DuplicateAck(id, task))),
            (AckResult::UnknownTask, state) => {
                out.push(Action::Remark(Remark::UnknownTask(id, task)));
                if let Some(state) = state {
                    out.push(Action::DiscardAck {
                        id,
                        ack: Acked { task, state },
                    });
                }
            }
        }
    }

    /// Tells whether objects written for an ended checkpoint of ours belong to nobody.
    pub(super) fn may_discard(&self, id: CheckpointId) -> bool {
        self.began(id)
            && !self.completed.contains(id)
            && !self.untouchable.contains(&id)
            && !self.abandoned.contains_key(&id)
    }

    pub(super) fn seal_if_complete(&mut self, id: CheckpointId, out: &mut Vec<Action<A>>) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        if pending.phase != Phase::Snapshotting || !pending.is_complete() {
            return;
        }
        let acks = pending.seal();
        out.push(Action::Publish {
            id,
            kind: pending.kind,
            timestamp_ms: pending.started_ms,
            acks,
            finished: pending.finished.clone(),
        });
    }

    pub(super) fn on_seal(&mut self, id: CheckpointId, out: &mut Vec<Action<A>>) {
        match self.pending.get(&id) {
            Some(p) if p.phase == Phase::Snapshotting && p.is_complete() => {
                self.seal_if_complete(id, out)
            }
            Some(p) if p.phase == Phase::Publishing => out.push(Action::Remark(Remark::Late(id))),
            Some(_) => out.push(Action::Remark(Remark::PrematureSeal(id))),
            None => self.remark_absent(id, out),
        }
    }

    pub(super) fn on_decline(
        &mut self,
        now_ms: u64,
        task: TaskId,
        id: CheckpointId,
        reason: FailureReason,
        detail: String,
        out: &mut Vec<Action<A>>,
    ) {
        match self.pending.get(&id) {
            Some(p) if p.phase == Phase::Publishing => out.push(Action::Remark(Remark::Late(id))),
            Some(p) if p.takes_part(task) => {
                let detail = format!(
                    "task {task}{}{detail}",
                    if detail.is_empty() { "" } else { ": " }
                );
                self.abort(now_ms, id, reason, detail, out);
            }
            Some(_) => out.push(Action::Remark(Remark::UnknownTask(id, task))),
            None => self.remark_absent(id, out),
        }
    }

    pub(super) fn on_task_finished(&mut self, now_ms: u64, task: TaskId, out: &mut Vec<Action<A>>) {
        if !self.plan.as_mut().is_some_and(|plan| plan.finish(task)) {
            return;
        }
        for id in self.ids_of(|p| p.phase == Phase::Snapshotting && p.missing.contains(&task)) {
            let Some(pending) = self.pending.get_mut(&id) else {
                continue;
            };
            if pending.trigger.contains(&task) {
                // Its trigger may be lost, and then nobody behind it ever sees a barrier.
                self.abort(
                    now_ms,
                    id,
                    FailureReason::TaskFinished,
                    format!("task {task}"),
                    out,
                );
            } else {
                pending.finish(task);
                if self.config.sealing == Sealing::ByCount {
                    self.seal_if_complete(id, out);
                }
            }
        }
    }

    pub(super) fn on_task_failed(&mut self, now_ms: u64, task: TaskId, out: &mut Vec<Action<A>>) {
        if let Some(plan) = &mut self.plan {
            plan.fail(task);
        }
        for id in self.ids_of(|p| p.phase != Phase::Publishing && p.waits_for(task)) {
            self.abort(
                now_ms,
                id,
                FailureReason::TaskFailed,
                format!("task {task}"),
                out,
            );
        }
    }

    pub(super) fn on_failover(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        self.plan = None;
        self.next_periodic_ms = None;
        self.outlive_tasks(out);
        self.abort_unsealed(now_ms, FailureReason::Failover, out);
    }

    /// Turns down what was asked of tasks that are gone.
    pub(super) fn outlive_tasks(&mut self, out: &mut Vec<Action<A>>) {
        for request in self.queue.outlive_tasks() {
            refuse(request, FailureReason::Failover, out);
        }
    }

    /// Aborts every checkpoint that still waits for tasks.
    pub(super) fn abort_unsealed(
        &mut self,
        now_ms: u64,
        reason: FailureReason,
        out: &mut Vec<Action<A>>,
    ) {
        for id in self.ids_of(|p| p.phase != Phase::Publishing) {
            self.abort(now_ms, id, reason, String::new(), out);
        }
    }

    pub(super) fn ids_of(
        &self,
        mut keep: impl FnMut(&super::pending::Pending<A>) -> bool,
    ) -> Vec<CheckpointId> {
        self.pending
            .values()
            .filter(|p| keep(p))
            .map(|p| p.id)
            .collect()
    }
}
