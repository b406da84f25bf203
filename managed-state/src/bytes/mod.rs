//! Typed states over any [`ByteStore`](state_api::ByteStore).
//!
//! Each state has a column, named as the state. A stored key is the key group in one or two bytes, key, namespace and, for
//! maps, the map key ([`CompositeLayout`](crate::format::CompositeLayout)); map entries are entries of the store, lists are
//! one value that grows by merging, timers are keys without a value. The layout of values is that of the canonical format, but for
//! long lists, which stand in chunks (`docs/formats/lists.md`).
//!
//! [`ByteKey`] is built once per record and shared by all states. A [`ByteState`] is what a state keeps from record to record;
//! the views ([`ByteValue`], [`ByteList`], [`ByteMap`], …) borrow it together with the store for one access.
mod expiry;
mod key;
mod list;
mod long_list;
mod map;
mod merge;
mod migrate;
mod packer;
mod scan;
mod state;
mod timers;
mod value;

#[cfg(test)]
mod list_damage_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timers_tests;
#[cfg(test)]
mod ttl_tests;

pub use expiry::ExpiredValues;
pub use key::ByteKey;
pub use list::ByteList;
pub use map::{ByteEntries, ByteMap, ByteSortedMap, CompactKeys, MapKeys, OrderedKeys};
pub use merge::{
    ByteAggregating, ByteReducing, Reduce, merge_aggregating, merge_lists, merge_reducing,
};
pub use migrate::migrate_column;
pub use scan::{KeyPages, count_entries, count_lists, count_pairs};
pub(crate) use state::put_stamped;
pub use state::{ByteState, Located};
pub use timers::{ByteTimers, StoredTimer};
pub use value::ByteValue;
