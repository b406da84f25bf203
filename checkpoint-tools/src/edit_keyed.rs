//! Changes of keyed state: gathered in local files, then merged with what is there.
use std::collections::{BTreeMap, HashMap, HashSet};

use checkpoint_storage::OperatorMetadata;
use state_api::hash::hash_bytes;
use state_api::wire::{get_bytes, get_varint, put_bytes, put_varint, take};
use state_api::{
    Error, HashId, KeyGroup, KeyGroupsHandle, MaxParallelism, Result, StateKind, StateMeta,
};

use crate::decode::split_key;
use crate::edit::{DroppedState, EditReport};
use crate::keyed::StoredEntry;
use crate::repartition::{Repartition, key_text};
use crate::rescale::{checked_group, keyed_states};
use crate::rows::Row;
use crate::source::{CheckpointSource, place};
use crate::spill::{Spill, Spilled};
use crate::target::NewCheckpoint;

/// The buckets that keys are gathered in, each of which is merged by itself.
const BUCKETS: usize = 512;

/// What is put aside about a key.
mod tag {
    /// An entry of the old checkpoint.
    pub(super) const OLD: u8 = 0;
    /// An entry that is set.
    pub(super) const SET: u8 = 1;
    /// An element of a list that is set.
    pub(super) const ELEMENT: u8 = 2;
    /// An element of a list that is deleted.
    pub(super) const NO_ELEMENT: u8 = 3;
    /// All entries of the key that match are deleted.
    pub(super) const DELETE: u8 = 4;
}

/// The keyed changes of one operator, in local files.
pub(crate) struct KeyedEdit {
    states: Vec<StateMeta>,
    max: MaxParallelism,
    hash: HashId,
    spill: Spill,
    /// Which buckets have changes: the entries of others are not put aside.
    used: Vec<bool>,
    /// Which states are changed, and whether entries are set.
    changed: HashMap<usize, bool>,
}

impl std::fmt::Debug for KeyedEdit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyedEdit")
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

impl KeyedEdit {
    pub(crate) fn new(source: &CheckpointSource, operator: &OperatorMetadata) -> Result<Self> {
        Ok(Self {
            states: keyed_states(operator)?,
            max: operator.max_parallelism,
            hash: operator.hash,
            spill: Spill::new(source.toolbox.scratch()?, BUCKETS),
            used: vec![false; BUCKETS],
            changed: HashMap::new(),
        })
    }

    fn column(&self, state: &str) -> Result<usize> {
        let place = self.states.iter().position(|meta| &*meta.name == state);
        place.ok_or_else(|| Error::bug("a state without a number"))
    }

    fn bucket(column: usize, key: &[u8]) -> usize {
        let hash = hash_bytes(key).wrapping_add(column as u64);
        (hash % BUCKETS as u64) as usize
    }

    /// Adds a change.
    pub(crate) fn row(&mut self, row: &Row, meta: &StateMeta, now_ms: i64) -> Result<()> {
        let column = self.column(&meta.name)?;
        let encoded = row.encode(meta, now_ms)?;
        let deletes = row.is_deletion();
        let index = row.index()?;
        let mut record = Vec::new();
        let mut group = KeyGroup(0);
        let is_set = self.changed.entry(column).or_default();
        if !deletes {
            *is_set = true;
            group = self
                .hash
                .group_of_encoded(&meta.key.schema, &encoded.key, self.max)?;
        }
        match index {
            Some(index) if meta.kind == StateKind::List => {
                record.push(if deletes {
                    tag::NO_ELEMENT
                } else {
                    tag::ELEMENT
                });
                put_varint(&mut record, index);
                if deletes {
                    // Lists under all namespaces would be meant: an index means nothing then.
                    row.needs_namespace(meta)?;
                }
                put_bytes(&mut record, &encoded.stored);
                record.extend_from_slice(&encoded.value);
            }
            _ if deletes => {
                record.push(tag::DELETE);
                let time = match meta.kind {
                    StateKind::Timer => row.time_ms()?,
                    _ => None,
                };
                let time = time.map(|ms| ms.to_le_bytes().to_vec());
                let namespace = row.has("namespace").then_some(encoded.namespace);
                let map_key = row.has("map_key").then_some(encoded.map_key);
                for part in [time, namespace, map_key] {
                    record.push(u8::from(part.is_some()));
                    put_bytes(&mut record, &part.unwrap_or_default());
                }
            }
            _ => {
                record.push(tag::SET);
                put_bytes(&mut record, &encoded.stored);
                record.extend_from_slice(&encoded.value);
            }
        }
        let bucket = Self::bucket(column, &encoded.key);
        self.used[bucket] = true;
        let group = u64::from(group.0);
        self.spill
            .push(bucket, group, column as u64, &encoded.key, &record)
    }

