//! Self-contained copies of checkpoints: in another folder, on another store.
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use state_api::{Error, ErrorKind, ObjectHandle, ObjectReader, RelPath, Result, Root};

use crate::checkpoint::StoredCheckpoint;
use crate::cleanup::is_temporary;
use crate::digest::digest_of;
use crate::layout::checkpoint_of_folder;
use crate::metadata::{CheckpointMetadata, METADATA_NAME, MetadataEncoder, OwnRoot};
use crate::names::attempt_of_name;
use crate::progress::{Progress, Watcher};
use crate::reader::{DigestReader, check_len};
use crate::root::StoreRoot;
use crate::sealed::SEALED_ENDING;

/// Names that are tried for an object before it is given up.
const NAMES: u32 = 1000;

/// How [`copy_checkpoint`] goes about it.
#[derive(Clone, Copy)]
pub struct CopyOptions<'a> {
    /// Objects that are copied at once, at least one; each takes some MiB of memory.
    pub concurrency: usize,
    /// Folders outside the checkpoint's own that it may refer to.
    pub roots: &'a [StoreRoot],
    /// Is told how far it is, after each piece that was copied.
    pub watcher: Watcher<'a>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self {
            concurrency: 4,
            roots: &[],
            watcher: &|_| {},
        }
    }
}

/// What [`copy_checkpoint`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// URL of the copy's folder.
    pub folder: String,
    /// Number of distinct objects in the copy.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Number of those that were there already, whole, from a copy that was interrupted.
    pub reused: usize,
    /// Whether the whole copy was there already; then nothing was read or written.
    pub already_there: bool,
}

/// Copies a checkpoint with every object that it needs into a folder of its own, from which it can be restored, moved and
/// verified without what it was copied from.
///
/// Each object's digest is checked while it is copied; what is compressed or encrypted is not in the copy. The copy exists once its metadata is published, last and
/// atomically. Interrupted at any call, it is completed by a second call, which keeps what is there whole; of two calls at
/// once for one folder one publishes, and both succeed.
///
/// # Errors
/// `Corrupt`, naming the object, when the checkpoint is damaged; `Config` when it refers to a folder that nobody named;
/// `AlreadyExists` when the folder holds another checkpoint; `InvalidArgument` when it holds anything else, or has a name
/// that it must not have; `Retryable` when a store fails.
pub async fn copy_checkpoint(
    found: &StoredCheckpoint,
    target: &StoreRoot,
    options: CopyOptions<'_>,
) -> Result<CopyReport> {
    let sources = sources(found, options.roots)?;
    let mut report = CopyReport {
        folder: target.url().to_owned(),
        objects: sources.len(),
        bytes: sources.iter().map(|source| source.object.len).sum(),
        reused: 0,
        already_there: false,
    };
    check_name(found, target)?;
    if is_there(found, target).await? {
        report.already_there = true;
        return Ok(report);
    }
    check_free(target).await?;
    let progress = Progress::of(report.objects, report.bytes, options.watcher);
    // Collected, because a closure that is kept across an await makes the future unsendable to the compiler's eyes.
    let copies: Vec<_> = sources
        .iter()
        .enumerate()
        .map(|(index, source)| {
            let progress = &progress;
            async move { (index, copy_object(source, target, progress).await) }
        })
        .collect();
    let mut copies = stream::iter(copies).buffer_unordered(options.concurrency.max(1));
    let mut names: Vec<Option<RelPath>> = vec![None; sources.len()];
    while let Some((index, copied)) = copies.next().await {
        let named = |e: Error| e.with("checkpoint", found.folder.url());
        let copied = copied.map_err(named)?;
        report.reused += usize::from(copied.was_there);
        names[index] = Some(copied.path);
    }
    drop(copies);
    let places: HashMap<(&str, &RelPath), RelPath> = sources
        .iter()
        .zip(names)
        .filter_map(|(source, name)| Some(((source.root.url(), &source.object.path), name?)))
        .collect();
    let metadata = relocated(found, &places)?;
    publish(found, target, &metadata).await?;
    remove_leftovers(target, &metadata).await;
    Ok(report)
}

/// An object to be copied.
struct Source {
    root: StoreRoot,
    object: ObjectHandle,
    /// What it is called in the copy, if that is not taken by something that is not whole.
    name: String,
}

