//! What fails a checkpoint, what that means for the job, and who is told (areas Q and S of the catalogue).
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CoordinatorConfig, Fact, FailureCounter, FailureReason, JobStatus,
    PublishFault, Remark, RequestId, TaskId, Verdict,
};
use state_api::ErrorKind;

use CheckpointKind::{Checkpoint, Savepoint, StopWithSavepoint};
use FailureReason as Why;

fn tolerating(tolerable_failures: u32) -> CoordinatorConfig {
    CoordinatorConfig {
        tolerable_failures,
        max_concurrent: 5,
        ..Default::default()
    }
}

/// Runs failures through a counter and returns how often the job failed.
fn failures(counter: &mut FailureCounter, events: &[(u64, Why)]) -> usize {
    events
        .iter()
        .filter(|(id, why)| counter.on_failure(cp(*id), *why))
        .count()
}

#[test]
fn k_354_the_third_consecutive_counted_failure_is_too_many_for_two() {
    let mut counter = FailureCounter::new(2);
    let events = [
        (1, Why::Declined),
        (2, Why::Declined),
        (3, Why::Failover),
        (4, Why::Declined),
    ];
    assert_eq!(failures(&mut counter, &events), 1);
}

#[test]
fn k_354_a_restart_is_not_counted_and_the_count_starts_anew_with_the_tasks() {
    let mut rig = Rig::new(tolerating(2));
    let decline = |rig: &mut Rig| {
        let id = rig.begin(Checkpoint);
        failed_job(&rig.decline(S0, id, Why::Declined))
    };
    assert_eq!([decline(&mut rig), decline(&mut rig)], [None, None]);
    let open = rig.begin(Checkpoint);
    let actions = rig.fact(Fact::Failover);
    assert_eq!(aborted(&actions), [(open.0, Why::Failover)]);
    assert_eq!(failed_job(&actions), None);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    // The failures before the restart were those of tasks that are gone.
    assert_eq!([decline(&mut rig), decline(&mut rig)], [None, None]);
    assert_eq!(decline(&mut rig), Some(Why::Declined));
}

#[test]
fn k_355_a_success_breaks_the_series() {
    let mut counter = FailureCounter::new(2);
    assert_eq!(
        failures(
            &mut counter,
            &[(1, Why::Storage), (2, Why::Declined), (3, Why::Failover)]
        ),
        0
    );
    counter.on_success(cp(4));
    assert_eq!(failures(&mut counter, &[(5, Why::Expired)]), 0);
    assert_eq!(counter.count(), 1);
}

#[test]
fn k_357_a_checkpoint_counts_once_however_often_it_fails() {
    let mut counter = FailureCounter::new(2);
    let events = [
        (1, Why::Declined),
        (2, Why::Declined),
        (3, Why::Failover),
        (2, Why::Declined),
    ];
    assert_eq!(failures(&mut counter, &events), 0);
}

#[test]
fn k_358_failures_of_the_past_do_not_count() {
    let mut counter = FailureCounter::new(0);
    counter.on_success(cp(10));
    let past: Vec<(u64, Why)> = (1..=10).map(|id| (id, Why::Declined)).collect();
    assert_eq!(failures(&mut counter, &past), 0);
    assert_eq!(failures(&mut counter, &[(11, Why::Declined)]), 1);
}

#[test]
fn k_359_the_count_starts_anew_after_the_job_was_failed() {
    let mut counter = FailureCounter::new(1);
    let events: Vec<(u64, Why)> = (1..=6).map(|id| (id, Why::Expired)).collect();
    assert_eq!(failures(&mut counter, &events), 3);
    assert_eq!(counter.count(), 0);
}

/// K-361: a negative number cannot be said; the largest one means any number.
#[test]
fn k_361_unlimited_tolerance_counts_nothing() {
    let mut counter = FailureCounter::new(CoordinatorConfig::UNLIMITED);
    let events: Vec<(u64, Why)> = (1..=1000).map(|id| (id, Why::Publish)).collect();
    assert_eq!(failures(&mut counter, &events), 0);
    assert_eq!(counter.count(), 0);
}

