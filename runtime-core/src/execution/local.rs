use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use state_api::{Clock, Error, Executor, Result};
use tokio::runtime::Handle;

use super::inbox::{Inbox, Message};
use super::launch::{Host, Launch};
use super::master::Master;
use super::{ExecutionSettings, JobControl, JobOutcome, JobParts, TokioExecutor};
use crate::channel::Signal;
use crate::job::Job;
use crate::random::Random;
use crate::task::Progress;

/// Records per step of a subtask.
const STEP_BUDGET: usize = 4096;

/// Runs jobs with a thread per subtask, and one for the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct LocalExecution;

impl LocalExecution {
    /// Starts a job; I/O is done on the tokio runtime that is handed in.
    ///
    /// # Errors
    /// `Retryable` when no thread can be started.
    pub fn start(
        job: Job,
        settings: ExecutionSettings,
        parts: JobParts,
        io: &Handle,
    ) -> Result<JobHandle> {
        let inbox = Inbox::new();
        let (ours, io) = (Arc::clone(&inbox), io.clone());
        let thread = std::thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || run(&job, &settings, &parts, &ours, &io))
            .map_err(|error| Error::retryable("no thread for the coordinator").caused_by(error))?;
        Ok(JobHandle { inbox, thread })
    }
}

/// A job that runs.
#[derive(Debug)]
pub struct JobHandle {
    inbox: Arc<Inbox>,
    thread: JoinHandle<Result<JobOutcome>>,
}

impl JobHandle {
    /// Ends the job now: nothing more is processed or committed, checkpoints are kept or deleted as configured.
    pub fn cancel(&self) {
        self.inbox.send(Message::Cancel);
    }

    /// Returns what cancels the job, for a signal handler.
    pub fn canceller(&self) -> impl Fn() + Send + Sync + 'static {
        let inbox = Arc::clone(&self.inbox);
        move || inbox.send(Message::Cancel)
    }

    /// Asks for a checkpoint beside the periodic ones.
    pub fn trigger_checkpoint(&self) {
        drop(self.control().checkpoint(false));
    }

    /// Returns what asks things of the job while it runs.
    #[must_use]
    pub fn control(&self) -> JobControl {
        JobControl::new(Arc::clone(&self.inbox))
    }

    /// Returns whether the job has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the job.
    ///
    /// # Errors
    /// The failure of the last run when no restart follows; `Fenced` when a newer attempt has taken over.
    pub fn wait(self) -> Result<JobOutcome> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Error::bug("the coordinator panicked")))
    }
}

fn run(
    job: &Job,
    settings: &ExecutionSettings,
    parts: &JobParts,
    inbox: &Arc<Inbox>,
    io: &Handle,
) -> Result<JobOutcome> {
    let _entered = io.enter();
    let executor: Arc<dyn Executor> = Arc::new(TokioExecutor::new(io.clone()));
    let mut host = Threads {
        clock: Arc::clone(&parts.clock),
        io: io.clone(),
        threads: Vec::new(),
    };
    let inbox = Arc::clone(inbox);
    let signal = Arc::clone(inbox.signal());
    let master = Master {
        job,
        settings,
        parts,
        executor,
        inbox: Arc::clone(&inbox),
        host: &mut host,
        random: Random::new(parts.seed),
    };
    let mut running = pin!(master.run());
    let waker = signal.waker();
    loop {
        if let Poll::Ready(outcome) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        sleep_until(&signal, inbox.wake_at_ms(), parts.clock.as_ref());
    }
}

/// Waits for a ring, or for the clock to reach a time.
fn sleep_until(signal: &Signal, wake_at_ms: Option<i64>, clock: &dyn Clock) {
    let timeout = wake_at_ms.map(|at| {
        let ms = u64::try_from(at.saturating_sub(clock.now_ms())).unwrap_or(0);
        Duration::from_millis(ms.max(1))
    });
    signal.wait(timeout);
}

/// Steps each subtask on a thread of its own.
struct Threads {
    clock: Arc<dyn Clock>,
    io: Handle,
    threads: Vec<JoinHandle<()>>,
}

impl Host for Threads {
    fn start(&mut self, launch: Launch) -> Result<()> {
        let (clock, io) = (Arc::clone(&self.clock), self.io.clone());
        let name = format!("{} {}", launch.id, launch.name);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _entered = io.enter();
                let signal = launch.signal;
                let mut subtask = (launch.make)();
                loop {
                    match subtask.step(STEP_BUDGET) {
                        Progress::Worked => {}
                        Progress::Waiting { wake_at_ms } => {
                            sleep_until(&signal, wake_at_ms, clock.as_ref())
                        }
                        Progress::Done => return,
                    }
                }
            })
            .map_err(|error| Error::retryable("no thread for a subtask").caused_by(error))?;
        self.threads.push(thread);
        Ok(())
    }

    fn run_ended(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic was reported by the subtask itself.
            drop(thread.join());
        }
    }
}
