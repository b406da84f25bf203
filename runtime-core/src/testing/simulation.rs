use std::sync::Arc;

use state_api::{BackendFactory, Error, ErrorKind, ManualClock, Result};

use super::{FaultyCheckpoints, SteppedJob, StoreFaults};
use crate::coordinator::SavepointFormat;
use crate::execution::{
    CheckpointStore, ExecutionSettings, Failpoints, JobEvents, JobOutcome, JobParts,
    MemoryCheckpoints, RestoreFrom,
};
use crate::job::Job;
use crate::random::Random;

/// What happens to a job in a [`Simulation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How often its process dies, at most; each successor starts from the latest checkpoint.
    pub deaths: u32,
    /// How many of the processes that died in its place were only frozen, and go on beside their successor, at most.
    pub thaws: u32,
    /// The number of steps after which a process dies, at most.
    pub steps: u64,
    /// Each attempt has a parallelism from 1 to this.
    pub max_parallelism: u32,
    /// In how many of a thousand steps somebody asks for a savepoint.
    pub savepoints: u32,
    /// How the store of the checkpoints fails.
    pub store: StoreFaults,
}

impl Trouble {
    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self {
            deaths: 0,
            thaws: 0,
            steps: 0,
            max_parallelism: 1,
            savepoints: 0,
            store: StoreFaults::default(),
        }
    }

    /// A bit of everything.
    #[must_use]
    pub fn some() -> Self {
        Self {
            deaths: 3,
            thaws: 1,
            steps: 4_000,
            max_parallelism: 3,
            savepoints: 1,
            store: StoreFaults {
                write: 10,
                publish: 50,
                publish_unknown: 50,
                delete: 50,
                slow: 300,
            },
        }
    }
}

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationReport {
    /// How the last attempt ended.
    pub outcome: JobOutcome,
    /// Processes that died or were frozen.
    pub deaths: u32,
    /// Frozen processes that went on beside their successor.
    pub thaws: u32,
    /// Calls of the store that failed by intent.
    pub faults: u64,
    /// Steps of all attempts.
    pub steps: u64,
}

/// Runs a job to its end through deaths, frozen processes, changes of its parallelism and faults of its store.
///
/// Everything happens on one thread with a clock of its own, in an order that only the seed decides: a seed that fails fails
/// again. What the job's sinks hold at the end must be what an untroubled run leaves.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use runtime_core::coordinator::{CoordinatorConfig, Retention};
/// # use runtime_core::sinks::TransactionalCollect;
/// # use runtime_core::sources::Generator;
/// # use runtime_core::testing::{Simulation, Trouble};
/// # use runtime_core::{ExecutionSettings, Job};
/// let mut settings = ExecutionSettings::new("numbers")?;
/// settings.checkpointing.interval = Some(Duration::from_millis(10));
/// settings.checkpointing.tolerable_failures = CoordinatorConfig::UNLIMITED;
/// settings.checkpointing.retention = Retention::Always;
/// let output = TransactionalCollect::new();
/// let report = Simulation::new(7, Arc::new(backend_hashmap::HashMapBackend), settings)
///     .trouble(Trouble::some())
///     .run(|parallelism| {
///         let job = Job::new("numbers").parallelism(parallelism);
///         job.source("source", Generator::new(|n| n).take(500))
///             .sink_exactly_once("out", output.clone());
///         job
///     })?;
/// let mut numbers = output.records();
/// numbers.sort_unstable();
/// assert_eq!(numbers, (0..500).collect::<Vec<u64>>(), "seed 7: {report:?}");
/// # Ok::<(), state_api::Error>(())
/// ```
pub struct Simulation {
    seed: u64,
    random: Random,
    clock: Arc<ManualClock>,
    settings: ExecutionSettings,
    parts: JobParts,
    checkpoints: Checkpoints,
    trouble: Trouble,
    max_steps: u64,
}

/// Makes the store that an attempt sees.
type Checkpoints = Box<dyn Fn() -> Arc<dyn CheckpointStore>>;

impl Simulation {
    /// Creates a simulation without trouble; each attempt restores the latest checkpoint, which lies in memory.
    #[must_use]
    pub fn new(seed: u64, backend: Arc<dyn BackendFactory>, settings: ExecutionSettings) -> Self {
        let clock = Arc::new(ManualClock::at(0));
        let store = MemoryCheckpoints::new();
        Self {
            seed,
            random: Random::new(seed),
            parts: JobParts::new(backend, Arc::clone(&clock) as _),
            clock,
            settings: ExecutionSettings {
                restore: RestoreFrom::Latest,
                ..settings
            },
            checkpoints: Box::new(move || Arc::new(store.clone())),
            trouble: Trouble::none(),
            max_steps: 1_000_000,
        }
    }

