//! Every object of a checkpoint and every state in it, sorted for showing.
use std::collections::BTreeMap;

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata};
use state_api::{
    EntryCount, HashId, KeyedHandle, ObjectHandle, OperatorStateMode, Root, StateHandle, StateKind,
    StateMeta,
};

use super::broadcast::BroadcastCounts;

/// One state of an operator, over all its subtasks.
pub(crate) struct ShownState<'a> {
    pub(crate) meta: &'a StateMeta,
    /// How operator state is dealt out; `None` for keyed state.
    pub(crate) mode: Option<OperatorStateMode>,
    /// Entries of all subtasks; of broadcast state those of one, since all have the same. `None` when nobody knows.
    pub(crate) entries: Option<EntryCount>,
}

/// Returns the states of an operator, each once.
pub(crate) fn states<'a>(
    operator: &'a OperatorMetadata,
    broadcast: &BroadcastCounts,
) -> Vec<ShownState<'a>> {
    let mut found: BTreeMap<(bool, &str), ShownState<'a>> = BTreeMap::new();
    for subtask in &operator.subtasks {
        for state in subtask
            .snapshot
            .managed_keyed
            .iter()
            .flat_map(KeyedHandle::states)
        {
            found
                .entry((false, &state.meta.name))
                .and_modify(|shown| shown.entries = sum(shown.entries, Some(state.entries)))
                .or_insert(ShownState {
                    meta: &state.meta,
                    mode: None,
                    entries: Some(state.entries),
                });
        }
        for part in subtask
            .snapshot
            .managed_operator
            .iter()
            .flat_map(|handle| &handle.states)
        {
            let is_broadcast = part.mode == OperatorStateMode::Broadcast;
            let entries = if is_broadcast {
                let key = (operator.uid.to_string(), part.meta.name.to_string());
                broadcast.get(&key).copied()
            } else {
                Some(part.elements.len() as u64)
            };
            let entries = entries.map(EntryCount::Exact);
            found
                .entry((true, &part.meta.name))
                .and_modify(|shown| {
                    if !is_broadcast {
                        shown.entries = sum(shown.entries, entries);
                    }
                })
                .or_insert(ShownState {
                    meta: &part.meta,
                    mode: Some(part.mode),
                    entries,
                });
        }
    }
    found.into_values().collect()
}

fn sum(a: Option<EntryCount>, b: Option<EntryCount>) -> Option<EntryCount> {
    let count = |entries| match entries {
        EntryCount::Exact(n) | EntryCount::Estimate(n) => n,
    };
    let (a, b) = (a?, b?);
    let both = count(a).saturating_add(count(b));
    Some(match (a, b) {
        (EntryCount::Exact(_), EntryCount::Exact(_)) => EntryCount::Exact(both),
        _ => EntryCount::Estimate(both),
    })
}

/// Writes a number of entries; an estimate is marked.
pub(crate) fn entries_text(entries: Option<EntryCount>) -> String {
    match entries {
        None => "?".into(),
        Some(EntryCount::Exact(n)) => crate::terminal::grouped(n),
        Some(EntryCount::Estimate(n)) => format!("~{}", crate::terminal::grouped(n)),
    }
}

/// Writes the kind of a state, and how it is dealt out if it is not the usual way.
pub(crate) fn kind_text(state: &ShownState<'_>) -> String {
    match (state.meta.kind, state.mode) {
        (StateKind::OperatorList, Some(OperatorStateMode::Union)) => "union list".into(),
        (StateKind::OperatorList, _) => "split list".into(),
        (kind, _) => kind.as_str().into(),
    }
}

