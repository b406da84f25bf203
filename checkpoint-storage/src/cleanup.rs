//! Deleting: by reference, repeatable, and only after a look for a higher attempt.
use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::stream;
use state_api::{Error, ErrorKind, ObjectHandle, RelPath, Result, Root};

use crate::checkpoint::{CheckpointState, StoredCheckpoint, abandonment, list_checkpoints};
use crate::claim::{CLAIM_NAME, Claimant};
use crate::gc::attempt_of_path;
use crate::job_store::{ANNOUNCED, JobStore, needs_announcement};
use crate::layout::{checkpoint_folder, checkpoint_of_folder};
use crate::metadata::{CheckpointMetadata, METADATA_NAME, OwnRoot};
use crate::names::attempt_of_name;
use crate::publish::LocalPublish;
use crate::root::StoreRoot;
use crate::store::OpenUpload;

/// Objects that are deleted between two looks for a higher attempt.
const BATCH: usize = 256;

/// Objects that are deleted at once.
const CONCURRENT: usize = 8;

/// What a deletion did.
#[derive(Debug, Default)]
pub struct DeleteReport {
    /// Number of objects that are gone now, those that were gone before included.
    pub deleted: usize,
    /// Objects that are still there, with the reason; a later call may delete them.
    pub failed: Vec<(String, Error)>,
    /// Whether another job has claimed the checkpoint: nothing of it was deleted.
    pub claimed: bool,
}

impl DeleteReport {
    fn of_claimed(folder: &StoreRoot) -> Self {
        tracing::info!(
            folder = folder.url(),
            "another job has claimed the checkpoint: it stays"
        );
        Self {
            claimed: true,
            ..Self::default()
        }
    }

    /// Turns failures into one error.
    ///
    /// # Errors
    /// `Retryable`, with the number of failures and the first of them.
    pub fn into_result(self) -> Result<usize> {
        let count = self.failed.len();
        match self.failed.into_iter().next() {
            None => Ok(self.deleted),
            Some((object, e)) => Err(Error::retryable(format!(
                "{count} objects could not be deleted"
            ))
            .with("first", object)
            .caused_by(e)),
        }
    }
}

/// What [`JobStore::sweep_abandoned`] did.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// Folders of checkpoints that will never complete; their objects are gone.
    pub swept: Vec<String>,
    /// Objects in such folders that no earlier attempt is known to have written; they are left alone.
    pub left: Vec<String>,
    /// Number of uploads in parts that lower attempts never ended, and that are given up now.
    pub uploads: usize,
    /// What could not be deleted, with the reason.
    pub failed: Vec<(String, Error)>,
}

impl JobStore {
    /// Deletes objects that no retained checkpoint refers to; all are tried.
    ///
    /// An object that is gone already counts as deleted.
    ///
    /// # Errors
    /// `Fenced` when a higher attempt has begun: nothing more is deleted then; `Retryable` when the store can't tell.
    pub async fn delete_objects(&self, objects: &[ObjectHandle]) -> Result<DeleteReport> {
        let doomed: Vec<_> = objects
            .iter()
            .map(|object| Doomed {
                root: self.root_of(object),
                path: object.path.as_str(),
            })
            .collect();
        self.delete_all(&doomed).await
    }

    /// Deletes objects by their paths below a root, in the same way.
    pub(crate) async fn delete_below(
        &self,
        root: &StoreRoot,
        paths: &[String],
    ) -> Result<DeleteReport> {
        let doomed: Vec<_> = paths
            .iter()
            .map(|path| Doomed {
                root: Some(root),
                path,
            })
            .collect();
        self.delete_all(&doomed).await
    }

