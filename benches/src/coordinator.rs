//! The coordinator's side of checkpoints of very many subtasks: real coordinator, registry, metadata and store; the acks
//! are simulated.
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, JobStore, ObjectNames, OperatorMetadata, Registration, SharedRegistry,
    StoreRoot, SubtaskMetadata, UuidSource,
};
use runtime_core::coordinator::{
    Acked, Action, CheckpointCoordinator, CheckpointKind, Connection, CoordinatorConfig, Fact,
    Plan, PlanVertex, RequestId, Sealing, TaskId, Trigger,
};
use state_api::{
    CheckpointId, CodecKind, Digest, EntryCount, Error, HashId, IncrementalHandle, JobId,
    KeyedHandle, MaxParallelism, NamedHandle, ObjectHandle, OperatorSnapshot, OperatorUid, RelPath,
    Result, Root, SnapshotKind, StateHandle, StateKind, StateMeta, StateSummary, Subtask, TypeMeta,
};
use tokio::runtime::Runtime;

use crate::process::{cpu_time, peak_resident_bytes, reset_peak, resident_bytes};
use crate::stopwatch::{core_seconds, now, seconds};
use crate::table::Table;
use crate::workload::mix64;

/// How large a job is.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Number of operators, each of which feeds the next.
    pub operators: u32,
    /// Number of subtasks of each.
    pub parallelism: u32,
    /// Shared objects of a subtask in each checkpoint; it has one private object beside them.
    pub shared: usize,
    /// Number of checkpoints that will be taken.
    pub checkpoints: usize,
}

impl Extent {
    /// Returns the shared objects that a subtask replaces from one checkpoint to the next: 1 %, at least one.
    #[must_use]
    pub fn replaced(&self) -> usize {
        (self.shared / 100).max(1)
    }

    /// Tells whether a checkpoint replaces the shared object at a place; the first one brings them all in.
    fn replaces(&self, checkpoint: CheckpointId, place: usize) -> bool {
        let turn = usize::try_from(checkpoint.0).unwrap_or(0);
        match turn.checked_sub(2) {
            None => true,
            Some(turn) => {
                let first = turn * self.replaced() % self.shared;
                (place + self.shared - first) % self.shared < self.replaced()
            }
        }
    }
}

/// How long something took, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// By the wall clock.
    pub wall: f64,
    /// On cores.
    pub core: f64,
}

impl Took {
    /// Adds the time of some work of the calling thread.
    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let ((result, core), wall) = seconds(|| core_seconds(work));
        self.wall += wall;
        self.core += core;
        result
    }

    /// Adds the time of some work of several threads.
    fn time_all<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let before = cpu_time();
        let (result, wall) = seconds(work);
        let used = before.zip(cpu_time()).map(|(before, after)| after - before);
        self.wall += wall;
        self.core += used.map_or(wall, |used| used.as_secs_f64());
        result
    }

    fn ms(self) -> String {
        format!("{:.1} ({:.1})", self.wall * 1e3, self.core * 1e3)
    }
}

/// What one checkpoint was like.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// From the request to the order to trigger.
    pub trigger: Took,
    /// Registering shared objects.
    pub register: Took,
    /// Handing the acks to the coordinator.
    pub acks: Took,
    /// Putting the metadata together.
    pub build: Took,
    /// Encoding, writing and syncing it.
    pub publish: Took,
    /// What the coordinator does when it is published.
    pub complete: Took,
    /// Finding the objects that nobody uses any more.
    pub unregister: Took,
    /// All of that.
    pub total: Took,
    /// Deleting the subsumed checkpoint: its metadata and private objects.
    pub discard: Took,
    /// Deleting the unused shared objects.
    pub delete: Took,
    /// Bytes of the metadata.
    pub metadata_len: u64,
    /// Objects that were new to the registry.
    pub new: usize,
    /// Objects that were known.
    pub known: usize,
    /// Shared objects that nobody used any more; they are deleted.
    pub unused: Vec<ObjectHandle>,
    /// Objects deleted, private ones included.
    pub deleted: usize,
    /// Resident bytes before, acks included.
    pub before: Option<u64>,
    /// Most resident bytes from there to the end of the deletions.
    pub peak: Option<u64>,
    /// Resident bytes after.
    pub after: Option<u64>,
}

