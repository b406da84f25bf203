use std::sync::Arc;

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, Layout, METADATA_NAME, ObjectCheckpointStorage, ObjectNames, OwnRoot,
    StoreEntry, StoreRoot, StreamOptions, UuidSource, WRITER, attempt_of_name,
    checkpoint_of_folder,
};
use state_api::{Attempt, CheckpointStorage, Error, ErrorKind, Result};

/// Stands in a folder in which a checkpoint is being written; what lies beside it is thrown away by whoever writes there next.
const UNFINISHED: &str = "_unfinished";

const MARK: &str = "holdfast: a checkpoint is being written here by ";

/// A folder that becomes a checkpoint of its own, with all its objects, when it is completed; until then it is none.
///
/// Work that was interrupted is begun again with the same folder: what it had written is removed first.
#[derive(Debug)]
pub struct NewCheckpoint {
    root: StoreRoot,
    storage: Arc<ObjectCheckpointStorage>,
    mark: Bytes,
}

impl NewCheckpoint {
    /// Begins a checkpoint in a folder that is empty, or was left by work that was interrupted. Objects are named after an attempt.
    ///
    /// # Errors
    /// `AlreadyExists` when the folder holds a checkpoint; `InvalidArgument` when it holds anything else, or has the name of a
    /// folder that a job makes for a checkpoint of its own; those of the store.
    pub async fn begin(root: StoreRoot, attempt: Attempt) -> Result<Self> {
        let named = |e: Error| e.with("folder", root.url());
        let entries = free(&root).await?;
        if entries.iter().any(|entry| entry.name == UNFINISHED) {
            for entry in entries.iter().filter(|entry| !entry.is_folder) {
                let ours = attempt_of_name(&entry.name).is_some()
                    || entry.name.starts_with("._metadata.")
                    || entry.name.starts_with("._unfinished.");
                if ours {
                    root.delete(&entry.name).await.map_err(named)?;
                }
            }
            root.delete(UNFINISHED).await.map_err(named)?;
        }
        let names = UuidSource::machine();
        let mark = Bytes::from(format!("{MARK}{WRITER}, {}\n", names.next()));
        root.publish(UNFINISHED, mark.clone())
            .await
            .map_err(named)?;
        let storage = ObjectCheckpointStorage::with_layout(
            root.clone(),
            Layout::SelfContained,
            ObjectNames::new(attempt, names),
            StreamOptions::default(),
        );
        Ok(Self {
            root,
            storage: Arc::new(storage),
            mark,
        })
    }

    /// Checks that a checkpoint can be begun in a folder, and changes nothing there.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn check(root: &StoreRoot) -> Result<()> {
        free(root).await.map(|_| ())
    }

    /// Returns the folder.
    #[must_use]
    pub fn root(&self) -> &StoreRoot {
        &self.root
    }

    /// Returns the storage that objects are written to.
    #[must_use]
    pub fn storage(&self) -> Arc<dyn CheckpointStorage> {
        Arc::<ObjectCheckpointStorage>::clone(&self.storage)
    }

    /// Makes the folder a checkpoint.
    ///
    /// # Errors
    /// `Fenced` when somebody else has begun to write into the folder; `AlreadyExists` when somebody else has completed a
    /// checkpoint there; `InvalidArgument` when the metadata breaks a rule; those of the store.
    pub async fn complete(self, metadata: &mut CheckpointMetadata) -> Result<()> {
        metadata.own_root = OwnRoot::Folder;
        metadata.writer = WRITER.into();
        metadata.roots.clear();
        metadata.collect_roots();
        let named = |e: Error| e.with("folder", self.root.url());
        metadata.check().map_err(named)?;
        self.check_mark().await?;
        self.root.publish_metadata(metadata).await.map_err(named)?;
        if let Err(error) = self.check_mark().await {
            // Objects may be gone: it is no checkpoint.
            self.root.delete(METADATA_NAME).await.map_err(named)?;
            return Err(error);
        }
        self.root.delete(UNFINISHED).await.map_err(named)?;
        self.storage.drain().await;
        Ok(())
    }

    async fn check_mark(&self) -> Result<()> {
        let named = |e: Error| e.with("folder", self.root.url());
        match self.root.read_all(UNFINISHED).await {
            Ok(mark) if mark == self.mark => Ok(()),
            Err(e) if e.kind() != ErrorKind::NotFound => Err(named(e)),
            _ => Err(named(Error::new(
                ErrorKind::Fenced,
                "somebody else has begun to write a checkpoint into the folder",
            ))),
        }
    }
}

/// Lists a folder in which a checkpoint can be begun.
async fn free(root: &StoreRoot) -> Result<Vec<StoreEntry>> {
    let named = |e: Error| e.with("folder", root.url());
    let name = root.url().trim_end_matches('/').rsplit('/').next();
    if name.and_then(checkpoint_of_folder).is_some() {
        return Err(named(Error::invalid(
            "a folder of this name belongs to a job, which numbers its checkpoints: name the new one otherwise",
        )));
    }
    let entries = root.list("").await.map_err(named)?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    if has(METADATA_NAME) {
        return Err(named(Error::new(
            ErrorKind::AlreadyExists,
            "the folder holds a checkpoint already: name a new one",
        )));
    }
    if !entries.is_empty() && !has(UNFINISHED) {
        return Err(named(Error::invalid(
            "the folder is not empty: name a new one for the checkpoint",
        )));
    }
    Ok(entries)
}
