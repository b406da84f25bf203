use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, ObjectReader, Result,
    Scope, StateHandle,
};

/// Snapshots in the coordinator's memory: every state travels inline with its acknowledgement.
///
/// Meant for small states and tests. Every future is ready at its first poll and needs no runtime.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCheckpointStorage {
    max_state_size: u64,
}

impl MemoryCheckpointStorage {
    /// Bytes up to which one state is accepted, unless configured: 5 MiB.
    pub const DEFAULT_MAX_STATE_SIZE: u64 = 5 << 20;

    /// The option that sets the limit.
    pub const MAX_STATE_SIZE_OPTION: &'static str =
        "execution.checkpointing.memory-storage.max-state-size";

    /// Creates a storage that accepts states of at most that many bytes.
    #[must_use]
    pub fn new(max_state_size: u64) -> Self {
        Self { max_state_size }
    }
}

impl Default for MemoryCheckpointStorage {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MAX_STATE_SIZE)
    }
}

fn no_objects(object: &ObjectHandle) -> Error {
    Error::corrupt("an object of the checkpoint is missing: checkpoints are kept in memory here")
        .with("object", object)
}

impl CheckpointStorage for MemoryCheckpointStorage {
    fn create(&self, checkpoint: CheckpointId, _scope: Scope) -> Box<dyn CheckpointStream> {
        Box::new(MemoryStream {
            checkpoint,
            limit: self.max_state_size,
            buffer: Vec::new(),
            failed: false,
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        _range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        ready(Err(no_objects(object))).boxed()
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        ready(Err(no_objects(object))).boxed()
    }
}

struct MemoryStream {
    checkpoint: CheckpointId,
    limit: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl MemoryStream {
    fn check(&self) -> Result<()> {
        if self.failed {
            return Err(
                Error::poisoned("an earlier write of this checkpoint stream failed")
                    .with("checkpoint", self.checkpoint),
            );
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        let size = self.position() + bytes.len() as u64;
        if size > self.limit {
            self.failed = true;
            self.buffer = Vec::new();
            return Err(Error::limit(format!(
                "a state of {size} bytes or more exceeds the {} bytes that checkpoints in memory may have: \
                 set a checkpoint folder (execution.checkpointing.dir) or raise the limit ({})",
                self.limit,
                MemoryCheckpointStorage::MAX_STATE_SIZE_OPTION
            ))
            .with("checkpoint", self.checkpoint));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }
}

impl CheckpointStream for MemoryStream {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move { self.append(&bytes) }.boxed()
    }

    fn position(&self) -> u64 {
        self.buffer.len() as u64
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        ready(self.check()).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        let handle = self.check().map(|()| {
            let bytes = Bytes::from(self.buffer);
            (!bytes.is_empty()).then_some(StateHandle::Inline(bytes))
        });
        ready(handle).boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}
