use std::sync::Arc;

use checkpoint_storage::CheckpointMetadata;
use futures_util::future::BoxFuture;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Error, ErrorKind, ObjectHandle, OperatorSnapshot,
    Result,
};

use super::RestoreFrom;

/// What a job finds when it starts.
#[derive(Clone, Debug)]
pub struct StoreStart {
    /// The number of this start.
    pub attempt: Attempt,
    /// The first checkpoint id that was never used.
    pub next_checkpoint: CheckpointId,
    /// The retained checkpoints of earlier attempts, oldest first.
    pub completed: Vec<Arc<CheckpointMetadata>>,
}

/// A checkpoint with the storage that its bytes are read from.
#[derive(Clone)]
pub struct LoadedCheckpoint {
    /// What is in it.
    pub metadata: Arc<CheckpointMetadata>,
    /// Where its bytes are read from.
    pub storage: Arc<dyn CheckpointStorage>,
}

/// Says that the newest checkpoint is not where a job was left.
pub(crate) fn stopped_with(location: &str) -> Error {
    Error::config(format!(
        "the job was stopped with a savepoint, and its output is committed up to there: start it from {location}, or from nothing"
    ))
    .with("savepoint", location)
}

/// Where the checkpoints of one job are kept, as the coordinator sees it.
///
/// # Contract
/// Implemented over `checkpoint-storage` and by tests; called from the coordinator and from I/O threads.
/// `publish` is atomic and exclusive: afterwards the checkpoint exists as a whole or not at all. An error of kind `Fenced` means
/// that a newer attempt has taken over; one of kind `Retryable` that nobody knows whether the checkpoint exists; any other that it does not.
/// Deletions are repeatable.
pub trait CheckpointStore: Send + Sync {
    /// Takes the next attempt number and looks at what is there.
    ///
    /// # Errors
    /// Those of the store.
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>>;

    /// Returns where tasks write to; called after `start`.
    fn storage(&self) -> Arc<dyn CheckpointStorage>;

    /// Finds the checkpoint to restore; `None` when the newest is asked for and there is none.
    ///
    /// # Errors
    /// `NotFound` when a path leads nowhere, `Corrupt` when what is there is damaged, `Config` when the newest is asked for and the
    /// job was stopped with a savepoint after it.
    fn load<'a>(&'a self, from: &'a RestoreFrom)
    -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>>;

    /// Finds out whether a checkpoint of this attempt exists after all, whose [`publish`](Self::publish) ended without a certain answer; a
    /// savepoint is no checkpoint to go on from.
    ///
    /// # Errors
    /// `Corrupt` when it is there and damaged, `Config` when it is the savepoint that the job was stopped with, and that is noted;
    /// those of the store.
    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>>;

    /// Finds the checkpoint under a path, and makes it this job's: it is deleted when the job no longer needs it.
    ///
    /// # Errors
    /// As [`load`](Self::load); `AlreadyExists` when another job has claimed it; `Unsupported` where nothing can be claimed.
    fn claim<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<LoadedCheckpoint>> {
        Box::pin(std::future::ready(Err(Error::new(
            ErrorKind::Unsupported,
            "this store can't claim a checkpoint: start from it without a claim",
        )
        .with("path", path))))
    }

    /// Deletes shared objects that no checkpoint uses any more: those that were discarded are known to be gone, or claimed.
    ///
    /// # Errors
    /// Those of the store; `Fenced`.
    fn delete_shared(&self, _objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Looks whether a newer attempt has taken over, before anything is written for a checkpoint; `None` where there is
    /// nobody who could.
    ///
    /// A process that was frozen finds out here, and leaves its successor's folder as it is.
    fn check_fenced(&self) -> Option<BoxFuture<'static, Result<()>>> {
        None
    }

    /// Picks the place of a savepoint and returns what its subtasks write to, all of it into that place.
    ///
    /// `target` is the folder to put it in; without it, the configured one. Nobody deletes a savepoint that is complete.
    ///
    /// # Errors
    /// `InvalidArgument` when there is neither target nor a configured folder; `Unsupported` where there are no
    /// savepoints; `Fenced`; those of the store.
    fn prepare_savepoint(
        &self,
        _id: CheckpointId,
        _target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        Box::pin(std::future::ready(Err(Error::new(
            ErrorKind::Unsupported,
            "savepoints are not offered by this store",
        ))))
    }

    /// Removes what subtasks left in the place of a savepoint that was given up, once none of them writes there any more.
    ///
    /// # Errors
    /// Those of the store.
    fn drain_savepoint(&self, _id: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns what the bytes of a checkpoint of this attempt, complete or not, are read from.
    fn storage_of(&self, _id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        self.storage()
    }

    /// Returns the folder of a checkpoint of this job, as a path or URL; `None` where there is no such thing.
    fn location(&self, _id: CheckpointId) -> Option<String> {
        None
    }

    /// Makes a checkpoint, or a savepoint in the place that was prepared for it, exist.
    ///
    /// # Errors
    /// As the contract says.
    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>>;

    /// Notes that the job ends with a savepoint that was published, before anything is committed for it: an older checkpoint is
    /// not the latest to go on from any more, [`load`](Self::load) says so then.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    fn note_stop(&self, _savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Notes that this attempt has ended and writes nothing more, so that nobody need ask whether it still runs.
    ///
    /// # Errors
    /// Those of the store.
    fn end(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Clears away what earlier attempts left unfinished; called once, after the first checkpoint of this attempt is complete.
    ///
    /// It may take long, and may be dropped at any call.
    ///
    /// # Errors
    /// `Fenced`; other failures cost space alone, and are told in the log.
    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Deletes a checkpoint that was published, metadata first, and what no other checkpoint refers to; of a savepoint that the job was
    /// to stop with, before all the [note](Self::note_stop) of it.
    ///
    /// On success it is gone, or belongs to another job. After an error it may still be there as a whole: its objects are
    /// kept then, and it is discarded again later.
    ///
    /// # Errors
    /// Those of the store; `Fenced`.
    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>>;

    /// Deletes the private objects of a checkpoint that was never published.
    ///
    /// # Errors
    /// Those of the store; `Fenced`.
    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>>;
}
