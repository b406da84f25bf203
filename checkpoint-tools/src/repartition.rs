//! Entries of keyed state in any order on their way into the canonical streams of an operator's subtasks.
use std::sync::Arc;

use managed_state::format::{CANONICAL, CanonicalWriter, GroupWriter};
use state_api::wire::{get_varint, put_varint};
use state_api::{
    CheckpointId, CheckpointStorage, EntryCount, Error, KeyGroup, KeyGroupOffsets, KeyGroupRange,
    KeyGroupsHandle, MaxParallelism, Result, Scope, StateHandle, StateKind, StateMeta,
    StateSummary, Subtask,
};

use crate::scratch::Scratch;
use crate::spill::{Spill, Spilled};

/// The most buckets that key groups are gathered in.
const BUCKETS: usize = 1024;

/// Gathers entries, then writes them by key group.
///
/// Elements of a list under one key are put one behind the other, by their positions if they have some, else as they came; a
/// second entry under any other key is an error. Equal entries give equal bytes, in whatever order they came.
pub(crate) struct Repartition {
    states: Vec<StateMeta>,
    max: MaxParallelism,
    spill: Spill,
    counts: Vec<u64>,
}

/// What [`Repartition::finish`] wrote.
#[derive(Debug, Default)]
pub(crate) struct Repartitioned {
    /// The stream of each subtask, by index; none for a subtask without entries. If there are no entries at all, the first has
    /// an empty one, so that the states are not forgotten.
    pub(crate) handles: Vec<Option<KeyGroupsHandle>>,
    /// Entries by state, in the order in which the states were given.
    pub(crate) written: Vec<u64>,
}

impl Repartition {
    pub(crate) fn new(states: Vec<StateMeta>, max: MaxParallelism, scratch: Scratch) -> Self {
        let counts = vec![0; states.len()];
        let buckets = BUCKETS.min(max.get() as usize);
        Self {
            states,
            max,
            spill: Spill::new(scratch, buckets),
            counts,
        }
    }

    pub(crate) fn states(&self) -> &[StateMeta] {
        &self.states
    }

    /// Returns the number of a state.
    pub(crate) fn column(&self, state: &str) -> Option<usize> {
        self.states.iter().position(|meta| &*meta.name == state)
    }

    /// Adds an entry, its key without the group.
    pub(crate) fn push(
        &mut self,
        group: KeyGroup,
        column: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.push_element(group, column, key, None, value)
    }

    /// Adds an entry, or an element of a list at its position.
    pub(crate) fn push_element(
        &mut self,
        group: KeyGroup,
        column: usize,
        key: &[u8],
        position: Option<u64>,
        value: &[u8],
    ) -> Result<()> {
        let is_list = self.states.get(column).map(|meta| meta.kind) == Some(StateKind::List);
        let mut placed = Vec::new();
        let mut value = value;
        if is_list {
            put_varint(&mut placed, position.map_or(0, |at| at.saturating_add(1)));
            placed.extend_from_slice(value);
            value = &placed;
        }
        // Buckets hold runs of groups, in order.
        let bucket = group.index() * self.spill.buckets() / self.max.get() as usize;
        if let Some(count) = self.counts.get_mut(column) {
            *count += 1;
        }
        self.spill
            .push(bucket, u64::from(group.0), column as u64, key, value)
    }

    /// Returns how many entries were added, by state.
    pub(crate) fn pushed(&self) -> &[u64] {
        &self.counts
    }

    /// Writes the streams of all subtasks.
    pub(crate) async fn finish(
        mut self,
        parallelism: u32,
        checkpoint: CheckpointId,
        storage: &Arc<dyn CheckpointStorage>,
    ) -> Result<Repartitioned> {
        let mut done = Repartitioned {
            handles: Vec::new(),
            written: vec![0; self.states.len()],
        };
        // The next entries, sorted; a bucket may reach over two subtasks.
        let mut waiting = Vec::<Spilled>::new().into_iter().peekable();
        let mut bucket = 0;
        for index in 0..parallelism {
            let range = self.max.range_of(Subtask { index, parallelism })?;
            let stream = storage.create(checkpoint, Scope::Exclusive);
            let mut writer = CanonicalWriter::new(stream, range, self.states.iter().cloned());
            loop {
                while waiting.peek().is_none() && bucket < self.spill.buckets() {
                    let mut entries = self.spill.take(bucket)?;
                    // Stable: elements of a list stay in the order in which they came.
                    entries.sort_by(|a, b| {
                        (a.group, a.column, &a.key).cmp(&(b.group, b.column, &b.key))
                    });
                    waiting = entries.into_iter().peekable();
                    bucket += 1;
                }
                let Some(next) = waiting.peek() else {
                    break;
                };
                let group = u16::try_from(next.group).map(KeyGroup);
                let group = group.map_err(|_| Error::bug("a key group exceeds 16 bits"))?;
                if !range.contains(group) {
                    break;
                }
                let mut block = Vec::new();
                self.encode(
                    group,
                    &mut waiting,
                    &mut block,
                    &mut writer,
                    &mut done.written,
                )?;
                writer.block(group, block).await?;
            }
            done.handles.push(writer.finish().await?);
        }
        if !self.states.is_empty()
            && done.handles.iter().all(Option::is_none)
            && let Some(first) = done.handles.first_mut()
        {
            let range = self.max.range_of(Subtask {
                index: 0,
                parallelism,
            })?;
            *first = Some(self.empty(range));
        }
        Ok(done)
    }

