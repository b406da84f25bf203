use std::fmt;
use std::sync::Arc;

use rocksdb::Options;
use state_api::{BackendContext, BackendFactory, BackendRegistry, KeyedBackend, Result};

use crate::NAME;
use crate::config::RocksDbConfig;
use crate::database::Database;
use crate::folder::InstanceFolder;
use crate::gauges::{DrawnOn, Gauges};
use crate::key_access::KeyAccess;
use crate::log_folder::log_folder_of;
use crate::memory::{Budgets, SharedMemory};
use crate::snapshot::Native;
use crate::store::RocksDbStore;
use crate::tuning::{OptionsHook, Tuning};

/// Makes backends that keep state in RocksDB databases, one for each keyed operator subtask.
///
/// Databases of one factory share its memory budget: keep one factory for a process.
///
/// ```
/// // Options that have no name in a configuration are set in code, after all others.
/// let backend = backend_rocksdb::RocksDbBackend::new().with_options(|options, state| {
///     if state == Some("history") {
///         options.set_compression_type(backend_rocksdb::rocksdb::DBCompressionType::Zstd);
///     }
/// });
/// # let _ = backend;
/// ```
#[derive(Clone, Default)]
pub struct RocksDbBackend {
    budgets: Arc<Budgets>,
    memory: Option<Arc<SharedMemory>>,
    hook: Option<OptionsHook>,
}

impl RocksDbBackend {
    /// Creates a factory whose databases share a budget as configured, of 512 MiB unless set otherwise.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all databases draw on this budget, whatever the configuration says.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<SharedMemory>) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Changes RocksDB's own options after everything else: those of each database, with `None`, and those of each column,
    /// with the name of its state. What the store relies on (merge operator, atomic flush, no flush at the end) stays as it is.
    #[must_use]
    pub fn with_options(
        mut self,
        hook: impl Fn(&mut Options, Option<&str>) + Send + Sync + 'static,
    ) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Opens an empty store for a subtask.
    ///
    /// # Errors
    /// `Config` when an option is unknown or has a bad value, or when no folder can be used.
    pub fn open(&self, cx: &BackendContext) -> Result<RocksDbStore> {
        let config = Arc::new(RocksDbConfig::parse(&cx.options)?);
        let memory = match &self.memory {
            Some(memory) => Some(Arc::clone(memory)),
            None => self.budgets.of(&config.memory, cx.subtask.index),
        };
        let folder = if config.local_dirs.is_empty() {
            InstanceFolder::create(cx, std::slice::from_ref(&cx.local_dir))
        } else {
            InstanceFolder::create(cx, &config.local_dirs)
        }?;
        let folder = Arc::new(folder);
        let path = folder.database();
        let gauges = Gauges::new(
            config.gauges.clone(),
            config.gauges_per_column,
            cx.operator.to_string(),
            cx.subtask.index.to_string(),
            memory.clone().map(|memory| DrawnOn {
                memory,
                of_subtask: self.memory.is_none() && config.memory.per_slot.is_some(),
            }),
        );
        let logs = config.log.dir.as_ref();
        let logs = logs.and_then(|dir| log_folder_of(cx, dir));
        let tuning = Tuning::new(config, memory, self.hook.clone(), Arc::clone(&cx.clock));
        let tuning = tuning.with_logs(logs);
        let native = Native::new(cx.range, cx.max_parallelism.prefix_len());
        let database = Database::open(folder, path, tuning, |_| KeyAccess::Ordered)?;
        RocksDbStore::new(database, gauges, native)
    }
}

impl BackendFactory for RocksDbBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        Ok(KeyedBackend::Bytes(Box::new(self.open(cx)?)))
    }
}

impl fmt::Debug for RocksDbBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksDbBackend")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Adds this backend to a registry.
///
/// # Errors
/// `AlreadyExists` when the name is taken.
pub fn register(registry: &mut BackendRegistry) -> Result<()> {
    registry.register(RocksDbBackend::new())
}
