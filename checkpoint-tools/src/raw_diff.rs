use std::collections::BTreeMap;

use checkpoint_storage::{OperatorMetadata, digest_of};
use state_api::{Digest, OperatorUid, StateHandle};

use crate::entry::RawKind;
use crate::source::CheckpointSource;

/// Bytes of an operator that nobody but the job can read, and that are others in two checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDifference {
    /// The operator.
    pub operator: OperatorUid,
    /// What the bytes are for.
    pub kind: RawKind,
    /// Which of the two have such bytes.
    pub is_in: (bool, bool),
}

/// Lengths and digests of raw parts, in the order of subtasks.
type Parts = Vec<(u64, Digest)>;

/// Tells where raw state, records in flight and the state of coordinators differ between two checkpoints, byte by byte.
///
/// No entries can be told apart in such bytes: the same content that was divided among other subtasks is different here.
#[must_use]
pub fn raw_differences(before: &CheckpointSource, after: &CheckpointSource) -> Vec<RawDifference> {
    let (mut before, after) = (raw_parts(before), raw_parts(after));
    let mut all: BTreeMap<_, (Parts, Parts)> = BTreeMap::new();
    for (place, parts) in after {
        all.insert(place, (Parts::new(), parts));
    }
    while let Some((place, parts)) = before.pop_first() {
        all.entry(place).or_default().0 = parts;
    }
    let differing = all
        .into_iter()
        .filter(|(_, (before, after))| before != after);
    differing
        .map(|((operator, kind), (before, after))| RawDifference {
            operator,
            kind: KINDS[kind],
            is_in: (!before.is_empty(), !after.is_empty()),
        })
        .collect()
}

const KINDS: [RawKind; 5] = [
    RawKind::Keyed,
    RawKind::Operator,
    RawKind::InFlightKeyed,
    RawKind::InFlight,
    RawKind::Coordinator,
];

fn raw_parts(source: &CheckpointSource) -> BTreeMap<(OperatorUid, usize), Parts> {
    let mut all = BTreeMap::new();
    for operator in &source.metadata().operators {
        for (kind, parts) in handles(operator).into_iter().enumerate() {
            let parts: Parts = parts.into_iter().map(identity).collect();
            if !parts.is_empty() {
                all.insert((operator.uid.clone(), kind), parts);
            }
        }
    }
    all
}

/// Returns the handles of an operator by kind, as in [`KINDS`].
fn handles(operator: &OperatorMetadata) -> [Vec<&StateHandle>; 5] {
    let mut subtasks: Vec<_> = operator.subtasks.iter().collect();
    subtasks.sort_unstable_by_key(|subtask| subtask.index);
    let mut all: [Vec<&StateHandle>; 5] = Default::default();
    for subtask in subtasks {
        let of = &subtask.snapshot;
        all[0].extend(of.raw_keyed.iter().map(|handle| &handle.bytes));
        all[1].extend(of.raw_operator.iter().map(|handle| &handle.bytes));
        all[2].extend(of.in_flight_keyed.iter().map(|handle| &handle.bytes));
        all[3].extend(of.in_flight.iter().map(|handle| &handle.bytes));
    }
    all[4].extend(&operator.coordinator);
    all
}

fn identity(handle: &StateHandle) -> (u64, Digest) {
    match handle {
        StateHandle::Inline(bytes) => (bytes.len() as u64, digest_of(bytes)),
        StateHandle::Object(object) => (object.len, object.digest),
    }
}
