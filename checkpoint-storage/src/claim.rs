//! Claims: a record in a checkpoint's folder that says which job it belongs to from now on.
//!
//! A record is created only if there is none, and nobody deletes a checkpoint without one: the job that took it writes a record
//! for itself before it removes the metadata, and removes the record last. So the owner and a claimer exclude each other, and
//! what is claimed is never half deleted. A claimer that writes its record after all that finds no metadata, and takes it back.
use bytes::Bytes;
use state_api::{Error, ErrorKind, JobId, ObjectHandle, Result, Root};

use crate::checkpoint::StoredCheckpoint;
use crate::cleanup::DeleteReport;
use crate::job_store::{ANNOUNCED, JobStore, needs_announcement};
use crate::layout::{checkpoint_folder, checkpoint_of_folder};
use crate::metadata::{CheckpointMetadata, METADATA_NAME, OwnRoot};
use crate::root::StoreRoot;

/// The name of the record in the folder of a checkpoint that a job has claimed.
pub const CLAIM_NAME: &str = "_claimed";

/// Who has claimed a checkpoint, seen from a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    Nobody,
    Ours,
    Another,
}

const START: &str = "holdfast: claimed by job ";
const BETWEEN: &str = " in ";

/// Who has claimed a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The job.
    pub job: JobId,
    /// URL of its folder.
    pub folder: String,
}