/// A job's coordinator and all that it has to do with, in a folder that is removed at the end.
pub struct World {
    extent: Extent,
    folder: tempfile::TempDir,
    runtime: Runtime,
    store: JobStore,
    names: ObjectNames,
    uids: Vec<OperatorUid>,
    state: StateMeta,
    coordinator: CheckpointCoordinator<Arc<OperatorSnapshot>>,
    registry: SharedRegistry,
    retained: BTreeMap<CheckpointId, CheckpointMetadata>,
    clock_ms: u64,
}

/// Takes one kind of action out of what the coordinator says.
fn expect<A, T>(actions: Vec<Action<A>>, pick: impl Fn(Action<A>) -> Option<T>) -> Result<T> {
    let found = actions.into_iter().find_map(pick);
    found.ok_or_else(|| Error::bug("the coordinator does not do what it is to do next"))
}

impl World {
    /// Creates a job whose tasks all run.
    ///
    /// # Errors
    /// `Config` when there is no place for its folder; those of store and plan.
    pub fn new(extent: Extent) -> Result<Self> {
        let failed = |error| {
            Error::config("can't make a folder for checkpoints, or threads").caused_by(error)
        };
        let folder = tempfile::tempdir().map_err(failed)?;
        let runtime = Runtime::new().map_err(failed)?;
        let root = StoreRoot::local(folder.path(), runtime.handle().clone())?;
        let opened = JobStore::open(root, JobId::new("many")?, UuidSource::seeded(1));
        let store = runtime.block_on(opened)?;
        let vertices = (0..extent.operators).map(|vertex| match vertex {
            0 => PlanVertex::source(0, extent.parallelism),
            _ => PlanVertex::source(vertex, extent.parallelism)
                .fed_by(vertex - 1, Connection::AllToAll),
        });
        let plan = Plan::new(vertices)?;
        let config = CoordinatorConfig {
            sealing: Sealing::ByCount,
            ..CoordinatorConfig::default()
        };
        let mut coordinator = CheckpointCoordinator::new(config, store.first_checkpoint())?;
        coordinator.handle(0, Fact::TasksRunning { plan, random: 0 });
        let of = TypeMeta::of::<u64>;
        Ok(Self {
            names: ObjectNames::new(store.attempt(), UuidSource::seeded(2)),
            uids: (0..extent.operators)
                .map(|vertex| OperatorUid::new(&format!("count-{vertex}")))
                .collect::<Result<_>>()?,
            state: StateMeta {
                name: "count".into(),
                kind: StateKind::Value,
                key: of(CodecKind::Compact),
                namespace: TypeMeta::of::<()>(CodecKind::Compact),
                map_key: None,
                value: of(CodecKind::Compact),
                ttl_ms: None,
            },
            registry: SharedRegistry::new(),
            retained: BTreeMap::new(),
            clock_ms: 1,
            coordinator,
            extent,
            folder,
            runtime,
            store,
        })
    }

    /// Returns the metadata of the retained checkpoints.
    #[must_use]
    pub fn retained(&self) -> &BTreeMap<CheckpointId, CheckpointMetadata> {
        &self.retained
    }

    /// Returns the registry.
    #[must_use]
    pub fn registry(&self) -> &SharedRegistry {
        &self.registry
    }

    /// Returns the checkpoint that the store calls the newest.
    ///
    /// # Errors
    /// Those of the store.
    pub fn newest(&self) -> Result<Option<CheckpointMetadata>> {
        let found = self.runtime.block_on(self.store.latest())?;
        Ok(found.map(|found| found.metadata))
    }

    /// Tells whether there is a file of an object.
    #[must_use]
    pub fn exists(&self, object: &ObjectHandle) -> bool {
        self.folder.path().join(object.path.as_str()).exists()
    }

    /// Makes an object; only one that will be deleted in the end has a file.
    fn object(&self, name: &str, folder: &str, file: bool) -> Result<NamedHandle> {
        let path = RelPath::new(&format!("{folder}/{}", self.names.next()))?;
        if file {
            fs::write(self.folder.path().join(path.as_str()), path.as_str())
                .map_err(|error| Error::config("can't write an object").caused_by(error))?;
        }
        let mut digest = [0; 32];
        let text = path.as_str().as_bytes();
        for (word, part) in digest.chunks_mut(8).zip(text.rchunks_exact(8)) {
            let part = part.try_into().map(u64::from_le_bytes).unwrap_or_default();
            word.copy_from_slice(&mix64(part).to_le_bytes());
        }
        Ok(NamedHandle {
            name: name.into(),
            bytes: StateHandle::Object(ObjectHandle {
                root: Root::Own,
                path,
                len: 1 << 20,
                digest: Digest(digest),
            }),
        })
    }

