use bytes::Bytes;
use state_api::{
    CheckpointStream, EntryCount, Error, GroupExtent, KeyGroup, KeyGroupOffsets, KeyGroupRange,
    KeyGroupsHandle, Result, StateMeta, StateSummary,
};

use super::header::{CANONICAL, HEADER_LEN, KEYED_MAGIC, header};

/// Writes a stream in the canonical format out of blocks that [`GroupWriter`](super::GroupWriter) made.
///
/// For whoever makes snapshots without a backend. Blocks come in ascending order of their key groups.
pub struct CanonicalWriter {
    stream: Box<dyn CheckpointStream>,
    offsets: KeyGroupOffsets,
    states: Vec<StateSummary>,
    /// The next byte of the stream; 0 before anything was written.
    position: u64,
    last: Option<KeyGroup>,
}

impl CanonicalWriter {
    /// Begins a stream with the key groups of a range and these states, by column.
    #[must_use]
    pub fn new(
        stream: Box<dyn CheckpointStream>,
        range: KeyGroupRange,
        states: impl IntoIterator<Item = StateMeta>,
    ) -> Self {
        let summary = |meta| StateSummary {
            meta,
            entries: EntryCount::Exact(0),
        };
        Self {
            stream,
            offsets: KeyGroupOffsets::new(range),
            states: states.into_iter().map(summary).collect(),
            position: 0,
            last: None,
        }
    }

    /// Counts entries of a state that stand in the blocks.
    pub fn count(&mut self, column: u32, entries: u64) {
        if let Some(StateSummary {
            entries: EntryCount::Exact(count),
            ..
        }) = self.states.get_mut(column as usize)
        {
            *count += entries;
        }
    }

    /// Appends the block of a key group; an empty one is left out.
    ///
    /// # Errors
    /// `InvalidArgument` when the group is not in the range or does not come after the last one; those of the storage.
    pub async fn block(&mut self, group: KeyGroup, block: impl Into<Bytes>) -> Result<()> {
        let block = block.into();
        if block.is_empty() {
            return Ok(());
        }
        if self.last.is_some_and(|last| last >= group) {
            return Err(Error::invalid("key groups are written in ascending order")
                .with("key group", group));
        }
        if self.position == 0 {
            let header = header(KEYED_MAGIC);
            self.stream.write(Bytes::copy_from_slice(&header)).await?;
            self.position = HEADER_LEN as u64;
        }
        let extent = GroupExtent {
            offset: self.position,
            len: block.len() as u64,
        };
        self.offsets.set(group, extent)?;
        self.position += extent.len;
        self.last = Some(group);
        self.stream.write(block).await
    }

    /// Completes the stream; no handle if all groups were empty.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn finish(self) -> Result<Option<KeyGroupsHandle>> {
        if self.position == 0 {
            self.stream.abort().await;
            return Ok(None);
        }
        let bytes = self.stream.finish().await?;
        Ok(bytes.map(|bytes| KeyGroupsHandle {
            format: CANONICAL.into(),
            offsets: self.offsets,
            bytes,
            states: self.states,
        }))
    }
}

impl std::fmt::Debug for CanonicalWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CanonicalWriter")
            .field("range", &self.offsets.range())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
