//! A store that keeps nothing.
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, ObjectReader, Result,
    Scope, StateHandle,
};

/// A store that swallows what is written, each object after a pause: what a snapshot costs without a disk, and what a
/// store that hangs does to the task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swallow {
    /// How long the first write of each object hangs.
    pub pause: Duration,
}

struct SwallowStream {
    pause: Duration,
    position: u64,
}

impl CheckpointStorage for Swallow {
    fn create(&self, _: CheckpointId, _: Scope) -> Box<dyn CheckpointStream> {
        Box::new(SwallowStream {
            pause: self.pause,
            position: 0,
        })
    }

    fn read_range<'a>(
        &'a self,
        _: &'a ObjectHandle,
        _: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        async { Err(gone()) }.boxed()
    }

    fn open<'a>(&'a self, _: &'a ObjectHandle) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        async { Err(gone()) }.boxed()
    }
}

fn gone() -> Error {
    Error::not_found("the store keeps nothing")
}

impl CheckpointStream for SwallowStream {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let pause = std::mem::take(&mut self.pause);
        self.position += bytes.len() as u64;
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        async { Ok(Some(StateHandle::Inline(Bytes::new()))) }.boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
}
