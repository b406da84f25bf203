use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use super::{Held, Lease, ObjectStore, ObjectWriter, StoreEntry};

/// How long one waits between tries to hold a file.
const HOLD_WAITS_MS: [u64; 5] = [1, 4, 16, 64, 256];

/// A store in a folder of a local (or mounted) file system.
///
/// A finished object is synced and so is every folder entry that leads to it. Links below the root are refused.
/// Calls run on the blocking threads of a tokio runtime; they may be awaited anywhere.
#[derive(Clone, Debug)]
pub struct LocalStore {
    folder: Arc<LocalFolder>,
    runtime: Handle,
}

/// The blocking side of a local store.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    root: PathBuf,
}

impl LocalStore {
    /// Creates a store below a root folder, which need not exist yet.
    ///
    /// # Errors
    /// `Config` when the path is relative and the current folder is gone.
    pub fn new(root: impl AsRef<Path>, runtime: Handle) -> Result<Self> {
        let root = std::path::absolute(root.as_ref()).map_err(|e| {
            Error::config("the folder has no absolute path")
                .with("folder", root.as_ref().display())
                .caused_by(e)
        })?;
        Ok(Self {
            folder: Arc::new(LocalFolder { root }),
            runtime,
        })
    }

    /// Returns the root folder as an absolute path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.folder.root
    }

    /// Runs blocking work off the caller's thread; once begun it ends even if the future is dropped.
    pub(crate) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalFolder) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let folder = Arc::clone(&self.folder);
        let runtime = self.runtime.clone();
        async move {
            runtime
                .spawn_blocking(move || work(&folder))
                .await
                .unwrap_or_else(|e| {
                    Err(if e.is_panic() {
                        Error::bug("file work panicked").caused_by(e)
                    } else {
                        Error::cancelled("the runtime was shut down").caused_by(e)
                    })
                })
        }
        .boxed()
    }
}

pub(crate) fn io_error(doing: &'static str, path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Config,
        _ => ErrorKind::Retryable,
    };
    Error::new(kind, format!("could not {doing}"))
        .with("file", path.display())
        .caused_by(error)
}

impl LocalFolder {
    /// Returns the file of a path, and refuses links on the way.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf> {
        let mut file = self.root.clone();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            if segment == "." || segment == ".." {
                return Err(Error::invalid("the path could leave its root").with("object", path));
            }
            file.push(segment);
            if file
                .symlink_metadata()
                .is_ok_and(|found| found.is_symlink())
            {
                return Err(
                    Error::invalid("links below the root of a store are refused")
                        .with("file", file.display()),
                );
            }
        }
        Ok(file)
    }

    /// Creates a file that must not exist, and the folders above it.
    pub(crate) fn create_new(&self, file: &Path) -> Result<File> {
        // A folder may be removed between its creation and the file's by a clean-up of another checkpoint's rest.
        for _ in 0..3 {
            match OpenOptions::new().write(true).create_new(true).open(file) {
                Ok(opened) => return Ok(opened),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.create_folder(parent(file))?
                }
                Err(e) => return Err(io_error("create a file", file, e)),
            }
        }
        Err(
            Error::retryable("the folder is removed as often as it is created")
                .with("file", file.display()),
        )
    }

    /// Creates a folder and those above it, each synced into the one above.
    pub(crate) fn create_folder(&self, folder: &Path) -> Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        if let Some(above) = folder.parent() {
            self.create_folder(above)?;
        }
        match std::fs::create_dir(folder) {
            Ok(()) => sync_folder(parent(folder)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            Err(e) => Err(io_error("create a folder", folder, e)),
        }
    }
}

pub(crate) fn parent(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|opened| opened.sync_all())
        .map_err(|e| io_error("sync a folder", folder, e))
}

fn read_range(file: &Path, range: Range<u64>) -> Result<Bytes> {
    let fail = |e| io_error("read a file", file, e);
    let mut opened = File::open(file).map_err(fail)?;
    let len = opened.metadata().map_err(fail)?.len();
    let start = range.start.min(len);
    let wanted = range.end.min(len).saturating_sub(start);
    opened.seek(SeekFrom::Start(start)).map_err(fail)?;
    let mut bytes = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
    opened.take(wanted).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes.into())
}

fn list_folder(folder: &Path) -> Result<Vec<StoreEntry>> {
    let fail = |e| io_error("list a folder", folder, e);
    let found = match std::fs::read_dir(folder) {
        Ok(found) => found,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(e) => return Err(fail(e)),
    };
    let mut entries = Vec::new();
    for entry in found {
        let entry = entry.map_err(fail)?;
        // Names that are not text were not written by us.
        if let Ok(name) = entry.file_name().into_string() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            entries.push(StoreEntry {
                name,
                is_folder,
                len: None,
            });
        }
    }
    entries.sort();
    Ok(entries)
}

