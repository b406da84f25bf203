use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, JobStore, ObjectCheckpointStorage, OwnRoot,
    SavepointFolder, StoreAccess, StoreRoot, StoredCheckpoint, StreamOptions, UuidSource,
};
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, Error, ErrorKind, JobId, ObjectHandle, OperatorSnapshot,
    Result, StateHandle,
};
use tokio::runtime::Handle;

use super::checkpoints::stopped_with;
use super::{CheckpointStore, LoadedCheckpoint, MemoryCheckpoints, RestoreFrom, StoreStart};

mod claimed;

/// How often a publish whose outcome is unknown is repeated to learn it.
const PUBLISH_TRIES: u32 = 3;

/// Complete savepoints that are known by their number: it is told where they are, and those that nobody waited for are deleted.
const KNOWN_SAVEPOINTS: usize = 16;

/// Checkpoints in a job's folder of an object store or a file system.
pub struct FolderCheckpoints {
    folder: StoreRoot,
    job: JobId,
    names: UuidSource,
    options: StreamOptions,
    /// Folders outside the job's own that checkpoints may refer to.
    allowed: Vec<StoreRoot>,
    /// Where savepoints go when a request names no folder.
    savepoints: Option<StoreRoot>,
    /// Opens checkpoints and folders that are named by path.
    access: Option<StoreAccess>,
    opened: Mutex<Option<Opened>>,
}

#[derive(Clone)]
struct Opened {
    store: JobStore,
    storage: Arc<ObjectCheckpointStorage>,
    /// What this attempt has published or was handed, and is not known to be gone.
    retained: BTreeMap<CheckpointId, Arc<CheckpointMetadata>>,
    /// Complete checkpoints of this job that others have claimed. Their objects stay.
    lent: Vec<Arc<CheckpointMetadata>>,
    /// Complete checkpoints of this job beside one that it was told to start from and to own. Their objects stay too, but what the job
    /// has claimed is not kept for their sake.
    beside: Vec<Arc<CheckpointMetadata>>,
    /// Checkpoints of others that this job has claimed.
    claimed: BTreeMap<CheckpointId, StoredCheckpoint>,
    /// Those that an earlier run has claimed, with objects that checkpoints of this job use: the claim keeps others from deleting these.
    claimed_before: Vec<StoredCheckpoint>,
    /// Folders of others that checkpoints of this job refer to, and in which it has a claim.
    claimed_roots: Vec<StoreRoot>,
    /// The savepoints of this attempt that are being taken, and the last ones that are complete.
    savepoints: BTreeMap<CheckpointId, Savepoint>,
}

/// A savepoint of this attempt.
#[derive(Clone)]
struct Savepoint {
    folder: SavepointFolder,
    storage: Arc<ObjectCheckpointStorage>,
    published: bool,
}

impl Opened {
    /// Makes room for another savepoint among those that are known.
    fn forget_savepoints(&mut self) {
        let published = self.savepoints.iter().filter(|(_, known)| known.published);
        let published: Vec<_> = published.map(|(id, _)| *id).collect();
        for id in published.iter().rev().skip(KNOWN_SAVEPOINTS - 1) {
            self.savepoints.remove(id);
        }
    }
}

impl FolderCheckpoints {
    /// Creates the store of a job whose checkpoints lie in `folder`.
    #[must_use]
    pub fn new(folder: StoreRoot, job: JobId, names: UuidSource, options: StreamOptions) -> Self {
        Self {
            folder,
            job,
            names,
            options,
            allowed: Vec::new(),
            savepoints: None,
            access: None,
            opened: Mutex::new(None),
        }
    }

    /// Creates the store of a job below a local checkpoint folder: `<checkpoints>/<job>/`.
    ///
    /// # Errors
    /// `Config` when the folder can't be made or written.
    pub fn local(
        checkpoints: impl AsRef<std::path::Path>,
        job: JobId,
        runtime: &Handle,
    ) -> Result<Self> {
        let root = StoreRoot::local(checkpoints, runtime.clone())?;
        let folder = JobStore::job_folder(&root, &job, true);
        let store = Self::new(folder, job, UuidSource::machine(), StreamOptions::default());
        Ok(store.runtime(runtime.clone()))
    }

