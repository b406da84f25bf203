use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use state_api::{Error, Result};

use crate::interruption::goes_at_the_end;

/// Where rows are written.
pub(super) enum Output {
    /// The standard output, or what is no file: a pipe with a name, a device.
    Stream(Option<File>),
    /// A file that appears when it is complete, and not at all otherwise.
    New {
        path: PathBuf,
        file: tempfile::NamedTempFile,
    },
}

/// Says whether a path means the standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Output {
    /// Opens a path; the standard output without one, or for `-`.
    ///
    /// # Errors
    /// `Config` when nothing can be written there.
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path.filter(|path| !is_stdout(path)) else {
            return Ok(Self::Stream(None));
        };
        let failed = |error: io::Error| {
            Error::config("the file can't be made")
                .with("path", path.display())
                .caused_by(error)
        };
        // Links are followed: what they point to is replaced, not they.
        let (path, mode) = match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            Ok(there) if !there.is_file() => {
                let stream = OpenOptions::new().write(true).open(path).map_err(failed)?;
                return Ok(Self::Stream(Some(stream)));
            }
            Ok(there) => {
                let mode = there.permissions().mode();
                (path.canonicalize().map_err(failed)?, Some(mode))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
            Err(error) => return Err(failed(error)),
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // As any new file, less what the umask takes away.
        let file = tempfile::Builder::new()
            .prefix(".holdfast-dump-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?;
        goes_at_the_end(file.path());
        if let Some(mode) = mode {
            let file = file.as_file();
            file.set_permissions(Permissions::from_mode(mode))
                .map_err(failed)?;
        }
        Ok(Self::New { path, file })
    }

    /// Says whether the rows become a file of their own.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }

    /// Returns what rows are written to.
    pub(super) fn file(&self) -> Writer<'_> {
        match self {
            Self::Stream(None) => Writer::Stdout(io::stdout()),
            Self::Stream(Some(file)) => Writer::File(file),
            Self::New { file, .. } => Writer::File(file.as_file()),
        }
    }

    /// Lets the file appear.
    ///
    /// # Errors
    /// `Retryable` when it can't be completed.
    pub(super) fn complete(self) -> Result<()> {
        let Self::New { path, file } = self else {
            return Ok(());
        };
        let failed = |error: io::Error| {
            Error::retryable("the file can't be written")
                .with("path", path.display())
                .caused_by(error)
        };
        file.as_file().sync_all().map_err(failed)?;
        let appeared = file.persist(&path);
        appeared.map(drop).map_err(|e| failed(e.error))
    }
}

/// What rows are written to, not buffered.
pub(super) enum Writer<'a> {
    Stdout(io::Stdout),
    File(&'a File),
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(file) => file.flush(),
        }
    }
}
