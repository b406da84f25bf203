use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use checkpoint_storage::CheckpointMetadata;
use futures_util::future::BoxFuture;
use state_api::{CheckpointId, CheckpointStorage, Error, ObjectHandle, OperatorSnapshot, Result};

use super::faulty_storage::{Faults, FaultyStorage, failed};
use crate::execution::{CheckpointStore, LoadedCheckpoint, RestoreFrom, StoreStart};

/// How often a store fails, in a thousand calls of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Writing an object of a snapshot fails, at its first bytes or later; so does preparing the place of a savepoint.
    pub write: u32,
    /// Publishing fails, and the checkpoint does not exist.
    pub publish: u32,
    /// Publishing fails, and nobody knows whether the checkpoint exists; half of the time it does. So does noting that the job was
    /// stopped with a savepoint.
    pub publish_unknown: u32,
    /// Deleting fails and deletes nothing.
    pub delete: u32,
    /// Looking for checkpoints and reading their objects fails; a start half of the time after the attempt's number is taken, a claim
    /// after it is noted.
    pub read: u32,
    /// Any call takes its time: other things happen meanwhile.
    pub slow: u32,
}

/// A store of checkpoints that fails as only a seed decides.
#[derive(Clone)]
pub struct FaultyCheckpoints {
    inner: Arc<dyn CheckpointStore>,
    faults: Arc<Faults>,
    /// Whether it has taken the number of its attempt.
    started: Arc<AtomicBool>,
}

impl FaultyCheckpoints {
    /// Creates a store over another one.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStore>, faults: StoreFaults, seed: u64) -> Self {
        Self {
            inner,
            faults: Arc::new(Faults::new(faults, seed)),
            started: Arc::default(),
        }
    }

    /// Returns the number of calls that failed by intent.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.faults.injected()
    }

    /// Returns whether the number of its attempt was taken.
    pub(super) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    fn faulty(&self, inner: Arc<dyn CheckpointStorage>) -> Arc<dyn CheckpointStorage> {
        Arc::new(FaultyStorage::new(inner, Arc::clone(&self.faults)))
    }

    /// Lets what is read of a checkpoint fail, too.
    fn found(&self, loaded: LoadedCheckpoint) -> LoadedCheckpoint {
        LoadedCheckpoint {
            storage: self.faulty(loaded.storage),
            ..loaded
        }
    }
}

impl CheckpointStore for FaultyCheckpoints {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            let fails = self.faults.fails(self.faults.rates.read);
            if fails && self.faults.one_in_two() {
                return Err(failed("starting"));
            }
            let start = self.inner.start().await?;
            self.started.store(true, Ordering::Release);
            match fails {
                true => Err(failed("starting, and the attempt's number is taken")),
                false => Ok(start),
            }
        })
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        self.faulty(self.inner.storage())
    }

    fn claim<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<LoadedCheckpoint>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            let fails = self.faults.fails(self.faults.rates.read);
            if fails && self.faults.one_in_two() {
                return Err(failed("claiming"));
            }
            let claimed = self.inner.claim(path).await?;
            match fails {
                true => Err(failed("claiming, and the claim is noted")),
                false => Ok(self.found(claimed)),
            }
        })
    }

    fn delete_shared(&self, objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.delete().await?;
            self.inner.delete_shared(objects).await
        })
    }

    fn prepare_savepoint(
        &self,
        id: CheckpointId,
        target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            if self.faults.fails(self.faults.rates.write) {
                return Err(failed("preparing a savepoint"));
            }
            let storage = self.inner.prepare_savepoint(id, target).await?;
            Ok(self.faulty(storage))
        })
    }

    fn drain_savepoint(&self, id: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.delete().await?;
            self.inner.drain_savepoint(id).await
        })
    }

    fn storage_of(&self, id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        self.faulty(self.inner.storage_of(id))
    }

    fn note_stop(&self, savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            if self.faults.fails(self.faults.rates.publish_unknown) {
                if self.faults.one_in_two() {
                    self.inner.note_stop(savepoint).await?;
                }
                return Err(failed("noting a stop"));
            }
            self.inner.note_stop(savepoint).await
        })
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        self.inner.location(id)
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        Box::pin(async move {
            self.faults
                .read("looking for the checkpoint to start from")
                .await?;
            let found = self.inner.load(from).await?;
            Ok(found.map(|found| self.found(found)))
        })
    }

    fn check_fenced(&self) -> Option<BoxFuture<'static, Result<()>>> {
        let check = self.inner.check_fenced();
        let faults = Arc::clone(&self.faults);
        Some(Box::pin(async move {
            faults.read("looking for a newer attempt").await?;
            match check {
                Some(check) => check.await,
                None => Ok(()),
            }
        }))
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        Box::pin(async move {
            self.faults.read("looking for what was published").await?;
            let found = self.inner.find_published(id).await?;
            Ok(found.map(|found| self.found(found)))
        })
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            if self.faults.fails(self.faults.rates.publish) {
                return Err(Error::invalid("a simulated fault: not published"));
            }
            if self.faults.fails(self.faults.rates.publish_unknown) {
                if self.faults.one_in_two() {
                    self.inner.publish(metadata).await?;
                }
                return Err(failed("publishing"));
            }
            self.inner.publish(metadata).await?;
            self.faults.dawdle().await;
            Ok(())
        })
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.dawdle().await;
            if self.faults.fails(self.faults.rates.write) {
                return Err(failed("noting the end"));
            }
            self.inner.end().await
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.delete().await?;
            self.inner.sweep().await
        })
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.delete().await?;
            self.inner.discard(metadata).await
        })
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.faults.delete().await?;
            self.inner.discard_unpublished(id, snapshots).await
        })
    }
}

