//! Stores of immutable objects under `/`-separated paths.
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{Error, Result};

mod entropy;
mod local;
mod memory;
mod opendal;
mod uploads;

pub(crate) use entropy::{EntropyPath, EntropyPublish, EntropyStore, check_marker};
pub use local::LocalStore;
pub(crate) use local::{LocalFolder, io_error, parent, sync_folder};
pub use memory::MemoryStore;
pub use opendal::OpendalStore;
pub(crate) use opendal::{Failure, on_runtime};
pub use uploads::OpenUpload;
#[cfg(feature = "http")]
pub(crate) use uploads::Uploads;

/// Something that a store holds as long as an operation on an object may still run, even if nobody waits for it.
///
/// When the last clone is dropped, the object can be removed for good: nothing can create it afterwards.
pub type Lease = Arc<dyn Any + Send + Sync>;

/// Whether somebody holds an object; see [`ObjectStore::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A process that lives.
    BySomebody,
    /// None, or one that has ended, however it ended.
    ByNobody,
    /// The store can't tell.
    Unknown,
}

/// What a folder of a store holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreEntry {
    /// Name within the folder, without a slash.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_folder: bool,
    /// Length of an object in bytes, where the listing tells.
    pub len: Option<u64>,
}

/// A store of objects: a local folder, a bucket, memory.
///
/// # Contract
/// Implemented here and by whoever injects faults; called from any thread at once, whether or not it belongs to an async runtime.
/// Paths are relative to the store's root, `/`-separated, without empty, `.` or `..` segments; the empty path is the root.
/// What [`ObjectWriter::finish`] reports as finished is complete and durable, the entry in its folder too.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// Starts a new object; fails if the path is taken.
    ///
    /// # Errors
    /// `AlreadyExists` where the store can tell; `Retryable` when it fails.
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>>;

    /// Reads a part of an object; fewer bytes come back when the object ends inside the range.
    ///
    /// # Errors
    /// `NotFound`; `Retryable` when the store fails.
    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>>;

    /// Returns the length of an object in bytes, or `None` if there is no such object.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Returns what lies directly in a folder, ordered by name; nothing if the folder is missing.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>>;

    /// Deletes an object; it is not an error if it is gone.
    ///
    /// # Errors
    /// `Retryable` when the object is still there.
    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>>;

    /// Removes a folder if it is empty, and returns whether it is gone.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>>;

    /// Makes earlier deletes in a folder durable.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>>;

    /// Holds an object for as long as the lease lives, so that others see that this process lives; `None` where a store
    /// has no such thing, or somebody else holds it.
    ///
    /// It keeps nobody from anything.
    ///
    /// # Errors
    /// `NotFound`; `Retryable` when the store fails.
    fn hold(&self, _path: &str) -> BoxFuture<'_, Result<Option<Lease>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Looks whether somebody holds an object.
    ///
    /// # Errors
    /// `NotFound`; `Retryable` when the store fails.
    fn held(&self, _path: &str) -> BoxFuture<'_, Result<Held>> {
        Box::pin(std::future::ready(Ok(Held::Unknown)))
    }

    /// Returns the uploads below a folder, at any depth, that were neither completed nor given up; `None` where a store has
    /// none or can't tell.
    ///
    /// # Errors
    /// `Config` when access is denied; `Retryable` when the store fails.
    fn open_uploads(&self, _folder: &str) -> BoxFuture<'_, Result<Option<Vec<OpenUpload>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Frees the parts of an open upload, whose writer then fails; an object that an upload became is never touched.
    ///
    /// # Errors
    /// `Unsupported` where a store has no uploads; `Retryable` when the parts are still there.
    fn give_up_upload(&self, upload: &OpenUpload) -> BoxFuture<'_, Result<()>> {
        let error =
            Error::unsupported("the store has no uploads in parts").with("object", &upload.path);
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Writes one new object.
///
/// # Contract
/// Implemented by stores. After an error, and after a future was dropped before it was ready, only `abort` or dropping is allowed.
/// Dropping leaves the object, whole or in part, to the owner of the [`Lease`].
pub trait ObjectWriter: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>>;

    /// Completes the object and makes it durable.
    ///
    /// # Errors
    /// `Retryable` when the store fails; part of the object may be left.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Gives up and removes what was written.
    ///
    /// # Errors
    /// `Retryable` when part of the object is left.
    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}
