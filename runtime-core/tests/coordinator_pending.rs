//! A pending checkpoint: its acks, its seal, its abort (area P of the catalogue).
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointCoordinator, CheckpointKind, CoordinatorConfig, Fact, FailureReason, Outcome,
    Phase, Plan, PublishFault, Remark, RequestId, Sealing, TaskId, Trigger,
};

use CheckpointKind::{Checkpoint, Savepoint, StopWithSavepoint};

fn many() -> CoordinatorConfig {
    CoordinatorConfig {
        max_concurrent: 5,
        tolerable_failures: CoordinatorConfig::UNLIMITED,
        ..Default::default()
    }
}

#[test]
fn k_326_k_327_only_a_plain_checkpoint_is_subsumed() {
    let mut rig = Rig::new(many());
    let plain = rig.begin(Checkpoint);
    let savepoint = rig.begin(Savepoint);
    let later = rig.begin(Checkpoint);
    let actions = rig.complete(later);
    assert_eq!(aborted(&actions), [(plain.0, FailureReason::Subsumed)]);
    assert_eq!(rig.pending_ids(), [savepoint.0]);

    let mut rig = Rig::new(many());
    let plain = rig.begin(Checkpoint);
    let stop = rig.begin(StopWithSavepoint { drain: false });
    let (_, actions) = rig.request(StopWithSavepoint { drain: true });
    assert_eq!(actions, [], "a job ends once: the second waits");
    let actions = rig.complete(stop);
    assert_eq!(aborted(&actions), [(plain.0, FailureReason::Subsumed)]);
    assert_eq!(rig.pending_ids(), [0_u64; 0]);
}

#[test]
fn k_328_k_331_every_kind_of_abort_answers_with_its_reason_and_discards_each_ack_once() {
    type Cause = fn(&mut Rig) -> Actions;
    let causes: [(Cause, FailureReason); 8] = [
        (
            |rig| rig.decline(SINK, cp(1), FailureReason::Declined),
            FailureReason::Declined,
        ),
        (
            |rig| rig.decline(SINK, cp(1), FailureReason::AsyncPart),
            FailureReason::AsyncPart,
        ),
        (|rig| rig.tick_at(600_000), FailureReason::Expired),
        (
            |rig| rig.fact(Fact::StopScheduler),
            FailureReason::Suspended,
        ),
        (
            |rig| rig.fact(Fact::TaskFailed { task: SINK }),
            FailureReason::TaskFailed,
        ),
        (|rig| rig.fact(Fact::Failover), FailureReason::Failover),
        (
            |rig| {
                rig.fact(Fact::TriggerFailed {
                    id: cp(1),
                    detail: "gone".into(),
                })
            },
            FailureReason::Trigger,
        ),
        (|rig| rig.complete_a_later_one(), FailureReason::Subsumed),
    ];
    for (cause, reason) in causes {
        let mut rig = Rig::new(many());
        let (request, actions) = rig.request(Checkpoint);
        let id = prepared(&actions).unwrap();
        rig.ready(id);
        rig.ack(S0, id);
        rig.ack(S1, id);
        let actions = cause(&mut rig);
        assert_eq!(refusal(&actions, request), Some(reason));
        assert_eq!(aborted(&actions), [(1, reason)]);
        assert_eq!(
            discarded(&actions),
            [token(S0, id), token(S1, id)],
            "{reason}"
        );
        // With the acks goes the place of the checkpoint.
        let of_it = |a: &&Action<u64>| matches!(a, Action::Discard { id: of, .. } if *of == id);
        assert_eq!(actions.iter().filter(of_it).count(), 1, "{reason}");
        assert_eq!(notified_abort(&actions).len(), 1, "{reason}");
        assert!(!rig.pending_ids().contains(&1));
        let again = rig.fact(Fact::StopScheduler);
        assert_eq!(discarded(&again), [0_u64; 0], "nothing is discarded twice");
    }
}

impl Rig {
    /// Completes a later checkpoint.
    fn complete_a_later_one(&mut self) -> Actions {
        let id = self.begin(Checkpoint);
        self.complete(id)
    }
}

#[test]
fn k_329_a_seal_while_acks_are_missing_does_not_complete() {
    let mut rig = Rig::new(many());
    let id = rig.begin(Checkpoint);
    rig.ack(S0, id);
    let actions = rig.fact(Fact::Seal { id });
    assert_eq!(remarks(&actions), [Remark::PrematureSeal(id)]);
    assert_eq!(actions.len(), 1);
    assert_eq!(rig.machine.pending(0)[0].phase, Phase::Snapshotting);
}

