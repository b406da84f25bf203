use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use state_api::{Error, JobId, Result};

use super::copy_file::{failed, len_in_name};
use crate::layout::checkpoint_of_folder;
use crate::names::UuidSource;

/// What the names of all folders of copies start with.
const PREFIX: &str = "holdfast-copies-";
/// The file that says by its lock whether the process that a folder belongs to is alive.
const LOCK: &str = "owner.lock";
/// Attempts at a name of its own before giving up.
const ATTEMPTS: usize = 16;

/// A copy that was found.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) len: u64,
}

/// A folder of copies of one job. It is this process's as long as this value lives: a lock ends with the process, however that
/// ends, so that whoever starts next can tell the folders of the living from those of the dead.
#[derive(Debug)]
pub(super) struct CopyFolder {
    path: PathBuf,
    _lock: File,
}

impl CopyFolder {
    /// Takes over the folders of a job below a root that dead processes left.
    pub(super) fn of_the_dead(root: &Path, job: &JobId) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(root) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        let mut ours = None;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let of_job = name.to_str().and_then(job_of) == Some(job.as_str());
            if !of_job || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            // Found out only where there is something to take over.
            let ours = ours.get_or_insert_with(|| Owner::of_this_process(root));
            if !ours.as_ref().is_ok_and(|ours| ours.owns(&path)) {
                tracing::warn!(path = %path.display(), "local copies in a folder of another user are left alone");
                continue;
            }
            match take_over(&path) {
                Ok(Some(folder)) => taken.push(folder),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "local copies that a dead process left can't be used");
                }
            }
        }
        // The order of a folder's entries is the file system's.
        taken.sort_by(|a, b| a.path.cmp(&b.path));
        taken
    }

    /// Makes a folder of its own below a root.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn create(root: &Path, job: &JobId, names: &UuidSource) -> Result<Self> {
        fs::create_dir_all(root).map_err(|e| failed("make its folder", root, e))?;
        for _ in 0..ATTEMPTS {
            let path = root.join(format!("{PREFIX}{job}-{}", names.next().simple()));
            match create_private(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|e| failed("make its folder", &path, e))?,
            }
            let lock = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path.join(LOCK));
            match lock {
                Ok(lock)
                    if locked(&lock, &path).map_err(|e| failed("lock its folder", &path, e))? =>
                {
                    return Ok(Self { path, _lock: lock });
                }
                // Somebody took it for a dead process's in the moment before it was locked.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(failed("lock its folder", &path, e)),
            }
        }
        Err(Error::retryable("new folders are removed at once").with("path", root.display()))
    }

    /// Returns the folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the copies in it, and removes what else there is: what was being written, what has a length of its own.
    pub(super) fn scan(&self) -> Vec<Found> {
        let mut found = Vec::new();
        for task in entries(&self.path) {
            if task.file_name() == Some(LOCK.as_ref()) {
                continue;
            }
            if !is_folder(&task) {
                remove_any(&task);
                continue;
            }
            for checkpoint in entries(&task) {
                let name = checkpoint.file_name().and_then(|name| name.to_str());
                if name.and_then(checkpoint_of_folder).is_some() && is_folder(&checkpoint) {
                    for file in entries(&checkpoint) {
                        match copy_at(&file) {
                            Some(copy) => found.push(copy),
                            None => remove_any(&file),
                        }
                    }
                    drop(fs::remove_dir(&checkpoint));
                } else {
                    remove_any(&checkpoint);
                }
            }
            // Stays unless it is empty.
            drop(fs::remove_dir(&task));
        }
        found
    }

    /// Removes the folder, the lock last: until then it says that the rest is a leftover.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn remove(self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
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
        fs::remove_file(self.path.join(LOCK))?;
        fs::remove_dir(&self.path)
    }
}

/// Who a file belongs to.
struct Owner {
    #[cfg(unix)]
    user: u32,
}