    /// Does the work of the subtasks: the files of the last checkpoint, a few of them replaced.
    fn snapshots(&self, id: CheckpointId) -> Result<Vec<(TaskId, Arc<OperatorSnapshot>)>> {
        let failed = |error| Error::config("can't make a folder for objects").caused_by(error);
        let private = checkpoint_storage::layout::checkpoint_folder(id);
        let shared = checkpoint_storage::layout::SHARED;
        for name in [private.as_str(), shared] {
            fs::create_dir_all(self.folder.path().join(name)).map_err(failed)?;
        }
        let last = self.retained.values().next_back();
        let extent = self.extent;
        let key_groups = MaxParallelism::derive_default(extent.parallelism)?;
        let mut snapshots = Vec::new();
        for (vertex, uid) in (0..).zip(&self.uids) {
            let operator = last.and_then(|last| last.operator(uid.as_str()));
            for index in 0..extent.parallelism {
                let before = operator
                    .and_then(|operator| operator.subtasks.get(index as usize))
                    .and_then(|subtask| subtask.snapshot.managed_keyed.first());
                let mut files = match before {
                    Some(KeyedHandle::Incremental(handle)) => handle.shared.clone(),
                    _ => Vec::with_capacity(extent.shared),
                };
                for place in (0..extent.shared).filter(|place| extent.replaces(id, *place)) {
                    let name = format!("{:06}.sst", id.0 as usize * extent.shared + place);
                    // A later checkpoint of this run drops it.
                    let dropped = (id.0 + 1..=extent.checkpoints as u64)
                        .any(|later| extent.replaces(CheckpointId(later), place));
                    let file = self.object(&name, shared, dropped)?;
                    match files.get_mut(place) {
                        Some(slot) => *slot = file,
                        None => files.push(file),
                    }
                }
                let range = key_groups.range_of(Subtask {
                    index,
                    parallelism: extent.parallelism,
                })?;
                let handle = IncrementalHandle {
                    format: "files".into(),
                    backend_id: format!("{vertex}-{index}").into(),
                    checkpoint: id,
                    range,
                    private: vec![self.object("MANIFEST", &private, true)?],
                    shared: files,
                    new_bytes: (extent.replaced() as u64 + 1) << 20,
                    states: vec![StateSummary {
                        meta: self.state.clone(),
                        entries: EntryCount::Estimate(1_000_000),
                    }],
                };
                let snapshot = OperatorSnapshot {
                    managed_keyed: vec![KeyedHandle::Incremental(handle)],
                    ..OperatorSnapshot::default()
                };
                snapshots.push((TaskId::new(vertex, index), Arc::new(snapshot)));
            }
        }
        Ok(snapshots)
    }

    fn tell(&mut self, fact: Fact<Arc<OperatorSnapshot>>) -> Vec<Action<Arc<OperatorSnapshot>>> {
        self.clock_ms += 1;
        let actions = self.coordinator.handle(self.clock_ms, fact);
        // The loop around the coordinator asks after every fact.
        std::hint::black_box(self.coordinator.next_wakeup());
        actions
    }

    fn metadata(
        &self,
        id: CheckpointId,
        created_ms: u64,
        acks: &[Acked<Arc<OperatorSnapshot>>],
    ) -> Result<CheckpointMetadata> {
        let (job, attempt) = (self.store.job().clone(), self.store.attempt());
        let created_ms = i64::try_from(created_ms).unwrap_or(i64::MAX);
        let kind = SnapshotKind::Checkpoint;
        let mut metadata = CheckpointMetadata::new(id, job, attempt, kind, created_ms);
        let parallelism = self.extent.parallelism;
        let key_groups = MaxParallelism::derive_default(parallelism)?;
        for uid in &self.uids {
            metadata.operators.push(OperatorMetadata::new(
                uid.clone(),
                parallelism,
                key_groups,
                HashId::default(),
            ));
        }
        for acked in acks {
            let operator = metadata.operators.get_mut(acked.task.vertex as usize);
            let operator =
                operator.ok_or_else(|| Error::bug("an ack of an operator that is not there"))?;
            let subtask = SubtaskMetadata::new(acked.task.subtask, Arc::clone(&acked.state));
            operator.subtasks.push(subtask);
        }
        metadata.collect_roots();
        Ok(metadata)
    }

