//! Subtasks with stores of their own, beside a plain sorted map that says what is in them.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use backend_rocksdb::{RocksDbBackend, RocksDbStore};
use backend_testkit::fuzz::Random;
use backend_testkit::storage::MemoryStorage;
use backend_testkit::{InlineExecutor, block_on, only_subtask};
use state_api::{
    BackendContext, ByteStore, CheckpointId, CheckpointStorage, Clock, CodecKind, Column,
    IncrementalHandle, KeyGroupRange, KeyedHandle, ManualClock, MaxParallelism, NamedHandle, Page,
    PersistContext, RestoreContext, Result, SnapshotKind, SnapshotRequest, StateHandle, StateKind,
    StateMeta, Subtask, TypeMeta,
};

/// The names of the columns.
pub(crate) const STATES: [&str; 2] = ["one", "two"];

/// Options that make a tree of several levels out of a few hundred kilobytes.
pub(crate) const SMALL: &[(&str, &str)] = &[
    ("incremental", "true"),
    ("memory.managed", "false"),
    ("writebuffer.size", "64kb"),
    ("compaction.level.target-file-size-base", "16kb"),
    ("compaction.level.max-size-level-base", "64kb"),
    ("block.blocksize", "1kb"),
];

/// Keys as they are stored: column, then key group and what follows.
pub(crate) type Model = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

pub(crate) struct Subtasks {
    pub(crate) stores: Vec<RocksDbStore>,
    pub(crate) groups: MaxParallelism,
    pub(crate) storage: Arc<dyn CheckpointStorage>,
    pub(crate) next: u64,
    pub(crate) backend: RocksDbBackend,
    pub(crate) clock: Arc<dyn Clock>,
    dir: std::path::PathBuf,
    options: BTreeMap<String, String>,
}

pub(crate) fn meta(name: &str) -> StateMeta {
    StateMeta {
        name: name.into(),
        kind: StateKind::Value,
        key: TypeMeta::of::<u64>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key: None,
        value: TypeMeta::of::<u64>(CodecKind::Compact),
        ttl_ms: None,
    }
}

impl Subtasks {
    pub(crate) fn new(dir: &Path, parallelism: u32, groups: u32, options: &[(&str, &str)]) -> Self {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut subtasks = Self {
            stores: Vec::new(),
            groups: MaxParallelism::new(groups).unwrap(),
            storage: Arc::new(MemoryStorage::new()),
            next: 1,
            backend: RocksDbBackend::new(),
            clock: Arc::new(ManualClock::at(0)),
            dir: dir.to_owned(),
            options: options.iter().map(pair).collect(),
        };
        subtasks.stores = (0..parallelism)
            .map(|index| {
                let mut store = subtasks.open(index, parallelism);
                for name in STATES {
                    store.open_column(name).unwrap();
                }
                store
            })
            .collect();
        subtasks
    }

    pub(crate) fn open(&self, index: u32, parallelism: u32) -> RocksDbStore {
        let cx = BackendContext {
            subtask: Subtask { index, parallelism },
            range: self.range_of(index, parallelism),
            clock: Arc::clone(&self.clock),
            options: self.options.clone(),
            ..only_subtask(self.groups.get(), &self.dir, &[])
        };
        self.backend.open(&cx).unwrap()
    }

    pub(crate) fn range(&self, index: usize) -> KeyGroupRange {
        let parallelism = u32::try_from(self.stores.len()).unwrap();
        self.range_of(u32::try_from(index).unwrap(), parallelism)
    }

    pub(crate) fn range_of(&self, index: u32, parallelism: u32) -> KeyGroupRange {
        self.groups
            .range_of(Subtask { index, parallelism })
            .unwrap()
    }

    /// Returns the store and column of a stored key.
    pub(crate) fn owner(&mut self, state: usize, key: &[u8]) -> (&mut RocksDbStore, Column) {
        let prefix_len = self.groups.prefix_len();
        let group = key[..prefix_len]
            .iter()
            .fold(0, |group, byte| group << 8 | u16::from(*byte));
        let owner = (0..self.stores.len())
            .find(|index| self.range(*index).contains(state_api::KeyGroup(group)))
            .unwrap();
        let store = &mut self.stores[owner];
        let column = store.open_column(STATES[state]).unwrap();
        (store, column)
    }

    pub(crate) fn cut(
        &mut self,
        kind: SnapshotKind,
    ) -> (
        CheckpointId,
        Vec<Box<dyn state_api::Snapshot<Vec<KeyedHandle>>>>,
    ) {
        let checkpoint = CheckpointId(self.next);
        self.next += 1;
        let request = SnapshotRequest {
            checkpoint,
            kind,
            now_ms: 0,
        };
        let cut = |store: &mut RocksDbStore| {
            let states: Vec<_> = store
                .column_names()
                .iter()
                .map(|name| (store.open_column(name).unwrap(), meta(name)))
                .collect();
            store.native().unwrap().snapshot(&request, &states).unwrap()
        };
        (checkpoint, self.stores.iter_mut().map(cut).collect())
    }

    pub(crate) fn persist(
        &self,
        checkpoint: CheckpointId,
        snapshot: Box<dyn state_api::Snapshot<Vec<KeyedHandle>>>,
    ) -> Result<Vec<KeyedHandle>> {
        let cx = PersistContext::new(
            checkpoint,
            Arc::clone(&self.storage),
            Arc::new(InlineExecutor),
        );
        block_on(snapshot.persist(cx))
    }