#[test]
fn only_reasons_that_speak_of_tasks_and_storage_count() {
    let all = [
        Why::SchedulerStopped,
        Why::TooManyRequests,
        Why::MinimumPause,
        Why::TasksNotRunning,
        Why::Storage,
        Why::Trigger,
        Why::CoordinatorShutdown,
        Why::Suspended,
        Why::Declined,
        Why::AsyncPart,
        Why::ChannelState,
        Why::DeclinedNotReady,
        Why::DeclinedClosing,
        Why::DeclinedSubsumed,
        Why::DeclinedCancelMarker,
        Why::DeclinedInputEnded,
        Why::SyncPart,
        Why::PartlyFinished,
        Why::Expired,
        Why::Subsumed,
        Why::TaskFailed,
        Why::TaskFinished,
        Why::Failover,
        Why::Publish,
        Why::Fenced,
    ];
    let counted: Vec<Why> = all.into_iter().filter(|r| r.is_counted()).collect();
    assert_eq!(
        counted,
        [
            Why::Storage,
            Why::Declined,
            Why::AsyncPart,
            Why::ChannelState,
            Why::SyncPart,
            Why::Expired,
            Why::Publish
        ]
    );
    let preflight: Vec<Why> = all.into_iter().filter(|r| r.is_preflight()).collect();
    assert_eq!(
        preflight,
        [
            Why::SchedulerStopped,
            Why::TooManyRequests,
            Why::MinimumPause,
            Why::TasksNotRunning,
            Why::Storage,
            Why::Trigger
        ]
    );
}

#[test]
fn k_360_a_savepoint_that_fails_concerns_only_who_asked_unless_it_was_to_stop_the_job() {
    let mut rig = Rig::new(tolerating(0));
    for reason in [Why::Declined, Why::AsyncPart] {
        let id = rig.begin(Savepoint);
        assert_eq!(failed_job(&rig.decline(S0, id, reason)), None);
    }
    let id = rig.begin(Savepoint);
    rig.ack_all(id);
    let fault = PublishFault::NotWritten;
    assert_eq!(
        failed_job(&rig.fact(Fact::PublishFailed {
            id,
            fault,
            detail: String::new()
        })),
        None
    );

    let mut rig = Rig::new(tolerating(CoordinatorConfig::UNLIMITED));
    let (_, actions) = rig.request(StopWithSavepoint { drain: false });
    let id = prepared(&actions).unwrap();
    let actions = rig.fact(Fact::StorageFailed {
        id,
        detail: String::new(),
    });
    assert_eq!(failed_job(&actions), None, "no source had stopped yet");
    let id = rig.begin(StopWithSavepoint { drain: false });
    assert_eq!(
        failed_job(&rig.decline(S0, id, Why::DeclinedNotReady)),
        Some(Why::DeclinedNotReady)
    );
}

#[test]
fn k_370_after_the_timeout_acked_and_late_state_is_discarded_and_nothing_completes() {
    let mut rig = Rig::new(CoordinatorConfig {
        timeout: ms(200),
        ..tolerating(1)
    });
    let id = rig.begin(Checkpoint);
    rig.ack(S0, id);
    assert_eq!(rig.machine.next_wakeup(), Some(200));
    assert_eq!(rig.tick_at(199), []);
    let actions = rig.tick_at(200);
    assert_eq!(aborted(&actions), [(1, Why::Expired)]);
    assert_eq!(discarded(&actions), [token(S0, id)]);
    let mut late = rig.ack(S1, id);
    late.extend(rig.ack(SINK, id));
    assert_eq!(discarded_acks(&late), [token(S1, id), token(SINK, id)]);
    assert_eq!(
        (published_ids(&late), notified_complete(&late)),
        (vec![], vec![])
    );
}

#[test]
fn k_371_words_on_checkpoints_that_never_were_change_nothing() {
    let mut rig = Rig::new(tolerating(0));
    let pending = rig.begin(Checkpoint);
    let unknown = cp(55);
    let facts = [
        Fact::Ack {
            task: S0,
            id: unknown,
            state: 1,
        },
        Fact::Decline {
            task: S0,
            id: unknown,
            reason: Why::Declined,
            detail: String::new(),
        },
        Fact::Seal { id: unknown },
        Fact::LocationReady { id: unknown },
        Fact::Published { id: unknown },
        Fact::PublishFailed {
            id: unknown,
            fault: PublishFault::NotWritten,
            detail: String::new(),
        },
        Fact::StorageFailed {
            id: unknown,
            detail: String::new(),
        },
        Fact::TriggerFailed {
            id: unknown,
            detail: String::new(),
        },
    ];
    for fact in facts {
        assert_eq!(
            rig.fact(fact.clone()),
            [Action::Remark(Remark::UnknownCheckpoint(unknown))],
            "{fact:?}"
        );
    }
    let stranger = TaskId::new(4, 4);
    let actions = rig.decline(stranger, pending, Why::Declined);
    assert_eq!(
        actions,
        [Action::Remark(Remark::UnknownTask(pending, stranger))]
    );
    assert_eq!(rig.pending_ids(), [1]);
}