    /// A stream without entries, which says what states there are.
    fn empty(&self, range: KeyGroupRange) -> KeyGroupsHandle {
        let summary = |meta: &StateMeta| StateSummary {
            meta: meta.clone(),
            entries: EntryCount::Exact(0),
        };
        KeyGroupsHandle {
            format: CANONICAL.into(),
            offsets: KeyGroupOffsets::new(range),
            bytes: StateHandle::Inline(bytes::Bytes::new()),
            states: self.states.iter().map(summary).collect(),
        }
    }

    /// Encodes the block of one group out of the entries that come next.
    fn encode(
        &self,
        group: KeyGroup,
        waiting: &mut std::iter::Peekable<std::vec::IntoIter<Spilled>>,
        block: &mut Vec<u8>,
        counted: &mut CanonicalWriter,
        written: &mut [u64],
    ) -> Result<()> {
        let mut writer = GroupWriter::begin(group, block);
        let mut section = None;
        let of_group = |entry: &Spilled| entry.group == u64::from(group.0);
        while let Some(entry) = waiting.next_if(of_group) {
            let column = u32::try_from(entry.column)
                .map_err(|_| Error::invalid("more states than can be numbered"))?;
            let meta = self.states.get(column as usize);
            let meta = meta.ok_or_else(|| Error::bug("an entry of no state"))?;
            if section != Some(column) {
                writer.section(column);
                section = Some(column);
            }
            let same = |next: &Spilled| {
                of_group(next) && next.column == entry.column && next.key == entry.key
            };
            let named = |e: Error| {
                e.with("state", &meta.name)
                    .with("key", key_text(meta, &entry.key))
            };
            let mut value = entry.value;
            if meta.kind == StateKind::List {
                let mut elements = vec![value];
                while let Some(next) = waiting.next_if(same) {
                    elements.push(next.value);
                }
                value = joined(&elements).map_err(named)?;
            } else if waiting.next_if(same).is_some() {
                return Err(named(Error::invalid("a state has an entry twice")));
            }
            writer.entry(&entry.key, &value);
            counted.count(column, 1);
            if let Some(count) = written.get_mut(column as usize) {
                *count += 1;
            }
        }
        writer.finish();
        Ok(())
    }
}

/// Puts the elements of a list one behind the other: by their positions, or as they came if none has one.
fn joined(elements: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut placed = Vec::with_capacity(elements.len());
    for element in elements {
        let mut rest = element.as_slice();
        placed.push((get_varint(&mut rest)?, rest));
    }
    check_positions(placed.iter().map(|(at, _)| at.checked_sub(1)))?;
    placed.sort_by_key(|(at, _)| *at);
    Ok(placed
        .into_iter()
        .flat_map(|(_, bytes)| bytes)
        .copied()
        .collect())
}

/// Checks that of the elements of a list either all have a position, from 0 without doubles and gaps, or none.
///
/// # Errors
/// `InvalidArgument`, saying which position is wrong.
pub(crate) fn check_positions(positions: impl Iterator<Item = Option<u64>> + Clone) -> Result<()> {
    let count = positions.clone().count();
    let mut known: Vec<u64> = positions.flatten().collect();
    if known.is_empty() {
        return Ok(());
    }
    if known.len() < count {
        return Err(Error::invalid(
            "some elements of a list have an index, others have none",
        ));
    }
    known.sort_unstable();
    for (expected, found) in (0..).zip(known) {
        if found < expected {
            return Err(Error::invalid(format!("a list has index {found} twice")));
        }
        if found > expected {
            return Err(Error::invalid(format!(
                "a list has index {found} without index {expected}"
            )));
        }
    }
    Ok(())
}

/// Writes a stored key for people.
pub(crate) fn key_text(meta: &StateMeta, stored: &[u8]) -> String {
    match crate::decode::split_key(meta, stored) {
        Ok(parts) => parts.key.0.to_json_string(),
        Err(_) => format!("{stored:02x?}"),
    }
}
