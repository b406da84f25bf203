use std::sync::Arc;

use futures_util::FutureExt;
use state_api::{BackendFactory, Error, ErrorKind, ManualClock, Result};

use super::any_settings::{any_settings, outliving};
use super::failing_operators::{FailingHead, OperatorFailures};
use super::{FaultyCheckpoints, SteppedJob, Trouble};
use crate::coordinator::{JobStatus, SavepointFormat};
use crate::execution::{
    CheckpointDone, CheckpointStore, ExecutionSettings, Failpoints, JobEvents, JobOutcome,
    JobParts, MemoryCheckpoints, Reply, RestoreFrom,
};
use crate::job::Job;
use crate::random::Random;

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationReport {
    /// How the last attempt ended.
    pub outcome: JobOutcome,
    /// Processes that died or were frozen.
    pub deaths: u32,
    /// Frozen processes that went on beside their successor.
    pub thaws: u32,
    /// Attempts that were cancelled.
    pub cancels: u32,
    /// Attempts that were stopped with a savepoint or with a last checkpoint.
    pub stops: u32,
    /// How often somebody asked for a stop that drains, whatever came of it.
    pub drains: u32,
    /// Failures of operators, sources and sinks.
    pub failures: u32,
    /// Attempts that failed, since the restart strategy gave up or nothing could be read at their start.
    pub failed: u32,
    /// Calls of the store that failed by intent.
    pub faults: u64,
    /// Steps of all attempts.
    pub steps: u64,
}

