//! How a checkpoint begins: the timer, requests, their order, and the steps until tasks are triggered.

use std::time::Duration;

use state_api::CheckpointId;

use super::machine::Life;
use super::pending::{Begin, Pending};
use super::request::{Choice, Queued, Room};
use super::{
    Action, CheckpointCoordinator, CheckpointFailure, CheckpointKind, FailureReason, Participants,
    Phase, Plan, Remark, SavepointFormat, Sealing, Trigger,
};

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl<A> CheckpointCoordinator<A> {
    pub(super) fn on_tick(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        self.expire(now_ms, out);
        let (Some(due), Some(interval)) = (self.next_periodic_ms, self.config.interval) else {
            return;
        };
        if due > now_ms {
            return;
        }
        // A fixed schedule: a late tick skips what it missed and keeps the phase.
        let interval = millis(interval);
        let missed = (now_ms - due) / interval;
        self.next_periodic_ms = Some(due.saturating_add(interval.saturating_mul(missed + 1)));
        if !self.is_ending() {
            let trigger = Trigger {
                kind: CheckpointKind::Checkpoint,
                format: SavepointFormat::default(),
                full: false,
                target: None,
                request: None,
            };
            self.enqueue(
                now_ms,
                Queued {
                    trigger,
                    periodic: true,
                    forced: false,
                },
                out,
            );
        }
    }

    pub(super) fn on_trigger(&mut self, now_ms: u64, trigger: Trigger, out: &mut Vec<Action<A>>) {
        if self.life != Life::Working {
            let queued = Queued {
                trigger,
                periodic: false,
                forced: false,
            };
            return refuse(queued, FailureReason::CoordinatorShutdown, out);
        }
        let forced = trigger.kind.is_savepoint() && !self.config.unaligned;
        self.enqueue(
            now_ms,
            Queued {
                trigger,
                periodic: false,
                forced,
            },
            out,
        );
    }

    pub(super) fn on_tasks_running(
        &mut self,
        now_ms: u64,
        plan: Plan,
        random: u64,
        out: &mut Vec<Action<A>>,
    ) {
        if self.life != Life::Working {
            return;
        }
        // Tasks that run anew know nothing of what was pending.
        self.outlive_tasks(out);
        self.abort_unsealed(now_ms, FailureReason::Failover, out);
        self.plan = Some(plan);
        self.failures.reset();
        self.ended = false;
        self.scheduler_on = true;
        self.arm(now_ms, random);
    }

    pub(super) fn on_start_scheduler(&mut self, now_ms: u64, random: u64) {
        if self.life == Life::Working && !self.scheduler_on {
            self.scheduler_on = true;
            self.arm(now_ms, random);
        }
    }

    pub(super) fn on_stop_scheduler(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        self.scheduler_on = false;
        self.next_periodic_ms = None;
        for request in self.queue.drain() {
            refuse(request, FailureReason::Suspended, out);
        }
        self.abort_unsealed(now_ms, FailureReason::Suspended, out);
    }

    /// Sets the timer to a random delay between minimum pause and interval, so that many jobs do not start in step.
    fn arm(&mut self, now_ms: u64, random: u64) {
        self.next_periodic_ms = self.config.interval.map(|interval| {
            let pause = millis(self.config.min_pause);
            let span = millis(interval).saturating_sub(pause);
            now_ms
                .saturating_add(pause)
                .saturating_add(random % (span + 1))
        });
    }

    fn enqueue(&mut self, now_ms: u64, request: Queued, out: &mut Vec<Action<A>>) {
        if let Some((loser, reason)) = self.queue.push(request, now_ms) {
            refuse(loser, reason, out);
        }
    }

    /// Begins waiting requests as far as there is room.
    pub(super) fn start_waiting(&mut self, now_ms: u64, out: &mut Vec<Action<A>>) {
        loop {
            match self.queue.choose(self.room(now_ms)) {
                Choice::Wait => return,
                Choice::TooEarly(request) => {
                    self.next_periodic_ms = Some(now_ms.saturating_add(self.pause_left(now_ms)));
                    refuse(request, FailureReason::MinimumPause, out);
                }
                Choice::Start(request) => self.begin(now_ms, request, out),
            }
        }
    }

    fn room(&self, now_ms: u64) -> Room {
        let limit = self.config.max_concurrent as usize;
        Room {
            triggering: self.pending.values().any(|p| p.phase == Phase::Preparing),
            full: self.pending.len() >= limit,
            ending: self.is_ending(),
            cleaning: self.too_many_deletions(),
            pause_left_ms: self.pause_left(now_ms),
        }
    }

    /// Tells whether a checkpoint that ends the job is under way or complete.
    fn is_ending(&self) -> bool {
        self.ended || self.pending.values().any(|p| p.kind.ends_the_job())
    }

    fn pause_left(&self, now_ms: u64) -> u64 {
        let Some(last) = self.last_completion_ms else {
            return 0;
        };
        last.saturating_add(millis(self.config.min_pause))
            .saturating_sub(now_ms)
    }

    fn begin(&mut self, now_ms: u64, request: Queued, out: &mut Vec<Action<A>>) {
        let participants = match self.participants() {
            Ok(participants) => participants,
            Err(reason) => return refuse(request, reason, out),
        };
        let id = self.next_id;
        self.next_id = CheckpointId(id.0 + 1);
        let Queued {
            trigger, forced, ..
        } = request;
        let begin = Begin {
            id,
            kind: trigger.kind,
            format: trigger.format,
            full: trigger.full || (self.force_full && !trigger.kind.is_savepoint()),
            forced,
            retention: self.config.retention,
            request: trigger.request,
            started_ms: now_ms,
            deadline_ms: now_ms.saturating_add(millis(self.config.timeout)),
        };
        self.pending.insert(id, Pending::new(begin, participants));
        out.push(Action::PrepareLocation {
            id,
            kind: trigger.kind,
            format: trigger.format,
            target: trigger.target,
        });
    }

    fn participants(&self) -> Result<Participants, FailureReason> {
        match &self.plan {
            Some(plan) if !plan.has_failed_tasks() => {
                if plan.has_finished_tasks() && !self.config.after_tasks_finish {
                    return Err(FailureReason::TasksNotRunning);
                }
                Ok(plan.participants())
            }
            _ => Err(FailureReason::TasksNotRunning),
        }
    }

    pub(super) fn on_location_ready(
        &mut self,
        now_ms: u64,
        id: CheckpointId,
        out: &mut Vec<Action<A>>,
    ) {
        // Tasks may have finished since the request was chosen; nobody has been told of the checkpoint yet.
        let participants = self.participants();
        let Some(pending) = self.pending.get_mut(&id) else {
            self.remark_absent(id, out);
            if self.may_discard(id) {
                // The place appeared after the checkpoint was given up.
                self.discard(id, std::sync::Arc::new([]), out);
            }
            return;
        };
        if pending.phase != Phase::Preparing {
            return out.push(Action::Remark(Remark::Late(id)));
        }
        if self.ended {
            // The job ended meanwhile with another checkpoint: its tasks are leaving.
            let reason = FailureReason::CoordinatorShutdown;
            return self.abort(now_ms, id, reason, "the job has ended".into(), out);
        }
        match participants {
            Ok(participants) => {
                pending.trigger = participants.trigger;
                pending.missing = participants.wait_for;
                pending.finished = participants.finished;
            }
            Err(reason) => return self.abort(now_ms, id, reason, String::new(), out),
        }
        pending.phase = Phase::Snapshotting;
        out.push(Action::TriggerTasks {
            id,
            kind: pending.kind,
            format: pending.format,
            full: pending.full,
            timestamp_ms: pending.started_ms,
            tasks: pending.trigger.clone(),
        });
        if self.config.sealing == Sealing::ByCount {
            self.seal_if_complete(id, out);
        }
    }

    pub(super) fn on_storage_failed(
        &mut self,
        now_ms: u64,
        id: CheckpointId,
        detail: String,
        out: &mut Vec<Action<A>>,
    ) {
        match self.pending.get(&id).map(|p| p.phase) {
            Some(Phase::Preparing) => self.abort(now_ms, id, FailureReason::Storage, detail, out),
            _ => self.remark_absent(id, out),
        }
    }

    pub(super) fn on_trigger_failed(
        &mut self,
        now_ms: u64,
        id: CheckpointId,
        detail: String,
        out: &mut Vec<Action<A>>,
    ) {
        match self.pending.get(&id).map(|p| p.phase) {
            Some(Phase::Preparing | Phase::Snapshotting) => {
                self.abort(now_ms, id, FailureReason::Trigger, detail, out);
            }
            _ => self.remark_absent(id, out),
        }
    }
}

/// Turns a request down before it became a checkpoint.
pub(super) fn refuse<A>(request: Queued, reason: FailureReason, out: &mut Vec<Action<A>>) {
    if request.periodic {
        out.push(Action::Remark(Remark::PeriodicRefused(reason)));
    }
    if let Some(request) = request.trigger.request {
        let failure = CheckpointFailure {
            id: None,
            reason,
            detail: String::new(),
        };
        out.push(Action::ReplyTrigger {
            request,
            result: Err(failure),
        });
    }
}
