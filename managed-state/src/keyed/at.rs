use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use state_api::access::{Aggregator, ListAccess, MapAccess};
use state_api::{Error, KeyGroup, OrderedKey, Result, StateKey, StateType};

use super::form::{ListForm, MapForm, SortedMapForm, ValueForm};
use super::live_list::LiveListView;
use super::live_map::LiveMapView;
use super::live_merge::{merge_lists, merge_values};
use super::live_slot::{Address, TableSlot, table_hash};
use super::live_value::{LiveAggregating, LiveReducing, LiveValue, ReduceFn};
use super::register::{AggregatingExtra, ReducingExtra, ValueExtra};
use super::stamp::{Plain, Timed};
use super::states::{KeyedStates, LiveSlots, Slots, position, wrong_type};
use super::timers::TimersView;
use super::token::{
    AggregatingState, ListState, MapState, ReducingState, Slot, SortedMapState, Timers, ValueState,
};
use super::view::{
    AggregatingView, ListView, MapView, ReducingView, SortedMapView, ValueView, View,
};

/// The namespace of state that has none.
const VOID: &() = &();

/// The states of an operator, bound to one key: the only way to reach them.
///
/// Hash and key group are computed once and shared by all states. A view borrows this value, so two views can't be held
/// at once; to go through one state while writing others use [`for_each_entry`](Self::for_each_entry) and its like.
pub struct At<'a, K> {
    pub(crate) states: &'a mut KeyedStates<K>,
    key: &'a K,
    hash: u64,
    group: KeyGroup,
    /// Position of the group in the subtask's range; past its end if the group is not ours.
    place: usize,
}

