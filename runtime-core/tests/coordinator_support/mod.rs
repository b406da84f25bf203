//! Drives a coordinator in tests: one source vertex, one sink vertex, acks that carry a number.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

pub(crate) mod course;

use std::time::Duration;

use backend_testkit::fuzz::Random;
use runtime_core::coordinator::{
    Acked, Action, CheckpointCoordinator, CheckpointFailure, CheckpointKind, Connection,
    CoordinatorConfig, Fact, FailureReason, Outcome, Plan, PlanVertex, Remark, RequestId, Restored,
    TaskId, Trigger,
};
use state_api::CheckpointId;

pub(crate) type Actions = Vec<Action<u64>>;

/// The two sources.
pub(crate) const S0: TaskId = TaskId {
    vertex: 0,
    subtask: 0,
};
pub(crate) const S1: TaskId = TaskId {
    vertex: 0,
    subtask: 1,
};
/// The sink that both sources feed.
pub(crate) const SINK: TaskId = TaskId {
    vertex: 1,
    subtask: 0,
};
pub(crate) const TASKS: [TaskId; 3] = [S0, S1, SINK];

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn cp(id: u64) -> CheckpointId {
    CheckpointId(id)
}

/// Two sources that both feed one sink.
pub(crate) fn plan() -> Plan {
    Plan::new([
        PlanVertex::source(0, 2),
        PlanVertex::source(1, 1).fed_by(0, Connection::AllToAll),
    ])
    .unwrap()
}

/// A coordinator at a point in time that steps through the usual course of a checkpoint.
pub(crate) struct Rig {
    pub(crate) machine: CheckpointCoordinator<u64>,
    pub(crate) now: u64,
    requests: u64,
}

impl Rig {
    /// All tasks run, periodic checkpoints as configured with the first one at the earliest time.
    pub(crate) fn new(config: CoordinatorConfig) -> Self {
        let mut rig = Self::idle(config);
        rig.fact(Fact::TasksRunning {
            plan: plan(),
            random: 0,
        });
        rig
    }

    /// No task runs.
    pub(crate) fn idle(config: CoordinatorConfig) -> Self {
        Self::restored(config, 1, Restored::default())
    }

    pub(crate) fn restored(config: CoordinatorConfig, next_id: u64, restored: Restored) -> Self {
        let machine = CheckpointCoordinator::restored(config, cp(next_id), restored).unwrap();
        Self {
            machine,
            now: 0,
            requests: 0,
        }
    }

    pub(crate) fn fact(&mut self, fact: Fact<u64>) -> Actions {
        self.machine.handle(self.now, fact)
    }

    pub(crate) fn tick_at(&mut self, now: u64) -> Actions {
        self.now = now;
        self.fact(Fact::Tick)
    }

    pub(crate) fn request(&mut self, kind: CheckpointKind) -> (RequestId, Actions) {
        self.requests += 1;
        let request = RequestId(self.requests);
        (
            request,
            self.fact(Fact::Trigger(Trigger::new(kind, request))),
        )
    }

    /// Requests a checkpoint and brings it to where tasks are triggered.
    pub(crate) fn begin(&mut self, kind: CheckpointKind) -> CheckpointId {
        let (_, actions) = self.request(kind);
        let id = prepared(&actions).unwrap_or_else(|| panic!("nothing began: {actions:?}"));
        self.ready(id);
        id
    }

    pub(crate) fn ready(&mut self, id: CheckpointId) -> Actions {
        self.fact(Fact::LocationReady { id })
    }

    pub(crate) fn ack(&mut self, task: TaskId, id: CheckpointId) -> Actions {
        self.fact(Fact::Ack {
            task,
            id,
            state: token(task, id),
        })
    }

    pub(crate) fn ack_all(&mut self, id: CheckpointId) -> Actions {
        TASKS.iter().flat_map(|task| self.ack(*task, id)).collect()
    }

    pub(crate) fn decline(
        &mut self,
        task: TaskId,
        id: CheckpointId,
        reason: FailureReason,
    ) -> Actions {
        self.fact(Fact::Decline {
            task,
            id,
            reason,
            detail: "no room".into(),
        })
    }

    pub(crate) fn published(&mut self, id: CheckpointId) -> Actions {
        self.fact(Fact::Published { id })
    }

    /// Acks and publishes a checkpoint that was begun.
    pub(crate) fn complete(&mut self, id: CheckpointId) -> Actions {
        self.ack_all(id);
        self.published(id)
    }

    /// Takes a whole checkpoint.
    pub(crate) fn take(&mut self, kind: CheckpointKind) -> CheckpointId {
        let id = self.begin(kind);
        self.complete(id);
        id
    }

    /// Reports every deletion as done.
    pub(crate) fn clean(&mut self, actions: &Actions) {
        for action in actions {
            if let Action::Discard { id, .. }
            | Action::Retract { id, .. }
            | Action::Overtaken { id }
            | Action::Subsume { id, delete: true } = action
            {
                self.fact(Fact::Cleaned { id: *id });
            }
        }
    }

