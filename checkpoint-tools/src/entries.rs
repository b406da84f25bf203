use std::ops::ControlFlow;

use checkpoint_storage::{OperatorMetadata, SubtaskMetadata};
use managed_state::operator::{StoredOperatorState, broadcast_entries, read_operator_states};
use state_api::{
    Error, KeyGroupsHandle, OperatorStateHandle, OperatorStateMode, Result, StateMeta,
};

use crate::decode::{Decoder, decode_all, map_key_type};
use crate::entry::{Entry, Item, RawKind, RawPart};
use crate::find::{FoundState, not_found};
use crate::source::{CheckpointSource, place};

/// Which operators and states are read; all of them unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    operators: Vec<String>,
    states: Vec<String>,
    leaves_out_raw: bool,
}

impl Selection {
    /// Selects everything.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Adds an operator to those that are read, by its uid.
    #[must_use]
    pub fn operator(mut self, uid: &str) -> Self {
        self.operators.push(uid.to_owned());
        self
    }

    /// Adds a state to those that are read, by its name or as `uid/name`. Raw bytes are left out then.
    #[must_use]
    pub fn state(mut self, name: &str) -> Self {
        self.states.push(name.to_owned());
        self
    }

    /// Leaves out raw bytes.
    #[must_use]
    pub fn without_raw(mut self) -> Self {
        self.leaves_out_raw = true;
        self
    }

    /// Says whether states are read of an operator.
    pub fn has_operator(&self, uid: &str) -> bool {
        self.operators.is_empty() || self.operators.iter().any(|named| named == uid)
    }

    /// Says whether a state is read.
    pub fn has_state(&self, operator: &str, state: &str) -> bool {
        let is = |named: &String| {
            *named == state
                || named
                    .strip_prefix(operator)
                    .and_then(|rest| rest.strip_prefix('/'))
                    == Some(state)
        };
        self.has_operator(operator) && (self.states.is_empty() || self.states.iter().any(is))
    }

    fn has_raw(&self) -> bool {
        !self.leaves_out_raw && self.states.is_empty()
    }

    /// Checks that everything that is named is there.
    ///
    /// # Errors
    /// `NotFound`, naming the nearest name.
    pub fn check(&self, source: &CheckpointSource) -> Result<()> {
        for uid in &self.operators {
            source.operator(uid)?;
        }
        let states = source.states();
        for name in &self.states {
            let (chosen, others): (Vec<_>, Vec<_>) = states
                .iter()
                .partition(|state| self.has_operator(state.operator.uid.as_str()));
            let is_named =
                |state: &&FoundState<'_>| &*state.meta.name == name || state.path() == *name;
            if chosen.iter().any(is_named) {
                continue;
            }
            if let Some(other) = others.iter().find(|state| is_named(state)) {
                return Err(Error::not_found(format!(
                    "the operators that were named have no state {name:?}, but {} has",
                    other.operator.uid
                )));
            }
            let names = chosen.iter().map(|state| &*state.meta.name);
            return Err(not_found("state", name, names));
        }
        Ok(())
    }
}

/// Ends a reading that has read enough: it is no failure.
pub(crate) struct Enough;

impl Enough {
    const MESSAGE: &'static str = "the reader has what it wanted";

    pub(crate) fn error() -> Error {
        Error::cancelled(Self::MESSAGE)
    }

    pub(crate) fn is(error: &Error) -> bool {
        error.message() == Self::MESSAGE
    }
}

/// Takes entries and says whether there shall be more.
type Take<'a> = dyn FnMut(Item) -> Result<ControlFlow<()>> + 'a;

impl CheckpointSource {
    /// Hands over what is selected, one entry after the other: operator by operator, subtask by subtask, key group by key group.
    ///
    /// Memory does not grow beyond one key group, or the operator state of one subtask. Digests of whole objects are compared
    /// after their last entry, checksums of key groups before: an error at the end can mean that what came before is to be
    /// thrown away. A broadcast state is read from the first subtask that has it; the others have the same. What `take` returns
    /// ends the reading early.
    ///
    /// # Errors
    /// `NotFound` for a name that is not there, with the nearest one; `Corrupt`, naming object, operator and subtask;
    /// `Unsupported` for a native format that is not known; those of the storage and of `take`.
    pub async fn entries(&self, selection: &Selection, take: &mut Take<'_>) -> Result<()> {
        selection.check(self)?;
        let operators = self.metadata().operators.iter();
        let chosen: Vec<&OperatorMetadata> = operators
            .filter(|operator| selection.has_operator(operator.uid.as_str()))
            .collect();
        let bytes = chosen.iter().flat_map(|operator| operator.parts());
        let bytes = bytes.map(|(_, part)| part.len()).sum();
        self.toolbox.progress.begin("read", bytes);
        let mut take = |item| match take(item)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Enough::error()),
        };
        for operator in chosen {
            let read = self.operator_entries(operator, selection, &mut take);
            match read.await {
                Err(error) if Enough::is(&error) => return Ok(()),
                done => done?,
            }
        }
        Ok(())
    }

    async fn operator_entries(
        &self,
        operator: &OperatorMetadata,
        selection: &Selection,
        take: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<()> {
        let mut seen_broadcast = Vec::new();
        for subtask in &operator.subtasks {
            let read = async {
                self.keyed_entries(operator, subtask, selection, take)
                    .await?;
                for handle in &subtask.snapshot.managed_operator {
                    let read = OperatorEntries {
                        operator,
                        subtask,
                        selection,
                    };
                    read.hand_over(self, handle, &mut seen_broadcast, take)
                        .await?;
                }
                if selection.has_raw() {
                    raw_parts(operator, subtask, take)?;
                }
                Ok(())
            };
            read.await.map_err(|e| {
                if Enough::is(&e) {
                    e
                } else {
                    place(e, operator, subtask)
                }
            })?;
        }
        match &operator.coordinator {
            Some(bytes) if selection.has_raw() => take(Item::Raw(RawPart {
                operator: operator.uid.clone(),
                subtask: None,
                kind: RawKind::Coordinator,
                key_group: None,
                partition: None,
                bytes: bytes.len(),
            })),
            _ => Ok(()),
        }
    }

    async fn keyed_entries(
        &self,
        operator: &OperatorMetadata,
        subtask: &SubtaskMetadata,
        selection: &Selection,
        take: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<()> {
        let uid = operator.uid.as_str();
        let mut states = subtask
            .snapshot
            .managed_keyed
            .iter()
            .flat_map(|h| h.states());
        if !states.any(|state| selection.has_state(uid, &state.meta.name)) {
            return Ok(());
        }
        let groups = operator.max_parallelism.all_groups();
        let part = self.open_part(operator, subtask, groups, None).await?;
        let decoder = Decoder::new(operator.uid.clone(), subtask.index);
        part.read(groups, &mut |stored| {
            if !selection.has_state(uid, &stored.state.name) {
                return Ok(());
            }
            decoder.entry(stored, &mut |entry| take(Item::Entry(Box::new(entry))))
        })
        .await
    }
}

/// The operator state of one subtask on its way out.
struct OperatorEntries<'a> {
    operator: &'a OperatorMetadata,
    subtask: &'a SubtaskMetadata,
    selection: &'a Selection,
}

