use std::ops::Range;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use futures_core::future::BoxFuture;

use crate::{CheckpointId, ObjectHandle, Result, StateHandle};

/// Says who may refer to an object, and so where it lies and who deletes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One checkpoint; it goes when the checkpoint goes.
    Exclusive,
    /// Several checkpoints; it goes when the last of them goes.
    Shared,
    /// The task that wrote it, which deletes it itself.
    TaskOwned,
}

/// Where the bytes of snapshots go, as a task sees it.
///
/// # Contract
/// Implemented by `checkpoint-storage` and by tests; called from I/O and CPU threads at once.
/// An object that a finished stream reports is complete and durable (its folder too) and is never changed again.
/// No name is used twice. What a stream wrote but did not finish is removed, by the stream itself or by the storage.
pub trait CheckpointStorage: Send + Sync {
    /// Opens a stream for one object. Nothing is created in the store before bytes must leave memory.
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream>;

    /// Reads part of an object.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, when it is missing or shorter than its handle says; `Retryable` when the store fails.
    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>>;

    /// Opens an object for reading from start to end, with its digest checked.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, when it is missing; `Retryable` when the store fails.
    fn open<'a>(&'a self, object: &'a ObjectHandle)
    -> BoxFuture<'a, Result<Box<dyn ObjectReader>>>;

    /// Learns that a finished object will belong to no checkpoint: its snapshot was cancelled or failed elsewhere.
    ///
    /// The storage removes it some time later. Objects that were acknowledged are the coordinator's to remove.
    fn discard(&self, object: &ObjectHandle) {
        let _ = object;
    }

    /// Puts the bytes of an object at a local path that is free, out of a copy on local disk: no store is asked.
    ///
    /// Returns whether it did; then the file has the length and the digest of the object, and must not be changed, since it may
    /// be the copy itself under a second name. Otherwise nothing is at the path. Storages without local copies have none.
    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        let _ = (object, to);
        Box::pin(std::future::ready(false))
    }

    /// Learns that a local file, which will not be changed, has the bytes of an object: a copy of it can be kept.
    ///
    /// Failing to keep one harms nobody and is told to nobody here.
    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        let _ = (object, file);
        Box::pin(std::future::ready(()))
    }
}

/// Reads an object from start to end.
///
/// # Contract
/// Implemented by storages. Bytes handed out before the end are not yet proven: whoever uses them must be able to throw the result away.
pub trait ObjectReader: Send {
    /// Returns the next bytes, or `None` after the last when length and digest are right.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, when length or digest differ; `Retryable` when the store fails.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>>;

    /// As [`next`](Self::next), in one piece of so many bytes if the reader can choose and the object has as many left.
    ///
    /// # Errors
    /// As there.
    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let _ = bytes;
        self.next()
    }
}

/// Writes one object, or bytes that stay inline if they are few.
///
/// # Contract
/// Implemented by storages; used by one task at a time. Dropping or aborting a stream removes its own object and nothing else.
/// After an error the stream can only be aborted or dropped.
pub trait CheckpointStream: Send {
    /// Says that all bytes to come are those of a local file, which stays as it is until the stream is finished or dropped.
    ///
    /// To be said before the first byte. Where copies are kept on local disk, the file gets a second name instead of being
    /// written a second time.
    fn written_from(&mut self, file: &Path) {
        let _ = file;
    }

    /// Says how many bytes may stay inline at most: more become an object, where there are objects at all.
    ///
    /// To be said before the first byte, of what the handles of many checkpoints will repeat.
    fn inline_at_most(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Says that the object is for the handles of later checkpoints, not for that of the one it is written beside.
    ///
    /// To be said before the first byte. Where copies are kept on local disk, that of the object stays until the handles of a
    /// checkpoint have it or it is [discarded](CheckpointStorage::discard).
    fn for_later(&mut self) {}

    /// Appends bytes.
    ///
    /// # Errors
    /// `LimitExceeded` past the storage's limit, `Poisoned` after an earlier error, `Retryable` when the store fails.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>>;

    /// Returns the number of bytes written so far, buffered ones included.
    fn position(&self) -> u64;

    /// Hands buffered bytes to the store if an object is open or the inline threshold is passed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn flush(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Closes the stream: inline bytes or a durable object; `None` if nothing was written.
    ///
    /// # Errors
    /// As [`write`](Self::write); the object is removed then.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>>;

    /// Gives up: removes what was written. Failures to remove are left to the storage's clean-up.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Reads all bytes that a handle points at, inline or in an object, with length and digest checked.
///
/// # Errors
/// Those of [`CheckpointStorage::open`] and [`ObjectReader::next`].
pub async fn read_handle(storage: &dyn CheckpointStorage, handle: &StateHandle) -> Result<Bytes> {
    let object = match handle {
        StateHandle::Inline(bytes) => return Ok(bytes.clone()),
        StateHandle::Object(object) => object,
    };
    let mut reader = storage.open(object).await?;
    let Some(first) = reader.next().await? else {
        return Ok(Bytes::new());
    };
    let Some(second) = reader.next().await? else {
        return Ok(first);
    };
    let mut all = BytesMut::from(first);
    all.extend_from_slice(&second);
    while let Some(bytes) = reader.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
}

/// Hands all bytes that a handle points at to a function, piece after piece, with length and digest checked at the end.
///
/// Memory does not grow with the object. On an error, throw away what came out of the pieces before.
///
/// # Errors
/// Those of `take`, naming the object, if all bytes are as they were written; those of [`CheckpointStorage::open`] and [`ObjectReader::next`].
pub async fn read_pieces(
    storage: &dyn CheckpointStorage,
    handle: &StateHandle,
    mut take: impl FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let object = match handle {
        StateHandle::Inline(bytes) => return take(bytes.clone()),
        StateHandle::Object(object) => object,
    };
    let mut reader = storage.open(object).await?;
    while let Some(bytes) = reader.next_piece(PIECE).await? {
        if let Err(refused) = take(bytes) {
            // Damage is what to report, whatever it was taken for.
            while reader.next_piece(PIECE).await?.is_some() {}
            return Err(refused.with("object", object));
        }
    }
    Ok(())
}
