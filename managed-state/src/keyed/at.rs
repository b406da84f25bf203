use std::sync::Arc;

use state_api::access::{Aggregator, ListAccess, MapAccess};
use state_api::{KeyGroup, KeyHash, OrderedKey, Result, StateKey, StateType};

use super::bound::{Bound, Reached, downcast};
use super::form::{ListForm, ValueForm};
use super::kind::{AggregatingExtra, ReducingExtra};
use super::live_merge::{merge_lists, merge_values};
use super::live_slot::TableSlot;
use super::live_value::ReduceFn;
use super::stamp::{Plain, Timed};
use super::states::{KeyedStates, Slots};
use super::timers::TimersView;
use super::token::{
    AggregatingState, ListState, MapState, ReducingState, Slot, SortedMapState, Timers, ValueState,
};
use super::view::{AggregatingView, ListView, MapView, ReducingView, SortedMapView, ValueView};

/// The namespace of state that has none.
const VOID: &() = &();

/// The states of an operator, bound to one key: the only way to reach them.
///
/// Hash and key group are computed once and shared by all states. A view borrows this value, so two views can't be held
/// at once; to go through one state while writing others use [`for_each_entry`](Self::for_each_entry) and its like.
pub struct At<'a, K> {
    pub(crate) states: &'a mut KeyedStates<K>,
    key: &'a K,
    hash: KeyHash,
}

impl<'a, K: StateKey> At<'a, K> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(states: &'a mut KeyedStates<K>, key: &'a K, hash: KeyHash) -> Self {
        if let Slots::Bytes(bytes) = &mut states.slots {
            bytes.unbind();
        }
        Self { states, key, hash }
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
        self.hash.group()
    }

    /// Returns the processing time in milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.states.cx.clock.now_ms()
    }

    /// Binds a state to this key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn bound<'s, N>(&'s mut self, slot: Slot, namespace: &'s N) -> Bound<'s, K, N> {
        Bound {
            states: self.states,
            slot,
            key: self.key,
            hash: self.hash,
            namespace,
        }
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
        ValueView::new(self.bound(state.slot(), namespace))
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
        ListView::new(self.bound(state.slot(), namespace))
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
        MapView::new(self.bound(state.slot(), namespace))
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
        SortedMapView::new(self.bound(state.slot(), namespace))
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
        ReducingView::new(self.bound(state.slot(), namespace))
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
        AggregatingView::new(self.bound(state.slot(), namespace))
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
        TimersView::new(
            self.states,
            timers.slot(),
            self.hash.group(),
            self.key,
            namespace,
        )
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
        type Table<K, N, T, S> = TableSlot<K, N, ListForm<T, S>, ()>;
        let key_hash = self.hash.stable();
        match self.bound(state.slot(), target).reach()? {
            Reached::Plain(slot, at) => {
                let slot: &mut Table<K, N, T, Plain<T>> = downcast(slot)?;
                merge_lists(slot, at, key_hash, sources)
            }
            Reached::Timed(slot, at) => {
                let slot: &mut Table<K, N, T, Timed<T>> = downcast(slot)?;
                merge_lists(slot, at, key_hash, sources)
            }
            Reached::Bytes(store, index, _) | Reached::Cached(store, index, _) => {
                store.merge_lists(index, target, sources)
            }
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
        type Table<K, N, T, S> = TableSlot<K, N, ValueForm<T, S>, ReducingExtra<T>>;
        let key_hash = self.hash.stable();
        match self.bound(state.slot(), target).reach()? {
            Reached::Plain(slot, at) => {
                let slot: &mut Table<K, N, T, Plain<T>> = downcast(slot)?;
                let reduce = Arc::clone(&slot.extra.reduce);
                merge_values(slot, at, key_hash, sources, |into, value| {
                    reduce_into(&reduce, into, value)
                })
            }
            Reached::Timed(slot, at) => {
                let slot: &mut Table<K, N, T, Timed<T>> = downcast(slot)?;
                let reduce = Arc::clone(&slot.extra.reduce);
                merge_values(slot, at, key_hash, sources, |into, value| {
                    reduce_into(&reduce, into, value)
                })
            }
            Reached::Bytes(store, index, _) => store.merge_reducing::<T, N>(index, target, sources),
            Reached::Cached(store, index, at) => {
                store.merge_cached_reducing::<K, T, N>(index, at, key_hash, sources)
            }
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
        type Table<K, N, A, S> =
            TableSlot<K, N, ValueForm<<A as Aggregator>::Acc, S>, AggregatingExtra<A>>;
        let key_hash = self.hash.stable();
        match self.bound(state.slot(), target).reach()? {
            Reached::Plain(slot, at) => {
                let slot: &mut Table<K, N, A, Plain<A::Acc>> = downcast(slot)?;
                let aggregator = slot.extra.aggregator.clone();
                merge_values(slot, at, key_hash, sources, |into, acc| {
                    aggregator.merge(into, acc)
                })
            }
            Reached::Timed(slot, at) => {
                let slot: &mut Table<K, N, A, Timed<A::Acc>> = downcast(slot)?;
                let aggregator = slot.extra.aggregator.clone();
                merge_values(slot, at, key_hash, sources, |into, acc| {
                    aggregator.merge(into, acc)
                })
            }
            Reached::Bytes(store, index, _) => {
                store.merge_aggregating::<A, N>(index, target, sources)
            }
            Reached::Cached(store, index, at) => {
                store.merge_cached_aggregating::<K, A, N>(index, at, key_hash, sources)
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

fn reduce_into<T>(reduce: &ReduceFn<T>, into: &mut T, value: T) -> Result<()> {
    *into = reduce(into, value)?;
    Ok(())
}
