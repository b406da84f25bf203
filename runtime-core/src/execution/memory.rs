use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_storage::{CheckpointMetadata, MemoryCheckpointStorage};
use futures_util::future::{BoxFuture, ready};
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Error, ErrorKind, OperatorSnapshot, Result,
};

use super::checkpoints::stopped_with;
use super::{CheckpointStore, LoadedCheckpoint, RestoreFrom, StoreStart};

/// Checkpoints in this process's memory: they survive a restart of the job, not of the process.
///
/// Every future is ready at once, so a driver without any I/O can run jobs on it. Clones lead to the same checkpoints, each
/// for attempts of its own: once another one has started, it is fenced.
pub struct MemoryCheckpoints {
    shared: Arc<Mutex<Kept>>,
    storage: MemoryCheckpointStorage,
    /// The attempt that was started here; 0 for none.
    attempt: AtomicU64,
    fenced: bool,
}

impl Clone for MemoryCheckpoints {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            storage: self.storage,
            attempt: AtomicU64::new(0),
            fenced: self.fenced,
        }
    }
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
    /// The names of savepoints of this attempt.
    places: BTreeMap<CheckpointId, String>,
    savepoints: BTreeMap<String, Arc<CheckpointMetadata>>,
    /// The savepoints that the job was stopped with.
    stopped: BTreeMap<CheckpointId, String>,
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
            attempt: AtomicU64::new(0),
            fenced: true,
        }
    }

    /// Creates an empty store that lets older attempts go on: to see that a test notices.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn unfenced() -> Self {
        Self {
            fenced: false,
            ..Self::new()
        }
    }

    /// Returns the completed checkpoints, oldest first.
    #[must_use]
    pub fn completed(&self) -> Vec<Arc<CheckpointMetadata>> {
        self.lock().completed.values().cloned().collect()
    }

    /// Returns the savepoints by their names, which [`RestoreFrom::Path`] takes.
    #[must_use]
    pub fn savepoints(&self) -> BTreeMap<String, Arc<CheckpointMetadata>> {
        self.lock().savepoints.clone()
    }

    /// Deletes a savepoint, as its owner may; returns whether it was there.
    pub fn delete_savepoint(&self, name: &str) -> bool {
        self.lock().savepoints.remove(name).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that no newer attempt has started elsewhere.
    fn check_attempt(&self, mine: u64) -> Result<()> {
        let newest = self.lock().attempts;
        if self.fenced && mine < newest {
            return Err(
                Error::new(ErrorKind::Fenced, "a newer attempt has taken over")
                    .with("attempt", newest),
            );
        }
        Ok(())
    }

    fn check_own(&self) -> Result<()> {
        match self.attempt.load(Ordering::Acquire) {
            0 => Ok(()),
            mine => self.check_attempt(mine),
        }
    }
}

