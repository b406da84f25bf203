//! Restored state on its way from bytes to typed tables, which exist only once the program registers them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use state_api::{Error, KeyGroup, KeyGroupRange, LoadTables, Result, StateMeta};

use crate::format::{GroupReader, Section};

/// The restored entries of one state in one key group, still encoded.
#[derive(Clone, Debug)]
pub(crate) struct RestoredGroup {
    pub(crate) group: KeyGroup,
    pub(crate) entries: u64,
    pub(crate) bytes: Bytes,
}

impl RestoredGroup {
    pub(crate) fn section(&self) -> Section<'_> {
        Section {
            column: 0,
            entries: self.entries,
            bytes: &self.bytes,
        }
    }
}

/// A restored state that is not registered yet.
#[derive(Clone, Debug)]
pub(crate) struct RestoredState {
    pub(crate) meta: StateMeta,
    pub(crate) groups: Vec<RestoredGroup>,
}

/// Restored states by name.
pub(crate) type RestoredStates = BTreeMap<Arc<str>, RestoredState>;

/// Takes restored key groups apart by state.
pub(crate) struct Loader<'a> {
    range: KeyGroupRange,
    restored: &'a mut RestoredStates,
    /// Names of the states of the current handle, by column.
    columns: Vec<Arc<str>>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(range: KeyGroupRange, restored: &'a mut RestoredStates) -> Self {
        Self {
            range,
            restored,
            columns: Vec::new(),
        }
    }
}

impl LoadTables for Loader<'_> {
    fn range(&self) -> KeyGroupRange {
        self.range
    }

    fn begin(&mut self, states: &[StateMeta]) -> Result<()> {
        self.columns.clear();
        for meta in states {
            let known = self
                .restored
                .entry(Arc::clone(&meta.name))
                .or_insert_with(|| RestoredState {
                    meta: meta.clone(),
                    groups: Vec::new(),
                });
            if known.meta != *meta {
                return Err(
                    Error::incompatible("parts of the snapshot disagree about a state")
                        .with("state", &meta.name),
                );
            }
            self.columns.push(Arc::clone(&meta.name));
        }
        Ok(())
    }

    fn load_group(&mut self, group: KeyGroup, bytes: Bytes) -> Result<()> {
        if !self.range.contains(group) {
            return Ok(());
        }
        let mut reader = GroupReader::open(group, self.columns.len(), &bytes)?;
        while let Some(section) = reader.next()? {
            let name = self.columns.get(section.column as usize).ok_or_else(|| {
                Error::corrupt("a section names no state").with("key group", group)
            })?;
            if let Some(state) = self.restored.get_mut(name) {
                state.groups.push(RestoredGroup {
                    group,
                    entries: section.entries,
                    bytes: bytes.slice_ref(section.bytes),
                });
            }
        }
        Ok(())
    }
}