/// Writes the types of a state: what is stored under what.
pub(crate) fn types_text(meta: &StateMeta) -> String {
    let unit = |schema: &str| schema == "unit" || schema == "()";
    let (key, namespace, value) = (
        meta.key.schema.to_string(),
        meta.namespace.schema.to_string(),
        meta.value.schema.to_string(),
    );
    let mut under: Vec<String> = Vec::new();
    if !unit(&key) {
        under.push(key);
    }
    if !unit(&namespace) {
        under.push(format!("in {namespace}"));
    }
    let value = match &meta.map_key {
        Some(map_key) => format!("{} → {value}", map_key.schema),
        None => value,
    };
    match (under.is_empty(), unit(&value)) {
        (true, _) => value,
        (false, true) => under.join(" "),
        (false, false) => format!("{} → {value}", under.join(" ")),
    }
}

/// A piece of bytes of a subtask, and what it is for.
pub(crate) struct Piece<'a> {
    /// The subtask; `None` for the operator's coordinator.
    pub(crate) subtask: Option<u32>,
    /// Keyed, operator or raw state.
    pub(crate) what: &'static str,
    /// The format, for keyed state.
    pub(crate) format: Option<&'a str>,
    /// First and last key group, for keyed state.
    pub(crate) groups: Option<(u16, u16)>,
    pub(crate) bytes: &'a StateHandle,
}

/// Returns every piece of an operator.
pub(crate) fn pieces(operator: &OperatorMetadata) -> Vec<Piece<'_>> {
    let plain = |subtask, what, bytes| Piece {
        subtask,
        what,
        format: None,
        groups: None,
        bytes,
    };
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    pieces.extend(
        operator
            .coordinator
            .iter()
            .map(|bytes| plain(None, "coordinator", bytes)),
    );
    for subtask in &operator.subtasks {
        let index = Some(subtask.index);
        let snapshot = &subtask.snapshot;
        for handle in &snapshot.managed_keyed {
            let range = handle.range();
            let groups = (!range.is_empty()).then(|| (range.start().0, range.end().0));
            pieces.extend(handle.parts().map(|bytes| Piece {
                subtask: index,
                what: "keyed",
                format: Some(handle.format()),
                groups,
                bytes,
            }));
        }
        pieces.extend(
            snapshot
                .raw_keyed
                .iter()
                .map(|handle| plain(index, "raw keyed", &handle.bytes)),
        );
        pieces.extend(
            snapshot
                .managed_operator
                .iter()
                .map(|handle| plain(index, "operator", &handle.bytes)),
        );
        pieces.extend(
            snapshot
                .raw_operator
                .iter()
                .map(|handle| plain(index, "raw operator", &handle.bytes)),
        );
        pieces.extend(
            snapshot
                .in_flight_keyed
                .iter()
                .map(|handle| plain(index, "in flight", &handle.bytes)),
        );
        pieces.extend(
            snapshot
                .in_flight
                .iter()
                .map(|handle| plain(index, "in flight", &handle.bytes)),
        );
    }
    pieces
}

/// Returns the bytes of an operator: all, and those written for this checkpoint.
pub(crate) fn bytes_of(operator: &OperatorMetadata) -> (u64, u64) {
    let coordinator = operator.coordinator.as_ref().map_or(0, StateHandle::len);
    let subtasks = || operator.subtasks.iter().map(|subtask| &*subtask.snapshot);
    let total: u64 = subtasks()
        .map(state_api::OperatorSnapshot::total_bytes)
        .sum();
    let new: u64 = subtasks().map(state_api::OperatorSnapshot::new_bytes).sum();
    (total + coordinator, new + coordinator)
}

/// Returns the number of distinct objects of a checkpoint, and their bytes.
pub(crate) fn object_totals(metadata: &CheckpointMetadata) -> (u64, u64) {
    let distinct: std::collections::HashSet<&ObjectHandle> =
        metadata.objects().map(|used| used.object).collect();
    (
        distinct.len() as u64,
        distinct.iter().map(|object| object.len).sum(),
    )
}

/// Writes the root of an object for people.
pub(crate) fn object_text(object: &ObjectHandle) -> String {
    match &object.root {
        Root::Own => object.path.to_string(),
        Root::Url(_) => object.to_string(),
    }
}

/// Writes a hash id.
pub(crate) fn hash_text(hash: HashId) -> &'static str {
    hash.as_str()
}