impl OperatorEntries<'_> {
    async fn hand_over(
        &self,
        source: &CheckpointSource,
        handle: &OperatorStateHandle,
        seen_broadcast: &mut Vec<std::sync::Arc<str>>,
        take: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<()> {
        let uid = self.operator.uid.as_str();
        let wanted = |meta: &StateMeta| self.selection.has_state(uid, &meta.name);
        if !handle.states.iter().any(|part| wanted(&part.meta)) {
            return Ok(());
        }
        let states = read_operator_states(handle, &**source.storage()).await?;
        let decoder = Decoder::new(self.operator.uid.clone(), self.subtask.index);
        for state in states.iter().filter(|state| wanted(&state.meta)) {
            if state.mode == OperatorStateMode::Broadcast {
                if seen_broadcast.contains(&state.meta.name) {
                    continue;
                }
                seen_broadcast.push(state.meta.name.clone());
            }
            operator_state(&decoder, state, &mut |entry| {
                take(Item::Entry(Box::new(entry)))
            })
            .map_err(|e| {
                if Enough::is(&e) {
                    e
                } else {
                    e.with("state", &state.meta.name)
                }
            })?;
        }
        Ok(())
    }
}

/// Decodes the elements of an operator state.
pub(crate) fn operator_state(
    decoder: &Decoder,
    state: &StoredOperatorState,
    take: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let meta = &state.meta;
    let mut blank = decoder.blank(meta);
    blank.mode = Some(state.mode);
    if state.mode == OperatorStateMode::Broadcast {
        // Copies of one map, were there several: the last one holds.
        let Some(element) = state.elements.last() else {
            return Ok(());
        };
        for (key, value) in broadcast_entries(element)? {
            let mut entry = blank.clone();
            entry.map_key = Some(decode_all(map_key_type(meta)?, key)?);
            entry.value = Some(decode_all(&meta.value, value)?);
            take(entry)?;
        }
        return Ok(());
    }
    for (index, element) in state.elements.iter().enumerate() {
        let mut entry = blank.clone();
        entry.index = Some(index as u64);
        entry.value = Some(decode_all(&meta.value, element)?);
        take(entry)?;
    }
    Ok(())
}

/// Lists bytes that only the operator can read.
fn raw_parts(
    operator: &OperatorMetadata,
    subtask: &SubtaskMetadata,
    take: &mut dyn FnMut(Item) -> Result<()>,
) -> Result<()> {
    let part = |kind, key_group, partition, bytes| {
        Item::Raw(RawPart {
            operator: operator.uid.clone(),
            subtask: Some(subtask.index),
            kind,
            key_group,
            partition,
            bytes,
        })
    };
    let snapshot = &subtask.snapshot;
    let keyed = |handles: &[KeyGroupsHandle], kind, take: &mut dyn FnMut(Item) -> Result<()>| {
        let extents = handles.iter().flat_map(|handle| handle.offsets.iter());
        extents
            .filter(|(_, extent)| !extent.is_empty())
            .try_for_each(|(group, extent)| take(part(kind, Some(group), None, extent.len)))
    };
    keyed(&snapshot.raw_keyed, RawKind::Keyed, take)?;
    keyed(&snapshot.in_flight_keyed, RawKind::InFlightKeyed, take)?;
    for (handles, kind) in [
        (&snapshot.raw_operator, RawKind::Operator),
        (&snapshot.in_flight, RawKind::InFlight),
    ] {
        let states = handles.iter().flat_map(|handle| &handle.states);
        let elements = states.flat_map(|state| &state.elements);
        for (number, (_, bytes)) in elements.enumerate() {
            take(part(kind, None, Some(number as u64), *bytes))?;
        }
    }
    Ok(())
}
