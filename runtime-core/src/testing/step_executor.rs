use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;

use futures_util::future::BoxFuture;
use state_api::Executor;

use crate::channel::Signal;

struct Pending {
    future: BoxFuture<'static, ()>,
    signal: Arc<Signal>,
}

/// Runs nothing by itself: a driver steps the futures and the work handed over, one at a time.
#[derive(Default)]
pub struct StepExecutor {
    futures: Mutex<Vec<Pending>>,
    work: Mutex<VecDeque<Box<dyn FnOnce() + Send>>>,
    waiting: AtomicUsize,
}

impl StepExecutor {
    /// Creates an executor with nothing to do.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Polls a future or does a piece of work, chosen by `choice`; returns whether there was something to do.
    pub fn step(&self, choice: u64) -> bool {
        if choice & 1 == 0 && self.step_work() {
            return true;
        }
        self.step_future(choice >> 1) || self.step_work()
    }

    fn step_work(&self) -> bool {
        let work = self
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        match work {
            Some(work) => {
                work();
                true
            }
            None => false,
        }
    }

    fn step_future(&self, choice: u64) -> bool {
        let mut futures = self.futures.lock().unwrap_or_else(PoisonError::into_inner);
        let ready: Vec<usize> = (0..futures.len())
            .filter(|i| futures[*i].signal.take())
            .collect();
        let Some(&chosen) = ready.get(usize::try_from(choice).unwrap_or(0) % ready.len().max(1))
        else {
            return false;
        };
        ready
            .iter()
            .filter(|i| **i != chosen)
            .for_each(|i| futures[*i].signal.ring());
        let mut pending = futures.swap_remove(chosen);
        drop(futures);
        let waker = pending.signal.waker();
        if pending
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            self.futures
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(pending);
        } else {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        true
    }

    /// Returns the number of futures that are not done.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

impl Executor for StepExecutor {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        let signal = Signal::new();
        signal.ring();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.futures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Pending { future, signal });
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(work);
    }
}
