use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use futures_core::future::BoxFuture;

use crate::{CancelToken, CheckpointId, CheckpointStorage, Error, Result};

/// What a snapshot is for, and so what it may share with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    /// A checkpoint; it may reuse objects of the last completed one.
    Checkpoint,
    /// A checkpoint that reuses nothing, but may be reused.
    FullCheckpoint,
    /// A savepoint in the backend's own format: self-contained, tracked by nobody.
    NativeSavepoint,
    /// A savepoint in the canonical format, readable by every backend.
    CanonicalSavepoint,
}

impl SnapshotKind {
    /// Returns whether the user owns the result.
    #[must_use]
    pub fn is_savepoint(self) -> bool {
        matches!(self, Self::NativeSavepoint | Self::CanonicalSavepoint)
    }
}

/// Asks a backend for a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotRequest {
    /// The checkpoint it becomes part of.
    pub checkpoint: CheckpointId,
    /// What it is for.
    pub kind: SnapshotKind,
    /// Wall-clock time of the cut in milliseconds, for time-to-live filters.
    pub now_ms: i64,
}

/// Runs work off the task's thread.
///
/// # Contract
/// Implemented by the runtime and by tests; called from any thread. Work that was handed over runs or is dropped at shutdown.
pub trait Executor: Send + Sync {
    /// Runs a future that mostly waits for I/O.
    fn spawn_io(&self, future: BoxFuture<'static, ()>);

    /// Runs work that keeps a core busy.
    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>);

    /// Waits for so many milliseconds before something is tried again; the default does not wait.
    fn pause(&self, ms: u64) -> BoxFuture<'static, ()> {
        let _ = ms;
        Box::pin(std::future::ready(()))
    }
}

impl dyn Executor {
    /// Runs work on a CPU thread; the future gives its result. The work runs whether that is waited for or not.
    ///
    /// # Errors
    /// Those of the work; `User` if it panicked, `Cancelled` if the executor dropped it.
    pub fn on_cpu<T: Send + 'static, W: FnOnce() -> Result<T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T>> + Send + use<T, W> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        self.spawn_cpu(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Err(Error::panicked("the work", panic.as_ref())));
            // A receiver that is gone was cancelled: the result is not wanted.
            drop(sender.send(result));
        }));
        async {
            receiver
                .await
                .unwrap_or_else(|_| Err(Error::cancelled("the executor dropped the work")))
        }
    }
}

/// What the async part of a snapshot may use.
#[derive(Clone)]
pub struct PersistContext {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Where bytes go.
    pub storage: Arc<dyn CheckpointStorage>,
    /// Set when nobody wants the result any more.
    pub cancel: CancelToken,
    /// Threads to work on.
    pub executor: Arc<dyn Executor>,
    /// Local folder for encoded bytes that the store is too slow to take; without one, they wait in memory.
    pub spill_dir: Option<PathBuf>,
}

impl PersistContext {
    /// Creates a context that nobody cancels and that keeps encoded bytes in memory until the store takes them.
    #[must_use]
    pub fn new(
        checkpoint: CheckpointId,
        storage: Arc<dyn CheckpointStorage>,
        executor: Arc<dyn Executor>,
    ) -> Self {
        Self {
            checkpoint,
            storage,
            cancel: CancelToken::new(),
            executor,
            spill_dir: None,
        }
    }

    /// Runs work on a CPU thread and waits for its result; see [`on_cpu`](trait.Executor.html#method.on_cpu).
    ///
    /// # Errors
    /// As there.
    pub async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.executor.on_cpu(work).await
    }
}

/// The async part of a snapshot: frozen state on its way to the store.
///
/// # Contract
/// Implemented by backends; made on the task's thread, run on others. Dropping it, at any await point too, releases what is
/// frozen and leaves no object behind (`rules::faults::a_hanging_snapshot_can_be_cancelled` in `backend-testkit`,
/// `rules::isolation::a_dropped_snapshot_leaves_nothing`). An error of the storage fails it alone
/// (`rules::faults::a_failing_store_fails_the_snapshot_alone`).
pub trait Snapshot<H>: Send {
    /// Writes everything and returns the handles.
    ///
    /// # Errors
    /// `Cancelled` after the context's token is set, `LimitExceeded` when the frozen state had to be let go, and those of the storage.
    fn persist(self: Box<Self>, cx: PersistContext) -> BoxFuture<'static, Result<H>>;
}