impl ObjectStore for LocalStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let store = self.clone();
        let path = path.to_owned();
        async move {
            // The lease travels with the work: if nobody waits any more, it is dropped after the file is there.
            let (file, opened, lease) = store
                .blocking(move |folder| {
                    let file = folder.resolve(&path)?;
                    let opened = folder.create_new(&file)?;
                    Ok((file, opened, lease))
                })
                .await?;
            Ok(Box::new(LocalWriter {
                store,
                file,
                open: Some((opened, lease)),
            }) as Box<dyn ObjectWriter>)
        }
        .boxed()
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        self.blocking(move |folder| read_range(&folder.resolve(&path)?, range))
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        self.blocking(move |folder| {
            let file = folder.resolve(&path)?;
            match file.metadata() {
                Ok(found) if found.is_file() => Ok(Some(found.len())),
                Ok(_) => Ok(None),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    Ok(None)
                }
                Err(e) => Err(io_error("look at a file", &file, e)),
            }
        })
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let path = folder.to_owned();
        self.blocking(move |folder| list_folder(&folder.resolve(&path)?))
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        self.blocking(move |folder| {
            let file = folder.resolve(&path)?;
            match std::fs::remove_file(&file) {
                Err(e)
                    if !matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    Err(io_error("delete a file", &file, e))
                }
                _ => Ok(()),
            }
        })
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let path = folder.to_owned();
        self.blocking(move |folder| {
            let dir = folder.resolve(&path)?;
            match std::fs::remove_dir(&dir) {
                Ok(()) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
                Err(e) => Err(io_error("remove a folder", &dir, e)),
            }
        })
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        let path = folder.to_owned();
        self.blocking(move |folder| {
            let dir = folder.resolve(&path)?;
            if dir.is_dir() {
                sync_folder(&dir)
            } else {
                Ok(())
            }
        })
    }

    fn hold(&self, path: &str) -> BoxFuture<'_, Result<Option<Lease>>> {
        let path = path.to_owned();
        self.blocking(move |folder| {
            let file = folder.resolve(&path)?;
            match lock_patiently(&file, std::thread::sleep) {
                // The system gives the lock back when the process ends, however it ends.
                Ok(locked) => Ok(locked.map(|locked| Arc::new(locked) as Lease)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(e)) if has_no_locks(&e) => Ok(None),
                Err(TryLockError::Error(e)) => Err(io_error("lock a file", &file, e)),
            }
        })
    }

    fn held(&self, path: &str) -> BoxFuture<'_, Result<Held>> {
        let path = path.to_owned();
        self.blocking(move |folder| {
            let file = folder.resolve(&path)?;
            match lock(&file, true) {
                Ok(_) => Ok(Held::ByNobody),
                Err(TryLockError::WouldBlock) => Ok(Held::BySomebody),
                Err(TryLockError::Error(e)) if has_no_locks(&e) => Ok(Held::Unknown),
                Err(TryLockError::Error(e)) => Err(io_error("lock a file", &file, e)),
            }
        })
    }
}

/// Returns whether the file system offers no locks, or none now.
fn has_no_locks(error: &io::Error) -> bool {
    // ENOLCK, on Linux and macOS.
    error.kind() == io::ErrorKind::Unsupported || matches!(error.raw_os_error(), Some(37 | 77))
}

/// Locks a file for this process, or looks whether one has locked it.
fn lock(file: &Path, shared: bool) -> Result<Option<File>, TryLockError> {
    let opened = File::open(file).map_err(TryLockError::Error)?;
    match shared {
        true => opened.try_lock_shared(),
        false => opened.try_lock(),
    }
    .map(|()| Some(opened))
}

/// Takes a lock for good, waiting in between: somebody who looks whether it is held has it for a moment.
fn lock_patiently(
    file: &Path,
    mut wait: impl FnMut(Duration),
) -> Result<Option<File>, TryLockError> {
    let mut locked = lock(file, false);
    for millis in HOLD_WAITS_MS {
        if !matches!(locked, Err(TryLockError::WouldBlock)) {
            break;
        }
        wait(Duration::from_millis(millis));
        locked = lock(file, false);
    }
    locked
}

struct LocalWriter {
    store: LocalStore,
    file: PathBuf,
    /// Gone while an operation runs, and for good if it failed or nobody waited for it.
    open: Option<(File, Lease)>,
}

impl LocalWriter {
    fn take(&mut self) -> Result<(File, Lease)> {
        self.open.take().ok_or_else(|| {
            Error::poisoned("an earlier write of this file failed")
                .with("file", self.file.display())
        })
    }
}

impl ObjectWriter for LocalWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let (mut opened, lease) = self.take()?;
            let file = self.file.clone();
            let work = self
                .store
                .blocking(move |_| match opened.write_all(&bytes) {
                    Ok(()) => Ok((opened, lease)),
                    Err(e) => Err(io_error("write a file", &file, e)),
                });
            self.open = Some(work.await?);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let (opened, lease) = self.take()?;
            let file = self.file.clone();
            self.store
                .blocking(move |_| {
                    opened
                        .sync_all()
                        .map_err(|e| io_error("sync a file", &file, e))?;
                    sync_folder(parent(&file))?;
                    drop(lease);
                    Ok(())
                })
                .await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self { store, file, open } = *self;
            store
                .blocking(move |_| {
                    // The lease outlives the removal; the handle is closed first.
                    let _lease = open.map(|(_, lease)| lease);
                    match std::fs::remove_file(&file) {
                        Err(e) if e.kind() != io::ErrorKind::NotFound => {
                            Err(io_error("delete a file", &file, e))
                        }
                        _ => Ok(()),
                    }
                })
                .await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_though_somebody_looks_at_it_at_that_moment_and_not_from_who_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        std::fs::write(&path, "x").unwrap();
        let looking = File::open(&path).unwrap();
        looking.try_lock_shared().unwrap();
        let (mut looking, mut waits) = (Some(looking), 0);
        let held = lock_patiently(&path, |_| {
            waits += 1;
            looking = None;
        });
        assert_eq!((held.as_ref().is_ok_and(Option::is_some), waits), (true, 1));
        waits = 0;
        let other = lock_patiently(&path, |_| waits += 1);
        assert!(matches!(other, Err(TryLockError::WouldBlock)));
        assert_eq!(waits, HOLD_WAITS_MS.len());
    }
}
