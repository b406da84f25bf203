use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use state_api::{BackendContext, Error, Result};
use uuid::Uuid;

use crate::error::folder_failed;
use crate::process_end::InUse;

/// What the names of all folders of databases start with.
const PREFIX: &str = "holdfast-rocksdb-";
/// The file that says by its lock whether the process that made a folder is alive.
const LOCK: &str = "owner.lock";
/// Attempts at a name of its own before giving up.
const ATTEMPTS: usize = 16;

/// Gives a file a second name, or copies it where the file system has no second names, or no more of them.
pub(crate) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, NotFound};
    match fs::hard_link(from, to) {
        Err(error) if !matches!(error.kind(), AlreadyExists | NotFound) => {
            let copied = fs::copy(from, to);
            if copied.is_err() {
                // Whatever is there is not whole.
                drop(fs::remove_file(to));
            }
            copied.map(drop)
        }
        linked => linked,
    }
}

/// The folder of one database: made at start, removed when dropped.
///
/// Its owner holds the lock of a file in it. A lock ends with the process, however that ends, so that whoever starts next below
/// the same folder can tell the dead from the living, and removes what the dead left.
#[derive(Debug)]
pub(crate) struct InstanceFolder {
    path: PathBuf,
    /// Held as long as the folder is in use.
    lock: Option<File>,
    /// The end of the process waits until the folder is removed.
    _in_use: InUse,
}

impl InstanceFolder {
    /// Makes the folder of a subtask below the first of the given folders that can be used, after removing what dead processes left.
    ///
    /// # Errors
    /// That of the last folder when none can be used, naming what is wrong with the others.
    pub(crate) fn create(cx: &BackendContext, folders: &[PathBuf]) -> Result<Self> {
        let mut failures: Vec<Error> = Vec::new();
        // Subtasks take turns.
        let turn = cx.subtask.index as usize;
        for place in 0..folders.len() {
            let Some(below) = folders.get((turn + place) % folders.len()) else {
                continue;
            };
            match Self::create_below(below, &name(cx)) {
                Ok(folder) => return Ok(folder),
                Err(error) => {
                    if folders.len() > 1 {
                        tracing::warn!(%error, "a local folder can't be used");
                    }
                    failures.push(error);
                }
            }
        }
        let Some(last) = failures.pop() else {
            return Err(Error::bug("no local folder was given"));
        };
        Err(failures
            .into_iter()
            .fold(last, |error, other| error.with("and", other)))
    }

    fn create_below(below: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(below).map_err(|e| folder_failed("create folder", below, e))?;
        remove_leftovers(below);
        for _ in 0..ATTEMPTS {
            let path = below.join(format!("{PREFIX}{name}-{}", Uuid::new_v4().simple()));
            fs::create_dir(&path).map_err(|e| folder_failed("create folder", &path, e))?;
            // From here on the folder is removed if anything fails.
            let mut folder = Self {
                path,
                lock: None,
                _in_use: InUse::new(),
            };
            match folder.claim() {
                Ok(true) => return Ok(folder),
                // Somebody took the folder for that of a dead process in the moment before it was locked.
                Ok(false) => {}
                Err(error) => return Err(folder_failed("lock folder", &folder.path, error)),
            }
        }
        Err(Error::retryable("new folders are removed at once").with("path", below.display()))
    }

    /// Locks the folder; tells whether it is still there then.
    fn claim(&mut self) -> io::Result<bool> {
        let path = self.path.join(LOCK);
        let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.lock = Some(file);
        // Names are never used twice: if it is there, it is the one that is locked.
        Ok(path.exists())
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder in which RocksDB is.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("db")
    }
}

impl Drop for InstanceFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "the folder of a database can't be removed");
        }
        // Only now: nobody else removes it meanwhile.
        self.lock = None;
    }
}

/// Removes a folder, the lock last: until then it says that the rest is a leftover.
fn remove(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_file(path.join(LOCK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::remove_dir(path)
}

/// Removes the folders of dead processes. What is not of this backend is left alone.
fn remove_leftovers(below: &Path) {
    let Ok(entries) = fs::read_dir(below) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX))
        {
            continue;
        }
        let path = entry.path();
        match remove_if_dead(&path) {
            Ok(Leftover::Removed) => {
                tracing::info!(path = %path.display(), "removed what a dead process left");
            }
            Ok(Leftover::Alive) => {}
            Ok(Leftover::Foreign) => {
                tracing::warn!(path = %path.display(), "left alone: not the folder of a database");
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "what a dead process left can't be removed");
            }
        }
    }
}

/// What became of a folder that may be a leftover.
enum Leftover {
    Removed,
    Alive,
    Foreign,
}

fn remove_if_dead(path: &Path) -> io::Result<Leftover> {
    let file = match OpenOptions::new().write(true).open(path.join(LOCK)) {
        Ok(file) => file,
        // Its owner died, or was stopped, between making the folder and the lock in it: then it is empty.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(match fs::remove_dir(path) {
                Ok(()) => Leftover::Removed,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Leftover::Alive,
                Err(_) => Leftover::Foreign,
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Leftover::Foreign),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Leftover::Alive),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    match remove(path) {
        // Its owner was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Leftover::Alive),
        removed => removed.map(|()| Leftover::Removed),
    }
}

/// The speaking part of a folder's name: job, operator and subtask, in letters that every file system takes.
fn name(cx: &BackendContext) -> String {
    let plain = |text: &str| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        text.chars().take(48).map(plain).collect()
    };
    format!(
        "{}-{}-{}of{}",
        plain(cx.job.as_str()),
        plain(cx.operator.as_str()),
        cx.subtask.index + 1,
        cx.subtask.parallelism
    )
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
