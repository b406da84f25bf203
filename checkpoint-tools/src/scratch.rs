use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint_storage::{
    Layout, ObjectCheckpointStorage, ObjectNames, StoreRoot, StreamOptions, UuidSource,
};
use state_api::{Attempt, CheckpointStorage, Error, Result};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// A local folder for what is converted on the way; it goes with this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    storage: Arc<ObjectCheckpointStorage>,
}

impl Scratch {
    /// Makes a new folder below another one.
    pub(crate) fn new(above: &Path, runtime: &Handle) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::retryable("no temporary folder can be made")
                .with("folder", above.display())
                .caused_by(error)
        };
        std::fs::create_dir_all(above).map_err(failed)?;
        let folder = tempfile::Builder::new()
            .prefix("holdfast-tools-")
            .tempdir_in(above)
            .map_err(failed)?;
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects).map_err(failed)?;
        let storage = ObjectCheckpointStorage::with_layout(
            StoreRoot::local(objects, runtime.clone())?,
            Layout::SelfContained,
            ObjectNames::new(Attempt(0), UuidSource::machine()),
            StreamOptions::default(),
        );
        Ok(Self {
            folder,
            storage: Arc::new(storage),
        })
    }

    pub(crate) fn storage(&self) -> Arc<dyn CheckpointStorage> {
        Arc::<ObjectCheckpointStorage>::clone(&self.storage)
    }

    /// A folder for whoever needs files.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}
