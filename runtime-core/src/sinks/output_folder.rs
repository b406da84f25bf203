use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use state_api::{Error, Result};

/// What became of a part file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The file is visible now.
    Now,
    /// It was visible before.
    Before,
    /// There is neither the pending nor the visible file.
    Gone,
}

/// The folder that a file sink writes into: steps that are atomic and, on return, durable.
#[derive(Clone, Debug)]
pub(super) struct OutputFolder {
    path: PathBuf,
}

impl OutputFolder {
    /// Opens a folder and creates it if it is missing.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let folder = Self {
            path: path.to_owned(),
        };
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Ok(folder),
            Ok(_) => {
                return Err(
                    Error::config("the output is not a folder").with("output", path.display())
                );
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(folder.unusable("the output folder can't be opened", e)),
        }
        fs::create_dir_all(path)
            .map_err(|e| folder.unusable("the output folder can't be created", e))?;
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            sync_folder(parent)
                .map_err(|e| folder.unusable("the output folder can't be created", e))?;
        }
        Ok(folder)
    }

    /// Creates a file under a name that was free, and locks it for as long as it is open: a locked file has a living owner.
    ///
    /// Returns `None` when the name is taken.
    pub(super) fn create(&self, name: &str) -> Result<Option<File>> {
        match File::create_new(self.path.join(name)) {
            Ok(file) => match file.try_lock() {
                // A folder without locks works too; then leftovers count as alive.
                Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
                // Somebody took the file for a leftover, in the moment before it was locked.
                Err(TryLockError::WouldBlock) => Ok(None),
            },
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(e) => Err(self.unusable("a part file can't be created", e)),
        }
    }

    /// Gives a file another name. The folder is not synced.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
            .map_err(|e| self.failed("a part file can't be renamed", from, e))
    }

    /// Makes a pending file of a length visible, once.
    ///
    /// # Errors
    /// `Corrupt` when the pending file has another length; `AlreadyExists` when a file that isn't it has the visible name.
    pub(super) fn publish(&self, pending: &str, visible: &str, length: u64) -> Result<Published> {
        let target = self.path.join(visible);
        let outcome = match self.length(pending)? {
            None => self.published_before(&target),
            Some(found) if found != length => {
                return Err(Error::corrupt(
                    "a pending part file is damaged: its length is not the one it had",
                )
                .with("file", self.path.join(pending).display())
                .with("length", found)
                .with("length then", length));
            }
            Some(_) if exists(&target) => {
                return Err(Error::new(
                    state_api::ErrorKind::AlreadyExists,
                    "another file has the name of a part file that is to be published",
                )
                .with("file", target.display()));
            }
            Some(_) => match fs::rename(self.path.join(pending), &target) {
                Ok(()) => Published::Now,
                // Somebody else who recovers from the same checkpoint was faster.
                Err(e) if e.kind() == io::ErrorKind::NotFound => self.published_before(&target),
                Err(e) => return Err(self.failed("a part file can't be published", pending, e)),
            },
        };
        if outcome != Published::Gone {
            // Also when it was visible before: whoever published it may have died before this.
            self.sync()?;
        }
        Ok(outcome)
    }

    /// Removes a file of our own; a missing one is fine.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("a leftover part file can't be removed", name, e))
            }
            _ => Ok(()),
        }
    }

    /// Removes a file unless its owner lives; returns whether it is gone.
    pub(super) fn remove_if_abandoned(&self, name: &str) -> Result<bool> {
        match File::open(self.path.join(name)) {
            Ok(file) => match file.try_lock() {
                Ok(()) => self.remove(name).map(|()| true),
                Err(_) => Ok(false),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(self.failed("a leftover part file can't be opened", name, e)),
        }
    }

    /// Lists the names of the files; those that are not text are nobody's that matters here.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)
            .map_err(|e| self.unusable("the output folder can't be listed", e))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| self.unusable("the output folder can't be listed", e))?;
            names.extend(entry.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Makes names durable.
    pub(super) fn sync(&self) -> Result<()> {
        sync_folder(&self.path).map_err(|e| self.unusable("the output folder can't be synced", e))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Wraps a failure about a file; the caller may try again.
    pub(super) fn failed(&self, message: &str, name: &str, cause: io::Error) -> Error {
        Error::retryable(message.to_owned())
            .with("file", self.path.join(name).display())
            .caused_by(cause)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        match fs::symlink_metadata(self.path.join(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed("a part file can't be looked at", name, e)),
        }
    }

    fn published_before(&self, target: &Path) -> Published {
        if exists(target) {
            Published::Before
        } else {
            Published::Gone
        }
    }

    fn unusable(&self, message: &str, cause: io::Error) -> Error {
        use io::ErrorKind as Io;
        let error = match cause.kind() {
            Io::PermissionDenied
            | Io::NotADirectory
            | Io::ReadOnlyFilesystem
            | Io::InvalidFilename
            | Io::AlreadyExists => Error::config(message.to_owned()),
            _ => Error::retryable(message.to_owned()),
        };
        error.with("output", self.path.display()).caused_by(cause)
    }
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