impl ClaimRecord {
    /// Reads the record in the folder of a checkpoint, if there is one.
    ///
    /// # Errors
    /// `Corrupt` when there is one that can't be read; `Retryable` when the store fails.
    pub async fn read(folder: &StoreRoot) -> Result<Option<Self>> {
        match folder.read_all(CLAIM_NAME).await {
            Ok(bytes) => Self::decode(&bytes)
                .map(Some)
                .map_err(|e| e.with("checkpoint", folder.url())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn encode(&self) -> Bytes {
        format!("{START}{}{BETWEEN}{}\n", self.job, self.folder).into()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let parse = || {
            let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
            let (job, folder) = line.strip_prefix(START)?.split_once(BETWEEN)?;
            Some(Self {
                job: JobId::new(job).ok()?,
                folder: folder.to_owned(),
            })
        };
        parse().ok_or_else(|| Error::corrupt("the checkpoint has a claim that can't be read"))
    }
}

impl JobStore {
    fn claim_record(&self) -> ClaimRecord {
        ClaimRecord {
            job: self.job.clone(),
            folder: self.root.url().to_owned(),
        }
    }

    /// Makes a checkpoint this job's: nobody else deletes or claims it from now on.
    ///
    /// A repeated claim of the same job is no news.
    ///
    /// # Errors
    /// `AlreadyExists` when another job has claimed it; `NotFound` when its owner deletes it, or has begun to; `Fenced`;
    /// `Retryable` when the store fails.
    pub async fn claim(&self, found: &StoredCheckpoint) -> Result<()> {
        self.check_fenced().await?;
        let folder = &found.folder;
        let record = self.claim_record();
        if let Err(e) = folder.publish(CLAIM_NAME, record.encode()).await {
            // Ours from an earlier attempt, or the store failed after it did its work.
            match ClaimRecord::read(folder).await? {
                Some(known) if known == record => {}
                Some(other) if other.folder == found.own.url() => {
                    return Err(Error::not_found(format!(
                        "job {}, which took the checkpoint, has begun to delete it: start from a newer one",
                        other.job
                    ))
                    .with("checkpoint", folder.url()));
                }
                Some(other) => {
                    return Err(Error::new(
                        ErrorKind::AlreadyExists,
                        format!(
                            "job {} has claimed the checkpoint: start from it without a claim, or from a copy",
                            other.job
                        ),
                    )
                    .with("checkpoint", folder.url())
                    .with("claimed by", other.folder));
                }
                None => return Err(e.with("checkpoint", folder.url())),
            }
        }
        match folder.len(METADATA_NAME).await? {
            Some(len) if len == found.metadata_len => Ok(()),
            _ => {
                folder.delete(CLAIM_NAME).await?;
                Err(
                    Error::not_found("the checkpoint was deleted while it was being claimed")
                        .with("checkpoint", folder.url()),
                )
            }
        }
    }

    /// Checks that no other job has claimed one of this job's checkpoints: whoever claims it may delete its objects at any time, and a
    /// job that goes on from it would need them.
    ///
    /// # Errors
    /// `Config` when another job has claimed it; `Corrupt` when there is a claim that can't be read; `Retryable` when the store fails.
    pub async fn check_unclaimed(&self, found: &StoredCheckpoint) -> Result<()> {
        match ClaimRecord::read(&found.folder).await? {
            Some(record) if record != self.claim_record() => Err(Error::config(format!(
                "the newest checkpoint belongs to job {}, which has claimed it and may delete its objects: start from a copy, and let one of the two jobs run",
                record.job
            ))
            .with("checkpoint", found.folder.url())
            .with("claimed by", record.folder)),
            _ => Ok(()),
        }
    }

    /// Returns the checkpoints that this job has claimed and whose objects lie in a folder: names below it, or an empty one if the folder
    /// itself is such a checkpoint.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    pub async fn claimed_in(&self, root: &StoreRoot) -> Result<Vec<String>> {
        let mut claimed = Vec::new();
        if self.claimant(root).await? == Claimant::Ours {
            claimed.push(String::new());
        }
        for entry in root.list("").await? {
            if entry.is_folder
                && checkpoint_of_folder(&entry.name).is_some()
                && self.claimant(&root.folder(&entry.name)).await? == Claimant::Ours
            {
                claimed.push(entry.name);
            }
        }
        Ok(claimed)
    }

    /// Looks whose the checkpoint in a folder is.
    pub(crate) async fn claimant(&self, folder: &StoreRoot) -> Result<Claimant> {
        match ClaimRecord::read(folder).await {
            Ok(None) => Ok(Claimant::Nobody),
            Ok(Some(record)) if record == self.claim_record() => Ok(Claimant::Ours),
            Ok(Some(_)) => Ok(Claimant::Another),
            // Whoever wrote it meant something.
            Err(e) if e.kind() == ErrorKind::Corrupt => Ok(Claimant::Another),
            Err(e) => Err(e),
        }
    }

    /// Claims one of this job's own checkpoints, unless somebody has; says whose it is then.
    ///
    /// # Errors
    /// `Retryable` when the store fails; nobody knows then.
    pub(crate) async fn take_claim(&self, folder: &StoreRoot) -> Result<Claimant> {
        match folder
            .publish(CLAIM_NAME, self.claim_record().encode())
            .await
        {
            Ok(()) => Ok(Claimant::Ours),
            // Of an earlier call, of another job, or the store failed after it did its work.
            Err(e) => match self.claimant(folder).await? {
                Claimant::Nobody => Err(e),
                known => Ok(known),
            },
        }
    }

    /// Deletes a checkpoint that this job has claimed: metadata first, then the objects that only it refers to, then the
    /// claim, then the folder if nothing is left in it.
    ///
    /// Objects in folders beside its own are left to the registry of shared objects. Repeatable after any failure.
    ///
    /// # Errors
    /// `InvalidArgument` when the claim is not this job's; `Fenced`; `Retryable` when the metadata is still there.
    pub async fn discard_claimed<'a>(
        &self,
        found: &StoredCheckpoint,
        retained: impl IntoIterator<Item = &'a CheckpointMetadata>,
    ) -> Result<DeleteReport> {
        self.check_fenced().await?;
        let folder = &found.folder;
        match ClaimRecord::read(folder).await? {
            Some(record) if record == self.claim_record() => {}
            // Deleted before, claim and all.
            None if folder.len(METADATA_NAME).await?.is_none() => {
                return Ok(DeleteReport::default());
            }
            _ => {
                return Err(Error::invalid("the job has not claimed the checkpoint")
                    .with("checkpoint", folder.url()));
            }
        }
        folder.delete(METADATA_NAME).await?;
        folder.sync_folder("").await?;
        let prefix = match found.metadata.own_root {
            OwnRoot::Folder => String::new(),
            OwnRoot::Parent => format!("{}/", checkpoint_folder(found.metadata.checkpoint)),
        };
        let own: Root = Root::Url(found.own.url().into());
        let is_own = |object: &ObjectHandle| {
            object.root == Root::Own && object.path.as_str().starts_with(&prefix)
        };
        let mut objects: std::collections::HashSet<_> = found
            .metadata
            .objects()
            .map(|used| used.object)
            .filter(|object| is_own(object))
            .map(|object| &object.path)
            .collect();
        for other in retained {
            let used = other.objects().map(|used| used.object);
            for object in used.filter(|object| object.root == own) {
                objects.remove(&object.path);
            }
        }
        let mut objects: Vec<String> = objects.into_iter().map(ToString::to_string).collect();
        objects.sort_unstable();
        let report = self.delete_below(&found.own, &objects).await?;
        if needs_announcement(&found.metadata) {
            folder.delete(ANNOUNCED).await?;
        }
        if report.failed.is_empty() {
            folder.delete(CLAIM_NAME).await?;
            if let Err(e) = folder.remove_folder("").await {
                tracing::debug!(folder = folder.url(), error = %e, "the folder of a discarded checkpoint is left");
            }
        }
        Ok(report)
    }
}