#[test]
fn k_372_late_and_strange_state_is_discarded_duplicates_and_completed_state_are_not() {
    let mut rig = Rig::new(tolerating(9));
    let aborted = rig.begin(Checkpoint);
    rig.decline(S0, aborted, Why::Declined);
    let complete = rig.take(Checkpoint);
    let pending = rig.begin(Checkpoint);
    rig.ack(S0, pending);
    assert_eq!(discarded_acks(&rig.ack(S1, aborted)), [token(S1, aborted)]);
    assert_eq!(
        discarded_acks(&rig.ack(TaskId::new(9, 9), pending)).len(),
        1
    );
    assert_eq!(discarded_acks(&rig.ack(S0, pending)), [0_u64; 0]);
    assert_eq!(
        discarded_acks(&rig.ack(S0, complete)),
        [0_u64; 0],
        "its objects are in use"
    );
}

#[test]
fn an_ack_for_an_attempt_before_this_one_is_untouched() {
    let mut rig = Rig::restored(tolerating(0), 10, Default::default());
    assert_eq!(
        rig.ack(S0, cp(9)),
        [Action::Remark(Remark::UnknownCheckpoint(cp(9)))]
    );
}

#[test]
fn k_404_a_decline_ends_the_checkpoint_and_all_tasks_are_told() {
    for reason in [Why::Declined, Why::AsyncPart] {
        let mut rig = Rig::new(tolerating(1));
        let id = rig.begin(Checkpoint);
        rig.ack(S1, id);
        let actions = rig.decline(S0, id, reason);
        assert_eq!(aborted(&actions), [(1, reason)]);
        assert_eq!(notified_abort(&actions), [(1, None)]);
        assert_eq!(discarded(&actions), [token(S1, id)]);
        assert_eq!(failed_job(&actions), None);
        assert_eq!(
            rig.decline(SINK, id, reason),
            [Action::Remark(Remark::Late(id))],
            "once is enough"
        );
        let next = rig.begin(Checkpoint);
        assert_eq!(failed_job(&rig.decline(S0, next, reason)), Some(reason));
    }
}

#[test]
fn k_405_of_two_pending_only_the_declined_one_ends() {
    let mut rig = Rig::new(tolerating(1));
    let (first, second) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    rig.ack(S1, second);
    let actions = rig.decline(S0, first, Why::Declined);
    assert_eq!(aborted(&actions), [(1, Why::Declined)]);
    rig.ack(S0, second);
    rig.ack(SINK, second);
    assert_eq!(completed(&rig.published(second)), [2]);
}

#[test]
fn k_406_a_decline_that_is_not_tolerated_fails_the_job_with_its_cause() {
    let mut rig = Rig::new(tolerating(0));
    let id = rig.begin(Checkpoint);
    let actions = rig.decline(S1, id, Why::SyncPart);
    let Some(Action::FailJob { failure }) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!(
        failure.to_string(),
        "checkpoint 1 failed: the synchronous part of a snapshot failed: task 0.1: no room"
    );
    let error = failure.to_error();
    assert_eq!(
        (error.kind(), error.context("checkpoint")),
        (ErrorKind::Retryable, Some("1"))
    );
}

#[test]
fn k_407_expiry_and_storage_failures_beyond_tolerance_fail_the_job() {
    let mut rig = Rig::new(CoordinatorConfig {
        timeout: ms(100),
        ..tolerating(1)
    });
    rig.begin(Checkpoint);
    assert_eq!(failed_job(&rig.tick_at(100)), None);
    rig.request(Checkpoint);
    let actions = rig.fact(Fact::StorageFailed {
        id: cp(2),
        detail: String::new(),
    });
    assert_eq!(failed_job(&actions), Some(Why::Storage));
}

