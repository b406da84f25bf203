use checkpoint_storage::{CheckpointMetadata, OperatorMetadata, SubtaskMetadata};
use state_api::{
    Error, HashId, KeyGroup, KeyGroupsHandle, KeyedHandle, MaxParallelism, OperatorUid, Result,
    SnapshotKind, StateMeta,
};

use crate::copy_state::{bring_over, with_keyed};
use crate::find::states_of;
use crate::keyed::StoredEntry;
use crate::repartition::{Repartition, key_text};
use crate::source::{CheckpointSource, place};
use crate::target::NewCheckpoint;

/// What was rewritten of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescaledOperator {
    /// The operator.
    pub operator: OperatorUid,
    /// Number of key groups before.
    pub before: MaxParallelism,
    /// Number of key groups now.
    pub now: MaxParallelism,
    /// States with their number of entries, the same before and after.
    pub entries: Vec<(String, u64)>,
}

/// Writes a checkpoint anew with another number of key groups: the most subtasks that its state can be divided among.
///
/// Each entry is hashed anew, by the type of its key alone; that the hash is the one that the job uses is checked for each of
/// them, against the key group that it was in. The numbers of entries before and after are compared. Parallelism stays.
///
/// # Errors
/// `Unsupported` when an operator has raw keyed state or keyed records in flight, whose keys only the job knows, or keys whose
/// hash was written by hand; `InvalidArgument` when an operator with keyed state has more subtasks than there are to be key
/// groups; `Corrupt`, naming object, operator and subtask; those of the stores.
pub async fn rescale(
    source: &CheckpointSource,
    target: NewCheckpoint,
    now: MaxParallelism,
) -> Result<(CheckpointMetadata, Vec<RescaledOperator>)> {
    let mut metadata = source.metadata().clone();
    for operator in &metadata.operators {
        check(operator, now).map_err(|e| e.with("operator", &operator.uid))?;
    }
    source
        .toolbox
        .progress
        .begin("rescale", metadata.total_bytes());
    metadata.operators.clear();
    let mut report = Vec::new();
    for operator in &source.metadata().operators {
        let is_keyed = |subtask: &SubtaskMetadata| !subtask.snapshot.managed_keyed.is_empty();
        let mut changed = operator.clone();
        if operator.parallelism <= now.get() {
            changed.max_parallelism = now;
        }
        let mut streams = Vec::new();
        if operator.subtasks.iter().any(is_keyed) {
            let (handles, entries) = keyed(source, &target, operator, now).await?;
            streams = handles;
            report.push(RescaledOperator {
                operator: operator.uid.clone(),
                before: operator.max_parallelism,
                now,
                entries,
            });
        }
        changed.subtasks = with_streams(operator, streams);
        metadata.operators.push(changed);
    }
    metadata.kind = SnapshotKind::CanonicalSavepoint;
    bring_over(source, &target, &mut metadata).await?;
    target.complete(&mut metadata).await?;
    Ok((metadata, report))
}

/// Returns the subtasks of an operator around new keyed streams, by index.
pub(crate) fn with_streams(
    operator: &OperatorMetadata,
    streams: Vec<Option<KeyGroupsHandle>>,
) -> Vec<SubtaskMetadata> {
    let mut subtasks = Vec::new();
    let mut streams = streams.into_iter();
    for index in 0..operator.parallelism {
        let old = operator.subtasks.iter().find(|old| old.index == index);
        let keyed: Vec<KeyedHandle> = streams
            .next()
            .flatten()
            .map(KeyedHandle::KeyGroups)
            .into_iter()
            .collect();
        match old {
            Some(old) => subtasks.push(with_keyed(old, keyed)),
            None if keyed.is_empty() => {}
            None => subtasks.push(SubtaskMetadata::new(
                index,
                state_api::OperatorSnapshot {
                    managed_keyed: keyed,
                    ..Default::default()
                },
            )),
        }
    }
    subtasks
}

