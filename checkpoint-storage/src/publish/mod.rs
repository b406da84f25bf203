//! Publishing: an object appears whole, durable and only once, or not at all.
use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::Result;

mod conditional;
mod local;
mod memory;
mod probe;

pub use conditional::ConditionalPublish;
pub use local::LocalPublish;
pub use memory::MemoryPublish;
pub use probe::{ProbeOptions, probe};

/// Creates an object that makes others count: a checkpoint's metadata, an attempt's number.
///
/// # Contract
/// Implemented here, one per kind of store, and by whoever injects faults; called from any thread.
/// - Of any number of racing callers for one path, one succeeds and the others get `AlreadyExists`.
/// - Nobody ever sees part of the object under its path, not even after a crash.
/// - On success it is durable, and so is the entry in its folder.
/// - After an error other than `AlreadyExists` it may or may not be there; if it is, it is whole.
pub trait Publish: Send + Sync + fmt::Debug {
    /// Returns the method in a few words, for error messages.
    fn method(&self) -> &'static str;

    /// Creates the object.
    ///
    /// # Errors
    /// `AlreadyExists` when the path is taken; `Retryable` when the store fails.
    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>>;
}
