use std::time::Duration;

use state_api::{Error, Result};

use super::{Configuration, options};
use crate::restart::{ExponentialDelay, FailureRate, FixedDelay, RestartStrategy};

/// Reads the restart strategy of a configuration; without `restart-strategy.type` a job with periodic checkpoints
/// restarts after an exponential delay and one without never does.
///
/// # Errors
/// `Config` when settings contradict each other, such as a first wait that is longer than the longest.
pub fn restart_strategy(configuration: &Configuration) -> Result<RestartStrategy> {
    let span = |option| configuration.duration(option).unwrap_or(Duration::ZERO);
    let strategy = match configuration.choice(&options::RESTART) {
        None => {
            let checkpointing = configuration.duration(&options::INTERVAL).is_some();
            let implied = RestartStrategy::default_for(checkpointing);
            if !matches!(implied, RestartStrategy::ExponentialDelay(_)) {
                return Ok(implied);
            }
            exponential(configuration)
        }
        Some("fixed-delay") => RestartStrategy::FixedDelay(FixedDelay {
            // `infinite` is the largest number that there is.
            attempts: configuration
                .count(&options::FIXED_ATTEMPTS)
                .unwrap_or(u32::MAX),
            delay: span(&options::FIXED_DELAY),
        }),
        Some("failure-rate") => RestartStrategy::FailureRate(FailureRate {
            max_failures_per_interval: configuration
                .count(&options::RATE_MAX_FAILURES)
                .unwrap_or(1),
            interval: span(&options::RATE_INTERVAL),
            delay: span(&options::RATE_DELAY),
        }),
        Some("exponential-delay") => exponential(configuration),
        Some(_) => return Ok(RestartStrategy::None),
    };
    strategy.validate().map_err(|e| locate(configuration, e))?;
    Ok(strategy)
}

fn exponential(configuration: &Configuration) -> RestartStrategy {
    let span = |option| configuration.duration(option).unwrap_or(Duration::ZERO);
    RestartStrategy::ExponentialDelay(ExponentialDelay {
        initial_backoff: span(&options::EXP_INITIAL),
        max_backoff: span(&options::EXP_MAX),
        backoff_multiplier: configuration.fraction(&options::EXP_MULTIPLIER),
        jitter_factor: configuration.fraction(&options::EXP_JITTER),
        reset_backoff_threshold: span(&options::EXP_RESET),
        attempts_before_reset: configuration.count(&options::EXP_ATTEMPTS),
    })
}

/// Adds the place where the setting at fault was made: the only contradiction left is between two waits.
fn locate(configuration: &Configuration, error: Error) -> Error {
    let set = |option: &&super::ConfigOption| configuration.origin(option.key).is_some();
    match [&options::EXP_INITIAL, &options::EXP_MAX]
        .into_iter()
        .find(set)
    {
        Some(option) => configuration.located(error, option),
        None => error,
    }
}