    /// Sets how checkpoints and folders that are named by path are opened: on which runtime, with which options of stores.
    #[must_use]
    pub fn runtime(mut self, access: impl Into<StoreAccess>) -> Self {
        self.access = Some(access.into());
        self
    }

    /// Sets when bytes become an object and how they are buffered.
    #[must_use]
    pub fn options(mut self, options: StreamOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the folder for savepoints whose request names none.
    #[must_use]
    pub fn savepoints(mut self, folder: StoreRoot) -> Self {
        self.savepoints = Some(folder);
        self
    }

    /// Allows a restored checkpoint to refer to objects in these folders.
    #[must_use]
    pub fn allow(mut self, roots: impl IntoIterator<Item = StoreRoot>) -> Self {
        self.allowed.extend(roots);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Result<Opened> {
        self.lock()
            .clone()
            .ok_or_else(|| Error::bug("the checkpoint store is used before it is started"))
    }

    fn savepoint(&self, id: CheckpointId) -> Option<Savepoint> {
        self.lock().as_ref()?.savepoints.get(&id).cloned()
    }

    /// Opens the folder that a request for a savepoint names.
    fn target(&self, target: Option<String>) -> Result<Option<StoreRoot>> {
        let Some(url) = target else {
            return Ok(None);
        };
        match &self.access {
            Some(access) => StoreRoot::open(&url, access).map(Some),
            None => Err(Error::config(
                "savepoints go to the configured folder only: nothing here opens others",
            )
            .with("target", url)),
        }
    }

    /// Deletes what there is of a savepoint that was given up.
    async fn discard_savepoint(&self, savepoint: &Savepoint) -> Result<()> {
        let store = self.opened()?.store;
        let report = store.discard_savepoint(&savepoint.folder).await?;
        report.into_result().map(drop)
    }

    /// Finds a checkpoint by path or URL; without a runtime to open others, below the folders that are open already.
    async fn find(&self, pointer: &str) -> Result<StoredCheckpoint> {
        if let Some(access) = &self.access {
            return StoredCheckpoint::find(pointer, access).await;
        }
        match self.below_open(pointer) {
            Some((root, path)) => match path.rsplit_once('/') {
                Some((above, name)) => StoredCheckpoint::read(&root.folder(above), name).await,
                None => StoredCheckpoint::read(root, path).await,
            },
            None => self.opened()?.store.load(pointer).await,
        }
    }

    fn loaded(&self, found: StoredCheckpoint) -> LoadedCheckpoint {
        let claimed = self
            .lock()
            .as_ref()
            .map(|opened| opened.claimed_roots.clone());
        let roots = self.allowed.iter().cloned();
        let storage = Arc::new(found.storage(roots.chain(claimed.into_iter().flatten())));
        LoadedCheckpoint {
            metadata: Arc::new(found.metadata),
            storage,
        }
    }

    /// Opens a folder by its URL; without access to others, one below those that are open.
    fn open_root(&self, url: &str) -> Result<Option<StoreRoot>> {
        if let Some(access) = &self.access {
            return StoreRoot::open(url, access).map(Some);
        }
        Ok(self.below_open(url).map(|(root, path)| root.folder(path)))
    }

    /// Returns the open folder that a path or URL is below, and the rest of it.
    fn below_open<'a>(&self, pointer: &'a str) -> Option<(&StoreRoot, &'a str)> {
        let open = std::iter::once(&self.folder)
            .chain(&self.savepoints)
            .chain(&self.allowed);
        open.filter_map(|root| {
            let below = pointer.strip_prefix(root.url())?;
            Some((root, below.strip_prefix('/')?.trim_end_matches('/')))
        })
        .next()
    }
}

/// Returns the complete checkpoints up to the newest of the history that is continued, oldest first.
async fn continued(store: &JobStore) -> Result<BTreeMap<CheckpointId, Arc<CheckpointMetadata>>> {
    let listed = store.list().await?;
    // The newest of the highest attempt comes first.
    let latest = listed.iter().find_map(|listed| match &listed.state {
        CheckpointState::Complete(found) => Some(found.metadata.checkpoint),
        _ => None,
    });
    // Whether the job may begin without those that can't be read is said when it is loaded.
    let Some(upto) = latest else {
        return Ok(BTreeMap::new());
    };
    let listed = listed.into_iter().filter_map(|listed| match listed.state {
        CheckpointState::Complete(found) if !found.metadata.kind.is_savepoint() => {
            Some(found.metadata)
        }
        CheckpointState::Damaged(error) => {
            tracing::warn!(checkpoint = listed.name, %error, "a damaged checkpoint is passed over");
            None
        }
        _ => None,
    });
    Ok(listed
        .filter(|m| m.checkpoint <= upto)
        .map(|m| (m.checkpoint, Arc::new(m)))
        .collect())
}

impl CheckpointStore for FolderCheckpoints {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        Box::pin(async move {
            let store =
                JobStore::open(self.folder.clone(), self.job.clone(), self.names.clone()).await?;
            let store = store.with_claimed(self.allowed.iter().cloned());
            let retained = continued(&store).await?;
            let (claimed_roots, claimed_before) = self.claimed_before(&store, &retained).await?;
            let store = store.with_claimed(claimed_roots.iter().cloned());
            let start = StoreStart {
                attempt: store.attempt(),
                next_checkpoint: store.first_checkpoint(),
                completed: retained.values().cloned().collect(),
            };
            let storage = Arc::new(store.storage(self.options));
            *self.lock() = Some(Opened {
                store,
                storage,
                retained,
                lent: Vec::new(),
                beside: Vec::new(),
                claimed: BTreeMap::new(),
                claimed_before,
                claimed_roots,
                savepoints: BTreeMap::new(),
            });
            Ok(start)
        })
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        match &*self.lock() {
            Some(opened) => Arc::clone(&opened.storage) as Arc<dyn CheckpointStorage>,
            None => MemoryCheckpoints::new().storage(),
        }
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        Box::pin(async move {
            let found = match from {
                RestoreFrom::Nothing => None,
                RestoreFrom::Latest => {
                    let store = self.opened()?.store;
                    if let Some(stopped) = store.stopped().await? {
                        return Err(stopped_with(&stopped.location));
                    }
                    let latest = store.latest().await?;
                    if let Some(latest) = &latest
                        && let Err(error) = store.check_unclaimed(latest).await
                    {
                        tracing::warn!(%error, "the job goes on from a checkpoint that another may delete");
                    }
                    latest
                }
                RestoreFrom::Path(pointer) => Some(self.find(pointer).await?),
            };
            Ok(found.map(|found| self.loaded(found)))
        })
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        Box::pin(async move {
            let store = self.opened()?.store;
            if self.savepoint(id).is_some() {
                let stopped = store.stopped().await?;
                let own = stopped.filter(|s| (s.attempt, s.savepoint) == (store.attempt(), id));
                return own.map_or(Ok(None), |stopped| Err(stopped_with(&stopped.location)));
            }
            let folder = checkpoint_storage::layout::checkpoint_folder(id);
            match store.load(&folder).await {
                // A newer attempt that never saw ours may have taken the id.
                Ok(found) if found.metadata.attempt != store.attempt() => Ok(None),
                Ok(found) => Ok(Some(self.loaded(found))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn claim<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<LoadedCheckpoint>> {
        Box::pin(async move {
            let Opened { store, .. } = self.opened()?;
            let found = self.find(path).await?;
            store.claim(&found).await?;
            let own = found.own.url() == self.folder.url();
            let beside = match found.metadata.own_root {
                OwnRoot::Parent if own => self.beside_own(found.metadata.checkpoint).await?,
                _ => Vec::new(),
            };
            let mut metadata = found.metadata.clone();
            if !own {
                metadata.rebase(found.own.url());
            }
            let metadata = Arc::new(metadata);
            let mut opened = self.lock();
            let opened = opened
                .as_mut()
                .ok_or_else(|| Error::bug("the checkpoint store is used before it is started"))?;
            if !own {
                opened.store = store.with_claimed([found.own.clone()]);
                opened.storage = Arc::new(opened.store.storage(self.options));
                opened.claimed.insert(metadata.checkpoint, found);
            }
            opened.beside.extend(beside);
            opened
                .retained
                .insert(metadata.checkpoint, Arc::clone(&metadata));
            let storage = Arc::clone(&opened.storage) as Arc<dyn CheckpointStorage>;
            Ok(LoadedCheckpoint { metadata, storage })
        })
    }

    fn delete_shared(&self, objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let opened = self.opened()?;
            let unused = self.not_lent(&opened, objects).await?;
            let report = opened.store.delete_objects(&unused).await?;
            report.into_result().map(drop)
        })
    }

    fn check_fenced(&self) -> Option<BoxFuture<'static, Result<()>>> {
        let opened = self.opened();
        Some(Box::pin(async move { opened?.store.check_fenced().await }))
    }

    fn prepare_savepoint(
        &self,
        id: CheckpointId,
        target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        Box::pin(async move {
            let opened = self.opened()?;
            opened.store.check_fenced().await?;
            let target = self.target(target)?;
            let default = self.savepoints.as_ref();
            let folder =
                SavepointFolder::choose(target.as_ref(), default, &self.job, &self.names).await?;
            let storage = Arc::new(folder.storage(&opened.store, self.options));
            if let Some(opened) = &mut *self.lock() {
                let storage = Arc::clone(&storage);
                opened.forget_savepoints();
                let savepoint = Savepoint {
                    folder,
                    storage,
                    published: false,
                };
                opened.savepoints.insert(id, savepoint);
            }
            Ok(storage as Arc<dyn CheckpointStorage>)
        })
    }

    fn drain_savepoint(&self, id: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Some(savepoint) = self.savepoint(id) else {
                return Ok(());
            };
            let report = savepoint.storage.drain().await;
            self.discard_savepoint(&savepoint).await?;
            match report.failed.into_iter().next() {
                Some((path, error)) => Err(error.with("object", path)),
                None => Ok(()),
            }
        })
    }

