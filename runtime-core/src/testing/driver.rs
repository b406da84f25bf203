use std::sync::Arc;

use state_api::{Error, ErrorKind, ManualClock, Result};

use super::SteppedJob;
use crate::execution::{ExecutionSettings, Inbox, JobControl, JobOutcome, JobParts};
use crate::job::Job;

/// Steps a whole job on one thread, in an order that only a seed decides: subtasks, coordinator and uploads.
///
/// The clock is a [`ManualClock`]: it moves a little while there is work, and to the next deadline when there is none. The same
/// seed gives the same run.
#[derive(Debug)]
pub struct Driver {
    seed: u64,
    clock: Arc<ManualClock>,
    budget: usize,
    max_steps: u64,
    steps: u64,
    /// Of the next run.
    inbox: Arc<Inbox>,
}

impl Driver {
    /// Creates a driver whose clock stands at 0; print the seed when a test fails.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::at(0));
        Self {
            seed,
            clock,
            budget: 16,
            max_steps: 10_000_000,
            steps: 0,
            inbox: Inbox::new(),
        }
    }

    /// Sets the records per step of a subtask; few make many interleavings.
    #[must_use]
    pub fn budget(mut self, records: usize) -> Self {
        self.budget = records.max(1);
        self
    }

    /// Sets the number of steps after which a job that has not ended is given up.
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// Returns the clock: pass it to what the job uses.
    #[must_use]
    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Returns the number of steps made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns what asks things of the job that runs next.
    ///
    /// A listener of the job may ask; answers are there after the run at the latest.
    #[must_use]
    pub fn control(&self) -> JobControl {
        JobControl::new(Arc::clone(&self.inbox))
    }

    /// Runs a job to its end; the clock and the seed of `parts` are replaced by the driver's.
    ///
    /// # Errors
    /// Those of the job; `Bug`, naming the seed, when nothing moves any more.
    pub fn run(
        &mut self,
        job: &Job,
        settings: &ExecutionSettings,
        parts: JobParts,
    ) -> Result<JobOutcome> {
        let parts = JobParts {
            seed: self.seed,
            ..parts
        };
        let inbox = std::mem::replace(&mut self.inbox, Inbox::new());
        let mut run =
            SteppedJob::start_in(inbox, job.clone(), settings.clone(), parts, self.clock())
                .budget(self.budget);
        let start = self.steps;
        loop {
            if start + run.steps() >= self.max_steps {
                return Err(self.stuck(Error::bug("the job did not end")));
            }
            let stepped = run.step();
            self.steps = start + run.steps();
            match stepped {
                Ok(None) => {}
                Ok(Some(outcome)) => return Ok(outcome),
                Err(error) if error.kind() == ErrorKind::Bug => return Err(self.stuck(error)),
                Err(error) => return Err(error),
            }
        }
    }

    fn stuck(&self, error: Error) -> Error {
        error.with("seed", self.seed).with("steps", self.steps)
    }
}
