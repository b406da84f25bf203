//! A local folder for snapshots.
use std::sync::Arc;

use checkpoint_storage::{ObjectCheckpointStorage, StoreRoot, StreamOptions, UuidSource};
use runtime_core::execution::TokioExecutor;
use state_api::{
    Attempt, CancelToken, CheckpointId, CheckpointStorage, Error, Executor, KeyedHandle,
    PersistContext, RestoreContext, Result, Snapshot, SnapshotKind, SnapshotRequest, StateHandle,
};
use tokio::runtime::Runtime;

/// A local folder for snapshots, removed at the end, and the threads that write them.
///
/// The folder lies where `TMPDIR` says.
pub struct Disk {
    folder: tempfile::TempDir,
    runtime: Runtime,
    storage: Arc<dyn CheckpointStorage>,
}

/// Asks for a checkpoint.
#[must_use]
pub fn request(checkpoint: u64) -> SnapshotRequest {
    SnapshotRequest {
        checkpoint: CheckpointId(checkpoint),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    }
}

impl Disk {
    /// Creates an empty folder.
    ///
    /// # Errors
    /// `Config` when there is no place for one.
    pub fn new() -> Result<Self> {
        let failed =
            |error| Error::config("can't make a folder for snapshots, or threads").caused_by(error);
        let folder = tempfile::tempdir().map_err(failed)?;
        let runtime = Runtime::new().map_err(failed)?;
        let root = StoreRoot::local(folder.path().join("job"), runtime.handle().clone())?;
        let storage = Arc::new(ObjectCheckpointStorage::new(
            root,
            Attempt(1),
            UuidSource::machine(),
            StreamOptions::default(),
        ));
        Ok(Self {
            folder,
            runtime,
            storage,
        })
    }

    /// Returns the same threads with another storage.
    #[must_use]
    pub fn with_storage(mut self, storage: Arc<dyn CheckpointStorage>) -> Self {
        self.storage = storage;
        self
    }

    /// Returns the runtime.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(TokioExecutor::new(self.runtime.handle().clone()))
    }

    /// Returns what the async part of a snapshot may use; encoded bytes that wait may go to the folder.
    #[must_use]
    pub fn persist_context(&self, checkpoint: u64) -> PersistContext {
        PersistContext {
            checkpoint: CheckpointId(checkpoint),
            storage: Arc::clone(&self.storage),
            cancel: CancelToken::new(),
            executor: self.executor(),
            spill_dir: Some(self.folder.path().to_path_buf()),
        }
    }

    /// Returns what a restore may use.
    #[must_use]
    pub fn restore_context(&self) -> RestoreContext {
        RestoreContext {
            storage: Arc::clone(&self.storage),
            executor: self.executor(),
        }
    }

    /// Runs the async part of a snapshot and waits for it.
    ///
    /// # Errors
    /// Those of the snapshot.
    pub fn persist(
        &self,
        checkpoint: u64,
        snapshot: Box<dyn Snapshot<Vec<KeyedHandle>>>,
    ) -> Result<Vec<KeyedHandle>> {
        let cx = self.persist_context(checkpoint);
        self.runtime.block_on(snapshot.persist(cx))
    }

    /// Removes the objects of a snapshot that is not needed any more.
    pub fn remove(&self, handles: &[KeyedHandle]) {
        let parts = handles.iter().flat_map(KeyedHandle::parts);
        for object in parts.filter_map(StateHandle::object) {
            let file = self.folder.path().join("job").join(object.path.as_str());
            // A file that stays goes with the folder.
            drop(std::fs::remove_file(file));
        }
    }
}

/// Returns the bytes that handles refer to.
#[must_use]
pub fn bytes_of(handles: &[KeyedHandle]) -> u64 {
    handles
        .iter()
        .flat_map(KeyedHandle::parts)
        .map(StateHandle::len)
        .sum()
}
