use checkpoint_storage::{CheckpointMetadata, OperatorMetadata, SubtaskMetadata};
use managed_state::format::CANONICAL;
use state_api::{KeyedHandle, Result, SnapshotKind};

use crate::copy_state::{alone, bring_over, with_keyed};
use crate::source::{CheckpointSource, place};
use crate::target::NewCheckpoint;

/// Writes a checkpoint anew in the canonical format, which every backend reads, with all its objects in one folder.
///
/// # Errors
/// `Unsupported` for a native format that is not known; `Corrupt`, naming object, operator and subtask; those of the stores.
pub async fn convert(
    source: &CheckpointSource,
    target: NewCheckpoint,
) -> Result<CheckpointMetadata> {
    let mut metadata = source.metadata().clone();
    source
        .toolbox
        .progress
        .begin("convert", metadata.total_bytes());
    metadata.operators.clear();
    for operator in &source.metadata().operators {
        let mut subtasks = Vec::with_capacity(operator.subtasks.len());
        for subtask in &operator.subtasks {
            let converted = subtask_of(source, &target, operator, subtask).await;
            subtasks.push(converted.map_err(|e| place(e, operator, subtask))?);
        }
        metadata.operators.push(OperatorMetadata {
            subtasks,
            ..operator.clone()
        });
    }
    metadata.kind = SnapshotKind::CanonicalSavepoint;
    bring_over(source, &target, &mut metadata).await?;
    target.complete(&mut metadata).await?;
    Ok(metadata)
}

async fn subtask_of(
    source: &CheckpointSource,
    target: &NewCheckpoint,
    operator: &OperatorMetadata,
    subtask: &SubtaskMetadata,
) -> Result<SubtaskMetadata> {
    let handles = &subtask.snapshot.managed_keyed;
    if handles.iter().all(|handle| handle.format() == CANONICAL) {
        return Ok(alone(subtask));
    }
    let part = source
        .open_part(
            operator,
            subtask,
            operator.max_parallelism.all_groups(),
            Some(target.storage()),
        )
        .await?;
    let keyed = part.handles.iter().cloned().map(KeyedHandle::KeyGroups);
    Ok(with_keyed(subtask, keyed.collect()))
}