/// Runs a job to its end through deaths, frozen processes, cancels, stops, failures of its operators, changes of its parallelism and
/// of its settings, and faults of its store.
///
/// Everything happens on one thread with a clock of its own, in an order that only the seed decides: a seed that fails fails
/// again. What the job's sinks hold at the end must be what an untroubled run leaves.
///
/// Checkpoints outlive each attempt, whatever the retention of the settings says: the next one goes on from them, also if the last
/// died when it had finished and not said so.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use runtime_core::coordinator::CoordinatorConfig;
/// # use runtime_core::sinks::TransactionalCollect;
/// # use runtime_core::sources::Generator;
/// # use runtime_core::testing::{Simulation, Trouble};
/// # use runtime_core::{ExecutionSettings, Job};
/// let mut settings = ExecutionSettings::new("numbers")?;
/// settings.checkpointing.interval = Some(Duration::from_millis(10));
/// settings.checkpointing.tolerable_failures = CoordinatorConfig::UNLIMITED;
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
    /// What is left of it.
    left: Trouble,
    operators: Arc<OperatorFailures>,
    /// What the next attempt starts from.
    from: RestoreFrom,
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
            settings: outliving(settings),
            checkpoints: Box::new(move || Arc::new(store.clone())),
            trouble: Trouble::none(),
            left: Trouble::none(),
            operators: OperatorFailures::new(0, 0),
            from: RestoreFrom::Latest,
            max_steps: 2_000_000,
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
    /// Those of an attempt that no trouble explains; `Bug`, naming the seed, when nothing moves any more.
    pub fn run(mut self, job: impl Fn(u32) -> Job) -> Result<SimulationReport> {
        let seed = self.seed;
        self.left = self.trouble;
        self.operators = OperatorFailures::new(self.trouble.failures, self.random.next());
        self.run_all(&job).map_err(|error| error.with("seed", seed))
    }

    fn run_all(&mut self, job: &impl Fn(u32) -> Job) -> Result<SimulationReport> {
        let mut report = SimulationReport::default();
        let mut others = Others::default();
        loop {
            let mut attempt = self.start(job);
            let ended = self.step_to_end(&mut attempt, &mut others, &mut report)?;
            report.steps += attempt.process.steps();
            report.faults += attempt.store.injected();
            match ended {
                Ended::Died => {
                    report.deaths += 1;
                    self.from = RestoreFrom::Latest;
                    // One that has not taken its number yet would be a successor, not a rival.
                    let may_freeze = self.left.thaws > 0 && attempt.store.has_started();
                    if may_freeze && others.are_gone() && self.random.per_mille(500) {
                        self.left.thaws -= 1;
                        others.frozen = Some(attempt.process);
                    }
                }
                Ended::ByItself(outcome) => match after(&outcome, attempt.answer()) {
                    Some(from) => {
                        match outcome.status {
                            JobStatus::Cancelled => report.cancels += 1,
                            _ => report.stops += 1,
                        }
                        self.from = from;
                    }
                    None => {
                        report.outcome = outcome;
                        break;
                    }
                },
                Ended::Failed(error) => {
                    self.from = self.after_failure(error, &attempt)?;
                    report.failed += 1;
                }
            }
        }
        report.thaws += u32::from(others.frozen.is_some());
        for mut late in [others.thawed, others.frozen] {
            report.steps += go_on(&mut late, self.max_steps)?;
        }
        report.failures = self.operators.count();
        Ok(report)
    }

    /// Steps an attempt, and a thawed process beside it, until something has ended it.
    fn step_to_end(
        &mut self,
        attempt: &mut Attempt,
        others: &mut Others,
        report: &mut SimulationReport,
    ) -> Result<Ended> {
        let thaws_at = self.random.below(self.trouble.steps);
        loop {
            let steps = attempt.process.steps();
            if attempt.fate.is_some_and(|(_, at)| at == steps) {
                match self.meet_fate(attempt, report) {
                    Some(ended) => return Ok(ended),
                    None => attempt.fate = self.later_death(steps),
                }
            }
            match attempt.process.step() {
                Ok(None) => {}
                Ok(Some(outcome)) => return Ok(Ended::ByItself(outcome)),
                Err(error) => return Ok(Ended::Failed(error)),
            }
            if self.random.per_mille(self.trouble.savepoints) {
                let format = self.format();
                // Whoever asked does not wait for the answer.
                drop(attempt.process.control().savepoint(None, format));
            }
            if attempt.process.steps() == thaws_at && others.thawed.is_none() {
                others.thawed = others.frozen.take();
                report.thaws += u32::from(others.thawed.is_some());
            }
            if self.random.below(2) == 0 {
                report.steps += go_on(&mut others.thawed, 1)?;
            }
            if report.steps + attempt.process.steps() > self.max_steps {
                let stuck = Error::bug("the job did not end");
                return Err(stuck.with("deaths", report.deaths));
            }
        }
    }

    fn start(&mut self, job: &impl Fn(u32) -> Job) -> Attempt {
        let parallelism = 1 + self.random.below(self.trouble.max_parallelism.into());
        let parallelism = u32::try_from(parallelism).unwrap_or(1);
        let faults = self.trouble.store;
        let store = FaultyCheckpoints::new((self.checkpoints)(), faults, self.random.next());
        let mut parts = JobParts {
            seed: self.random.next(),
            ..self.parts.clone()
        };
        if self.trouble.failures > 0 {
            let operators = Arc::clone(&self.operators);
            let failing = move |chain| FailingHead::around(chain, &operators);
            parts.failpoints = parts.failpoints.around_chains(failing);
        }
        let parts = parts.checkpoints(Arc::new(store.clone()));
        let mut settings = self.settings.clone();
        if self.trouble.settings {
            settings = any_settings(settings, &mut self.random);
        }
        settings.restore = self.from.clone();
        let budget = usize::try_from(1 + self.random.below(32)).unwrap_or(1);
        let clock = Arc::clone(&self.clock);
        let process = SteppedJob::start(job(parallelism), settings, parts, clock);
        Attempt {
            process: process.budget(budget),
            store,
            failures_before: self.operators.count(),
            fate: self.fate(),
            answer: None,
        }
    }

    /// Chooses how an attempt ends if it does not come to its end before.
    fn fate(&mut self) -> Option<(Fate, u64)> {
        let Trouble {
            deaths,
            cancels,
            stops,
            ..
        } = self.left;
        let all = u64::from(deaths) + u64::from(cancels) + u64::from(stops);
        if all == 0 {
            return None;
        }
        let chosen = self.random.below(all);
        let at = self.random.below(self.trouble.steps).max(1);
        let fate = if chosen < u64::from(deaths) {
            Fate::Dies
        } else if chosen < u64::from(deaths) + u64::from(cancels) {
            Fate::IsCancelled
        } else if self.random.per_mille(700) {
            Fate::IsStoppedWithSavepoint
        } else {
            Fate::IsStoppedWithCheckpoint
        };
        Some((fate, at))
    }

    /// One that is asked to end may die before it has.
    fn later_death(&mut self, steps: u64) -> Option<(Fate, u64)> {
        let dies = self.left.deaths > 0 && self.random.per_mille(300);
        dies.then(|| (Fate::Dies, steps + 1 + self.random.below(600)))
    }

    /// Returns how the attempt ended, if it did at once.
    fn meet_fate(&mut self, attempt: &mut Attempt, report: &mut SimulationReport) -> Option<Ended> {
        let (fate, _) = attempt.fate.take()?;
        let control = attempt.process.control();
        match fate {
            Fate::Dies => {
                self.left.deaths -= 1;
                return Some(Ended::Died);
            }
            Fate::IsCancelled => {
                self.left.cancels -= 1;
                control.cancel();
            }
            Fate::IsStoppedWithSavepoint => {
                self.left.stops -= 1;
                let format = self.format();
                // No choice is made where there is none, so that seeds stay what they were.
                let drains = self.trouble.drains;
                let drain = drains > 0 && self.random.per_mille(drains);
                report.drains += u32::from(drain);
                attempt.answer = Some(control.stop_with_savepoint(drain, None, format));
            }
            Fate::IsStoppedWithCheckpoint => {
                self.left.stops -= 1;
                attempt.answer = Some(control.stop_with_checkpoint());
            }
        }
        None
    }

    fn format(&mut self) -> SavepointFormat {
        match self.random.per_mille(500) {
            true => SavepointFormat::Canonical,
            false => SavepointFormat::Native,
        }
    }

    /// Returns what the successor of a failed attempt starts from, as those do who look after a job.
    ///
    /// # Errors
    /// The failure, if no trouble explains it.
    fn after_failure(&self, error: Error, attempt: &Attempt) -> Result<RestoreFrom> {
        match error.kind() {
            // The newest checkpoint is not where the job was left: the error says what is.
            ErrorKind::Config => {
                let from = error.context("savepoint");
                let from = from.map(|path| RestoreFrom::Path(path.to_owned()));
                match from {
                    Some(from) if from != self.from => Ok(from),
                    _ => Err(error),
                }
            }
            ErrorKind::Retryable | ErrorKind::User => {
                let failed = self.operators.count() > attempt.failures_before;
                // With settings of the seed, what is slow may be too slow.
                if failed || attempt.store.injected() > 0 || self.trouble.settings {
                    Ok(RestoreFrom::Latest)
                } else {
                    Err(error)
                }
            }
            _ => Err(error),
        }
    }
}

