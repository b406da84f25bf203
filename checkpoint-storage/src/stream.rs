use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use state_api::{
    CheckpointId, CheckpointStream, Error, ErrorKind, ObjectHandle, RelPath, Result, Root, Scope,
    StateHandle,
};

use crate::digest::DigestBuilder;
use crate::reaper::OwnedObject;
use crate::sealed::{SEALED_ENDING, Sealer};
use crate::storage::Shared;
use crate::store::ObjectWriter;

/// How often a new name is tried when one is taken.
const NAME_ATTEMPTS: u32 = 10;

/// Gathers bytes up to the write buffer, then writes them to an object of its own.
pub(crate) struct ObjectStream {
    storage: Arc<Shared>,
    checkpoint: CheckpointId,
    scope: Scope,
    /// The most bytes that are left in the handle.
    inline_threshold: usize,
    buffer: Vec<u8>,
    position: u64,
    digest: DigestBuilder,
    open: Option<OpenObject>,
    /// Not while an operation runs: one that failed or was dropped leaves the stream unusable.
    usable: bool,
}

struct OpenObject {
    path: RelPath,
    writer: Box<dyn ObjectWriter>,
    owned: Arc<OwnedObject>,
    /// What turns the bytes of the stream into stored ones, if they differ.
    sealer: Option<Sealer>,
}

impl ObjectStream {
    pub(crate) fn new(storage: Arc<Shared>, checkpoint: CheckpointId, scope: Scope) -> Self {
        let inline_threshold = storage.options.inline_threshold();
        Self {
            storage,
            checkpoint,
            scope,
            inline_threshold,
            buffer: Vec::new(),
            position: 0,
            digest: DigestBuilder::new(),
            open: None,
            usable: true,
        }
    }

    fn begin(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.usable, false) {
            return Err(Error::poisoned(
                "an earlier write of this checkpoint stream failed or was cancelled",
            )
            .with("checkpoint", self.checkpoint));
        }
        Ok(())
    }

    /// Ends an operation: after an error the object is removed.
    async fn end<T>(&mut self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => {
                self.usable = true;
                Ok(value)
            }
            Err(e) => {
                if let Some(open) = self.open.take() {
                    open.remove().await;
                }
                Err(e.with("checkpoint", self.checkpoint))
            }
        }
    }

    async fn append(&mut self, bytes: Bytes) -> Result<()> {
        self.position += bytes.len() as u64;
        let options = self.storage.options;
        let stays_inline = self.position <= self.inline_threshold as u64;
        if bytes.len() >= options.write_buffer() && !stays_inline {
            self.spill().await?;
            return self.put(bytes).await;
        }
        self.buffer.extend_from_slice(&bytes);
        if self.buffer.len() > options.write_buffer() {
            self.spill().await?;
        }
        Ok(())
    }

    /// Writes what is gathered.
    async fn spill(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffer);
        self.put(bytes.into()).await
    }

    async fn put(&mut self, bytes: Bytes) -> Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let open = create(&self.storage, self.checkpoint, self.scope).await?;
                self.open.insert(open)
            }
        };
        if let Some(sealer) = &mut open.sealer {
            self.digest.update(&bytes);
            let stored = sealer.write(&bytes)?;
            if stored.is_empty() {
                return Ok(());
            }
            let written = open.writer.write(stored).await;
            return written.map_err(|e| e.with("object", &open.path));
        }
        // The write is begun first, so that a store with threads of its own works while this one digests.
        let digest = &mut self.digest;
        let write = open.writer.write(bytes.clone());
        let (written, ()) = join(write, async { digest.update(&bytes) }).await;
        written.map_err(|e| e.with("object", &open.path))
    }

    /// Writes what stands at the end of a sealed object.
    async fn write_end(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        match open.sealer.take() {
            Some(sealer) => open.writer.write(sealer.finish()?).await,
            None => Ok(()),
        }
    }

    async fn complete(mut self) -> Result<Option<StateHandle>> {
        if self.position == 0 {
            return Ok(None);
        }
        if self.open.is_none() && self.buffer.len() <= self.inline_threshold {
            return Ok(Some(StateHandle::Inline(
                std::mem::take(&mut self.buffer).into(),
            )));
        }
        let spilled = self.spill().await;
        self.end(spilled).await?;
        let sealed = self.write_end().await;
        self.end(sealed).await?;
        let Some(OpenObject {
            path,
            writer,
            owned,
            ..
        }) = self.open.take()
        else {
            return Err(Error::bug("a stream with bytes has no object"));
        };
        match writer.finish().await {
            Ok(()) => {
                owned.settle();
                let (len, digest) = (self.digest.len(), self.digest.digest());
                Ok(Some(StateHandle::Object(ObjectHandle {
                    root: Root::Own,
                    path,
                    len,
                    digest,
                })))
            }
            Err(e) => {
                if e.kind() == ErrorKind::AlreadyExists
                    || self.storage.own.delete(path.as_str()).await.is_ok()
                {
                    owned.settle();
                }
                Err(e.with("object", path).with("checkpoint", self.checkpoint))
            }
        }
    }
}

/// Starts an object under a new name.
async fn create(storage: &Shared, checkpoint: CheckpointId, scope: Scope) -> Result<OpenObject> {
    for _ in 0..NAME_ATTEMPTS {
        let sealing = storage.own.sealing();
        let (ending, sealer) = if sealing.is_plain() {
            ("", None)
        } else {
            let sealer = Sealer::new(sealing.clone(), storage.names.random())?;
            (SEALED_ENDING, Some(sealer))
        };
        let name = format!("{}{ending}", storage.names.next());
        let path = storage.layout.path(checkpoint, scope, &name)?;
        let owned = OwnedObject::new(path.to_string(), &storage.reaper);
        match storage
            .own
            .create(path.as_str(), Arc::clone(&owned) as _)
            .await
        {
            Ok(writer) => {
                return Ok(OpenObject {
                    path,
                    writer,
                    owned,
                    sealer,
                });
            }
            // It is somebody else's: leave it alone.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => owned.settle(),
            Err(e) => return Err(e),
        }
    }
    Err(Error::retryable(format!(
        "{NAME_ATTEMPTS} attempts to create an object all found their name taken"
    ))
    .with("store", storage.own.url()))
}

impl OpenObject {
    /// Removes the object; if that fails, the reaper tries again.
    async fn remove(self) {
        match self.writer.abort().await {
            Ok(()) => self.owned.settle(),
            Err(e) => {
                tracing::debug!(object = %self.path, error = %e, "an unfinished object is left to be reaped")
            }
        }
    }
}

impl CheckpointStream for ObjectStream {
    fn inline_at_most(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.inline_threshold = self.inline_threshold.min(bytes);
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            self.begin()?;
            let outcome = self.append(bytes).await;
            self.end(outcome).await
        }
        .boxed()
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        async move {
            self.begin()?;
            let outcome = if self.open.is_some() || self.buffer.len() > self.inline_threshold {
                self.spill().await
            } else {
                Ok(())
            };
            self.end(outcome).await
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        async move {
            self.begin()?;
            self.complete().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some(open) = self.open {
                open.remove().await;
            }
        }
        .boxed()
    }
}