impl Owner {
    /// Finds out who files of this process belong to, by making one.
    #[cfg(unix)]
    fn of_this_process(root: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let path = root.join(format!(".{PREFIX}{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let user = file
            .and_then(|file| file.metadata())
            .map(|found| found.uid());
        drop(fs::remove_file(&path));
        user.map(|user| Self { user })
    }

    #[cfg(unix)]
    fn owns(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        path.symlink_metadata()
            .is_ok_and(|found| found.uid() == self.user)
    }

    #[cfg(not(unix))]
    fn of_this_process(_: &Path) -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    fn owns(&self, _: &Path) -> bool {
        true
    }
}

/// Makes a folder that nobody else can look into: copies are plain, and the folder for temporary files is everybody's.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns whether this is a folder, and no link to one.
fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// Returns the job that a folder of this name belongs to.
fn job_of(name: &str) -> Option<&str> {
    let (job, own) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    (own.len() == 32 && own.bytes().all(|c| c.is_ascii_hexdigit())).then_some(job)
}

/// Locks a file; tells whether it is locked and still there.
fn locked(lock: &File, folder: &Path) -> io::Result<bool> {
    match lock.try_lock() {
        // Names are never used twice: if it is there, it is the one that is locked.
        Ok(()) => Ok(folder.join(LOCK).exists()),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn take_over(path: &Path) -> io::Result<Option<CopyFolder>> {
    let lock = match OpenOptions::new().write(true).open(path.join(LOCK)) {
        Ok(lock) => lock,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Its owner died, or was stopped, between making the folder and the lock in it: then it is empty.
            drop(fs::remove_dir(path));
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    Ok(locked(&lock, path)?.then(|| CopyFolder {
        path: path.to_owned(),
        _lock: lock,
    }))
}

/// The paths directly in a folder, in order; of one that can't be read, or is none, there are none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

fn copy_at(path: &Path) -> Option<Found> {
    let name = path.file_name()?.to_str()?;
    let len = len_in_name(name)?;
    let found = path.symlink_metadata().ok()?;
    (found.is_file() && found.len() == len).then(|| Found {
        name: name.to_owned(),
        path: path.to_owned(),
        len,
    })
}

/// Removes what has no business in a folder of copies.
fn remove_any(path: &Path) {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        tracing::debug!(path = %path.display(), %error, "a leftover among local copies can't be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_in_a_folder_that_was_taken_over_are_removed_and_never_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        fs::create_dir_all(home.join("chk-1/letters")).unwrap();
        fs::write(home.join("chk-1/letters/dear"), "x").unwrap();
        fs::create_dir_all(home.join("documents")).unwrap();
        let job = JobId::new("flights").unwrap();
        let below = root.path().join("copies");
        let own = CopyFolder::create(&below, &job, &UuidSource::seeded(1)).unwrap();
        let path = own.path().to_owned();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        symlink(&home, path.join("task")).unwrap();
        fs::create_dir(path.join("real")).unwrap();
        symlink(home.join("documents"), path.join("real/chk-2")).unwrap();
        symlink(home.join("documents"), path.join("real/other")).unwrap();
        drop(own);
        let taken = CopyFolder::of_the_dead(&below, &job);
        let [taken] = &taken[..] else {
            panic!("one folder was left");
        };
        assert!(taken.scan().is_empty());
        assert!(home.join("chk-1/letters/dear").exists() && home.join("documents").exists());
        assert_eq!(entries(&path), [path.join(LOCK)]);
    }

    #[test]
    fn a_folder_tells_its_job_though_one_jobs_name_starts_with_anothers() {
        let own = "0123456789abcdef0123456789abcdef";
        let name = |job: &str| format!("{PREFIX}{job}-{own}");
        assert_eq!(job_of(&name("flights")), Some("flights"));
        assert_eq!(job_of(&name("flights-2")), Some("flights-2"));
        for other in [
            "flights",
            &format!("{PREFIX}flights"),
            &format!("{PREFIX}a-b"),
        ] {
            assert_eq!(job_of(other), None, "{other}");
        }
    }
}
