use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use state_api::Executor;

/// How long [`block_on`] waits without being woken, in seconds.
const PATIENCE_S: u32 = 60;

struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls a future on this thread until it is done.
///
/// # Panics
/// When nothing wakes the future for 60 seconds: what it waits for will not come.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark {
        thread: std::thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut waited = 0;
        while !unpark.woken.swap(false, Ordering::SeqCst) {
            assert!(
                waited < PATIENCE_S,
                "a future was not woken for {PATIENCE_S} s"
            );
            std::thread::park_timeout(Duration::from_secs(1));
            waited += 1;
        }
    }
}

/// Polls a future once and returns its result if it is done.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polls a future until it is done, and returns its result, or until something else holds. A store may have threads of its own
/// that wake it.
///
/// # Panics
/// When neither comes within 60 seconds.
pub fn poll_until<F: Future + Unpin>(
    future: &mut F,
    mut holds: impl FnMut() -> bool,
) -> Option<F::Output> {
    const TURN: Duration = Duration::from_millis(1);
    for _ in 0..Duration::from_secs(PATIENCE_S.into()).as_millis() {
        if let Some(output) = poll_once(future) {
            return Some(output);
        }
        if holds() {
            return None;
        }
        std::thread::park_timeout(TURN);
    }
    panic!("a future did not get anywhere for {PATIENCE_S} s");
}

/// Runs CPU work at once, on the thread that hands it over; a future that is not done at once gets a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineExecutor;

impl Executor for InlineExecutor {
    fn spawn_io(&self, mut future: BoxFuture<'static, ()>) {
        if poll_once(&mut future).is_none() {
            std::thread::spawn(move || block_on(future));
        }
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// Gives each piece of work a thread of its own, as a runtime would.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadExecutor;

impl Executor for ThreadExecutor {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        std::thread::spawn(move || block_on(future));
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        std::thread::spawn(work);
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Keeps CPU work until it is told to run it, so that a test can write state while a snapshot is not encoded yet.
#[derive(Clone, Default)]
pub struct ManualExecutor {
    waiting: Arc<Mutex<VecDeque<Work>>>,
}

impl ManualExecutor {
    /// Creates an executor with nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pieces of work that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Runs the work that was handed over first; returns whether there was some.
    pub fn run_one(&self) -> bool {
        let work = self.lock().pop_front();
        work.map(|work| work()).is_some()
    }

    /// Runs all work, also what comes up meanwhile.
    pub fn run_all(&self) {
        while self.run_one() {}
    }

    /// Drops all work unrun, as a runtime does when it is shut down.
    pub fn drop_all(&self) {
        let dropped = std::mem::take(&mut *self.lock());
        drop(dropped);
    }
}

impl std::fmt::Debug for ManualExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualExecutor")
            .field("waiting", &self.waiting())
            .finish()
    }
}

impl Executor for ManualExecutor {
    fn spawn_io(&self, mut future: BoxFuture<'static, ()>) {
        self.spawn_cpu(Box::new(move || {
            if poll_once(&mut future).is_none() {
                std::thread::spawn(move || block_on(future));
            }
        }));
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        self.lock().push_back(work);
    }
}
