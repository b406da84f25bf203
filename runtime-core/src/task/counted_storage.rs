use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
    StateHandle,
};

/// Counts the bytes that a snapshot hands to a storage, for whoever wants to see it get on.
pub(crate) struct CountedStorage {
    inner: Arc<dyn CheckpointStorage>,
    written: Arc<AtomicU64>,
}

impl CountedStorage {
    pub(crate) fn new(inner: Arc<dyn CheckpointStorage>, written: Arc<AtomicU64>) -> Self {
        Self { inner, written }
    }
}

impl CheckpointStorage for CountedStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        Box::new(CountedStream {
            inner: self.inner.create(checkpoint, scope),
            written: Arc::clone(&self.written),
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.inner.read_range(object, range)
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        self.inner.open(object)
    }

    fn discard(&self, object: &ObjectHandle) {
        self.inner.discard(object);
    }
}

struct CountedStream {
    inner: Box<dyn CheckpointStream>,
    written: Arc<AtomicU64>,
}

impl CheckpointStream for CountedStream {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let len = bytes.len() as u64;
        let write = self.inner.write(bytes);
        let written = &self.written;
        Box::pin(async move {
            write.await?;
            written.fetch_add(len, Ordering::Relaxed);
            Ok(())
        })
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        self.inner.finish()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.inner.abort()
    }
}
