//! Entries of keyed state in any order on their way into the canonical streams of an operator's subtasks.
use std::sync::Arc;

use managed_state::format::{CanonicalWriter, GroupWriter};
use state_api::{
    CheckpointId, CheckpointStorage, Error, KeyGroup, KeyGroupsHandle, MaxParallelism, Result,
    Scope, StateKind, StateMeta, Subtask,
};

use crate::scratch::Scratch;
use crate::spill::{Spill, Spilled};

/// The most buckets that key groups are gathered in.
const BUCKETS: usize = 1024;

/// Gathers entries, then writes them by key group.
///
/// Entries of a list under one key are put one behind the other; a second entry under any other key is an error. Equal entries
/// give equal bytes, in whatever order they came.
pub(crate) struct Repartition {
    states: Vec<StateMeta>,
    max: MaxParallelism,
    spill: Spill,
    counts: Vec<u64>,
}

/// What [`Repartition::finish`] wrote.
#[derive(Debug, Default)]
pub(crate) struct Repartitioned {
    /// The stream of each subtask, by index; none for a subtask without entries.
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
        Ok(done)
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
            let mut value = entry.value;
            let same = |next: &Spilled| {
                of_group(next) && next.column == entry.column && next.key == entry.key
            };
            while let Some(next) = waiting.next_if(same) {
                if meta.kind != StateKind::List {
                    return Err(Error::invalid("a state has an entry twice")
                        .with("state", &meta.name)
                        .with("key", key_text(meta, &entry.key)));
                }
                value.extend_from_slice(&next.value);
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

/// Writes a stored key for people.
pub(crate) fn key_text(meta: &StateMeta, stored: &[u8]) -> String {
    match crate::decode::split_key(meta, stored) {
        Ok(parts) => parts.key.0.to_json_string(),
        Err(_) => format!("{stored:02x?}"),
    }
}
