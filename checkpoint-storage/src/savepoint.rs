use bytes::Bytes;
use state_api::{Error, JobId, Result, Root};

use crate::cleanup::{DeleteReport, is_temporary};
use crate::job_store::{JobStore, Published};
use crate::layout::Layout;
use crate::metadata::{CheckpointMetadata, METADATA_NAME, OwnRoot};
use crate::names::{ObjectNames, UuidSource, attempt_of_name};
use crate::options::StreamOptions;
use crate::root::StoreRoot;
use crate::storage::ObjectCheckpointStorage;

/// What is written, and removed, to see whether a folder can be written.
const TRY_OUT_NAME: &str = "_writable";

/// How often a new folder name is tried when one is taken.
const FOLDER_ATTEMPTS: u32 = 10;

/// A folder for one savepoint, which the user owns from the start: nothing in the project deletes it.
#[derive(Clone, Debug)]
pub struct SavepointFolder {
    root: StoreRoot,
}

impl SavepointFolder {
    /// Picks a new folder `savepoint-<first 6 of the job id>-<random>` below the target, or else below the default.
    ///
    /// Something is written there and removed, so that a target that can't be written is told at once.
    ///
    /// # Errors
    /// `InvalidArgument` when there is neither target nor default; those of the store.
    pub async fn choose(
        target: Option<&StoreRoot>,
        default: Option<&StoreRoot>,
        job: &JobId,
        names: &UuidSource,
    ) -> Result<Self> {
        let above = target.or(default).ok_or_else(|| {
            Error::invalid("a savepoint needs a target folder: name one, or set execution.checkpointing.savepoint-dir")
        })?;
        let short: String = job.as_str().chars().take(6).collect();
        for _ in 0..FOLDER_ATTEMPTS {
            let random = names.next().simple().to_string();
            let name = format!("savepoint-{short}-{}", &random[..12]);
            if above.list(&name).await?.is_empty() {
                let root = above.folder(&name);
                try_out(&root)
                    .await
                    .map_err(|e| e.with("target", above.url()))?;
                return Ok(Self { root });
            }
        }
        Err(Error::retryable(format!(
            "{FOLDER_ATTEMPTS} folder names for a savepoint were taken"
        ))
        .with("target", above.url()))
    }

    /// Returns the folder.
    #[must_use]
    pub fn root(&self) -> &StoreRoot {
        &self.root
    }

    /// Returns the storage for the savepoint's snapshots: all objects lie in its folder.
    #[must_use]
    pub fn storage(&self, job: &JobStore, options: StreamOptions) -> ObjectCheckpointStorage {
        let names = ObjectNames::new(job.attempt, job.names.clone());
        ObjectCheckpointStorage::with_layout(
            self.root.clone(),
            Layout::SelfContained,
            names,
            options,
        )
    }
}

/// Writes something and removes it: that a folder can't be written, or that its disk is full, is told before a job holds still for the
/// savepoint.
async fn try_out(root: &StoreRoot) -> Result<()> {
    let tried = root
        .publish(TRY_OUT_NAME, Bytes::from_static(&[b'-'; 4096]))
        .await;
    // A place where nothing may be deleted is good for savepoints all the same.
    if let Err(e) = root.delete(TRY_OUT_NAME).await {
        tracing::debug!(folder = root.url(), error = %e, "what tried a folder out is left");
    }
    if tried.is_err()
        && let Err(e) = root.remove_folder("").await
    {
        tracing::debug!(folder = root.url(), error = %e, "a folder that can't be written is left");
    }
    tried
}

impl JobStore {
    /// Completes a savepoint in its folder.
    ///
    /// # Errors
    /// As [`JobStore::publish`]; `InvalidArgument` also when an object lies outside the folder.
    pub async fn publish_savepoint(
        &self,
        folder: &SavepointFolder,
        metadata: &CheckpointMetadata,
    ) -> Result<Published> {
        if metadata.own_root != OwnRoot::Folder
            || metadata.objects().any(|used| {
                used.object.root != Root::Own || used.object.path.as_str().contains('/')
            })
        {
            return Err(
                Error::invalid("a savepoint holds all its objects in its own folder")
                    .with("checkpoint", metadata.checkpoint),
            );
        }
        self.publish_in(&folder.root, metadata)
            .await
            .map_err(|e| e.with("savepoint", folder.root.url()))
    }

    /// Deletes a savepoint that this attempt has given up, of which nobody was told: metadata first, then what this
    /// attempt wrote, then the folder if nothing is left in it.
    ///
    /// # Errors
    /// `Fenced`; `Retryable` when the store fails.
    pub async fn discard_savepoint(&self, folder: &SavepointFolder) -> Result<DeleteReport> {
        let root = &folder.root;
        let named = |e: Error| e.with("savepoint", root.url());
        self.check_fenced().await?;
        root.delete(METADATA_NAME).await.map_err(named)?;
        let mut report = DeleteReport::default();
        for entry in root.list("").await.map_err(named)? {
            let ours = attempt_of_name(&entry.name) == Some(self.attempt)
                || is_temporary(&entry.name)
                || entry.name == TRY_OUT_NAME;
            if entry.is_folder || !ours {
                continue;
            }
            match root.delete(&entry.name).await {
                Ok(()) => report.deleted += 1,
                Err(e) => report.failed.push((entry.name, e)),
            }
        }
        if let Err(e) = root.remove_folder("").await {
            tracing::debug!(folder = root.url(), error = %e, "the folder of a savepoint that was given up is left");
        }
        Ok(report)
    }
}
