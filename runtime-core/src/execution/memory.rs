use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_storage::{CheckpointMetadata, MemoryCheckpointStorage};
use futures_util::future::{BoxFuture, ready};
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Error, ErrorKind, OperatorSnapshot, Result,
};

use super::{CheckpointStore, LoadedCheckpoint, RestoreFrom, StoreStart};

/// Checkpoints in this process's memory: they survive a restart of the job, not of the process.
///
/// Every future is ready at once, so a driver without any I/O can run jobs on it.
#[derive(Clone)]
pub struct MemoryCheckpoints {
    shared: Arc<Mutex<Kept>>,
    storage: MemoryCheckpointStorage,
}

impl Default for MemoryCheckpoints {
    fn default() -> Self {
        Self::with_max_state_size(MemoryCheckpointStorage::DEFAULT_MAX_STATE_SIZE)
    }
}

#[derive(Default)]
struct Kept {
    attempts: u64,
    last_id: u64,
    completed: BTreeMap<CheckpointId, Arc<CheckpointMetadata>>,
}

impl MemoryCheckpoints {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store in which a state may take `bytes` at most.
    #[must_use]
    pub fn with_max_state_size(bytes: u64) -> Self {
        Self {
            shared: Arc::default(),
            storage: MemoryCheckpointStorage::new(bytes),
        }
    }

    /// Returns the completed checkpoints, oldest first.
    #[must_use]
    pub fn completed(&self) -> Vec<Arc<CheckpointMetadata>> {
        self.lock().completed.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attempt_of(&self, metadata: &CheckpointMetadata) -> Result<()> {
        let newest = self.lock().attempts;
        if metadata.attempt.0 < newest {
            return Err(
                Error::new(ErrorKind::Fenced, "a newer attempt has taken over")
                    .with("attempt", newest),
            );
        }
        Ok(())
    }
}

impl CheckpointStore for MemoryCheckpoints {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        let mut kept = self.lock();
        kept.attempts += 1;
        let start = StoreStart {
            attempt: Attempt(kept.attempts),
            next_checkpoint: CheckpointId(kept.last_id + 1),
            completed: kept.completed.values().cloned().collect(),
        };
        Box::pin(ready(Ok(start)))
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        Arc::new(self.storage)
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        let newest = self.lock().completed.values().next_back().cloned();
        let found = match from {
            RestoreFrom::Nothing => Ok(None),
            RestoreFrom::Latest => Ok(newest),
            RestoreFrom::Path(path) => match path.strip_prefix("chk-").and_then(|n| n.parse().ok())
            {
                Some(id) => Ok(self.lock().completed.get(&CheckpointId(id)).cloned()),
                None => Err(Error::not_found("no such checkpoint in memory").with("path", path)),
            },
        };
        let loaded = |metadata| LoadedCheckpoint {
            metadata,
            storage: Arc::new(self.storage),
        };
        Box::pin(ready(found.map(|metadata| metadata.map(loaded))))
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        Some(checkpoint_storage::layout::checkpoint_folder(id))
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        let result = self.attempt_of(&metadata).and_then(|()| {
            let mut kept = self.lock();
            let id = metadata.checkpoint;
            if kept.completed.contains_key(&id) {
                return Err(
                    Error::new(ErrorKind::AlreadyExists, "the checkpoint exists")
                        .with("checkpoint", id),
                );
            }
            kept.last_id = kept.last_id.max(id.0);
            kept.completed.insert(id, metadata);
            Ok(())
        });
        Box::pin(ready(result))
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        self.lock().completed.remove(&metadata.checkpoint);
        Box::pin(ready(Ok(())))
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        _snapshots: Vec<OperatorSnapshot>,
    ) -> BoxFuture<'_, Result<()>> {
        let mut kept = self.lock();
        kept.last_id = kept.last_id.max(id.0);
        Box::pin(ready(Ok(())))
    }
}
