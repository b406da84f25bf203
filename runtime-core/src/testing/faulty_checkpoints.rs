use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use checkpoint_storage::CheckpointMetadata;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, OperatorSnapshot,
    Result, StateHandle,
};

use crate::execution::{CheckpointStore, LoadedCheckpoint, RestoreFrom, StoreStart};
use crate::random::Random;
use crate::streams_through::StreamsThrough;

/// How often a store fails, in a thousand calls of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Writing bytes of a snapshot fails.
    pub write: u32,
    /// Publishing fails, and the checkpoint does not exist.
    pub publish: u32,
    /// Publishing fails, and nobody knows whether the checkpoint exists; half of the time it does.
    pub publish_unknown: u32,
    /// Deleting fails and deletes nothing.
    pub delete: u32,
    /// Any call takes its time: other things happen meanwhile.
    pub slow: u32,
}

struct Shared {
    faults: StoreFaults,
    random: Mutex<Random>,
    injected: AtomicU64,
}

impl Shared {
    fn random<T>(&self, f: impl FnOnce(&mut Random) -> T) -> T {
        f(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fails(&self, per_mille: u32) -> bool {
        let fails = self.random(|random| random.per_mille(per_mille));
        if fails {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        fails
    }

    /// Lets others have some turns.
    async fn dawdle(&self) {
        let mut turns = self.random(|random| {
            if random.per_mille(self.faults.slow) {
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
}

/// A store of checkpoints that fails as only a seed decides.
#[derive(Clone)]
pub struct FaultyCheckpoints {
    inner: Arc<dyn CheckpointStore>,
    shared: Arc<Shared>,
}

impl FaultyCheckpoints {
    /// Creates a store over another one.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStore>, faults: StoreFaults, seed: u64) -> Self {
        let shared = Shared {
            faults,
            random: Mutex::new(Random::new(seed)),
            injected: AtomicU64::new(0),
        };
        Self {
            inner,
            shared: Arc::new(shared),
        }
    }

    /// Returns the number of calls that failed by intent.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.shared.injected.load(Ordering::Relaxed)
    }
}

impl FaultyCheckpoints {
    fn faulty(&self, inner: Arc<dyn CheckpointStorage>) -> Arc<dyn CheckpointStorage> {
        let shared = Arc::clone(&self.shared);
        Arc::new(StreamsThrough::new(inner, move |inner| {
            let shared = Arc::clone(&shared);
            Box::new(FaultyStream { inner, shared })
        }))
    }
}

fn failed(what: &str) -> Error {
    Error::retryable(format!("a simulated fault while {what}"))
}

impl CheckpointStore for FaultyCheckpoints {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        self.inner.start()
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        self.faulty(self.inner.storage())
    }

    fn claim<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<LoadedCheckpoint>> {
        self.inner.claim(path)
    }

    fn delete_shared(&self, objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            if self.shared.fails(self.shared.faults.delete) {
                return Err(failed("deleting"));
            }
            self.inner.delete_shared(objects).await
        })
    }

    fn prepare_savepoint(
        &self,
        id: CheckpointId,
        target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            let storage = self.inner.prepare_savepoint(id, target).await?;
            Ok(self.faulty(storage))
        })
    }

    fn drain_savepoint(&self, id: CheckpointId) -> BoxFuture<'_, Result<()>> {
        self.inner.drain_savepoint(id)
    }

    fn storage_of(&self, id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        self.inner.storage_of(id)
    }

    fn note_stop(&self, savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        self.inner.note_stop(savepoint)
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        self.inner.location(id)
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        self.inner.load(from)
    }

    fn check_fenced(&self) -> Option<BoxFuture<'static, Result<()>>> {
        let check = self.inner.check_fenced();
        let shared = Arc::clone(&self.shared);
        Some(Box::pin(async move {
            shared.dawdle().await;
            match check {
                Some(check) => check.await,
                None => Ok(()),
            }
        }))
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        self.inner.find_published(id)
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            if self.shared.fails(self.shared.faults.publish) {
                return Err(Error::invalid("a simulated fault: not published"));
            }
            if self.shared.fails(self.shared.faults.publish_unknown) {
                if self.shared.random(|random| random.per_mille(500)) {
                    self.inner.publish(metadata).await?;
                }
                return Err(failed("publishing"));
            }
            self.inner.publish(metadata).await?;
            self.shared.dawdle().await;
            Ok(())
        })
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.end()
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sweep()
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            if self.shared.fails(self.shared.faults.delete) {
                return Err(failed("deleting"));
            }
            self.inner.discard(metadata).await
        })
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            if self.shared.fails(self.shared.faults.delete) {
                return Err(failed("deleting"));
            }
            self.inner.discard_unpublished(id, snapshots).await
        })
    }
}

struct FaultyStream {
    inner: Box<dyn CheckpointStream>,
    shared: Arc<Shared>,
}

impl CheckpointStream for FaultyStream {
    fn inline_at_most(&mut self, bytes: u64) {
        self.inner.inline_at_most(bytes);
    }

    fn for_later(&mut self) {
        self.inner.for_later();
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.dawdle().await;
            self.inner.write(bytes).await
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
            self.shared.dawdle().await;
            if self.shared.fails(self.shared.faults.write) {
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