    /// Takes one checkpoint, from the request until what it displaced is deleted.
    ///
    /// # Errors
    /// Those of store and registry; `Bug` when the coordinator does something else than a checkpoint.
    pub fn checkpoint(&mut self) -> Result<Course> {
        let id = self.coordinator.next_id();
        let snapshots = self.snapshots(id)?;
        let mut course = Course {
            before: resident_bytes(),
            ..Course::default()
        };
        reset_peak();
        let (start, cpu) = (now(), cpu_time());

        let trigger = Trigger::new(CheckpointKind::Checkpoint, RequestId(id.0));
        let triggered = course.trigger.time(|| {
            let actions = self.tell(Fact::Trigger(trigger));
            expect(actions, |action| {
                matches!(action, Action::PrepareLocation { .. }).then_some(())
            })?;
            let actions = self.tell(Fact::LocationReady { id });
            expect(actions, |action| {
                matches!(action, Action::TriggerTasks { .. }).then_some(())
            })
        });
        triggered?;

        let mut actions = Vec::new();
        for (task, state) in snapshots {
            let registered = course.register.time(|| {
                let keyed = state.managed_keyed.iter();
                let shared = keyed.flat_map(|handle| match handle {
                    KeyedHandle::Incremental(handle) => handle.shared.as_slice(),
                    KeyedHandle::KeyGroups(_) => &[],
                });
                for object in shared.filter_map(|file| file.bytes.object()) {
                    match self.registry.register(id, object)? {
                        Registration::New => course.new += 1,
                        Registration::Known => course.known += 1,
                    }
                }
                Ok::<_, Error>(())
            });
            registered?;
            let said = course
                .acks
                .time(|| self.tell(Fact::Ack { task, id, state }));
            actions.extend(said);
        }
        let (acks, triggered_ms) = expect(actions, |action| match action {
            Action::Publish {
                acks, timestamp_ms, ..
            } => Some((acks, timestamp_ms)),
            _ => None,
        })?;
        let metadata = course
            .build
            .time(|| self.metadata(id, triggered_ms, &acks))?;
        let published = course
            .publish
            .time_all(|| self.runtime.block_on(self.store.publish(&metadata)));
        course.metadata_len = published?.metadata_len;
        self.retained.insert(id, metadata);

        let said = course.complete.time(|| {
            drop(acks);
            self.tell(Fact::Published { id })
        });
        let subsumed: Vec<CheckpointId> = said
            .iter()
            .filter_map(|action| match action {
                Action::Subsume { id, delete: true } => Some(*id),
                _ => None,
            })
            .collect();
        expect(said, |action| {
            matches!(action, Action::NotifyComplete { .. }).then_some(())
        })?;
        let lowest = self.coordinator.completed().lowest_id().unwrap_or(id);
        let unused = course
            .unregister
            .time(|| self.registry.unregister_unused(lowest));
        course.total.wall = start.elapsed().as_secs_f64();
        let used = cpu.zip(cpu_time()).map(|(before, after)| after - before);
        course.total.core = used.map_or(course.total.wall, |used| used.as_secs_f64());

        // From here on nobody waits.
        for id in subsumed {
            let old = self.retained.remove(&id);
            let old =
                old.ok_or_else(|| Error::bug("a checkpoint is subsumed that is not there"))?;
            let report = course.discard.time_all(|| {
                let report = self
                    .runtime
                    .block_on(self.store.discard(&old, self.retained.values()));
                drop(old);
                report
            });
            course.deleted += report?.into_result()?;
            self.tell(Fact::Cleaned { id });
        }
        let report = course.delete.time_all(|| {
            self.runtime
                .block_on(self.store.delete_objects(&unused.objects))
        });
        course.deleted += report?.into_result()?;
        course.unused = unused.objects;
        course.peak = peak_resident_bytes();
        course.after = resident_bytes();
        Ok(course)
    }
}

