use std::time::Duration;

use state_api::{CheckpointId, Error, Result};

use super::{Configuration, StorageSettings, options};
use crate::coordinator::{CoordinatorConfig, Retention};

/// What barriers guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointMode {
    /// Barriers are aligned: each record is in the state once.
    #[default]
    ExactlyOnce,
    /// Barriers are counted: after a restore a record may be in the state twice.
    AtLeastOnce,
}

/// When checkpoints are taken, how, where they go and how long they stay; the defaults are Flink's.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointSettings {
    /// Time between two periodic checkpoints; `None` switches them off.
    pub interval: Option<Duration>,
    /// What barriers guarantee.
    pub mode: CheckpointMode,
    /// Age at which a pending checkpoint is aborted.
    pub timeout: Duration,
    /// Least time from the end of a checkpoint to the next periodic one.
    pub min_pause: Duration,
    /// Number of checkpoints that may be pending at a time.
    pub max_concurrent: u32,
    /// Consecutive counted failures that the job outlives.
    pub tolerable_failures: u32,
    /// Number of completed checkpoints that are kept.
    pub retained: u32,
    /// What happens to them when the job ends.
    pub retention: Retention,
    /// Whether checkpoints go on when some tasks have finished.
    pub after_tasks_finish: bool,
    /// Whether backends that can write only what changed.
    pub incremental: bool,
    /// Whether barriers overtake records in flight, which become part of the checkpoint.
    pub unaligned: bool,
    /// How long they stay in line first.
    pub aligned_timeout: Duration,
    /// The checkpoint that is restored without its records in flight.
    pub without_in_flight: Option<CheckpointId>,
    /// Number of ended checkpoints whose statistics are kept.
    pub history: u32,
    /// Where checkpoints go.
    pub storage: StorageSettings,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        Self {
            interval: None,
            mode: CheckpointMode::ExactlyOnce,
            timeout: Duration::from_secs(600),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failures: 0,
            retained: 1,
            retention: Retention::Never,
            after_tasks_finish: true,
            incremental: false,
            unaligned: false,
            aligned_timeout: Duration::ZERO,
            without_in_flight: None,
            history: 10,
            storage: StorageSettings::default(),
        }
    }
}

impl CheckpointSettings {
    /// Reads the settings of a configuration.
    ///
    /// # Errors
    /// `Config` when nothing says where checkpoints go, and for unaligned checkpoints that are not exactly once.
    pub fn from_configuration(configuration: &Configuration) -> Result<Self> {
        let default = Self::default();
        let mode = match configuration.choice(&options::MODE) {
            Some("AT_LEAST_ONCE") => CheckpointMode::AtLeastOnce,
            _ => CheckpointMode::ExactlyOnce,
        };
        let retention = match configuration.choice(&options::RETENTION) {
            Some("DELETE_ON_CANCELLATION") => Retention::DeleteOnCancellation,
            Some("RETAIN_ON_CANCELLATION") => Retention::RetainOnCancellation,
            Some("ALWAYS") => Retention::Always,
            _ => Retention::Never,
        };
        let unaligned = configuration.bool(&options::UNALIGNED);
        if unaligned && mode == CheckpointMode::AtLeastOnce {
            return Err(Error::config(format!(
                "{} needs {} = EXACTLY_ONCE",
                options::UNALIGNED.key,
                options::MODE.key
            )));
        }
        let without_in_flight = configuration
            .number(&options::WITHOUT_IN_FLIGHT)
            .and_then(|id| u64::try_from(id).ok());
        Ok(Self {
            interval: configuration.duration(&options::INTERVAL),
            mode,
            timeout: configuration
                .duration(&options::TIMEOUT)
                .unwrap_or(default.timeout),
            min_pause: configuration
                .duration(&options::MIN_PAUSE)
                .unwrap_or(default.min_pause),
            max_concurrent: configuration
                .count(&options::MAX_CONCURRENT)
                .unwrap_or(default.max_concurrent),
            tolerable_failures: configuration
                .count(&options::TOLERABLE_FAILURES)
                .unwrap_or(default.tolerable_failures),
            retained: configuration
                .count(&options::NUM_RETAINED)
                .unwrap_or(default.retained),
            retention,
            after_tasks_finish: configuration.bool(&options::AFTER_TASKS_FINISH),
            incremental: configuration.bool(&options::INCREMENTAL),
            unaligned,
            aligned_timeout: configuration
                .duration(&options::ALIGNED_TIMEOUT)
                .unwrap_or(default.aligned_timeout),
            without_in_flight: without_in_flight.map(CheckpointId),
            history: configuration
                .count(&options::CHECKPOINT_HISTORY)
                .unwrap_or(default.history),
            storage: StorageSettings::from_configuration(configuration)?,
        })
    }

    /// Returns what the coordinator needs to know.
    #[must_use]
    pub fn coordinator(&self) -> CoordinatorConfig {
        CoordinatorConfig {
            interval: self.interval,
            timeout: self.timeout,
            min_pause: self.min_pause,
            max_concurrent: self.max_concurrent,
            tolerable_failures: self.tolerable_failures,
            retained: self.retained,
            retention: self.retention,
            after_tasks_finish: self.after_tasks_finish,
            unaligned: self.unaligned,
            aligned_timeout: self.aligned_timeout,
            ..CoordinatorConfig::default()
        }
    }
}