    fn storage_of(&self, id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        match self.savepoint(id) {
            Some(savepoint) => savepoint.storage,
            None => self.storage(),
        }
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        if let Some(savepoint) = self.savepoint(id) {
            return Some(savepoint.folder.root().url().to_owned());
        }
        let name = checkpoint_storage::layout::checkpoint_folder(id);
        Some(self.folder.folder(&name).url().to_owned())
    }

    fn note_stop(&self, savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let location = self.location(savepoint).unwrap_or_default();
            let opened = self.opened()?;
            opened.store.note_stop(savepoint, &location).await
        })
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let store = self.opened()?.store;
            let savepoint = self.savepoint(metadata.checkpoint);
            let (mut tries, mut in_doubt) = (0, false);
            loop {
                tries += 1;
                let published = match &savepoint {
                    Some(savepoint) => store.publish_savepoint(&savepoint.folder, &metadata).await,
                    None => store.publish(&metadata).await,
                };
                match published {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::Retryable && tries < PUBLISH_TRIES => {
                        tracing::warn!(%error, tries, "publishing again");
                        in_doubt = true;
                    }
                    // What stopped this try says nothing of the earlier ones.
                    Err(error) if in_doubt && !is_certain(&error) => {
                        return Err(Error::retryable(
                            "nobody knows whether the metadata is written",
                        )
                        .caused_by(error));
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(savepoint) = savepoint {
                if let Some(opened) = &mut *self.lock()
                    && let Some(known) = opened.savepoints.get_mut(&metadata.checkpoint)
                {
                    known.published = true;
                }
                return reap(&savepoint.storage).await.or_else(warned);
            }
            if let Some(opened) = &mut *self.lock() {
                opened.retained.insert(metadata.checkpoint, metadata);
            }
            Ok(())
        })
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.opened()?.store.end().await })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.opened()?.store.sweep_abandoned().await {
                Err(error) if error.kind() == ErrorKind::Fenced => Err(error),
                Err(error) => {
                    // Left-overs cost space, not correctness.
                    tracing::warn!(%error, "left-overs of earlier attempts stay");
                    Ok(())
                }
                Ok(_) => Ok(()),
            }
        })
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(savepoint) = self.savepoint(metadata.checkpoint) {
                // A job that stops with it may have noted so. As long as it is noted it must be there: nothing else is started from.
                let store = self.opened()?.store;
                store.retract_stop(metadata.checkpoint).await?;
                return self.discard_savepoint(&savepoint).await;
            }
            let opened = self.opened()?;
            let used = opened.retained.values().chain(&opened.lent);
            let used = used.map(AsRef::as_ref);
            let used = used.filter(|other| other.checkpoint != metadata.checkpoint);
            let used: Vec<&CheckpointMetadata> = used.collect();
            let report = match opened.claimed.get(&metadata.checkpoint) {
                Some(found) => self.discard_claimed(&opened, found, &used).await?,
                None => {
                    let beside = opened.beside.iter().map(AsRef::as_ref);
                    let others = used.iter().copied().chain(beside);
                    opened.store.discard(&metadata, others).await?
                }
            };
            // Only now is it known to be gone, or claimed: until then it may be there as a whole.
            if let Some(opened) = &mut *self.lock() {
                opened.retained.remove(&metadata.checkpoint);
                if report.claimed {
                    opened.lent.push(metadata);
                }
            }
            report.into_result()?;
            self.discard_claimed_before(&opened, &used).await?;
            reap(&opened.storage).await
        })
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let opened = self.opened()?;
            if let Some(savepoint) = self.savepoint(id) {
                return self.discard_savepoint(&savepoint).await;
            }
            let prefix = format!("{}/", checkpoint_storage::layout::checkpoint_folder(id));
            // What lies elsewhere is shared with other checkpoints.
            let objects: Vec<_> = snapshots
                .iter()
                .flat_map(|snapshot| snapshot.parts())
                .filter_map(StateHandle::object)
                .filter(|object| object.path.as_str().starts_with(&prefix))
                .cloned()
                .collect();
            opened.store.delete_objects(&objects).await?.into_result()?;
            reap(&opened.storage).await
        })
    }
}