#[test]
fn k_408_periodic_triggers_without_running_tasks_do_not_count() {
    let mut rig = Rig::new(CoordinatorConfig {
        interval: Some(ms(100)),
        ..tolerating(1)
    });
    // One whose place can't be made counts.
    let storage_fails = |rig: &mut Rig| {
        let actions = rig.tick_at(rig.machine.next_wakeup().unwrap());
        let id = prepared(&actions).expect("its tasks run");
        let detail = "read-only".into();
        let actions = rig.fact(Fact::StorageFailed { id, detail });
        rig.clean(&actions);
        failed_job(&actions)
    };
    assert_eq!(storage_fails(&mut rig), None, "one is tolerated");
    rig.fact(Fact::TaskFailed { task: S0 });
    for _ in 0..5 {
        let actions = rig.tick_at(rig.machine.next_wakeup().unwrap());
        let refused = Remark::PeriodicRefused(Why::TasksNotRunning);
        assert_eq!(actions, [Action::Remark(refused)]);
    }
    // The restart begins a new count.
    rig.fact(Fact::Failover);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    assert_eq!(storage_fails(&mut rig), None);
    assert_eq!(storage_fails(&mut rig), Some(Why::Storage));
}

#[test]
fn k_413_an_abort_tells_the_latest_completed_checkpoint() {
    let mut rig = Rig::restored(tolerating(1), 5, Default::default());
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    rig.take(Checkpoint);
    let id = rig.begin(Checkpoint);
    assert_eq!(
        notified_abort(&rig.decline(S0, id, Why::Declined)),
        [(6, Some(5))]
    );
}

#[test]
fn k_418_a_stop_with_savepoint_cannot_vanish_silently() {
    let mut rig = Rig::new(tolerating(CoordinatorConfig::UNLIMITED));
    let (request, actions) = rig.request(StopWithSavepoint { drain: true });
    rig.ready(prepared(&actions).unwrap());
    let actions = rig.fact(Fact::StopScheduler);
    assert_eq!(refusal(&actions, request), Some(Why::Suspended));
    assert_eq!(failed_job(&actions), Some(Why::Suspended));

    let (request, actions) = rig.request(StopWithSavepoint { drain: true });
    rig.ready(prepared(&actions).unwrap());
    let actions = rig.fact(Fact::Failover);
    assert_eq!(refusal(&actions, request), Some(Why::Failover));
    assert_eq!(failed_job(&actions), None, "the job has failed already");
}

#[test]
fn k_419_each_checkpoint_is_reported_as_ended_once() {
    let mut rig = Rig::new(tolerating(9));
    let id = rig.begin(Checkpoint);
    let mut all = rig.decline(S0, id, Why::Declined);
    all.extend(rig.decline(S1, id, Why::Declined));
    all.extend(rig.tick_at(10_000_000));
    all.extend(rig.fact(Fact::TaskFailed { task: S0 }));
    all.extend(rig.fact(Fact::Stop {
        status: JobStatus::Failed,
    }));
    let ended = all
        .iter()
        .filter(|a| matches!(a, Action::Ended { .. }))
        .count();
    assert_eq!(ended, 1);
}

/// K-420: what statistics need is in the view of what is pending, and in what is said at the end.
#[test]
fn k_420_a_checkpoint_is_told_of_while_it_is_pending_and_at_its_end() {
    let mut rig = Rig::new(tolerating(0));
    rig.now = 100;
    let id = rig.begin(Savepoint);
    rig.now = 350;
    let pending = rig.machine.pending(rig.now);
    let told: Vec<_> = pending.iter().map(|p| (p.id, p.kind, p.age_ms)).collect();
    assert_eq!(told, [(id, Savepoint, 250)]);
    let actions = rig.complete(id);
    let ended = actions.iter().find_map(|a| match a {
        Action::Ended {
            kind,
            started_ms,
            ended_ms,
            ..
        } => Some((*kind, *started_ms, *ended_ms)),
        _ => None,
    });
    assert_eq!(ended, Some((Savepoint, 100, 350)));
}