/// Returns the table: three checkpoints of `subtasks` subtasks with `shared` shared objects each.
///
/// # Errors
/// As [`World::checkpoint`].
pub fn table(subtasks: u32, shared: usize) -> Result<Table> {
    let operators = 10.min(subtasks.max(1));
    let extent = Extent {
        operators,
        parallelism: (subtasks / operators).max(1),
        shared: shared.max(1),
        checkpoints: 3,
    };
    let mut world = World::new(extent)?;
    let mut courses = Vec::new();
    for _ in 0..extent.checkpoints {
        courses.push(world.checkpoint()?);
    }
    let mut table = Table::new(
        format!(
            "Checkpoints of {} subtasks with {} shared objects each, ms by the wall clock (on cores)",
            operators * extent.parallelism,
            extent.shared
        ),
        &["", "first", "second, 1 % new", "third, 1 % new"],
    );
    let mut row = |what: &str, cell: &dyn Fn(&Course) -> String| {
        let cells = courses.iter().map(cell);
        table.row(std::iter::once(what.to_owned()).chain(cells));
    };
    let mb = |of: fn(&Course) -> Option<u64>| {
        move |course: &Course| {
            of(course).map_or_else(String::new, |bytes| format!("{:.0}", bytes as f64 / 1e6))
        }
    };
    row("trigger", &|c| c.trigger.ms());
    row("register shared objects", &|c| c.register.ms());
    row("acks", &|c| c.acks.ms());
    row("put metadata together", &|c| c.build.ms());
    row("encode, write and sync it", &|c| c.publish.ms());
    row("complete and subsume", &|c| c.complete.ms());
    row("find unused objects", &|c| c.unregister.ms());
    row("all of that", &|c| c.total.ms());
    row("discard the subsumed one", &|c| c.discard.ms());
    row("delete unused objects", &|c| c.delete.ms());
    row("metadata, MB", &mb(|c| Some(c.metadata_len)));
    row("objects new", &|c| c.new.to_string());
    row("objects known", &|c| c.known.to_string());
    row("objects unused", &|c| c.unused.len().to_string());
    row("objects deleted", &|c| c.deleted.to_string());
    row("resident before, acks included, MB", &mb(|c| c.before));
    row("resident at most, MB", &mb(|c| c.peak));
    row("resident after, MB", &mb(|c| c.after));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn of_a_thousand_subtasks_every_shared_object_is_known_once_and_none_in_use_is_deleted() {
        let extent = Extent {
            operators: 4,
            parallelism: 250,
            shared: 20,
            checkpoints: 3,
        };
        let mut world = World::new(extent).unwrap();
        let mut gone: HashSet<ObjectHandle> = HashSet::new();
        for n in 1..=3 {
            let old: Vec<_> = world.retained().values().cloned().collect();
            let course = world.checkpoint().unwrap();

            let (new, known) = if n == 1 { (20_000, 0) } else { (1000, 19_000) };
            assert_eq!((course.new, course.known), (new, known), "checkpoint {n}");
            assert_eq!(world.registry().len(), 20_000);
            let displaced = if n == 1 { 0 } else { 1000 };
            assert_eq!(course.unused.len(), displaced);
            assert_eq!(course.deleted, 2 * displaced, "private ones, too");

            // What is deleted was in use before, is in use no more, and its file is not there.
            let ids: Vec<_> = world.retained().keys().copied().collect();
            assert_eq!(ids, [CheckpointId(n)]);
            let used: HashSet<ObjectHandle> = world.retained()[&CheckpointId(n)]
                .objects()
                .map(|used| used.object.clone())
                .collect();
            assert_eq!(used.len(), 21_000);
            gone.extend(course.unused);
            for old in &old {
                let left = old.objects().filter(|old| !used.contains(old.object));
                gone.extend(left.map(|old| old.object.clone()));
            }
            assert_eq!(gone.len(), 2000 * (n as usize - 1));
            assert!(gone.is_disjoint(&used));
            assert!(!gone.iter().any(|object| world.exists(object)));
            let private = used.iter().filter(|o| o.path.as_str().starts_with("chk-"));
            assert_eq!(private.filter(|object| world.exists(object)).count(), 1000);
            // Of the shared objects, those have files that a later checkpoint drops.
            let shared = used
                .iter()
                .filter(|o| o.path.as_str().starts_with("shared/"));
            let files = shared.filter(|object| world.exists(object)).count();
            assert_eq!(files, 1000 * (3 - n as usize));

            let newest = world.newest().unwrap().unwrap();
            assert_eq!(newest, world.retained()[&CheckpointId(n)]);
        }
    }
}
