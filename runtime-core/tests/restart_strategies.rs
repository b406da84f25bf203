//! Restart strategies (area AH of the catalogue).
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeSet;
use std::time::Duration;

use runtime_core::restart::{
    ExponentialDelay, FailureRate, FixedDelay, RestartDecision, RestartStrategy, Restarts,
};
use state_api::{Error, ErrorKind};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The delay until the restart, `None` when the job is given up.
fn delay(decision: &RestartDecision) -> Option<u64> {
    match decision {
        RestartDecision::Restart { after, .. } => Some(after.as_millis() as u64),
        RestartDecision::GiveUp { .. } => None,
    }
}

fn fixed(attempts: u32) -> Restarts {
    Restarts::new(RestartStrategy::FixedDelay(FixedDelay {
        attempts,
        delay: ms(7),
    }))
    .unwrap()
}

fn exponential(settings: ExponentialDelay) -> Restarts {
    Restarts::new(RestartStrategy::ExponentialDelay(settings)).unwrap()
}

fn backoff(initial: u64, multiplier: f64, max: u64, jitter: f64) -> ExponentialDelay {
    ExponentialDelay {
        initial_backoff: ms(initial),
        max_backoff: ms(max),
        backoff_multiplier: multiplier,
        jitter_factor: jitter,
        ..Default::default()
    }
}

/// Fails `n` times, each time 1 ms after the restart, and returns the delays.
fn delays(restarts: &mut Restarts, n: usize, mut random: impl FnMut() -> u64) -> Vec<u64> {
    let mut now = 1_000;
    let mut delays = Vec::new();
    for _ in 0..n {
        let after = delay(&restarts.on_failure(now, random())).unwrap();
        delays.push(after);
        now += after + 1;
    }
    delays
}

#[test]
fn k_742_fixed_delay_restarts_as_often_as_allowed() {
    let mut restarts = fixed(3);
    let decisions: Vec<Option<u64>> = (0..4)
        .map(|i| delay(&restarts.on_failure(i * 100, 0)))
        .collect();
    assert_eq!(decisions, [Some(7), Some(7), Some(7), None]);
}

/// K-743: a negative number of attempts cannot be said.
#[test]
fn k_743_no_attempts_means_no_restart() {
    assert_eq!(delay(&fixed(0).on_failure(0, 0)), None);
}

#[test]
fn k_744_failure_rate_gives_up_once_the_interval_holds_too_many() {
    let rate = |max_failures_per_interval, interval| {
        let settings = FailureRate {
            max_failures_per_interval,
            interval: ms(interval),
            delay: ms(5),
        };
        Restarts::new(RestartStrategy::FailureRate(settings)).unwrap()
    };
    let mut rare = rate(1, 1);
    for now in [0, 2, 4] {
        assert_eq!(delay(&rare.on_failure(now, 0)), Some(5));
    }
    let mut often = rate(3, 500);
    assert_eq!(
        [0, 100, 200].map(|now| delay(&often.on_failure(now, 0))),
        [Some(5); 3]
    );
    assert_eq!(
        delay(&often.on_failure(500, 0)),
        None,
        "the first is just inside the interval"
    );
    let mut spread = rate(3, 500);
    assert_eq!(
        [0, 100, 200, 501, 601, 701].map(|now| delay(&spread.on_failure(now, 0))),
        [Some(5); 6]
    );
    assert_eq!(delay(&spread.on_failure(702, 0)), None);
}

#[test]
fn k_745_the_delay_grows_unrounded_and_falls_back_after_a_quiet_time() {
    let settings = ExponentialDelay {
        reset_backoff_threshold: ms(80),
        ..backoff(4, 2.3, 300, 0.0)
    };
    let mut restarts = exponential(settings);
    let mut now = 1_000;
    for expected in [4, 9, 21] {
        assert_eq!(delay(&restarts.on_failure(now, 99)), Some(expected));
        now += expected + 1;
    }
    now += 78;
    assert_eq!(
        delay(&restarts.on_failure(now, 99)),
        Some(48),
        "79 ms after the restart it is not quiet yet"
    );
    now += 48 + 80;
    assert_eq!(delay(&restarts.on_failure(now, 99)), Some(4));
}

