//! The coordinator's side of a checkpoint of many subtasks that share objects: acks are simulated, nothing else is.
use std::collections::BTreeMap;

use checkpoint_storage::{
    CheckpointMetadata, JobStore, ObjectNames, OperatorMetadata, SharedRegistry, StoreRoot,
    SubtaskMetadata, UuidSource,
};
use runtime_core::coordinator::{
    Acks, Action, CheckpointCoordinator, CheckpointKind, CoordinatorConfig, Fact, Plan, PlanVertex,
    RequestId, TaskId, Trigger,
};
use runtime_core::task::{CheckpointAck, SnapshotReport};
use state_api::{
    Attempt, CheckpointId, Digest, Error, HashId, IncrementalHandle, JobId, KeyedHandle,
    MaxParallelism, NamedHandle, ObjectHandle, OperatorSnapshot, OperatorUid, RelPath, Result,
    Root, SnapshotKind, StateHandle, Subtask,
};
use tokio::runtime::Runtime;

use crate::process::resident_bytes;
use crate::stopwatch::{now, seconds};
use crate::table::Table;

/// What one checkpoint took, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Taking in every ack and noting every shared object.
    pub acks: f64,
    /// Making the metadata out of the acks.
    pub metadata: f64,
    /// Encoding and publishing it in a local folder, synced.
    pub publish: f64,
    /// Completing it, subsuming the one before, and finding what nobody uses any more.
    pub complete: f64,
    /// Shared objects that nobody uses any more.
    pub unused: usize,
    /// Length of the metadata in bytes.
    pub metadata_len: u64,
    /// Resident bytes of the process at the end.
    pub resident: u64,
}

impl Took {
    /// Returns the seconds of all steps.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.acks + self.metadata + self.publish + self.complete
    }
}

/// A job whose subtasks ack with shared objects that exist by name only.
pub struct Simulation {
    coordinator: CheckpointCoordinator<CheckpointAck>,
    registry: SharedRegistry,
    retained: BTreeMap<CheckpointId, CheckpointMetadata>,
    store: JobStore,
    runtime: Runtime,
    names: ObjectNames,
    /// The objects of each subtask.
    objects: Vec<Vec<NamedHandle>>,
    max_parallelism: MaxParallelism,
    requests: u64,
    _folder: tempfile::TempDir,
}

impl Simulation {
    /// Creates a job of one vertex.
    ///
    /// # Errors
    /// Those of the store.
    pub fn new(subtasks: u32, objects: usize) -> Result<Self> {
        let failed = |error| Error::config("can't make a folder, or threads").caused_by(error);
        let folder = tempfile::tempdir().map_err(failed)?;
        let runtime = Runtime::new().map_err(failed)?;
        let root = StoreRoot::local(folder.path(), runtime.handle().clone())?;
        let source = UuidSource::seeded(7);
        let job = JobId::new("scale")?;
        let store = runtime.block_on(JobStore::open(root, job, source.clone()))?;
        let mut coordinator =
            CheckpointCoordinator::new(CoordinatorConfig::default(), store.first_checkpoint())?;
        let plan = Plan::new([PlanVertex::source(0, subtasks)])?;
        coordinator.handle(0, Fact::TasksRunning { plan, random: 0 });
        let mut simulation = Self {
            coordinator,
            registry: SharedRegistry::new(),
            retained: BTreeMap::new(),
            store,
            runtime,
            names: ObjectNames::new(Attempt(1), source),
            objects: Vec::new(),
            max_parallelism: MaxParallelism::new(32_768)?,
            requests: 0,
            _folder: folder,
        };
        for _ in 0..subtasks {
            let of_subtask: Result<Vec<_>> = (0..objects).map(|_| simulation.object()).collect();
            simulation.objects.push(of_subtask?);
        }
        Ok(simulation)
    }

    fn object(&self) -> Result<NamedHandle> {
        let name = self.names.next();
        let object = ObjectHandle {
            root: Root::Own,
            path: RelPath::new(&format!("shared/{name}"))?,
            len: 1 << 20,
            digest: Digest([7; 32]),
        };
        Ok(NamedHandle {
            name: "000042.sst".into(),
            bytes: StateHandle::Object(object),
        })
    }

    /// Replaces one in so many objects of each subtask, at least one, by a new one.
    ///
    /// # Errors
    /// Never in practice: the names are valid.
    pub fn renew(&mut self, one_in: usize) -> Result<()> {
        for subtask in 0..self.objects.len() {
            let count = self.objects[subtask].len();
            for place in 0..(count / one_in).max(1).min(count) {
                self.objects[subtask][place] = self.object()?;
            }
        }
        Ok(())
    }