fn check(operator: &OperatorMetadata, now: MaxParallelism) -> Result<()> {
    let mut snapshots = operator.subtasks.iter().map(|subtask| &subtask.snapshot);
    let has = |handles: &[KeyGroupsHandle]| handles.iter().any(|h| h.offsets.total_len() > 0);
    if snapshots.clone().any(|snapshot| has(&snapshot.raw_keyed)) {
        return Err(Error::unsupported(
            "the operator has raw keyed state, whose keys only the job knows",
        ));
    }
    if snapshots
        .clone()
        .any(|snapshot| has(&snapshot.in_flight_keyed))
    {
        return Err(Error::unsupported(
            "the checkpoint is unaligned and has keyed records in flight, whose keys only the job knows: rescale a savepoint",
        ));
    }
    let is_keyed = snapshots.any(|snapshot| !snapshot.managed_keyed.is_empty());
    if is_keyed && operator.parallelism > now.get() {
        return Err(Error::invalid(format!(
            "the operator has {} subtasks: there can't be fewer key groups",
            operator.parallelism
        )));
    }
    Ok(())
}

/// Returns the keyed states of an operator, each once.
pub(crate) fn keyed_states(operator: &OperatorMetadata) -> Result<Vec<StateMeta>> {
    let mut states: Vec<StateMeta> = Vec::new();
    for state in states_of(operator).iter().filter(|s| s.mode.is_none()) {
        states.push(state.meta.clone());
    }
    let summaries = operator
        .subtasks
        .iter()
        .flat_map(|s| &s.snapshot.managed_keyed);
    for summary in summaries.flat_map(KeyedHandle::states) {
        let same = states.iter().find(|meta| meta.name == summary.meta.name);
        if same.is_some_and(|meta| *meta != summary.meta) {
            return Err(
                Error::incompatible("parts of the snapshot disagree about a state")
                    .with("operator", &operator.uid)
                    .with("state", &summary.meta.name),
            );
        }
    }
    Ok(states)
}

/// Hashes the key of a stored entry, and checks that it is in the group that this gives.
pub(crate) fn checked_group(
    hash: HashId,
    stored: &StoredEntry<'_>,
    key: &[u8],
    before: MaxParallelism,
    now: MaxParallelism,
) -> Result<KeyGroup> {
    let schema = &stored.state.key.schema;
    if hash.group_of_encoded(schema, key, before)? != stored.group {
        return Err(Error::unsupported(
            "a key is in another key group than the hash of its type says: its hash was written by hand",
        )
        .with("state", &stored.state.name)
        .with("key", key_text(stored.state, stored.key))
        .with("key group", stored.group));
    }
    hash.group_of_encoded(schema, key, now)
}

async fn keyed(
    source: &CheckpointSource,
    target: &NewCheckpoint,
    operator: &OperatorMetadata,
    now: MaxParallelism,
) -> Result<(Vec<Option<KeyGroupsHandle>>, Vec<(String, u64)>)> {
    let states = keyed_states(operator)?;
    let mut into = Repartition::new(states, now, source.toolbox.scratch()?);
    for subtask in &operator.subtasks {
        let read = async {
            let groups = operator.max_parallelism.all_groups();
            let part = source.open_part(operator, subtask, groups, None).await?;
            let take = &mut |stored: StoredEntry<'_>| {
                let parts = crate::decode::split_key(stored.state, stored.key)
                    .map_err(|e| e.with("state", &stored.state.name))?;
                let before = operator.max_parallelism;
                let group = checked_group(operator.hash, &stored, parts.key.1, before, now)?;
                let column = into.column(&stored.state.name);
                let column = column.ok_or_else(|| Error::bug("a state without a number"))?;
                into.push(group, column, stored.key, stored.value)
            };
            part.read(groups, take).await?;
            Ok(())
        };
        read.await.map_err(|e| place(e, operator, subtask))?;
    }
    let pushed = into.pushed().to_vec();
    let names: Vec<String> = into.states().iter().map(|m| m.name.to_string()).collect();
    let id = source.metadata().checkpoint;
    let done = into
        .finish(operator.parallelism, id, &target.storage())
        .await
        .map_err(|e| e.with("operator", &operator.uid))?;
    if done.written != pushed {
        return Err(Error::bug("entries were lost or doubled")
            .with("operator", &operator.uid)
            .with("read", format!("{pushed:?}"))
            .with("written", format!("{:?}", done.written)));
    }
    Ok((done.handles, names.into_iter().zip(pushed).collect()))
}
