use checkpoint_storage::{OperatorMetadata, StoredCheckpoint, VerifyReport};
use serde_json::{Value, json};
use state_api::{EntryCount, StateHandle, StateMeta, TypeMeta};

use super::broadcast::BroadcastCounts;
use super::objects::{
    Piece, ShownState, bytes_of, hash_text, kind_text, object_totals, pieces, states,
};
use crate::run::shown;

/// Describes a checkpoint.
pub(crate) fn checkpoint(
    found: &StoredCheckpoint,
    report: Option<&VerifyReport>,
    counts: &BroadcastCounts,
) -> Value {
    let metadata = &found.metadata;
    let (objects, object_bytes) = object_totals(metadata);
    let mut value = json!({
        "checkpoint": metadata.checkpoint.0,
        "job": metadata.job.as_str(),
        "attempt": metadata.attempt.0,
        "path": shown(found.folder.url()),
        "created_ms": metadata.created_ms,
        "writer": metadata.writer.as_ref(),
        "savepoint": metadata.kind.is_savepoint(),
        "total_bytes": metadata.total_bytes(),
        "new_bytes": metadata.new_bytes(),
        "reused_bytes": metadata.total_bytes().saturating_sub(metadata.new_bytes()),
        "metadata_bytes": found.metadata_len,
        "objects": objects,
        "object_bytes": object_bytes,
        "roots": metadata.roots.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        "properties": &metadata.properties,
        "hooks": metadata.hooks.iter().map(|hook| json!({
            "name": hook.name.as_ref(), "version": hook.version, "bytes": hook.bytes.len(),
        })).collect::<Vec<_>>(),
        "operators": metadata.operators.iter().map(|each| operator(each, counts)).collect::<Vec<_>>(),
    });
    if let Some(report) = report {
        value["verified"] = json!({
            "objects": report.objects,
            "bytes": report.bytes,
            "faults": report.faults.iter().map(|fault| json!({
                "operator": fault.operator.as_str(),
                "subtask": fault.subtask,
                "object": fault.object.to_string(),
                "reason": fault.reason,
            })).collect::<Vec<_>>(),
        });
    }
    value
}

fn operator(operator: &OperatorMetadata, counts: &BroadcastCounts) -> Value {
    let (total, new) = bytes_of(operator);
    json!({
        "uid": operator.uid.as_str(),
        "name": operator.name.as_deref(),
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism.get(),
        "hash": hash_text(operator.hash),
        "finished": operator.is_finished(),
        "total_bytes": total,
        "new_bytes": new,
        "states": states(operator, counts).iter().map(state).collect::<Vec<_>>(),
        "parts": pieces(operator).iter().map(part).collect::<Vec<_>>(),
    })
}

fn state(state: &ShownState<'_>) -> Value {
    let StateMeta {
        name,
        kind: _,
        key,
        namespace,
        map_key,
        value,
        ttl_ms,
    } = state.meta;
    let (entries, exact) = match state.entries {
        None => (None, false),
        Some(EntryCount::Exact(n)) => (Some(n), true),
        Some(EntryCount::Estimate(n)) => (Some(n), false),
    };
    json!({
        "name": name.as_ref(),
        "kind": kind_text(state),
        "entries": entries,
        "entries_exact": exact,
        "ttl_ms": ttl_ms,
        "key": types(key),
        "namespace": types(namespace),
        "map_key": map_key.as_ref().map(types),
        "value": types(value),
    })
}

fn types(meta: &TypeMeta) -> Value {
    json!({
        "codec": meta.codec.as_str(),
        "schema": meta.schema.to_string(),
        "fingerprint": format!("{:016x}", meta.schema.fingerprint()),
    })
}

fn part(piece: &Piece<'_>) -> Value {
    let mut value = json!({
        "subtask": piece.subtask,
        "part": piece.what,
        "format": piece.format,
        "key_groups": piece.groups.map(|(first, last)| [first, last]),
        "bytes": piece.bytes.len(),
    });
    match piece.bytes {
        StateHandle::Inline(_) => value["inline"] = json!(true),
        StateHandle::Object(object) => {
            value["inline"] = json!(false);
            value["object"] = json!(object.to_string());
            value["digest"] = json!(object.digest.to_string());
        }
    }
    value
}