/// Returns the distinct objects of a checkpoint, each with the folder that it lies in.
fn sources(found: &StoredCheckpoint, roots: &[StoreRoot]) -> Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    let mut known: HashSet<(&str, &RelPath)> = HashSet::new();
    let mut taken: HashSet<String> = HashSet::new();
    for used in found.metadata.objects() {
        let object = used.object;
        let url = match &object.root {
            Root::Own => found.own.url(),
            Root::Url(url) => url.trim_end_matches('/'),
        };
        if !known.insert((url, &object.path)) {
            continue;
        }
        let mut named = std::iter::once(&found.own).chain(roots);
        let root = named.find(|root| root.url() == url).ok_or_else(|| {
            Error::config("the checkpoint refers to a folder that was not named")
                .with("root", url)
                .with("operator", used.operator)
        })?;
        let last = object.path.as_str().rsplit('/').next().unwrap_or_default();
        // The copy holds the plain bytes: it is read where the key of the original is not known.
        let last = last.strip_suffix(SEALED_ENDING).unwrap_or(last);
        let name = (0..NAMES)
            .map(|n| another_name(last, n))
            .find(|name| taken.insert(name.clone()))
            .ok_or_else(|| Error::bug("an object finds no name"))?;
        sources.push(Source {
            root: root.clone(),
            object: object.clone(),
            name,
        });
    }
    Ok(sources)
}

/// Returns the n-th name for an object; the same for the same, so that a second call finds what the first one wrote.
fn another_name(name: &str, n: u32) -> String {
    match attempt_of_name(name) {
        Some(_) if n == 0 => name.to_owned(),
        known => {
            let digest = digest_of(format!("{name} {n}").as_bytes());
            let mut random = [0; 16];
            random.copy_from_slice(&digest.0[..16]);
            let uuid = uuid::Builder::from_random_bytes(random).into_uuid();
            format!("{}-{uuid}", known.map_or(0, |attempt| attempt.0))
        }
    }
}

/// Refuses folders in which a copy would be taken for something else.
fn check_name(found: &StoredCheckpoint, target: &StoreRoot) -> Result<()> {
    if target.url() == found.folder.url() || target.url() == found.own.url() {
        return Err(
            Error::invalid("a checkpoint is not copied onto itself").with("folder", target.url())
        );
    }
    let name = target.url().rsplit('/').next().unwrap_or_default();
    if checkpoint_of_folder(name).is_some() {
        return Err(Error::invalid(
            "a folder of this name belongs into a job's folder, which numbers its checkpoints: name the copy otherwise",
        )
        .with("folder", target.url()));
    }
    Ok(())
}

/// Returns whether the folder holds a copy of this checkpoint.
async fn is_there(found: &StoredCheckpoint, target: &StoreRoot) -> Result<bool> {
    let there = match StoredCheckpoint::read(target, "").await {
        Ok(there) => there.metadata,
        Err(e) if e.kind() == ErrorKind::NotFound && target.len(METADATA_NAME).await?.is_none() => {
            return Ok(false);
        }
        Err(e) => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the folder holds something that is no copy of the checkpoint",
            )
            .with("folder", target.url())
            .caused_by(e));
        }
    };
    let wanted = &found.metadata;
    if there.own_root == OwnRoot::Folder && without_places(&there) == without_places(wanted) {
        return Ok(true);
    }
    Err(Error::new(
        ErrorKind::AlreadyExists,
        format!(
            "the folder holds checkpoint {} of job {} already",
            there.checkpoint, there.job
        ),
    )
    .with("folder", target.url()))
}

/// Returns metadata as it is wherever its objects lie.
fn without_places(metadata: &CheckpointMetadata) -> CheckpointMetadata {
    let mut metadata = metadata.clone();
    metadata.own_root = OwnRoot::Folder;
    metadata.roots.clear();
    if let Ok(nowhere) = RelPath::new("-") {
        metadata.objects_mut().for_each(|object| {
            object.root = Root::Own;
            object.path = nowhere.clone();
        });
    }
    metadata
}

/// Checks that a folder holds nothing but what an interrupted copy leaves.
async fn check_free(target: &StoreRoot) -> Result<()> {
    let entries = target.list("").await?;
    let ours = |name: &str| attempt_of_name(name).is_some() || is_temporary(name);
    match entries
        .iter()
        .find(|entry| entry.is_folder || !ours(&entry.name))
    {
        None => Ok(()),
        Some(other) => Err(Error::invalid(
            "the folder is not empty: name one for the copy alone, which need not exist",
        )
        .with("folder", target.url())
        .with("found", &other.name)),
    }
}

/// An object of the copy.
struct Copied {
    path: RelPath,
    was_there: bool,
}

