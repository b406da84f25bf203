use std::collections::{HashMap, HashSet};

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata};
use managed_state::operator::{
    broadcast_element, broadcast_entries, read_operator_states, write_operator_states,
};
use state_api::{
    Error, HashId, KeyGroup, KeyGroupsHandle, OperatorSnapshot, OperatorStateMode, OperatorUid,
    Result, Scope, SnapshotKind, StateKind, StateMeta,
};

use crate::copy_state::Copier;
use crate::decode::split_key;
use crate::find::{not_found, states_of};
use crate::keyed::StoredEntry;
use crate::repartition::Repartition;
use crate::rescale::{checked_group, keyed_states, with_streams};
use crate::rows::{EncodedRow, Row};
use crate::source::{CheckpointSource, place};
use crate::target::NewCheckpoint;

/// What is changed in a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    dropped: Vec<String>,
    renamed: Vec<(String, String)>,
    rows: Vec<Row>,
}

/// What an edit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditReport {
    /// States that are gone, with their number of entries.
    pub dropped: Vec<(String, u64)>,
    /// Operators with a new uid: old and new.
    pub renamed: Vec<(String, String)>,
    /// Entries that were set.
    pub set: u64,
    /// Entries that are gone, or that others took the place of.
    pub removed: u64,
}

/// A row, and the state that it is of.
type Change<'a> = (&'a Row, StateMeta, Option<OperatorStateMode>);

/// The keyed changes of one operator.
struct KeyedEdit {
    /// Names of states that go.
    dropped: HashSet<String>,
    /// What goes, by state and encoded key.
    removed: HashMap<(String, Vec<u8>), Vec<Removal>>,
    /// What is set.
    set: Vec<(String, EncodedRow)>,
}

/// Which entries of a key go.
struct Removal {
    namespace: Option<Vec<u8>>,
    map_key: Option<Vec<u8>>,
    /// The whole stored key, where one entry is meant.
    stored: Option<Vec<u8>>,
}

impl Edit {
    /// Creates an edit that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops a state, by its name or as `uid/name`.
    #[must_use]
    pub fn drop_state(mut self, state: &str) -> Self {
        self.dropped.push(state.to_owned());
        self
    }

    /// Gives an operator another uid.
    #[must_use]
    pub fn rename(mut self, uid: &str, to: &str) -> Self {
        self.renamed.push((uid.to_owned(), to.to_owned()));
        self
    }

    /// Sets or deletes an entry; operators are named by their old uids.
    ///
    /// A row of a list with an `index` is one element: the elements of all such rows take the place of the list. A deletion
    /// without namespace or map key deletes all of the key's.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// Returns whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.renamed.is_empty() && self.rows.is_empty()
    }
}

