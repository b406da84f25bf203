use std::any::Any;

use state_api::{Error, KeyGroup, KeyHash, Result, StateKey};

use super::byte_slot::ByteSlots;
use super::live_slot::{Address, table_hash};
use super::states::{KeyedStates, Slots, position, wrong_type};
use super::token::Slot;

/// A state bound to a key and a namespace, whatever its kind.
///
/// It is only a place to go to: the state is looked up by each call, which costs less than to carry along what was found.
pub(crate) struct Bound<'a, K, N> {
    pub(crate) states: &'a mut KeyedStates<K>,
    pub(crate) slot: Slot,
    pub(crate) key: &'a K,
    pub(crate) hash: KeyHash,
    pub(crate) namespace: &'a N,
}

/// Where a state is: in a table without or with timestamps, or in a byte store at a position, with or without a cache.
pub(crate) enum Reached<'a, K, N> {
    Plain(&'a mut dyn Any, Address<'a, K, N>),
    Timed(&'a mut dyn Any, Address<'a, K, N>),
    Bytes(&'a mut ByteSlots, usize, &'a N),
    /// In a cache in front of a byte store, or behind it.
    Cached(&'a mut ByteSlots, usize, Address<'a, K, N>),
}

/// A view of a live table's entry.
pub(crate) trait OfTable<'a, K, N> {
    type Slot: Any;

    fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self;
}

/// A view of what a byte store holds for the key that it is bound to.
pub(crate) trait OfStore<'a>: Sized {
    fn of_store<N: StateKey>(store: &'a mut ByteSlots, index: usize, namespace: &N)
    -> Result<Self>;
}

/// A view of what a cache in front of a byte store holds.
pub(crate) trait OfCache<'a, K, N>: Sized {
    fn of_cache(store: &'a mut ByteSlots, index: usize, at: Address<'a, K, N>) -> Result<Self>;
}

impl<K: StateKey, N: StateKey> Bound<'_, K, N> {
    /// Finds the state.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn reach(&mut self) -> Result<Reached<'_, K, N>> {
        let index = position(self.states.owner, self.slot)?;
        let Some(place) = self.states.cx.place(self.hash.group()) else {
            return Err(misrouted(self.hash.group()));
        };
        let limit = self.states.cx.memory_limit;
        match &mut self.states.slots {
            Slots::Live(live) => {
                let limit = limit.map(|limit| live.measured_limit(limit, index, place));
                let Some(entry) = live.slots.get_mut(index) else {
                    return Err(wrong_type());
                };
                let at = Address {
                    group: place,
                    hash: table_hash(self.hash.stable(), self.namespace, self.states.cx.seed),
                    key: self.key,
                    namespace: self.namespace,
                    limit,
                };
                Ok(if entry.timed {
                    Reached::Timed(entry.slot.as_mut(), at)
                } else {
                    Reached::Plain(entry.slot.as_mut(), at)
                })
            }
            Slots::Bytes(store) => {
                if !store.caches(index) {
                    store.bind(self.key, self.hash.group());
                    return Ok(Reached::Bytes(store, index, self.namespace));
                }
                store.make_room()?;
                let at = Address {
                    group: place,
                    hash: table_hash(self.hash.stable(), self.namespace, self.states.cx.seed),
                    key: self.key,
                    namespace: self.namespace,
                    limit: None,
                };
                Ok(Reached::Cached(store, index, at))
            }
        }
    }
}

/// Gives a slot back its type.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn downcast<T: Any>(slot: &mut dyn Any) -> Result<&mut T> {
    match slot.downcast_mut() {
        Some(slot) => Ok(slot),
        None => Err(wrong_type()),
    }
}

#[cold]
fn misrouted(group: KeyGroup) -> Error {
    Error::bug("a record reached a subtask that does not own its key group")
        .with("key group", group)
}