#[test]
fn k_442_when_the_timer_is_stopped_what_is_pending_ends_as_suspended() {
    let mut rig = Rig::new(tolerating(0));
    let (first, second) = (rig.begin(Checkpoint), rig.begin(Savepoint));
    rig.ack(S0, first);
    rig.ack(S1, second);
    let actions = rig.fact(Fact::StopScheduler);
    assert_eq!(
        aborted(&actions),
        [(1, Why::Suspended), (2, Why::Suspended)]
    );
    assert_eq!(discarded(&actions), [token(S0, first), token(S1, second)]);
    assert_eq!(failed_job(&actions), None);
}

#[test]
fn a_failed_task_ends_the_checkpoints_that_wait_for_it_and_no_others() {
    let mut rig = Rig::new(tolerating(0));
    let (acked, waiting) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    rig.ack(S0, acked);
    let actions = rig.fact(Fact::TaskFailed { task: S0 });
    assert_eq!(aborted(&actions), [(waiting.0, Why::TaskFailed)]);
    assert_eq!(
        failed_job(&actions),
        None,
        "that is the restart strategy's business"
    );
    rig.ack(S1, acked);
    rig.ack(SINK, acked);
    assert_eq!(completed(&rig.published(acked)), [1]);
}

#[test]
fn a_restart_ends_what_waits_for_acks_and_spares_what_is_being_published() {
    let mut rig = Rig::new(tolerating(0));
    let (sealed, open) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    rig.ack_all(sealed);
    let actions = rig.fact(Fact::Failover);
    assert_eq!(aborted(&actions), [(open.0, Why::Failover)]);
    assert!(!rig.machine.is_settled(), "whoever restores must wait");
    rig.published(sealed);
    assert!(rig.machine.is_settled());
    assert_eq!(rig.machine.completed().latest().unwrap().id, sealed);
}

#[test]
fn a_final_checkpoint_that_waited_while_its_tasks_failed_does_not_end_the_tasks_that_follow() {
    for told_of_the_failover in [true, false] {
        let mut rig = Rig::new(defaults());
        let pending = [rig.begin(Checkpoint).0, rig.begin(Savepoint).0];
        let (last, actions) = rig.request(CheckpointKind::Final);
        assert_eq!(prepared(&actions), None, "it waits for its turn");
        rig.request(CheckpointKind::StopWithCheckpoint);
        let mut actions = Vec::new();
        if told_of_the_failover {
            actions = rig.fact(Fact::Failover);
            assert_eq!(refusal(&actions, last), Some(Why::Failover));
        }
        actions.extend(rig.fact(Fact::TasksRunning {
            plan: plan(),
            random: 0,
        }));
        assert_eq!(refusal(&actions, last), Some(Why::Failover));
        assert_eq!(aborted(&actions), pending.map(|id| (id, Why::Failover)));
        assert_eq!(prepared(&actions), None, "there is too much to delete");
        let begun = rig.fact(Fact::Cleaned { id: cp(pending[0]) });
        // What a person asked for waits for the tasks that follow.
        assert!(
            matches!(
                begun[..],
                [Action::PrepareLocation {
                    kind: CheckpointKind::StopWithCheckpoint,
                    ..
                }]
            ),
            "{begun:?}"
        );
    }
}

