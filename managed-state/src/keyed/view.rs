//! What an operator sees of a state: a view bound to one key and namespace, the same on either representation.

use state_api::access::{
    Aggregator, ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess,
};
use state_api::{Error, OrderedKey, Result, StateKey, StateType};

use super::live_list::LiveListView;
use super::live_map::LiveMapView;
use super::live_value::{LiveAggregating, LiveReducing, LiveValue};
use super::stamp::{Plain, Timed};
use crate::bytes::{ByteAggregating, ByteList, ByteMap, ByteReducing, ByteSortedMap, ByteValue};
use crate::live::{LiveMap, LiveSortedMap};

/// What a view is over: a live table without or with timestamps, a byte store, or a token that was wrong.
pub(crate) enum View<P, T, B> {
    Plain(P),
    Timed(T),
    Bytes(B),
    Invalid(Option<Error>),
}

impl<P, T, B> View<P, T, B> {
    #[cold]
    pub(crate) fn invalid(error: Error) -> Self {
        Self::Invalid(Some(error))
    }
}

#[cold]
fn invalid<R>(error: &mut Option<Error>) -> Result<R> {
    Err(error
        .take()
        .unwrap_or_else(|| Error::poisoned("the view of a state is not usable")))
}

macro_rules! on_view {
    ($self:ident, $view:ident => $call:expr) => {
        match &mut $self.0 {
            View::Plain($view) => $call,
            View::Timed($view) => $call,
            View::Bytes($view) => $call,
            View::Invalid(error) => invalid(error),
        }
    };
}

type ValueOver<'a, K, N, T> =
    View<LiveValue<'a, K, N, T, Plain<T>>, LiveValue<'a, K, N, T, Timed<T>>, ByteValue<'a, T>>;

/// A value state of one key and namespace.
pub struct ValueView<'a, K, N, T: StateType>(pub(crate) ValueOver<'a, K, N, T>);

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

type ListOver<'a, K, N, T> =
    View<LiveListView<'a, K, N, T, Plain<T>>, LiveListView<'a, K, N, T, Timed<T>>, ByteList<'a, T>>;

/// A list state of one key and namespace.
pub struct ListView<'a, K, N, T: StateType>(pub(crate) ListOver<'a, K, N, T>);

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

type MapOver<'a, K, N, MK, MV> = View<
    LiveMapOf<'a, K, N, MK, MV, Plain<MV>>,
    LiveMapOf<'a, K, N, MK, MV, Timed<MV>>,
    ByteMap<'a, MK, MV>,
>;

/// A map state of one key and namespace.
pub struct MapView<'a, K, N, MK: StateKey, MV: StateType>(pub(crate) MapOver<'a, K, N, MK, MV>);

type SortedMapOver<'a, K, N, MK, MV> = View<
    LiveSortedMapOf<'a, K, N, MK, MV, Plain<MV>>,
    LiveSortedMapOf<'a, K, N, MK, MV, Timed<MV>>,
    ByteSortedMap<'a, MK, MV>,
>;

/// A map state of one key and namespace, ordered by map key.
pub struct SortedMapView<'a, K, N, MK: OrderedKey, MV: StateType>(
    pub(crate) SortedMapOver<'a, K, N, MK, MV>,
);

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

type ReducingOver<'a, K, N, T> = View<
    LiveReducing<'a, K, N, T, Plain<T>>,
    LiveReducing<'a, K, N, T, Timed<T>>,
    ByteReducing<'a, T>,
>;

/// A reducing state of one key and namespace.
pub struct ReducingView<'a, K, N, T: StateType>(pub(crate) ReducingOver<'a, K, N, T>);

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

type AggregatingOver<'a, K, N, A> = View<
    LiveAggregating<'a, K, N, A, Plain<<A as Aggregator>::Acc>>,
    LiveAggregating<'a, K, N, A, Timed<<A as Aggregator>::Acc>>,
    ByteAggregating<'a, A>,
>;

/// An aggregating state of one key and namespace.
pub struct AggregatingView<'a, K, N, A: Aggregator>(pub(crate) AggregatingOver<'a, K, N, A>);

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
