//! When periodic checkpoints begin: interval, minimum pause, and when there are none.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, CoordinatorConfig, Fact, FailureReason, Remark,
};
use state_api::ErrorKind;

use CheckpointKind::{Checkpoint, Final, Savepoint, StopWithSavepoint};

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
    let mut rng = Rng::new(7);
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
