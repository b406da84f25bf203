//! Publishing: an object appears whole, durable and only once, or not at all.
use std::fmt;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, Result};

mod conditional;
mod local;
mod memory;
mod probe;

pub use conditional::ConditionalPublish;
pub use local::LocalPublish;
pub use memory::MemoryPublish;
pub use probe::{ProbeOptions, probe};

/// The bytes of an object to be published, given out part by part from front to back.
///
/// # Contract
/// Implemented by what is too large to stand in memory as a whole; called by [`Publish`], from one thread at a time.
/// - The parts are [`len`](Content::len) bytes together.
/// - After an error nothing more is asked for.
pub trait Content: Send {
    /// Returns the number of bytes of the whole object.
    fn len(&self) -> u64;

    /// Returns whether the object has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the next part to an empty buffer, which stays empty at the end.
    ///
    /// # Errors
    /// Those of whoever makes the bytes.
    fn next_part(&mut self, buffer: &mut Vec<u8>) -> Result<()>;
}

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

    /// Creates the object out of parts; a store that can't write it part by part gathers them.
    ///
    /// # Errors
    /// As [`Publish::publish`], and those of the content; `Bug` when that is not as long as it says.
    fn publish_parts<'a>(
        &'a self,
        path: &'a str,
        content: &'a mut dyn Content,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut whole = Vec::with_capacity(usize::try_from(content.len()).unwrap_or(0));
            let mut part = Vec::new();
            loop {
                content.next_part(&mut part)?;
                if part.is_empty() {
                    break;
                }
                whole.append(&mut part);
            }
            check_len(content.len(), whole.len() as u64)?;
            self.publish(path, whole.into()).await
        }
        .boxed()
    }
}

fn check_len(said: u64, given: u64) -> Result<()> {
    if said == given {
        return Ok(());
    }
    Err(Error::bug(format!(
        "an object to be published has {given} bytes and was to have {said}"
    )))
}
