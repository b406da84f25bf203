use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Clock, ObjectHandle, ObjectReader,
    RestoreContext, RestoreTimes, Result, Scope,
};

/// Takes the time of a restore: that in which the storage is waited for is fetching, the rest is reading entries, unless a store
/// took the time of its part itself.
pub(crate) struct TimedRestore {
    waits: Arc<Waits>,
    start_ns: u64,
    /// What a store has told.
    told: RestoreTimes,
    /// Waits for the storage within what it has told.
    in_told_ns: u64,
}

impl TimedRestore {
    /// Starts now; the restore is to read out of the context that is returned.
    pub(crate) fn start(clock: &Arc<dyn Clock>, cx: &RestoreContext) -> (Self, RestoreContext) {
        let waits = Arc::new(Waits {
            clock: Arc::clone(clock),
            state: Mutex::default(),
        });
        let storage = TimedStorage {
            inner: Arc::clone(&cx.storage),
            waits: Arc::clone(&waits),
        };
        let timed = Self {
            start_ns: clock.monotonic_ns(),
            waits,
            told: RestoreTimes::default(),
            in_told_ns: 0,
        };
        let cx = RestoreContext {
            storage: Arc::new(storage),
            executor: Arc::clone(&cx.executor),
        };
        (timed, cx)
    }

    /// Takes note of what a store says about the time until now; nothing if it did not take the time.
    pub(crate) fn told(&mut self, times: RestoreTimes) {
        if times != RestoreTimes::default() {
            self.told = times;
            self.in_told_ns = self.waits.total_ns();
        }
    }

    /// Returns what the time until now went to.
    pub(crate) fn times(&self) -> RestoreTimes {
        let total_ns = self.waits.clock.monotonic_ns() - self.start_ns;
        let mut times = self.told;
        times.fetch_ns += self.waits.total_ns() - self.in_told_ns;
        times.entries_ns += total_ns.saturating_sub(times.total_ns());
        times
    }
}

/// The time in which at least one call of a storage was under way.
struct Waits {
    clock: Arc<dyn Clock>,
    state: Mutex<WaitState>,
}

#[derive(Default)]
struct WaitState {
    calls: usize,
    /// When the first of the calls under way began.
    since_ns: u64,
    total_ns: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn total_ns(&self) -> u64 {
        self.lock().total_ns
    }

    /// Takes the time of a call from its first step on, until it answers or is given up.
    fn during<'a, T: Send + 'a>(&'a self, call: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        Box::pin(async move {
            let _wait = Wait::begin(self);
            call.await
        })
    }
}

struct Wait<'a>(&'a Waits);

impl<'a> Wait<'a> {
    fn begin(waits: &'a Waits) -> Self {
        let mut state = waits.lock();
        if state.calls == 0 {
            state.since_ns = waits.clock.monotonic_ns();
        }
        state.calls += 1;
        drop(state);
        Self(waits)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.calls -= 1;
        if state.calls == 0 {
            state.total_ns += self.0.clock.monotonic_ns() - state.since_ns;
        }
    }
}

struct TimedStorage {
    inner: Arc<dyn CheckpointStorage>,
    waits: Arc<Waits>,
}

impl CheckpointStorage for TimedStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        self.inner.create(checkpoint, scope)
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.waits.during(self.inner.read_range(object, range))
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        let opened = self.waits.during(self.inner.open(object));
        Box::pin(async move {
            Ok(Box::new(TimedReader {
                inner: opened.await?,
                waits: Arc::clone(&self.waits),
            }) as Box<dyn ObjectReader>)
        })
    }

    fn discard(&self, object: &ObjectHandle) {
        self.inner.discard(object);
    }

    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        self.waits.during(self.inner.link_copy(object, to))
    }

    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        self.waits.during(self.inner.keep_copy(object, file))
    }
}

struct TimedReader {
    inner: Box<dyn ObjectReader>,
    waits: Arc<Waits>,
}

impl ObjectReader for TimedReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.waits.during(self.inner.next())
    }

    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.waits.during(self.inner.next_piece(bytes))
    }
}
