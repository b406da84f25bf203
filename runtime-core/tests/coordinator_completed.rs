//! The completed checkpoints: what is retained, what drops out, what stays at the end (area O of the catalogue).
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CompletedCheckpoint, CompletedCheckpoints, CoordinatorConfig, Fact,
    JobStatus, PublishFault, Restored, Retention, Subsumed, Verdict,
};
use state_api::ErrorKind;

use CheckpointKind::{Checkpoint, Savepoint, StopWithSavepoint};
use JobStatus::{Cancelled, Failed, Finished, Suspended};

fn done(id: u64, kind: CheckpointKind) -> CompletedCheckpoint {
    CompletedCheckpoint {
        id: cp(id),
        kind,
        retention: Retention::Never,
        owned: true,
        timestamp_ms: id,
        completed_ms: id + 1,
    }
}

fn list(retained: u32) -> CompletedCheckpoints {
    CompletedCheckpoints::new(retained, Vec::new()).unwrap()
}

fn ids(list: &CompletedCheckpoints) -> Vec<u64> {
    list.all().iter().map(|c| c.id.0).collect()
}

fn add(list: &mut CompletedCheckpoints, id: u64, kind: CheckpointKind) -> Vec<(u64, bool)> {
    let dropped = list.add(done(id, kind)).unwrap();
    dropped
        .iter()
        .map(|Subsumed { id, delete }| (id.0, *delete))
        .collect()
}