impl Default for SimulationReport {
    fn default() -> Self {
        Self {
            outcome: JobOutcome {
                status: JobStatus::Failed,
                restarts: 0,
                checkpoints: 0,
                aborted: 0,
            },
            deaths: 0,
            thaws: 0,
            cancels: 0,
            stops: 0,
            drains: 0,
            failures: 0,
            failed: 0,
            faults: 0,
            steps: 0,
        }
    }
}

/// What somebody or something does to an attempt.
#[derive(Clone, Copy)]
enum Fate {
    Dies,
    IsCancelled,
    IsStoppedWithSavepoint,
    IsStoppedWithCheckpoint,
}

/// How an attempt ended.
enum Ended {
    Died,
    ByItself(JobOutcome),
    Failed(Error),
}

/// A process with the job, from its start on.
struct Attempt {
    process: SteppedJob,
    store: FaultyCheckpoints,
    /// Failures of operators before it.
    failures_before: u32,
    /// What happens to it, at which step.
    fate: Option<(Fate, u64)>,
    /// What those are told who asked it to stop.
    answer: Option<Reply<CheckpointDone>>,
}

impl Attempt {
    /// Returns what it was stopped with, once it has ended.
    fn answer(self) -> Option<CheckpointDone> {
        self.answer?.now_or_never()?.ok()
    }
}

/// Processes that their successors take for dead.
#[derive(Default)]
struct Others {
    frozen: Option<SteppedJob>,
    thawed: Option<SteppedJob>,
}

impl Others {
    fn are_gone(&self) -> bool {
        self.frozen.is_none() && self.thawed.is_none()
    }
}

/// Returns what the next attempt starts from; `None` if the job has come to its end.
fn after(outcome: &JobOutcome, stopped_with: Option<CheckpointDone>) -> Option<RestoreFrom> {
    match outcome.status {
        JobStatus::Cancelled | JobStatus::Suspended => Some(RestoreFrom::Latest),
        JobStatus::Finished | JobStatus::Failed => stopped_with?.path.map(RestoreFrom::Path),
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
