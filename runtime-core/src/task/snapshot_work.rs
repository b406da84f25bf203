use std::fmt;
use std::future::Future;

use futures_util::future::{BoxFuture, FutureExt};
use state_api::{CancelToken, PersistContext, Result};

type Start = Box<dyn FnOnce(PersistContext) -> BoxFuture<'static, Result<()>> + Send>;

/// Work that an operator hands to the async part of a snapshot: it must succeed before the checkpoint may complete.
///
/// For what an operator holds outside of its states and must be safe by then, such as a buffer on its way to another system.
/// It runs on other threads while the operator goes on, before the operator's states are written. Its error declines the
/// checkpoint. It may be dropped at any await point, and end without a checkpoint that names it: so what it does must be
/// repeatable, and is repeated by the next snapshot if the operator hands it over again.
///
/// ```
/// use runtime_core::task::SnapshotWork;
///
/// let buffer = vec![1_u8, 2, 3];
/// let work = SnapshotWork::blocking(move |cancel| {
///     for byte in &buffer {
///         cancel.check()?;
///         // Send it.
/// #       let _ = byte;
///     }
///     Ok(())
/// });
/// # let _ = work;
/// ```
pub struct SnapshotWork(Start);

impl SnapshotWork {
    /// Creates work that waits for I/O: polled on the threads that write snapshots, dropped when the checkpoint is aborted.
    pub fn future(work: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self(Box::new(move |_| work.boxed()))
    }

    /// Creates work that blocks or computes: run on a thread for that. It looks at the token now and then, and ends early when
    /// the checkpoint is aborted.
    pub fn blocking(work: impl FnOnce(&CancelToken) -> Result<()> + Send + 'static) -> Self {
        Self(Box::new(move |cx| {
            async move {
                let cancel = cx.cancel.clone();
                cx.on_cpu(move || work(&cancel)).await
            }
            .boxed()
        }))
    }

    /// Creates work that needs what snapshots are written with: the storage of the checkpoint, threads, the token.
    pub fn with_context<F>(work: impl FnOnce(PersistContext) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self(Box::new(move |cx| work(cx).boxed()))
    }

    pub(crate) async fn run(self, cx: PersistContext) -> Result<()> {
        (self.0)(cx).await
    }
}

impl fmt::Debug for SnapshotWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotWork").finish_non_exhaustive()
    }
}
