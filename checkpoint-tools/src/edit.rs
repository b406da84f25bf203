use std::collections::{HashMap, HashSet};

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata};
use state_api::{Error, KeyedHandle, OperatorStateMode, OperatorUid, Result, SnapshotKind};

use crate::copy_state::{alone, bring_over};
use crate::edit_keyed::KeyedEdit;
use crate::edit_own::OwnEdit;
use crate::find::{not_found, states_of};
use crate::rescale::with_streams;
use crate::rows::Row;
use crate::source::CheckpointSource;
use crate::target::NewCheckpoint;

/// What is changed in a checkpoint, but for single entries, which are rows of an [`Editing`].
#[derive(Clone, Debug, Default)]
pub struct Edit {
    dropped: Vec<String>,
    renamed: Vec<(String, String)>,
    must_remove: bool,
}

/// A state that is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedState {
    /// The operator, by its old uid.
    pub operator: OperatorUid,
    /// The state.
    pub state: String,
    /// Its number of entries; of a list of the operator the elements of all subtasks. `None` where nobody counted.
    pub entries: Option<u64>,
}

/// What an edit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditReport {
    /// States that are gone.
    pub dropped: Vec<DroppedState>,
    /// Operators with a new uid: old and new.
    pub renamed: Vec<(String, String)>,
    /// Entries, and elements of lists, that were set.
    pub set: u64,
    /// Entries, and elements of lists, that are gone, or that others took the place of.
    pub removed: u64,
}

/// Changes of a checkpoint that are being gathered; rows are put aside in local files.
#[derive(Debug)]
pub struct Editing<'a> {
    source: &'a CheckpointSource,
    edit: Edit,
    /// What becomes of each operator, in the order of the checkpoint.
    operators: Vec<OperatorEdit>,
    rows: u64,
}

#[derive(Debug, Default)]
struct OperatorEdit {
    /// Names of states that go.
    dropped: HashSet<String>,
    keyed: Option<KeyedEdit>,
    own: OwnEdit,
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

    /// Makes it an error that rows remove nothing, after which there is no checkpoint.
    #[must_use]
    pub fn must_remove(mut self) -> Self {
        self.must_remove = true;
        self
    }

    /// Returns whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.renamed.is_empty()
    }

    /// Begins to change a checkpoint.
    ///
    /// # Errors
    /// `NotFound` for an operator or state that is not there, naming the nearest; `InvalidArgument` when two operators would have
    /// one uid, or one operator two.
    pub fn begin(self, source: &CheckpointSource) -> Result<Editing<'_>> {
        check_renames(source, &self.renamed)?;
        let known = &source.metadata().operators;
        let mut operators: Vec<OperatorEdit> = Vec::new();
        operators.resize_with(known.len(), OperatorEdit::default);
        for name in &self.dropped {
            let state = source.state(name)?;
            let place = known.iter().position(|o| o.uid == state.operator.uid);
            if let Some(operator) = place.and_then(|place| operators.get_mut(place)) {
                operator.dropped.insert(state.meta.name.to_string());
            }
        }
        Ok(Editing {
            source,
            edit: self,
            operators,
            rows: 0,
        })
    }
}