    async fn delete_all(&self, doomed: &[Doomed<'_>]) -> Result<DeleteReport> {
        let mut report = DeleteReport::default();
        for batch in doomed.chunks(BATCH) {
            self.check_fenced().await?;
            // Collected, because a closure that is kept across an await makes the future unsendable to the compiler's eyes.
            let deletions: Vec<_> = batch
                .iter()
                .map(|doomed| async move { (doomed.path, doomed.delete().await) })
                .collect();
            let mut deletions = stream::iter(deletions).buffer_unordered(CONCURRENT);
            while let Some((path, outcome)) = deletions.next().await {
                match outcome {
                    Ok(()) => report.deleted += 1,
                    Err(e) => report.failed.push((path.to_owned(), e)),
                }
            }
        }
        for (object, e) in &report.failed {
            tracing::warn!(object, error = %e, "an object could not be deleted");
        }
        Ok(report)
    }

    /// Returns the folder that an object lies in, if this job may delete there.
    fn root_of(&self, object: &ObjectHandle) -> Option<&StoreRoot> {
        match &object.root {
            Root::Own => Some(&self.root),
            Root::Url(url) => {
                let url = url.trim_end_matches('/');
                self.claimed.iter().find(|root| root.url() == url)
            }
        }
    }

    /// Deletes a checkpoint that this attempt has subsumed: it claims it for its own job, then removes the metadata, then the
    /// objects in its folder that no retained checkpoint refers to, then the claim, and the folder if nothing is left in it.
    ///
    /// Only one job can claim, so of its owner and another job one has the checkpoint: what another has claimed stays as a
    /// whole, and its objects must be kept. Shared objects are not touched: the registry of shared objects says when they go.
    /// Repeatable after any failure, by a later attempt too. On success the metadata is gone, unless the report says that the
    /// checkpoint is claimed.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint or another job's checkpoint; `Fenced`; `Retryable` when the metadata may still be there:
    /// every object that it names must be kept then.
    pub async fn discard<'a>(
        &self,
        metadata: &CheckpointMetadata,
        retained: impl IntoIterator<Item = &'a CheckpointMetadata>,
    ) -> Result<DeleteReport> {
        if metadata.job != self.job || metadata.own_root != OwnRoot::Parent {
            return Err(Error::invalid(
                "the job deletes its own checkpoints only, and no savepoints",
            )
            .with("checkpoint", metadata.checkpoint)
            .with("owner", &metadata.job));
        }
        let name = checkpoint_folder(metadata.checkpoint);
        let folder = self.root.folder(&name);
        self.check_fenced().await?;
        if self.take_claim(&folder).await? == Claimant::Another {
            return Ok(DeleteReport::of_claimed(&folder));
        }
        folder.delete(METADATA_NAME).await?;
        folder.sync_folder("").await?;
        let prefix = format!("{name}/");
        // Looked at before anything is hashed: nearly all of a million objects lie elsewhere.
        let inside = |object: &&ObjectHandle| {
            object.root == Root::Own && object.path.as_str().starts_with(&prefix)
        };
        let mut exclusive: HashSet<&ObjectHandle> = metadata
            .objects()
            .map(|used| used.object)
            .filter(inside)
            .collect();
        for other in retained {
            let used = other.objects().map(|used| used.object);
            used.filter(inside).for_each(|object| {
                exclusive.remove(object);
            });
        }
        let mut exclusive: Vec<_> = exclusive.into_iter().cloned().collect();
        exclusive.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let report = self.delete_objects(&exclusive).await?;
        if needs_announcement(metadata) {
            folder.delete(ANNOUNCED).await?;
        }
        // Last: as long as something is left here, it says whose it is.
        if report.failed.is_empty() {
            folder.delete(CLAIM_NAME).await?;
            if let Err(e) = folder.remove_folder("").await {
                tracing::debug!(folder = folder.url(), error = %e, "the folder of a discarded checkpoint is left");
            }
        }
        Ok(report)
    }

    /// Removes what lower attempts left of checkpoints that they never completed, or began to delete.
    ///
    /// Each such checkpoint is first made impossible to complete by publishing a mark in place of its metadata, so that an
    /// attempt that was held up can't complete it once its objects are gone. Only objects whose name tells a lower attempt
    /// and that no complete checkpoint refers to are deleted; the mark stays. What another job has claimed is left to it.
    /// It may be dropped at any call.
    ///
    /// # Errors
    /// `Fenced`; `Retryable` when the store fails.
    pub async fn sweep_abandoned(&self) -> Result<SweepReport> {
        let mut report = SweepReport::default();
        let mut abandoned = Vec::new();
        let mut used = HashSet::new();
        for listed in list_checkpoints(&self.root).await? {
            let is_earlier = checkpoint_of_folder(&listed.name).is_some_and(|id| id < self.first);
            match listed.state {
                CheckpointState::Complete(found) => used.extend(in_checkpoint_folders(&found)),
                CheckpointState::Abandoned if is_earlier => abandoned.push((listed.name, true)),
                CheckpointState::Incomplete if is_earlier => abandoned.push((listed.name, false)),
                _ => {}
            }
        }
        for (name, marked) in abandoned {
            let folder = self.root.folder(&name);
            // Asked after the metadata was seen to be gone: a claim that comes later finds none, and is taken back.
            if self.claimant(&folder).await? == Claimant::Another {
                continue;
            }
            if !marked {
                self.check_fenced().await?;
                match folder
                    .publish(METADATA_NAME, abandonment(self.attempt).into())
                    .await
                {
                    Ok(()) => {}
                    // Its attempt was faster: the checkpoint is complete.
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                    Err(e) => return Err(e),
                }
            }
            self.sweep_folder(&folder, &name, &used, &mut report)
                .await?;
        }
        self.sweep_uploads(&mut report).await?;
        if !report.swept.is_empty() {
            tracing::info!(job = %self.job, folders = ?report.swept, "removed what earlier attempts left unfinished");
        }
        Ok(report)
    }