#[test]
fn k_292_retaining_nothing_is_refused() {
    assert_eq!(
        CompletedCheckpoints::new(0, Vec::new()).unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[test]
fn k_293_an_empty_list_has_no_latest() {
    let list = list(1);
    assert!(list.is_empty() && list.latest().is_none() && list.all().is_empty());
    assert_eq!((list.len(), list.lowest_id()), (0, None));
}

#[test]
fn k_294_the_latest_is_the_last_added_and_ids_ascend() {
    let mut list = list(4);
    add(&mut list, 1, Checkpoint);
    add(&mut list, 2, Checkpoint);
    assert_eq!(list.latest().unwrap().id, cp(2));
    assert_eq!(ids(&list), [1, 2]);
}

#[test]
fn k_295_of_one_retained_each_new_one_displaces_the_last() {
    let mut list = list(1);
    assert_eq!(add(&mut list, 1, Checkpoint), []);
    for id in 2..10 {
        assert_eq!(add(&mut list, id, Checkpoint), [(id - 1, true)]);
        assert_eq!(ids(&list), [id]);
    }
}

#[test]
fn k_295_k_315_however_it_is_retained_at_the_end_a_subsumed_checkpoint_is_deleted() {
    for retention in [
        Retention::Never,
        Retention::DeleteOnCancellation,
        Retention::RetainOnCancellation,
        Retention::Always,
    ] {
        let mut rig = Rig::new(CoordinatorConfig {
            retention,
            ..Default::default()
        });
        rig.take(Checkpoint);
        for id in 2..5 {
            let begun = rig.begin(Checkpoint);
            rig.ack_all(begun);
            let actions = rig.published(begun);
            assert_eq!(subsumed(&actions), [(id - 1, true)], "{retention:?}");
            rig.clean(&actions);
            assert_eq!(rig.completed_ids(), [id], "{retention:?}");
        }
    }
}

#[test]
fn k_296_k_302_up_to_the_number_retained_nothing_drops_out() {
    for retained in [3, 4] {
        let mut list = list(retained);
        for id in 1..=u64::from(retained) {
            assert_eq!(add(&mut list, id, Checkpoint), []);
        }
        assert_eq!(list.len(), retained as usize);
    }
}

#[test]
fn k_297_k_308_a_finished_job_deletes_all_it_does_not_retain() {
    let mut list = list(3);
    for id in 1..=3 {
        add(&mut list, id, Checkpoint);
    }
    let verdict = list.close(Finished, false);
    assert_eq!(
        verdict,
        Verdict {
            keep: vec![],
            delete: vec![cp(1), cp(2), cp(3)]
        }
    );
    assert!(list.is_empty());
}

#[test]
fn k_299_the_last_real_checkpoint_outlives_savepoints_after_it() {
    let mut list = list(1);
    add(&mut list, 1, Checkpoint);
    assert_eq!(add(&mut list, 2, Checkpoint), [(1, true)]);
    assert_eq!(add(&mut list, 3, Savepoint), []);
    assert_eq!(add(&mut list, 4, Savepoint), [(3, false)]);
    assert_eq!(add(&mut list, 5, Savepoint), [(4, false)]);
    assert_eq!(ids(&list), [2, 5]);
}

#[test]
fn k_300_k_303_an_older_savepoint_drops_out_but_is_never_deleted() {
    let mut list = list(1);
    add(&mut list, 1, Checkpoint);
    add(&mut list, 2, Savepoint);
    assert_eq!(add(&mut list, 3, Checkpoint), [(1, true), (2, false)]);
    assert_eq!(ids(&list), [3]);
}

#[test]
fn k_301_a_savepoint_that_stops_the_job_may_displace_the_last_real_checkpoint() {
    let mut list = list(1);
    add(&mut list, 1, Checkpoint);
    assert_eq!(
        add(&mut list, 2, StopWithSavepoint { drain: false }),
        [(1, true)]
    );
    assert_eq!(ids(&list), [2]);
}

#[test]
fn k_304_checkpoints_found_at_the_start_are_sorted() {
    let found = [3, 1, 2].map(|id| done(id, Checkpoint)).to_vec();
    let list = CompletedCheckpoints::new(1, found).unwrap();
    assert_eq!(ids(&list), [1, 2, 3]);
    assert_eq!(list.latest().unwrap().id, cp(3));
    assert_eq!(list.lowest_id(), Some(cp(1)));
}

#[test]
fn k_306_the_old_one_is_released_only_after_the_new_one_is_durable() {
    let mut rig = Rig::new(CoordinatorConfig::default());
    rig.take(Checkpoint);
    let id = rig.begin(Checkpoint);
    assert_eq!(subsumed(&rig.ack_all(id)), []);
    let actions = rig.published(id);
    assert_eq!(subsumed(&actions), [(1, true)]);
    assert_eq!(notified_complete(&actions), [(2, Some(1))]);
    assert_eq!(rig.completed_ids(), [2]);
}

#[test]
fn k_307_k_411_a_failed_publish_leaves_the_old_ones_and_discards_the_new_one() {
    let mut rig = Rig::new(CoordinatorConfig {
        tolerable_failures: 1,
        ..Default::default()
    });
    rig.take(Checkpoint);
    let id = rig.begin(Checkpoint);
    rig.ack_all(id);
    let fault = PublishFault::NotWritten;
    let actions = rig.fact(Fact::PublishFailed {
        id,
        fault,
        detail: "disk full".into(),
    });
    assert_eq!(subsumed(&actions), []);
    assert_eq!(discarded(&actions), TASKS.map(|t| token(t, id)));
    assert_eq!(rig.completed_ids(), [1]);
}

#[test]
fn k_410_a_publish_of_unknown_outcome_leaves_everything_untouched() {
    let mut rig = Rig::new(CoordinatorConfig {
        tolerable_failures: 1,
        ..Default::default()
    });
    rig.take(Checkpoint);
    let id = rig.begin(Checkpoint);
    rig.ack_all(id);
    let fault = PublishFault::Unknown;
    let actions = rig.fact(Fact::PublishFailed {
        id,
        fault,
        detail: "timeout".into(),
    });
    assert!(actions.contains(&Action::LeaveBehind { id }));
    assert_eq!(discarded(&actions), [0_u64; 0]);
    assert_eq!(discarded_acks(&rig.ack(S0, id)), [0_u64; 0]);
    assert_eq!(
        rig.machine
            .unresolved()
            .iter()
            .map(|c| c.0)
            .collect::<Vec<_>>(),
        [2]
    );
    let newer = rig.begin(Checkpoint);
    let actions = rig.complete(newer);
    assert!(
        rig.machine.unresolved().is_empty(),
        "a newer complete one settles it"
    );
    let at = |sought: &dyn Fn(&Action<_>) -> bool| actions.iter().position(sought);
    let gone = at(&|action| *action == Action::Overtaken { id });
    let complete = at(&|action| matches!(action, Action::NotifyComplete { .. }));
    assert!(
        gone.is_some() && gone < complete,
        "its metadata goes before the objects that only it uses: {actions:?}"
    );
    assert_eq!(
        discarded_acks(&rig.ack(S0, id)),
        [0_u64; 0],
        "still not ours to delete"
    );
}

#[test]
fn k_310_a_closed_list_takes_nothing_more() {
    let mut list = list(1);
    list.close(Finished, false);
    assert_eq!(
        list.add(done(1, Checkpoint)).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn an_id_is_added_once() {
    let mut list = list(2);
    add(&mut list, 1, Checkpoint);
    assert_eq!(
        list.add(done(1, Checkpoint)).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(ids(&list), [1]);
}

/// K-311, K-315, K-316: the whole table of policies and ends.
#[test]
fn k_311_k_316_each_policy_keeps_and_deletes_by_the_table() {
    let table = [
        (Retention::Never, [false, false, false, false]),
        (Retention::DeleteOnCancellation, [false, false, true, false]),
        (Retention::RetainOnCancellation, [false, true, true, true]),
        (Retention::Always, [true, true, true, true]),
    ];
    for (retention, keeps) in table {
        for (status, keep) in [Finished, Cancelled, Failed, Suspended]
            .into_iter()
            .zip(keeps)
        {
            let mut list = list(1);
            list.add(CompletedCheckpoint {
                retention,
                ..done(1, Checkpoint)
            })
            .unwrap();
            let verdict = list.close(status, false);
            let expected = if keep {
                (vec![cp(1)], vec![])
            } else {
                (vec![], vec![cp(1)])
            };
            assert_eq!(
                (verdict.keep, verdict.delete),
                expected,
                "{retention:?} {status:?}"
            );
        }
        // A store that outlives the process keeps what is only suspended.
        let mut list = list(1);
        list.add(CompletedCheckpoint {
            retention,
            ..done(1, Checkpoint)
        })
        .unwrap();
        assert_eq!(list.close(Suspended, true).keep, [cp(1)]);
    }
}

#[test]
fn savepoints_and_what_was_not_claimed_are_kept_however_the_job_ends() {
    for status in [Finished, Cancelled, Failed, Suspended] {
        let mut list = list(3);
        list.add(CompletedCheckpoint {
            owned: false,
            ..done(1, Checkpoint)
        })
        .unwrap();
        add(&mut list, 2, StopWithSavepoint { drain: true });
        add(&mut list, 3, Checkpoint);
        assert_eq!(
            list.close(status, false),
            Verdict {
                keep: vec![cp(1), cp(2)],
                delete: vec![cp(3)]
            }
        );
    }
}

#[test]
fn what_was_restored_without_a_claim_drops_out_without_being_deleted() {
    let restored = Restored {
        completed: vec![CompletedCheckpoint {
            owned: false,
            ..done(7, Checkpoint)
        }],
        ..Default::default()
    };
    let mut rig = Rig::restored(CoordinatorConfig::default(), 8, restored);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    let id = rig.begin(Checkpoint);
    assert_eq!(subsumed(&rig.complete(id)), [(7, false)]);
    assert_eq!(rig.completed_ids(), [8]);
}

#[test]
fn a_deletion_that_is_over_changes_nothing_for_the_new_one() {
    let mut rig = Rig::new(CoordinatorConfig::default());
    rig.take(Checkpoint);
    rig.take(Checkpoint);
    assert_eq!(rig.machine.cleaning(), 1);
    rig.fact(Fact::Cleaned { id: cp(1) });
    assert_eq!((rig.machine.cleaning(), rig.completed_ids()), (0, vec![2]));
}

#[test]
fn k_320_triggers_wait_while_more_are_being_deleted_than_may_be_pending() {
    let mut rig = Rig::new(CoordinatorConfig::default());
    rig.take(Checkpoint);
    rig.take(Checkpoint);
    rig.take(Checkpoint);
    assert_eq!(rig.machine.cleaning(), 2);
    assert_eq!(rig.machine.waiting_for_deletions(), 0, "nothing waits");
    let (_, actions) = rig.request(Checkpoint);
    assert_eq!(prepared(&actions), None);
    assert_eq!(rig.machine.waiting_for_deletions(), 2);
    let actions = rig.fact(Fact::Cleaned { id: cp(1) });
    assert_eq!(prepared(&actions), Some(cp(4)));
    rig.request(Checkpoint);
    assert_eq!(rig.machine.waiting_for_deletions(), 0, "it waits for room");
}

#[test]
fn k_323_k_440_ids_begin_where_told_and_increase() {
    let mut rig = Rig::new(CoordinatorConfig::default());
    assert_eq!(
        [
            rig.take(Checkpoint),
            rig.take(Checkpoint),
            rig.take(Savepoint)
        ],
        [cp(1), cp(2), cp(3)]
    );
    let restored = Restored {
        completed: vec![done(42, Savepoint)],
        ..Default::default()
    };
    let mut rig = Rig::restored(CoordinatorConfig::default(), 43, restored);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    assert_eq!(rig.take(Checkpoint), cp(43));
    assert_eq!(rig.machine.next_id(), cp(44));
}

#[test]
fn k_323_an_id_that_was_used_is_refused_as_the_next() {
    use runtime_core::coordinator::CheckpointCoordinator;
    let restored = Restored {
        completed: vec![done(42, Checkpoint)],
        ..Default::default()
    };
    let error =
        CheckpointCoordinator::<u64>::restored(CoordinatorConfig::default(), cp(42), restored)
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = CheckpointCoordinator::<u64>::new(CoordinatorConfig::default(), cp(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn the_end_says_what_stays_and_is_the_last_word() {
    let config = CoordinatorConfig {
        retention: Retention::RetainOnCancellation,
        retained: 2,
        ..Default::default()
    };
    let mut rig = Rig::new(config);
    rig.take(Checkpoint);
    rig.take(Checkpoint);
    let pending = rig.begin(Checkpoint);
    let actions = rig.fact(Fact::Stop { status: Cancelled });
    assert_eq!(
        aborted(&actions),
        [(
            pending.0,
            runtime_core::coordinator::FailureReason::CoordinatorShutdown
        )]
    );
    assert!(actions.ends_with(&[
        Action::AtStop(Verdict {
            keep: vec![cp(1), cp(2)],
            delete: vec![]
        }),
        Action::Stopped
    ]));
    assert_eq!(rig.fact(Fact::Stop { status: Finished }), []);
    assert_eq!(rig.machine.next_wakeup(), None);
}

#[test]
fn the_end_waits_for_the_outcome_of_a_checkpoint_that_is_being_published() {
    let config = CoordinatorConfig {
        retention: Retention::Always,
        ..Default::default()
    };
    let mut rig = Rig::new(config);
    rig.take(Checkpoint);
    let id = rig.begin(Checkpoint);
    rig.ack_all(id);
    assert_eq!(rig.fact(Fact::Stop { status: Cancelled }), []);
    let actions = rig.published(id);
    assert_eq!(completed(&actions), [2]);
    assert_eq!(subsumed(&actions), [(1, true)]);
    assert!(actions.ends_with(&[
        Action::AtStop(Verdict {
            keep: vec![cp(2)],
            delete: vec![]
        }),
        Action::Stopped
    ]));
}
