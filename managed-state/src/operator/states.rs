use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use state_api::{
    CodecKind, Error, OperatorStateHandle, OperatorStateMode, OperatorStatePart, RestoreContext,
    Result, Snapshot, SnapshotRequest, StateKey, StateKind, StateMeta, StateOptions, StateType,
    TypeMeta,
};

use super::broadcast::{BroadcastMap, BroadcastSlot, BroadcastView};
use super::list::{ListSlot, OperatorList};
use super::part::{Carried, FrozenPart, OperatorSlot};
use super::snapshot::OperatorStateSnapshot;
use super::token::{BroadcastState, OperatorListState, Slot};
use crate::format::{OPERATOR_MAGIC, check_header, naming, object_name, read_all};

/// Numbers the sets of states of a process, so that a token can't be used with another operator's states.
static OWNERS: AtomicU32 = AtomicU32::new(0);

/// The list and broadcast states of one operator subtask.
///
/// States are registered by name; registering one again in the same mode and with the same types returns the same state.
/// Restored states that are not registered are carried unchanged into later snapshots; union lists, of which every subtask has
/// the whole, by the first subtask alone.
pub struct OperatorStates {
    owner: u32,
    slots: Vec<Box<dyn OperatorSlot>>,
    names: BTreeMap<Arc<str>, u32>,
    unregistered: BTreeMap<Arc<str>, Arc<Carried>>,
    restored: bool,
    /// Every subtask has restored the whole of a union list; the first one alone writes it on, or it would multiply.
    is_first: bool,
}

impl Default for OperatorStates {
    fn default() -> Self {
        Self::new()
    }
}

impl OperatorStates {
    /// Creates an empty set of states, of an operator's only subtask.
    #[must_use]
    pub fn new() -> Self {
        Self::of_subtask(0)
    }

    /// Creates an empty set of states of one of an operator's subtasks, which are numbered from 0.
    #[must_use]
    pub fn of_subtask(index: u32) -> Self {
        Self {
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            slots: Vec::new(),
            names: BTreeMap::new(),
            unregistered: BTreeMap::new(),
            restored: false,
            is_first: index == 0,
        }
    }

    /// Returns whether state was restored.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// Takes up the elements that the handles list; who gets which is decided by whoever assigns the handles.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, when bytes are missing or damaged; `Incompatible` when two handles disagree about a state;
    /// `InvalidArgument` when states are registered already.
    pub async fn restore(
        &mut self,
        handles: &[OperatorStateHandle],
        cx: &RestoreContext,
    ) -> Result<()> {
        if !self.slots.is_empty() {
            return Err(Error::invalid(
                "state must be restored before states are registered",
            ));
        }
        self.restored = true;
        let mut restored: BTreeMap<Arc<str>, Carried> = BTreeMap::new();
        for handle in handles {
            let bytes = read_all(&handle.bytes, &*cx.storage).await?;
            take_up(handle, &bytes, &mut restored)
                .map_err(|e| naming(e, &object_name(&handle.bytes)))?;
        }
        self.unregistered = restored
            .into_iter()
            .map(|(name, carried)| (name, Arc::new(carried)))
            .collect();
        Ok(())
    }

    /// Registers a list whose elements are dealt out evenly on restore.
    ///
    /// # Errors
    /// `InvalidArgument` when a state of that name is registered in another mode or with other types, `Incompatible` when a
    /// restored one can't become this one, `Unsupported` for a time-to-live.
    pub fn list<T: StateType>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<OperatorListState<T>> {
        self.any_list(options.into(), OperatorStateMode::Split)
    }

