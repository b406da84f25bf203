use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use state_api::{Clock, Error, Executor, ManualClock, Result};

use super::StepExecutor;
use crate::channel::Signal;
use crate::execution::{
    ExecutionSettings, Host, Inbox, JobControl, JobOutcome, JobParts, Launch, Master,
};
use crate::job::Job;
use crate::random::Random;
use crate::task::{Progress, Subtask};

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

/// One attempt of a job, stepped on one thread in an order that only a seed decides.
///
/// Dropping it is the sudden death of its process: nothing is said to anybody. Not stepping it is a process that is frozen.
pub struct SteppedJob {
    random: Random,
    clock: Arc<ManualClock>,
    budget: usize,
    inbox: Arc<Inbox>,
    executor: Arc<StepExecutor>,
    subtasks: Subtasks,
    running: Pin<Box<dyn Future<Output = Result<JobOutcome>>>>,
    /// Steps in which nothing happened, since something did.
    idle: usize,
    steps: u64,
}

impl SteppedJob {
    /// Starts an attempt; the clock of `parts` is replaced by `clock`, and all choices follow from its seed.
    #[must_use]
    pub fn start(
        job: Job,
        settings: ExecutionSettings,
        parts: JobParts,
        clock: Arc<ManualClock>,
    ) -> Self {
        Self::start_in(Inbox::new(), job, settings, parts, clock)
    }

    pub(super) fn start_in(
        inbox: Arc<Inbox>,
        job: Job,
        settings: ExecutionSettings,
        parts: JobParts,
        clock: Arc<ManualClock>,
    ) -> Self {
        let executor = StepExecutor::new();
        let subtasks = Subtasks::default();
        let random = Random::new(parts.seed);
        let parts = JobParts {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..parts
        };
        let (mut host, for_job) = (subtasks.clone(), Arc::clone(&executor));
        let (of_master, inbox_of_master) = (random.clone(), Arc::clone(&inbox));
        let running = async move {
            let master = Master {
                job: &job,
                settings: &settings,
                parts: &parts,
                executor: for_job as Arc<dyn Executor>,
                inbox: inbox_of_master,
                host: &mut host,
                random: of_master,
            };
            master.run().await
        };
        inbox.signal().ring();
        Self {
            random,
            clock,
            budget: 16,
            inbox,
            executor,
            subtasks,
            running: Box::pin(running),
            idle: 0,
            steps: 0,
        }
    }

    /// Sets the records per step of a subtask; few make many interleavings.
    #[must_use]
    pub fn budget(mut self, records: usize) -> Self {
        self.budget = records.max(1);
        self
    }

    /// Returns what asks things of the job; the answers come while it is stepped.
    #[must_use]
    pub fn control(&self) -> JobControl {
        JobControl::new(Arc::clone(&self.inbox))
    }

    /// Returns the number of steps made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Does one thing: a step of a subtask, of an upload, or of the coordinator; or lets time pass. Returns how the job
    /// ended, once it has.
    ///
    /// # Errors
    /// Those of the job; `Bug` when nothing moves any more.
    pub fn step(&mut self) -> Result<Option<JobOutcome>> {
        self.steps += 1;
        let choice = self.random.next();
        if choice & 7 == 0 {
            self.clock.advance(1);
        }
        let count = self.subtasks.0.borrow().len();
        // Uploads have as many turns as a third of the subtasks: they were made by all of them.
        let uploads = 1 + count / 3;
        let turns = count + uploads + 1;
        let chosen = usize::try_from((choice >> 3) % turns as u64).unwrap_or(0);
        let worked = if chosen < count {
            self.step_subtask(chosen)
        } else if chosen < count + uploads {
            self.executor.step(self.random.next())
        } else {
            let due = self
                .inbox
                .wake_at_ms()
                .is_some_and(|at| at <= self.clock.now_ms());
            let signal = self.inbox.signal();
            let woken = signal.take() || due;
            let waker = signal.waker();
            if woken
                && let Poll::Ready(outcome) =
                    self.running.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return outcome.map(Some);
            }
            woken
        };
        self.idle = if worked { 0 } else { self.idle + 1 };
        // Long enough that everybody was asked, with near certainty; asking once more costs nothing but a step.
        if self.idle > 20 * turns {
            self.idle = 0;
            self.skip_time()?;
        }
        Ok(None)
    }

    fn step_subtask(&self, chosen: usize) -> bool {
        let mut subtasks = self.subtasks.0.borrow_mut();
        let Some(stepped) = subtasks.get_mut(chosen) else {
            return false;
        };
        let now_ms = self.clock.now_ms();
        let due = stepped.wake_at_ms.is_some_and(|at| at <= now_ms);
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
    fn skip_time(&self) -> Result<()> {
        let subtasks = self.subtasks.0.borrow();
        let of_subtasks = subtasks.iter().filter_map(|s| s.wake_at_ms).min();
        let next = [of_subtasks, self.inbox.wake_at_ms()];
        match next.into_iter().flatten().min() {
            Some(at) => {
                self.clock.set(at.max(self.clock.now_ms() + 1));
                Ok(())
            }
            None => Err(Error::bug("nothing moves and nobody waits for a time")),
        }
    }
}