#[test]
fn k_330_the_last_ack_publishes_and_what_is_published_completes() {
    let mut rig = Rig::new(many());
    rig.now = 50;
    let (request, actions) = rig.request(Checkpoint);
    let id = prepared(&actions).unwrap();
    rig.ready(id);
    rig.ack(SINK, id);
    assert_eq!(rig.ack(S1, id), []);
    let actions = rig.ack(S0, id);
    let [
        Action::Publish {
            id: of,
            kind,
            timestamp_ms,
            acks,
            finished,
        },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    assert_eq!((*of, *kind, *timestamp_ms), (id, Checkpoint, 50));
    assert_eq!(
        acks.iter().map(|a| a.task).collect::<Vec<_>>(),
        TASKS,
        "by ascending task"
    );
    assert!(finished.is_empty());
    let actions = rig.published(id);
    assert_eq!(reply(&actions, request), Some(Ok(id)));
    assert_eq!(completed(&actions), [1]);
    assert_eq!(notified_complete(&actions), [(1, None)]);
    assert_eq!(discarded(&actions), [0_u64; 0]);
    assert_eq!(rig.completed_ids(), [1]);
}

/// State that is nothing is an ack like any other: the coordinator does not look into it.
#[test]
fn k_332_k_333_an_ack_counts_whatever_it_carries() {
    let mut machine = CheckpointCoordinator::<Option<&str>>::new(many(), cp(1)).unwrap();
    machine.handle(
        0,
        Fact::TasksRunning {
            plan: plan(),
            random: 0,
        },
    );
    machine.handle(0, Fact::Trigger(Trigger::new(Checkpoint, RequestId(1))));
    machine.handle(0, Fact::LocationReady { id: cp(1) });
    for (task, state) in [(S0, None), (S1, Some("offset 7"))] {
        machine.handle(
            0,
            Fact::Ack {
                task,
                id: cp(1),
                state,
            },
        );
    }
    let actions = machine.handle(
        0,
        Fact::Ack {
            task: SINK,
            id: cp(1),
            state: None,
        },
    );
    let Some(Action::Publish { acks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(
        acks.iter().map(|a| a.state).collect::<Vec<_>>(),
        [None, Some("offset 7"), None]
    );
}

#[test]
fn k_334_the_second_ack_of_a_task_is_a_duplicate_and_is_not_discarded() {
    let mut rig = Rig::new(many());
    let id = rig.begin(Checkpoint);
    assert_eq!(rig.ack(S0, id), []);
    assert_eq!(
        rig.ack(S0, id),
        [Action::Remark(Remark::DuplicateAck(id, S0))]
    );
    rig.ack(S1, id);
    rig.ack(SINK, id);
    assert_eq!(
        rig.ack(S0, id),
        [Action::Remark(Remark::DuplicateAck(id, S0))],
        "while publishing too"
    );
}

#[test]
fn k_335_the_ack_of_an_unknown_task_is_discarded_and_does_not_count() {
    let mut rig = Rig::new(many());
    let id = rig.begin(Checkpoint);
    let stranger = TaskId::new(9, 0);
    let actions = rig.ack(stranger, id);
    assert_eq!(remarks(&actions), [Remark::UnknownTask(id, stranger)]);
    assert_eq!(discarded_acks(&actions), [token(stranger, id)]);
    assert_eq!(rig.machine.pending(0)[0].acked, 0);
}

#[test]
fn k_336_an_ack_after_the_abort_is_discarded() {
    let mut rig = Rig::new(many());
    let id = rig.begin(Checkpoint);
    rig.decline(S1, id, FailureReason::Declined);
    let actions = rig.ack(S0, id);
    assert_eq!(remarks(&actions), [Remark::Late(id)]);
    assert_eq!(discarded_acks(&actions), [token(S0, id)]);
}

#[test]
fn k_343_finished_tasks_are_named_in_what_is_published() {
    let mut rig = Rig::new(many());
    rig.fact(Fact::TaskFinished { task: S1 });
    let id = rig.begin(Checkpoint);
    rig.ack(S0, id);
    let actions = rig.ack(SINK, id);
    let Some(Action::Publish { acks, finished, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(acks.len(), 2);
    assert_eq!(finished.iter().copied().collect::<Vec<_>>(), [S1]);
}

#[test]
fn an_engine_that_seals_is_waited_for_and_may_name_no_tasks() {
    let config = CoordinatorConfig {
        sealing: Sealing::ByEngine,
        ..many()
    };
    let mut rig = Rig::new(config.clone());
    let id = rig.begin(Checkpoint);
    assert_eq!(
        rig.ack_all(id),
        [],
        "counting is not the coordinator's business"
    );
    assert_eq!(published_ids(&rig.fact(Fact::Seal { id })), [1]);
    assert_eq!(remarks(&rig.fact(Fact::Seal { id })), [Remark::Late(id)]);

    let mut rig = Rig::idle(config);
    rig.fact(Fact::TasksRunning {
        plan: Plan::of_engine(),
        random: 0,
    });
    let id = rig.begin(Checkpoint);
    let (worker, other) = (TaskId::new(3, 1), TaskId::new(3, 2));
    rig.ack(worker, id);
    assert_eq!(
        rig.ack(worker, id),
        [Action::Remark(Remark::DuplicateAck(id, worker))]
    );
    rig.ack(other, id);
    let actions = rig.fact(Fact::Seal { id });
    let Some(Action::Publish { acks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(
        acks.iter().map(|a| a.task).collect::<Vec<_>>(),
        [worker, other]
    );
}

#[test]
fn a_checkpoint_that_expires_while_it_is_published_is_kept_or_retracted_by_the_outcome() {
    for (outcome, left) in [
        (None, "retracted"),
        (Some(PublishFault::NotWritten), "discarded"),
        (Some(PublishFault::Unknown), "left"),
    ] {
        let mut rig = Rig::new(many());
        let id = rig.begin(Checkpoint);
        rig.ack_all(id);
        let actions = rig.tick_at(600_000);
        assert_eq!(aborted(&actions), [(1, FailureReason::Expired)]);
        assert!(actions.contains(&Action::CancelPublish { id }));
        assert_eq!(
            discarded(&actions),
            [0_u64; 0],
            "its metadata may be there already"
        );
        assert!(!rig.machine.is_settled());
        assert_eq!(rig.pending_ids(), [0_u64; 0], "the slot is free");
        let late = rig.ack(S0, id);
        assert_eq!(
            discarded_acks(&late),
            [0_u64; 0],
            "what may be in use is not discarded"
        );
        let actions = match outcome {
            None => rig.published(id),
            Some(fault) => rig.fact(Fact::PublishFailed {
                id,
                fault,
                detail: String::new(),
            }),
        };
        match actions.as_slice() {
            [Action::Retract { acks, .. }] => assert_eq!((acks.len(), left), (3, "retracted")),
            [Action::Discard { acks, .. }] => assert_eq!((acks.len(), left), (3, "discarded")),
            [Action::LeaveBehind { .. }] => assert_eq!(left, "left"),
            other => panic!("{other:?}"),
        }
        assert!(rig.machine.is_settled());
        assert_eq!(rig.completed_ids(), [0_u64; 0]);
        assert_eq!(rig.machine.unresolved().contains(&id), left == "left");
    }
}

#[test]
fn the_view_says_phase_age_and_who_is_missing() {
    let mut rig = Rig::new(many());
    let (_, actions) = rig.request(Checkpoint);
    let id = prepared(&actions).unwrap();
    rig.now = 300;
    let view = &rig.machine.pending(rig.now)[0];
    assert_eq!(
        (view.phase, view.age_ms, view.left_ms),
        (Phase::Preparing, 300, 599_700)
    );
    rig.ready(id);
    rig.ack(S1, id);
    let view = &rig.machine.pending(12_345)[0];
    assert_eq!(view.missing, [S0, SINK]);
    assert_eq!(
        view.to_string(),
        "checkpoint 1: waiting for acks for 12.3 s, 1 of 3 tasks done, missing: 0.0, 1.0"
    );
    rig.ack(S0, id);
    rig.ack(SINK, id);
    let view = &rig.machine.pending(12_345)[0];
    assert_eq!(
        view.to_string(),
        "checkpoint 1: publishing its metadata for 12.3 s, 3 of 3 tasks done"
    );
}

#[test]
fn an_expired_checkpoint_says_what_it_waited_for() {
    let mut rig = Rig::new(many());
    let id = rig.begin(Savepoint);
    rig.ack(SINK, id);
    let (request, _) = rig.request(Savepoint);
    let actions = rig.tick_at(600_000);
    let failure = reply(&actions, request).unwrap().unwrap_err();
    assert_eq!(
        failure.detail,
        "savepoint 2: preparing its place in the storage for 600.0 s, 0 of 3 tasks done, missing: 0.0, 0.1, 1.0"
    );
    let Some(Action::Ended {
        outcome: Outcome::Aborted(first),
        ..
    }) = actions.iter().find(|a| matches!(a, Action::Ended { .. }))
    else {
        panic!("{actions:?}")
    };
    assert_eq!(
        first.to_string(),
        "checkpoint 1 failed: the checkpoint expired: savepoint 1: waiting for acks for 600.0 s, 1 of 3 tasks done, missing: 0.0, 0.1"
    );
}
