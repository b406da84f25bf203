//! A checkpoint of a job whose types the tools have never seen.
#![allow(dead_code, reason = "each test uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use checkpoint_storage::{
    CheckpointMetadata, Layout, METADATA_NAME, ObjectCheckpointStorage, ObjectNames,
    OperatorMetadata, RawSection, StoreRoot, StreamOptions, SubtaskMetadata, TokioExecutor,
    UuidSource,
};
use checkpoint_tools::CheckpointSource;
use managed_state::keyed::{
    At, KeyedContext, KeyedStates, ListState, MapState, ReducingState, SortedMapState, Timers,
    ValueState,
};
use managed_state::operator::OperatorStates;
use state_api::access::{ListAccess, MapAccess, MergeAccess, ValueAccess};
use state_api::{
    Attempt, BackendContext, BackendFactory, CheckpointId, CheckpointStorage, CodecKind,
    GroupExtent, HashId, JobId, KeyGroup, KeyGroupOffsets, KeyGroupsHandle, ManualClock,
    MaxParallelism, Opaque, OpaqueType, OperatorSnapshot, OperatorUid, PersistContext,
    RestoreContext, Result, SnapshotKind, SnapshotRequest, StateHandle, StateKey, StateOptions,
    StateType, Subtask, TtlConfig,
};
use tokio::runtime::Runtime;

/// When the job ran.
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, StateType, StateKey)]
pub(crate) struct Customer {
    pub(crate) shop: String,
    pub(crate) number: u32,
}

#[derive(Clone, Debug, Default, PartialEq, StateType)]
pub(crate) struct Total {
    pub(crate) amount: f64,
    pub(crate) last: Option<String>,
}

#[derive(Clone, Debug, PartialEq, StateType)]
pub(crate) enum Visit {
    Online,
    Shop { city: String },
}

#[derive(Clone, Debug, PartialEq, Eq, StateType, StateKey)]
pub(crate) struct Day {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sketch(pub(crate) Vec<u8>);

impl OpaqueType for Sketch {
    const CODEC_ID: &'static str = "sketch";
    const VERSION: u32 = 3;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(Self(bytes.to_vec()))
    }
}

/// The tokens of the keyed states.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) totals: ValueState<Total>,
    pub(crate) visits: ListState<Visit>,
    pub(crate) basket: MapState<String, u32, Day>,
    pub(crate) history: SortedMapState<i64, (u8, String)>,
    pub(crate) count: ReducingState<u64>,
    pub(crate) sketch: ValueState<Opaque<Sketch>>,
    pub(crate) reminders: Timers<String>,
}

pub(crate) fn register(states: &mut KeyedStates<Customer>) -> Result<Tokens> {
    let ttl = TtlConfig::new(Duration::from_secs(3600))?;
    Ok(Tokens {
        totals: states.value("totals")?,
        visits: states.list(StateOptions::new("visits").ttl(ttl))?,
        basket: states.map("basket")?,
        history: states.sorted_map("history")?,
        count: states.reducing(
            StateOptions::new("count").codec(CodecKind::Evolvable),
            |a: &u64, b| Ok(a + b),
        )?,
        sketch: states.value("sketch")?,
        reminders: states.timers("reminders")?,
    })
}

pub(crate) fn customer(number: u32) -> Customer {
    Customer {
        shop: ["north", "south", ""][number as usize % 3].to_owned(),
        number,
    }
}

/// Writes what the job knows of one customer.
pub(crate) fn fill(at: &mut At<'_, Customer>, on: Tokens, number: u32) -> Result<()> {
    let last = (!number.is_multiple_of(4)).then(|| format!("item-{number}"));
    at.value(on.totals).set(Total {
        amount: f64::from(number) + 0.5,
        last,
    })?;
    at.list(on.visits).extend(vec![
        Visit::Online,
        Visit::Shop {
            city: format!("city \"{number}\""),
        },
    ])?;
    for (start, fruit) in [(0, "apples"), (86_400_000, "pears")] {
        let end = start + 86_400_000;
        let day = Day { start, end };
        at.map_in(on.basket, &day).put(fruit.to_owned(), number)?;
    }
    at.sorted_map(on.history)
        .put(-i64::from(number), (1, "a\0b".to_owned()))?;
    at.reducing(on.count).add(u64::from(number))?;
    at.value(on.sketch).set(Opaque(Sketch(vec![0xAB, 1])))?;
    at.timers_in(on.reminders, &"daily".to_owned())
        .set(1000 + i64::from(number))?;
    Ok(())
}

