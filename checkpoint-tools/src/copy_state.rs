//! State that goes into a new checkpoint as it is.
use std::collections::HashMap;

use checkpoint_storage::{CheckpointMetadata, ObjectUse, SubtaskMetadata};
use futures_util::StreamExt;
use futures_util::stream;
use state_api::{
    Error, IncrementalHandle, KeyedHandle, ObjectHandle, OperatorSnapshot, Result, Scope,
    StateHandle,
};

use crate::source::CheckpointSource;
use crate::target::NewCheckpoint;

/// Copies that are made ready at once, though fewer run.
const AT_HAND: usize = 512;

/// Returns a subtask as it is, native formats included, with nothing that is shared with other checkpoints.
pub(crate) fn alone(subtask: &SubtaskMetadata) -> SubtaskMetadata {
    let keyed = subtask.snapshot.managed_keyed.iter().map(keyed_alone);
    with_keyed(subtask, keyed.collect())
}

/// Returns a subtask with other managed keyed state.
pub(crate) fn with_keyed(
    subtask: &SubtaskMetadata,
    managed_keyed: Vec<KeyedHandle>,
) -> SubtaskMetadata {
    let mut snapshot = OperatorSnapshot::clone(&subtask.snapshot);
    snapshot.managed_keyed = managed_keyed;
    SubtaskMetadata {
        snapshot: snapshot.into(),
        ..subtask.clone()
    }
}

fn keyed_alone(handle: &KeyedHandle) -> KeyedHandle {
    match handle {
        KeyedHandle::KeyGroups(_) => handle.clone(),
        KeyedHandle::Incremental(files) => {
            // The order of the files is kept.
            let private: Vec<_> = files.private.iter().chain(&files.shared).cloned().collect();
            KeyedHandle::Incremental(IncrementalHandle {
                new_bytes: private.iter().map(|file| file.bytes.len()).sum(),
                private,
                shared: Vec::new(),
                ..files.clone()
            })
        }
    }
}

/// Copies every object that new metadata still has from the checkpoint it was made of, each once and several at a time, their
/// digests checked.
///
/// # Errors
/// `Corrupt`, naming object, operator and subtask; those of the stores.
pub(crate) async fn bring_over(
    source: &CheckpointSource,
    target: &NewCheckpoint,
    metadata: &mut CheckpointMetadata,
) -> Result<()> {
    let mut known: HashMap<&ObjectHandle, ObjectUse<'_>> = HashMap::new();
    for used in source.metadata().objects() {
        known.entry(used.object).or_insert(used);
    }
    // What was written anew is not among them.
    let wanted: Vec<ObjectUse<'_>> = metadata
        .objects()
        .filter_map(|used| known.remove(used.object))
        .collect();
    drop(known);
    let mut copies: HashMap<&ObjectHandle, StateHandle> = HashMap::with_capacity(wanted.len());
    for some in wanted.chunks(AT_HAND) {
        // Collected, because a closure that is kept across an await makes the future unsendable to the compiler's eyes.
        let copying: Vec<_> = some
            .iter()
            .map(|used| async move { (used, copied(source, target, used.object).await) })
            .collect();
        let mut copying = stream::iter(copying).buffer_unordered(source.toolbox.concurrency.max(1));
        while let Some((used, copy)) = copying.next().await {
            copies.insert(used.object, copy.map_err(|e| place(e, used))?);
        }
    }
    for part in metadata.parts_mut() {
        if let Some(copy) = part.object().and_then(|object| copies.get(object)) {
            *part = copy.clone();
        }
    }
    Ok(())
}

async fn copied(
    source: &CheckpointSource,
    target: &NewCheckpoint,
    object: &ObjectHandle,
) -> Result<StateHandle> {
    let id = source.metadata().checkpoint;
    let mut stream = target.storage().create(id, Scope::Exclusive);
    let mut reader = source.storage().open(object).await?;
    while let Some(bytes) = reader.next().await? {
        stream.write(bytes).await?;
    }
    let copy = stream.finish().await?;
    Ok(copy.unwrap_or_else(|| StateHandle::Inline(bytes::Bytes::new())))
}

/// Says in an error whose object it is about.
fn place(error: Error, used: &ObjectUse<'_>) -> Error {
    let error = error.with("operator", used.operator);
    match used.subtask {
        Some(subtask) => error.with("subtask", subtask),
        None => error,
    }
}
