use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_storage::CheckpointMetadata;
use state_api::{CheckpointId, Error, ErrorKind, ObjectHandle};

use super::CheckpointStore;

/// Checkpoints that failed to go and are tried again in one round; the others wait for a later one.
const TRIED_AGAIN: usize = 16;

/// How often objects that can't be deleted are tried; then they are left to a clean-up.
const TRIES: u32 = 4;

/// What of a job is to be deleted: whole checkpoints, and shared objects that no retained one uses.
///
/// A shared object goes only after every checkpoint that was given up before it and names it: as long as it is not known that
/// such a checkpoint is gone, somebody may claim it. What fails is tried again in later rounds, and no two rounds are under
/// way at once.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    queue: Mutex<Queue>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Queue {
    checkpoints: VecDeque<Doomed>,
    objects: Vec<Unused>,
}

/// A checkpoint that is to be deleted.
#[derive(Clone, Debug)]
struct Doomed {
    metadata: Arc<CheckpointMetadata>,
    tried: bool,
}

/// An object that no retained checkpoint uses.
#[derive(Debug)]
struct Unused {
    object: ObjectHandle,
    tries: u32,
}

/// What came of a deletion.
#[derive(Debug)]
pub(super) enum Deletion {
    /// A checkpoint was tried for the first time, or will not be tried; with what it failed of.
    Checkpoint(CheckpointId, Option<Error>),
    /// Shared objects are left for now.
    Objects(Error),
}

impl Deletions {
    /// Takes note of what is to be deleted; the checkpoints before the objects.
    pub(super) fn add(
        &self,
        checkpoints: impl IntoIterator<Item = Arc<CheckpointMetadata>>,
        objects: Vec<ObjectHandle>,
    ) {
        let mut queue = self.lock();
        queue
            .checkpoints
            .extend(checkpoints.into_iter().map(|metadata| Doomed {
                metadata,
                tried: false,
            }));
        let objects = objects.into_iter();
        queue
            .objects
            .extend(objects.map(|object| Unused { object, tries: 0 }));
    }

    /// Deletes what there is to delete, in turn with other calls, and tells what came of each.
    ///
    /// After an error of kind `Fenced` nothing is left to delete: the folder is another attempt's.
    pub(super) async fn carry_out(
        &self,
        store: &dyn CheckpointStore,
        tell: &(dyn Fn(Deletion) + Send + Sync),
    ) {
        let _turn = self.turn.lock().await;
        let mut again = TRIED_AGAIN;
        let round = self.lock().checkpoints.len();
        for _ in 0..round {
            // It stays in the queue until it is gone, so that what it names is kept.
            let Some(doomed) = self.lock().checkpoints.front().cloned() else {
                break;
            };
            let id = doomed.metadata.checkpoint;
            if doomed.tried {
                if again == 0 {
                    self.lock().checkpoints.rotate_left(1);
                    continue;
                }
                again -= 1;
            }
            let result = store.discard(doomed.metadata).await;
            {
                let mut queue = self.lock();
                if let Some(mut tried) = queue.checkpoints.pop_front()
                    && result.is_err()
                {
                    tried.tried = true;
                    queue.checkpoints.push_back(tried);
                }
            }
            let error = result.err();
            let fenced = error.as_ref().is_some_and(is_fenced);
            match (error, doomed.tried) {
                (Some(error), true) if !fenced => {
                    tracing::debug!(checkpoint = %id, %error, "a checkpoint that is to be deleted is still there");
                }
                (None, true) => {}
                (error, _) => tell(Deletion::Checkpoint(id, error)),
            }
            if fenced {
                return self.give_up(tell);
            }
        }
        let objects = self.take_unused();
        if objects.is_empty() {
            return;
        }
        let handles = objects.iter().map(|unused| unused.object.clone()).collect();
        if let Err(error) = store.delete_shared(handles).await {
            let left = objects.into_iter().filter_map(|mut unused| {
                unused.tries += 1;
                (unused.tries < TRIES).then_some(unused)
            });
            self.lock().objects.extend(left);
            tell(Deletion::Objects(error));
        }
    }

    /// Leaves everything to the attempt that has taken over.
    fn give_up(&self, tell: &(dyn Fn(Deletion) + Send + Sync)) {
        let left = std::mem::take(&mut *self.lock());
        for doomed in left.checkpoints.iter().filter(|doomed| !doomed.tried) {
            tell(Deletion::Checkpoint(doomed.metadata.checkpoint, None));
        }
    }

