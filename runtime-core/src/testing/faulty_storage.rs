use std::future::poll_fn;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, ObjectReader, Result,
    Scope, StateHandle,
};

use super::StoreFaults;
use crate::random::Random;

/// Decides which calls of a store fail, and how long they take.
pub(super) struct Faults {
    pub(super) rates: StoreFaults,
    random: Mutex<Random>,
    injected: AtomicU64,
}

impl Faults {
    pub(super) fn new(rates: StoreFaults, seed: u64) -> Self {
        Self {
            rates,
            random: Mutex::new(Random::new(seed)),
            injected: AtomicU64::new(0),
        }
    }

    pub(super) fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    fn random<T>(&self, f: impl FnOnce(&mut Random) -> T) -> T {
        f(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn fails(&self, per_mille: u32) -> bool {
        let fails = self.random(|random| random.per_mille(per_mille));
        if fails {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        fails
    }

    pub(super) fn one_in_two(&self) -> bool {
        self.random(|random| random.per_mille(500))
    }

    /// Lets others have some turns.
    pub(super) async fn dawdle(&self) {
        let mut turns = self.random(|random| {
            if random.per_mille(self.rates.slow) {
                random.below(20)
            } else {
                0
            }
        });
        poll_fn(|cx| {
            if turns == 0 {
                return Poll::Ready(());
            }
            turns -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// What happens before something is read.
    pub(super) async fn read(&self, what: &str) -> Result<()> {
        self.dawdle().await;
        if self.fails(self.rates.read) {
            return Err(failed(what));
        }
        Ok(())
    }

    /// What happens before something is deleted.
    pub(super) async fn delete(&self) -> Result<()> {
        self.dawdle().await;
        if self.fails(self.rates.delete) {
            return Err(failed("deleting"));
        }
        Ok(())
    }
}

pub(super) fn failed(what: &str) -> Error {
    Error::retryable(format!("a simulated fault while {what}"))
}

/// A storage whose reads and writes fail.
pub(super) struct FaultyStorage {
    inner: Arc<dyn CheckpointStorage>,
    faults: Arc<Faults>,
}

impl FaultyStorage {
    pub(super) fn new(inner: Arc<dyn CheckpointStorage>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl CheckpointStorage for FaultyStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        let fails = self.faults.fails(self.faults.rates.write);
        let fails_after = fails.then(|| self.faults.random(|random| random.below(3)));
        Box::new(FaultyStream {
            inner: self.inner.create(checkpoint, scope),
            faults: Arc::clone(&self.faults),
            fails_after,
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.faults.read("reading").await?;
            self.inner.read_range(object, range).await
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        Box::pin(async move {
            self.faults.read("opening an object").await?;
            let inner = self.inner.open(object).await?;
            let faults = Arc::clone(&self.faults);
            Ok(Box::new(FaultyReader { inner, faults }) as Box<dyn ObjectReader>)
        })
    }

    fn discard(&self, object: &ObjectHandle) {
        self.inner.discard(object);
    }

    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        self.inner.link_copy(object, to)
    }

    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        self.inner.keep_copy(object, file)
    }
}

struct FaultyReader {
    inner: Box<dyn ObjectReader>,
    faults: Arc<Faults>,
}

impl ObjectReader for FaultyReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            self.faults.read("reading an object").await?;
            self.inner.next().await
        })
    }

    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            self.faults.read("reading an object").await?;
            self.inner.next_piece(bytes).await
        })
    }
}

struct FaultyStream {
    inner: Box<dyn CheckpointStream>,
    faults: Arc<Faults>,
    /// The writes that go well before one fails, or the finish if there are no more.
    fails_after: Option<u64>,
}

impl CheckpointStream for FaultyStream {
    fn written_from(&mut self, file: &Path) {
        self.inner.written_from(file);
    }

    fn inline_at_most(&mut self, bytes: u64) {
        self.inner.inline_at_most(bytes);
    }

    fn for_later(&mut self) {
        self.inner.for_later();
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            match &mut self.fails_after {
                Some(0) => Err(failed("writing")),
                Some(writes) => {
                    *writes -= 1;
                    self.inner.write(bytes).await
                }
                None => self.inner.write(bytes).await,
            }
        })
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            if self.fails_after.is_some() {
                self.inner.abort().await;
                return Err(failed("writing"));
            }
            self.inner.finish().await
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.inner.abort()
    }
}
