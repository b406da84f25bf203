use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use state_api::BackendContext;

use crate::folder::InstanceFolder;

/// The longest name that file systems take.
const LONGEST_NAME: usize = 255;
/// What RocksDB adds to the path of a database to name an old log.
const LOG_ENDING: &str = "_LOG.old.0123456789012345";

/// Makes the folder below `log.dir` in which the logs of a subtask's databases are. It goes with them; what a killed process left
/// there is removed at the next start.
///
/// Without it the databases log into their own folder: a log is no reason to fail.
pub(crate) fn log_folder_of(cx: &BackendContext, dir: &PathBuf) -> Option<Arc<InstanceFolder>> {
    match InstanceFolder::create(cx, std::slice::from_ref(dir)) {
        Ok(folder) => Some(Arc::new(folder)),
        Err(error) => {
            tracing::warn!(%error, dir = %dir.display(), "databases log into their own folder: log.dir can't be used");
            None
        }
    }
}

/// Where a database writes its log; removed when dropped, which is after the database.
pub(crate) struct LogFolder {
    path: PathBuf,
    _below: Arc<InstanceFolder>,
}

impl LogFolder {
    /// Returns the folder for the log of a database; `None` if no log could be written there, since RocksDB names it by the whole
    /// path of the database.
    pub(crate) fn of(below: &Arc<InstanceFolder>, database: &Path) -> Option<Self> {
        if database.as_os_str().len() + LOG_ENDING.len() > LONGEST_NAME {
            tracing::warn!(database = %database.display(), "a database logs into its own folder: its path is too long for a name in log.dir");
            return None;
        }
        Some(Self {
            path: below.path().join(database.file_name()?),
            _below: Arc::clone(below),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LogFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "the log of a database can't be removed");
        }
    }
}

#[cfg(test)]
#[path = "log_folder_tests.rs"]
mod tests;
