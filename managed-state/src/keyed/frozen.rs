use std::collections::BTreeMap;

use state_api::{
    CheckpointId, EntryCount, Error, FrozenChanges, FrozenTables, KeyGroup, KeyGroupRange, Result,
    StateMeta, StateSummary,
};

use super::live_slot::FrozenSlot;
use super::restored::{RestoredGroup, RestoredState};
use crate::format::GroupWriter;

/// All live tables of a subtask at the moment of a cut, with restored states that nobody has registered.
pub(crate) struct FrozenLive {
    range: KeyGroupRange,
    slots: Vec<Box<dyn FrozenSlot>>,
    carried: Vec<Carried>,
    counts: Vec<u64>,
    encoded: Vec<bool>,
}

struct Carried {
    meta: StateMeta,
    groups: BTreeMap<KeyGroup, Vec<RestoredGroup>>,
}

impl FrozenLive {
    pub(crate) fn new<'a>(
        range: KeyGroupRange,
        slots: Vec<Box<dyn FrozenSlot>>,
        unregistered: impl Iterator<Item = &'a RestoredState>,
    ) -> Self {
        let carried: Vec<Carried> = unregistered
            .map(|state| {
                let mut groups: BTreeMap<KeyGroup, Vec<RestoredGroup>> = BTreeMap::new();
                for group in &state.groups {
                    groups.entry(group.group).or_default().push(group.clone());
                }
                Carried {
                    meta: state.meta.clone(),
                    groups,
                }
            })
            .collect();
        let counts = vec![0; slots.len() + carried.len()];
        Self {
            range,
            slots,
            carried,
            counts,
            encoded: vec![false; range.len()],
        }
    }
}

impl FrozenTables for FrozenLive {
    fn range(&self) -> KeyGroupRange {
        self.range
    }

    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        let index = self
            .range
            .contains(group)
            .then(|| group.index() - self.range.start().index())
            .filter(|index| !std::mem::replace(&mut self.encoded[*index], true))
            .ok_or_else(|| {
                Error::invalid("the key group is not frozen here or was encoded before")
                    .with("key group", group)
            })?;
        let mut writer = GroupWriter::begin(group, out);
        let mut column = 0;
        for slot in &self.slots {
            writer.section(column);
            slot.encode(index, &mut writer)?;
            self.counts[column as usize] += writer.section_entries();
            column += 1;
        }
        for carried in &mut self.carried {
            for part in carried.groups.remove(&group).unwrap_or_default() {
                writer.carry_section(column, part.entries, &part.bytes);
                self.counts[column as usize] += part.entries;
            }
            column += 1;
        }
        writer.finish();
        Ok(())
    }

    fn states(&self) -> Vec<StateSummary> {
        let metas = self
            .slots
            .iter()
            .map(|slot| slot.meta())
            .chain(self.carried.iter().map(|c| &c.meta));
        metas
            .zip(&self.counts)
            .map(|(meta, count)| StateSummary {
                meta: meta.clone(),
                entries: EntryCount::Exact(*count),
            })
            .collect()
    }

    fn changes(&mut self, _since: CheckpointId) -> Option<Box<dyn FrozenChanges>> {
        None
    }
}
