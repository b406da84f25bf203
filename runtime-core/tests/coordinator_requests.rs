//! Requests for checkpoints: their order and bound, concurrent checkpoints, savepoints.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CompletedCheckpoint, CoordinatorConfig, Fact, FailureReason, JobStatus,
    Remark, RequestId, Restored, Retention, SavepointFormat, Trigger,
};

use CheckpointKind::{Checkpoint, Final, Savepoint, StopWithCheckpoint, StopWithSavepoint};

#[test]
fn k_344_k_378_savepoints_pass_over_the_limit_of_concurrent_checkpoints() {
    let mut rig = Rig::new(defaults());
    rig.begin(Checkpoint);
    for _ in 0..5 {
        rig.begin(Savepoint);
    }
    assert_eq!(rig.pending_ids(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn k_345_a_checkpoint_waits_for_room_and_begins_when_there_is_some() {
    let mut rig = Rig::new(defaults());
    let first = rig.begin(Checkpoint);
    let (_, actions) = rig.request(Checkpoint);
    assert_eq!(actions, []);
    assert_eq!(rig.machine.waiting_requests(), 1);
    rig.ack_all(first);
    assert_eq!(prepared(&rig.published(first)), Some(cp(2)));
}

#[test]
fn k_346_k_347_savepoints_go_first_and_people_before_the_timer() {
    let mut rig = Rig::new(every(100));
    rig.request(Checkpoint);
    rig.tick_at(100);
    let (checkpoint, _) = rig.request(Checkpoint);
    let (savepoint, _) = rig.request(Savepoint);
    assert_eq!(rig.machine.waiting_requests(), 3);
    assert_eq!(
        prepared(&rig.ready(cp(1))),
        Some(cp(2)),
        "a savepoint needs no room"
    );
    assert_eq!(rig.ready(cp(2)).len(), 1);
    assert_eq!(
        prepared(&rig.complete(cp(1))),
        None,
        "but takes it from others"
    );
    let actions = rig.complete(cp(2));
    assert_eq!(reply(&actions, savepoint), Some(Ok(cp(2))));
    assert_eq!(prepared(&actions), Some(cp(3)));
    rig.ready(cp(3));
    let actions = rig.complete(cp(3));
    assert_eq!(reply(&actions, checkpoint), Some(Ok(cp(3))));
    assert_eq!(prepared(&actions), Some(cp(4)), "the timer comes last");
}

#[test]
fn k_349_a_better_request_takes_the_place_of_a_worse_one_in_a_full_queue() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_queued: 1,
        ..every(100)
    });
    rig.request(Checkpoint);
    rig.tick_at(100);
    let (savepoint, actions) = rig.request(Savepoint);
    assert_eq!(
        remarks(&actions),
        [Remark::PeriodicRefused(FailureReason::TooManyRequests)]
    );
    assert_eq!(reply(&actions, savepoint), None);
    assert_eq!(rig.machine.waiting_requests(), 1);
}

#[test]
fn k_350_a_queue_full_of_what_people_asked_for_refuses_the_next() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_queued: 2,
        ..defaults()
    });
    rig.request(Checkpoint);
    rig.request(Checkpoint);
    rig.request(Savepoint);
    let (last, actions) = rig.request(Savepoint);
    assert_eq!(
        refusal(&actions, last),
        Some(FailureReason::TooManyRequests)
    );
    assert_eq!(rig.machine.waiting_requests(), 2);
}

#[test]
fn k_368_two_concurrent_checkpoints_complete_in_order() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_concurrent: 2,
        retained: 2,
        ..defaults()
    });
    let (first, second) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    assert_eq!(completed(&rig.complete(first)), [1]);
    assert_eq!(completed(&rig.complete(second)), [2]);
    assert_eq!(rig.completed_ids(), [1, 2]);
}

#[test]
fn k_369_k_374_the_later_one_that_completes_first_ends_the_earlier_and_makes_room() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_concurrent: 2,
        ..defaults()
    });
    let (first, second) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    rig.ack(S0, first);
    rig.request(Checkpoint);
    let actions = rig.complete(second);
    assert_eq!(aborted(&actions), [(1, FailureReason::Subsumed)]);
    assert_eq!(discarded(&actions), [token(S0, first)]);
    assert_eq!(notified_abort(&actions), [(1, Some(2))]);
    assert_eq!(notified_complete(&actions), [(2, None)]);
    assert_eq!(prepared(&actions), Some(cp(3)));
    assert_eq!(discarded_acks(&rig.ack(S1, first)), [token(S1, first)]);
    assert_eq!(rig.completed_ids(), [2]);
}

#[test]
fn k_373_exactly_as_many_checkpoints_are_pending_as_may_be() {
    for limit in [1, 2, 5] {
        let mut rig = Rig::new(CoordinatorConfig {
            max_concurrent: limit,
            ..every(10)
        });
        for _ in 0..20 {
            let actions = rig.tick_at(rig.machine.next_wakeup().unwrap());
            if let Some(id) = prepared(&actions) {
                rig.ready(id);
            }
        }
        assert_eq!(rig.pending_ids().len(), limit as usize);
        assert_eq!(
            rig.machine.waiting_requests(),
            1,
            "missed periodic requests do not pile up"
        );
        let actions = rig.complete(cp(1));
        assert_eq!(prepared(&actions), Some(cp(u64::from(limit) + 1)));
    }
}

