//! Whether records that were in flight when a checkpoint was taken are read by the job that starts from it.
use std::collections::BTreeMap;

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata};
use state_api::OperatorUid;

use super::{ExecutionSettings, RestoreSources};
use crate::job::Vertex;

/// Why records in flight would be lost, and what to do.
const LOST: &str = "the checkpoint has records in flight to the operator, which the job would not read, as the operator is not at the same place of the same kind of input any more: start from a savepoint, which has none, give the operator its place back, or name the checkpoint in execution.checkpointing.without-channel-state.checkpoint-id to lose them";

/// Finds the operators of a checkpoint with records in flight that nothing in the job would read; with the reason.
pub(crate) fn unread_in_flight(
    vertices: &[Vertex],
    settings: &ExecutionSettings,
    metadata: &CheckpointMetadata,
    sources: &RestoreSources,
) -> BTreeMap<OperatorUid, &'static str> {
    if settings.without_in_flight == Some(metadata.checkpoint) {
        return BTreeMap::new();
    }
    // Whether a head reads them by key, by the operator that the checkpoint has them under.
    let mut readers = BTreeMap::new();
    for vertex in vertices.iter().filter(|vertex| vertex.reads_in_flight) {
        let mut known = vertex.uids.iter().map(|uid| sources.of(metadata, uid));
        let owner = match vertex.keyed {
            Some(_) => known.next().flatten(),
            // What is new in front of it gets what comes in, as it will from now on.
            None => known.flatten().next(),
        };
        readers.extend(owner.map(|owner| (&owner.uid, vertex.keyed.is_some())));
    }
    let lost = |operator: &&OperatorMetadata| {
        let (by_key, plain) = in_flight(operator);
        match readers.get(&operator.uid) {
            Some(true) => plain,
            Some(false) => by_key,
            None => by_key || plain,
        }
    };
    let operators = metadata.operators.iter().filter(lost);
    operators.map(|lost| (lost.uid.clone(), LOST)).collect()
}

/// Returns whether there are records in flight to an operator, with a key and without.
fn in_flight(operator: &OperatorMetadata) -> (bool, bool) {
    let snapshots = || operator.subtasks.iter().map(|subtask| &subtask.snapshot);
    let mut keyed = snapshots().flat_map(|snapshot| &snapshot.in_flight_keyed);
    let mut plain = snapshots().flat_map(|snapshot| &snapshot.in_flight);
    (
        keyed.any(|handle| handle.offsets.total_len() > 0),
        plain.any(|handle| handle.states.iter().any(|part| !part.elements.is_empty())),
    )
}