impl<'a, K: StateKey> At<'a, K> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(states: &'a mut KeyedStates<K>, key: &'a K) -> Self {
        let hash = key.stable_hash();
        let group = states
            .cx
            .hash
            .group_with_hash(key, hash, states.cx.max_parallelism);
        if let Slots::Bytes(bytes) = &mut states.slots {
            bytes.bind(key, group);
        }
        let place = group.index().wrapping_sub(states.cx.range.start().index());
        Self {
            states,
            key,
            hash,
            group,
            place,
        }
    }

    /// Returns the key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// Returns the key group of the key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[must_use]
    pub fn key_group(&self) -> KeyGroup {
        self.group
    }

    /// Returns the processing time in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.states.cx.clock.now_ms()
    }

    /// Finds where a token's state is: its position, and the address of this key in a live table.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn locate<'s, N: StateKey>(
        &'s mut self,
        slot: Slot,
        namespace: &'s N,
    ) -> Result<(usize, &'s mut Slots<K>, Address<'s, K, N>)> {
        let index = position(self.states.owner, slot)?;
        if self.place >= self.states.cx.range.len() {
            return Err(misrouted(self.group));
        }
        let limit = self.states.memory_limit();
        let hash = table_hash(self.hash, namespace, self.states.cx.seed);
        let address = Address {
            group: self.place,
            hash,
            key: self.key,
            namespace,
            limit,
        };
        Ok((index, &mut self.states.slots, address))
    }

    /// Returns a value state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn value<T: StateType>(&mut self, state: ValueState<T>) -> ValueView<'_, K, (), T> {
        self.value_in(state, VOID)
    }

    /// Returns a value state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn value_in<'s, T: StateType, N: StateKey>(
        &'s mut self,
        state: ValueState<T, N>,
        namespace: &'s N,
    ) -> ValueView<'s, K, N, T> {
        ValueView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type ValueSlot<K, N, T, S> = TableSlot<K, N, ValueForm<T, S>, ValueExtra<T>>;
                on_slot!(live, index,
                    plain ValueSlot<K, N, T, Plain<T>>, timed ValueSlot<K, N, T, Timed<T>>,
                    slot => {
                        let (cell, extra) = slot.cursor(at);
                        LiveValue { cell, default: extra.default.as_ref() }
                    }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.value(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns a list state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn list<T: StateType>(&mut self, state: ListState<T>) -> ListView<'_, K, (), T> {
        self.list_in(state, VOID)
    }

    /// Returns a list state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn list_in<'s, T: StateType, N: StateKey>(
        &'s mut self,
        state: ListState<T, N>,
        namespace: &'s N,
    ) -> ListView<'s, K, N, T> {
        ListView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type ListSlot<K, N, T, S> = TableSlot<K, N, ListForm<T, S>, ()>;
                on_slot!(live, index,
                    plain ListSlot<K, N, T, Plain<T>>, timed ListSlot<K, N, T, Timed<T>>,
                    slot => LiveListView { cell: slot.cursor(at).0, types: PhantomData }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.list(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns a map state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn map<MK: StateKey, MV: StateType>(
        &mut self,
        state: MapState<MK, MV>,
    ) -> MapView<'_, K, (), MK, MV> {
        self.map_in(state, VOID)
    }

    /// Returns a map state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn map_in<'s, MK: StateKey, MV: StateType, N: StateKey>(
        &'s mut self,
        state: MapState<MK, MV, N>,
        namespace: &'s N,
    ) -> MapView<'s, K, N, MK, MV> {
        MapView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type MapSlot<K, N, MK, MV, S> = TableSlot<K, N, MapForm<MK, MV, S>, ()>;
                on_slot!(live, index,
                    plain MapSlot<K, N, MK, MV, Plain<MV>>, timed MapSlot<K, N, MK, MV, Timed<MV>>,
                    slot => LiveMapView { cell: slot.cursor(at).0, types: PhantomData }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.map(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns a sorted map state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn sorted_map<MK: OrderedKey, MV: StateType>(
        &mut self,
        state: SortedMapState<MK, MV>,
    ) -> SortedMapView<'_, K, (), MK, MV> {
        self.sorted_map_in(state, VOID)
    }

    /// Returns a sorted map state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn sorted_map_in<'s, MK: OrderedKey, MV: StateType, N: StateKey>(
        &'s mut self,
        state: SortedMapState<MK, MV, N>,
        namespace: &'s N,
    ) -> SortedMapView<'s, K, N, MK, MV> {
        SortedMapView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type MapSlot<K, N, MK, MV, S> = TableSlot<K, N, SortedMapForm<MK, MV, S>, ()>;
                on_slot!(live, index,
                    plain MapSlot<K, N, MK, MV, Plain<MV>>, timed MapSlot<K, N, MK, MV, Timed<MV>>,
                    slot => LiveMapView { cell: slot.cursor(at).0, types: PhantomData }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.sorted_map(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns a reducing state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn reducing<T: StateType>(
        &mut self,
        state: ReducingState<T>,
    ) -> ReducingView<'_, K, (), T> {
        self.reducing_in(state, VOID)
    }

    /// Returns a reducing state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn reducing_in<'s, T: StateType, N: StateKey>(
        &'s mut self,
        state: ReducingState<T, N>,
        namespace: &'s N,
    ) -> ReducingView<'s, K, N, T> {
        ReducingView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type ReducingSlot<K, N, T, S> = TableSlot<K, N, ValueForm<T, S>, ReducingExtra<T>>;
                on_slot!(live, index,
                    plain ReducingSlot<K, N, T, Plain<T>>, timed ReducingSlot<K, N, T, Timed<T>>,
                    slot => {
                        let (cell, extra) = slot.cursor(at);
                        LiveReducing { value: LiveValue { cell, default: None }, reduce: &extra.reduce }
                    }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.reducing(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns an aggregating state without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn aggregating<A: Aggregator>(
        &mut self,
        state: AggregatingState<A>,
    ) -> AggregatingView<'_, K, (), A> {
        self.aggregating_in(state, VOID)
    }

    /// Returns an aggregating state in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn aggregating_in<'s, A: Aggregator, N: StateKey>(
        &'s mut self,
        state: AggregatingState<A, N>,
        namespace: &'s N,
    ) -> AggregatingView<'s, K, N, A> {
        AggregatingView(match self.locate(state.slot(), namespace) {
            Err(error) => View::invalid(error),
            Ok((index, Slots::Live(live), at)) => {
                type AggregatingSlot<K, N, A, S> =
                    TableSlot<K, N, ValueForm<<A as Aggregator>::Acc, S>, AggregatingExtra<A>>;
                on_slot!(live, index,
                    plain AggregatingSlot<K, N, A, Plain<A::Acc>>, timed AggregatingSlot<K, N, A, Timed<A::Acc>>,
                    slot => {
                        let (cell, extra) = slot.cursor(at);
                        LiveAggregating { value: LiveValue { cell, default: None }, aggregator: &extra.aggregator, types: PhantomData }
                    }
                )
            }
            Ok((index, Slots::Bytes(bytes), _)) => match bytes.aggregating(index, namespace) {
                Ok(view) => View::Bytes(view),
                Err(error) => View::invalid(error),
            },
        })
    }

    /// Returns the timers of this key without namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn timers(&mut self, timers: Timers) -> TimersView<'_, K, ()> {
        self.timers_in(timers, VOID)
    }

    /// Returns the timers of this key in a namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn timers_in<'s, N: StateKey>(
        &'s mut self,
        timers: Timers<N>,
        namespace: &'s N,
    ) -> TimersView<'s, K, N> {
        TimersView::new(self.states, timers.slot(), self.group, self.key, namespace)
    }

    /// Moves the elements of some namespaces behind those of another one.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn merge_lists<T: StateType, N: StateKey>(
        &mut self,
        state: ListState<T, N>,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let key_hash = self.hash;
        match self.locate(state.slot(), target)? {
            (index, Slots::Live(live), at) => {
                type ListSlot<K, N, T, S> = TableSlot<K, N, ListForm<T, S>, ()>;
                match live.find::<ListSlot<K, N, T, Plain<T>>, ListSlot<K, N, T, Timed<T>>>(index) {
                    Some(Found::Plain(slot)) => merge_lists(slot, at, key_hash, sources),
                    Some(Found::Timed(slot)) => merge_lists(slot, at, key_hash, sources),
                    None => Err(wrong_type()),
                }
            }
            (index, Slots::Bytes(bytes), _) => bytes.merge_lists(index, target, sources),
        }
    }

    /// Reduces the values of some namespaces into that of another one, and removes them.
    ///
    /// # Errors
    /// Those of the reduce function, all values being as before then; those of the backend.
    pub fn merge_reducing<T: StateType, N: StateKey>(
        &mut self,
        state: ReducingState<T, N>,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let key_hash = self.hash;
        match self.locate(state.slot(), target)? {
            (index, Slots::Live(live), at) => {
                type ReducingSlot<K, N, T, S> = TableSlot<K, N, ValueForm<T, S>, ReducingExtra<T>>;
                match live
                    .find::<ReducingSlot<K, N, T, Plain<T>>, ReducingSlot<K, N, T, Timed<T>>>(index)
                {
                    Some(Found::Plain(slot)) => {
                        let reduce = Arc::clone(&slot.extra.reduce);
                        merge_values(slot, at, key_hash, sources, |into, value| {
                            reduce_into(&reduce, into, value)
                        })
                    }
                    Some(Found::Timed(slot)) => {
                        let reduce = Arc::clone(&slot.extra.reduce);
                        merge_values(slot, at, key_hash, sources, |into, value| {
                            reduce_into(&reduce, into, value)
                        })
                    }
                    None => Err(wrong_type()),
                }
            }
            (index, Slots::Bytes(bytes), _) => bytes.merge_reducing::<T, N>(index, target, sources),
        }
    }

    /// Merges the accumulators of some namespaces into that of another one, and removes them.
    ///
    /// # Errors
    /// Those of the aggregator, all accumulators being as before then; those of the backend.
    pub fn merge_aggregating<A: Aggregator, N: StateKey>(
        &mut self,
        state: AggregatingState<A, N>,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let key_hash = self.hash;
        match self.locate(state.slot(), target)? {
            (index, Slots::Live(live), at) => {
                type AggregatingSlot<K, N, A, S> =
                    TableSlot<K, N, ValueForm<<A as Aggregator>::Acc, S>, AggregatingExtra<A>>;
                match live.find::<AggregatingSlot<K, N, A, Plain<A::Acc>>, AggregatingSlot<K, N, A, Timed<A::Acc>>>(index)
                {
                    Some(Found::Plain(slot)) => {
                        let aggregator = slot.extra.aggregator.clone();
                        merge_values(slot, at, key_hash, sources, |into, acc| aggregator.merge(into, acc))
                    }
                    Some(Found::Timed(slot)) => {
                        let aggregator = slot.extra.aggregator.clone();
                        merge_values(slot, at, key_hash, sources, |into, acc| aggregator.merge(into, acc))
                    }
                    None => Err(wrong_type()),
                }
            }
            (index, Slots::Bytes(bytes), _) => {
                bytes.merge_aggregating::<A, N>(index, target, sources)
            }
        }
    }

    /// Calls `f` for each element that a list has now, with all states at hand: it may write any of them, this list too.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    pub fn for_each_element<T: StateType>(
        &mut self,
        state: ListState<T>,
        mut f: impl FnMut(&mut At<'_, K>, &T) -> Result<()>,
    ) -> Result<()> {
        let elements = self.list(state).get()?;
        elements.iter().try_for_each(|element| f(self, element))
    }

    /// Calls `f` for each entry that a map has now, with all states at hand: it may write any of them, and remove or
    /// replace entries of this map.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    pub fn for_each_entry<MK: StateKey, MV: StateType>(
        &mut self,
        state: MapState<MK, MV>,
        f: impl FnMut(&mut At<'_, K>, &MK, &MV) -> Result<()>,
    ) -> Result<()> {
        self.for_each_entry_in(state, VOID, f)
    }

    /// As [`for_each_entry`](Self::for_each_entry), in a namespace.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    pub fn for_each_entry_in<MK: StateKey, MV: StateType, N: StateKey>(
        &mut self,
        state: MapState<MK, MV, N>,
        namespace: &N,
        mut f: impl FnMut(&mut At<'_, K>, &MK, &MV) -> Result<()>,
    ) -> Result<()> {
        let entries = self.map_in(state, namespace).entries()?;
        entries
            .iter()
            .try_for_each(|(key, value)| f(self, key, value))
    }

    /// As [`for_each_entry`](Self::for_each_entry), for a sorted map, in order.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    pub fn for_each_sorted_entry<MK: OrderedKey, MV: StateType>(
        &mut self,
        state: SortedMapState<MK, MV>,
        mut f: impl FnMut(&mut At<'_, K>, &MK, &MV) -> Result<()>,
    ) -> Result<()> {
        let entries = self.sorted_map(state).entries()?;
        entries
            .iter()
            .try_for_each(|(key, value)| f(self, key, value))
    }
}