/// Writes a checkpoint anew with changes; what is read stays as it is. Optional sections that nobody knows are kept, and so is all
/// state that is not changed, native formats included.
///
/// # Errors
/// `NotFound` for an operator or state that is not there, naming the nearest; `InvalidArgument` when a row is no entry of its
/// state, or two operators would have one uid; `Unsupported` for an operator list, or where the key group of a key can't be
/// computed; `Corrupt`, naming object, operator and subtask; those of the stores.
pub async fn edit(
    source: &CheckpointSource,
    target: NewCheckpoint,
    edit: &Edit,
) -> Result<(CheckpointMetadata, EditReport)> {
    let mut metadata = source.metadata().clone();
    let mut report = EditReport {
        renamed: edit.renamed.clone(),
        ..EditReport::default()
    };
    check_renames(source, &edit.renamed)?;
    let now_ms = source.toolbox.clock.now_ms();
    let mut dropped: HashMap<String, HashSet<String>> = HashMap::new();
    for name in &edit.dropped {
        let state = source.state(name)?;
        let of = dropped.entry(state.operator.uid.to_string()).or_default();
        of.insert(state.meta.name.to_string());
    }
    let mut rows: HashMap<String, Vec<Change<'_>>> = HashMap::new();
    for row in &edit.rows {
        let name = row
            .state()
            .ok_or_else(|| Error::invalid("a row lacks the name of its state, state"))?;
        let path = match row.operator() {
            Some(uid) => format!("{uid}/{name}"),
            None => name.to_owned(),
        };
        let state = source.state(&path)?;
        let of = rows.entry(state.operator.uid.to_string()).or_default();
        of.push((row, state.meta.clone(), state.mode));
    }
    source
        .toolbox
        .progress
        .begin("edit", metadata.total_bytes());
    metadata.operators.clear();
    let mut copier = Copier::new(source, &target);
    for operator in &source.metadata().operators {
        let uid = operator.uid.as_str();
        let rows = rows.remove(uid).unwrap_or_default();
        let dropped = dropped.remove(uid).unwrap_or_default();
        let edited = Editing {
            source,
            target: &target,
            operator,
            now_ms,
        };
        let edited = edited
            .operator(&mut copier, rows, dropped, &mut report)
            .await;
        let mut edited = edited.map_err(|e| {
            if e.context("operator").is_some() {
                e
            } else {
                e.with("operator", uid)
            }
        })?;
        if let Some((_, to)) = edit.renamed.iter().find(|(from, _)| from == uid) {
            edited.uid = OperatorUid::new(to)?;
        }
        metadata.operators.push(edited);
    }
    let keyed = metadata.operators.iter().flat_map(|o| &o.subtasks);
    let mut keyed = keyed.flat_map(|s| &s.snapshot.managed_keyed);
    metadata.kind = if keyed.all(|handle| handle.format() == managed_state::format::CANONICAL) {
        SnapshotKind::CanonicalSavepoint
    } else {
        SnapshotKind::NativeSavepoint
    };
    metadata.operators.sort_by(|a, b| a.uid.cmp(&b.uid));
    target.complete(&mut metadata).await?;
    Ok((metadata, report))
}

struct Editing<'a> {
    source: &'a CheckpointSource,
    target: &'a NewCheckpoint,
    operator: &'a OperatorMetadata,
    now_ms: i64,
}

