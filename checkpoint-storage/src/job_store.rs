use bytes::Bytes;
use state_api::{Attempt, CheckpointId, Error, ErrorKind, JobId, Result, Root};

use crate::checkpoint::{self, ListedCheckpoint, StoredCheckpoint, list_checkpoints};
use crate::layout::{ATTEMPTS, checkpoint_folder, checkpoint_of_folder, parse_number};
use crate::metadata::{CheckpointMetadata, METADATA_NAME, MetadataEncoder, OwnRoot, file_of};
use crate::names::UuidSource;
use crate::options::StreamOptions;
use crate::publish::Content;
use crate::root::StoreRoot;
use crate::storage::ObjectCheckpointStorage;
use crate::store::Lease;

/// How often the next attempt number is tried while others take numbers too.
const ATTEMPT_TRIES: u32 = 100;

/// The name of what a checkpoint without objects of its own leaves in its folder before it is completed.
pub(crate) const ANNOUNCED: &str = "_announced";

/// A job's folder, held by one attempt: the coordinator's side of checkpoint storage.
///
/// Opening it takes the next attempt number, which fences all lower ones: their next publication or deletion fails.
/// What an attempt may delete is what it published or was handed and has subsumed; it is the caller who knows that.
#[derive(Clone, Debug)]
pub struct JobStore {
    pub(crate) root: StoreRoot,
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    pub(crate) first: CheckpointId,
    pub(crate) names: UuidSource,
    pub(crate) claimed: Vec<StoreRoot>,
    /// Shows others that this attempt runs, where the store can.
    _hold: Option<Lease>,
}

/// A checkpoint that is complete from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// URL of its folder.
    pub url: String,
    /// Length of its metadata in bytes.
    pub metadata_len: u64,
}

impl JobStore {
    /// Returns the folder of a job below the checkpoint folder; without a level of its own, that folder itself.
    #[must_use]
    pub fn job_folder(checkpoints: &StoreRoot, job: &JobId, create_subdir: bool) -> StoreRoot {
        if create_subdir {
            checkpoints.folder(job.as_str())
        } else {
            checkpoints.clone()
        }
    }

