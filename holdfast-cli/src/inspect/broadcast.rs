use std::collections::BTreeMap;

use checkpoint_storage::StoredCheckpoint;
use state_api::wire::get_varint;
use state_api::{CheckpointStorage, OperatorStateMode, StateHandle};

/// Bytes at the start of a broadcast state that hold its number of entries.
const COUNT_BYTES: u64 = 10;

/// The number of entries of each broadcast state that could be read, by operator and state.
pub(crate) type BroadcastCounts = BTreeMap<(String, String), u64>;

/// Reads how many entries broadcast states have: they stand at the start of each, not in the metadata.
pub(crate) async fn counts(found: &StoredCheckpoint) -> BroadcastCounts {
    let storage = found.storage([]);
    let mut counts = BroadcastCounts::new();
    for operator in &found.metadata.operators {
        let snapshots = operator.subtasks.iter().map(|subtask| &subtask.snapshot);
        for handle in snapshots.flat_map(|snapshot| &snapshot.managed_operator) {
            let broadcast = handle
                .states
                .iter()
                .filter(|part| part.mode == OperatorStateMode::Broadcast);
            for part in broadcast {
                let key = (operator.uid.to_string(), part.meta.name.to_string());
                let Some((offset, length)) = part
                    .elements
                    .first()
                    .copied()
                    .filter(|_| !counts.contains_key(&key))
                else {
                    continue;
                };
                if let Some(count) = count_at(&storage, &handle.bytes, offset, length).await {
                    counts.insert(key, count);
                }
            }
        }
    }
    counts
}

/// What can't be read is not counted; whether it is whole is another question, which `--verify` asks.
async fn count_at(
    storage: &dyn CheckpointStorage,
    bytes: &StateHandle,
    offset: u64,
    length: u64,
) -> Option<u64> {
    let end = offset.checked_add(length.min(COUNT_BYTES))?;
    let head = match bytes {
        StateHandle::Inline(bytes) => bytes
            .get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)?
            .to_vec(),
        StateHandle::Object(object) => storage.read_range(object, offset..end).await.ok()?.to_vec(),
    };
    get_varint(&mut head.as_slice()).ok()
}
