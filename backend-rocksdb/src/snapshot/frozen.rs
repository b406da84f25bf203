use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::FlushOptions;
use state_api::{Error, Result};

use super::layout::{Layout, file_name};
use super::manifest;
use crate::database::{ColumnCell, Database, MARKS};
use crate::error::{failed, folder_failed, not_flushed};
use crate::expiry::HeldTime;
use crate::flushes::Flushed;
use crate::folder::link_or_copy;

/// The files of a database at a cut. None of them is removed before this is dropped, or before they are linked elsewhere.
pub(crate) struct Frozen {
    pin: Pin,
    /// The manifest when the database was cut, and how long it was.
    manifest: PathBuf,
    manifest_len: u64,
    /// What is still on its way from memory to files.
    flushing: Option<Flushing>,
    columns: Vec<Arc<ColumnCell>>,
    prefix_len: usize,
    /// A compaction that ends before the flush does is part of the cut.
    _time: HeldTime,
}

/// A flush that goes on while the database is written.
struct Flushing {
    /// The number of the last change before the cut, which is a mark.
    mark: u64,
    done: Flushed,
}

impl Frozen {
    /// Begins to write the memory of all columns to files, in one step, and does not wait: what is written from here on goes to
    /// other memory, and other files.
    ///
    /// # Errors
    /// Those of the disk; the database goes on.
    pub(crate) fn cut(
        database: &Arc<Database>,
        columns: &[Arc<ColumnCell>],
        prefix_len: usize,
    ) -> Result<Self> {
        let mut frozen = Self::now(database, columns, prefix_len)?;
        let failures = database.flushes().failures();
        let mark = database.mark()?;
        frozen.flushing = Some(Flushing {
            mark,
            done: database.flushes().of(mark, failures),
        });
        flush(database, columns, false)?;
        Ok(frozen)
    }

    /// Writes the memory of all columns to files, and waits for it. Nobody else may write meanwhile.
    ///
    /// # Errors
    /// Those of the disk; the database goes on.
    pub(crate) fn cut_and_wait(
        database: &Arc<Database>,
        columns: &[Arc<ColumnCell>],
        prefix_len: usize,
    ) -> Result<Self> {
        flush(database, columns, true)?;
        Self::now(database, columns, prefix_len)
    }

    /// Notes which files there are, without what is in memory.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn now(
        database: &Arc<Database>,
        columns: &[Arc<ColumnCell>],
        prefix_len: usize,
    ) -> Result<Self> {
        let time = database.tuning().expiry().hold();
        let pin = Pin::new(database)?;
        let (manifest, manifest_len) = current_manifest(database.path())
            .map_err(|e| folder_failed("read manifest", database.path(), e))?;
        Ok(Self {
            pin,
            manifest,
            manifest_len,
            flushing: None,
            columns: columns.to_vec(),
            prefix_len,
            _time: time,
        })
    }

    /// Waits until all of the cut is in files; says with which words that failed.
    pub(crate) async fn flushed(&mut self) -> Result<(), String> {
        let Some(flushing) = &mut self.flushing else {
            return Ok(());
        };
        let gone = || Err("the database is closed".to_owned());
        (&mut flushing.done).await.unwrap_or_else(|_| gone())
    }

    /// Writes memory to files after that failed, if RocksDB can resume its work.
    ///
    /// # Errors
    /// `Retryable` with the words of the failure, or those of the disk.
    pub(crate) fn flush_again(&self, error: &str) -> Result<()> {
        let database = self.database();
        if database.db().resume().is_err() {
            return Err(not_flushed(database.path(), error));
        }
        flush(database, &self.columns, true)?;
        tracing::warn!(%error, path = %database.path().display(), "a local database works again after a failure");
        Ok(())
    }

    /// Returns which files there are, once all of the cut is in files.
    ///
    /// # Errors
    /// Those of the disk; `Unsupported` when the database uses something that snapshots don't carry; `Retryable` when what was
    /// written later can't be told apart.
    pub(crate) fn layout(&self) -> Result<Layout> {
        let path = &self.manifest;
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let manifest = File::open(path)?;
            match self.flushing {
                None => manifest.take(self.manifest_len).read_to_end(&mut bytes)?,
                Some(_) => (&manifest).read_to_end(&mut bytes)?,
            };
            Ok(bytes)
        };
        let bytes = read().map_err(|e| folder_failed("read manifest", path, e))?;
        let len = usize::try_from(self.manifest_len).unwrap_or(usize::MAX);
        let here = |error: Error| error.with("path", path.display());
        let Some((before, after)) = bytes.split_at_checked(len) else {
            let error = Error::retryable("the manifest of the local database is too short");
            return Err(here(error));
        };
        let layout = match &self.flushing {
            None => manifest::read(before, self.prefix_len),
            Some(flushing) if after.is_empty() => Err(unmarked(flushing.mark)),
            Some(flushing) => manifest::read_to_mark(&bytes, len, flushing.mark, self.prefix_len)
                .and_then(|layout| layout.ok_or_else(|| unmarked(flushing.mark))),
        };
        layout.map_err(here)
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
        link_or_copy(&path, &to.join(name)).map_err(|e| folder_failed("link file", &path, e))
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

/// RocksDB begins another manifest when this one is too long, or when it could not be written.
fn unmarked(mark: u64) -> Error {
    Error::retryable("the cut is not in the manifest of the local database, which was begun anew; the next one is")
        .with("mark", mark)
}

/// Writes memory to files; after an error once more, if RocksDB can resume its work.
fn flush(database: &Database, columns: &[Arc<ColumnCell>], wait: bool) -> Result<()> {
    let mut options = FlushOptions::default();
    options.set_wait(wait);
    // Better that the next writes of the task are slowed down than that it waits here for compactions.
    options.set_allow_write_stall(true);
    let db = database.db();
    let marks = db.cf_handle(MARKS);
    let handles: Vec<_> = columns
        .iter()
        .map(|cell| cell.handle())
        .chain(&marks)
        .collect();
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