    /// Takes the next attempt of the job whose folder this is.
    ///
    /// The number is taken before anything is read: whatever a lower attempt publishes after that, it learns that it is fenced.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    pub async fn open(root: StoreRoot, job: JobId, names: UuidSource) -> Result<Self> {
        let attempt = take_attempt(&root, &names).await?;
        let held = root.hold(&format!("{ATTEMPTS}/{attempt}")).await;
        let hold = held.unwrap_or_else(|error| {
            tracing::debug!(%attempt, %error, "nobody can see that this attempt runs");
            None
        });
        let first = next_checkpoint(&root).await?;
        tracing::info!(job = %job, attempt = %attempt, first_checkpoint = %first, folder = root.url(), "took the job folder");
        Ok(Self {
            root,
            job,
            attempt,
            first,
            names,
            claimed: Vec::new(),
            _hold: hold,
        })
    }

    /// Allows deleting objects in folders that this job has claimed.
    #[must_use]
    pub fn with_claimed(mut self, roots: impl IntoIterator<Item = StoreRoot>) -> Self {
        self.claimed.extend(roots);
        self
    }

    /// Returns the job folder.
    #[must_use]
    pub fn root(&self) -> &StoreRoot {
        &self.root
    }

    /// Returns the job.
    #[must_use]
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Returns this attempt.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Returns the first checkpoint id of this attempt: above every checkpoint that left a trace in the folder.
    #[must_use]
    pub fn first_checkpoint(&self) -> CheckpointId {
        self.first
    }

    /// Returns the storage for this attempt's snapshots.
    #[must_use]
    pub fn storage(&self, options: StreamOptions) -> ObjectCheckpointStorage {
        ObjectCheckpointStorage::new(self.root.clone(), self.attempt, self.names.clone(), options)
            .with_roots(self.claimed.iter().cloned())
    }

    /// Looks for a higher attempt.
    ///
    /// # Errors
    /// `Fenced` if there is one; `Retryable` when the store fails.
    pub async fn check_fenced(&self) -> Result<()> {
        match last_attempt(&self.root).await? {
            Some(last) if last > self.attempt => Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "attempt {last} of the job has taken over from attempt {}",
                    self.attempt
                ),
            )
            .with("job", &self.job)),
            Some(last) if last == self.attempt => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "the number of attempt {} is gone: the folder of the job was removed or moved away",
                    self.attempt
                ),
            )
            .with("job", &self.job)),
        }
    }

    /// Completes a checkpoint: from now on it exists.
    ///
    /// Its objects must be durable. Fencing is checked before and after: on success no higher attempt had begun by the time
    /// the checkpoint was there, so every later one sees it.
    ///
    /// # Errors
    /// `Fenced` when a higher attempt has begun, `AlreadyExists` when the id is taken, `InvalidArgument` when the metadata is
    /// not this attempt's, `Retryable` when the store fails; the checkpoint may have become visible then, and a repeated
    /// call with the same metadata tells.
    pub async fn publish(&self, metadata: &CheckpointMetadata) -> Result<Published> {
        let named = |e: Error| {
            e.with("checkpoint", metadata.checkpoint)
                .with("job", &self.job)
        };
        self.check_own(metadata).map_err(named)?;
        if metadata.own_root != OwnRoot::Parent {
            return Err(named(Error::invalid(
                "a self-contained checkpoint does not go into the job folder",
            )));
        }
        let folder = self.root.folder(&checkpoint_folder(metadata.checkpoint));
        self.announce(&folder, metadata).await.map_err(named)?;
        self.publish_in(&folder, metadata).await.map_err(named)
    }

    /// Leaves something in the folder of a checkpoint that has nothing there and needs objects elsewhere.
    ///
    /// Whoever deletes objects that no checkpoint refers to first keeps those that were begun from being completed, which it
    /// knows by their folders. This comes before the last look for a higher attempt: one of the two sees the other.
    async fn announce(&self, folder: &StoreRoot, metadata: &CheckpointMetadata) -> Result<()> {
        if !needs_announcement(metadata) {
            return Ok(());
        }
        match folder
            .publish(ANNOUNCED, "holdfast: announced\n".into())
            .await
        {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }

    fn check_own(&self, metadata: &CheckpointMetadata) -> Result<()> {
        if metadata.job != self.job || metadata.attempt != self.attempt {
            return Err(Error::invalid(format!(
                "the metadata is of attempt {} of job {}, not of attempt {} of job {}",
                metadata.attempt, metadata.job, self.attempt, self.job
            )));
        }
        Ok(())
    }

    /// Publishes metadata of this attempt in a folder.
    pub(crate) async fn publish_in(
        &self,
        folder: &StoreRoot,
        metadata: &CheckpointMetadata,
    ) -> Result<Published> {
        self.check_own(metadata)?;
        // Metadata that is signed is made as a whole; it may be large, so other metadata is made part by part.
        let signed = match folder.signer() {
            Some(signer) => Some(file_of(Some(signer), metadata)?),
            None => None,
        };
        let mut content = MetadataEncoder::new(metadata)?;
        let metadata_len = signed
            .as_ref()
            .map_or(content.len(), |file| file.len() as u64);
        self.check_fenced().await?;
        let published = match &signed {
            Some(file) => folder.publish(METADATA_NAME, file.clone()).await,
            None => folder.publish_parts(METADATA_NAME, &mut content).await,
        };
        if let Err(e) = published {
            // The store may have failed after it did its work, or this may be a repeated call.
            let expected = match signed {
                Some(file) => file,
                None => metadata.encode()?,
            };
            match folder.read_all(METADATA_NAME).await {
                // The folder may be what could not be made durable.
                Ok(found) if found == expected => folder.sync_folder("").await.map_err(in_doubt)?,
                // Something is there and can't be read yet: it may be what an earlier try wrote.
                Err(unread) if unread.kind() != ErrorKind::NotFound => {
                    self.check_fenced().await.map_err(in_doubt)?;
                    return Err(in_doubt(unread));
                }
                _ => {
                    self.check_fenced().await?;
                    return Err(e);
                }
            }
        }
        confirm(folder, metadata_len).await.map_err(in_doubt)?;
        self.check_fenced().await.map_err(in_doubt)?;
        Ok(Published {
            url: folder.url().to_owned(),
            metadata_len,
        })
    }

    /// Lists the job's checkpoints; see [`list_checkpoints`].
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    pub async fn list(&self) -> Result<Vec<ListedCheckpoint>> {
        list_checkpoints(&self.root).await
    }

    /// Returns the newest complete checkpoint, if there is one.
    ///
    /// It is the one with the highest id of the highest attempt that completed any: a lower attempt that was about to
    /// publish when it was fenced can leave a higher id, of a history that nobody continued.
    ///
    /// # Errors
    /// `Corrupt` when there are checkpoints, and none that can be read; `Retryable` when the store fails.
    pub async fn latest(&self) -> Result<Option<StoredCheckpoint>> {
        match checkpoint::latest(&self.root).await {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads one of the job's checkpoints: `latest`, `chk-<n>`, or `chk-<n>/_metadata`.
    ///
    /// # Errors
    /// `InvalidArgument` for another pointer ([`StoredCheckpoint::find`] takes paths); those of [`StoredCheckpoint::read`].
    pub async fn load(&self, pointer: &str) -> Result<StoredCheckpoint> {
        let trimmed = pointer.trim_end_matches('/');
        let trimmed = trimmed
            .strip_suffix(&format!("/{METADATA_NAME}"))
            .unwrap_or(trimmed);
        if trimmed == "latest" {
            return checkpoint::latest(&self.root).await;
        }
        if checkpoint_of_folder(trimmed).is_none() {
            return Err(
                Error::invalid(format!("{pointer:?} is neither latest nor chk-<n>"))
                    .with("job", &self.job),
            );
        }
        StoredCheckpoint::read(&self.root, trimmed).await
    }
}

/// Returns whether a checkpoint leaves no object in its own folder, and needs some of the job's elsewhere.
pub(crate) fn needs_announcement(metadata: &CheckpointMetadata) -> bool {
    let prefix = format!("{}/", checkpoint_folder(metadata.checkpoint));
    let mut elsewhere = false;
    for used in metadata
        .objects()
        .filter(|used| used.object.root == Root::Own)
    {
        if used.object.path.as_str().starts_with(&prefix) {
            return false;
        }
        elsewhere = true;
    }
    elsewhere
}

/// Says of a failure that comes after metadata may have been written that it says nothing of that, unless the attempt is fenced.
fn in_doubt(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Fenced | ErrorKind::Retryable => error,
        _ => Error::retryable("nobody knows whether the metadata is written").caused_by(error),
    }
}

/// Makes sure that a store did what it said.
async fn confirm(folder: &StoreRoot, expected: u64) -> Result<()> {
    match folder.len(METADATA_NAME).await? {
        Some(len) if len == expected => Ok(()),
        found => Err(Error::retryable(format!(
            "the store reported the metadata as written, but shows {}",
            found.map_or("nothing".to_owned(), |len| format!("{len} bytes"))
        ))),
    }
}

pub(crate) async fn last_attempt(root: &StoreRoot) -> Result<Option<Attempt>> {
    let entries = root.list(ATTEMPTS).await?;
    Ok(entries
        .iter()
        .filter_map(|entry| parse_number(&entry.name))
        .max()
        .map(Attempt))
}

async fn take_attempt(root: &StoreRoot, names: &UuidSource) -> Result<Attempt> {
    for _ in 0..ATTEMPT_TRIES {
        let next = last_attempt(root)
            .await?
            .map_or(1, |last| last.0.saturating_add(1));
        // The content keeps two takers of one number apart when a store fails after it did its work.
        let content = Bytes::from(format!("{}\n", names.next()));
        let path = format!("{ATTEMPTS}/{next}");
        match root.publish(&path, content.clone()).await {
            Ok(()) => return Ok(Attempt(next)),
            // Taken by another, or a clean-up removed the file that was to get this name.
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
            Err(e) => match root.read_all(&path).await {
                Ok(found) if found == content => return Ok(Attempt(next)),
                _ => return Err(e),
            },
        }
    }
    Err(Error::retryable(format!(
        "{ATTEMPT_TRIES} attempt numbers in a row were taken by others"
    ))
    .with("folder", root.url()))
}

async fn next_checkpoint(root: &StoreRoot) -> Result<CheckpointId> {
    let entries = root.list("").await?;
    let last = entries
        .iter()
        .filter_map(|entry| checkpoint_of_folder(&entry.name))
        .max();
    Ok(CheckpointId(
        last.map_or(1, |last| last.0.saturating_add(1)),
    ))
}
