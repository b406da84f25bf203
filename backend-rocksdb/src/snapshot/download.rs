use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{StreamExt, iter};
use state_api::{
    Digest, Error, ErrorKind, ObjectHandle, ObjectReader, RestoreContext, Result, StateHandle,
    read_handle,
};

use super::layout::Layout;
use super::manifest;
use super::merge::{Origin, Plan};
use crate::error::folder_failed;
use crate::folder::{InstanceFolder, link_or_copy};

/// Bytes that are asked for at once.
const PIECE: u64 = 1 << 20;

/// How often the transfer of one object goes on after the store has failed for the moment, without a byte in between.
const RETRIES: u32 = 5;

/// Milliseconds before it goes on for the first time; twice as many before each further one.
const PAUSE_MS: u64 = 100;

/// What was not fetched, since it was there as local copies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FromCopies {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Brings all files of a plan into a folder, several at once, and makes a database of them.
///
/// A file gets its name when all of it is there and its digest is the one of its handle: RocksDB opens none before. A transfer
/// that the store breaks off goes on where it stopped, a few times; files that are there as local copies are linked.
///
/// Work that was handed over may run after the restore was given up: the folder of the subtask, which is removed with all that is
/// in it, stays until that work has ended.
///
/// # Errors
/// `Corrupt`, naming the object, for one that is missing, damaged or of another length; those of storage and disk.
pub(crate) async fn assemble(
    plan: &Plan,
    folder: &Path,
    above: &Arc<InstanceFolder>,
    transfers: usize,
    cx: &RestoreContext,
) -> Result<FromCopies> {
    let (to, held) = (folder.to_owned(), Arc::clone(above));
    cx.executor
        .on_cpu(move || {
            let _held = held;
            fs::create_dir_all(&to).map_err(|e| folder_failed("create folder", &to, e))
        })
        .await?;
    let sizes: BTreeMap<u64, u64> = plan
        .layout
        .files()
        .map(|file| (file.number, file.size))
        .collect();
    let mut fetched = iter(plan.layout.files().filter_map(|file| {
        let origin = plan.origins.get(&file.number)?;
        let path = folder.join(file.name());
        let size = sizes.get(&file.number).copied().unwrap_or(0);
        Some(fetch(origin, path, size, cx))
    }))
    .buffer_unordered(transfers.max(1));
    let mut from_copies = FromCopies::default();
    while let Some(fetched) = fetched.next().await {
        if let Some(bytes) = fetched? {
            from_copies.files += 1;
            from_copies.bytes += bytes;
        }
    }
    drop(fetched);
    let (layout, to) = (plan.layout.clone(), folder.to_owned());
    cx.executor
        .on_cpu(move || write_manifest(&layout, &to))
        .await?;
    Ok(from_copies)
}

/// Brings a file to its place; returns its bytes if they were there as a local copy.
async fn fetch(
    origin: &Origin,
    path: PathBuf,
    size: u64,
    cx: &RestoreContext,
) -> Result<Option<u64>> {
    match origin {
        Origin::Local(from) => {
            let from = from.clone();
            cx.executor
                .on_cpu(move || {
                    link_or_copy(&from, &path).map_err(|e| folder_failed("link file", &from, e))
                })
                .await?;
        }
        Origin::Stored(handle) if handle.len() != size => {
            let error = Error::corrupt("a file is not as long as its layout says");
            return Err(naming(error, handle));
        }
        Origin::Stored(StateHandle::Inline(bytes)) => {
            let bytes = bytes.clone();
            cx.executor
                .on_cpu(move || {
                    fs::write(&path, &bytes).map_err(|e| folder_failed("write file", &path, e))
                })
                .await?;
        }
        Origin::Stored(handle @ StateHandle::Object(object)) => {
            if cx.storage.link_copy(object, &path).await {
                return Ok(Some(size));
            }
            download(object, &path, cx)
                .await
                .map_err(|e| naming(e, handle))?;
            // Who restores this once more need not fetch it again.
            cx.storage.keep_copy(object, &path).await;
        }
    }
    Ok(None)
}

