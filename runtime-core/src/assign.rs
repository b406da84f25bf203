//! Who gets which part of a checkpoint: pure functions from the state of the old subtasks to that of the new ones.
//!
//! Keyed state goes by key group range. Operator state goes by its mode: split lists are dealt out in contiguous runs whose
//! sizes differ by at most one, union lists go to all whole, of a broadcast state subtask `i` gets the copy of the
//! `i mod n`-th subtask that has one. Records in flight of an unaligned checkpoint go the same ways, by key group or as a split list. The rules are those of Flink's `StateAssignmentOperation` and
//! `RoundRobinOperatorStateRepartitioner`.
use std::collections::BTreeMap;
use std::sync::Arc;

use state_api::{
    Error, KeyGroupRange, KeyGroupsHandle, KeyedHandle, MaxParallelism, OperatorSnapshot,
    OperatorStateHandle, OperatorStateMode, OperatorStatePart, Result, Subtask,
};

/// Deals the state of an operator out to `parallelism` new subtasks; `old` holds the old subtasks' parts in order.
///
/// # Errors
/// `InvalidArgument` when the parallelism is 0 or exceeds the number of key groups.
pub fn assign(
    old: &[&OperatorSnapshot],
    parallelism: u32,
    max_parallelism: MaxParallelism,
) -> Result<Vec<OperatorSnapshot>> {
    let managed = repartition(old, parallelism, |snapshot| &snapshot.managed_operator);
    let raw = repartition(old, parallelism, |snapshot| &snapshot.raw_operator);
    let in_flight = repartition(old, parallelism, |snapshot| &snapshot.in_flight);
    (0..parallelism)
        .zip(managed.into_iter().zip(raw).zip(in_flight))
        .map(|(index, ((managed_operator, raw_operator), in_flight))| {
            let range = max_parallelism.range_of(Subtask { index, parallelism })?;
            Ok(OperatorSnapshot {
                managed_keyed: old
                    .iter()
                    .flat_map(|s| &s.managed_keyed)
                    .filter_map(|h| trim(h, range))
                    .collect(),
                raw_keyed: trimmed(old, range, |s| &s.raw_keyed),
                managed_operator,
                raw_operator,
                in_flight_keyed: trimmed(old, range, |s| &s.in_flight_keyed),
                in_flight,
            })
        })
        .collect()
}

/// Returns what a handle holds of a range; an incremental one is given whole, for the backend to clip.
fn trim(handle: &KeyedHandle, range: KeyGroupRange) -> Option<KeyedHandle> {
    match handle {
        KeyedHandle::KeyGroups(groups) => trim_groups(groups, range).map(KeyedHandle::KeyGroups),
        KeyedHandle::Incremental(files) => (!files.range.intersect(range).is_empty())
            .then(|| KeyedHandle::Incremental(files.clone())),
    }
}

fn trimmed(
    old: &[&OperatorSnapshot],
    range: KeyGroupRange,
    select: impl Fn(&OperatorSnapshot) -> &Vec<KeyGroupsHandle>,
) -> Vec<KeyGroupsHandle> {
    let handles = old.iter().flat_map(|snapshot| select(snapshot));
    handles
        .filter_map(|handle| trim_groups(handle, range))
        .collect()
}

fn trim_groups(handle: &KeyGroupsHandle, range: KeyGroupRange) -> Option<KeyGroupsHandle> {
    if range.contains_range(handle.offsets.range()) {
        return Some(handle.clone());
    }
    let offsets = handle.offsets.intersect(range);
    (!offsets.range().is_empty()).then(|| KeyGroupsHandle {
        offsets,
        ..handle.clone()
    })
}

/// The parts of one state with the numbers of their handles.
type Parts<'a> = Vec<(usize, &'a OperatorStatePart)>;

/// Parts of handles, by new subtask and then by old handle.
struct Dealt<'a> {
    handles: Vec<&'a OperatorStateHandle>,
    /// The old subtask of each handle.
    owners: Vec<usize>,
    parts: Vec<BTreeMap<usize, Vec<OperatorStatePart>>>,
}

impl Dealt<'_> {
    fn give(&mut self, subtask: usize, handle: usize, part: OperatorStatePart) {
        self.parts[subtask].entry(handle).or_default().push(part);
    }

    /// Gives each part to the subtask that wrote it.
    fn keep(&mut self, parts: &[(usize, &OperatorStatePart)]) {
        for (handle, part) in parts {
            self.give(self.owners[*handle], *handle, (*part).clone());
        }
    }

    fn into_handles(self) -> Vec<Vec<OperatorStateHandle>> {
        let handles = self.handles;
        let whole = |(handle, states): (usize, Vec<OperatorStatePart>)| {
            let bytes = handles[handle].bytes.clone();
            OperatorStateHandle { states, bytes }
        };
        self.parts
            .into_iter()
            .map(|by_handle| by_handle.into_iter().map(whole).collect())
            .collect()
    }
}

