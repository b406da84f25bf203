//! What an operator sees of a state: a view bound to one key and namespace, the same on either representation.

use std::marker::PhantomData;

use state_api::access::{
    Aggregator, ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess,
};
use state_api::{OrderedKey, Result, StateKey, StateType};

use super::bound::{Bound, OfCache, OfStore, OfTable, Reached, downcast};
use super::kind::ValueExtra;
use super::live_list::LiveListView;
use super::live_map::LiveMapView;
use super::live_value::{LiveAggregating, LiveReducing, LiveValue};
use super::stamp::{Plain, Timed};
use crate::bytes::{ByteAggregating, ByteList, ByteMap, ByteReducing, ByteSortedMap, ByteValue};
use crate::cache::{CachedAggregating, CachedMap, CachedReducing, CachedSortedMap, CachedValue};
use crate::live::{LiveMap, LiveSortedMap};

/// What a view becomes on a live table without timestamps, on one with them, on a byte store, and on a cache in front of one.
trait View {
    type Plain<'s>;
    type Timed<'s>;
    type Bytes<'s>;
    type Cached<'s>;
}

/// Calls a method of what the view is over. A wrong token is an error of every call.
macro_rules! on_view {
    ($self:ident, $view:ident => $call:expr) => {
        match $self.bound.reach()? {
            Reached::Plain(slot, at) => {
                type Over<'s, V> = <V as View>::Plain<'s>;
                let mut $view = Over::<'_, Self>::of_table(downcast(slot)?, at);
                $call
            }
            Reached::Timed(slot, at) => {
                type Over<'s, V> = <V as View>::Timed<'s>;
                let mut $view = Over::<'_, Self>::of_table(downcast(slot)?, at);
                $call
            }
            Reached::Bytes(store, index, namespace) => {
                type Over<'s, V> = <V as View>::Bytes<'s>;
                let mut $view = Over::<'_, Self>::of_store(store, index, namespace)?;
                $call
            }
            Reached::Cached(store, index, at) => {
                type Over<'s, V> = <V as View>::Cached<'s>;
                let mut $view = Over::<'_, Self>::of_cache(store, index, at)?;
                $call
            }
        }
    };
}

macro_rules! view {
    ($(#[$doc:meta])* $view:ident < $($param:ident : $bound:ident),+ >, $plain:ty, $timed:ty, $bytes:ty, $cached:ty) => {
        $(#[$doc])*
        pub struct $view<'a, K, N, $($param: $bound),+> {
            bound: Bound<'a, K, N>,
            types: PhantomData<fn() -> ($($param,)+)>,
        }

        impl<'a, K, N, $($param: $bound),+> $view<'a, K, N, $($param),+> {
            #[cfg_attr(not(debug_assertions), inline(always))]
            pub(crate) fn new(bound: Bound<'a, K, N>) -> Self {
                Self { bound, types: PhantomData }
            }
        }

        impl<K: StateKey, N: StateKey, $($param: $bound),+> View for $view<'_, K, N, $($param),+> {
            type Plain<'s> = $plain;
            type Timed<'s> = $timed;
            type Bytes<'s> = $bytes;
            type Cached<'s> = $cached;
        }
    };
}

view! {
    /// A value state of one key and namespace.
    ValueView<T: StateType>,
    LiveValue<'s, K, N, T, Plain<T>>, LiveValue<'s, K, N, T, Timed<T>>, ByteValue<'s, T>,
    CachedValue<'s, K, N, T, ValueExtra<T>>
}

