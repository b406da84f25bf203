use std::io;
use std::path::Path;

use rocksdb::ErrorKind as Native;
use state_api::{Error, ErrorKind};

/// What goes wrong with local files, whoever says so: RocksDB in words, or the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    DiskFull,
    TooManyFiles,
    NotAllowed,
    Missing,
    Other,
}

impl Cause {
    fn of(message: &str) -> Self {
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if has(&["No space left on device", "Disk quota exceeded", "NoSpace"]) {
            Self::DiskFull
        } else if has(&["Too many open files"]) {
            Self::TooManyFiles
        } else if has(&[
            "Permission denied",
            "Read-only file system",
            "Operation not permitted",
        ]) {
            Self::NotAllowed
        } else if has(&["No such file or directory"]) {
            Self::Missing
        } else {
            Self::Other
        }
    }

    fn words(self) -> Option<&'static str> {
        match self {
            Self::DiskFull => Some("the disk of the local database is full"),
            Self::TooManyFiles => Some(
                "the local database may not open more files: raise the limit of the process, or lower state.backend.rocksdb.files.open",
            ),
            Self::NotAllowed => Some("the folder of the local database may not be written"),
            Self::Missing => Some("a file or folder of the local database is gone"),
            Self::Other => None,
        }
    }
}

/// Turns an error of RocksDB into ours. The local database is a copy of what checkpoints hold, so that a restart cures whatever
/// is wrong with it, a damaged file too.
#[cold]
pub(crate) fn failed(operation: &'static str, path: &Path, error: rocksdb::Error) -> Error {
    let cause = Cause::of(error.as_ref());
    let native = error.kind();
    let kind = match (cause, &native) {
        (Cause::TooManyFiles, _) => ErrorKind::LimitExceeded,
        (Cause::Other, Native::InvalidArgument | Native::NotSupported) => ErrorKind::Bug,
        (Cause::Other, Native::Aborted) if error.as_ref().contains("Memory limit") => {
            ErrorKind::LimitExceeded
        }
        _ => ErrorKind::Retryable,
    };
    let words = match (cause.words(), &native) {
        (Some(words), _) => words,
        (None, Native::Corruption) => "a file of the local database is damaged",
        (None, _) => "the local database failed",
    };
    Error::new(kind, words)
        .with("operation", operation)
        .with("path", path.display())
        .caused_by(error)
}

/// Makes an error of what RocksDB said about a flush or compaction that it did by itself.
#[cold]
pub(crate) fn not_flushed(path: &Path, said: &str) -> Error {
    let words = Cause::of(said).words();
    Error::retryable(words.unwrap_or("the memory of the local database can't be flushed"))
        .with("operation", "flush")
        .with("path", path.display())
        .with("cause", said)
}

/// Turns an error about opening a database into ours: what a restart won't cure is an error of the configuration.
#[cold]
pub(crate) fn not_opened(path: &Path, error: rocksdb::Error) -> Error {
    let kind = match (Cause::of(error.as_ref()), error.kind()) {
        (Cause::NotAllowed, _) | (_, Native::InvalidArgument | Native::NotSupported) => {
            ErrorKind::Config
        }
        _ => return failed("open", path, error),
    };
    Error::new(kind, "the local database can't be opened")
        .with("operation", "open")
        .with("path", path.display())
        .caused_by(error)
}

/// Turns an error of the operating system about a local folder into ours.
#[cold]
pub(crate) fn folder_failed(operation: &'static str, path: &Path, error: io::Error) -> Error {
    let cause = Cause::of(&error.to_string());
    let kind = match (cause, error.kind()) {
        (Cause::TooManyFiles, _) => ErrorKind::LimitExceeded,
        (Cause::NotAllowed, _) | (_, io::ErrorKind::NotADirectory) => ErrorKind::Config,
        _ => ErrorKind::Retryable,
    };
    let words = cause
        .words()
        .unwrap_or("the folder of the local database failed");
    Error::new(kind, words)
        .with("operation", operation)
        .with("path", path.display())
        .caused_by(error)
}
