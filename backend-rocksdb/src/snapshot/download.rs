use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{StreamExt, iter};
use state_api::{Digest, Error, ObjectHandle, RestoreContext, Result, StateHandle};

use super::layout::Layout;
use super::merge::{Origin, Plan};
use super::{manifest, on_cpu};
use crate::error::folder_failed;

/// Bytes that are asked for at once.
const PIECE: u64 = 1 << 20;

/// Brings all files of a plan into a folder, several at once, and makes a database of them.
///
/// A file gets its name when all of it is there and its digest is the one of its handle: RocksDB opens none before.
///
/// # Errors
/// `Corrupt`, naming the object, for one that is missing, damaged or of another length; those of storage and disk.
pub(crate) async fn assemble(
    plan: &Plan,
    folder: &Path,
    transfers: usize,
    cx: &RestoreContext,
) -> Result<()> {
    let to = folder.to_owned();
    on_cpu(cx, move || {
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
    while let Some(fetched) = fetched.next().await {
        fetched?;
    }
    drop(fetched);
    let (layout, to) = (plan.layout.clone(), folder.to_owned());
    on_cpu(cx, move || write_manifest(&layout, &to)).await
}

async fn fetch(origin: &Origin, path: PathBuf, size: u64, cx: &RestoreContext) -> Result<()> {
    match origin {
        Origin::Local(from) => {
            let from = from.clone();
            on_cpu(cx, move || {
                fs::hard_link(&from, &path).map_err(|e| folder_failed("link file", &from, e))
            })
            .await
        }
        Origin::Stored(handle) if handle.len() != size => {
            let error = Error::corrupt("a file is not as long as its layout says");
            Err(naming(error, handle))
        }
        Origin::Stored(StateHandle::Inline(bytes)) => {
            let bytes = bytes.clone();
            on_cpu(cx, move || {
                fs::write(&path, &bytes).map_err(|e| folder_failed("write file", &path, e))
            })
            .await
        }
        Origin::Stored(handle @ StateHandle::Object(object)) => download(object, path, cx)
            .await
            .map_err(|e| naming(e, handle)),
    }
}

async fn download(object: &ObjectHandle, path: PathBuf, cx: &RestoreContext) -> Result<()> {
    let mut reader = cx.storage.open(object).await?;
    let part = path.with_extension("part");
    let mut file = on_cpu(cx, move || Part::create(part)).await?;
    while let Some(bytes) = reader.next_piece(PIECE).await? {
        file = on_cpu(cx, move || file.append(&bytes)).await?;
    }
    let (len, digest) = (object.len, object.digest);
    on_cpu(cx, move || file.finish(len, digest, &path)).await
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
