use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ManualClock, ObjectHandle, ObjectReader,
    Result, Scope,
};

/// Lets a clock go on with each request for an object or a part of one, as over a network. Nothing waits for it.
#[derive(Clone)]
pub struct LateStorage {
    inner: Arc<dyn CheckpointStorage>,
    clock: Arc<ManualClock>,
    latency_ms: i64,
}

impl LateStorage {
    /// Wraps a storage whose requests take so many milliseconds.
    #[must_use]
    pub fn new(
        inner: Arc<dyn CheckpointStorage>,
        clock: Arc<ManualClock>,
        latency_ms: i64,
    ) -> Self {
        Self {
            inner,
            clock,
            latency_ms,
        }
    }
}

impl CheckpointStorage for LateStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        self.inner.create(checkpoint, scope)
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.clock.advance(self.latency_ms);
            self.inner.read_range(object, range).await
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        Box::pin(async move {
            self.clock.advance(self.latency_ms);
            self.inner.open(object).await
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