/// Copies an object, unless it is there whole.
///
/// What is there and not whole may be written by another call at this moment: it is left alone.
async fn copy_object(
    source: &Source,
    target: &StoreRoot,
    progress: &Progress<'_>,
) -> Result<Copied> {
    for n in 0..NAMES {
        let name = match n {
            0 => source.name.clone(),
            n => another_name(&source.name, n),
        };
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
            Some(len) if len == copy.len && is_whole(target, &copy).await? => {
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

/// Writes an object under a name that is free; the digest is that of the metadata, or the object is removed again.
async fn write_object(
    source: &Source,
    target: &StoreRoot,
    name: &str,
    progress: &Progress<'_>,
) -> Result<()> {
    check_len(&source.root, &source.object).await?;
    let mut reader = DigestReader::new(source.root.clone(), source.object.clone());
    let mut writer = target.create(name, Arc::new(())).await?;
    loop {
        let written = match reader.next().await {
            Ok(None) => return writer.finish().await,
            Ok(Some(bytes)) => {
                let len = bytes.len() as u64;
                let written = writer.write(bytes).await;
                progress.advanced(len);
                written
            }
            Err(e) => Err(e),
        };
        if let Err(e) = written {
            if let Err(left) = writer.abort().await {
                tracing::debug!(object = name, error = %left, "part of an object is left");
            }
            return Err(e);
        }
    }
}

async fn is_whole(root: &StoreRoot, object: &ObjectHandle) -> Result<bool> {
    let mut reader = DigestReader::new(root.clone(), object.clone());
    loop {
        match reader.next().await {
            Ok(None) => return Ok(true),
            Ok(Some(_)) => {}
            Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Returns the metadata of the copy.
fn relocated(
    found: &StoredCheckpoint,
    places: &HashMap<(&str, &RelPath), RelPath>,
) -> Result<CheckpointMetadata> {
    let mut metadata = found.metadata.clone();
    let mut lost = None;
    for object in metadata.objects_mut() {
        let url = match &object.root {
            Root::Own => found.own.url(),
            Root::Url(url) => url.trim_end_matches('/'),
        };
        match places.get(&(url, &object.path)) {
            Some(path) => {
                object.path = path.clone();
                object.root = Root::Own;
            }
            None => lost = Some(object.to_string()),
        }
    }
    if let Some(lost) = lost {
        return Err(Error::bug("an object was not copied").with("object", lost));
    }
    metadata.own_root = OwnRoot::Folder;
    metadata.roots.clear();
    Ok(metadata)
}

async fn publish(
    found: &StoredCheckpoint,
    target: &StoreRoot,
    metadata: &CheckpointMetadata,
) -> Result<()> {
    let mut content = MetadataEncoder::new(metadata)?;
    match target.publish_parts(METADATA_NAME, &mut content).await {
        Ok(()) => {}
        // The store may have failed after it did its work, or another call was faster.
        Err(e) => match is_there(found, target).await {
            Ok(true) => return Ok(()),
            Err(other) if other.kind() == ErrorKind::AlreadyExists => return Err(other),
            _ => return Err(e),
        },
    }
    match StoredCheckpoint::read(target, "").await {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::retryable(
            "the store reported the metadata as written, but it can't be read",
        )
        .caused_by(e)),
    }
}

/// Removes what interrupted calls left, once the copy is complete: another call that is at it can't complete it any more.
async fn remove_leftovers(target: &StoreRoot, metadata: &CheckpointMetadata) {
    let Ok(there) = StoredCheckpoint::read(target, "").await else {
        return;
    };
    if there.metadata != *metadata {
        return;
    }
    let used: HashSet<&str> = metadata
        .objects()
        .map(|used| used.object.path.as_str())
        .collect();
    for entry in target.list("").await.unwrap_or_default() {
        let ours = attempt_of_name(&entry.name).is_some() || is_temporary(&entry.name);
        if entry.is_folder || !ours || used.contains(entry.name.as_str()) {
            continue;
        }
        if let Err(error) = target.delete(&entry.name).await {
            tracing::debug!(object = entry.name, %error, "part of an interrupted copy is left");
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn further_names_are_of_the_same_attempt_and_the_same_every_time() {
        let name = "7-67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(another_name(name, 0), name);
        assert_eq!(another_name(name, 1), another_name(name, 1));
        assert_ne!(another_name(name, 1), another_name(name, 2));
        for name in [another_name(name, 1), another_name("sst", 0)] {
            assert!(attempt_of_name(&name).is_some(), "{name}");
            assert!(Uuid::try_parse(name.split_once('-').unwrap().1).is_ok());
        }
    }
}