    /// Takes and writes a snapshot; a checkpoint is completed.
    pub(crate) fn snapshot(&mut self, kind: SnapshotKind) -> Vec<KeyedHandle> {
        let (checkpoint, cuts) = self.cut(kind);
        let handles = cuts
            .into_iter()
            .flat_map(|cut| self.persist(checkpoint, cut).unwrap())
            .collect();
        if !kind.is_savepoint() {
            self.completed(checkpoint);
        }
        handles
    }

    pub(crate) fn completed(&mut self, checkpoint: CheckpointId) {
        for store in &mut self.stores {
            store
                .native()
                .unwrap()
                .checkpoint_completed(checkpoint)
                .unwrap();
        }
    }

    /// Starts subtasks anew out of handles.
    pub(crate) fn restore(&mut self, handles: &[KeyedHandle], parallelism: u32) -> Result<()> {
        self.stores.clear();
        let cx = RestoreContext {
            storage: Arc::clone(&self.storage),
            executor: Arc::new(InlineExecutor),
        };
        for index in 0..parallelism {
            let mut store = self.open(index, parallelism);
            let range = self.range_of(index, parallelism);
            let own: Vec<KeyedHandle> = handles
                .iter()
                .filter(|handle| !handle.range().intersect(range).is_empty())
                .cloned()
                .collect();
            block_on(store.native().unwrap().restore(&own, range, &cx))?;
            for name in STATES {
                store.open_column(name).unwrap();
            }
            self.stores.push(store);
        }
        Ok(())
    }

    pub(crate) fn wait_for_rewriting(&mut self) {
        for store in &mut self.stores {
            store.wait_for_rewriting();
        }
    }

    /// Returns all that is in the stores; nothing may be in the wrong one.
    pub(crate) fn contents(&mut self) -> Model {
        let mut all = Model::new();
        for index in 0..self.stores.len() {
            let store = &mut self.stores[index];
            for (state, name) in STATES.iter().enumerate() {
                let column = store.open_column(name).unwrap();
                let mut page = Page::default();
                store
                    .scan(column, &[], None, usize::MAX, &mut page)
                    .unwrap();
                for (key, value) in page.entries {
                    assert!(all.insert((state, key), value).is_none());
                }
            }
        }
        for (state, key) in all.keys() {
            let (store, column) = self.owner(*state, key);
            let mut value = Vec::new();
            assert!(store.get(column, key, &mut value).unwrap());
            assert_eq!(Some(&value), all.get(&(*state, key.clone())));
        }
        all
    }

    /// Does random operations on the stores and on the model.
    pub(crate) fn work(&mut self, random: &mut Random, model: &mut Model, operations: usize) {
        for _ in 0..operations {
            let state = random.below(STATES.len());
            let key = self.key(random);
            match random.below(100) {
                0..50 => {
                    let value = random.bytes(40);
                    let (store, column) = self.owner(state, &key);
                    store.put(column, &key, &value).unwrap();
                    model.insert((state, key), value);
                }
                50..75 => {
                    let value = random.bytes(20);
                    let (store, column) = self.owner(state, &key);
                    store.merge(column, &key, &value).unwrap();
                    model.entry((state, key)).or_default().extend(value);
                }
                75..98 => {
                    let (store, column) = self.owner(state, &key);
                    store.delete(column, &key).unwrap();
                    model.remove(&(state, key));
                }
                // All keys of a group, or those that begin alike.
                _ => {
                    let len = self.groups.prefix_len() + random.below(2);
                    let start = key[..len].to_vec();
                    let end = state_api::prefix_end(&start);
                    let (store, column) = self.owner(state, &key);
                    store.delete_range(column, &start, end.as_deref()).unwrap();
                    model.retain(|(other, key), _| *other != state || !key.starts_with(&start));
                }
            }
            if random.below(4_000) == 0 {
                let index = random.below(self.stores.len());
                self.stores[index].compact().unwrap();
            }
        }
    }

    /// Puts so many values of 60 bytes that don't compress, the key groups in turn, which take one byte.
    pub(crate) fn fill(&mut self, random: &mut Random, model: &mut Model, entries: u16) {
        for number in 0..entries {
            let group = u32::from(number) % self.groups.get();
            let key = [&[group as u8][..], &number.to_be_bytes()].concat();
            let value: Vec<u8> = (0..60).map(|_| random.number() as u8).collect();
            let (store, column) = self.owner(0, &key);
            store.put(column, &key, &value).unwrap();
            model.insert((0, key), value);
        }
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        let group = random.below(self.groups.get() as usize) as u16;
        let prefix = group.to_be_bytes();
        let mut key = prefix[2 - self.groups.prefix_len()..].to_vec();
        let number = random.below(120) as u8;
        key.push(number % 4);
        // The empty rest too.
        if number > 3 {
            key.extend([number, 7]);
        }
        key
    }
}

/// Returns the parts of a handle that is files.
pub(crate) fn files(handle: &KeyedHandle) -> &IncrementalHandle {
    match handle {
        KeyedHandle::Incremental(handle) => handle,
        KeyedHandle::KeyGroups(_) => panic!("not files"),
    }
}

/// Returns the objects under a list of names.
pub(crate) fn objects(files: &[NamedHandle]) -> BTreeMap<String, String> {
    files
        .iter()
        .filter_map(|file| {
            let object = file.bytes.object()?;
            Some((file.name.to_string(), object.path.as_str().to_owned()))
        })
        .collect()
}

/// Returns all objects that handles point at.
pub(crate) fn all_objects(handles: &[KeyedHandle]) -> std::collections::BTreeSet<String> {
    handles
        .iter()
        .flat_map(KeyedHandle::parts)
        .filter_map(StateHandle::object)
        .map(|object| object.path.as_str().to_owned())
        .collect()
}
