use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Error, OperatorUid, Result, SnapshotRequest};

use crate::chain::environment::Environment;
use crate::chain::gate::Gate;
use crate::chain::in_flight::RecordsInFlight;
use crate::chain::link::{Control, Head, Turn};
use crate::channel::Barrier;
use crate::random::Random;
use crate::task::{OperatorParts, SnapshotWork, SubtaskSnapshot};

/// How often a turn fails, in a thousand.
const TURNS: u32 = 1;

/// How often any other call fails, in a thousand: there are far fewer of them.
const CALLS: u32 = 15;

const MESSAGE: &str = "a simulated failure";

/// Decides where code of the user's fails, a bounded number of times.
pub(super) struct OperatorFailures {
    shared: Mutex<Shared>,
}

struct Shared {
    random: Random,
    left: u32,
    count: u32,
}

/// Whether a failing call does its work first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

impl OperatorFailures {
    pub(super) fn new(most: u32, seed: u64) -> Arc<Self> {
        let shared = Shared {
            random: Random::new(seed),
            left: most,
            count: 0,
        };
        Arc::new(Self {
            shared: Mutex::new(shared),
        })
    }

    /// Returns the number of failures so far.
    pub(super) fn count(&self) -> u32 {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, per_mille: u32) -> Option<When> {
        let mut shared = self.lock();
        if shared.left == 0 || !shared.random.per_mille(per_mille) {
            return None;
        }
        shared.left -= 1;
        shared.count += 1;
        Some(match shared.random.per_mille(500) {
            true => When::Before,
            false => When::After,
        })
    }

    /// Fails as code of the user's does.
    fn fail<T>(&self) -> Result<T> {
        if self.lock().random.per_mille(500) {
            // Unlike `panic!` it writes nothing to the terminal.
            resume_unwind(Box::new(MESSAGE));
        }
        Err(Error::user(MESSAGE))
    }

    fn around<T>(&self, per_mille: u32, call: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.draw(per_mille) {
            None => call(),
            Some(When::Before) => self.fail(),
            Some(When::After) => {
                call()?;
                self.fail()
            }
        }
    }
}

/// A chain of which some call fails now and then, as if an operator in it did.
pub(super) struct FailingHead {
    inner: Box<dyn Head>,
    failures: Arc<OperatorFailures>,
}

impl FailingHead {
    pub(super) fn around(inner: Box<dyn Head>, failures: &Arc<OperatorFailures>) -> Box<dyn Head> {
        let failures = Arc::clone(failures);
        Box::new(Self { inner, failures })
    }
}

impl Control for FailingHead {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.inner.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let fails = self.failures.draw(CALLS);
            if fails == Some(When::Before) {
                return self.failures.fail();
            }
            self.inner.open(env).await?;
            match fails {
                Some(_) => self.failures.fail(),
                None => Ok(()),
            }
        })
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.prepare_barrier(barrier))
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.snapshot(request, set))?;
        if failures.draw(CALLS).is_some() {
            // Work of an operator for the async part.
            let work = SnapshotWork::future(async { Err(Error::user(MESSAGE)) });
            let parts = OperatorParts {
                work: vec![work],
                ..OperatorParts::default()
            };
            set.add(OperatorUid::new("simulated")?, parts);
        }
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.completed(id))
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.aborted(id))
    }

    fn finish(&mut self) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.finish())
    }
}

impl Head for FailingHead {
    fn turn(&mut self, budget: usize) -> Result<Turn> {
        let Self { inner, failures } = self;
        failures.around(TURNS, || inner.turn(budget))
    }

    fn gate(&mut self) -> Option<&mut Gate> {
        self.inner.gate()
    }

    fn give_up(&mut self, id: CheckpointId) {
        self.inner.give_up(id);
    }

    fn record_in_flight(&mut self, id: CheckpointId) -> Option<RecordsInFlight> {
        self.inner.record_in_flight(id)
    }

    fn is_source(&self) -> bool {
        self.inner.is_source()
    }

    fn drain(&mut self) -> Result<()> {
        let Self { inner, failures } = self;
        failures.around(CALLS, || inner.drain())
    }

    fn restored_positions(&self) -> Vec<String> {
        self.inner.restored_positions()
    }
}
