use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, ErrorKind, ObjectHandle, ObjectReader, Result};

use crate::digest::{DigestBuilder, digest_of};
use crate::root::StoreRoot;

/// Bytes that are read at once.
const CHUNK: u64 = 4 << 20;

fn missing(object: &ObjectHandle) -> Error {
    Error::corrupt("an object of the checkpoint is missing").with("object", object)
}

fn wrong_len(object: &ObjectHandle, len: u64) -> Error {
    Error::corrupt(format!(
        "an object of the checkpoint has {len} bytes instead of {}",
        object.len
    ))
    .with("object", object)
}

fn wrong_digest(object: &ObjectHandle) -> Error {
    Error::corrupt("an object of the checkpoint is damaged: its digest differs")
        .with("object", object)
}

/// Checks that an object is there in its full length.
pub(crate) async fn check_len(root: &StoreRoot, object: &ObjectHandle) -> Result<()> {
    match root.plain_len(object.path.as_str()).await? {
        None => Err(missing(object)),
        Some(len) if len != object.len => Err(wrong_len(object, len)),
        Some(_) => Ok(()),
    }
}

/// Reads a part of an object that must be there; the digest is checked when the part is the whole.
pub(crate) async fn read_part(
    root: &StoreRoot,
    object: &ObjectHandle,
    range: Range<u64>,
) -> Result<Bytes> {
    if range.start > range.end || range.end > object.len {
        return Err(Error::invalid(format!(
            "bytes {}..{} are not in an object of {}",
            range.start, range.end, object.len
        ))
        .with("object", object));
    }
    let wanted = range.end - range.start;
    let read = root.read_plain(object.path.as_str(), range.clone(), object.len);
    let bytes = match read.await {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(missing(object).caused_by(e)),
        Err(e) => return Err(e),
    };
    if bytes.len() as u64 != wanted {
        return Err(wrong_len(object, range.start + bytes.len() as u64));
    }
    if wanted == object.len && digest_of(&bytes) != object.digest {
        return Err(wrong_digest(object));
    }
    Ok(bytes)
}

/// Reads an object from start to end and checks its digest.
pub(crate) struct DigestReader {
    root: StoreRoot,
    object: ObjectHandle,
    digest: DigestBuilder,
}

impl DigestReader {
    pub(crate) fn new(root: StoreRoot, object: ObjectHandle) -> Self {
        Self {
            root,
            object,
            digest: DigestBuilder::new(),
        }
    }

    async fn read(&mut self, most: u64) -> Result<Option<Bytes>> {
        let at = self.digest.len();
        if at == self.object.len {
            if self.digest.digest() != self.object.digest {
                return Err(wrong_digest(&self.object));
            }
            return Ok(None);
        }
        let end = self.object.len.min(at.saturating_add(most));
        let read = self
            .root
            .read_plain(self.object.path.as_str(), at..end, self.object.len);
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(missing(&self.object).caused_by(e));
            }
            Err(e) => return Err(e.with("object", &self.object)),
        };
        if bytes.len() as u64 != end - at {
            return Err(wrong_len(&self.object, at + bytes.len() as u64));
        }
        self.digest.update(&bytes);
        Ok(Some(bytes))
    }
}

impl ObjectReader for DigestReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.read(CHUNK).boxed()
    }

    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        // Nothing would be read of no bytes, and nobody would notice the end.
        self.read(bytes.max(1)).boxed()
    }
}
