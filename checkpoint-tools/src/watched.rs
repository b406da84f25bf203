//! Objects that are read while somebody watches.
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
};

use crate::progress::Progress;

/// A storage that tells a [`Progress`] of all bytes that are read from it, and says in errors whose they are.
pub(crate) struct WatchedStorage {
    inner: Arc<dyn CheckpointStorage>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    progress: Arc<dyn Progress>,
    /// URL of the checkpoint's folder.
    checkpoint: Arc<str>,
}

impl WatchedStorage {
    pub(crate) fn new(
        inner: Arc<dyn CheckpointStorage>,
        progress: Arc<dyn Progress>,
        checkpoint: &str,
    ) -> Self {
        let checkpoint = checkpoint.into();
        let watch = Watch {
            progress,
            checkpoint,
        };
        Self { inner, watch }
    }
}

impl Watch {
    fn told(&self, read: Result<Option<Bytes>>) -> Result<Option<Bytes>> {
        if let Ok(Some(bytes)) = &read {
            self.progress.advance(bytes.len() as u64);
        }
        self.named(read)
    }

    fn named<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|e| e.with("checkpoint", &self.checkpoint))
    }
}

impl CheckpointStorage for WatchedStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        self.inner.create(checkpoint, scope)
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let read = self.inner.read_range(object, range).await;
            let bytes = self.watch.named(read)?;
            self.watch.progress.advance(bytes.len() as u64);
            Ok(bytes)
        }
        .boxed()
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        async move {
            let inner = self.watch.named(self.inner.open(object).await)?;
            let watch = self.watch.clone();
            Ok(Box::new(WatchedReader { inner, watch }) as Box<dyn ObjectReader>)
        }
        .boxed()
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

struct WatchedReader {
    inner: Box<dyn ObjectReader>,
    watch: Watch,
}

impl ObjectReader for WatchedReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let read = self.inner.next().await;
            self.watch.told(read)
        }
        .boxed()
    }

    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        async move {
            let read = self.inner.next_piece(bytes).await;
            self.watch.told(read)
        }
        .boxed()
    }
}
