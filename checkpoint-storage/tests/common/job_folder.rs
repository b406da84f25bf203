//! Job folders with checkpoints in them.
use super::{file, incremental, job, metadata, names, operator, options};
use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, JobStore, ListedCheckpoint, ObjectCheckpointStorage,
    StoreRoot, SubtaskMetadata,
};
use state_api::{CheckpointId, CheckpointStorage, OperatorSnapshot, Scope, StateHandle};

pub(crate) async fn open(root: &StoreRoot, seed: u64) -> JobStore {
    JobStore::open(root.clone(), job(), names(seed))
        .await
        .unwrap()
}

pub(crate) async fn write_object(
    storage: &ObjectCheckpointStorage,
    checkpoint: u64,
    scope: Scope,
    body: &str,
) -> StateHandle {
    let mut stream = storage.create(CheckpointId(checkpoint), scope);
    stream
        .write(Bytes::copy_from_slice(body.as_bytes()))
        .await
        .unwrap();
    stream.finish().await.unwrap().unwrap()
}

/// A checkpoint of one operator with two subtasks: each has an object of its own, the second one shared objects too.
pub(crate) async fn checkpoint(
    store: &JobStore,
    id: u64,
    shared: &[StateHandle],
) -> CheckpointMetadata {
    let storage = store.storage(options(0, 16));
    let mut count = operator("count", 2);
    for index in 0..2 {
        let own = write_object(
            &storage,
            id,
            Scope::Exclusive,
            &format!("state {id} of {index}"),
        )
        .await;
        let files = shared
            .iter()
            .enumerate()
            .map(|(i, h)| file(&i.to_string(), h.clone()));
        let files = if index == 1 {
            files.collect()
        } else {
            Vec::new()
        };
        let snapshot = OperatorSnapshot {
            managed_keyed: vec![incremental(id, vec![file("own", own)], files)],
            ..OperatorSnapshot::default()
        };
        count.subtasks.push(SubtaskMetadata::new(index, snapshot));
    }
    let mut all = metadata(id, store.attempt().0);
    all.operators = vec![count];
    all
}

pub(crate) fn shown(listed: &[ListedCheckpoint]) -> Vec<(&str, &str)> {
    let state = |c: &ListedCheckpoint| match c.state {
        CheckpointState::Complete(_) => "complete",
        CheckpointState::Incomplete => "incomplete",
        CheckpointState::Abandoned => "abandoned",
        CheckpointState::Damaged(_) => "damaged",
    };
    listed.iter().map(|c| (c.name.as_str(), state(c))).collect()
}
