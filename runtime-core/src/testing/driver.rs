use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use state_api::{Error, Executor, ManualClock, Result};

use super::StepExecutor;
use crate::channel::Signal;
use crate::execution::{
    ExecutionSettings, Host, Inbox, JobControl, JobOutcome, JobParts, Launch, Master,
};
use crate::job::Job;
use crate::task::{Progress, Subtask};

/// Steps a whole job on one thread, in an order that only a seed decides: subtasks, coordinator and uploads.
///
/// The clock is a [`ManualClock`]: it moves a little while there is work, and to the next deadline when there is none. The same
/// seed gives the same run.
#[derive(Debug)]
pub struct Driver {
    seed: u64,
    random: u64,
    clock: Arc<ManualClock>,
    budget: usize,
    max_steps: u64,
    steps: u64,
    /// Of the next run.
    inbox: Arc<Inbox>,
}

/// A subtask with the signal that wakes it.
struct Stepped {
    subtask: Subtask,
    signal: Arc<Signal>,
    wake_at_ms: Option<i64>,
}

#[derive(Clone, Default)]
struct Subtasks(Rc<RefCell<Vec<Stepped>>>);

impl Host for Subtasks {
    fn start(&mut self, launch: Launch) -> Result<()> {
        let subtask = (launch.make)();
        launch.signal.ring();
        self.0.borrow_mut().push(Stepped {
            subtask,
            signal: launch.signal,
            wake_at_ms: None,
        });
        Ok(())
    }

    fn run_ended(&mut self) {
        self.0.borrow_mut().clear();
    }
}

impl Driver {
    /// Creates a driver whose clock stands at 0; print the seed when a test fails.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::at(0));
        Self {
            seed,
            random: seed,
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

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
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
            clock: self.clock(),
            seed: self.seed,
            ..parts
        };
        let inbox = std::mem::replace(&mut self.inbox, Inbox::new());
        let executor = StepExecutor::new();
        let subtasks = Subtasks::default();
        let mut host = subtasks.clone();
        let for_job: Arc<dyn Executor> = executor.clone();
        let master = Master {
            job,
            settings,
            parts: &parts,
            executor: for_job,
            inbox: Arc::clone(&inbox),
            host: &mut host,
            random: self.seed,
        };
        let mut running = pin!(master.run());
        let waker = inbox.signal().waker();
        inbox.signal().ring();
        let mut idle = 0;
        loop {
            self.steps += 1;
            if self.steps > self.max_steps {
                return Err(self.stuck("the job did not end"));
            }
            let choice = self.next_random();
            if choice & 7 == 0 {
                self.clock.advance(1);
            }
            let count = subtasks.0.borrow().len();
            let chosen = usize::try_from((choice >> 3) % (count as u64 + 2)).unwrap_or(0);
            let worked = if chosen < count {
                self.step_subtask(&subtasks, chosen)
            } else if chosen == count {
                executor.step(self.next_random())
            } else {
                let due = inbox
                    .wake_at_ms()
                    .is_some_and(|at| at <= parts.clock.now_ms());
                let rung = inbox.signal().take();
                if (rung || due)
                    && let Poll::Ready(outcome) =
                        running.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return outcome;
                }
                rung || due
            };
            idle = if worked { 0 } else { idle + 1 };
            // Long enough that everybody was asked, with near certainty; asking once more costs nothing but a step.
            if idle > 20 * (count + 2) {
                idle = 0;
                self.skip_time(&subtasks, &inbox)?;
            }
        }
    }

    fn step_subtask(&self, subtasks: &Subtasks, chosen: usize) -> bool {
        let mut subtasks = subtasks.0.borrow_mut();
        let Some(stepped) = subtasks.get_mut(chosen) else {
            return false;
        };
        let due = stepped
            .wake_at_ms
            .is_some_and(|at| at <= state_api::Clock::now_ms(self.clock.as_ref()));
        if !stepped.signal.take() && !due {
            return false;
        }
        stepped.wake_at_ms = None;
        match stepped.subtask.step(self.budget) {
            Progress::Worked => stepped.signal.ring(),
            Progress::Waiting { wake_at_ms } => stepped.wake_at_ms = wake_at_ms,
            Progress::Done => {}
        }
        true
    }

    /// Moves the clock to the next time that somebody waits for.
    fn skip_time(&self, subtasks: &Subtasks, inbox: &Inbox) -> Result<()> {
        let of_subtasks = subtasks
            .0
            .borrow()
            .iter()
            .filter_map(|stepped| stepped.wake_at_ms)
            .min();
        match [of_subtasks, inbox.wake_at_ms()]
            .into_iter()
            .flatten()
            .min()
        {
            Some(at) => {
                let now_ms = state_api::Clock::now_ms(self.clock.as_ref());
                self.clock.set(at.max(now_ms + 1));
                Ok(())
            }
            None => Err(self.stuck("nothing moves and nobody waits for a time")),
        }
    }

    fn stuck(&self, why: &str) -> Error {
        Error::bug(why)
            .with("seed", self.seed)
            .with("steps", self.steps)
    }
}
