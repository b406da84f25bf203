use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use managed_state::keyed::{KeyedContext, KeyedStates};
use state_api::{
    BackendContext, BackendFactory, CheckpointId, CheckpointStorage, Clock, Error, ErrorKind,
    Executor, HashId, JobId, KeyedHandle, ManualClock, MaxParallelism, OperatorUid, RestoreContext,
    Result, SnapshotKind, StateKey, Subtask,
};
use tempfile::TempDir;

use crate::executor::{InlineExecutor, block_on};
use crate::job::{Job, Register};
use crate::storage::MemoryStorage;

/// What happens to a rule's state between writing and asserting, each time the rule calls [`Job::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing: the assertions are about the instance that was written.
    Direct,
    /// A checkpoint, restored at the same parallelism.
    Restored,
    /// A canonical savepoint, restored at the same parallelism.
    Savepoint,
    /// As [`Mode::Restored`], with more checkpoints taken after every third access, most of them completed, some aborted.
    Incremental,
    /// A checkpoint written at parallelism 2 and restored at 3.
    ScaledUp,
    /// A checkpoint written at parallelism 3 and restored at 2.
    ScaledDown,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::Restored,
        Self::Savepoint,
        Self::Incremental,
        Self::ScaledUp,
        Self::ScaledDown,
    ];

    /// Returns the parallelism at which a rule writes.
    #[must_use]
    pub fn written_at(self) -> u32 {
        if self == Self::ScaledDown { 3 } else { 2 }
    }

    /// Returns the parallelism at which it is read again.
    #[must_use]
    pub fn asserted_at(self) -> u32 {
        if self == Self::ScaledUp { 3 } else { 2 }
    }

    /// Returns the kind of snapshot that is taken.
    #[must_use]
    pub fn kind(self) -> SnapshotKind {
        if self == Self::Savepoint {
            SnapshotKind::CanonicalSavepoint
        } else {
            SnapshotKind::Checkpoint
        }
    }

    /// Returns the name under which a test of a rule runs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Restored => "restored",
            Self::Savepoint => "savepoint",
            Self::Incremental => "incremental",
            Self::ScaledUp => "scaled_up",
            Self::ScaledDown => "scaled_down",
        }
    }
}

/// A completed checkpoint: the handles of each subtask.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its id.
    pub id: CheckpointId,
    /// What each subtask has written.
    pub handles: Vec<Vec<KeyedHandle>>,
}

impl Checkpoint {
    /// Returns all handles.
    pub fn all(&self) -> impl Iterator<Item = &KeyedHandle> {
        self.handles.iter().flatten()
    }
}

/// What a rule is given: the backend under test, the mode, a clock that it moves, and storage to write snapshots to.
#[derive(Clone)]
pub struct Setup {
    /// Makes the backend under test.
    pub factory: Arc<dyn BackendFactory>,
    /// What [`Job::settle`] does.
    pub mode: Mode,
    /// Tells the time to states; moved by the rule alone.
    pub clock: Arc<ManualClock>,
    /// The objects of snapshots, unless [`storage`](Self::storage) was replaced.
    pub memory: MemoryStorage,
    /// Where snapshots go.
    pub storage: Arc<dyn CheckpointStorage>,
    /// Runs the async parts.
    pub executor: Arc<dyn Executor>,
    max_parallelism: MaxParallelism,
    hash: HashId,
    memory_limit: Option<usize>,
    dir: Arc<TempDir>,
    numbers: Arc<AtomicU64>,
}

impl Setup {
    /// Creates a setup of 16 key groups, at 1,000 ms, with storage in memory.
    ///
    /// # Errors
    /// `Retryable` when no folder for local files can be made.
    pub fn new(factory: Arc<dyn BackendFactory>, mode: Mode) -> Result<Self> {
        let dir = tempfile::tempdir()
            .map_err(|e| Error::retryable("no temporary folder").caused_by(e))?;
        let memory = MemoryStorage::new();
        Ok(Self {
            factory,
            mode,
            clock: Arc::new(ManualClock::at(1_000)),
            storage: Arc::new(memory.clone()),
            memory,
            executor: Arc::new(InlineExecutor),
            max_parallelism: MaxParallelism::new(16)?,
            hash: HashId::default(),
            memory_limit: None,
            dir: Arc::new(dir),
            numbers: Arc::default(),
        })
    }

    /// Sets the number of key groups.
    ///
    /// # Panics
    /// When it is out of range.
    #[must_use]
    pub fn max_parallelism(mut self, groups: u32) -> Self {
        self.max_parallelism = ok(MaxParallelism::new(groups));
        self
    }

