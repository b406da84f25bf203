use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
};

/// A storage whose new streams go through a function; the rest is the inner storage's.
pub(crate) struct StreamsThrough<F> {
    inner: Arc<dyn CheckpointStorage>,
    through: F,
}

impl<F> StreamsThrough<F>
where
    F: Fn(Box<dyn CheckpointStream>) -> Box<dyn CheckpointStream> + Send + Sync,
{
    /// Creates a storage; what `through` has captured lives as long as it does.
    pub(crate) fn new(inner: Arc<dyn CheckpointStorage>, through: F) -> Self {
        Self { inner, through }
    }
}

impl<F> CheckpointStorage for StreamsThrough<F>
where
    F: Fn(Box<dyn CheckpointStream>) -> Box<dyn CheckpointStream> + Send + Sync,
{
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        (self.through)(self.inner.create(checkpoint, scope))
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

    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        self.inner.link_copy(object, to)
    }

    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        self.inner.keep_copy(object, file)
    }
}