    /// Registers a list of which every subtask gets all elements on restore.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn union_list<T: StateType>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<OperatorListState<T>> {
        self.any_list(options.into(), OperatorStateMode::Union)
    }

    fn any_list<T: StateType>(
        &mut self,
        options: StateOptions,
        mode: OperatorStateMode,
    ) -> Result<OperatorListState<T>> {
        let meta = meta(
            &options,
            StateKind::OperatorList,
            None,
            TypeMeta::of::<T>(options.codec),
        );
        let slot = self.register(&options, meta, mode, |meta| ListSlot::<T> {
            meta,
            mode,
            list: OperatorList::default(),
        })?;
        Ok(OperatorListState::new(slot))
    }

    /// Registers a broadcast state: a map of which every subtask has a copy.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn broadcast<K: StateKey, V: StateType>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<BroadcastState<K, V>> {
        let options = options.into();
        let key = TypeMeta::of::<K>(options.codec);
        let meta = meta(
            &options,
            StateKind::Broadcast,
            Some(key),
            TypeMeta::of::<V>(options.codec),
        );
        let slot = self.register(
            &options,
            meta,
            OperatorStateMode::Broadcast,
            BroadcastSlot::<K, V>::new,
        )?;
        Ok(BroadcastState::new(slot))
    }

    fn register<S: OperatorSlot>(
        &mut self,
        options: &StateOptions,
        meta: StateMeta,
        mode: OperatorStateMode,
        make: impl FnOnce(StateMeta) -> S,
    ) -> Result<Slot> {
        let name = &options.name;
        if name.is_empty() {
            return Err(Error::invalid("a state needs a name"));
        }
        if options.ttl.is_some() {
            return Err(
                Error::unsupported("operator state has no time-to-live").with("state", name)
            );
        }
        if let Some(&index) = self.names.get(name) {
            let slot = self
                .slots
                .get(index as usize)
                .ok_or_else(|| Error::bug("a name points at no state"))?;
            if slot.mode() != mode {
                return Err(Error::invalid(other_mode(slot.mode(), mode)).with("state", name));
            }
            if *slot.meta() != meta {
                return Err(
                    Error::invalid("the state is registered with other types").with("state", name)
                );
            }
            return Ok(Slot {
                owner: self.owner,
                index,
            });
        }
        let index = u32::try_from(self.slots.len())
            .map_err(|_| Error::limit("an operator has too many states"))?;
        let mut slot = make(meta);
        if let Some(carried) = self.unregistered.get(name) {
            if carried.mode != mode {
                return Err(Error::incompatible(other_mode(carried.mode, mode)).with("state", name));
            }
            slot.load(&carried.meta, &carried.elements).map_err(|e| {
                if e.context("state").is_some() {
                    e
                } else {
                    e.with("state", name)
                }
            })?;
            self.unregistered.remove(name);
        }
        self.slots.push(Box::new(slot));
        self.names.insert(Arc::clone(name), index);
        Ok(Slot {
            owner: self.owner,
            index,
        })
    }

    fn slot<S: OperatorSlot>(&self, slot: Slot) -> Result<&S> {
        self.check(slot)?;
        let slot: &dyn Any = self
            .slots
            .get(slot.index as usize)
            .ok_or_else(wrong_type)?
            .as_ref();
        slot.downcast_ref().ok_or_else(wrong_type)
    }

    fn slot_mut<S: OperatorSlot>(&mut self, slot: Slot) -> Result<&mut S> {
        self.check(slot)?;
        let slot: &mut dyn Any = self
            .slots
            .get_mut(slot.index as usize)
            .ok_or_else(wrong_type)?
            .as_mut();
        slot.downcast_mut().ok_or_else(wrong_type)
    }

    fn check(&self, slot: Slot) -> Result<()> {
        if slot.owner == self.owner {
            return Ok(());
        }
        Err(Error::invalid(
            "the state is not registered here: keep the token that registration returns",
        ))
    }

    /// Returns the elements of a list.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that was not issued here.
    pub fn elements<T: StateType>(&self, state: OperatorListState<T>) -> Result<&OperatorList<T>> {
        Ok(&self.slot::<ListSlot<T>>(state.slot)?.list)
    }

    /// Returns the elements of a list, for changing them.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that was not issued here.
    pub fn elements_mut<T: StateType>(
        &mut self,
        state: OperatorListState<T>,
    ) -> Result<&mut OperatorList<T>> {
        Ok(&mut self.slot_mut::<ListSlot<T>>(state.slot)?.list)
    }

    /// Returns the entries of a broadcast state, for reading only.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that was not issued here.
    pub fn entries<K: StateKey, V: StateType>(
        &self,
        state: BroadcastState<K, V>,
    ) -> Result<BroadcastView<'_, K, V>> {
        Ok(self.slot::<BroadcastSlot<K, V>>(state.slot)?.map.view())
    }

    /// Returns the entries of a broadcast state, for changing them: what the broadcast side may do.
    ///
    /// # Errors
    /// `InvalidArgument` for a token that was not issued here.
    pub fn entries_mut<K: StateKey, V: StateType>(
        &mut self,
        state: BroadcastState<K, V>,
    ) -> Result<&mut BroadcastMap<K, V>> {
        Ok(&mut self.slot_mut::<BroadcastSlot<K, V>>(state.slot)?.map)
    }

    /// Describes the registered states, and how each is dealt out, in the order of their registration.
    #[must_use]
    pub fn descriptions(&self) -> Vec<(StateMeta, OperatorStateMode)> {
        let slots = self.slots.iter();
        slots
            .map(|slot| (slot.meta().clone(), slot.mode()))
            .collect()
    }

    /// Returns the names of list states, restored ones that are not registered included.
    #[must_use]
    pub fn list_names(&self) -> Vec<&str> {
        self.names_where(|mode| mode != OperatorStateMode::Broadcast)
    }

    /// Returns the names of broadcast states, restored ones that are not registered included.
    #[must_use]
    pub fn broadcast_names(&self) -> Vec<&str> {
        self.names_where(|mode| mode == OperatorStateMode::Broadcast)
    }

    fn names_where(&self, wanted: impl Fn(OperatorStateMode) -> bool) -> Vec<&str> {
        let registered = self
            .slots
            .iter()
            .map(|slot| (&slot.meta().name, slot.mode()));
        let carried = self
            .unregistered
            .values()
            .map(|carried| (&carried.meta.name, carried.mode));
        let mut names: Vec<&str> = registered
            .chain(carried)
            .filter(|(_, mode)| wanted(*mode))
            .map(|(name, _)| &**name)
            .collect();
        names.sort_unstable();
        names
    }

    /// Freezes all states and returns the async part of a snapshot; it yields no handle if there are no states.
    ///
    /// # Errors
    /// None so far.
    pub fn snapshot(
        &mut self,
        _request: &SnapshotRequest,
    ) -> Result<Box<dyn Snapshot<Option<OperatorStateHandle>>>> {
        let registered = self.slots.iter().map(|slot| slot.freeze());
        let carried = self.unregistered.values();
        let carried = carried
            .filter(|carried| self.is_first || carried.mode != OperatorStateMode::Union)
            .map(|carried| Box::new(Arc::clone(carried)) as Box<dyn FrozenPart>);
        Ok(Box::new(OperatorStateSnapshot {
            parts: registered.chain(carried).collect(),
        }))
    }
}