impl Editing<'_> {
    async fn operator(
        &self,
        copier: &mut Copier<'_>,
        rows: Vec<Change<'_>>,
        dropped: HashSet<String>,
        report: &mut EditReport,
    ) -> Result<OperatorMetadata> {
        let mut edited = self.operator.clone();
        edited.coordinator = copier.coordinator(self.operator).await?;
        let states = states_of(self.operator);
        let drops_keyed = states
            .iter()
            .any(|s| s.mode.is_none() && dropped.contains(&*s.meta.name));
        if drops_keyed || rows.iter().any(|(_, _, mode)| mode.is_none()) {
            let keyed = self.keyed_edit(&rows, &dropped)?;
            let streams = self.rewrite_keyed(keyed, report).await?;
            edited.subtasks = with_streams(copier, self.operator, streams).await?;
        } else {
            edited.subtasks.clear();
            for subtask in &self.operator.subtasks {
                let copied = copier.subtask(subtask).await;
                edited
                    .subtasks
                    .push(copied.map_err(|e| place(e, self.operator, subtask))?);
            }
        }
        self.own_states(&mut edited, &rows, &dropped, report)
            .await?;
        Ok(edited)
    }

    fn keyed_edit(&self, rows: &[Change<'_>], dropped: &HashSet<String>) -> Result<KeyedEdit> {
        let mut keyed = KeyedEdit {
            dropped: dropped.clone(),
            removed: HashMap::new(),
            set: Vec::new(),
        };
        for (row, meta, _) in rows.iter().filter(|(_, _, mode)| mode.is_none()) {
            let name = meta.name.to_string();
            let encoded = row.encode(meta, self.now_ms)?;
            let deletes = row.is_deletion();
            let is_one = !deletes || meta.kind == StateKind::Timer && row.has("time_ms");
            let removal = Removal {
                namespace: (!deletes || row.has("namespace")).then(|| encoded.namespace.clone()),
                map_key: (!deletes || row.has("map_key")).then(|| encoded.map_key.clone()),
                stored: is_one.then(|| encoded.stored.clone()),
            };
            let of = keyed.removed.entry((name.clone(), encoded.key.clone()));
            of.or_default().push(removal);
            if !deletes {
                keyed.set.push((name, encoded));
            }
        }
        Ok(keyed)
    }

    /// Writes the keyed state of all subtasks anew.
    async fn rewrite_keyed(
        &self,
        edit: KeyedEdit,
        report: &mut EditReport,
    ) -> Result<Vec<Option<KeyGroupsHandle>>> {
        let (source, operator) = (self.source, self.operator);
        let (max, hash) = (operator.max_parallelism, operator.hash);
        let mut states = keyed_states(operator)?;
        states.retain(|meta| !edit.dropped.contains(&*meta.name));
        let mut into = Repartition::new(states, max, source.toolbox.scratch()?);
        let mut counts: HashMap<String, u64> = HashMap::new();
        for subtask in &operator.subtasks {
            let read = async {
                let part = source.open_part(operator, subtask, None).await?;
                let take = &mut |stored: StoredEntry<'_>| {
                    let name = &*stored.state.name;
                    if edit.dropped.contains(name) {
                        *counts.entry(name.to_owned()).or_default() += 1;
                        return Ok(());
                    }
                    if edit.touches(&stored, hash, max)? {
                        report.removed += 1;
                        return Ok(());
                    }
                    let column = into.column(name);
                    let column = column.ok_or_else(|| Error::bug("a state without a number"))?;
                    into.push(stored.group, column, stored.key, stored.value)
                };
                part.read(max.all_groups(), take).await?;
                source.toolbox.progress.advance(part.total_bytes());
                Ok(())
            };
            read.await.map_err(|e| place(e, operator, subtask))?;
        }
        report.dropped.extend(counts);
        report.dropped.sort();
        for (name, row) in edit.set {
            let column = into.column(&name).ok_or_else(|| {
                Error::invalid("a state is to be dropped and changed").with("state", &name)
            })?;
            let schema = into.states()[column].key.schema.clone();
            let group: KeyGroup = hash.group_of_encoded(&schema, &row.key, max)?;
            into.push(group, column, &row.stored, &row.value)?;
            report.set += 1;
        }
        let id = source.metadata().checkpoint;
        let storage = self.target.storage();
        let done = into.finish(operator.parallelism, id, &storage).await?;
        Ok(done.handles)
    }

    /// Changes lists and maps of the operator itself, in the handles of a copy.
    async fn own_states(
        &self,
        edited: &mut OperatorMetadata,
        rows: &[Change<'_>],
        dropped: &HashSet<String>,
        report: &mut EditReport,
    ) -> Result<()> {
        let rows: Vec<_> = rows.iter().filter(|(_, _, mode)| mode.is_some()).collect();
        if let Some((_, meta, _)) = rows
            .iter()
            .find(|(_, _, mode)| *mode != Some(OperatorStateMode::Broadcast))
        {
            return Err(Error::unsupported(
                "elements of an operator's list can't be set one by one",
            )
            .with("state", &meta.name));
        }
        let mut counted = false;
        for (subtask, old) in edited.subtasks.iter_mut().zip(&self.operator.subtasks) {
            let mut snapshot = OperatorSnapshot::clone(&subtask.snapshot);
            // Of what is dropped only the description goes: its bytes are in a stream with others.
            for handle in &mut snapshot.managed_operator {
                handle.states.retain(|part| {
                    let goes = dropped.contains(&*part.meta.name);
                    if goes {
                        let gone = (part.meta.name.to_string(), part.elements.len() as u64);
                        report.dropped.push(gone);
                    }
                    !goes
                });
            }
            snapshot
                .managed_operator
                .retain(|handle| !handle.states.is_empty());
            if !rows.is_empty() {
                let mut handles = Vec::new();
                for handle in &old.snapshot.managed_operator {
                    let mut states = read_operator_states(handle, &**self.source.storage()).await?;
                    states.retain(|state| !dropped.contains(&*state.meta.name));
                    for state in &mut states {
                        let of = rows
                            .iter()
                            .filter(|(_, meta, _)| meta.name == state.meta.name);
                        let of: Vec<&Row> = of.map(|(row, _, _)| *row).collect();
                        if of.is_empty() {
                            continue;
                        }
                        let mut entries: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
                        if let Some(element) = state.elements.last() {
                            let old = broadcast_entries(element)?.into_iter();
                            entries.extend(old.map(|(k, v)| (k.to_vec(), v.to_vec())));
                        }
                        for row in of {
                            let (key, value) = row.encode_broadcast(&state.meta)?;
                            let replaced = if row.is_deletion() {
                                entries.remove(&key)
                            } else {
                                report.set += u64::from(!counted);
                                entries.insert(key, value)
                            };
                            report.removed += u64::from(replaced.is_some() && !counted);
                        }
                        state.elements = vec![broadcast_element(entries.into_iter().collect())?];
                    }
                    let id = self.source.metadata().checkpoint;
                    let stream = self.target.storage().create(id, Scope::Exclusive);
                    handles.extend(write_operator_states(states, stream).await?);
                }
                // Every subtask has the same map: it is counted once.
                counted = !handles.is_empty() || counted;
                snapshot.managed_operator = handles;
            }
            subtask.snapshot = snapshot.into();
        }
        Ok(())
    }
}

