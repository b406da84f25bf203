use std::time::Duration;

use state_api::{Error, Result};

use super::Retention;

const SHORTEST: Duration = Duration::from_millis(10);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Says who finds out that all acks of a checkpoint are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// The coordinator counts: it seals when every task of the plan has acked or is finished.
    #[default]
    ByCount,
    /// The engine knows (a progress frontier, say) and sends [`Fact::Seal`](super::Fact::Seal); acks are only collected.
    ByEngine,
}

/// Settings of a [`CheckpointCoordinator`](super::CheckpointCoordinator); the defaults are Flink's.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinatorConfig {
    /// Time between two periodic checkpoints, at least 10 ms; `None` switches them off.
    pub interval: Option<Duration>,
    /// Age at which a pending checkpoint is aborted, at least 10 ms.
    pub timeout: Duration,
    /// Least time between the end of a checkpoint and the next periodic one; at most a year.
    pub min_pause: Duration,
    /// Number of checkpoints that may be pending at the same time, at least 1; savepoints pass over it.
    pub max_concurrent: u32,
    /// Number of consecutive counted failures that the job outlives; [`CoordinatorConfig::UNLIMITED`] for any number.
    pub tolerable_failures: u32,
    /// Number of completed checkpoints kept, at least 1.
    pub retained: u32,
    /// What happens to the retained checkpoints when the job ends.
    pub retention: Retention,
    /// Keeps every retained checkpoint when the job is only suspended, whatever `retention` says.
    pub keep_on_suspend: bool,
    /// Number of requests that may wait, at least 1.
    pub max_queued: usize,
    /// Whether checkpoints go on when some tasks are finished. Those of a job here don't finish one by one: it refuses `false`.
    pub after_tasks_finish: bool,
    /// Whether barriers may overtake records; then savepoints wait for their turn and `max_concurrent` must be 1.
    pub unaligned: bool,
    /// How long the barriers of an unaligned checkpoint stay in line first, from its trigger; zero for not at all.
    pub aligned_timeout: Duration,
    /// Who finds out that all acks are in.
    pub sealing: Sealing,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            interval: None,
            timeout: Duration::from_secs(600),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failures: 0,
            retained: 1,
            retention: Retention::Never,
            keep_on_suspend: false,
            max_queued: 1000,
            after_tasks_finish: true,
            unaligned: false,
            aligned_timeout: Duration::ZERO,
            sealing: Sealing::ByCount,
        }
    }
}

impl CoordinatorConfig {
    /// The value of `tolerable_failures` under which no failed checkpoint ever fails the job.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Checks the settings and resolves those that contradict each other.
    ///
    /// A minimum pause above the interval raises the interval, one above a year is cut to a year, and any minimum
    /// pause brings `max_concurrent` down to 1, because no checkpoint may be pending while the pause runs.
    ///
    /// # Errors
    /// `Config` names the setting that is out of range.
    pub fn normalised(mut self) -> Result<Self> {
        if self.interval.is_some_and(|i| i < SHORTEST) {
            return Err(too_small("execution.checkpointing.interval", "10 ms"));
        }
        if self.timeout < SHORTEST {
            return Err(too_small("execution.checkpointing.timeout", "10 ms"));
        }
        if self.max_concurrent == 0 {
            return Err(too_small(
                "execution.checkpointing.max-concurrent-checkpoints",
                "1",
            ));
        }
        if self.retained == 0 {
            return Err(too_small("execution.checkpointing.num-retained", "1"));
        }
        if self.max_queued == 0 {
            return Err(too_small("the number of queued requests", "1"));
        }
        if self.unaligned && self.max_concurrent > 1 {
            return Err(
                Error::config("unaligned checkpoints need max-concurrent-checkpoints = 1")
                    .with("max-concurrent-checkpoints", self.max_concurrent),
            );
        }
        self.min_pause = self.min_pause.min(YEAR);
        if !self.min_pause.is_zero() {
            self.max_concurrent = 1;
            self.interval = self.interval.map(|i| i.max(self.min_pause));
        }
        Ok(self)
    }
}

fn too_small(option: &'static str, least: &'static str) -> Error {
    Error::config(format!("{option} must be at least {least}")).with("option", option)
}