impl CheckpointStore for MemoryCheckpoints {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        let mut kept = self.lock();
        kept.attempts += 1;
        kept.places.clear();
        self.attempt.store(kept.attempts, Ordering::Release);
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
            RestoreFrom::Latest => match self.lock().stopped.last_key_value() {
                Some((id, name)) if newest.as_ref().is_none_or(|n| n.checkpoint < *id) => {
                    Err(stopped_with(name))
                }
                _ => Ok(newest),
            },
            RestoreFrom::Path(path) => match path.strip_prefix("chk-").and_then(|n| n.parse().ok())
            {
                Some(id) => self.lock().completed.get(&CheckpointId(id)).cloned(),
                None => self.lock().savepoints.get(path).cloned(),
            }
            .map(Some)
            .ok_or_else(|| Error::not_found("no such checkpoint in memory").with("path", path)),
        };
        let loaded = |metadata| LoadedCheckpoint {
            metadata,
            storage: Arc::new(self.storage),
        };
        Box::pin(ready(found.map(|metadata| metadata.map(loaded))))
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        let kept = self.lock();
        let found = match kept.stopped.get(&id) {
            Some(name) => Err(stopped_with(name)),
            None => {
                let own = Attempt(self.attempt.load(Ordering::Acquire));
                let found = kept.completed.get(&id);
                Ok(found.filter(|found| found.attempt == own).cloned())
            }
        };
        let loaded = |metadata| LoadedCheckpoint {
            metadata,
            storage: Arc::new(self.storage),
        };
        Box::pin(ready(found.map(|metadata| metadata.map(loaded))))
    }

    fn claim<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<LoadedCheckpoint>> {
        Box::pin(async move {
            let from = RestoreFrom::Path(path.to_owned());
            let loaded = self
                .load(&from)
                .await?
                .ok_or_else(|| Error::bug("a path leads to a checkpoint or to an error"))?;
            if loaded.metadata.kind.is_savepoint() {
                let id = loaded.metadata.checkpoint;
                self.lock().places.insert(id, path.to_owned());
            }
            Ok(loaded)
        })
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        let place = self.lock().places.get(&id).cloned();
        Some(place.unwrap_or_else(|| checkpoint_storage::layout::checkpoint_folder(id)))
    }

    fn prepare_savepoint(
        &self,
        id: CheckpointId,
        target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        let above = target.map_or(String::new(), |target| {
            format!("{}/", target.trim_end_matches('/'))
        });
        let result = self.check_own().map(|()| {
            let mut kept = self.lock();
            let attempt = kept.attempts;
            let name = format!("{above}savepoint-{attempt}-{id}");
            kept.last_id = kept.last_id.max(id.0);
            kept.places.insert(id, name);
            Arc::new(self.storage) as Arc<dyn CheckpointStorage>
        });
        Box::pin(ready(result))
    }

    fn note_stop(&self, savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        let result = self.check_own().map(|()| {
            let mut kept = self.lock();
            if let Some(name) = kept.places.get(&savepoint).cloned() {
                kept.stopped.insert(savepoint, name);
            }
        });
        Box::pin(ready(result))
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        let own = self.check_attempt(metadata.attempt.0);
        let result = own.and_then(|()| {
            let mut kept = self.lock();
            let id = metadata.checkpoint;
            if metadata.kind.is_savepoint() {
                let name = kept.places.get(&id).cloned().ok_or_else(|| {
                    Error::bug("no place was prepared for the savepoint").with("checkpoint", id)
                })?;
                kept.savepoints.insert(name, metadata);
                return Ok(());
            }
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
        let result = self.check_own().map(|()| {
            let mut kept = self.lock();
            if metadata.kind.is_savepoint() {
                kept.stopped.remove(&metadata.checkpoint);
                if let Some(name) = kept.places.remove(&metadata.checkpoint) {
                    kept.savepoints.remove(&name);
                }
            } else {
                kept.completed.remove(&metadata.checkpoint);
            }
        });
        Box::pin(ready(result))
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        _snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        let result = self.check_own().map(|()| {
            let mut kept = self.lock();
            kept.last_id = kept.last_id.max(id.0);
            kept.places.remove(&id);
        });
        Box::pin(ready(result))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use state_api::{JobId, SnapshotKind};

    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("memory is always ready")
    }

    #[test]
    fn a_fenced_attempt_neither_notes_a_stop_nor_touches_the_savepoints_of_its_successor() {
        let old = MemoryCheckpoints::new();
        let new = old.clone();
        let id = CheckpointId(3);
        let attempt = now(old.start()).unwrap().attempt;
        now(old.prepare_savepoint(id, None)).unwrap();
        let job = JobId::new("job").unwrap();
        let kind = SnapshotKind::CanonicalSavepoint;
        let savepoint = CheckpointMetadata::new(id, job, attempt, kind, 0);
        now(old.publish(Arc::new(savepoint))).unwrap();
        // It was frozen before it could say so.
        now(new.start()).unwrap();
        now(new.prepare_savepoint(id, None)).unwrap();
        let place = new.location(id);
        let fenced = [
            now(old.note_stop(id)),
            now(old.discard_unpublished(id, Vec::new())),
            now(old.prepare_savepoint(id, Some("there".into()))).map(drop),
        ];
        for result in fenced {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Fenced);
        }
        assert!(now(new.load(&RestoreFrom::Latest)).unwrap().is_none());
        assert_eq!(new.location(id), place);
    }
}
