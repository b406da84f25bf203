//! The kinds of state: what each stores per key and namespace, and what it needs beside that.

use state_api::access::Aggregator;
use state_api::{CodecKind, OrderedKey, StateKey, StateKind, StateType, TypeMeta};
use std::marker::PhantomData;

use super::form::{Form, ListForm, MapForm, SortedMapForm, ValueForm};
use super::live_value::ReduceFn;
use super::stamp::{Plain, Timed};
use crate::bytes::{CompactKeys, OrderedKeys};
use crate::cache::{CachePlace, CachedState, CachedTable, Cell, Kept, MapCell};

/// What a value state needs beside its table.
pub(crate) struct ValueExtra<T> {
    pub(crate) default: Option<T>,
}

/// What a reducing state needs beside its table.
pub(crate) struct ReducingExtra<T> {
    pub(crate) reduce: ReduceFn<T>,
}

/// What an aggregating state needs beside its table.
pub(crate) struct AggregatingExtra<A> {
    pub(crate) aggregator: A,
}

/// A kind of state with its types.
pub(crate) trait Kind: 'static {
    const KIND: StateKind;

    /// What is encoded, and migrates.
    type Value: StateType;

    /// What is kept beside the table or column.
    type Extra: Send + 'static;

    /// The form of its cells without timestamps.
    type Plain: Form;

    /// The form of its cells with timestamps.
    type Timed: Form;

    /// Describes the map key, if there is one.
    fn map_key() -> Option<TypeMeta>;

    fn plain(codec: CodecKind) -> Self::Plain;

    fn timed(codec: CodecKind) -> Self::Timed;

    /// Makes the cache in front of a byte store; gives `extra` back where the kind has none.
    fn cache<K: StateKey, N: StateKey>(
        place: CachePlace,
        extra: Self::Extra,
    ) -> Cached<Self::Extra>;
}

/// A cache, or what it was to be made of.
pub(crate) type Cached<X> = std::result::Result<Box<dyn CachedState>, X>;

macro_rules! kind {
    ($kind:ident < $($param:ident : $bound:ident),+ >, $value:ty, $extra:ty, $form:ident < $($arg:ty),+ >, $map_key:expr, $cell:ty) => {
        pub(crate) struct $kind<$($param),+>(PhantomData<fn() -> ($($param,)+)>);

        impl<$($param: $bound),+> Kind for $kind<$($param),+> {
            const KIND: StateKind = StateKind::$kind;
            type Value = $value;
            type Extra = $extra;
            type Plain = $form<$($arg,)+ Plain<$value>>;
            type Timed = $form<$($arg,)+ Timed<$value>>;

            fn map_key() -> Option<TypeMeta> {
                $map_key
            }

            fn plain(codec: CodecKind) -> Self::Plain {
                $form::new(codec)
            }

            fn timed(codec: CodecKind) -> Self::Timed {
                $form::new(codec)
            }

            fn cache<K: StateKey, N: StateKey>(place: CachePlace, extra: $extra) -> Cached<$extra> {
                <$cell>::cache::<K, N, _>(place, extra)
            }
        }
    };
}

kind!(Value<T: StateType>, T, ValueExtra<T>, ValueForm<T>, None, Cell<T>);
kind!(List<T: StateType>, T, (), ListForm<T>, None, Uncached);
kind!(Map<MK: StateKey, MV: StateType>, MV, (), MapForm<MK, MV>, Some(TypeMeta::of::<MK>(CodecKind::Compact)), MapCell<MK, MV, CompactKeys>);
kind!(SortedMap<MK: OrderedKey, MV: StateType>, MV, (), SortedMapForm<MK, MV>, Some(TypeMeta::of::<MK>(CodecKind::Compact)), MapCell<MK, MV, OrderedKeys>);
kind!(Reducing<T: StateType>, T, ReducingExtra<T>, ValueForm<T>, None, Cell<T>);
kind!(Aggregating<A: Aggregator>, A::Acc, AggregatingExtra<A>, ValueForm<A::Acc>, None, Cell<A::Acc>);

/// What a cache keeps per key and namespace, seen from the kind of state.
trait Caches {
    fn cache<K: StateKey, N: StateKey, X: 'static>(place: CachePlace, extra: X) -> Cached<X>;
}

/// Lists append by merging, without being read.
struct Uncached;

impl Caches for Uncached {
    fn cache<K: StateKey, N: StateKey, X: 'static>(_: CachePlace, extra: X) -> Cached<X> {
        Err(extra)
    }
}

impl<H: Kept> Caches for H {
    fn cache<K: StateKey, N: StateKey, X: 'static>(place: CachePlace, extra: X) -> Cached<X> {
        Ok(Box::new(CachedTable::<K, N, H, X>::new(place, extra)))
    }
}
