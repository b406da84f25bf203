//! How checkpoints begin: timer, minimum pause, order and bound of requests, preparation (areas Q and R).
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CompletedCheckpoint, Connection, CoordinatorConfig, Fact,
    FailureReason, Plan, PlanVertex, Remark, RequestId, Restored, Retention, TaskId, Trigger,
};
use state_api::ErrorKind;

use CheckpointKind::{Checkpoint, Final, Savepoint, StopWithSavepoint};

fn defaults() -> CoordinatorConfig {
    CoordinatorConfig::default()
}

fn every(interval: u64) -> CoordinatorConfig {
    CoordinatorConfig {
        interval: Some(ms(interval)),
        ..defaults()
    }
}

/// Begins and readies what an action list asks to prepare.
fn ready_from(rig: &mut Rig, actions: &Actions) -> u64 {
    let id = prepared(actions).unwrap_or_else(|| panic!("nothing began: {actions:?}"));
    rig.ready(id);
    id.0
}

#[test]
fn settings_out_of_range_are_refused() {
    let bad = [
        CoordinatorConfig {
            interval: Some(ms(9)),
            ..defaults()
        },
        CoordinatorConfig {
            timeout: ms(9),
            ..defaults()
        },
        CoordinatorConfig {
            max_concurrent: 0,
            ..defaults()
        },
        CoordinatorConfig {
            retained: 0,
            ..defaults()
        },
        CoordinatorConfig {
            max_queued: 0,
            ..defaults()
        },
        CoordinatorConfig {
            unaligned: true,
            max_concurrent: 2,
            ..defaults()
        },
    ];
    for config in bad {
        assert_eq!(
            config.clone().normalised().unwrap_err().kind(),
            ErrorKind::Config,
            "{config:?}"
        );
    }
}

#[test]
fn a_minimum_pause_raises_the_interval_and_leaves_one_checkpoint_at_a_time() {
    let config = CoordinatorConfig {
        min_pause: ms(500),
        max_concurrent: 4,
        ..every(100)
    }
    .normalised()
    .unwrap();
    assert_eq!((config.interval, config.max_concurrent), (Some(ms(500)), 1));
    let year = ms(365 * 24 * 3600 * 1000);
    let config = CoordinatorConfig {
        min_pause: year * 3,
        ..every(100)
    }
    .normalised()
    .unwrap();
    assert_eq!((config.min_pause, config.interval), (year, Some(year)));
}

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
fn k_351_k_379_a_savepoint_does_not_heed_the_minimum_pause() {
    let mut rig = Rig::new(CoordinatorConfig {
        min_pause: ms(100_000),
        ..defaults()
    });
    rig.take(Checkpoint);
    rig.begin(Savepoint);
    rig.begin(Savepoint);
    assert_eq!(rig.pending_ids(), [2, 3]);
}

#[test]
fn k_352_a_periodic_checkpoint_in_the_pause_is_dropped_and_the_timer_set_for_its_rest() {
    let mut rig = Rig::new(CoordinatorConfig {
        min_pause: ms(100),
        ..every(100)
    });
    let actions = rig.tick_at(100);
    ready_from(&mut rig, &actions);
    rig.now = 190;
    rig.complete(cp(1));
    assert_eq!(rig.machine.next_wakeup(), Some(200));
    let actions = rig.tick_at(200);
    assert_eq!(
        actions,
        [Action::Remark(Remark::PeriodicRefused(
            FailureReason::MinimumPause
        ))]
    );
    assert_eq!(rig.machine.waiting_requests(), 0, "it is not queued");
    assert_eq!(rig.machine.next_wakeup(), Some(290), "190 + 100");
    let (_, actions) = rig.request(Checkpoint);
    assert_eq!(
        prepared(&actions),
        Some(cp(2)),
        "a person's request does not wait"
    );
}

/// The pause runs from the end of anything, savepoints included, and counting goes on afterwards.
#[test]
fn a_savepoint_delays_the_next_periodic_checkpoint_by_no_more_than_the_pause() {
    let mut rig = Rig::new(CoordinatorConfig {
        min_pause: ms(10_000),
        ..every(1_000)
    });
    let actions = rig.tick_at(10_000);
    let first = cp(ready_from(&mut rig, &actions));
    rig.complete(first);
    rig.now = 11_000;
    rig.take(Savepoint);
    let mut began = Vec::new();
    while began.len() < 5 {
        let actions = rig.tick_at(rig.machine.next_wakeup().unwrap());
        if let Some(id) = prepared(&actions) {
            began.push(rig.now);
            rig.ready(id);
            let actions = rig.complete(id);
            rig.clean(&actions);
        }
    }
    assert_eq!(began, [21_000, 31_000, 41_000, 51_000, 61_000]);
}