impl<K: StateKey, N: StateKey, T: StateType> ValueAccess<T> for ValueView<'_, K, N, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with<R>(&mut self, f: impl FnOnce(Option<&T>) -> R) -> Result<R> {
        on_view!(self, view => view.with(f))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn set(&mut self, value: T) -> Result<()> {
        on_view!(self, view => view.set(value))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn modify<R>(&mut self, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R> {
        on_view!(self, view => view.modify(f))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn update<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Result<R>
    where
        T: Default,
    {
        on_view!(self, view => view.update(f))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn clear(&mut self) -> Result<()> {
        on_view!(self, view => view.clear())
    }
}

view! {
    /// A list state of one key and namespace.
    ListView<T: StateType>,
    LiveListView<'s, K, N, T, Plain<T>>, LiveListView<'s, K, N, T, Timed<T>>, ByteList<'s, T>,
    ByteList<'s, T>
}

impl<K: StateKey, N: StateKey, T: StateType> ListAccess<T> for ListView<'_, K, N, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn push(&mut self, element: T) -> Result<()> {
        on_view!(self, view => view.push(element))
    }

    fn extend(&mut self, elements: Vec<T>) -> Result<()> {
        on_view!(self, view => view.extend(elements))
    }

    fn replace(&mut self, elements: Vec<T>) -> Result<()> {
        on_view!(self, view => view.replace(elements))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn for_each(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        on_view!(self, view => view.for_each(f))
    }

    fn retain(&mut self, f: impl FnMut(&T) -> bool) -> Result<()> {
        on_view!(self, view => view.retain(f))
    }

    fn pop_front(&mut self) -> Result<Option<T>> {
        on_view!(self, view => view.pop_front())
    }

    fn len(&mut self) -> Result<usize> {
        on_view!(self, view => view.len())
    }

    fn clear(&mut self) -> Result<()> {
        on_view!(self, view => view.clear())
    }
}

type LiveMapOf<'a, K, N, MK, MV, S> = LiveMapView<'a, K, N, MK, MV, S, LiveMap<MK, S>>;
type LiveSortedMapOf<'a, K, N, MK, MV, S> = LiveMapView<'a, K, N, MK, MV, S, LiveSortedMap<MK, S>>;

view! {
    /// A map state of one key and namespace.
    MapView<MK: StateKey, MV: StateType>,
    LiveMapOf<'s, K, N, MK, MV, Plain<MV>>, LiveMapOf<'s, K, N, MK, MV, Timed<MV>>, ByteMap<'s, MK, MV>,
    CachedMap<'s, K, N, MK, MV>
}

view! {
    /// A map state of one key and namespace, ordered by map key.
    SortedMapView<MK: OrderedKey, MV: StateType>,
    LiveSortedMapOf<'s, K, N, MK, MV, Plain<MV>>, LiveSortedMapOf<'s, K, N, MK, MV, Timed<MV>>, ByteSortedMap<'s, MK, MV>,
    CachedSortedMap<'s, K, N, MK, MV>
}

macro_rules! map_access {
    ($view:ident, $key:ident) => {
        impl<K: StateKey, N: StateKey, MK: $key, MV: StateType> MapAccess<MK, MV> for $view<'_, K, N, MK, MV> {
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn with<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R> {
                on_view!(self, view => view.with(key, f))
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn put(&mut self, key: MK, value: MV) -> Result<()> {
                on_view!(self, view => view.put(key, value))
            }

            fn put_all(&mut self, entries: Vec<(MK, MV)>) -> Result<()> {
                on_view!(self, view => view.put_all(entries))
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn modify<R>(&mut self, key: &MK, f: impl FnOnce(&mut Option<MV>) -> R) -> Result<R> {
                on_view!(self, view => view.modify(key, f))
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn remove(&mut self, key: &MK) -> Result<bool> {
                on_view!(self, view => view.remove(key))
            }

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn for_each(&mut self, f: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> {
                on_view!(self, view => view.for_each(f))
            }

            fn retain(&mut self, f: impl FnMut(&MK, &mut MV) -> bool) -> Result<()> {
                on_view!(self, view => view.retain(f))
            }

            fn is_empty(&mut self) -> Result<bool> {
                on_view!(self, view => view.is_empty())
            }

            fn clear(&mut self) -> Result<()> {
                on_view!(self, view => view.clear())
            }
        }
    };
}

map_access!(MapView, StateKey);
map_access!(SortedMapView, OrderedKey);

impl<K: StateKey, N: StateKey, MK: OrderedKey, MV: StateType> SortedMapAccess<MK, MV>
    for SortedMapView<'_, K, N, MK, MV>
{
    fn range(
        &mut self,
        from: Option<&MK>,
        to: Option<&MK>,
        f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()> {
        on_view!(self, view => view.range(from, to, f))
    }

    fn first(&mut self) -> Result<Option<(MK, MV)>> {
        on_view!(self, view => view.first())
    }

    fn last(&mut self) -> Result<Option<(MK, MV)>> {
        on_view!(self, view => view.last())
    }

    fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) -> Result<()> {
        on_view!(self, view => view.remove_range(from, to))
    }
}

view! {
    /// A reducing state of one key and namespace.
    ReducingView<T: StateType>,
    LiveReducing<'s, K, N, T, Plain<T>>, LiveReducing<'s, K, N, T, Timed<T>>, ByteReducing<'s, T>,
    CachedReducing<'s, K, N, T>
}

impl<K: StateKey, N: StateKey, T: StateType> MergeAccess<T, T> for ReducingView<'_, K, N, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: T) -> Result<()> {
        on_view!(self, view => view.add(input))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn get(&mut self) -> Result<Option<T>> {
        on_view!(self, view => view.get())
    }

    fn clear(&mut self) -> Result<()> {
        on_view!(self, view => view.clear())
    }
}

view! {
    /// An aggregating state of one key and namespace.
    AggregatingView<A: Aggregator>,
    LiveAggregating<'s, K, N, A, Plain<A::Acc>>, LiveAggregating<'s, K, N, A, Timed<A::Acc>>, ByteAggregating<'s, A>,
    CachedAggregating<'s, K, N, A>
}

impl<K: StateKey, N: StateKey, A: Aggregator> MergeAccess<A::In, A::Out>
    for AggregatingView<'_, K, N, A>
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: A::In) -> Result<()> {
        on_view!(self, view => view.add(input))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn get(&mut self) -> Result<Option<A::Out>> {
        on_view!(self, view => view.get())
    }

    fn clear(&mut self) -> Result<()> {
        on_view!(self, view => view.clear())
    }
}
