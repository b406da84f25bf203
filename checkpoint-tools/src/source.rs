use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, CopyOptions, METADATA_NAME, OperatorMetadata, StoreRoot, StoredCheckpoint,
    SubtaskMetadata, TokioExecutor,
};
use state_api::{
    CheckpointStorage, Clock, Error, ErrorKind, KeyGroupRange, KeyedHandle, Result, Subtask,
    SystemClock,
};
use tokio::runtime::Handle;

use crate::formats::{Conversion, Formats, NativePart};
use crate::keyed::KeyedPart;
use crate::progress::{Progress, Silent};
use crate::scratch::Scratch;
use crate::watched::WatchedStorage;

/// What work on checkpoints needs of its surroundings.
#[derive(Clone)]
pub struct Toolbox {
    /// Where input and output run.
    pub runtime: Handle,
    /// A local folder for what has to be put aside; folders are made in it and removed again.
    pub local_dir: PathBuf,
    /// The formats of keyed state that can be read.
    pub formats: Formats,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Hears how far the work has come.
    pub progress: Arc<dyn Progress>,
    /// Objects that are copied as they are at once, at least one; each takes some MiB of memory.
    pub concurrency: usize,
}

impl Toolbox {
    /// Creates surroundings with the canonical format, the machine's clock, and nobody who listens.
    #[must_use]
    pub fn new(runtime: Handle, local_dir: impl Into<PathBuf>) -> Self {
        Self {
            runtime,
            local_dir: local_dir.into(),
            formats: Formats::new(),
            clock: Arc::new(SystemClock),
            progress: Arc::new(Silent),
            concurrency: CopyOptions::default().concurrency,
        }
    }

    pub(crate) fn scratch(&self) -> Result<Scratch> {
        Scratch::new(&self.local_dir, &self.runtime)
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox")
            .field("local_dir", &self.local_dir)
            .field("formats", &self.formats)
            .finish_non_exhaustive()
    }
}

/// A checkpoint whose state is read.
#[derive(Clone, Debug)]
pub struct CheckpointSource {
    found: Arc<StoredCheckpoint>,
    pub(crate) storage: SharedStorage,
    pub(crate) toolbox: Toolbox,
}

/// A storage without a description.
#[derive(Clone)]
pub(crate) struct SharedStorage(pub(crate) Arc<dyn CheckpointStorage>);

impl fmt::Debug for SharedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStorage")
    }
}

impl CheckpointSource {
    /// Opens a checkpoint; objects in folders of other jobs are read only if their roots are allowed here.
    #[must_use]
    pub fn new(
        found: StoredCheckpoint,
        roots: impl IntoIterator<Item = StoreRoot>,
        toolbox: Toolbox,
    ) -> Self {
        let storage = Arc::new(found.storage(roots));
        let progress = Arc::clone(&toolbox.progress);
        let watched = WatchedStorage::new(storage, progress, found.folder.url());
        Self {
            found: Arc::new(found),
            storage: SharedStorage(Arc::new(watched)),
            toolbox,
        }
    }

    /// Returns the checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> &StoredCheckpoint {
        &self.found
    }

    /// Says it otherwise where what looks like damage is a checkpoint that its job has deleted while it was read.
    pub async fn judged(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        match self.found.folder.len(METADATA_NAME).await {
            Ok(None) => Error::retryable(
                "the checkpoint was deleted while it was read, as a running job does with old ones: run it again, or take a savepoint to read",
            )
            .with("checkpoint", self.found.folder.url())
            .caused_by(error),
            _ => error,
        }
    }

    /// Returns what the checkpoint says about itself.
    #[must_use]
    pub fn metadata(&self) -> &CheckpointMetadata {
        &self.found.metadata
    }

    /// Returns the storage that its objects are read from.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn CheckpointStorage> {
        &self.storage.0
    }

    /// Finds an operator by its uid.
    ///
    /// # Errors
    /// `NotFound`, naming the nearest uid.
    pub fn operator(&self, uid: &str) -> Result<&OperatorMetadata> {
        self.metadata().operator(uid).ok_or_else(|| {
            let uids = self.metadata().operators.iter().map(|o| o.uid.as_str());
            crate::find::not_found("operator", uid, uids)
                .with("checkpoint", self.checkpoint().folder.url())
        })
    }

    /// Returns the keyed state of a subtask in the canonical format; what is in another one is converted into local files.
    ///
    /// # Errors
    /// `Unsupported` for an unknown format; `Corrupt`, naming the object, for bytes that are missing or damaged.
    pub async fn keyed_part(
        &self,
        operator: &OperatorMetadata,
        subtask: &SubtaskMetadata,
    ) -> Result<KeyedPart> {
        let all = operator.max_parallelism.all_groups();
        self.open_part(operator, subtask, all, None)
            .await
            .map_err(|e| place(e, operator, subtask))
    }

    /// As [`keyed_part`](Self::keyed_part), with no more than some key groups being converted, and what is converted being
    /// written to a storage that the caller names.
    pub(crate) async fn open_part(
        &self,
        operator: &OperatorMetadata,
        subtask: &SubtaskMetadata,
        wanted: KeyGroupRange,
        to: Option<Arc<dyn CheckpointStorage>>,
    ) -> Result<KeyedPart> {
        let handles = &subtask.snapshot.managed_keyed;
        let Some(format) = self.toolbox.formats.of(handles)? else {
            let canonical = handles.iter().filter_map(|handle| match handle {
                KeyedHandle::KeyGroups(groups) => Some(groups.clone()),
                KeyedHandle::Incremental(_) => None,
            });
            return Ok(KeyedPart {
                subtask: subtask.index,
                handles: canonical.collect(),
                storage: Arc::clone(self.storage()),
                scratch: None,
            });
        };
        let ranges = handles.iter().map(KeyedHandle::range);
        let range = ranges
            .reduce(crate::keyed::hull)
            .unwrap_or(KeyGroupRange::EMPTY)
            .intersect(wanted);
        let scratch = self.toolbox.scratch()?;
        let to = to.unwrap_or_else(|| scratch.storage());
        let conversion = Conversion {
            checkpoint: self.metadata().checkpoint,
            from: Arc::clone(self.storage()),
            to: Arc::clone(&to),
            executor: TokioExecutor::new(self.toolbox.runtime.clone()),
            local_dir: scratch.folder(),
            clock: Arc::clone(&self.toolbox.clock),
        };
        let part = NativePart {
            job: &self.metadata().job,
            operator: &operator.uid,
            subtask: Subtask {
                index: subtask.index,
                parallelism: operator.parallelism,
            },
            max_parallelism: operator.max_parallelism,
            range,
            handles,
        };
        let handles = format.to_canonical(part, &conversion).await?;
        Ok(KeyedPart {
            subtask: subtask.index,
            handles,
            storage: to,
            scratch: Some(scratch),
        })
    }
}

/// Says in an error which operator and subtask it is about.
pub(crate) fn place(error: Error, operator: &OperatorMetadata, subtask: &SubtaskMetadata) -> Error {
    if error.context("operator").is_some() {
        return error;
    }
    error
        .with("operator", &operator.uid)
        .with("subtask", subtask.index)
}