impl KeyedEdit {
    /// Says whether an entry goes, or another one takes its place.
    fn touches(
        &self,
        stored: &StoredEntry<'_>,
        hash: HashId,
        max: state_api::MaxParallelism,
    ) -> Result<bool> {
        if self.removed.is_empty() {
            return Ok(false);
        }
        let named = |e: Error| e.with("state", &stored.state.name);
        let parts = split_key(stored.state, stored.key).map_err(named)?;
        if !self.set.is_empty() {
            // What is set must be found by the job: its hash must be the one that we compute.
            checked_group(hash, stored, parts.key.1, max, max)?;
        }
        let id = (stored.state.name.to_string(), parts.key.1.to_vec());
        let removals = self.removed.get(&id);
        let matches = |removal: &Removal| match &removal.stored {
            Some(one) => one == stored.key,
            None => {
                let is = |wanted: &Option<Vec<u8>>, found: &[u8]| {
                    wanted.as_ref().is_none_or(|wanted| wanted == found)
                };
                is(&removal.namespace, parts.namespace.1) && is(&removal.map_key, parts.rest)
            }
        };
        Ok(removals.is_some_and(|removals| removals.iter().any(matches)))
    }
}

/// Checks that the uids of a renaming lead to different operators.
///
/// # Errors
/// `NotFound`, naming the nearest uid; `InvalidArgument` when two operators would have one uid.
fn check_renames(source: &CheckpointSource, renames: &[(String, String)]) -> Result<()> {
    let uids = source.metadata().operators.iter().map(|o| o.uid.as_str());
    for (from, to) in renames {
        if source.metadata().operator(from).is_none() {
            return Err(not_found("operator", from, uids));
        }
        OperatorUid::new(to)?;
        let taken = uids
            .clone()
            .any(|uid| uid == to && !renames.iter().any(|(from, to)| from == uid && to != uid));
        if taken || renames.iter().filter(|(_, other)| other == to).count() > 1 {
            return Err(Error::invalid(format!(
                "two operators would be named {to:?}"
            )));
        }
    }
    Ok(())
}
