use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use managed_state::format::{GroupReader, restore_groups};
use state_api::{CheckpointStorage, KeyGroup, KeyGroupRange, KeyGroupsHandle, Result, StateMeta};

use crate::scratch::Scratch;

/// The keyed state of one subtask, in the canonical format.
pub struct KeyedPart {
    pub(crate) subtask: u32,
    pub(crate) handles: Vec<KeyGroupsHandle>,
    pub(crate) storage: Arc<dyn CheckpointStorage>,
    /// Holds what the storage reads, if that is temporary.
    pub(crate) scratch: Option<Scratch>,
}

/// An entry as it is stored: of which state, in which key group, under which key without its group.
#[derive(Clone, Copy)]
pub(crate) struct StoredEntry<'a> {
    pub(crate) group: KeyGroup,
    pub(crate) state: &'a StateMeta,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl KeyedPart {
    /// Returns the subtask's index.
    #[must_use]
    pub fn subtask(&self) -> u32 {
        self.subtask
    }

    /// Returns the streams.
    #[must_use]
    pub fn handles(&self) -> &[KeyGroupsHandle] {
        &self.handles
    }

    /// Returns the number of bytes of all streams.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.handles.iter().map(|handle| handle.bytes.len()).sum()
    }

    /// Reads the entries of a range of key groups, group after group; memory does not grow beyond one group.
    ///
    /// Digests are compared when all groups are read, after the last entry; each group has a checksum that is compared before.
    pub(crate) async fn read(
        &self,
        range: KeyGroupRange,
        take: &mut dyn FnMut(StoredEntry<'_>) -> Result<()>,
    ) -> Result<()> {
        for handle in &self.handles {
            let load = &mut |group: KeyGroup, block: Bytes| {
                let mut reader = GroupReader::open(group, handle.states.len(), &block)?;
                while let Some(section) = reader.next()? {
                    // Checked by the reader against the number of states.
                    let Some(state) = handle.states.get(section.column as usize) else {
                        continue;
                    };
                    let mut entries = section.entries();
                    while let Some((key, value)) = entries.next()? {
                        take(StoredEntry {
                            group,
                            state: &state.meta,
                            key,
                            value,
                        })?;
                    }
                }
                Ok(())
            };
            restore_groups(handle, range, &*self.storage, load).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for KeyedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPart")
            .field("subtask", &self.subtask)
            .field("handles", &self.handles.len())
            .field("is_temporary", &self.scratch.is_some())
            .finish_non_exhaustive()
    }
}

/// Returns the smallest range with all key groups of two.
pub(crate) fn hull(a: KeyGroupRange, b: KeyGroupRange) -> KeyGroupRange {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => KeyGroupRange::new(a.start().min(b.start()), a.end().max(b.end())),
    }
}