fn repartition(
    old: &[&OperatorSnapshot],
    parallelism: u32,
    select: impl Fn(&OperatorSnapshot) -> &Vec<OperatorStateHandle>,
) -> Vec<Vec<OperatorStateHandle>> {
    let new = parallelism as usize;
    let only_split = old
        .iter()
        .flat_map(|s| select(s))
        .flat_map(|h| &h.states)
        .all(|part| part.mode == OperatorStateMode::Split);
    if old.len() == new && only_split {
        return old
            .iter()
            .map(|snapshot| select(snapshot).clone())
            .collect();
    }
    let of_subtask = |(subtask, snapshot)| {
        let handles = select(snapshot).iter();
        handles.map(move |handle| (subtask, handle))
    };
    let numbered = old.iter().copied().enumerate();
    let (owners, handles): (Vec<_>, Vec<_>) = numbered.flat_map(of_subtask).unzip();
    // By name and mode, the parts in the order of the old subtasks.
    let mut states: BTreeMap<(Arc<str>, u8), Parts<'_>> = BTreeMap::new();
    for (index, handle) in handles.iter().enumerate() {
        for part in &handle.states {
            states
                .entry((Arc::clone(&part.meta.name), part.mode as u8))
                .or_default()
                .push((index, part));
        }
    }
    let mut dealt = Dealt {
        handles,
        owners,
        parts: vec![BTreeMap::new(); new],
    };
    let mut start = 0;
    for parts in states.values() {
        match parts[0].1.mode {
            OperatorStateMode::Split if old.len() == new => dealt.keep(parts),
            OperatorStateMode::Split => start = split(parts, start, &mut dealt),
            OperatorStateMode::Union => {
                for subtask in 0..new {
                    parts
                        .iter()
                        .for_each(|(handle, part)| dealt.give(subtask, *handle, (*part).clone()));
                }
            }
            OperatorStateMode::Broadcast => {
                // A subtask that wrote nothing of it has no copy to hand on.
                let copies: Vec<_> = parts
                    .iter()
                    .filter(|(_, part)| !part.elements.is_empty())
                    .collect();
                if copies.is_empty() {
                    continue;
                }
                for subtask in 0..new {
                    let (handle, part) = copies[subtask % copies.len()];
                    dealt.give(subtask, *handle, (*part).clone());
                }
            }
        }
    }
    dealt.into_handles()
}

/// Deals the elements of one state out in runs, beginning at subtask `start`; returns where the next state begins, so that
/// remainders of several states do not all land on the first subtasks.
fn split(parts: &[(usize, &OperatorStatePart)], start: usize, dealt: &mut Dealt<'_>) -> usize {
    let new = dealt.parts.len();
    let total: usize = parts.iter().map(|(_, part)| part.elements.len()).sum();
    let (base, remainder) = (total / new, total % new);
    let mut source = parts
        .iter()
        .flat_map(|(handle, part)| part.elements.iter().map(move |e| (*handle, *part, *e)));
    for i in 0..new {
        let subtask = (i + start) % new;
        let run = source.by_ref().take(base + usize::from(i < remainder));
        let mut by_handle: Vec<(usize, OperatorStatePart)> = Vec::new();
        for (handle, part, element) in run {
            match by_handle.last_mut() {
                Some((last, taken)) if *last == handle => taken.elements.push(element),
                _ => by_handle.push((
                    handle,
                    OperatorStatePart {
                        elements: vec![element],
                        ..part.clone()
                    },
                )),
            }
        }
        by_handle
            .into_iter()
            .for_each(|(handle, part)| dealt.give(subtask, handle, part));
    }
    (start + remainder) % new
}

/// What a job says about an operator that a checkpoint may have state of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorShape {
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups as set by the user, if set.
    pub max_parallelism: Option<MaxParallelism>,
}

/// Decides on the number of key groups of an operator that a checkpoint knows: the checkpoint's, unless the user insists on another.
///
/// # Errors
/// `Incompatible` when the user's number differs, or the parallelism exceeds the checkpoint's number.
pub fn restored_max_parallelism(
    shape: OperatorShape,
    stored: MaxParallelism,
) -> Result<MaxParallelism> {
    if let Some(wanted) = shape.max_parallelism
        && wanted != stored
    {
        return Err(Error::incompatible(format!(
            "the checkpoint has {stored} key groups and the job asks for {wanted}: set the maximum parallelism to {stored}, or rescale the checkpoint"
        )));
    }
    if shape.parallelism > stored.get() {
        return Err(Error::incompatible(format!(
            "the parallelism {} exceeds the {stored} key groups of the checkpoint",
            shape.parallelism
        )));
    }
    Ok(stored)
}
