//! One attempt of a job: it takes checkpoints as the runtime does, and keeps two of them.
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, JobStore, ObjectCheckpointStorage, OperatorMetadata,
    Ownership, SavepointFolder, SharedRegistry, StoreRoot, StoredCheckpoint, SubtaskMetadata,
    UuidSource, layout,
};
use state_api::{
    CheckpointId, CheckpointStorage, ErrorKind, JobId, KeyedHandle, NamedHandle, ObjectHandle,
    OperatorSnapshot, Result, Scope, SnapshotKind, StateHandle,
};

use crate::common::{incremental, operator, options};
use crate::store::World;

const RETAINED: usize = 2;
const PUBLISH_TRIES: u32 = 3;

pub(crate) struct Process {
    store: JobStore,
    names: UuidSource,
    writer: ObjectCheckpointStorage,
    registry: SharedRegistry,
    retained: BTreeMap<CheckpointId, CheckpointMetadata>,
    /// Subsumed checkpoints that are not known to be gone.
    leaving: Vec<CheckpointMetadata>,
    /// Shared objects that go with them.
    spared: Vec<ObjectHandle>,
    /// Checkpoints of its own that the other job has claimed.
    lent: Vec<CheckpointMetadata>,
    /// The checkpoint of the other job that this one has claimed.
    claimed: Option<(StoredCheckpoint, CheckpointMetadata)>,
    /// Shared objects of the last checkpoint.
    confirmed: Vec<StateHandle>,
    next: u64,
    swept: bool,
}

/// What was written for a checkpoint.
#[derive(Default)]
struct Written {
    exclusive: Vec<StateHandle>,
    shared: Vec<StateHandle>,
}

fn objects(handles: &[StateHandle]) -> Vec<ObjectHandle> {
    handles
        .iter()
        .filter_map(StateHandle::object)
        .cloned()
        .collect()
}

/// Lets a failure pass that costs space and nothing else.
fn costs_space<T>(outcome: Result<T>) -> Result<()> {
    match outcome {
        Err(e) if e.kind() == ErrorKind::Fenced => Err(e),
        _ => Ok(()),
    }
}

impl Process {
    /// Starts from the newest checkpoint, or else from one of the other job that it claims.
    pub(crate) async fn start(
        root: StoreRoot,
        job: &str,
        names: UuidSource,
        claim: Option<StoredCheckpoint>,
        world: &Arc<World>,
    ) -> Result<Self> {
        let mut store = JobStore::open(root, JobId::new(job)?, names.clone()).await?;
        let mut registry = SharedRegistry::new();
        let mut retained = BTreeMap::new();
        let mut claimed = None;
        if let Some(latest) = store.latest().await? {
            let upto = latest.metadata.checkpoint;
            for listed in store.list().await? {
                if let CheckpointState::Complete(found) = listed.state
                    && found.metadata.checkpoint <= upto
                {
                    retained.insert(found.metadata.checkpoint, found.metadata);
                }
            }
            world.reported(latest.folder.url());
            for metadata in retained.values() {
                registry.register_checkpoint(metadata, Ownership::Own)?;
            }
        } else if let Some(found) = claim {
            store.claim(&found).await?;
            let (metadata, foreign) = found.clone().into_foreign();
            store = store.with_claimed([foreign]);
            registry.register_checkpoint(&metadata, Ownership::Claimed)?;
            claimed = Some((found, metadata));
        }
        let newest = retained
            .values()
            .next_back()
            .or(claimed.as_ref().map(|(_, m)| m));
        let shared = newest.map(|m| m.shared_objects().cloned().collect::<HashSet<_>>());
        let last = newest.map_or(0, |m| m.checkpoint.0);
        Ok(Self {
            writer: store.storage(options(0, 16)),
            next: store.first_checkpoint().0.max(last + 1),
            confirmed: shared
                .into_iter()
                .flatten()
                .map(StateHandle::Object)
                .collect(),
            store,
            names,
            registry,
            retained,
            leaving: Vec::new(),
            spared: Vec::new(),
            lent: Vec::new(),
            claimed,
            swept: false,
        })
    }

    /// The name of the checkpoint that it started from, if that is one of its own.
    pub(crate) fn retained(&self) -> Vec<String> {
        self.retained
            .keys()
            .map(|id| layout::checkpoint_folder(*id))
            .collect()
    }

    pub(crate) async fn end(&self) -> Result<()> {
        self.store.end().await
    }

    async fn write(
        storage: &ObjectCheckpointStorage,
        id: u64,
        scope: Scope,
        world: &World,
    ) -> Result<StateHandle> {
        let mut stream = storage.create(CheckpointId(id), scope);
        let body = vec![world.below(256) as u8; 1 + world.below(100) as usize];
        stream.write(body.into()).await?;
        Ok(stream.finish().await?.expect("something was written"))
    }

    async fn snapshot(&self, id: u64, world: &World, written: &mut Written) -> Result<()> {
        for _ in 0..world.below(3) {
            let handle = Self::write(&self.writer, id, Scope::Exclusive, world).await?;
            written.exclusive.push(handle);
        }
        for _ in 0..world.below(3) {
            let handle = Self::write(&self.writer, id, Scope::Shared, world).await?;
            written.shared.push(handle);
        }
        Ok(())
    }

