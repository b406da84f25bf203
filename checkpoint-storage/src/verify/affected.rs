use std::sync::Arc;

use state_api::{CheckpointId, ObjectHandle, OperatorUid, StateHandle};

use crate::metadata::CheckpointMetadata;

/// What is lost where an object is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affected {
    /// URL of the checkpoint's folder.
    pub folder: String,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The operator.
    pub operator: OperatorUid,
    /// The subtask; `None` for the operator's coordinator.
    pub subtask: Option<u32>,
    /// What sort of bytes the object holds: `keyed`, `operator`, `raw`, `in flight` or `coordinator`.
    pub part: &'static str,
    /// The states in it, by name; none where the bytes have no names.
    pub states: Vec<Arc<str>>,
}

/// Returns every use of an object in a checkpoint, with what it is used for.
pub(crate) fn uses<'a>(
    metadata: &'a CheckpointMetadata,
    folder: &'a str,
) -> impl Iterator<Item = (&'a ObjectHandle, Affected)> + 'a {
    metadata.operators.iter().flat_map(move |operator| {
        let affected = move |subtask, part, states: Vec<Arc<str>>| Affected {
            folder: folder.to_owned(),
            checkpoint: metadata.checkpoint,
            operator: operator.uid.clone(),
            subtask,
            part,
            states,
        };
        let mut found: Vec<(&ObjectHandle, Affected)> = Vec::new();
        let mut add = |bytes: &'a StateHandle, subtask, part, states: &[Arc<str>]| {
            if let Some(object) = bytes.object() {
                found.push((object, affected(subtask, part, states.to_vec())));
            }
        };
        if let Some(bytes) = &operator.coordinator {
            add(bytes, None, "coordinator", &[]);
        }
        for subtask in &operator.subtasks {
            let index = Some(subtask.index);
            let snapshot = &subtask.snapshot;
            for handle in &snapshot.managed_keyed {
                let states: Vec<_> = handle
                    .states()
                    .iter()
                    .map(|state| Arc::clone(&state.meta.name))
                    .collect();
                for bytes in handle.parts() {
                    add(bytes, index, "keyed", &states);
                }
            }
            for handle in &snapshot.managed_operator {
                let states: Vec<_> = handle
                    .states
                    .iter()
                    .map(|state| Arc::clone(&state.meta.name))
                    .collect();
                add(&handle.bytes, index, "operator", &states);
            }
            let raw = snapshot.raw_keyed.iter().map(|handle| &handle.bytes);
            for bytes in raw.chain(snapshot.raw_operator.iter().map(|handle| &handle.bytes)) {
                add(bytes, index, "raw", &[]);
            }
            let in_flight = snapshot.in_flight_keyed.iter().map(|handle| &handle.bytes);
            for bytes in in_flight.chain(snapshot.in_flight.iter().map(|handle| &handle.bytes)) {
                add(bytes, index, "in flight", &[]);
            }
        }
        found
    })
}
