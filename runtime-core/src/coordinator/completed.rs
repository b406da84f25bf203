use state_api::{CheckpointId, Error, Result};

use super::CheckpointKind;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// It came to the end of its input or was stopped with a savepoint.
    Finished,
    /// The user cancelled it.
    Cancelled,
    /// It failed for good.
    Failed,
    /// It was put aside to be continued.
    Suspended,
}

/// What happens to retained checkpoints when the job ends.
///
/// | | finished | cancelled | failed | suspended |
/// | --- | --- | --- | --- | --- |
/// | `Never` | deleted | deleted | deleted | deleted |
/// | `DeleteOnCancellation` | deleted | deleted | kept | deleted |
/// | `RetainOnCancellation` | deleted | kept | kept | kept |
/// | `Always` | kept | kept | kept | kept |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Retention {
    /// Deletes them however the job ends.
    #[default]
    Never,
    /// Keeps them only when the job failed.
    DeleteOnCancellation,
    /// Deletes them only when the job finished.
    RetainOnCancellation,
    /// Keeps them however the job ends.
    Always,
}

impl Retention {
    /// Tells whether a checkpoint outlives a job that ends this way.
    #[must_use]
    pub fn keeps(self, status: JobStatus) -> bool {
        match self {
            Self::Never => false,
            Self::DeleteOnCancellation => status == JobStatus::Failed,
            Self::RetainOnCancellation => status != JobStatus::Finished,
            Self::Always => true,
        }
    }
}

/// A completed checkpoint as the list of them knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// What was set for it when it was triggered.
    pub retention: Retention,
    /// Whether it is ours to delete: not if it was restored from without a claim.
    pub owned: bool,
    /// When it was triggered, in milliseconds.
    pub timestamp_ms: u64,
    /// When it was complete, in milliseconds.
    pub completed_ms: u64,
}

impl CompletedCheckpoint {
    /// Tells whether it may ever be deleted by the system.
    #[must_use]
    pub fn is_deletable(&self) -> bool {
        self.owned && !self.kind.is_savepoint()
    }
}

/// A checkpoint that left the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsumed {
    /// Which one.
    pub id: CheckpointId,
    /// Whether its contents are to be deleted; a savepoint's never are.
    pub delete: bool,
}

/// The verdict on every retained checkpoint at the end of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Those that stay, in ascending order.
    pub keep: Vec<CheckpointId>,
    /// Those that are deleted, in ascending order.
    pub delete: Vec<CheckpointId>,
}

/// The completed checkpoints that a job retains, by ascending id; pure bookkeeping, the storage does the rest.
///
/// The newest checkpoint that is not a savepoint is never dropped, however many savepoints follow it, except by a
/// savepoint that ends the job (Flink's `CheckpointSubsumeHelper`).
#[derive(Clone, Debug)]
pub struct CompletedCheckpoints {
    retained: usize,
    list: Vec<CompletedCheckpoint>,
    closed: bool,
}

impl CompletedCheckpoints {
    /// Creates a list that keeps the newest `retained`, beginning with those that were found at the start.
    ///
    /// # Errors
    /// `Config` when `retained` is 0.
    pub fn new(retained: u32, mut found: Vec<CompletedCheckpoint>) -> Result<Self> {
        if retained == 0 {
            return Err(Error::config(
                "at least one completed checkpoint must be retained",
            ));
        }
        found.sort_by_key(|c| c.id);
        found.dedup_by_key(|c| c.id);
        Ok(Self {
            retained: retained as usize,
            list: found,
            closed: false,
        })
    }

    /// Adds a checkpoint whose metadata is durable and returns those that drop out for it.
    ///
    /// # Errors
    /// `Poisoned` after [`CompletedCheckpoints::close`], `AlreadyExists` when the id is in the list.
    pub fn add(&mut self, checkpoint: CompletedCheckpoint) -> Result<Vec<Subsumed>> {
        if self.closed {
            return Err(
                Error::poisoned("the list of completed checkpoints is closed")
                    .with("checkpoint", checkpoint.id),
            );
        }
        let at = match self.list.binary_search_by_key(&checkpoint.id, |c| c.id) {
            Ok(_) => {
                return Err(Error::new(
                    state_api::ErrorKind::AlreadyExists,
                    "the checkpoint is complete already",
                )
                .with("checkpoint", checkpoint.id));
            }
            Err(at) => at,
        };
        self.list.insert(at, checkpoint);
        Ok(self.subsume())
    }

    fn subsume(&mut self) -> Vec<Subsumed> {
        let Some(newest) = self.list.last() else {
            return Vec::new();
        };
        let newest_id = newest.id;
        let last_real = if matches!(newest.kind, CheckpointKind::StopWithSavepoint { .. }) {
            None
        } else {
            self.list
                .iter()
                .rev()
                .find(|c| !c.kind.is_savepoint())
                .map(|c| c.id)
        };
        let mut surplus = self.list.len().saturating_sub(self.retained);
        let mut dropped = Vec::new();
        self.list.retain(|c| {
            let stays = surplus == 0 || c.id == newest_id || Some(c.id) == last_real;
            if !stays {
                surplus -= 1;
                dropped.push(Subsumed {
                    id: c.id,
                    delete: c.is_deletable(),
                });
            }
            stays
        });
        dropped
    }

    /// Closes the list and says what happens to each checkpoint of a job that ends this way.
    ///
    /// `keep_on_suspend` keeps everything of a suspended job. Afterwards the list is empty.
    pub fn close(&mut self, status: JobStatus, keep_on_suspend: bool) -> Verdict {
        self.closed = true;
        let mut verdict = Verdict::default();
        for checkpoint in self.list.drain(..) {
            let keep = !checkpoint.is_deletable()
                || checkpoint.retention.keeps(status)
                || (status == JobStatus::Suspended && keep_on_suspend);
            if keep {
                &mut verdict.keep
            } else {
                &mut verdict.delete
            }
            .push(checkpoint.id);
        }
        verdict
    }

    /// Returns the newest one, which recovery starts from.
    #[must_use]
    pub fn latest(&self) -> Option<&CompletedCheckpoint> {
        self.list.last()
    }

    /// Returns the lowest retained id: shared objects last used before it are free.
    #[must_use]
    pub fn lowest_id(&self) -> Option<CheckpointId> {
        self.list.first().map(|c| c.id)
    }

    /// Returns all of them, oldest first.
    #[must_use]
    pub fn all(&self) -> &[CompletedCheckpoint] {
        &self.list
    }

    /// Tells whether an id is in the list.
    #[must_use]
    pub fn contains(&self, id: CheckpointId) -> bool {
        self.list.binary_search_by_key(&id, |c| c.id).is_ok()
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Tells whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
