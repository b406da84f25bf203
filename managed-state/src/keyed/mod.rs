//! Typed keyed state, the same on live tables and on a byte store.
//!
//! An operator registers its states on a [`KeyedStates`] and keeps the tokens. For each record, [`KeyedStates::at`] binds all
//! states to the record's key; the view of a state then reads and writes through the traits of [`state_api::access`].
//!
//! A loop that has a batch of records at hand is quicker, where state is larger than the processor's caches, if it hashes the
//! keys first ([`KeyedStates::hash`]), asks for all of them ([`KeyedStates::prefetch`]), and then binds each with its hash
//! ([`KeyedStates::at_hashed`]).
mod at;
mod bound;
mod byte_slot;
mod compatibility;
mod context;
mod decoder;
mod encode;
mod enumerate;
mod form;
mod frozen;
mod history;
mod kind;
mod live_list;
mod live_map;
mod live_merge;
mod live_slot;
mod live_timers;
mod live_value;
mod measured;
mod register;
mod restored;
mod stamp;
mod states;
mod timed_restore;
mod timer_changes;
mod timers;
mod token;
mod total;
#[cfg(test)]
mod total_tests;
mod view;

pub(crate) use kind::{AggregatingExtra, ReducingExtra, ValueExtra};
pub(crate) use live_slot::{Address, table_hash};

pub use at::At;
pub use compatibility::compatibility;
pub use context::KeyedContext;
pub use states::{KeyedStates, MemoryUsage};
pub use timers::{AnyTimers, DueTimer, TimersView};
pub use token::{
    AggregatingState, ListState, MapState, ReducingState, SortedMapState, Timers, ValueState,
};
pub use view::{AggregatingView, ListView, MapView, ReducingView, SortedMapView, ValueView};