/// How the job runs.
pub(crate) struct Shop {
    pub(crate) factory: Arc<dyn BackendFactory>,
    /// Subtasks of the operator with keys; the other one has as many, unless [`feeds`](Self::feeds) says how many.
    pub(crate) parallelism: u32,
    pub(crate) feeds: Option<u32>,
    pub(crate) max_parallelism: u32,
    pub(crate) customers: u32,
    pub(crate) kind: SnapshotKind,
    pub(crate) inline_threshold: i64,
    pub(crate) raw_keyed: bool,
    /// Whether the folder is a job's, with the state as its checkpoint 7, and not a savepoint's.
    pub(crate) in_job: bool,
}

impl Default for Shop {
    fn default() -> Self {
        Self {
            factory: Arc::new(backend_hashmap::HashMapBackend),
            parallelism: 2,
            feeds: None,
            max_parallelism: 16,
            customers: 20,
            kind: SnapshotKind::CanonicalSavepoint,
            inline_threshold: 0,
            raw_keyed: true,
            in_job: false,
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn context(max: u32, subtask: Subtask, dir: &Path) -> (BackendContext, KeyedContext) {
    let max_parallelism = MaxParallelism::new(max).unwrap();
    let range = max_parallelism.range_of(subtask).unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let backend = BackendContext {
        job: JobId::new("shop").unwrap(),
        operator: OperatorUid::new("orders").unwrap(),
        subtask,
        max_parallelism,
        range,
        local_dir: dir.to_owned(),
        clock: clock.clone(),
        options: BTreeMap::new(),
    };
    let keyed = KeyedContext::new(max_parallelism, range, clock, 7);
    (backend, keyed)
}

impl Shop {
    fn feeds(&self) -> u32 {
        self.feeds.unwrap_or(self.parallelism)
    }

    /// Writes a savepoint of the job into a new folder.
    pub(crate) fn write(&self, folder: &Path, io: &Runtime) {
        self.write_from(None, folder, io);
    }

    /// Restores the job from a savepoint, with as many subtasks for the operator without keys, and writes another one.
    pub(crate) fn restore_and_write(&self, from: &CheckpointSource, folder: &Path, io: &Runtime) {
        self.write_from(Some(from), folder, io);
    }

    fn write_from(&self, from: Option<&CheckpointSource>, folder: &Path, io: &Runtime) {
        let root = StoreRoot::local(folder, io.handle().clone()).unwrap();
        let metadata = io.block_on(self.metadata(from, &root, io));
        let above = if self.in_job { "chk-7/" } else { "" };
        let path = format!("{above}{METADATA_NAME}");
        let published = root.publish(&path, metadata.encode().unwrap());
        io.block_on(published).unwrap();
    }

    async fn metadata(
        &self,
        from: Option<&CheckpointSource>,
        root: &StoreRoot,
        io: &Runtime,
    ) -> CheckpointMetadata {
        let (layout, kind) = match self.in_job {
            true => (Layout::Job, SnapshotKind::Checkpoint),
            false => (Layout::SelfContained, SnapshotKind::CanonicalSavepoint),
        };
        let storage: Arc<dyn CheckpointStorage> = Arc::new(ObjectCheckpointStorage::with_layout(
            root.clone(),
            layout,
            ObjectNames::new(Attempt(3), UuidSource::machine()),
            StreamOptions::new(self.inline_threshold, 4096).unwrap(),
        ));
        let id = CheckpointId(7);
        let executor = Arc::new(TokioExecutor::new(io.handle().clone()));
        let persisting = || PersistContext::new(id, Arc::clone(&storage), executor.clone());
        let request = SnapshotRequest {
            checkpoint: id,
            kind: self.kind,
            now_ms: NOW_MS,
        };
        let max = MaxParallelism::new(self.max_parallelism).unwrap();
        let uid = OperatorUid::new("orders").unwrap();
        let mut orders = OperatorMetadata::new(uid, self.parallelism, max, HashId::default());
        orders.name = Some("orders of all shops".into());
        orders.unknown = vec![RawSection {
            tag: 2_000_000,
            bytes: "kept".into(),
        }];
        let uid = OperatorUid::new("feed").unwrap();
        let mut feed = OperatorMetadata::new(uid, self.feeds(), max, HashId::default());
        let restoring = from.map(|from| RestoreContext {
            storage: Arc::clone(from.storage()),
            executor: executor.clone(),
        });
        let old = |uid: &str| {
            let operator = from.and_then(|from| from.metadata().operator(uid));
            operator.map_or(&[][..], |operator| &operator.subtasks)
        };
        let handles = old("orders").iter();
        let handles = handles.flat_map(|subtask| subtask.snapshot.managed_keyed.clone());
        let handles: Vec<_> = handles.collect();
        let dir = tempfile::tempdir().unwrap();
        for index in 0..self.parallelism {
            let subtask = Subtask {
                index,
                parallelism: self.parallelism,
            };
            let (backend, keyed) = context(self.max_parallelism, subtask, dir.path());
            let range = keyed.range;
            let backend = self.factory.create(&backend).unwrap();
            let mut states = KeyedStates::new(backend, keyed).unwrap();
            if let Some(cx) = &restoring {
                states.restore(&handles, cx).await.unwrap();
            }
            let tokens = register(&mut states).unwrap();
            let new = if from.is_none() { self.customers } else { 0 };
            for number in 0..new {
                let key = customer(number);
                if range.contains(states.hash(&key).group()) {
                    fill(&mut states.at(&key), tokens, number).unwrap();
                }
            }
            let keyed = states.snapshot(&request).unwrap();
            let mut snapshot = OperatorSnapshot {
                managed_keyed: keyed.persist(persisting()).await.unwrap(),
                ..OperatorSnapshot::default()
            };
            if self.raw_keyed && index == 0 {
                let mut offsets = KeyGroupOffsets::new(range);
                offsets
                    .set(KeyGroup(1), GroupExtent { offset: 8, len: 10 })
                    .unwrap();
                snapshot.raw_keyed = vec![KeyGroupsHandle {
                    format: "raw".into(),
                    offsets,
                    bytes: StateHandle::Inline(vec![0; 18].into()),
                    states: Vec::new(),
                }];
            }
            orders.subtasks.push(SubtaskMetadata::new(index, snapshot));
        }
        for index in 0..self.feeds() {
            let mut states = OperatorStates::new();
            if let Some(cx) = &restoring {
                let own = &old("feed")[index as usize].snapshot.managed_operator;
                states.restore(own, cx).await.unwrap();
            }
            let offsets = states.list::<u64>("offsets").unwrap();
            let seen = states.union_list::<String>("seen").unwrap();
            let rates = states.broadcast::<String, f64>("rates").unwrap();
            if from.is_none() {
                let list = states.elements_mut(offsets).unwrap();
                list.extend([u64::from(index) * 10, u64::from(index) * 10 + 1]);
                let list = states.elements_mut(seen).unwrap();
                list.push(format!("by {index}"));
                let map = states.entries_mut(rates).unwrap();
                map.insert("EUR".into(), 1.0);
                map.insert("USD".into(), 0.9);
            }
            let operator = states.snapshot(&request).unwrap();
            let handle = operator.persist(persisting()).await.unwrap();
            feed.subtasks.push(SubtaskMetadata::new(
                index,
                OperatorSnapshot {
                    managed_operator: handle.into_iter().collect(),
                    ..OperatorSnapshot::default()
                },
            ));
        }
        let mut metadata =
            CheckpointMetadata::new(id, JobId::new("shop").unwrap(), Attempt(3), kind, NOW_MS);
        metadata.unknown = vec![RawSection {
            tag: 3_000_000,
            bytes: "kept too".into(),
        }];
        metadata.operators = vec![feed, orders];
        metadata
    }
}