fn meta(
    options: &StateOptions,
    kind: StateKind,
    map_key: Option<TypeMeta>,
    value: TypeMeta,
) -> StateMeta {
    StateMeta {
        name: Arc::clone(&options.name),
        kind,
        key: TypeMeta::of::<()>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key,
        value,
        ttl_ms: None,
    }
}

pub(super) fn other_mode(is: OperatorStateMode, wanted: OperatorStateMode) -> String {
    let word = |mode| match mode {
        OperatorStateMode::Split => "a split list",
        OperatorStateMode::Union => "a union list",
        OperatorStateMode::Broadcast => "a broadcast state",
    };
    format!(
        "the state is {}, it can't be had as {}",
        word(is),
        word(wanted)
    )
}

#[cold]
fn wrong_type() -> Error {
    Error::bug("a token names a state of another type")
}

/// Cuts the elements that a handle lists out of its stream.
fn take_up(
    handle: &OperatorStateHandle,
    stream: &Bytes,
    restored: &mut BTreeMap<Arc<str>, Carried>,
) -> Result<()> {
    check_header(OPERATOR_MAGIC, stream)?;
    for part in &handle.states {
        let carried = restored
            .entry(Arc::clone(&part.meta.name))
            .or_insert_with(|| Carried {
                meta: part.meta.clone(),
                mode: part.mode,
                elements: Vec::new(),
            });
        if carried.meta != part.meta || carried.mode != part.mode {
            return Err(
                Error::incompatible("parts of the snapshot disagree about a state")
                    .with("state", &part.meta.name),
            );
        }
        for &(offset, len) in &part.elements {
            carried.elements.push(element(stream, part, offset, len)?);
        }
    }
    Ok(())
}

/// Cuts one element out of a stream.
pub(super) fn element(
    stream: &Bytes,
    part: &OperatorStatePart,
    offset: u64,
    len: u64,
) -> Result<Bytes> {
    let start = usize::try_from(offset).ok();
    let end = offset
        .checked_add(len)
        .and_then(|end| usize::try_from(end).ok());
    match (start, end) {
        (Some(start), Some(end)) if end <= stream.len() => Ok(stream.slice(start..end)),
        _ => Err(
            Error::corrupt("an element does not lie where its handle says")
                .with("state", &part.meta.name),
        ),
    }
}