    fn ack(
        &self,
        subtask: u32,
        checkpoint: CheckpointId,
        uid: &OperatorUid,
    ) -> Result<CheckpointAck> {
        let parallelism = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
        let place = Subtask {
            index: subtask,
            parallelism,
        };
        let files = IncrementalHandle {
            format: "scale".into(),
            backend_id: "scale".into(),
            checkpoint,
            range: self.max_parallelism.range_of(place)?,
            private: Vec::new(),
            shared: self.objects[subtask as usize].clone(),
            new_bytes: 0,
            states: Vec::new(),
        };
        let snapshot = OperatorSnapshot {
            managed_keyed: vec![KeyedHandle::Incremental(files)],
            ..OperatorSnapshot::default()
        };
        Ok(CheckpointAck {
            operators: vec![(uid.clone(), snapshot)],
            report: SnapshotReport::default(),
        })
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// Those of the store; `Bug` when the coordinator does not do what it must.
    pub fn checkpoint(&mut self) -> Result<Took> {
        let uid = OperatorUid::new("scale")?;
        self.requests += 1;
        let trigger = Trigger::new(CheckpointKind::Checkpoint, RequestId(self.requests));
        let id = self.coordinator.next_id();
        self.coordinator.handle(0, Fact::Trigger(trigger));
        self.coordinator.handle(0, Fact::LocationReady { id });
        // What subtasks do is not measured: the acks are there before.
        let subtasks = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
        let acks: Result<Vec<_>> = (0..subtasks).map(|i| self.ack(i, id, &uid)).collect();
        let started = now();
        let mut sealed = None;
        for (subtask, ack) in (0..).zip(acks?) {
            for (_, snapshot) in &ack.operators {
                for handle in &snapshot.managed_keyed {
                    if let KeyedHandle::Incremental(files) = handle {
                        for object in files.shared.iter().filter_map(|file| file.bytes.object()) {
                            self.registry.register(id, object)?;
                        }
                    }
                }
            }
            let fact = Fact::Ack {
                task: TaskId::new(0, subtask),
                id,
                state: ack,
            };
            for action in self.coordinator.handle(0, fact) {
                if let Action::Publish { acks, .. } = action {
                    sealed = Some(acks);
                }
            }
        }
        let taken_in = started.elapsed().as_secs_f64();
        let sealed = sealed.ok_or_else(|| Error::bug("the last ack seals nothing"))?;
        let (metadata, made) = seconds(|| self.metadata(id, &uid, &sealed));
        drop(sealed);
        let (published, wrote) = seconds(|| self.runtime.block_on(self.store.publish(&metadata)));
        let started = now();
        let mut unused = 0;
        self.retained.insert(id, metadata);
        for action in self.coordinator.handle(0, Fact::Published { id }) {
            match action {
                Action::Subsume { id, .. } => {
                    self.retained.remove(&id);
                    self.coordinator.handle(0, Fact::Cleaned { id });
                }
                Action::NotifyComplete { .. } => {
                    let lowest = self.coordinator.completed().lowest_id();
                    let lowest = lowest.ok_or_else(|| Error::bug("nothing is retained"))?;
                    unused = self.registry.unregister_unused(lowest).objects.len();
                }
                _ => {}
            }
        }
        Ok(Took {
            acks: taken_in,
            metadata: made,
            publish: wrote,
            complete: started.elapsed().as_secs_f64(),
            unused,
            metadata_len: published?.metadata_len,
            resident: resident_bytes().unwrap_or(0),
        })
    }

    fn metadata(
        &self,
        id: CheckpointId,
        uid: &OperatorUid,
        acks: &Acks<CheckpointAck>,
    ) -> CheckpointMetadata {
        let mut metadata = CheckpointMetadata::new(
            id,
            self.store.job().clone(),
            self.store.attempt(),
            SnapshotKind::Checkpoint,
            0,
        );
        let parallelism = u32::try_from(self.objects.len()).unwrap_or(u32::MAX);
        let mut operator = OperatorMetadata::new(
            uid.clone(),
            parallelism,
            self.max_parallelism,
            HashId::default(),
        );
        for acked in acks.iter() {
            for (_, snapshot) in &acked.state.operators {
                operator
                    .subtasks
                    .push(SubtaskMetadata::new(acked.task.subtask, snapshot.clone()));
            }
        }
        metadata.operators.push(operator);
        metadata.collect_roots();
        metadata
    }
}

/// Returns the table: a first checkpoint, then some with one object in a hundred new.
///
/// # Errors
/// Those of the simulation.
pub fn table(subtasks: u32, objects: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "A checkpoint of {subtasks} subtasks with {objects} shared objects each, coordinator's side"
        ),
        &[
            "checkpoint",
            "acks s",
            "metadata s",
            "publish s",
            "complete s",
            "all s",
            "unused objects",
            "metadata MB",
            "resident MB",
        ],
    );
    let mut simulation = Simulation::new(subtasks, objects)?;
    for name in ["first", "1 % new", "1 % new", "1 % new"] {
        let took = simulation.checkpoint()?;
        let s = |seconds: f64| format!("{seconds:.3}");
        let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        table.row([
            name.to_owned(),
            s(took.acks),
            s(took.metadata),
            s(took.publish),
            s(took.complete),
            s(took.total()),
            took.unused.to_string(),
            mb(took.metadata_len),
            mb(took.resident),
        ]);
        simulation.renew(100)?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_checkpoint_frees_what_the_last_one_replaced() {
        let mut simulation = Simulation::new(200, 20).expect("a folder");
        let first = simulation.checkpoint().expect("a checkpoint");
        assert_eq!(first.unused, 0);
        for _ in 0..3 {
            simulation.renew(20).expect("names");
            let next = simulation.checkpoint().expect("a checkpoint");
            assert_eq!(next.unused, 200);
            assert_eq!(next.metadata_len, first.metadata_len);
        }
        assert_eq!(simulation.registry.len(), 200 * 20);
        assert_eq!(simulation.retained.len(), 1);
    }
}
