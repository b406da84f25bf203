use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Wakes one thread that has nothing to do.
///
/// A ring before the wait is not lost. Any number of threads may ring; one waits.
#[derive(Debug, Default)]
pub struct Signal {
    rung: AtomicBool,
    /// Somebody wants to be heard before the next record.
    called: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    /// Creates a signal that has not been rung.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Ends the current or the next wait.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // The lock orders this ring after a waiter's check: either it sees the flag, or it is notified.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.condition.notify_one();
        }
    }

    /// Rings, and asks whoever is woken or busy to look up before the next record: a command or a barrier that overtakes.
    pub fn call(&self) {
        self.called.store(true, Ordering::Release);
        self.ring();
    }

    /// Returns whether there was a [`call`](Self::call) that nobody has heard.
    #[inline]
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Takes back a call; returns whether there was one.
    pub fn take_call(&self) -> bool {
        self.is_called() && self.called.swap(false, Ordering::AcqRel)
    }

    /// Takes back a ring; returns whether there was one.
    pub fn take(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Waits until the signal is rung, at most `timeout`; returns whether it was rung.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        if self.take() {
            return true;
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |(): &mut ()| !self.rung.load(Ordering::Acquire);
        match timeout {
            None => drop(
                self.condition
                    .wait_while(guard, silent)
                    .unwrap_or_else(PoisonError::into_inner),
            ),
            Some(timeout) => {
                drop(
                    self.condition
                        .wait_timeout_while(guard, timeout, silent)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
        self.take()
    }

    /// Returns a waker that rings.
    #[must_use]
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
