use std::fmt;
use std::marker::PhantomData;

/// Where a token points: the set of states that issued it, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) owner: u32,
    pub(super) index: u32,
}

impl Slot {
    /// Points nowhere: what a token holds before the state is registered.
    const UNREGISTERED: Self = Self {
        owner: u32::MAX,
        index: u32::MAX,
    };
}

macro_rules! token {
    ($(#[$doc:meta])* $name:ident < $($param:ident),+ >) => {
        $(#[$doc])*
        ///
        /// A token is a small `Copy` value that the operator keeps; the default one is not registered and every use of it is an error.
        pub struct $name<$($param),+> {
            pub(super) slot: Slot,
            types: PhantomData<fn() -> ($($param,)+)>,
        }

        impl<$($param),+> $name<$($param),+> {
            pub(super) const fn new(slot: Slot) -> Self {
                Self { slot, types: PhantomData }
            }
        }

        impl<$($param),+> Clone for $name<$($param),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($param),+> Copy for $name<$($param),+> {}

        impl<$($param),+> Default for $name<$($param),+> {
            fn default() -> Self {
                Self::new(Slot::UNREGISTERED)
            }
        }

        impl<$($param),+> fmt::Debug for $name<$($param),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.slot.index).finish()
            }
        }
    };
}

token! {
    /// Names a list state of an operator subtask with elements of type `T`.
    OperatorListState<T>
}
token! {
    /// Names a broadcast state from `K` to `V`.
    BroadcastState<K, V>
}
