//! Changes of the states that an operator has beside those of its keys.
use std::collections::{BTreeMap, HashSet};

use checkpoint_storage::OperatorMetadata;
use managed_state::operator::{
    StoredOperatorState, broadcast_element, broadcast_entries, read_operator_states,
    write_operator_states,
};
use state_api::{
    Error, OperatorStateHandle, OperatorStateMode, OperatorStatePart, Result, Scope, StateMeta,
};

use crate::edit::{DroppedState, EditReport};
use crate::rows::Row;
use crate::source::{CheckpointSource, place};
use crate::target::NewCheckpoint;

/// A key, and what it is set to if it is not deleted.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// The changes of an operator's broadcast states.
#[derive(Debug, Default)]
pub(crate) struct OwnEdit {
    changes: BTreeMap<String, Vec<Change>>,
}

impl OwnEdit {
    /// Adds a change.
    pub(crate) fn row(&mut self, row: &Row, meta: &StateMeta) -> Result<()> {
        let named = |e: Error| e.with("state", &meta.name);
        let (key, value) = row.encode_broadcast(meta).map_err(named)?;
        let changes = self.changes.entry(meta.name.to_string()).or_default();
        changes.push((key, (!row.is_deletion()).then_some(value)));
        Ok(())
    }

    /// Writes those streams anew of which something changes or goes; returns them by subtask, `None` where all stays.
    pub(crate) async fn rewrite(
        &self,
        operator: &OperatorMetadata,
        dropped: &HashSet<String>,
        source: &CheckpointSource,
        target: &NewCheckpoint,
        report: &mut EditReport,
    ) -> Result<Vec<Option<Vec<OperatorStateHandle>>>> {
        let goes = |part: &OperatorStatePart| dropped.contains(&*part.meta.name);
        let changes = |part: &OperatorStatePart| self.changes.contains_key(&*part.meta.name);
        let mut tally = Tally::default();
        let mut all = Vec::new();
        for subtask in &operator.subtasks {
            let old = &subtask.snapshot.managed_operator;
            let mut parts = old.iter().flat_map(|handle| &handle.states);
            if !parts.any(|part| goes(part) || changes(part)) {
                all.push(None);
                continue;
            }
            let mut handles = Vec::new();
            for handle in old {
                let read = read_operator_states(handle, &**source.storage()).await;
                let mut states = match read {
                    Ok(states) => states,
                    // That it is damaged may be why it goes.
                    Err(_) if handle.states.iter().all(goes) => {
                        for part in &handle.states {
                            tally.unknown(&part.meta.name);
                        }
                        continue;
                    }
                    Err(error) => return Err(place(error, operator, subtask)),
                };
                for state in states.iter().filter(|s| dropped.contains(&*s.meta.name)) {
                    tally.gone(state)?;
                }
                states.retain(|state| !dropped.contains(&*state.meta.name));
                for state in &mut states {
                    if let Some(changes) = self.changes.get(&*state.meta.name) {
                        let is_first = tally.first(&state.meta.name);
                        change(state, changes, is_first, report)
                            .map_err(|e| e.with("state", &state.meta.name))?;
                    }
                }
                let id = source.metadata().checkpoint;
                let stream = target.storage().create(id, Scope::Exclusive);
                handles.extend(write_operator_states(states, stream).await?);
            }
            all.push(Some(handles));
        }
        let gone = tally.dropped.into_iter();
        report
            .dropped
            .extend(gone.map(|(state, entries)| DroppedState {
                operator: operator.uid.clone(),
                state,
                entries,
            }));
        Ok(all)
    }
}

/// What was met of the states of all subtasks.
#[derive(Default)]
struct Tally {
    dropped: BTreeMap<String, Option<u64>>,
    /// Maps that were met before: every subtask has the same, which is counted once.
    maps: HashSet<String>,
}

impl Tally {
    fn first(&mut self, map: &str) -> bool {
        self.maps.insert(map.to_owned())
    }

    fn unknown(&mut self, state: &str) {
        self.dropped.insert(state.to_owned(), None);
    }

    fn gone(&mut self, state: &StoredOperatorState) -> Result<()> {
        let name = &*state.meta.name;
        let more = match (state.mode, state.elements.last()) {
            (OperatorStateMode::Broadcast, Some(_)) if !self.first(name) => 0,
            (OperatorStateMode::Broadcast, Some(map)) => broadcast_entries(map)?.len() as u64,
            _ => state.elements.len() as u64,
        };
        if let Some(count) = self.dropped.entry(name.to_owned()).or_insert(Some(0)) {
            *count += more;
        }
        Ok(())
    }
}

fn change(
    state: &mut StoredOperatorState,
    changes: &[Change],
    is_counted: bool,
    report: &mut EditReport,
) -> Result<()> {
    let mut entries: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    if let Some(element) = state.elements.last() {
        let old = broadcast_entries(element)?.into_iter();
        entries.extend(old.map(|(k, v)| (k.to_vec(), v.to_vec())));
    }
    let mut set: HashSet<&[u8]> = HashSet::new();
    let (mut count, mut removed) = (0, 0);
    for (key, value) in changes {
        let replaced = match value {
            Some(value) => {
                if !set.insert(key) {
                    return Err(Error::invalid("an entry is set twice"));
                }
                count += 1;
                entries.insert(key.clone(), value.clone())
            }
            None => {
                set.remove(key.as_slice());
                entries.remove(key)
            }
        };
        removed += u64::from(replaced.is_some());
    }
    if is_counted {
        report.set += count;
        report.removed += removed;
    }
    state.elements = vec![broadcast_element(entries.into_iter().collect())?];
    Ok(())
}