async fn download(object: &ObjectHandle, path: &Path, cx: &RestoreContext) -> Result<()> {
    let part = path.with_extension("part");
    let mut file = cx.executor.on_cpu(move || Part::create(part)).await?;
    let mut reader = None;
    let mut failures = 0;
    loop {
        match next(&mut reader, object, file.len(), cx).await {
            Ok(Some(bytes)) => {
                // However often it breaks off: each time it got further.
                failures = 0;
                file = cx.executor.on_cpu(move || file.append(&bytes)).await?;
            }
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Retryable && failures < RETRIES => {
                tracing::warn!(%error, %object, at = file.len(), "the transfer of a file goes on where it stopped");
                reader = None;
                cx.executor.pause(PAUSE_MS << failures).await;
                failures += 1;
            }
            Err(error) => return Err(error),
        }
    }
    let (len, digest, path) = (object.len, object.digest, path.to_owned());
    cx.executor
        .on_cpu(move || file.finish(len, digest, &path))
        .await
}

/// Reads all bytes of a handle, again if the store fails for the moment.
///
/// # Errors
/// Those of the storage.
pub(crate) async fn read_again(handle: &StateHandle, cx: &RestoreContext) -> Result<Bytes> {
    let mut failures = 0;
    loop {
        match read_handle(&*cx.storage, handle).await {
            Err(error) if error.kind() == ErrorKind::Retryable && failures < RETRIES => {
                tracing::warn!(%error, "an object is read again");
                cx.executor.pause(PAUSE_MS << failures).await;
                failures += 1;
            }
            read => return read,
        }
    }
}

/// Returns the bytes of an object from a position on, from an open reader or, if that broke off, part by part.
async fn next(
    reader: &mut Option<Box<dyn ObjectReader>>,
    object: &ObjectHandle,
    at: u64,
    cx: &RestoreContext,
) -> Result<Option<Bytes>> {
    let reader = match reader {
        None if at == 0 => reader.insert(cx.storage.open(object).await?),
        None if at >= object.len => return Ok(None),
        None => {
            let end = object.len.min(at + PIECE);
            let bytes = cx.storage.read_range(object, at..end).await?;
            // It would be asked for for ever.
            return if bytes.is_empty() {
                Err(Error::corrupt("an object ends early"))
            } else {
                Ok(Some(bytes))
            };
        }
        Some(reader) => reader,
    };
    reader.next_piece(PIECE).await
}

/// A file that is not whole yet.
///
/// What was written is what is checked, whoever has checked it on the way: RocksDB would notice damage only where it looks.
struct Part {
    path: PathBuf,
    file: File,
    digest: blake3::Hasher,
}

impl Part {
    fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(|e| folder_failed("create file", &path, e))?;
        Ok(Self {
            path,
            file,
            digest: blake3::Hasher::new(),
        })
    }

    fn len(&self) -> u64 {
        self.digest.count()
    }

    fn append(mut self, bytes: &Bytes) -> Result<Self> {
        self.digest.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(|e| folder_failed("write file", &self.path, e))?;
        Ok(self)
    }

    fn finish(self, len: u64, digest: Digest, path: &Path) -> Result<()> {
        if self.digest.count() != len || Digest(*self.digest.finalize().as_bytes()) != digest {
            return Err(Error::corrupt(
                "the bytes of an object differ from its digest",
            ));
        }
        drop(self.file);
        fs::rename(&self.path, path).map_err(|e| folder_failed("rename file", &self.path, e))
    }
}

fn write_manifest(layout: &Layout, folder: &Path) -> Result<()> {
    let name = format!("MANIFEST-{:06}", manifest::MANIFEST_NUMBER);
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|e| folder_failed("write file", &path, e))
    };
    write(&name, &manifest::write(layout))?;
    // With this it is a database.
    write("CURRENT", format!("{name}\n").as_bytes())
}

/// Names the object in an error that does not name it yet.
pub(crate) fn naming(error: Error, handle: &StateHandle) -> Error {
    match handle.object() {
        Some(object) if error.context("object").is_none() => error.with("object", object),
        _ => error,
    }
}