#[test]
fn k_362_without_running_tasks_nothing_begins() {
    let mut rig = Rig::idle(defaults());
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
    assert_eq!(rig.pending_ids(), [0_u64; 0]);
    assert_eq!(rig.machine.next_id(), cp(1), "no id is spent");
}

#[test]
fn k_363_finished_tasks_end_checkpointing_where_that_is_configured() {
    let mut rig = Rig::new(CoordinatorConfig {
        after_tasks_finish: false,
        ..defaults()
    });
    rig.fact(Fact::TaskFinished { task: S0 });
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
}

#[test]
fn k_364_behind_finished_tasks_the_next_ones_are_triggered_and_the_finished_count_as_acked() {
    let mut rig = Rig::new(defaults());
    rig.fact(Fact::TaskFinished { task: S0 });
    rig.fact(Fact::TaskFinished { task: S1 });
    let (_, actions) = rig.request(Checkpoint);
    let actions = rig.ready(prepared(&actions).unwrap());
    let Some(Action::TriggerTasks { tasks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(tasks.iter().copied().collect::<Vec<_>>(), [SINK]);
    assert_eq!(published_ids(&rig.ack(SINK, cp(1))), [1]);
}

#[test]
fn once_all_tasks_are_finished_the_final_checkpoint_is_published_at_once() {
    let mut rig = Rig::new(defaults());
    for task in TASKS {
        rig.fact(Fact::TaskFinished { task });
    }
    let (request, actions) = rig.request(Final);
    let id = prepared(&actions).unwrap();
    assert_eq!(published_ids(&rig.ready(id)), [1]);
    assert_eq!(reply(&rig.published(id), request), Some(Ok(id)));
}

#[test]
fn k_365_a_triggered_task_that_finishes_unacked_aborts_and_the_next_checkpoint_succeeds() {
    let mut rig = Rig::new(defaults());
    let id = rig.begin(Checkpoint);
    let actions = rig.fact(Fact::TaskFinished { task: S1 });
    assert_eq!(aborted(&actions), [(id.0, FailureReason::TaskFinished)]);
    assert_eq!(failed_job(&actions), None, "it is nobody's failure");
    let next = rig.begin(Checkpoint);
    rig.ack(S0, next);
    assert_eq!(published_ids(&rig.ack(SINK, next)), [2]);
}

#[test]
fn a_task_that_finishes_before_the_trigger_is_sent_is_left_out_of_it() {
    let mut rig = Rig::new(defaults());
    let (_, actions) = rig.request(Checkpoint);
    rig.fact(Fact::TaskFinished { task: S1 });
    let actions = rig.ready(prepared(&actions).unwrap());
    let Some(Action::TriggerTasks { tasks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(tasks.iter().copied().collect::<Vec<_>>(), [S0]);
}

#[test]
fn a_task_further_down_that_finishes_counts_as_acked() {
    let mut rig = Rig::new(defaults());
    let id = rig.begin(Checkpoint);
    rig.ack(S0, id);
    rig.ack(S1, id);
    let actions = rig.fact(Fact::TaskFinished { task: SINK });
    let Some(Action::Publish { finished, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(finished.iter().copied().collect::<Vec<_>>(), [SINK]);
}

#[test]
fn k_366_sources_are_triggered_and_all_tasks_waited_for() {
    let mut rig = Rig::new(defaults());
    rig.now = 77;
    let (_, actions) = rig.request(Checkpoint);
    assert_eq!(
        actions,
        [Action::PrepareLocation {
            id: cp(1),
            kind: Checkpoint,
            target: None
        }]
    );
    let actions = rig.ready(cp(1));
    let tasks = [S0, S1].into();
    let expected = Action::TriggerTasks {
        id: cp(1),
        kind: Checkpoint,
        full: false,
        timestamp_ms: 77,
        tasks,
    };
    assert_eq!(actions, [expected]);
    assert_eq!(rig.machine.pending(77)[0].missing, TASKS);
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
fn k_375_the_timer_starts_with_the_tasks() {
    let mut rig = Rig::idle(every(100));
    assert_eq!(rig.machine.next_wakeup(), None);
    assert_eq!(rig.tick_at(1_000), []);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 30,
    });
    assert_eq!(rig.machine.next_wakeup(), Some(1_030));
    assert_eq!(prepared(&rig.tick_at(1_030)), Some(cp(1)));
}

#[test]
fn the_first_periodic_checkpoint_comes_between_minimum_pause_and_interval() {
    let mut rng = Rng(7);
    for _ in 0..200 {
        let mut rig = Rig::idle(CoordinatorConfig {
            min_pause: ms(40),
            ..every(100)
        });
        rig.fact(Fact::TasksRunning {
            plan: plan(),
            random: rng.draw(),
        });
        let first = rig.machine.next_wakeup().unwrap();
        assert!((40..=100).contains(&first), "{first}");
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
fn k_380_the_policy_in_force_when_it_was_triggered_goes_with_a_checkpoint() {
    let mut rig = Rig::new(CoordinatorConfig {
        retention: Retention::RetainOnCancellation,
        ..defaults()
    });
    rig.take(Checkpoint);
    assert_eq!(
        rig.machine.completed().latest().unwrap().retention,
        Retention::RetainOnCancellation
    );
}

#[test]
fn k_381_the_timer_keeps_its_pace_stops_and_starts_again() {
    let mut rig = Rig::new(every(100));
    let mut began = Vec::new();
    // Ticks that come late do not shift the schedule, and one that comes very late does not catch up.
    for late in [0, 3, 99, 0, 250, 0] {
        let actions = rig.tick_at(rig.machine.next_wakeup().unwrap() + late);
        if let Some(id) = prepared(&actions) {
            began.push(rig.now);
            rig.ready(id);
            let actions = rig.complete(id);
            rig.clean(&actions);
        }
    }
    assert_eq!(began, [0, 103, 299, 300, 650, 700]);
    rig.fact(Fact::StopScheduler);
    assert_eq!(rig.machine.next_wakeup(), None);
    assert_eq!(rig.tick_at(5_000), []);
    rig.fact(Fact::StartScheduler { random: 60 });
    assert_eq!(prepared(&rig.tick_at(5_060)), Some(cp(7)));
}

#[test]
fn k_383_k_385_after_a_stop_of_the_timer_people_may_still_ask() {
    let mut rig = Rig::new(every(100));
    rig.begin(Checkpoint);
    rig.tick_at(100);
    assert_eq!(rig.machine.waiting_requests(), 1);
    let actions = rig.fact(Fact::StopScheduler);
    assert_eq!(
        remarks(&actions),
        [Remark::PeriodicRefused(FailureReason::Suspended)]
    );
    rig.take(Checkpoint);
    rig.take(Savepoint);
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

/// K-396 to K-399: nothing may refer to what was not claimed, until a checkpoint of our own is complete.
#[test]
fn k_396_k_399_after_a_restore_without_claim_checkpoints_are_full_until_one_completes() {
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
    let mut rig = Rig::restored(
        CoordinatorConfig {
            tolerable_failures: 9,
            ..defaults()
        },
        6,
        restored,
    );
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    let mut take = |kind, complete: bool| {
        let (_, actions) = rig.request(kind);
        let id = prepared(&actions).unwrap();
        let full = triggered_full(&rig.ready(id)).unwrap();
        if complete {
            rig.complete(id);
        } else {
            rig.decline(S0, id, FailureReason::Declined);
        }
        full
    };
    assert!(
        take(Checkpoint, false),
        "an attempt that fails changes nothing"
    );
    take(Savepoint, true);
    assert!(take(Checkpoint, true), "a savepoint neither");
    assert!(!take(Checkpoint, true));
    // A restart in between starts from the same Restored, so it is full again (K-398).
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
fn no_periodic_checkpoint_begins_once_one_that_ends_the_job_is_under_way() {
    for kind in [Final, StopWithSavepoint { drain: true }] {
        let mut rig = Rig::new(CoordinatorConfig {
            max_concurrent: 5,
            ..every(100)
        });
        let id = rig.begin(kind);
        assert_eq!(rig.tick_at(100), []);
        rig.complete(id);
        assert_eq!(rig.tick_at(200), []);
        assert_eq!(rig.machine.waiting_requests(), 0);
        // A restart is a new life.
        rig.fact(Fact::Failover);
        rig.fact(Fact::TasksRunning {
            plan: plan(),
            random: 0,
        });
        assert_eq!(prepared(&rig.tick_at(200)), Some(cp(2)));
    }
}

#[test]
fn the_periodic_course_goes_on_after_a_stop_with_savepoint_that_failed() {
    let mut rig = Rig::new(every(100));
    let id = rig.begin(StopWithSavepoint { drain: false });
    let actions = rig.decline(S0, id, FailureReason::Declined);
    assert_eq!(
        failed_job(&actions),
        Some(FailureReason::Declined),
        "sources have stopped for it"
    );
    rig.fact(Fact::Failover);
    rig.fact(Fact::TasksRunning {
        plan: plan(),
        random: 0,
    });
    assert_eq!(prepared(&rig.tick_at(100)), Some(cp(2)));
}

#[test]
fn k_443_k_448_the_trigger_goes_to_every_running_task_that_no_running_task_feeds() {
    use Connection::{AllToAll, OneToOne};
    let task = TaskId::new;
    // source 0 -> map 1 (one to one) -> count 2 (all to all) -> sink 3 (one to one); source 4 -> count 2.
    let mut rig = Rig::idle(defaults());
    let plan = Plan::new([
        PlanVertex::source(0, 2),
        PlanVertex::source(1, 2).fed_by(0, OneToOne),
        PlanVertex::source(2, 2)
            .fed_by(1, AllToAll)
            .fed_by(4, AllToAll),
        PlanVertex::source(3, 2).fed_by(2, OneToOne),
        PlanVertex::source(4, 1),
    ])
    .unwrap();
    assert_eq!(plan.len(), 9);
    rig.fact(Fact::TasksRunning { plan, random: 0 });
    let mut next = 0;
    let mut triggered = |rig: &mut Rig| {
        next += 1;
        rig.request(Savepoint);
        let actions = rig.ready(cp(next));
        let Some(Action::TriggerTasks { tasks, .. }) = actions.into_iter().next() else {
            panic!()
        };
        rig.fact(Fact::TriggerFailed {
            id: cp(next),
            detail: String::new(),
        });
        rig.fact(Fact::Cleaned { id: cp(next) });
        tasks.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(triggered(&mut rig), [task(0, 0), task(0, 1), task(4, 0)]);
    let finish = |rig: &mut Rig, tasks: &[TaskId]| {
        for task in tasks {
            rig.fact(Fact::TaskFinished { task: *task });
        }
    };
    finish(&mut rig, &[task(0, 1)]);
    assert_eq!(
        triggered(&mut rig),
        [task(0, 0), task(1, 1), task(4, 0)],
        "K-445"
    );
    finish(&mut rig, &[task(1, 1)]);
    assert_eq!(triggered(&mut rig), [task(0, 0), task(4, 0)], "K-446");
    finish(&mut rig, &[task(4, 0)]);
    assert_eq!(
        triggered(&mut rig),
        [task(0, 0)],
        "K-447: the other input still feeds the count"
    );
    finish(&mut rig, &[task(0, 0), task(1, 0)]);
    assert_eq!(triggered(&mut rig), [task(2, 0), task(2, 1)], "K-448");
    finish(&mut rig, &[task(2, 1)]);
    assert_eq!(triggered(&mut rig), [task(2, 0), task(3, 1)]);
}

#[test]
fn k_449_one_failed_task_keeps_checkpoints_from_beginning() {
    let mut rig = Rig::new(defaults());
    rig.fact(Fact::TaskFailed { task: SINK });
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
}

#[test]
fn a_plan_that_contradicts_itself_is_refused() {
    use Connection::{AllToAll, OneToOne};
    let bad = [
        vec![PlanVertex::source(0, 0)],
        vec![PlanVertex::source(0, 1), PlanVertex::source(0, 1)],
        vec![PlanVertex::source(0, 1).fed_by(1, AllToAll)],
        vec![
            PlanVertex::source(0, 1),
            PlanVertex::source(1, 2).fed_by(0, OneToOne),
        ],
    ];
    for vertices in bad {
        assert_eq!(
            Plan::new(vertices).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
}