    /// Takes the objects that no checkpoint in the queue names.
    fn take_unused(&self) -> Vec<Unused> {
        let mut queue = self.lock();
        let objects = std::mem::take(&mut queue.objects);
        if queue.checkpoints.is_empty() || objects.is_empty() {
            return objects;
        }
        let asked: HashSet<&ObjectHandle> = objects.iter().map(|unused| &unused.object).collect();
        let named: HashSet<ObjectHandle> = queue
            .checkpoints
            .iter()
            .flat_map(|doomed| doomed.metadata.objects())
            .filter(|used| asked.contains(used.object))
            .map(|used| used.object.clone())
            .collect();
        let (kept, unused) = objects
            .into_iter()
            .partition(|unused| named.contains(&unused.object));
        queue.objects = kept;
        unused
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fenced(error: &Error) -> bool {
    error.kind() == ErrorKind::Fenced
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::future::{Future, pending, ready};
    use std::sync::atomic::{AtomicBool, Ordering};

    use checkpoint_storage::{OperatorMetadata, SubtaskMetadata};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use state_api::{
        Attempt, CheckpointStorage, Digest, HashId, IncrementalHandle, JobId, KeyGroup,
        KeyGroupRange, KeyedHandle, MaxParallelism, NamedHandle, OperatorSnapshot, OperatorUid,
        RelPath, Result, Root, SnapshotKind, StateHandle,
    };

    use super::*;
    use crate::execution::{LoadedCheckpoint, MemoryCheckpoints, RestoreFrom, StoreStart};

    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("nothing here waits")
    }

    fn object(name: &str) -> ObjectHandle {
        ObjectHandle {
            root: Root::Own,
            path: RelPath::new(&format!("shared/{name}")).unwrap(),
            len: 1,
            digest: Digest([0; 32]),
        }
    }

    fn checkpoint(id: u64, shared: &[&str]) -> Arc<CheckpointMetadata> {
        let shared = shared.iter().map(|name| NamedHandle {
            name: (*name).into(),
            bytes: StateHandle::Object(object(name)),
        });
        let snapshot = OperatorSnapshot {
            managed_keyed: vec![KeyedHandle::Incremental(IncrementalHandle {
                format: "test".into(),
                backend_id: "one".into(),
                checkpoint: CheckpointId(id),
                range: KeyGroupRange::new(KeyGroup(0), KeyGroup(7)),
                private: Vec::new(),
                shared: shared.collect(),
                new_bytes: 0,
                states: Vec::new(),
            })],
            ..OperatorSnapshot::default()
        };
        let mut count = OperatorMetadata::new(
            OperatorUid::new("count").unwrap(),
            1,
            MaxParallelism::new(8).unwrap(),
            HashId::default(),
        );
        count.subtasks.push(SubtaskMetadata::new(0, snapshot));
        let (job, kind) = (JobId::new("job").unwrap(), SnapshotKind::Checkpoint);
        let mut metadata = CheckpointMetadata::new(CheckpointId(id), job, Attempt(1), kind, 0);
        metadata.operators.push(count);
        Arc::new(metadata)
    }

    /// A store whose deletions fail as a test says.
    #[derive(Default)]
    struct Scripted {
        inner: MemoryCheckpoints,
        /// Checkpoints that can't be deleted.
        stuck: Mutex<BTreeSet<u64>>,
        fenced: AtomicBool,
        /// Whether deletions are never answered.
        hangs: AtomicBool,
        objects_fail: AtomicBool,
        done: Mutex<Vec<String>>,
    }

    impl Scripted {
        fn stick(&self, ids: &[u64]) {
            *self.stuck.lock().unwrap() = ids.iter().copied().collect();
        }

        fn done(&self) -> Vec<String> {
            std::mem::take(&mut *self.done.lock().unwrap())
        }
    }

    impl CheckpointStore for Scripted {
        fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
            self.inner.start()
        }

        fn storage(&self) -> Arc<dyn CheckpointStorage> {
            self.inner.storage()
        }

        fn load<'a>(
            &'a self,
            from: &'a RestoreFrom,
        ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
            self.inner.load(from)
        }

