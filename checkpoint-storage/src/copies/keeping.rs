use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
};

use super::LocalCopies;
use super::second_stream::CopyingStream;

/// A storage whose objects are copied to local disk while they are written; the rest is the inner storage's.
pub(super) struct KeepingStorage {
    inner: Arc<dyn CheckpointStorage>,
    copies: LocalCopies,
    task: Arc<str>,
}

impl KeepingStorage {
    pub(super) fn new(
        inner: Arc<dyn CheckpointStorage>,
        copies: LocalCopies,
        task: String,
    ) -> Self {
        Self {
            inner,
            copies,
            task: task.into(),
        }
    }
}

impl CheckpointStorage for KeepingStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        let primary = self.inner.create(checkpoint, scope);
        let (copies, task) = (self.copies.clone(), Arc::clone(&self.task));
        Box::new(CopyingStream::new(primary, copies, checkpoint, task))
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
        self.copies.unwanted(object);
        self.inner.discard(object);
    }

    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        self.inner.link_copy(object, to)
    }

    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        self.inner.keep_copy(object, file)
    }
}
