use std::collections::BTreeMap;
use std::sync::Arc;

use state_api::{
    CheckpointId, EntryCount, Error, FrozenChanges, FrozenTables, KeyGroup, KeyGroupRange, Result,
    StateMeta, StateSummary,
};

use super::live_slot::FrozenSlot;
use super::restored::{RestoredGroup, RestoredState};
use crate::format::GroupWriter;

/// All live tables of a subtask at the moment of a cut, with restored states that nobody has registered.
pub(crate) struct FrozenLive {
    frozen: Arc<Frozen>,
    counts: Vec<u64>,
    encoded: Vec<bool>,
}

/// What a snapshot and its changes share.
struct Frozen {
    range: KeyGroupRange,
    slots: Vec<Box<dyn FrozenSlot>>,
    carried: Vec<Carried>,
}

struct Carried {
    meta: StateMeta,
    groups: BTreeMap<KeyGroup, Vec<RestoredGroup>>,
}

impl Carried {
    fn entries(&self) -> u64 {
        let parts = self.groups.values().flatten();
        parts.map(|part| part.entries).sum()
    }
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
        Self {
            counts: vec![0; slots.len() + carried.len()],
            encoded: vec![false; range.len()],
            frozen: Arc::new(Frozen {
                range,
                slots,
                carried,
            }),
        }
    }
}

impl Frozen {
    fn index_of(&self, group: KeyGroup) -> Result<usize> {
        self.range.index_of(group).ok_or_else(|| {
            Error::invalid("the key group is not frozen here").with("key group", group)
        })
    }
}

impl FrozenTables for FrozenLive {
    fn range(&self) -> KeyGroupRange {
        self.frozen.range
    }

    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        let index = self.frozen.index_of(group)?;
        if std::mem::replace(&mut self.encoded[index], true) {
            return Err(Error::invalid("the key group was encoded before").with("key group", group));
        }
        let mut writer = GroupWriter::begin(group, out);
        let mut column = 0;
        for slot in &self.frozen.slots {
            writer.section(column);
            slot.encode(index, &mut writer)?;
            self.counts[column as usize] += writer.section_entries();
            column += 1;
        }
        for carried in &self.frozen.carried {
            for part in carried.groups.get(&group).into_iter().flatten() {
                writer.carry_section(column, part.entries, &part.bytes);
                self.counts[column as usize] += part.entries;
            }
            column += 1;
        }
        writer.finish();
        Ok(())
    }

    fn states(&self) -> Vec<StateSummary> {
        let slots = self.frozen.slots.iter().map(|slot| slot.meta());
        let metas = slots.chain(self.frozen.carried.iter().map(|c| &c.meta));
        metas
            .zip(&self.counts)
            .map(|(meta, count)| StateSummary {
                meta: meta.clone(),
                entries: EntryCount::Exact(*count),
            })
            .collect()
    }

    fn changes(&mut self, since: CheckpointId) -> Option<Box<dyn FrozenChanges>> {
        let slots = &self.frozen.slots;
        let known = slots.iter().all(|slot| slot.knows_changes_since(since.0));
        known.then(|| {
            Box::new(ChangedLive {
                frozen: Arc::clone(&self.frozen),
                since: since.0,
            }) as Box<dyn FrozenChanges>
        })
    }
}

/// What changed in the tables since a cut. States that nobody has registered do not change.
struct ChangedLive {
    frozen: Arc<Frozen>,
    since: u64,
}

impl FrozenChanges for ChangedLive {
    fn range(&self) -> KeyGroupRange {
        self.frozen.range
    }

    fn states(&self) -> Vec<StateSummary> {
        let slots = self.frozen.slots.iter();
        let slots = slots.map(|slot| (slot.meta(), slot.entries()));
        let carried = self.frozen.carried.iter();
        let carried = carried.map(|c| (&c.meta, EntryCount::Exact(c.entries())));
        let summary = |(meta, entries): (&StateMeta, _)| StateSummary {
            meta: meta.clone(),
            entries,
        };
        slots.chain(carried).map(summary).collect()
    }

    fn changed(&self) -> u64 {
        let slots = self.frozen.slots.iter();
        slots.map(|slot| slot.changed_since(self.since)).sum()
    }

    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        let index = self.frozen.index_of(group)?;
        let mut writer = GroupWriter::begin(group, out);
        for (column, slot) in (0..).zip(&self.frozen.slots) {
            writer.section(column);
            slot.encode_changes(self.since, index, &mut writer)?;
        }
        writer.finish();
        Ok(())
    }
}