/// Finds a slot of one of two types and makes a view of it.
macro_rules! on_slot {
    ($live:ident, $index:ident, plain $plain:ty, timed $timed:ty, $slot:ident => $view:expr) => {
        match $live.find::<$plain, $timed>($index) {
            Some(Found::Plain($slot)) => View::Plain($view),
            Some(Found::Timed($slot)) => View::Timed($view),
            None => View::invalid(wrong_type()),
        }
    };
}
use on_slot;

/// A slot without or with timestamps.
pub(crate) enum Found<'a, P, T> {
    Plain(&'a mut P),
    Timed(&'a mut T),
}

impl<K: StateKey> LiveSlots<K> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn find<P: Any, T: Any>(&mut self, index: usize) -> Option<Found<'_, P, T>> {
        let entry = self.slots.get_mut(index)?;
        let slot: &mut dyn Any = entry.slot.as_mut();
        if entry.timed {
            return slot.downcast_mut().map(Found::Timed);
        }
        slot.downcast_mut().map(Found::Plain)
    }
}

fn reduce_into<T>(reduce: &ReduceFn<T>, into: &mut T, value: T) -> Result<()> {
    *into = reduce(into, value)?;
    Ok(())
}

#[cold]
fn misrouted(group: KeyGroup) -> Error {
    Error::bug("a record reached a subtask that does not own its key group")
        .with("key group", group)
}