#[test]
fn k_376_a_savepoint_goes_where_it_was_told_and_nobody_else_hears_of_it() {
    let mut rig = Rig::new(defaults());
    let request = RequestId(7);
    let actions = rig.fact(Fact::Trigger(
        Trigger::new(Savepoint, request).to("file:///sp"),
    ));
    let expected = Action::PrepareLocation {
        id: cp(1),
        kind: Savepoint,
        format: SavepointFormat::Canonical,
        target: Some("file:///sp".into()),
    };
    assert_eq!(actions, [expected]);
    rig.ready(cp(1));
    let actions = rig.complete(cp(1));
    assert_eq!(reply(&actions, request), Some(Ok(cp(1))));
    assert_eq!(completed(&actions), [1]);
    assert_eq!(
        (notified_complete(&actions), notified_abort(&actions)),
        (vec![], vec![])
    );
    assert_eq!(rig.completed_ids(), [0_u64; 0]);
    assert_eq!(
        discarded_acks(&rig.ack(S0, cp(1))),
        [0_u64; 0],
        "a late ack does not damage it"
    );
}

#[test]
fn k_377_a_savepoint_outlives_later_checkpoints_and_ends_none() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_concurrent: 2,
        ..defaults()
    });
    let savepoint = rig.begin(Savepoint);
    rig.take(Checkpoint);
    let (earlier, _) = (rig.begin(Checkpoint), ());
    let actions = rig.complete(savepoint);
    assert_eq!((completed(&actions), aborted(&actions)), (vec![1], vec![]));
    assert_eq!(rig.pending_ids(), [earlier.0]);
    let late = rig.begin(Savepoint);
    let actions = rig.complete(late);
    assert_eq!(
        aborted(&actions),
        [],
        "a later savepoint does not end an earlier checkpoint"
    );
    assert_eq!(rig.completed_ids(), [2]);
}

#[test]
fn k_380_a_checkpoint_has_the_policy_that_its_job_was_given() {
    for retention in [
        Retention::Never,
        Retention::DeleteOnCancellation,
        Retention::RetainOnCancellation,
        Retention::Always,
    ] {
        let earlier = CompletedCheckpoint {
            id: cp(4),
            kind: Checkpoint,
            retention: Retention::Never,
            owned: true,
            timestamp_ms: 0,
            completed_ms: 0,
        };
        let restored = Restored {
            completed: vec![earlier],
            full_until_completed: false,
        };
        let config = CoordinatorConfig {
            retention,
            retained: 2,
            ..defaults()
        };
        let mut rig = Rig::restored(config, 5, restored);
        rig.fact(Fact::TasksRunning {
            plan: plan(),
            random: 0,
        });
        rig.take(Checkpoint);
        let policies = |rig: &Rig| -> Vec<Retention> {
            let all = rig.machine.completed().all().iter();
            all.map(|c| c.retention).collect()
        };
        assert_eq!(policies(&rig), [Retention::Never, retention]);
        // The end of the job goes by what each of them has.
        let actions = rig.fact(Fact::Stop {
            status: JobStatus::Cancelled,
        });
        let kept = match retention.keeps(JobStatus::Cancelled) {
            true => vec![cp(5)],
            false => vec![],
        };
        let verdict = actions.iter().find_map(|action| match action {
            Action::AtStop(verdict) => Some(&verdict.keep),
            _ => None,
        });
        assert_eq!(verdict, Some(&kept), "{retention:?}");
    }
}

#[test]
fn k_386_k_401_after_the_end_every_request_is_answered_with_it() {
    let mut rig = Rig::new(defaults());
    rig.begin(Checkpoint);
    let (waiting, _) = rig.request(Checkpoint);
    let actions = rig.fact(Fact::Stop {
        status: runtime_core::coordinator::JobStatus::Failed,
    });
    assert_eq!(
        refusal(&actions, waiting),
        Some(FailureReason::CoordinatorShutdown)
    );
    let (request, actions) = rig.request(Savepoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::CoordinatorShutdown)
    );
    assert_eq!(actions.len(), 1);
}

#[test]
fn k_400_with_unaligned_checkpoints_a_savepoint_waits_its_turn() {
    let mut rig = Rig::new(CoordinatorConfig {
        unaligned: true,
        ..defaults()
    });
    let running = rig.begin(Checkpoint);
    let (_, actions) = rig.request(Savepoint);
    assert_eq!(actions, []);
    assert_eq!(prepared(&rig.complete(running)), Some(cp(2)));
}

#[test]
fn while_the_job_ends_a_savepoint_waits_in_case_that_fails() {
    for kind in [
        StopWithSavepoint { drain: false },
        StopWithCheckpoint,
        Final,
    ] {
        let mut rig = Rig::new(defaults());
        let last = rig.begin(kind);
        let (savepoint, actions) = rig.request(Savepoint);
        assert_eq!((actions, rig.pending_ids()), (vec![], vec![last.0]));
        // Its sources emit barriers again.
        let actions = rig.decline(S0, last, FailureReason::Declined);
        assert_eq!(prepared(&actions), Some(cp(2)), "{kind}");
        rig.ready(cp(2));
        assert_eq!(reply(&rig.complete(cp(2)), savepoint), Some(Ok(cp(2))));
    }
}

#[test]
fn a_savepoint_that_waits_for_the_end_of_the_job_is_refused_with_it() {
    let mut rig = Rig::new(defaults());
    let last = rig.begin(StopWithSavepoint { drain: false });
    let (savepoint, _) = rig.request(Savepoint);
    let actions = rig.complete(last);
    assert_eq!(
        (prepared(&actions), refusal(&actions, savepoint)),
        (None, None)
    );
    let actions = rig.fact(Fact::Stop {
        status: runtime_core::coordinator::JobStatus::Finished,
    });
    assert_eq!(
        refusal(&actions, savepoint),
        Some(FailureReason::CoordinatorShutdown)
    );
}
