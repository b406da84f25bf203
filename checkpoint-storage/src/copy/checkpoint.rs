use std::collections::{HashMap, HashSet};

use futures_util::StreamExt;
use futures_util::stream;
use state_api::{Error, ErrorKind, ObjectHandle, RelPath, Result, Root, StateHandle};

use super::object::copy_object;
use super::sources::{Body, CopySealing, Source, sources};
use crate::checkpoint::StoredCheckpoint;
use crate::cleanup::is_temporary;
use crate::digest::digest_of;
use crate::layout::{ATTEMPTS, SHARED, TASK_OWNED, checkpoint_of_folder};
use crate::metadata::{CheckpointMetadata, METADATA_NAME, OwnRoot};
use crate::names::attempt_of_name;
use crate::progress::{Progress, Watcher};
use crate::root::StoreRoot;

/// How [`copy_checkpoint`] goes about it.
#[derive(Clone, Copy)]
pub struct CopyOptions<'a> {
    /// Objects that are copied at once, at least one; each takes some MiB of memory.
    pub concurrency: usize,
    /// Folders outside the checkpoint's own that it may refer to.
    pub roots: &'a [StoreRoot],
    /// What becomes of compression and encryption.
    pub sealing: CopySealing,
    /// Is told how far it is, after each piece that was copied.
    pub watcher: Watcher<'a>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self {
            concurrency: 4,
            roots: &[],
            sealing: CopySealing::default(),
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
/// Each object is checked while it is copied: what is inside, or its stored bytes where these are copied without the key.
/// [`CopySealing`] says what becomes of compression and encryption; the metadata is signed if the target's folder has a
/// signer. The copy exists once its metadata is published, last and atomically. Interrupted at any call, it is completed by
/// a second call, which keeps what is there whole; of two calls at once for one folder one publishes, and both succeed.
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
    let sources = sources(found, target, options.sealing, options.roots)?;
    let mut report = CopyReport {
        folder: target.url().to_owned(),
        objects: sources.len(),
        bytes: sources.iter().map(|source| source.object.len).sum(),
        reused: 0,
        already_there: false,
    };
    check_name(found, target)?;
    if let Some(there) = copy_in(found, target).await? {
        // One that was killed before it had cleared up.
        remove_leftovers(target, &there, false).await;
        report.already_there = true;
        return Ok(report);
    }
    let begun = begin(target).await;
    let is_begun = begun.is_ok();
    let copied = match begun {
        Ok(()) => copy_all(found, target, &sources, options).await,
        Err(e) => Err(e),
    };
    match copied {
        Ok(reused) => report.reused = reused,
        // Another call may have been faster, and have removed what this one was about to use.
        Err(e) => match copy_in(found, target).await {
            Ok(Some(there)) => {
                remove_leftovers(target, &there, is_begun).await;
                report.already_there = true;
            }
            _ => return Err(e),
        },
    }
    Ok(report)
}

/// Copies that are made ready at once: each has room for the state of a digest, nearly two KiB.
const AT_HAND: usize = 512;

/// Copies objects and metadata; returns how many objects were there.
async fn copy_all(
    found: &StoredCheckpoint,
    target: &StoreRoot,
    sources: &[Source],
    options: CopyOptions<'_>,
) -> Result<usize> {
    let bytes = sources.iter().map(|source| source.object.len).sum();
    let mut reused = 0;
    let progress = Progress::of(sources.len(), bytes, options.watcher);
    let mut names: Vec<Option<RelPath>> = vec![None; sources.len()];
    for (chunk, objects) in sources.chunks(AT_HAND).enumerate() {
        // Collected, because a closure that is kept across an await makes the future unsendable to the compiler's eyes.
        let copies: Vec<_> = objects
            .iter()
            .enumerate()
            .map(|(index, source)| {
                let (progress, index) = (&progress, chunk * AT_HAND + index);
                async move { (index, copy_object(source, target, progress).await) }
            })
            .collect();
        let mut copies = stream::iter(copies).buffer_unordered(options.concurrency.max(1));
        while let Some((index, copied)) = copies.next().await {
            let named = |e: Error| e.with("checkpoint", found.folder.url());
            let copied = copied.map_err(named)?;
            reused += usize::from(copied.was_there);
            names[index] = Some(copied.path);
        }
    }
    let (mut places, mut inline) = (HashMap::new(), HashMap::new());
    for (source, name) in sources.iter().zip(names) {
        let Some(name) = name else {
            continue;
        };
        match &source.body {
            Body::Object(root) => {
                places.insert((root.url(), &source.object.path), name);
            }
            Body::Inline(bytes) => {
                inline.insert(bytes.as_ref(), (&source.object, name));
            }
        }
    }
    let metadata = relocated(found, &places, &inline)?;
    publish(found, target, &metadata).await?;
    remove_leftovers(target, &metadata, true).await;
    Ok(reused)
}