#[test]
fn k_746_jitter_stays_between_initial_and_maximum() {
    let seen = |settings: &ExponentialDelay, failure: usize| -> BTreeSet<u64> {
        (0..200)
            .map(|random| {
                delays(&mut exponential(settings.clone()), failure, || random)[failure - 1]
            })
            .collect()
    };
    let quarter = backoff(2, 2.0, 7, 0.25);
    assert_eq!(seen(&quarter, 2), BTreeSet::from([3, 4, 5]));
    assert_eq!(seen(&quarter, 3), BTreeSet::from([6, 7]));
    assert_eq!(seen(&quarter, 4), BTreeSet::from([7]));
    let whole = backoff(1, 2.0, 7, 1.0);
    assert_eq!(seen(&whole, 1), BTreeSet::from([1, 2]));
    assert_eq!(seen(&whole, 2), BTreeSet::from([1, 2, 3, 4]));
    assert_eq!(seen(&whole, 3), BTreeSet::from([1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn k_747_failures_while_a_restart_waits_are_the_same_attempt() {
    let mut restarts = exponential(ExponentialDelay {
        attempts_before_reset: Some(2),
        ..backoff(100, 2.0, 1_000, 0.0)
    });
    assert_eq!(
        restarts.on_failure(0, 0),
        RestartDecision::Restart {
            after: ms(100),
            new_attempt: true
        }
    );
    for now in [0, 40, 100] {
        let joined = RestartDecision::Restart {
            after: ms(100 - now),
            new_attempt: false,
        };
        assert_eq!(restarts.on_failure(now, 0), joined);
    }
    assert_eq!(
        restarts.on_failure(101, 0),
        RestartDecision::Restart {
            after: ms(200),
            new_attempt: true
        }
    );
    assert_eq!(delay(&restarts.on_failure(302, 0)), None);
}

#[test]
fn k_748_too_many_attempts_without_a_quiet_time_give_up() {
    let settings = ExponentialDelay {
        attempts_before_reset: Some(3),
        reset_backoff_threshold: ms(1_000),
        ..backoff(1, 2.0, 100, 0.0)
    };
    let mut restarts = exponential(settings.clone());
    assert_eq!(delays(&mut restarts, 3, || 0), [1, 2, 4]);
    let RestartDecision::GiveUp { why } = restarts.on_failure(1_500, 0) else {
        panic!()
    };
    assert_eq!(why, "the job was restarted 3 times without a quiet time");
    let mut restarts = exponential(settings);
    delays(&mut restarts, 3, || 0);
    assert_eq!(
        delay(&restarts.on_failure(5_000, 0)),
        Some(1),
        "the count starts anew with the delay"
    );
}

#[test]
fn k_749_before_any_failure_there_is_no_delay() {
    let mut restarts = fixed(1);
    assert_eq!(restarts.remaining(0), None);
    restarts.on_failure(10, 0);
    assert_eq!(
        [restarts.remaining(12), restarts.remaining(50)],
        [Some(ms(5)), Some(ms(0))]
    );
}

#[test]
fn k_750_settings_out_of_range_are_refused() {
    let bad = [
        backoff(1, 1.0, 10, 0.0),
        backoff(1, f64::NAN, 10, 0.0),
        backoff(1, f64::INFINITY, 10, 0.0),
        backoff(1, 2.0, 10, 1.1),
        backoff(1, 2.0, 10, -0.1),
        backoff(1, 2.0, 10, f64::NAN),
        backoff(11, 2.0, 10, 0.0),
        backoff(0, 2.0, 10, 0.0),
        ExponentialDelay {
            reset_backoff_threshold: ms(0),
            ..Default::default()
        },
        ExponentialDelay {
            attempts_before_reset: Some(0),
            ..Default::default()
        },
    ];
    for settings in bad {
        let error = Restarts::new(RestartStrategy::ExponentialDelay(settings.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{settings:?}");
    }
    for settings in [
        FailureRate {
            max_failures_per_interval: 0,
            ..Default::default()
        },
        FailureRate {
            interval: ms(0),
            ..Default::default()
        },
    ] {
        assert_eq!(
            Restarts::new(RestartStrategy::FailureRate(settings))
                .unwrap_err()
                .kind(),
            ErrorKind::Config
        );
    }
}

#[test]
fn k_751_strategies_are_found_by_name_and_an_unknown_one_lists_them() {
    for name in ["none", "off", "disable", "NONE"] {
        let strategy = RestartStrategy::by_name(name).unwrap();
        assert_eq!(strategy, RestartStrategy::None);
        assert_eq!(
            delay(&Restarts::new(strategy).unwrap().on_failure(0, 0)),
            None
        );
    }
    for name in RestartStrategy::NAMES {
        RestartStrategy::by_name(name).unwrap();
    }
    let error = RestartStrategy::by_name("sometimes").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error
            .message()
            .contains("fixed-delay, failure-rate, exponential-delay")
    );
}

#[test]
fn a_job_with_checkpoints_restarts_by_default_and_one_without_does_not() {
    assert_eq!(RestartStrategy::default_for(false), RestartStrategy::None);
    let RestartStrategy::ExponentialDelay(settings) = RestartStrategy::default_for(true) else {
        panic!()
    };
    assert_eq!(
        (settings.initial_backoff, settings.max_backoff),
        (ms(1_000), ms(60_000))
    );
    assert_eq!(
        (settings.backoff_multiplier, settings.jitter_factor),
        (1.5, 0.1)
    );
    assert_eq!(
        (
            settings.reset_backoff_threshold,
            settings.attempts_before_reset
        ),
        (ms(3_600_000), None)
    );
}

#[test]
fn what_a_restart_cannot_cure_is_given_up_at_once() {
    let mut restarts = fixed(5);
    let incurable = [
        ErrorKind::Config,
        ErrorKind::Corrupt,
        ErrorKind::Incompatible,
        ErrorKind::NotFound,
        ErrorKind::Fenced,
        ErrorKind::Unsupported,
    ];
    for kind in incurable {
        assert_eq!(
            delay(&restarts.on_error(0, &Error::new(kind, "no"), 0)),
            None,
            "{kind:?}"
        );
    }
    for kind in [
        ErrorKind::Retryable,
        ErrorKind::User,
        ErrorKind::LimitExceeded,
        ErrorKind::Poisoned,
        ErrorKind::Bug,
    ] {
        assert_eq!(
            delay(&restarts.on_error(0, &Error::new(kind, "no"), 0)),
            Some(7),
            "{kind:?}"
        );
    }
}

#[test]
fn the_delay_stays_in_bounds_after_thousands_of_failures_with_any_chance() {
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state
    };
    let mut restarts = exponential(backoff(3, 1.7, 5_000, 1.0));
    for after in delays(&mut restarts, 5_000, &mut random) {
        assert!((3..=5_000).contains(&after));
    }
}