#[cfg(test)]
mod tests {
    use checkpoint_storage::{MemoryStore, StoreRoot, StreamOptions, UuidSource};
    use futures_util::FutureExt;
    use state_api::{ErrorKind, JobId, Scope, StateHandle};

    use super::*;
    use crate::execution::FolderCheckpoints;

    fn now<T>(future: impl Future<Output = T>) -> T {
        future
            .now_or_never()
            .expect("a store in memory is always ready")
    }

    #[test]
    fn all_that_is_read_fails_as_often_as_asked() {
        let root = StoreRoot::memory(&MemoryStore::new(), "all");
        let store = |read, attempt| {
            let store = FolderCheckpoints::new(
                root.clone(),
                JobId::new("job").unwrap(),
                UuidSource::seeded(attempt),
                StreamOptions::new(0, 64).unwrap(),
            );
            let faults = StoreFaults {
                read,
                ..StoreFaults::default()
            };
            FaultyCheckpoints::new(Arc::new(store), faults, attempt)
        };
        let good = store(0, 1);
        now(good.start()).unwrap();
        let mut stream = good.storage().create(CheckpointId(1), Scope::Exclusive);
        now(stream.write(bytes::Bytes::from_static(b"state"))).unwrap();
        let Some(StateHandle::Object(object)) = now(stream.finish()).unwrap() else {
            panic!("it is an object");
        };
        let mut reader = now(good.storage_of(CheckpointId(1)).open(&object)).unwrap();
        assert_eq!(now(reader.next()).unwrap().unwrap().as_ref(), b"state");
        assert_eq!(good.injected(), 0);

        let (mut before, mut after) = (0, 0);
        for attempt in 2..20 {
            let bad = store(1000, attempt);
            let started = now(bad.start());
            assert_eq!(started.unwrap_err().kind(), ErrorKind::Retryable);
            *if bad.has_started() {
                &mut after
            } else {
                &mut before
            } += 1;
        }
        assert!(before > 0 && after > 0, "{before} and {after}");
        let bad = store(1000, 20);
        let (latest, id) = (RestoreFrom::Latest, CheckpointId(1));
        let storage = bad.storage_of(id);
        let failed = [
            now(bad.load(&latest)).map(drop),
            now(bad.find_published(id)).map(drop),
            now(storage.open(&object)).map(drop),
            now(storage.read_range(&object, 0..1)).map(drop),
        ];
        for result in &failed {
            let error = result.as_ref().unwrap_err();
            assert!(error.to_string().contains("a simulated fault"), "{error}");
        }
        assert_eq!(bad.injected(), failed.len() as u64);
    }
}