impl Editing<'_> {
    /// Sets or deletes an entry; rows take effect in their order, and operators are named by their old uids.
    ///
    /// A row of a list with an `index` is the element of that index in the old list, or one behind its end. A deletion without
    /// namespace, map key or time deletes all of the key's. An entry that a row has set can't be set again.
    ///
    /// # Errors
    /// `NotFound` for an operator or state that is not there, naming the nearest; `InvalidArgument` when the row is no entry of
    /// its state, or its state is to be dropped; `Unsupported` for an operator's list, or where the key group of a key can't be
    /// computed; `Retryable` without room for local files.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        let source = self.source;
        let name = row
            .state()
            .ok_or_else(|| Error::invalid("a row lacks the name of its state, state"))?;
        let path = match row.operator() {
            Some(uid) => format!("{uid}/{name}"),
            None => name.to_owned(),
        };
        let state = source.state(&path)?;
        let known = &source.metadata().operators;
        let place = known.iter().position(|o| o.uid == state.operator.uid);
        let edited = place.and_then(|place| self.operators.get_mut(place));
        let edited = edited.ok_or_else(|| Error::bug("a state of no operator"))?;
        if edited.dropped.contains(&*state.meta.name) {
            return Err(
                Error::invalid("a state is to be dropped and changed").with("state", state.path())
            );
        }
        match state.mode {
            None => {
                if edited.keyed.is_none() {
                    edited.keyed = Some(KeyedEdit::new(source, state.operator)?);
                }
                if let Some(keyed) = &mut edited.keyed {
                    let now_ms = source.toolbox.clock.now_ms();
                    keyed.row(row, state.meta, now_ms)?;
                }
            }
            Some(OperatorStateMode::Broadcast) => edited.own.row(row, state.meta)?,
            Some(_) => {
                return Err(Error::unsupported(
                    "elements of an operator's list can't be set one by one",
                )
                .with("state", state.path()));
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Writes the checkpoint anew with the changes; what is read stays as it is. Optional sections that nobody knows are kept, and
    /// so is all state that is not changed, native formats included.
    ///
    /// # Errors
    /// `InvalidArgument` when an entry is set twice, or an element behind the end of its list; `NotFound` when something must be
    /// removed and nothing was; `Unsupported` where a key is in another key group than its type says; `Corrupt`, naming object,
    /// operator and subtask; those of the stores.
    pub async fn finish(self, target: NewCheckpoint) -> Result<(CheckpointMetadata, EditReport)> {
        let source = self.source;
        let mut metadata = source.metadata().clone();
        let mut report = EditReport {
            renamed: self.edit.renamed.clone(),
            ..EditReport::default()
        };
        let progress = &source.toolbox.progress;
        progress.begin("edit", metadata.total_bytes());
        metadata.operators.clear();
        let edits = self.operators.into_iter();
        for (operator, edit) in source.metadata().operators.iter().zip(edits) {
            let uid = operator.uid.as_str();
            let edited = edit.operator(operator, source, &target, &mut report).await;
            let mut edited = edited.map_err(|e| match e.context("operator") {
                Some(_) => e,
                None => e.with("operator", uid),
            })?;
            if let Some((_, to)) = self.edit.renamed.iter().find(|(from, _)| from == uid) {
                edited.uid = OperatorUid::new(to)?;
            }
            metadata.operators.push(edited);
        }
        report.dropped.sort();
        if self.edit.must_remove && report.removed == 0 {
            return Err(Error::new(
                state_api::ErrorKind::NotFound,
                "nothing is there to be removed",
            ));
        }
        let keyed = metadata.operators.iter().flat_map(|o| &o.subtasks);
        let mut keyed = keyed.flat_map(|s| &s.snapshot.managed_keyed);
        metadata.kind = if keyed.all(|handle| handle.format() == managed_state::format::CANONICAL) {
            SnapshotKind::CanonicalSavepoint
        } else {
            SnapshotKind::NativeSavepoint
        };
        metadata.operators.sort_by(|a, b| a.uid.cmp(&b.uid));
        bring_over(source, &target, &mut metadata).await?;
        target.complete(&mut metadata).await?;
        Ok((metadata, report))
    }
}

impl OperatorEdit {
    async fn operator(
        self,
        operator: &OperatorMetadata,
        source: &CheckpointSource,
        target: &NewCheckpoint,
        report: &mut EditReport,
    ) -> Result<OperatorMetadata> {
        let mut edited = operator.clone();
        let own = self
            .own
            .rewrite(operator, &self.dropped, source, target, report)
            .await?;
        // What was written anew is not copied.
        let mut copied = operator.clone();
        for (subtask, handles) in copied.subtasks.iter_mut().zip(&own) {
            if handles.is_some() {
                let mut snapshot = state_api::OperatorSnapshot::clone(&subtask.snapshot);
                snapshot.managed_operator.clear();
                subtask.snapshot = snapshot.into();
            }
        }
        let states = states_of(operator);
        let mut keyed = states.iter().filter(|s| s.mode.is_none());
        let goes = |name: &str| self.dropped.contains(name);
        let some_go = keyed.clone().any(|s| goes(&s.meta.name));
        if some_go && keyed.all(|s| goes(&s.meta.name)) {
            // Nothing is read: that it is damaged may be why it goes.
            report.dropped.extend(counted(operator));
            edited.subtasks = with_streams(&copied, Vec::new());
        } else if some_go || self.keyed.is_some() {
            let edit = match self.keyed {
                Some(edit) => edit,
                None => KeyedEdit::new(source, operator)?,
            };
            let streams = edit.rewrite(&self.dropped, source, operator, target, report);
            edited.subtasks = with_streams(&copied, streams.await?);
        } else {
            edited.subtasks = copied.subtasks.iter().map(alone).collect();
        }
        for (old, handles) in operator.subtasks.iter().zip(own) {
            let subtask = edited.subtasks.iter_mut().find(|s| s.index == old.index);
            if let (Some(handles), Some(subtask)) = (handles, subtask) {
                let mut snapshot = state_api::OperatorSnapshot::clone(&subtask.snapshot);
                snapshot.managed_operator = handles;
                subtask.snapshot = snapshot.into();
            }
        }
        Ok(edited)
    }
}

/// Returns the keyed states of an operator as dropped, with the numbers of entries that the checkpoint tells of them.
fn counted(operator: &OperatorMetadata) -> Vec<DroppedState> {
    let mut counts: HashMap<&str, Option<u64>> = HashMap::new();
    let handles = operator
        .subtasks
        .iter()
        .flat_map(|s| &s.snapshot.managed_keyed);
    for summary in handles.flat_map(KeyedHandle::states) {
        let count = counts.entry(&*summary.meta.name).or_insert(Some(0));
        *count = match (*count, summary.entries) {
            (Some(sum), state_api::EntryCount::Exact(more)) => Some(sum + more),
            _ => None,
        };
    }
    let dropped = counts.into_iter().map(|(state, entries)| DroppedState {
        operator: operator.uid.clone(),
        state: state.to_owned(),
        entries,
    });
    dropped.collect()
}

/// Checks that the uids of a renaming lead to different operators.
///
/// # Errors
/// `NotFound`, naming the nearest uid; `InvalidArgument` when two operators would have one uid, or one operator two.
fn check_renames(source: &CheckpointSource, renames: &[(String, String)]) -> Result<()> {
    let uids = source.metadata().operators.iter().map(|o| o.uid.as_str());
    for (from, to) in renames {
        if source.metadata().operator(from).is_none() {
            return Err(not_found("operator", from, uids));
        }
        OperatorUid::new(to)?;
        if from == to {
            return Err(Error::invalid(format!(
                "operator {from:?} is named so already"
            )));
        }
        if renames.iter().filter(|(other, _)| other == from).count() > 1 {
            return Err(Error::invalid(format!(
                "operator {from:?} is to be renamed twice"
            )));
        }
        let taken = uids
            .clone()
            .any(|uid| uid == to && !renames.iter().any(|(from, _)| from == uid));
        if taken || renames.iter().filter(|(_, other)| other == to).count() > 1 {
            return Err(Error::invalid(format!(
                "two operators would be named {to:?}"
            )));
        }
    }
    Ok(())
}