/// Returns whether a failure to publish tells what came of all tries.
fn is_certain(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Fenced | ErrorKind::AlreadyExists | ErrorKind::Retryable
    )
}

/// Left-overs cost space, not correctness.
fn warned(error: Error) -> Result<()> {
    tracing::warn!(%error, "left-overs of a savepoint stay");
    Ok(())
}

/// Removes what dropped streams left behind.
async fn reap(storage: &ObjectCheckpointStorage) -> Result<()> {
    match storage.reap().await.failed.into_iter().next() {
        Some((path, error)) => Err(error.with("object", path)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use checkpoint_storage::MemoryStore;
    use futures_util::FutureExt;
    use state_api::SnapshotKind;

    use super::*;

    fn now<T>(work: BoxFuture<'_, Result<T>>) -> T {
        work.now_or_never()
            .expect("a store in memory answers at once")
            .expect("it does not fail")
    }

    #[test]
    fn a_job_does_not_remember_each_savepoint_that_it_ever_took() {
        let root = StoreRoot::memory(&MemoryStore::new(), "all");
        let job = JobId::new("job").expect("a name");
        let names = UuidSource::seeded(1);
        let store = FolderCheckpoints::new(
            root.folder("checkpoints"),
            job.clone(),
            names,
            StreamOptions::default(),
        )
        .savepoints(root.folder("savepoints"));
        let attempt = now(store.start()).attempt;
        for id in (1..=40).map(CheckpointId) {
            now(store.prepare_savepoint(id, None));
            let kind = SnapshotKind::CanonicalSavepoint;
            let metadata = CheckpointMetadata::new(id, job.clone(), attempt, kind, 0);
            now(store.publish(Arc::new(metadata)));
            let place = store.location(id).expect("it has a folder");
            assert!(place.contains("/savepoints/savepoint-"), "{place}");
        }
        let known = store.opened().expect("it was started").savepoints;
        assert_eq!(known.len(), KNOWN_SAVEPOINTS);
    }
}
