use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint_storage::{CheckpointMetadata, LocalCopies, LocalCopyOptions, UuidSource};
use state_api::{Executor, ObjectHandle, StateHandle};

use super::ExecutionSettings;
use super::inbox::{Inbox, Message};

/// Opens the local copies of a job's objects, or removes those that an earlier start left if none are wanted any more.
pub(super) fn open(
    settings: &ExecutionSettings,
    executor: &Arc<dyn Executor>,
    inbox: &Arc<Inbox>,
) -> Option<LocalCopies> {
    let options = &settings.local_copies;
    let roots: Vec<PathBuf> = if options.roots.is_empty() {
        vec![settings.local_dir.clone()]
    } else {
        options.roots.clone()
    };
    if !options.any() {
        LocalCopies::remove_leftovers(roots.iter().map(Path::new), &settings.job_id);
        return None;
    }
    let options = LocalCopyOptions {
        roots,
        ..options.clone()
    };
    let inbox = Arc::clone(inbox);
    Some(LocalCopies::open(
        options,
        &settings.job_id,
        &UuidSource::machine(),
        Arc::clone(executor),
        move |error| inbox.send(Message::Warning(error)),
    ))
}

/// Takes note of the checkpoint that a run starts from.
pub(super) fn start_from(copies: &LocalCopies, restored: Option<&CheckpointMetadata>) {
    let checkpoint = restored.map(|metadata| metadata.checkpoint);
    copies.start_from(checkpoint, restored.into_iter().flat_map(objects_of));
}

fn objects_of(metadata: &CheckpointMetadata) -> impl Iterator<Item = &ObjectHandle> {
    metadata
        .operators
        .iter()
        .flat_map(|operator| &operator.subtasks)
        .flat_map(|subtask| subtask.snapshot.parts())
        .filter_map(StateHandle::object)
}