/// Refuses folders in which a copy would be taken for something else.
fn check_name(found: &StoredCheckpoint, target: &StoreRoot) -> Result<()> {
    if target.url() == found.folder.url() || target.url() == found.own.url() {
        return Err(
            Error::invalid("a checkpoint is not copied onto itself").with("folder", target.url())
        );
    }
    let name = target.url().rsplit('/').next().unwrap_or_default();
    if [ATTEMPTS, SHARED, TASK_OWNED].contains(&name) {
        return Err(Error::invalid(
            "a folder of this name belongs into a job's folder: name the copy otherwise",
        )
        .with("folder", target.url()));
    }
    if checkpoint_of_folder(name).is_some() {
        return Err(Error::invalid(
            "a folder of this name belongs into a job's folder, which numbers its checkpoints: name the copy otherwise",
        )
        .with("folder", target.url()));
    }
    Ok(())
}

/// Returns the metadata of the copy of this checkpoint that the folder holds, if it holds one.
async fn copy_in(
    found: &StoredCheckpoint,
    target: &StoreRoot,
) -> Result<Option<CheckpointMetadata>> {
    let there = match StoredCheckpoint::read(target, "").await {
        Ok(there) => there.metadata,
        Err(e) if e.kind() == ErrorKind::NotFound && target.len(METADATA_NAME).await?.is_none() => {
            return Ok(None);
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
        return Ok(Some(there));
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
    let Ok(nowhere) = RelPath::new("-") else {
        return metadata;
    };
    for part in metadata.parts_mut() {
        let (len, digest) = match part {
            StateHandle::Object(object) => (object.len, object.digest),
            // It is an object in a copy that is encrypted.
            StateHandle::Inline(bytes) if !bytes.is_empty() => {
                (bytes.len() as u64, digest_of(bytes))
            }
            StateHandle::Inline(_) => continue,
        };
        *part = StateHandle::Object(ObjectHandle {
            root: Root::Own,
            path: nowhere.clone(),
            len,
            digest,
        });
    }
    metadata
}

/// Stands in a folder while a copy is being written there: what is called like our objects is of copies, and of nothing else.
const MARK: &str = "_copying";

/// Marks an empty folder as one for a copy, or finds the mark of an interrupted one.
async fn begin(target: &StoreRoot) -> Result<()> {
    let entries = target.list("").await?;
    let ours = |name: &str| name == MARK || attempt_of_name(name).is_some() || is_temporary(name);
    let other = entries
        .iter()
        .find(|entry| entry.is_folder || !ours(&entry.name));
    let marked = entries.iter().any(|entry| entry.name == MARK);
    let unmarked = entries
        .iter()
        .find(|entry| !marked && attempt_of_name(&entry.name).is_some());
    if let Some(other) = other.or(unmarked) {
        return Err(Error::invalid(
            "the folder is not empty: name one for the copy alone, which need not exist",
        )
        .with("folder", target.url())
        .with("found", &other.name));
    }
    if marked {
        return Ok(());
    }
    let mark = "holdfast: a checkpoint is being copied here\n";
    match target.publish(MARK, mark.into()).await {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Returns the metadata of the copy.
fn relocated(
    found: &StoredCheckpoint,
    places: &HashMap<(&str, &RelPath), RelPath>,
    inline: &HashMap<&[u8], (&ObjectHandle, RelPath)>,
) -> Result<CheckpointMetadata> {
    let mut metadata = found.metadata.clone();
    let mut lost = None;
    for part in metadata.parts_mut() {
        match part {
            StateHandle::Object(object) => {
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
            StateHandle::Inline(bytes) => {
                if let Some((object, path)) = inline.get(bytes.as_ref()) {
                    *part = StateHandle::Object(ObjectHandle {
                        path: path.clone(),
                        ..ObjectHandle::clone(object)
                    });
                }
            }
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
    match target.publish_metadata(metadata).await {
        Ok(()) => {}
        // The store may have failed after it did its work, or another call was faster.
        Err(e) => match copy_in(found, target).await {
            Ok(Some(_)) => return Ok(()),
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
///
/// Whoever has begun a copy here knows that all is of copies; others believe the mark.
async fn remove_leftovers(target: &StoreRoot, metadata: &CheckpointMetadata, begun: bool) {
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
    let entries = target.list("").await.unwrap_or_default();
    let marked = entries.iter().any(|entry| entry.name == MARK);
    if !marked && !begun {
        return;
    }
    let mut left = false;
    for entry in entries {
        let ours = attempt_of_name(&entry.name).is_some() || is_temporary(&entry.name);
        if entry.is_folder || !ours || used.contains(entry.name.as_str()) {
            continue;
        }
        if let Err(error) = target.delete(&entry.name).await {
            tracing::debug!(object = entry.name, %error, "part of an interrupted copy is left");
            left = true;
        }
    }
    if marked
        && !left
        && let Err(error) = target.delete(MARK).await
    {
        tracing::debug!(folder = target.url(), %error, "the mark of a copy is left");
    }
}
