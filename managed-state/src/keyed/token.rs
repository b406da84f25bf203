use std::fmt;
use std::marker::PhantomData;

/// Where a token points: the operator's set of states that issued it, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) owner: u32,
    pub(crate) index: u32,
}

impl Slot {
    /// Points nowhere: what a token holds before the state is registered.
    pub(crate) const UNREGISTERED: Self = Self {
        owner: u32::MAX,
        index: u32::MAX,
    };
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident < $($param:ident),+ >) => {
        $(#[$doc])*
        ///
        /// A token is a small `Copy` value that the operator keeps; the default one is not registered and every use of it is an error.
        pub struct $name<$($param),+, N = ()> {
            slot: Slot,
            types: PhantomData<fn() -> ($($param,)+ N)>,
        }

        impl<$($param),+, N> $name<$($param),+, N> {
            pub(crate) const fn new(slot: Slot) -> Self {
                Self { slot, types: PhantomData }
            }

            #[inline]
            pub(crate) const fn slot(self) -> Slot {
                self.slot
            }
        }

        impl<$($param),+, N> Clone for $name<$($param),+, N> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($param),+, N> Copy for $name<$($param),+, N> {}

        impl<$($param),+, N> Default for $name<$($param),+, N> {
            fn default() -> Self {
                Self::new(Slot::UNREGISTERED)
            }
        }

        impl<$($param),+, N> fmt::Debug for $name<$($param),+, N> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.slot.index).finish()
            }
        }
    };
}

token! {
    /// Names a value state of type `T` per key and namespace `N`.
    ValueState<T>
}
token! {
    /// Names a list state with elements of type `T` per key and namespace `N`.
    ListState<T>
}
token! {
    /// Names a map state from `MK` to `MV` per key and namespace `N`.
    MapState<MK, MV>
}
token! {
    /// Names a map state ordered by `MK` per key and namespace `N`.
    SortedMapState<MK, MV>
}
token! {
    /// Names a state that reduces values of type `T` per key and namespace `N`.
    ReducingState<T>
}
token! {
    /// Names a state that folds inputs by the aggregator `A` per key and namespace `N`.
    AggregatingState<A>
}

/// Names a set of timers per key and namespace `N`.
///
/// A token is a small `Copy` value that the operator keeps; the default one is not registered and every use of it is an error.
pub struct Timers<N = ()> {
    slot: Slot,
    types: PhantomData<fn() -> N>,
}

impl<N> Timers<N> {
    pub(crate) const fn new(slot: Slot) -> Self {
        Self {
            slot,
            types: PhantomData,
        }
    }

    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        self.slot
    }
}

impl<N> Clone for Timers<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Timers<N> {}

impl<N> Default for Timers<N> {
    fn default() -> Self {
        Self::new(Slot::UNREGISTERED)
    }
}

impl<N> PartialEq for Timers<N> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<N> Eq for Timers<N> {}

impl<N> fmt::Debug for Timers<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timers").field(&self.slot.index).finish()
    }
}