    fn metadata(
        &self,
        id: u64,
        kind: SnapshotKind,
        parts: [Vec<StateHandle>; 2],
    ) -> CheckpointMetadata {
        let named = |handles: Vec<StateHandle>| -> Vec<NamedHandle> {
            let name = |(i, bytes): (usize, StateHandle)| NamedHandle {
                name: i.to_string().into(),
                bytes,
            };
            handles.into_iter().enumerate().map(name).collect()
        };
        let [exclusive, shared] = parts;
        let keyed: KeyedHandle = incremental(id, named(exclusive), named(shared));
        let snapshot = OperatorSnapshot {
            managed_keyed: vec![keyed],
            ..OperatorSnapshot::default()
        };
        let mut count: OperatorMetadata = operator("count", 1);
        count.subtasks.push(SubtaskMetadata::new(0, snapshot));
        let mut metadata = CheckpointMetadata::new(
            CheckpointId(id),
            self.store.job().clone(),
            self.store.attempt(),
            kind,
            0,
        );
        metadata.operators = vec![count];
        metadata.collect_roots();
        metadata
    }

    /// Takes a checkpoint; `false` when it was declined. After an error the process ends.
    pub(crate) async fn checkpoint(&mut self, world: &World) -> Result<bool> {
        world.advance(10_000);
        let fenced = self.store.check_fenced().await;
        costs_space(fenced)?;
        let id = self.next;
        self.next += 1;
        let mut written = Written::default();
        let outcome = self.snapshot(id, world, &mut written).await;
        for object in objects(&written.shared) {
            self.registry.register(CheckpointId(id), &object)?;
        }
        if outcome.is_err() || world.chance(50) {
            let deleted = self
                .store
                .delete_objects(&objects(&written.exclusive))
                .await;
            costs_space(deleted)?;
            if world.chance(300) {
                // An acknowledgement that is late.
                drop(Self::write(&self.writer, id, Scope::Exclusive, world).await);
            }
            self.writer.reap().await;
            return Ok(false);
        }
        let reused = self.confirmed.iter().filter(|_| world.chance(700)).cloned();
        let shared: Vec<_> = reused.chain(written.shared).collect();
        let metadata = self.metadata(
            id,
            SnapshotKind::Checkpoint,
            [written.exclusive, shared.clone()],
        );
        let mut tries = 0;
        loop {
            tries += 1;
            match self.store.publish(&metadata).await {
                Ok(published) => {
                    world.reported(&published.url);
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Retryable && tries < PUBLISH_TRIES => {}
                Err(e) => return Err(e),
            }
        }
        self.registry
            .register_checkpoint(&metadata, Ownership::Own)?;
        self.confirmed = shared;
        if !self.swept {
            self.swept = true;
            costs_space(self.store.sweep_abandoned().await)?;
        }
        self.retained.insert(CheckpointId(id), metadata);
        self.subsume().await?;
        self.writer.reap().await;
        Ok(true)
    }

    /// Deletes what is subsumed; what may still be there after a failure keeps its objects, and is tried again.
    async fn subsume(&mut self) -> Result<()> {
        while self.retained.len() > RETAINED {
            self.leaving
                .extend(self.retained.pop_first().map(|(_, oldest)| oldest));
        }
        for _ in 0..self.leaving.len() {
            let oldest = self.leaving.remove(0);
            let others = self
                .retained
                .values()
                .chain(&self.lent)
                .chain(&self.leaving);
            let others: Vec<_> = others.cloned().collect();
            match self.store.discard(&oldest, &others).await {
                Ok(report) if report.claimed => self.lent.push(oldest),
                Ok(report) if report.failed.is_empty() => {}
                other => {
                    self.leaving.push(oldest);
                    costs_space(other)?;
                }
            }
        }
        let Some(lowest) = self.retained.keys().next().copied() else {
            return Ok(());
        };
        let unused = self.registry.unregister_unused(lowest);
        if let Some((found, metadata)) = &self.claimed
            && metadata.checkpoint < lowest
            && !unused.still_used.contains(&metadata.checkpoint)
        {
            let discarded = self
                .store
                .discard_claimed(found, self.retained.values())
                .await;
            match discarded {
                Ok(report) if report.failed.is_empty() => self.claimed = None,
                other => costs_space(other)?,
            }
        }
        let objects = |metadata: &CheckpointMetadata| -> Vec<_> {
            metadata.objects().map(|u| u.object.clone()).collect()
        };
        let lent: HashSet<_> = self.lent.iter().flat_map(objects).collect();
        let claimed = self.claimed.iter().map(|(_, metadata)| metadata);
        let leaving = self.leaving.iter().chain(claimed);
        let leaving: HashSet<_> = leaving.flat_map(objects).collect();
        let all = std::mem::take(&mut self.spared)
            .into_iter()
            .chain(unused.objects);
        let (spared, unused) = all
            .filter(|object| !lent.contains(object))
            .partition::<Vec<_>, _>(|object| leaving.contains(object));
        self.spared = spared;
        costs_space(self.store.delete_objects(&unused).await)
    }

    /// Takes a savepoint; `false` when it was given up.
    pub(crate) async fn savepoint(&mut self, target: &StoreRoot, world: &World) -> Result<bool> {
        world.advance(10_000);
        costs_space(self.store.check_fenced().await)?;
        let id = self.next;
        self.next += 1;
        let chosen =
            SavepointFolder::choose(Some(target), None, self.store.job(), &self.names).await;
        let Ok(folder) = chosen else {
            return Ok(false);
        };
        let storage = folder.storage(&self.store, options(0, 16));
        let mut parts = Vec::new();
        for _ in 0..1 + world.below(3) {
            match Self::write(&storage, id, Scope::Exclusive, world).await {
                Ok(handle) => parts.push(handle),
                Err(_) => {
                    costs_space(self.store.discard_savepoint(&folder).await)?;
                    return Ok(false);
                }
            }
        }
        let metadata = self.metadata(id, SnapshotKind::NativeSavepoint, [parts, Vec::new()]);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.store.publish_savepoint(&folder, &metadata).await {
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Retryable && tries < PUBLISH_TRIES => {}
                // Nobody knows whether it is there: it is left for a person.
                Err(e) => return Err(e),
            }
        }
    }
}
