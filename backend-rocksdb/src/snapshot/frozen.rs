use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::FlushOptions;
use state_api::{Error, Result};

use super::layout::{Layout, file_name};
use super::manifest;
use crate::database::{ColumnCell, Database};
use crate::error::{failed, folder_failed};

/// The files of a database at a cut. None of them is removed before this is dropped, or before they are linked elsewhere.
pub(crate) struct Frozen {
    pin: Pin,
    manifest: PathBuf,
    /// The manifest goes on; so many bytes of it are of the cut.
    manifest_len: u64,
    prefix_len: usize,
}

impl Frozen {
    /// Writes the memory of all columns to files, in one step, and notes which files there are.
    ///
    /// # Errors
    /// Those of the disk; the database goes on.
    pub(crate) fn cut(
        database: &Arc<Database>,
        columns: &[Arc<ColumnCell>],
        prefix_len: usize,
    ) -> Result<Self> {
        let pin = Pin::new(database)?;
        flush(database, columns)?;
        let (manifest, manifest_len) = current_manifest(database.path())
            .map_err(|e| folder_failed("read manifest", database.path(), e))?;
        Ok(Self {
            pin,
            manifest,
            manifest_len,
            prefix_len,
        })
    }

    /// Returns which files there are.
    ///
    /// # Errors
    /// Those of the disk, `Unsupported` when the database uses something that snapshots don't carry.
    pub(crate) fn layout(&self) -> Result<Layout> {
        let path = &self.manifest;
        let read = || {
            let mut bytes = Vec::new();
            File::open(path)?
                .take(self.manifest_len)
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|e| folder_failed("read manifest", path, e))?;
        if bytes.len() as u64 != self.manifest_len {
            return Err(
                Error::retryable("the manifest of the local database is too short")
                    .with("path", path.display()),
            );
        }
        manifest::read(&bytes, self.prefix_len).map_err(|e| e.with("path", path.display()))
    }

    /// Returns the database.
    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.pin.0
    }

    /// Makes a second name for a file in another folder.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn link(&self, number: u64, to: &Path) -> Result<()> {
        let name = file_name(number);
        let path = self.pin.0.path().join(&name);
        fs::hard_link(&path, to.join(name)).map_err(|e| folder_failed("link file", &path, e))
    }
}

/// Keeps RocksDB from removing files.
struct Pin(Arc<Database>);

impl Pin {
    fn new(database: &Arc<Database>) -> Result<Self> {
        database
            .db()
            .disable_file_deletions()
            .map_err(|e| failed("keep files", database.path(), e))?;
        Ok(Self(Arc::clone(database)))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = self.0.db().enable_file_deletions() {
            let path = self.0.path().display();
            tracing::warn!(%path, %error, "files that are not needed any more can't be removed");
        }
    }
}

/// Writes memory to files; after an error once more, if RocksDB can resume its work.
pub(crate) fn flush(database: &Database, columns: &[Arc<ColumnCell>]) -> Result<()> {
    if columns.is_empty() {
        return Ok(());
    }
    let mut options = FlushOptions::default();
    options.set_wait(true);
    // The task waits: better that its next writes are slowed down than that it waits here for compactions.
    options.set_allow_write_stall(true);
    let handles: Vec<_> = columns.iter().map(|cell| cell.handle()).collect();
    let db = database.db();
    let Err(error) = db.flush_cfs_opt(&handles, &options) else {
        return Ok(());
    };
    if db.resume().is_ok() && db.flush_cfs_opt(&handles, &options).is_ok() {
        tracing::warn!(%error, path = %database.path().display(), "a local database works again after a failure");
        return Ok(());
    }
    Err(failed("flush", database.path(), error))
}

/// Finds the manifest that is written now, and its length.
fn current_manifest(database: &Path) -> io::Result<(PathBuf, u64)> {
    let current = fs::read_to_string(database.join("CURRENT"))?;
    let manifest = database.join(current.trim_end());
    let len = fs::metadata(&manifest)?.len();
    Ok((manifest, len))
}