    /// Writes the keyed state of all subtasks anew.
    pub(crate) async fn rewrite(
        mut self,
        dropped: &HashSet<String>,
        source: &CheckpointSource,
        operator: &OperatorMetadata,
        target: &NewCheckpoint,
        report: &mut EditReport,
    ) -> Result<Vec<Option<KeyGroupsHandle>>> {
        let states = self.states.iter();
        let kept = states.filter(|meta| !dropped.contains(&*meta.name));
        let scratch = source.toolbox.scratch()?;
        let mut into = Repartition::new(kept.cloned().collect(), self.max, scratch);
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for name in self.states.iter().map(|meta| meta.name.to_string()) {
            if dropped.contains(&name) {
                counts.insert(name, 0);
            }
        }
        let groups = self.max.all_groups();
        for subtask in &operator.subtasks {
            let read = async {
                let part = source.open_part(operator, subtask, groups, None).await?;
                let take = &mut |stored: StoredEntry<'_>| match counts.get_mut(&*stored.state.name)
                {
                    Some(count) => {
                        *count += 1;
                        Ok(())
                    }
                    None => self.old(&stored, &mut into),
                };
                part.read(groups, take).await?;
                Ok(())
            };
            read.await.map_err(|e| place(e, operator, subtask))?;
        }
        report
            .dropped
            .extend(counts.into_iter().map(|(state, entries)| DroppedState {
                operator: operator.uid.clone(),
                state,
                entries: Some(entries),
            }));
        for bucket in 0..BUCKETS {
            if self.used[bucket] {
                self.merge(bucket, &mut into, report)?;
            }
        }
        let id = source.metadata().checkpoint;
        let storage = target.storage();
        let done = into.finish(operator.parallelism, id, &storage).await?;
        Ok(done.handles)
    }

    /// Takes up an entry of the old checkpoint: on into the new one, or aside if its key is changed.
    fn old(&mut self, stored: &StoredEntry<'_>, into: &mut Repartition) -> Result<()> {
        let name = &*stored.state.name;
        let column = self.column(name)?;
        if let Some(is_set) = self.changed.get(&column) {
            let named = |e: Error| e.with("state", name);
            let parts = split_key(stored.state, stored.key).map_err(named)?;
            let key = parts.key.1;
            if *is_set {
                // What is set must be found by the job: its hash must be the one that we compute.
                checked_group(self.hash, stored, key, self.max, self.max)?;
            }
            let bucket = Self::bucket(column, key);
            if self.used[bucket] {
                let mut record = vec![tag::OLD];
                put_bytes(&mut record, stored.key);
                record.extend_from_slice(stored.value);
                let group = u64::from(stored.group.0);
                return self.spill.push(bucket, group, column as u64, key, &record);
            }
        }
        let column = into.column(name);
        let column = column.ok_or_else(|| Error::bug("a state without a number"))?;
        into.push(stored.group, column, stored.key, stored.value)
    }

    /// Merges the changes of a bucket with what was there under the same keys.
    fn merge(
        &mut self,
        bucket: usize,
        into: &mut Repartition,
        report: &mut EditReport,
    ) -> Result<()> {
        let mut records = self.spill.take(bucket)?;
        // Stable: changes stay in the order of their rows.
        records.sort_by(|a, b| (a.column, &a.key).cmp(&(b.column, &b.key)));
        for of_key in records.chunk_by(|a, b| (a.column, &a.key) == (b.column, &b.key)) {
            let column = usize::try_from(of_key[0].column).ok();
            let meta = column.and_then(|column| self.states.get(column));
            let meta = meta.ok_or_else(|| Error::bug("an entry of no state"))?;
            let column = into.column(&meta.name);
            let column = column.ok_or_else(|| Error::bug("a state without a number"))?;
            let mut key = Key::new(meta);
            let (old, changes): (Vec<&Spilled>, Vec<&Spilled>) = of_key
                .iter()
                .partition(|r| r.value.first() == Some(&tag::OLD));
            for record in old.into_iter().chain(changes) {
                key.take(record, report)
                    .map_err(|e| e.with("state", &meta.name))?;
            }
            for (stored, entry) in key.entries {
                let named = |e: Error| {
                    e.with("state", &meta.name)
                        .with("key", key_text(meta, &stored))
                };
                let value = entry.value(report).map_err(named)?;
                // Without elements there is no list.
                if !(meta.kind == StateKind::List && value.is_empty()) {
                    into.push(entry.group, column, &stored, &value)?;
                }
            }
        }
        Ok(())
    }
}

/// What becomes of the entries of one key.
struct Key<'a> {
    meta: &'a StateMeta,
    entries: BTreeMap<Vec<u8>, Merged>,
}

