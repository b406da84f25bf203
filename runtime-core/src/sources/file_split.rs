use std::fs::File;
use std::io::{ErrorKind as IoKind, Read, Seek, SeekFrom};
use std::path::Path;

use state_api::hash::hash_bytes;
use state_api::{Error, Result, StateType};

/// Bytes at the start of a file by which it is recognised.
const HEAD: u64 = 4096;

/// A range of whole lines of a file, and how far it is read.
///
/// The file is named relative to the folder that the source was given, so an input may move between two runs. Its first
/// 4 KiB are remembered as a hash, so that offsets are never applied to another file.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct FileSplit {
    /// Name of the file within the folder.
    pub file: String,
    /// Place of the file in the order of names, from 0.
    pub ordinal: u64,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// Offset of the first byte that is not read yet.
    pub position: u64,
    /// Length of the file when it was divided, in bytes.
    pub length: u64,
    /// Hash of the first bytes of the file.
    pub head_hash: u64,
}

impl FileSplit {
    /// Returns how many bytes are still to be read.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// Opens the file and checks that it is the one that was divided.
    pub(super) fn open(&self, folder: &Path) -> Result<File> {
        // A split is read back from a checkpoint; a path in it must not lead anywhere else.
        if Path::new(&self.file).file_name() != Some(self.file.as_ref()) {
            return Err(Error::corrupt("a split names no plain file").with("file", &self.file));
        }
        if !(self.start <= self.position && self.position <= self.end && self.end <= self.length) {
            return Err(self.about(Error::corrupt(
                "the offsets of a split contradict each other",
            )));
        }
        let path = folder.join(&self.file);
        let mut file = File::open(&path).map_err(|e| match e.kind() {
            IoKind::NotFound => self.about(Error::incompatible(format!(
                "the input file {} is gone",
                path.display()
            ))),
            _ => {
                self.about(Error::retryable(format!("can't open {}", path.display())).caused_by(e))
            }
        })?;
        let now = file.metadata().map_err(|e| self.unreadable(e))?.len();
        if now < self.length {
            return Err(self.about(
                Error::incompatible("the input file has shrunk since it was divided into splits")
                    .with("length", now)
                    .with("length then", self.length),
            ));
        }
        if head_hash(&mut file, self.length).map_err(|e| self.unreadable(e))? != self.head_hash {
            return Err(self.about(Error::incompatible(
                "the input file is another one than when it was divided into splits: its first bytes differ",
            )));
        }
        if !self
            .follows_a_line(&mut file)
            .map_err(|e| self.unreadable(e))?
        {
            return Err(self.about(Error::incompatible(
                "the input file has changed: no line begins at the offset reached",
            )));
        }
        Ok(file)
    }

    /// Adds to an error which file it is about, and where.
    pub(super) fn about(&self, error: Error) -> Error {
        error.with("file", &self.file).with("offset", self.position)
    }

    pub(super) fn unreadable(&self, cause: std::io::Error) -> Error {
        self.about(Error::retryable("the input file can't be read").caused_by(cause))
    }

    fn follows_a_line(&self, file: &mut File) -> std::io::Result<bool> {
        // The last line may have no end.
        if self.position == 0 || self.position == self.length {
            return Ok(true);
        }
        let mut before = [0];
        file.seek(SeekFrom::Start(self.position - 1))?;
        file.read_exact(&mut before)?;
        Ok(before == *b"\n")
    }
}

/// Hashes the first bytes of a file that had this length.
pub(super) fn head_hash(file: &mut File, length: u64) -> std::io::Result<u64> {
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(HEAD.min(length)).read_to_end(&mut head)?;
    Ok(hash_bytes(&head))
}
