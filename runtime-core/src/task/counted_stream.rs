use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{CheckpointStream, Result, StateHandle};

/// Counts the bytes that a snapshot hands to a storage, for whoever wants to see it get on.
pub(crate) struct CountedStream {
    pub(crate) inner: Box<dyn CheckpointStream>,
    pub(crate) written: Arc<AtomicU64>,
}

impl CheckpointStream for CountedStream {
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