#[test]
fn a_checkpoint_overtaken_while_it_is_published_is_retracted_when_it_appears() {
    let mut rig = Rig::new(tolerating(0));
    let (first, second) = (rig.begin(Checkpoint), rig.begin(Checkpoint));
    rig.ack_all(first);
    let actions = rig.complete(second);
    assert_eq!(aborted(&actions), [(1, Why::Subsumed)]);
    assert!(actions.contains(&Action::CancelPublish { id: first }));
    assert_eq!(discarded(&actions), [0_u64; 0]);
    let actions = rig.published(first);
    let [Action::Retract { id, acks }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!((*id, acks.len()), (first, 3));
    assert_eq!(rig.completed_ids(), [2]);
}

#[test]
fn a_fenced_coordinator_answers_everybody_and_deletes_nothing() {
    let mut rig = Rig::new(CoordinatorConfig {
        max_concurrent: 2,
        ..tolerating(0)
    });
    rig.take(Checkpoint);
    let (first, actions) = rig.request(Checkpoint);
    let id = prepared(&actions).unwrap();
    rig.ready(id);
    rig.ack(S0, id);
    let sealed = rig.begin(Savepoint);
    rig.ack_all(sealed);
    let (waiting, _) = rig.request(Checkpoint);
    let actions = rig.fact(Fact::PublishFailed {
        id: sealed,
        fault: PublishFault::Fenced,
        detail: String::new(),
    });
    assert_eq!(actions[0], Action::Fenced);
    assert_eq!(aborted(&actions), [(2, Why::Fenced), (3, Why::Fenced)]);
    assert_eq!(
        [refusal(&actions, first), refusal(&actions, waiting)],
        [Some(Why::Fenced); 2]
    );
    let deletes = |actions: &Actions| {
        actions.iter().any(|a| {
            matches!(
                a,
                Action::Discard { .. }
                    | Action::DiscardAck { .. }
                    | Action::Retract { .. }
                    | Action::Subsume { .. }
            )
        })
    };
    assert!(!deletes(&actions));
    assert!(!deletes(&rig.ack(S1, id)));
    assert_eq!(rig.machine.next_wakeup(), None);
    let (late, actions) = rig.request(Savepoint);
    assert_eq!(refusal(&actions, late), Some(Why::Fenced));
    let actions = rig.fact(Fact::Stop {
        status: JobStatus::Finished,
    });
    assert_eq!(
        actions,
        [
            Action::AtStop(Verdict {
                keep: vec![cp(1)],
                delete: vec![]
            }),
            Action::Stopped
        ]
    );
}

#[test]
fn a_coordinator_that_is_fenced_while_the_job_ends_waits_for_no_outcome() {
    let mut rig = Rig::new(tolerating(0));
    rig.take(Checkpoint);
    let sealed = rig.begin(Checkpoint);
    rig.ack_all(sealed);
    let actions = rig.fact(Fact::Stop {
        status: JobStatus::Cancelled,
    });
    assert!(!actions.contains(&Action::Stopped), "{actions:?}");
    let actions = rig.fact(Fact::Fenced);
    assert_eq!(actions[0], Action::Fenced);
    assert_eq!(aborted(&actions), [(2, Why::Fenced)]);
    let end = [
        Action::AtStop(Verdict {
            keep: vec![cp(1)],
            delete: vec![],
        }),
        Action::Stopped,
    ];
    assert_eq!(actions[actions.len() - 2..], end);
}

#[test]
fn being_fenced_is_an_error_of_its_own_kind() {
    let mut rig = Rig::new(tolerating(0));
    rig.fact(Fact::Fenced);
    let (request, actions) = rig.request(Savepoint);
    let failure = reply(&actions, request).unwrap().unwrap_err();
    assert_eq!(failure.to_error().kind(), ErrorKind::Fenced);
    assert_eq!(request, RequestId(1));
}

/// Every way out of a pending checkpoint frees its slot, in whichever phase it was.
#[test]
fn after_every_abort_in_every_phase_the_next_checkpoint_begins() {
    type Cause = fn(&mut Rig) -> Actions;
    let causes: [(&str, Cause); 5] = [
        ("timeout", |rig| rig.tick_at(600_000)),
        ("decline", |rig| rig.decline(SINK, cp(1), Why::Declined)),
        ("failed publish", |rig| {
            rig.fact(Fact::PublishFailed {
                id: cp(1),
                fault: PublishFault::NotWritten,
                detail: String::new(),
            })
        }),
        ("storage", |rig| {
            rig.fact(Fact::StorageFailed {
                id: cp(1),
                detail: String::new(),
            })
        }),
        ("restart", |rig| rig.fact(Fact::Failover)),
    ];
    for phase in 0..4 {
        for (name, cause) in causes {
            let config = CoordinatorConfig {
                max_concurrent: 1,
                ..tolerating(CoordinatorConfig::UNLIMITED)
            };
            let mut rig = Rig::new(config);
            rig.request(Checkpoint);
            if phase >= 1 {
                rig.ready(cp(1));
            }
            if phase >= 2 {
                rig.ack(S0, cp(1));
            }
            if phase >= 3 {
                rig.ack(S1, cp(1));
                rig.ack(SINK, cp(1));
            }
            let actions = cause(&mut rig);
            if name == "restart" {
                if phase == 3 {
                    rig.published(cp(1));
                }
                rig.fact(Fact::TasksRunning {
                    plan: plan(),
                    random: 0,
                });
            } else if aborted(&actions).is_empty() {
                continue;
            }
            let (_, actions) = rig.request(Checkpoint);
            assert_eq!(prepared(&actions), Some(cp(2)), "{name} in phase {phase}");
        }
    }
}
