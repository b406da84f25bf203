//! Restart strategies: whether and when a failed job runs again. Pure decisions; time and chance are passed in.

use std::collections::VecDeque;
use std::time::Duration;

use state_api::{Error, ErrorKind, Result};

/// Which rule decides about restarts, with its settings; the defaults are Flink's.
#[derive(Clone, Debug, PartialEq)]
pub enum RestartStrategy {
    /// Never restarts.
    None,
    /// Restarts a number of times, each after the same delay.
    FixedDelay(FixedDelay),
    /// Restarts as long as failures are rare enough.
    FailureRate(FailureRate),
    /// Restarts after delays that grow while failures follow each other.
    ExponentialDelay(ExponentialDelay),
}

/// Settings of [`RestartStrategy::FixedDelay`].
#[derive(Clone, Debug, PartialEq)]
pub struct FixedDelay {
    /// Number of restarts.
    pub attempts: u32,
    /// Time from failure to restart.
    pub delay: Duration,
}

impl Default for FixedDelay {
    fn default() -> Self {
        Self {
            attempts: 1,
            delay: Duration::from_secs(1),
        }
    }
}

/// Settings of [`RestartStrategy::FailureRate`].
#[derive(Clone, Debug, PartialEq)]
pub struct FailureRate {
    /// Number of failures within an interval that are outlived, at least 1.
    pub max_failures_per_interval: u32,
    /// Length of the interval.
    pub interval: Duration,
    /// Time from failure to restart.
    pub delay: Duration,
}

impl Default for FailureRate {
    fn default() -> Self {
        Self {
            max_failures_per_interval: 1,
            interval: Duration::from_secs(60),
            delay: Duration::from_secs(1),
        }
    }
}

/// Settings of [`RestartStrategy::ExponentialDelay`].
#[derive(Clone, Debug, PartialEq)]
pub struct ExponentialDelay {
    /// First delay, at least 1 ms.
    pub initial_backoff: Duration,
    /// Longest delay.
    pub max_backoff: Duration,
    /// Growth from one delay to the next, above 1.
    pub backoff_multiplier: f64,
    /// Largest random deviation, as a share of the delay, from 0 to 1.
    pub jitter_factor: f64,
    /// Time without failure after which the delay is the first one again, at least 1 ms.
    pub reset_backoff_threshold: Duration,
    /// Number of restarts without such a quiet time before the job is given up; `None` for any number.
    pub attempts_before_reset: Option<u32>,
}

impl Default for ExponentialDelay {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
            backoff_multiplier: 1.5,
            jitter_factor: 0.1,
            reset_backoff_threshold: Duration::from_secs(3600),
            attempts_before_reset: None,
        }
    }
}

impl RestartStrategy {
    /// The names that [`RestartStrategy::by_name`] knows.
    pub const NAMES: [&str; 6] = [
        "none",
        "off",
        "disable",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
    ];

    /// Returns the strategy of a job that names none: exponential delay with checkpoints, none without.
    #[must_use]
    pub fn default_for(checkpointing: bool) -> Self {
        if checkpointing {
            Self::ExponentialDelay(ExponentialDelay::default())
        } else {
            Self::None
        }
    }

    /// Returns a strategy with its default settings by its name in a configuration; case does not matter.
    ///
    /// # Errors
    /// `Config` lists the known names.
    pub fn by_name(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "none" | "off" | "disable" => Ok(Self::None),
            "fixed-delay" => Ok(Self::FixedDelay(FixedDelay::default())),
            "failure-rate" => Ok(Self::FailureRate(FailureRate::default())),
            "exponential-delay" => Ok(Self::ExponentialDelay(ExponentialDelay::default())),
            _ => Err(Error::config(format!(
                "unknown restart strategy {name:?}, known are {}",
                Self::NAMES.join(", ")
            ))
            .with("option", "restart-strategy.type")),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `Config` names the setting that is out of range.
    pub fn validate(&self) -> Result<()> {
        let bad = |option: &'static str, rule: &'static str| {
            Err(
                Error::config(format!("restart-strategy.{option} must be {rule}"))
                    .with("option", option),
            )
        };
        match self {
            Self::None | Self::FixedDelay(_) => Ok(()),
            Self::FailureRate(rate) => {
                if rate.max_failures_per_interval == 0 {
                    return bad("failure-rate.max-failures-per-interval", "at least 1");
                }
                if millis(rate.interval) == 0 {
                    return bad("failure-rate.failure-rate-interval", "at least 1 ms");
                }
                Ok(())
            }
            Self::ExponentialDelay(delay) => {
                if millis(delay.initial_backoff) == 0 {
                    return bad("exponential-delay.initial-backoff", "at least 1 ms");
                }
                if delay.initial_backoff > delay.max_backoff {
                    return bad("exponential-delay.initial-backoff", "at most max-backoff");
                }
                if !(delay.backoff_multiplier > 1.0 && delay.backoff_multiplier.is_finite()) {
                    return bad("exponential-delay.backoff-multiplier", "above 1");
                }
                if !(0.0..=1.0).contains(&delay.jitter_factor) {
                    return bad("exponential-delay.jitter-factor", "between 0 and 1");
                }
                if millis(delay.reset_backoff_threshold) == 0 {
                    return bad("exponential-delay.reset-backoff-threshold", "at least 1 ms");
                }
                if delay.attempts_before_reset == Some(0) {
                    return bad(
                        "exponential-delay.attempts-before-reset-backoff",
                        "at least 1",
                    );
                }
                Ok(())
            }
        }
    }
}

/// The verdict on a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// The job runs again.
    Restart {
        /// Time from now.
        after: Duration,
        /// Whether this failure counts for itself; one that comes while a restart is waiting joins it.
        new_attempt: bool,
    },
    /// The job has failed for good.
    GiveUp {
        /// Why, in one line.
        why: String,
    },
}

