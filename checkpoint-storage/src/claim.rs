//! Claims: a record in a checkpoint's folder that says which job it belongs to from now on.
//!
//! A claimer writes its record first and then looks whether the checkpoint is still there; whoever deletes it removes the
//! metadata first and then looks for a record. One of the two sees the other, so what is claimed is never half deleted.
use bytes::Bytes;
use state_api::{Error, ErrorKind, JobId, ObjectHandle, Result, Root};

use crate::checkpoint::StoredCheckpoint;
use crate::cleanup::DeleteReport;
use crate::job_store::{ANNOUNCED, JobStore, needs_announcement};
use crate::layout::checkpoint_folder;
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
    /// `AlreadyExists` when another job has claimed it; `NotFound` when its owner was about to delete it; `Fenced`;
    /// `Retryable` when the store fails.
    pub async fn claim(&self, found: &StoredCheckpoint) -> Result<()> {
        self.check_fenced().await?;
        let folder = &found.folder;
        let record = self.claim_record();
        if let Err(e) = folder.publish(CLAIM_NAME, record.encode()).await {
            // Ours from an earlier attempt, or the store failed after it did its work.
            match ClaimRecord::read(folder).await? {
                Some(known) if known == record => {}
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
        let mut report = DeleteReport::default();
        for path in objects {
            match found.own.delete(path.as_str()).await {
                Ok(()) => report.deleted += 1,
                Err(e) => report.failed.push((path.to_string(), e)),
            }
        }
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