    /// Sets what happens.
    #[must_use]
    pub fn trouble(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    /// Sets what makes the store that an attempt sees; all of them must lead to the same checkpoints.
    #[must_use]
    pub fn checkpoints(mut self, store: impl Fn() -> Arc<dyn CheckpointStore> + 'static) -> Self {
        self.checkpoints = Box::new(store);
        self
    }

    /// Sets hooks, such as those that switch a guarantee off to see that a test notices.
    #[must_use]
    pub fn failpoints(mut self, failpoints: Failpoints) -> Self {
        self.parts.failpoints = failpoints;
        self
    }

    /// Sets who learns what happens to the attempts.
    #[must_use]
    pub fn events(mut self, events: Arc<dyn JobEvents>) -> Self {
        self.parts.events = events;
        self
    }

    /// Returns the clock: pass it to what the job uses.
    #[must_use]
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Runs the job, as `job` makes it for a parallelism, until an attempt ends by itself.
    ///
    /// # Errors
    /// Those of an attempt that nothing happened to; `Bug`, naming the seed, when nothing moves any more.
    pub fn run(mut self, job: impl Fn(u32) -> Job) -> Result<SimulationReport> {
        let (mut frozen, mut thawed) = (None, None);
        let (mut deaths, mut thaws, mut steps, mut faults) = (0, 0, 0, 0);
        let seed = self.seed;
        let named = |error: Error| error.with("seed", seed);
        let outcome = loop {
            let (mut attempt, store) = self.start(&job);
            let may_die = deaths < self.trouble.deaths;
            let dies_at = may_die.then(|| self.random.below(self.trouble.steps).max(1));
            let thaws_at = self.random.below(self.trouble.steps);
            let ended = loop {
                if dies_at == Some(attempt.steps()) {
                    break None;
                }
                match (attempt.step(), &mut thawed) {
                    (Ok(None), _) => {}
                    (Ok(Some(outcome)), _) => break Some(outcome),
                    // The thawed process had not taken its attempt number yet: it is the successor now.
                    (Err(error), Some(_)) if error.kind() == ErrorKind::Fenced => {
                        steps += attempt.steps();
                        attempt = thawed.take().unwrap_or(attempt);
                    }
                    (Err(error), _) => return Err(named(error)),
                }
                if self.random.per_mille(self.trouble.savepoints) {
                    // Whoever asked does not wait for the answer.
                    drop(
                        attempt
                            .control()
                            .savepoint(None, SavepointFormat::Canonical),
                    );
                }
                if attempt.steps() == thaws_at && thawed.is_none() {
                    thawed = frozen.take();
                    thaws += u32::from(thawed.is_some());
                }
                if self.random.below(2) == 0 {
                    steps += go_on(&mut thawed, 1).map_err(named)?;
                }
                if steps + attempt.steps() > self.max_steps {
                    let stuck = Error::bug("the job did not end");
                    return Err(named(stuck).with("deaths", deaths));
                }
            };
            steps += attempt.steps();
            faults += store.injected();
            if let Some(outcome) = ended {
                break outcome;
            }
            deaths += 1;
            let alone = frozen.is_none() && thawed.is_none();
            if thaws < self.trouble.thaws && alone && self.random.per_mille(500) {
                frozen = Some(attempt);
            }
        };
        thaws += u32::from(frozen.is_some());
        for mut late in [thawed, frozen] {
            steps += go_on(&mut late, self.max_steps).map_err(named)?;
        }
        Ok(SimulationReport {
            outcome,
            deaths,
            thaws,
            faults,
            steps,
        })
    }

    fn start(&mut self, job: &impl Fn(u32) -> Job) -> (SteppedJob, FaultyCheckpoints) {
        let parallelism = 1 + self.random.below(self.trouble.max_parallelism.into());
        let parallelism = u32::try_from(parallelism).unwrap_or(1);
        let faults = self.trouble.store;
        let store = FaultyCheckpoints::new((self.checkpoints)(), faults, self.random.next());
        let parts = JobParts {
            seed: self.random.next(),
            ..self.parts.clone()
        };
        let parts = parts.checkpoints(Arc::new(store.clone()));
        let budget = usize::try_from(1 + self.random.below(32)).unwrap_or(1);
        let clock = Arc::clone(&self.clock);
        let run = SteppedJob::start(job(parallelism), self.settings.clone(), parts, clock);
        (run.budget(budget), store)
    }
}

/// Lets a process that was frozen go on, until it notices its successor or has made so many steps; returns their number.
fn go_on(thawed: &mut Option<SteppedJob>, steps: u64) -> Result<u64> {
    let mut made = 0;
    while made < steps
        && let Some(process) = thawed
    {
        made += 1;
        match process.step() {
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Bug => return Err(error),
            // Fenced, mostly; what else it stumbles over is its own affair.
            Ok(Some(_)) | Err(_) => *thawed = None,
        }
    }
    Ok(made)
}