/// Applies a [`RestartStrategy`] to the failures of one job.
#[derive(Clone, Debug)]
pub struct Restarts {
    strategy: RestartStrategy,
    /// Restarts so far; for exponential delay, since the last quiet time.
    attempts: u32,
    /// Recent failures, oldest first; at most one more than the rate allows.
    failures: VecDeque<u64>,
    next_restart_ms: Option<u64>,
}

impl Restarts {
    /// Creates the state of a job that has not failed.
    ///
    /// # Errors
    /// `Config` when a setting of the strategy is out of range.
    pub fn new(strategy: RestartStrategy) -> Result<Self> {
        strategy.validate()?;
        Ok(Self {
            strategy,
            attempts: 0,
            failures: VecDeque::new(),
            next_restart_ms: None,
        })
    }

    /// Decides about a failure by its error: what a restart cannot cure gives up at once, the rest is left to
    /// [`Restarts::on_failure`].
    pub fn on_error(&mut self, now_ms: u64, error: &Error, random: u64) -> RestartDecision {
        if is_incurable(error.kind()) {
            return RestartDecision::GiveUp {
                why: format!("a restart does not help: {error}"),
            };
        }
        self.on_failure(now_ms, random)
    }

    /// Decides about a failure at `now_ms`; `random` is uniform and feeds the jitter.
    pub fn on_failure(&mut self, now_ms: u64, random: u64) -> RestartDecision {
        match self.strategy.clone() {
            RestartStrategy::None => give_up("restarts are switched off"),
            RestartStrategy::FixedDelay(fixed) => {
                if self.attempts >= fixed.attempts {
                    return give_up(format!("the job was restarted {} times", self.attempts));
                }
                self.attempts += 1;
                self.restart(now_ms, fixed.delay)
            }
            RestartStrategy::FailureRate(rate) => self.on_failure_at_rate(now_ms, &rate),
            RestartStrategy::ExponentialDelay(delay) => {
                self.on_failure_with_backoff(now_ms, &delay, random)
            }
        }
    }

    fn on_failure_at_rate(&mut self, now_ms: u64, rate: &FailureRate) -> RestartDecision {
        let interval = millis(rate.interval);
        while self
            .failures
            .front()
            .is_some_and(|at| now_ms.saturating_sub(*at) > interval)
        {
            self.failures.pop_front();
        }
        self.failures.push_back(now_ms);
        if self.failures.len() > rate.max_failures_per_interval as usize {
            self.failures.pop_front();
            return give_up(format!(
                "more than {} failures within {} ms",
                rate.max_failures_per_interval, interval
            ));
        }
        self.restart(now_ms, rate.delay)
    }

    fn on_failure_with_backoff(
        &mut self,
        now_ms: u64,
        delay: &ExponentialDelay,
        random: u64,
    ) -> RestartDecision {
        if let Some(next) = self.next_restart_ms {
            if now_ms <= next {
                // The restart is still waiting: failures of one outage are one attempt.
                return RestartDecision::Restart {
                    after: Duration::from_millis(next - now_ms),
                    new_attempt: false,
                };
            }
            if now_ms - next >= millis(delay.reset_backoff_threshold) {
                self.attempts = 0;
            }
        }
        if delay
            .attempts_before_reset
            .is_some_and(|most| self.attempts >= most)
        {
            return give_up(format!(
                "the job was restarted {} times without a quiet time",
                self.attempts
            ));
        }
        let backoff = delay.backoff(self.attempts, random);
        self.attempts = self.attempts.saturating_add(1);
        self.restart(now_ms, backoff)
    }

    fn restart(&mut self, now_ms: u64, after: Duration) -> RestartDecision {
        self.next_restart_ms = Some(now_ms.saturating_add(millis(after)));
        RestartDecision::Restart {
            after,
            new_attempt: true,
        }
    }

    /// Returns how long until the restart that was decided last; `None` before any failure.
    #[must_use]
    pub fn remaining(&self, now_ms: u64) -> Option<Duration> {
        self.next_restart_ms
            .map(|next| Duration::from_millis(next.saturating_sub(now_ms)))
    }
}

impl ExponentialDelay {
    /// Returns the delay after `attempts` earlier restarts: grown from the initial one without rounding in between,
    /// moved by the jitter, and only then brought between the bounds.
    fn backoff(&self, attempts: u32, random: u64) -> Duration {
        // Far above any delay in milliseconds, and every whole number up to it is exact.
        const CEILING: f64 = (1_u64 << 52) as f64;
        let (initial, max) = (millis(self.initial_backoff), millis(self.max_backoff));
        let exponent = i32::try_from(attempts).unwrap_or(i32::MAX);
        let grown = (initial as f64 * self.backoff_multiplier.powi(exponent)).min(CEILING);
        let spread = (grown * self.jitter_factor) as u64;
        let lowest = (grown as u64).saturating_sub(spread);
        let jittered = lowest + random % (2 * spread + 1);
        Duration::from_millis(jittered.clamp(initial, max))
    }
}

fn is_incurable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Config
            | ErrorKind::Corrupt
            | ErrorKind::Incompatible
            | ErrorKind::NotFound
            | ErrorKind::Fenced
            | ErrorKind::Cancelled
            | ErrorKind::Unsupported
    )
}

fn give_up(why: impl Into<String>) -> RestartDecision {
    RestartDecision::GiveUp { why: why.into() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
