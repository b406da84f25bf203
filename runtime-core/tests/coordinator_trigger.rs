//! How a checkpoint begins: its place is prepared, and it is full or not.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CompletedCheckpoint, CoordinatorConfig, Fact, FailureReason, Remark,
    RequestId, Restored, Retention, Trigger,
};

use CheckpointKind::{Checkpoint, Savepoint};

#[test]
fn k_387_while_one_is_being_prepared_others_wait_even_savepoints() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_concurrent: 3,
        ..defaults()
    });
    rig.request(Checkpoint);
    let (_, actions) = rig.request(Savepoint);
    assert_eq!(actions, []);
    let actions = rig.ready(cp(1));
    assert_eq!(prepared(&actions), Some(cp(2)));
}

#[test]
fn k_388_k_390_when_the_place_cannot_be_prepared_the_next_request_begins() {
    let mut rig = Rig::new(CoordinatorConfig {
        tolerable_failures: 1,
        ..defaults()
    });
    let (first, _) = rig.request(Checkpoint);
    rig.request(Savepoint);
    let actions = rig.fact(Fact::StorageFailed {
        id: cp(1),
        detail: "read-only".into(),
    });
    assert_eq!(refusal(&actions, first), Some(FailureReason::Storage));
    assert_eq!(notified_abort(&actions), [], "no task had heard of it");
    assert_eq!(prepared(&actions), Some(cp(2)));
    assert_eq!(rig.pending_ids(), [2]);
}

#[test]
fn k_389_k_393_one_that_expires_while_it_is_prepared_makes_room_for_the_next() {
    let mut rig = Rig::new(CoordinatorConfig {
        tolerable_failures: 1,
        ..defaults()
    });
    rig.request(Checkpoint);
    rig.now = 10;
    rig.request(Checkpoint);
    let actions = rig.tick_at(600_000);
    assert_eq!(aborted(&actions), [(1, FailureReason::Expired)]);
    assert_eq!(prepared(&actions), Some(cp(2)));
    let actions = rig.ready(cp(1));
    assert_eq!(remarks(&actions), [Remark::Late(cp(1))]);
    assert!(
        matches!(actions[1], Action::Discard { id, .. } if id == cp(1)),
        "the place came too late"
    );
}

#[test]
fn k_391_when_a_step_before_the_tasks_fails_the_next_request_begins() {
    let mut rig = Rig::new(defaults());
    let (first, _) = rig.request(Checkpoint);
    rig.request(Checkpoint);
    let actions = rig.fact(Fact::TriggerFailed {
        id: cp(1),
        detail: "hook".into(),
    });
    assert_eq!(refusal(&actions, first), Some(FailureReason::Trigger));
    assert_eq!(prepared(&actions), Some(cp(2)));
}

#[test]
fn k_392_a_storage_failure_counts() {
    let mut rig = Rig::new(defaults());
    rig.request(Checkpoint);
    let actions = rig.fact(Fact::StorageFailed {
        id: cp(1),
        detail: String::new(),
    });
    assert_eq!(failed_job(&actions), Some(FailureReason::Storage));
}

fn triggered_full(actions: &Actions) -> Option<bool> {
    actions.iter().find_map(|a| match a {
        Action::TriggerTasks { full, .. } => Some(*full),
        _ => None,
    })
}

#[test]
fn k_395_a_full_checkpoint_may_be_asked_for() {
    let mut rig = Rig::new(defaults());
    rig.fact(Fact::Trigger(Trigger::new(Checkpoint, RequestId(1)).full()));
    assert_eq!(triggered_full(&rig.ready(cp(1))), Some(true));
    rig.complete(cp(1));
    rig.request(Checkpoint);
    assert_eq!(triggered_full(&rig.ready(cp(2))), Some(false));
}

/// A coordinator whose job started from a savepoint that it did not claim.
fn without_claim() -> Rig {
    let unclaimed = CompletedCheckpoint {
        id: cp(5),
        kind: Savepoint,
        retention: Retention::Never,
        owned: false,
        timestamp_ms: 0,
        completed_ms: 0,
    };
    let restored = Restored {
        completed: vec![unclaimed],
        full_until_completed: true,
    };
    let config = CoordinatorConfig {
        tolerable_failures: 9,
        ..defaults()
    };
    let mut rig = Rig::restored(config, 6, restored);
    run(&mut rig);
    rig
}

fn run(rig: &mut Rig) {
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
}

/// Takes a checkpoint, which one of the tasks declines unless it is to be complete; tells whether it had to be full.
fn take(rig: &mut Rig, kind: CheckpointKind, complete: bool) -> bool {
    let (_, actions) = rig.request(kind);
    let id = prepared(&actions).unwrap();
    let full = triggered_full(&rig.ready(id)).unwrap();
    let actions = match complete {
        true => rig.complete(id),
        false => rig.decline(S0, id, FailureReason::Declined),
    };
    rig.clean(&actions);
    full
}

/// K-396, K-397, K-399: nothing may refer to what was not claimed, until a checkpoint of our own is complete.
#[test]
fn k_396_k_399_after_a_restore_without_claim_checkpoints_are_full_until_one_completes() {
    let mut rig = without_claim();
    assert!(
        take(&mut rig, Checkpoint, false),
        "an attempt that fails changes nothing"
    );
    take(&mut rig, Savepoint, true);
    assert!(take(&mut rig, Checkpoint, true), "a savepoint neither");
    assert!(!take(&mut rig, Checkpoint, true));
}

#[test]
fn k_398_a_restart_changes_nothing_about_checkpoints_that_must_be_full() {
    let mut rig = without_claim();
    let begun = rig.begin(Checkpoint);
    let actions = rig.fact(Fact::Failover);
    assert_eq!(aborted(&actions), [(begun.0, FailureReason::Failover)]);
    rig.clean(&actions);
    run(&mut rig);
    assert!(take(&mut rig, Checkpoint, false), "none is complete yet");
    rig.fact(Fact::Failover);
    run(&mut rig);
    assert!(take(&mut rig, Checkpoint, true), "nor is one now");
    rig.fact(Fact::Failover);
    run(&mut rig);
    assert!(!take(&mut rig, Checkpoint, true), "one is");
}