    /// Frees the parts of what lower attempts never finished uploading; to know of them is a matter of permission.
    async fn sweep_uploads(&self, report: &mut SweepReport) -> Result<()> {
        let uploads = match self.root.open_uploads().await {
            Ok(uploads) => uploads.unwrap_or_default(),
            Err(error) => {
                tracing::info!(job = %self.job, %error, "it is not known whether uploads in parts were left");
                return Ok(());
            }
        };
        let lower = |upload: &OpenUpload| {
            attempt_of_path(&upload.path).is_some_and(|attempt| attempt < self.attempt)
        };
        let uploads: Vec<_> = uploads.into_iter().filter(lower).collect();
        for batch in uploads.chunks(BATCH) {
            self.check_fenced().await?;
            for upload in batch {
                match self.root.give_up_upload(upload).await {
                    Ok(()) => report.uploads += 1,
                    Err(e) => report.failed.push((upload.path.clone(), e)),
                }
            }
        }
        Ok(())
    }

    async fn sweep_folder(
        &self,
        folder: &StoreRoot,
        name: &str,
        used: &HashSet<String>,
        report: &mut SweepReport,
    ) -> Result<()> {
        let mut objects = Vec::new();
        let mut has_claim = false;
        for entry in folder.list("").await? {
            let path = format!("{name}/{}", entry.name);
            let lower = attempt_of_name(&entry.name).is_some_and(|attempt| attempt < self.attempt);
            if entry.name == METADATA_NAME || used.contains(&path) {
                continue;
            }
            if entry.name == CLAIM_NAME {
                has_claim = true;
                continue;
            }
            let ours = lower || is_temporary(&entry.name) || entry.name == ANNOUNCED;
            // Parsing the path again keeps a hostile name from leaving the folder.
            if entry.is_folder || !ours || RelPath::new(&path).is_err() {
                report.left.push(path);
                continue;
            }
            objects.push(path);
        }
        let deleted = self.delete_below(&self.root, &objects).await?;
        if deleted.failed.is_empty() && has_claim {
            // Of a deletion by this job that did not come to its end.
            folder.delete(CLAIM_NAME).await?;
        }
        report.failed.extend(deleted.failed);
        if !objects.is_empty() {
            report.swept.push(name.to_owned());
        }
        Ok(())
    }
}

/// An object that is to be deleted; without a root, it lies where this job must not delete.
struct Doomed<'a> {
    root: Option<&'a StoreRoot>,
    path: &'a str,
}

impl Doomed<'_> {
    async fn delete(&self) -> Result<()> {
        match self.root {
            Some(root) => root.delete(self.path).await,
            None => Err(Error::invalid(
                "the object lies in a folder that this job has not claimed",
            )),
        }
    }
}

/// Returns the paths that a checkpoint refers to in the folders of this one and others of its job.
fn in_checkpoint_folders(found: &StoredCheckpoint) -> Vec<String> {
    let objects = found.metadata.objects().map(|used| used.object);
    let inside = objects.filter(|object| {
        let folder = object
            .path
            .as_str()
            .split_once('/')
            .map(|(folder, _)| folder);
        object.root == Root::Own && folder.and_then(checkpoint_of_folder).is_some()
    });
    inside.map(|object| object.path.to_string()).collect()
}

pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(LocalPublish::TEMPORARY)
}