    /// Sets how keys are mapped to key groups.
    #[must_use]
    pub fn hash(mut self, hash: HashId) -> Self {
        self.hash = hash;
        self
    }

    /// Sets how many bytes live tables may take.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Puts another backend in place of the one under test, keeping storage and clock.
    #[must_use]
    pub fn factory(mut self, factory: Arc<dyn BackendFactory>) -> Self {
        self.factory = factory;
        self
    }

    /// Puts other storage in place.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn CheckpointStorage>) -> Self {
        self.storage = storage;
        self
    }

    /// Puts another executor in place.
    #[must_use]
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = executor;
        self
    }

    /// Returns the number of key groups.
    #[must_use]
    pub fn groups(&self) -> MaxParallelism {
        self.max_parallelism
    }

    /// Returns the folder that local files are in.
    #[must_use]
    pub fn local_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a number that was not returned before; from 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Starts a job without state at the mode's parallelism.
    ///
    /// # Panics
    /// When backend or registration fail.
    #[track_caller]
    pub fn start<K: StateKey, S: Copy>(
        &self,
        register: impl Fn(&mut KeyedStates<K>) -> Result<S> + 'static,
    ) -> Job<K, S> {
        ok(self.start_at(self.mode.written_at(), register))
    }

    /// Starts a job without state.
    ///
    /// # Errors
    /// Those of the backend and of `register`.
    pub fn start_at<K: StateKey, S: Copy>(
        &self,
        parallelism: u32,
        register: impl Fn(&mut KeyedStates<K>) -> Result<S> + 'static,
    ) -> Result<Job<K, S>> {
        self.build(None, parallelism, std::rc::Rc::new(register))
    }

    /// Starts a job out of a checkpoint, with states registered anew.
    ///
    /// # Errors
    /// Those of the restore and of `register`.
    pub fn restore<K: StateKey, S: Copy>(
        &self,
        checkpoint: &Checkpoint,
        parallelism: u32,
        register: impl Fn(&mut KeyedStates<K>) -> Result<S> + 'static,
    ) -> Result<Job<K, S>> {
        self.build(Some(checkpoint), parallelism, std::rc::Rc::new(register))
    }

    pub(crate) fn build<K: StateKey, S: Copy>(
        &self,
        checkpoint: Option<&Checkpoint>,
        parallelism: u32,
        register: Register<K, S>,
    ) -> Result<Job<K, S>> {
        let mut subtasks = Vec::new();
        for index in 0..parallelism {
            let mut states = self.states(Subtask { index, parallelism })?;
            if let Some(checkpoint) = checkpoint {
                let range = states.context().range;
                let handles: Vec<KeyedHandle> = checkpoint
                    .all()
                    .filter(|handle| !handle.range().intersect(range).is_empty())
                    .cloned()
                    .collect();
                let cx = RestoreContext {
                    storage: Arc::clone(&self.storage),
                    executor: Arc::clone(&self.executor),
                };
                block_on(states.restore(&handles, &cx))?;
            }
            let tokens = register(&mut states)?;
            subtasks.push((states, tokens));
        }
        Ok(Job::new(self.clone(), subtasks, register))
    }

    /// Makes the states of one subtask, empty and without registrations.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn states<K: StateKey>(&self, subtask: Subtask) -> Result<KeyedStates<K>> {
        let range = self.max_parallelism.range_of(subtask)?;
        let local_dir = self
            .dir
            .path()
            .join(format!("backend-{}", self.next_number()));
        std::fs::create_dir_all(&local_dir)
            .map_err(|e| Error::retryable("no local folder").caused_by(e))?;
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        let cx = BackendContext {
            job: JobId::new("conformance")?,
            operator: OperatorUid::new("rule")?,
            subtask,
            max_parallelism: self.max_parallelism,
            range,
            local_dir,
            clock: Arc::clone(&clock),
            options: BTreeMap::new(),
        };
        let mut keyed = KeyedContext::new(self.max_parallelism, range, clock, 0x5EED);
        keyed.hash = self.hash;
        keyed.memory_limit = self.memory_limit;
        KeyedStates::new(self.factory.create(&cx)?, keyed)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("backend", &self.factory.name())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// Returns the value of a result that must be one.
///
/// # Panics
/// When it is an error.
#[track_caller]
pub fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the error of a result that must be one of a kind.
///
/// # Panics
/// When it is none, or one of another kind.
#[track_caller]
pub fn fails<T>(kind: ErrorKind, result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("no error, instead of one of the kind {kind:?}"),
        Err(error) if error.kind() == kind => error,
        Err(error) => panic!("not an error of the kind {kind:?}: {error}"),
    }
}
