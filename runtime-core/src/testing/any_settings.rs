use std::time::Duration;

use crate::config::{CheckpointMode, ClaimMode};
use crate::coordinator::{CoordinatorConfig, Retention};
use crate::execution::ExecutionSettings;
use crate::random::Random;
use crate::restart::{ExponentialDelay, FailureRate, FixedDelay, RestartStrategy};

/// Keeps checkpoints for the successor of an attempt, however that ends: one that dies when it has finished and deleted its last
/// checkpoint would be followed by one that begins anew.
pub(super) fn outliving(mut settings: ExecutionSettings) -> ExecutionSettings {
    settings.checkpointing.retention = Retention::Always;
    settings
}

/// Chooses how checkpoints are taken, and what follows a failure; the interval stays, and whether each record counts once.
pub(super) fn any_settings(settings: ExecutionSettings, random: &mut Random) -> ExecutionSettings {
    let mut below = |bound: u64| random.below(bound);
    let tolerable_failures = [0, 1, 3, CoordinatorConfig::UNLIMITED][below(4) as usize];
    let mut timeout = settings.checkpointing.timeout;
    // A job that fails for each checkpoint that takes too long may never get on.
    if tolerable_failures == CoordinatorConfig::UNLIMITED && below(2) == 0 {
        timeout = (timeout / 8).max(millis(10));
    }
    let mut checkpointing = CoordinatorConfig {
        min_pause: millis([0, 0, 1 + below(30)][below(3) as usize]),
        timeout,
        tolerable_failures,
        retained: 1 + below(3) as u32,
        ..settings.checkpointing
    };
    // Barriers that overtake are refused where they need not be aligned, and with several checkpoints at a time.
    let overtake = settings.mode == CheckpointMode::ExactlyOnce && below(3) > 0;
    checkpointing.unaligned = overtake;
    checkpointing.aligned_timeout = millis([0, 1 + below(20)][below(2) as usize]);
    checkpointing.max_concurrent = if overtake { 1 } else { 1 + below(3) as u32 };
    let restart = match below(5) {
        0 => RestartStrategy::None,
        1 => RestartStrategy::FixedDelay(FixedDelay {
            attempts: 1 + below(3) as u32,
            delay: millis(below(20)),
        }),
        2 => RestartStrategy::FailureRate(FailureRate {
            max_failures_per_interval: 1 + below(3) as u32,
            interval: millis(1 + below(300)),
            delay: millis(below(20)),
        }),
        3 => RestartStrategy::ExponentialDelay(ExponentialDelay {
            initial_backoff: millis(1),
            max_backoff: millis(1 + below(50)),
            attempts_before_reset: Some(5),
            ..ExponentialDelay::default()
        }),
        _ => settings.restart,
    };
    ExecutionSettings {
        checkpointing,
        restart,
        claim: [ClaimMode::NoClaim, ClaimMode::Claim][below(2) as usize],
        ..settings
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restart::Restarts;

    #[test]
    fn every_choice_is_valid_and_each_sort_of_barriers_and_of_restarts_is_chosen() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let given = ExecutionSettings::new("job").unwrap();
            let chosen = any_settings(outliving(given), &mut Random::new(seed));
            Restarts::new(chosen.restart.clone()).unwrap();
            let checkpointing = chosen.checkpointing;
            assert_eq!(checkpointing.retention, Retention::Always, "seed {seed}");
            let checkpointing = checkpointing.normalised().unwrap();
            let barriers = match (checkpointing.unaligned, checkpointing.aligned_timeout) {
                (false, _) => "aligned",
                (true, Duration::ZERO) => "unaligned",
                (true, _) => "unaligned after a while",
            };
            let strategy = format!("{:?}", chosen.restart);
            seen.insert(strategy.split(['(', ' ']).next().unwrap().to_owned());
            seen.insert(barriers.to_owned());
            seen.insert(format!("{} at a time", checkpointing.max_concurrent));
            seen.insert(format!("{} tolerated", checkpointing.tolerable_failures));
            if !checkpointing.min_pause.is_zero() {
                seen.insert("pause".to_owned());
            }
        }
        let expected = [
            "0 tolerated",
            "1 at a time",
            "1 tolerated",
            "2 at a time",
            "3 at a time",
            "3 tolerated",
            "4294967295 tolerated",
            "ExponentialDelay",
            "FailureRate",
            "FixedDelay",
            "None",
            "aligned",
            "pause",
            "unaligned",
            "unaligned after a while",
        ];
        assert!(seen.iter().eq(expected.iter()), "{seen:?}");
    }

    #[test]
    fn at_least_once_stays_as_it_is() {
        for seed in 0..50 {
            let given = ExecutionSettings {
                mode: CheckpointMode::AtLeastOnce,
                ..ExecutionSettings::new("job").unwrap()
            };
            let chosen = any_settings(given, &mut Random::new(seed));
            assert_eq!(chosen.mode, CheckpointMode::AtLeastOnce);
            assert!(!chosen.checkpointing.unaligned, "seed {seed}");
        }
    }
}