        fn find_published(
            &self,
            id: CheckpointId,
        ) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
            self.inner.find_published(id)
        }

        fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
            self.inner.publish(metadata)
        }

        fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
            if self.hangs.load(Ordering::Relaxed) {
                return Box::pin(pending());
            }
            let id = metadata.checkpoint;
            let result = if self.fenced.load(Ordering::Relaxed) {
                Err(Error::new(ErrorKind::Fenced, "another attempt"))
            } else if self.stuck.lock().unwrap().contains(&id.0) {
                Err(Error::retryable("stuck"))
            } else {
                self.done.lock().unwrap().push(format!("checkpoint {id}"));
                Ok(())
            };
            Box::pin(ready(result))
        }

        fn delete_shared(&self, objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
            if self.objects_fail.load(Ordering::Relaxed) {
                return Box::pin(ready(Err(Error::retryable("stuck"))));
            }
            let paths = objects.iter().map(|object| object.path.to_string());
            self.done.lock().unwrap().extend(paths);
            Box::pin(ready(Ok(())))
        }

        fn discard_unpublished(
            &self,
            id: CheckpointId,
            snapshots: Vec<Arc<OperatorSnapshot>>,
        ) -> BoxFuture<'_, Result<()>> {
            self.inner.discard_unpublished(id, snapshots)
        }
    }

    /// Carries out a round; returns the checkpoints that were told of, and whether each went.
    fn round(deletions: &Deletions, store: &Scripted) -> Vec<(u64, bool)> {
        let told = Mutex::new(Vec::new());
        let tell = |deletion| {
            if let Deletion::Checkpoint(id, error) = deletion {
                told.lock().unwrap().push((id.0, error.is_none()));
            }
        };
        now(deletions.carry_out(store, &tell));
        told.into_inner().unwrap()
    }

    #[test]
    fn a_checkpoint_that_may_still_be_there_keeps_its_objects_until_a_later_round_is_rid_of_it() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        store.stick(&[5]);
        deletions.add([checkpoint(5, &["a", "b"])], vec![]);
        assert_eq!(round(&deletions, &store), [(5, false)]);
        deletions.add([checkpoint(6, &["b"])], vec![object("b"), object("c")]);
        assert_eq!(round(&deletions, &store), [(6, true)]);
        assert_eq!(store.done(), ["checkpoint 6", "shared/c"]);
        // Still, and nobody is told a second time.
        assert!(round(&deletions, &store).is_empty());
        assert_eq!(store.done(), [""; 0]);
        store.stick(&[]);
        deletions.add([checkpoint(7, &[])], vec![object("a")]);
        assert_eq!(round(&deletions, &store), [(7, true)]);
        let mut done = store.done();
        done[2..].sort();
        assert_eq!(
            done,
            ["checkpoint 5", "checkpoint 7", "shared/a", "shared/b"]
        );
    }

    #[test]
    fn a_round_waits_for_the_one_under_way_and_deletes_nothing_that_its_checkpoint_names() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        let tell = |_: Deletion| {};
        store.hangs.store(true, Ordering::Relaxed);
        deletions.add([checkpoint(5, &["a"])], vec![]);
        let mut first = Box::pin(deletions.carry_out(&store, &tell));
        assert!((&mut first).now_or_never().is_none());
        store.hangs.store(false, Ordering::Relaxed);
        deletions.add([], vec![object("a")]);
        let mut second = Box::pin(deletions.carry_out(&store, &tell));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(store.done(), [""; 0]);
        // The first is never heard of again.
        drop(first);
        store.stick(&[5]);
        now(second);
        assert_eq!(store.done(), [""; 0]);
        store.stick(&[]);
        round(&deletions, &store);
        assert_eq!(store.done(), ["checkpoint 5", "shared/a"]);
    }

    #[test]
    fn whoever_comes_first_deletes_in_the_order_in_which_things_were_given_up() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        deletions.add([checkpoint(5, &["a"])], vec![]);
        deletions.add([checkpoint(6, &[])], vec![object("a")]);
        assert_eq!(round(&deletions, &store), [(5, true), (6, true)]);
        assert_eq!(store.done(), ["checkpoint 5", "checkpoint 6", "shared/a"]);
        assert!(round(&deletions, &store).is_empty());
    }

    #[test]
    fn a_fenced_attempt_leaves_everything_and_every_checkpoint_is_told_of() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        store.fenced.store(true, Ordering::Relaxed);
        deletions.add([checkpoint(5, &[]), checkpoint(6, &[])], vec![object("a")]);
        assert_eq!(round(&deletions, &store), [(5, false), (6, true)]);
        store.fenced.store(false, Ordering::Relaxed);
        assert!(round(&deletions, &store).is_empty());
        assert_eq!(store.done(), [""; 0]);
    }

    #[test]
    fn objects_that_can_not_be_deleted_are_tried_some_times_and_left() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        store.objects_fail.store(true, Ordering::Relaxed);
        deletions.add([], vec![object("a")]);
        for _ in 0..TRIES - 1 {
            round(&deletions, &store);
            assert_eq!(deletions.lock().objects.len(), 1);
        }
        round(&deletions, &store);
        assert_eq!(deletions.lock().objects.len(), 0);
    }

    #[test]
    fn many_checkpoints_that_are_stuck_take_turns() {
        let (deletions, store) = (Deletions::default(), Scripted::default());
        let ids: Vec<u64> = (0..40).collect();
        store.stick(&ids);
        deletions.add(ids.iter().map(|id| checkpoint(*id, &[])), vec![]);
        round(&deletions, &store);
        store.stick(&[]);
        for _ in 0..3 {
            round(&deletions, &store);
        }
        assert_eq!(store.done().len(), 40);
    }
}
