use std::sync::Arc;

use bytes::Bytes;
use state_api::{Error, ErrorKind, ObjectHandle, ObjectReader, RelPath, Result, Root};

use super::sources::{Body, NAMES, Source, Way};
use crate::digest::{DigestBuilder, digest_of};
use crate::progress::Progress;
use crate::reader::{DigestReader, Whole, check_inside, check_len, check_object, open_sealed};
use crate::root::StoreRoot;
use crate::sealed::Sealer;
use crate::store::ObjectWriter;

/// An object of the copy.
pub(super) struct Copied {
    pub(super) path: RelPath,
    pub(super) was_there: bool,
}

/// Copies an object, unless it is there whole.
///
/// What is there and not whole may be written by another call at this moment: it is left alone.
pub(super) async fn copy_object(
    source: &Source,
    target: &StoreRoot,
    progress: &Progress<'_>,
) -> Result<Copied> {
    for n in 0..NAMES {
        let name = source.name(n);
        let path = RelPath::new(&name)?;
        let copy = ObjectHandle {
            root: Root::Own,
            path: path.clone(),
            ..source.object.clone()
        };
        match target.len(&name).await? {
            None => match write_object(source, target, &name, progress).await {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
                Ok(()) => {
                    check_len(target, &copy).await.map_err(|e| {
                        Error::retryable(
                            "the store reported an object as written that is not there",
                        )
                        .caused_by(e)
                    })?;
                    progress.done(0);
                    return Ok(Copied {
                        path,
                        was_there: false,
                    });
                }
            },
            Some(_) if is_whole(source, target, &copy).await? => {
                progress.done(copy.len);
                return Ok(Copied {
                    path,
                    was_there: true,
                });
            }
            Some(_) => {}
        }
    }
    Err(Error::bug("an object finds no name").with("object", &source.object))
}

/// Returns whether the object of an earlier call is what this one would write.
async fn is_whole(source: &Source, target: &StoreRoot, copy: &ObjectHandle) -> Result<bool> {
    let whole = match check_object(target, copy, &mut |_| {}).await {
        Ok(whole) => whole,
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    match (whole, &source.body) {
        (Whole::Inside, _) => Ok(true),
        (Whole::Stored(digest, _), Body::Object(root)) if source.way == Way::Keep => {
            Ok(open_sealed(root, &source.object).await?.stored_digest() == digest)
        }
        (Whole::Stored(..), _) => Ok(false),
    }
}

/// Writes an object under a name that is free; what is inside is what the metadata says, or the object is removed again.
async fn write_object(
    source: &Source,
    target: &StoreRoot,
    name: &str,
    progress: &Progress<'_>,
) -> Result<()> {
    if let (Body::Object(root), Way::Plain | Way::Reseal) = (&source.body, source.way) {
        check_len(root, &source.object).await?;
    }
    let mut writer = target.create(name, Arc::new(())).await?;
    let written = match (&source.body, source.way) {
        (Body::Object(root), Way::Keep) => keep(root, source, &mut *writer, progress).await,
        _ => pour(source, target, name, &mut *writer, progress).await,
    };
    match written {
        Ok(()) => writer.finish().await,
        Err(e) => {
            if let Err(left) = writer.abort().await {
                tracing::debug!(object = name, error = %left, "part of an object is left");
            }
            Err(e)
        }
    }
}

/// Writes the stored bytes of a sealed object.
async fn keep(
    root: &StoreRoot,
    source: &Source,
    writer: &mut dyn ObjectWriter,
    progress: &Progress<'_>,
) -> Result<()> {
    let mut reader = open_sealed(root, &source.object).await?;
    let (mut inside, mut passed) = (DigestBuilder::new(), 0);
    while let Some(piece) = reader.next().await? {
        inside.update(&piece.plain);
        if !piece.stored.is_empty() {
            writer.write(piece.stored).await?;
        }
        passed += piece.plain.len() as u64;
        progress.advanced(piece.plain.len() as u64);
    }
    // What could not be opened has passed too.
    progress.advanced(source.object.len.saturating_sub(passed));
    match reader.missing_key() {
        Some(_) => Ok(()),
        None => check_inside(&source.object, &inside),
    }
}

/// Writes what is inside, sealed if it is to be.
async fn pour(
    source: &Source,
    target: &StoreRoot,
    name: &str,
    writer: &mut dyn ObjectWriter,
    progress: &Progress<'_>,
) -> Result<()> {
    let mut sealer = match source.way {
        Way::Reseal => {
            // Names are used once, so that this is as good as chance.
            let digest = digest_of(format!("{}/{name}", target.url()).as_bytes());
            let mut id = [0; 16];
            id.copy_from_slice(&digest.0[..16]);
            Some(Sealer::new(target.sealing().clone(), id)?)
        }
        Way::Plain | Way::Keep => None,
    };
    let mut bytes = Bytes::new();
    let mut reader = match &source.body {
        Body::Object(root) => Some(DigestReader::new(root.clone(), source.object.clone())),
        Body::Inline(inline) => {
            bytes = inline.clone();
            None
        }
    };
    loop {
        if let Some(reader) = &mut reader {
            match reader.next().await? {
                None => break,
                Some(next) => bytes = next,
            }
        }
        let len = bytes.len() as u64;
        let stored = match &mut sealer {
            Some(sealer) => sealer.write(&bytes)?,
            None => bytes.clone(),
        };
        if !stored.is_empty() {
            writer.write(stored).await?;
        }
        progress.advanced(len);
        if reader.is_none() {
            break;
        }
    }
    match sealer {
        Some(sealer) => writer.write(sealer.finish()?).await,
        None => Ok(()),
    }
}