/// An entry, and what becomes of its elements.
struct Merged {
    group: KeyGroup,
    value: Vec<u8>,
    /// Whether a row has set it.
    is_set: bool,
    /// Elements of a list by their positions; `None` for those that go.
    elements: BTreeMap<u64, Option<Vec<u8>>>,
}

/// The condition under which an entry is deleted: its time, its namespace, its map key.
type Condition = [Option<Vec<u8>>; 3];

impl<'a> Key<'a> {
    fn new(meta: &'a StateMeta) -> Self {
        Self {
            meta,
            entries: BTreeMap::new(),
        }
    }

    fn take(&mut self, record: &Spilled, report: &mut EditReport) -> Result<()> {
        let group = u16::try_from(record.group).map(KeyGroup);
        let group = group.map_err(|_| Error::bug("a key group exceeds 16 bits"))?;
        let twice = |stored: &[u8]| {
            Error::invalid("an entry is set twice").with("key", key_text(self.meta, stored))
        };
        let mut rest = record.value.as_slice();
        let tag = take(&mut rest, 1)?[0];
        match tag {
            tag::OLD | tag::SET => {
                let stored = get_bytes(&mut rest)?.to_vec();
                let entry = Merged {
                    group,
                    value: rest.to_vec(),
                    is_set: tag == tag::SET,
                    elements: BTreeMap::new(),
                };
                report.set += u64::from(entry.is_set);
                match self.entries.get_mut(&stored) {
                    None => {
                        self.entries.insert(stored, entry);
                    }
                    Some(old) if old.is_set || !old.elements.is_empty() => {
                        return Err(twice(&stored));
                    }
                    Some(_) if !entry.is_set => {
                        return Err(Error::corrupt("a state has an entry twice")
                            .with("key", key_text(self.meta, &stored)));
                    }
                    Some(old) => {
                        *old = entry;
                        report.removed += 1;
                    }
                }
            }
            tag::ELEMENT | tag::NO_ELEMENT => {
                let index = get_varint(&mut rest)?;
                let stored = get_bytes(&mut rest)?.to_vec();
                let element = (tag == tag::ELEMENT).then(|| rest.to_vec());
                report.set += u64::from(element.is_some());
                let list = self.entries.entry(stored).or_insert_with(|| Merged {
                    group,
                    value: Vec::new(),
                    is_set: false,
                    elements: BTreeMap::new(),
                });
                if element.is_some() {
                    // A list that was not there may have been named first by the deletion of an element, which has no group.
                    list.group = group;
                }
                if list.elements.insert(index, element).is_some() {
                    return Err(Error::invalid(format!("element {index} is named twice")));
                }
            }
            _ => {
                let mut condition = Condition::default();
                for part in &mut condition {
                    let is_there = take(&mut rest, 1)?[0] == 1;
                    let bytes = get_bytes(&mut rest)?;
                    *part = is_there.then(|| bytes.to_vec());
                }
                self.delete(&condition, report)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, condition: &Condition, report: &mut EditReport) -> Result<()> {
        let mut gone = Vec::new();
        for stored in self.entries.keys() {
            let parts = split_key(self.meta, stored)?;
            let time = parts.time_ms.map(i64::to_le_bytes);
            let found = [
                time.as_ref().map_or(&[][..], |time| &time[..]),
                parts.namespace.1,
                parts.rest,
            ];
            let mut wanted = condition.iter().zip(found);
            if wanted.all(|(wanted, found)| wanted.as_ref().is_none_or(|w| w == found)) {
                gone.push(stored.clone());
            }
        }
        for stored in gone {
            if self.entries.remove(&stored).is_some() {
                report.removed += 1;
            }
        }
        Ok(())
    }
}

impl Merged {
    /// Puts the elements that are set into the list.
    fn value(&self, report: &mut EditReport) -> Result<Vec<u8>> {
        if self.elements.is_empty() {
            return Ok(self.value.clone());
        }
        let mut out = Vec::with_capacity(self.value.len());
        let (mut rest, mut len) = (self.value.as_slice(), 0);
        while !rest.is_empty() {
            let before = rest;
            get_bytes(&mut rest)?;
            let element = &before[..before.len() - rest.len()];
            match self.elements.get(&len) {
                None => out.extend_from_slice(element),
                Some(changed) => {
                    out.extend_from_slice(changed.as_deref().unwrap_or_default());
                    report.removed += 1;
                }
            }
            len += 1;
        }
        let old_len = len;
        let behind = self.elements.range(old_len..);
        for (index, element) in behind.filter_map(|(i, e)| Some((*i, e.as_ref()?))) {
            if index != len {
                return Err(Error::invalid(format!(
                    "the list has {old_len} elements: index {index} is neither one of them nor the next"
                )));
            }
            out.extend_from_slice(element);
            len += 1;
        }
        Ok(out)
    }
}