    pub(crate) fn pending_ids(&self) -> Vec<u64> {
        self.machine
            .pending(self.now)
            .iter()
            .map(|p| p.id.0)
            .collect()
    }

    pub(crate) fn completed_ids(&self) -> Vec<u64> {
        self.machine
            .completed()
            .all()
            .iter()
            .map(|c| c.id.0)
            .collect()
    }
}

/// The number that an ack of a task carries.
pub(crate) fn token(task: TaskId, id: CheckpointId) -> u64 {
    id.0 * 100 + u64::from(task.vertex) * 10 + u64::from(task.subtask)
}

pub(crate) fn prepared(actions: &Actions) -> Option<CheckpointId> {
    actions.iter().find_map(|a| match a {
        Action::PrepareLocation { id, .. } => Some(*id),
        _ => None,
    })
}

pub(crate) fn reply(
    actions: &Actions,
    to: RequestId,
) -> Option<Result<CheckpointId, CheckpointFailure>> {
    actions.iter().find_map(|a| match a {
        Action::ReplyTrigger { request, result } if *request == to => Some(result.clone()),
        _ => None,
    })
}

/// The reason for which a request was turned down.
pub(crate) fn refusal(actions: &Actions, to: RequestId) -> Option<FailureReason> {
    reply(actions, to)?.err().map(|f| f.reason)
}

/// Every checkpoint that ended with an abort, with the reason.
pub(crate) fn aborted(actions: &Actions) -> Vec<(u64, FailureReason)> {
    let ended = actions.iter().filter_map(|a| match a {
        Action::Ended {
            id,
            outcome: Outcome::Aborted(failure),
            ..
        } => Some((id.0, failure.reason)),
        _ => None,
    });
    ended.collect()
}

pub(crate) fn completed(actions: &Actions) -> Vec<u64> {
    let ended = actions.iter().filter_map(|a| match a {
        Action::Ended {
            id,
            outcome: Outcome::Completed,
            ..
        } => Some(id.0),
        _ => None,
    });
    ended.collect()
}

/// Every number that a discard of a checkpoint names.
pub(crate) fn discarded(actions: &Actions) -> Vec<u64> {
    let acks = actions.iter().filter_map(|a| match a {
        Action::Discard { acks, .. } => Some(acks.iter().map(|a| a.state).collect::<Vec<_>>()),
        _ => None,
    });
    acks.flatten().collect()
}

/// Every number that a discard of a single ack names.
pub(crate) fn discarded_acks(actions: &Actions) -> Vec<u64> {
    let acks = actions.iter().filter_map(|a| match a {
        Action::DiscardAck {
            ack: Acked { state, .. },
            ..
        } => Some(*state),
        _ => None,
    });
    acks.collect()
}

pub(crate) fn failed_job(actions: &Actions) -> Option<FailureReason> {
    actions.iter().find_map(|a| match a {
        Action::FailJob { failure } => Some(failure.reason),
        _ => None,
    })
}

pub(crate) fn notified_abort(actions: &Actions) -> Vec<(u64, Option<u64>)> {
    let told = actions.iter().filter_map(|a| match a {
        Action::NotifyAbort {
            id,
            latest_completed,
        } => Some((id.0, latest_completed.map(|l| l.0))),
        _ => None,
    });
    told.collect()
}

pub(crate) fn notified_complete(actions: &Actions) -> Vec<(u64, Option<u64>)> {
    let told = actions.iter().filter_map(|a| match a {
        Action::NotifyComplete { id, subsumed, .. } => Some((id.0, subsumed.map(|l| l.0))),
        _ => None,
    });
    told.collect()
}

pub(crate) fn published_ids(actions: &Actions) -> Vec<u64> {
    let ids = actions.iter().filter_map(|a| match a {
        Action::Publish { id, .. } => Some(id.0),
        _ => None,
    });
    ids.collect()
}

pub(crate) fn subsumed(actions: &Actions) -> Vec<(u64, bool)> {
    let ids = actions.iter().filter_map(|a| match a {
        Action::Subsume { id, delete } => Some((id.0, *delete)),
        _ => None,
    });
    ids.collect()
}

pub(crate) fn remarks(actions: &Actions) -> Vec<Remark> {
    let remarks = actions.iter().filter_map(|a| match a {
        Action::Remark(remark) => Some(remark.clone()),
        _ => None,
    });
    remarks.collect()
}

/// A seeded generator, so that a walk replays from its number.
pub(crate) struct Rng(Random);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}

pub(crate) fn defaults() -> CoordinatorConfig {
    CoordinatorConfig::default()
}

pub(crate) fn every(interval: u64) -> CoordinatorConfig {
    CoordinatorConfig {
        interval: Some(ms(interval)),
        ..defaults()
    }
}

/// Begins and readies what an action list asks to prepare.
pub(crate) fn ready_from(rig: &mut Rig, actions: &Actions) -> u64 {
    let id = prepared(actions).unwrap_or_else(|| panic!("nothing began: {actions:?}"));
    rig.ready(id);
    id.0
}
