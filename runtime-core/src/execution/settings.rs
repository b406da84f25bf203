use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use checkpoint_storage::LocalCopyOptions;
use state_api::{BackendFactory, CheckpointId, Clock, JobId, ObjectCacheBudget, Result};

use super::{CheckpointStore, Failpoints, JobEvents, NoEvents};
use crate::config::{CheckpointMode, CheckpointSettings, ClaimMode};
use crate::coordinator::{CoordinatorConfig, JobStatus};
use crate::restart::RestartStrategy;

/// What a job's first run starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RestoreFrom {
    /// Nothing: state is empty.
    Nothing,
    /// The newest checkpoint of the job id, if there is one.
    #[default]
    Latest,
    /// A checkpoint or savepoint by path.
    Path(String),
}

/// How a job runs: what a configuration file can hold.
#[derive(Clone, Debug)]
pub struct ExecutionSettings {
    /// The job, as the folder of its checkpoints is named.
    pub job_id: JobId,
    /// Whether barriers are aligned.
    pub mode: CheckpointMode,
    /// When checkpoints are taken, and how many are kept.
    pub checkpointing: CoordinatorConfig,
    /// Number of ended checkpoints whose statistics are kept, at least 1.
    pub history: u32,
    /// What follows a failure.
    pub restart: RestartStrategy,
    /// What the first run starts from.
    pub restore: RestoreFrom,
    /// Who owns the checkpoint or savepoint that is named by path.
    pub claim: ClaimMode,
    /// Whether state of operators that the job no longer has may be dropped.
    pub allow_non_restored_state: bool,
    /// The checkpoint that is restored without its records in flight, if it has some: they are lost then.
    pub without_in_flight: Option<CheckpointId>,
    /// The uids of the only operators to restore in the first run, all others start empty; without any, all are restored.
    pub restore_only: Vec<String>,
    /// Operators that have a new uid: what the checkpoint calls them, and what the job calls them.
    pub rename_operators: BTreeMap<String, String>,
    /// Options of the state backend, under its own prefix.
    pub backend_options: BTreeMap<String, String>,
    /// Bytes that the live tables of one subtask's operator may take.
    pub memory_limit: Option<usize>,
    /// Memory for live objects in front of byte stores, for this and other jobs of the process; `None` for no such cache.
    pub object_cache: Option<Arc<ObjectCacheBudget>>,
    /// Local folder for files of this process.
    pub local_dir: PathBuf,
    /// Second copies of the objects of checkpoints on local disk; without folders for them, they lie in `local_dir`.
    pub local_copies: LocalCopyOptions,
}

impl ExecutionSettings {
    /// Creates settings with the defaults: exactly once, no periodic checkpoints, restore of the latest.
    ///
    /// # Errors
    /// `InvalidArgument` when the job id is not one safe path segment.
    pub fn new(job_id: &str) -> Result<Self> {
        Ok(Self {
            job_id: JobId::new(job_id)?,
            mode: CheckpointMode::default(),
            checkpointing: CoordinatorConfig::default(),
            history: CheckpointSettings::default().history,
            restart: RestartStrategy::None,
            restore: RestoreFrom::default(),
            claim: ClaimMode::default(),
            allow_non_restored_state: false,
            restore_only: Vec::new(),
            rename_operators: BTreeMap::new(),
            without_in_flight: None,
            backend_options: BTreeMap::new(),
            memory_limit: None,
            object_cache: None,
            local_dir: std::env::temp_dir(),
            local_copies: LocalCopyOptions::default(),
        })
    }
}

/// What a job runs with: the components that are passed in.
#[derive(Clone)]
pub struct JobParts {
    /// Makes the keyed backends.
    pub backend: Arc<dyn BackendFactory>,
    /// Where checkpoints go; without it there are none, and sinks commit at the end.
    pub checkpoints: Option<Arc<dyn CheckpointStore>>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Learns what happens.
    pub events: Arc<dyn JobEvents>,
    /// Hooks of crash tests.
    pub failpoints: Failpoints,
    /// Any number: jitter and hash seeds are derived from it.
    pub seed: u64,
}

impl JobParts {
    /// Creates parts without checkpoints and listeners.
    #[must_use]
    pub fn new(backend: Arc<dyn BackendFactory>, clock: Arc<dyn Clock>) -> Self {
        Self {
            backend,
            checkpoints: None,
            clock,
            events: Arc::new(NoEvents),
            failpoints: Failpoints::none(),
            seed: 0,
        }
    }

    /// Sets where checkpoints go.
    #[must_use]
    pub fn checkpoints(mut self, store: Arc<dyn CheckpointStore>) -> Self {
        self.checkpoints = Some(store);
        self
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// Finished, cancelled or put aside; a failed job is an error.
    pub status: JobStatus,
    /// Runs beside the first.
    pub restarts: u32,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints given up.
    pub aborted: u64,
}
