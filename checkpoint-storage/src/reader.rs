use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Digest, Error, ErrorKind, ObjectHandle, ObjectReader, Result};

use crate::digest::{DigestBuilder, digest_of};
use crate::root::StoreRoot;
use crate::sealed::{WholeReader, is_sealed};

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
        // The whole length, if it can be had: a part behind the end has none.
        check_len(root, object).await?;
        return Err(wrong_len(object, range.start + bytes.len() as u64));
    }
    if wanted == object.len && digest_of(&bytes) != object.digest {
        return Err(wrong_digest(object));
    }
    Ok(bytes)
}

/// What [`check_object`] could tell of an object that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// What is inside is what it was, and so are the stored bytes.
    Inside,
    /// The stored bytes are what they were; they have this digest, and the key of this name to open them is not here.
    Stored(Digest, String),
}

/// Reads an object from start to end, nothing of which is remembered: the stored bytes, and what is inside if they are sealed.
///
/// `passed` is told the bytes of the object as its handle counts them.
///
/// # Errors
/// `Corrupt` when it is missing, of another length or damaged, which says whether inside or as it is stored; `Retryable`
/// when the store fails.
pub(crate) async fn check_object(
    root: &StoreRoot,
    object: &ObjectHandle,
    passed: &mut (dyn FnMut(u64) + Send),
) -> Result<Whole> {
    if !is_sealed(object.path.as_str()) {
        check_len(root, object).await?;
        let mut reader = DigestReader::new(root.clone(), object.clone());
        while let Some(bytes) = reader.next().await? {
            passed(bytes.len() as u64);
        }
        return Ok(Whole::Inside);
    }
    let mut reader = open_sealed(root, object).await?;
    let mut digest = DigestBuilder::new();
    while let Some(piece) = reader.next().await? {
        digest.update(&piece.plain);
        passed(piece.plain.len() as u64);
    }
    if let Some(key) = reader.missing_key() {
        return Ok(Whole::Stored(reader.stored_digest(), key.to_owned()));
    }
    check_inside(object, &digest)?;
    Ok(Whole::Inside)
}

/// Starts to read a sealed object that must be there in its full length.
pub(crate) async fn open_sealed(root: &StoreRoot, object: &ObjectHandle) -> Result<WholeReader> {
    match root.open_sealed(object.path.as_str()).await {
        Ok(reader) if reader.plain_len() != object.len => {
            Err(wrong_len(object, reader.plain_len()))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Err(missing(object).caused_by(e)),
        outcome => outcome,
    }
}

/// Compares what was inside a sealed object with what its handle says.
pub(crate) fn check_inside(object: &ObjectHandle, inside: &DigestBuilder) -> Result<()> {
    match inside.len() == object.len && inside.digest() == object.digest {
        true => Ok(()),
        false => Err(Error::corrupt(
            "an object of the checkpoint is damaged: it is whole as it is stored, but the digest of what is inside differs",
        )
        .with("object", object)),
    }
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
