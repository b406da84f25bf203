use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use state_api::{Error, ObjectHandle, Result};

use crate::digest::DigestBuilder;

/// Bytes of a copy that are read at once to check it.
const PIECE: usize = 1 << 20;

/// Tries at making a file in a folder that others remove when it is empty.
const TRIES: usize = 4;

/// Returns the name of the copy of an object: its path as a digest, its length, its digest. The root is not in it: a checkpoint
/// that was moved or claimed has the same objects.
pub(super) fn copy_name(object: &ObjectHandle) -> String {
    let path = blake3::hash(object.path.as_str().as_bytes()).to_hex();
    let path = path.get(..32).unwrap_or_default();
    format!("{path}-{}-{}", object.len, object.digest)
}

/// Returns the length that a copy's name tells; `None` for any other name.
pub(super) fn len_in_name(name: &str) -> Option<u64> {
    let hex = |text: &str, digits: usize| {
        text.len() == digits
            && text
                .bytes()
                .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    };
    let mut parts = name.split('-');
    let (path, len, digest) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !hex(path, 32) || !hex(digest, 64) {
        return None;
    }
    crate::layout::parse_number(len)
}

pub(super) fn failed(doing: &'static str, path: &Path, error: io::Error) -> Error {
    Error::retryable(format!("a local copy: could not {doing}"))
        .with("file", path.display())
        .caused_by(error)
}

/// Reads a copy through; returns it open at its start if it is what the handle says.
///
/// # Errors
/// `Corrupt` for a copy of another length or digest; those of the disk.
pub(super) fn verified(path: &Path, object: &ObjectHandle) -> Result<File> {
    let mut file = File::open(path).map_err(|e| failed("open it", path, e))?;
    let found = file.metadata().map_err(|e| failed("look at it", path, e))?;
    let wrong = |what: &str| {
        Error::corrupt(format!("a local copy has another {what} than its object"))
            .with("file", path.display())
    };
    if !found.is_file() || found.len() != object.len {
        return Err(wrong("length"));
    }
    let mut digest = DigestBuilder::new();
    let mut piece = vec![0; PIECE.min(usize::try_from(object.len).unwrap_or(PIECE))];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => digest.update(piece.get(..read).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("read it", path, e)),
        }
    }
    if digest.len() != object.len || digest.digest() != object.digest {
        return Err(wrong("digest"));
    }
    file.rewind().map_err(|e| failed("read it", path, e))?;
    Ok(file)
}

/// Reads so many bytes on from where a file stands.
pub(super) fn read_on(mut file: File, path: &Path, len: u64) -> Result<(File, Bytes)> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact(&mut bytes)
        .map_err(|e| failed("read it", path, e))?;
    Ok((file, bytes.into()))
}

/// Makes a folder and something in it, again if the folder is removed in between.
fn in_folder<T>(folder: &Path, mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        fs::create_dir_all(folder)?;
        match make() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            made => return made,
        }
    }
    fs::create_dir_all(folder)?;
    make()
}

/// Gives a file a second name in a folder, or copies it where that can't be; returns the name and the number of bytes.
pub(super) fn place(from: &Path, folder: &Path, name: &str) -> Result<(PathBuf, u64)> {
    let to = folder.join(name);
    let placed = in_folder(folder, || link_or_copy(from, &to));
    placed.map_err(|e| failed("make it", &to, e))?;
    let found = fs::metadata(&to).map_err(|e| failed("look at it", &to, e))?;
    Ok((to, found.len()))
}

/// Gives a file a second name, or copies it where that can't be: another file system, too many names.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
            ) =>
        {
            Err(e)
        }
        Err(_) => {
            let copied = fs::copy(from, to).map(drop);
            if copied.is_err() {
                // Whatever is there is not whole.
                drop(fs::remove_file(to));
            }
            copied
        }
    }
}

/// Removes files, and the folders of their checkpoint and their task if nothing is left there.
pub(super) fn remove(paths: Vec<PathBuf>) {
    for path in paths {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %path.display(), %error, "a local copy can't be removed");
            }
            _ => {}
        }
        for folder in path.ancestors().skip(1).take(2) {
            // Not empty, as a rule.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// A copy that is being written; it is removed when dropped.
pub(super) struct Part {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Part {
    pub(super) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let create = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = in_folder(folder, create).map_err(|e| failed("make it", &path, e))?;
        Ok(Self { path, file, len: 0 })
    }

    pub(super) fn append(mut self, bytes: &[u8]) -> Result<Self> {
        self.file
            .write_all(bytes)
            .map_err(|e| failed("write it", &self.path, e))?;
        self.len += bytes.len() as u64;
        Ok(self)
    }

    /// Gives the file its name beside the one it has; returns it with the number of bytes.
    pub(super) fn finish(self, name: &str) -> Result<(PathBuf, u64)> {
        let to = self.path.with_file_name(name);
        fs::rename(&self.path, &to).map_err(|e| failed("rename it", &self.path, e))?;
        Ok((to, self.len))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // It has its name.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "a local copy can't be removed");
            }
            Ok(()) => remove(vec![self.path.clone()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use state_api::{Digest, RelPath, Root};

    use super::*;

    #[test]
    fn a_name_tells_path_length_and_digest_and_nothing_else_is_a_name() {
        let object = |path: &str, len, digest| ObjectHandle {
            root: Root::Own,
            path: RelPath::new(path).unwrap(),
            len,
            digest: Digest([digest; 32]),
        };
        let name = copy_name(&object("shared/1-a", 1234, 7));
        assert_eq!(len_in_name(&name), Some(1234));
        let moved = ObjectHandle {
            root: Root::Url("file:///elsewhere".into()),
            ..object("shared/1-a", 1234, 7)
        };
        assert_eq!(copy_name(&moved), name);
        for other in [
            object("shared/1-b", 1234, 7),
            object("shared/1-a", 1235, 7),
            object("shared/1-a", 1234, 8),
        ] {
            assert_ne!(copy_name(&other), name);
        }
        for bad in [
            "",
            "owner.lock",
            "part-1",
            "-1-",
            &format!("{name}-"),
            &name.replace("1234", "01234"),
            &name.to_uppercase(),
            name.get(1..).unwrap(),
        ] {
            assert_eq!(len_in_name(bad), None, "{bad}");
        }
    }
}
