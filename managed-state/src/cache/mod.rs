//! A cache of live objects in front of a byte store: hot keys are served at the speed of live tables.
//!
//! Each state of one value per key and namespace, and each map, has a [`CachedTable`]: a live table of what is known of
//! stored values, clean or dirty. Hits touch neither the store nor the codec. A miss reads the store; a write goes to the
//! cache alone, and to the store when its entry is given up, when too much is dirty, or when a scan has to see it. Entries are
//! given up in the order of a clock: its hand clears the mark of those that were used and takes the others.
//!
//! All caches of a subtask draw from one [`CacheShare`] of the process's budget. What finds no room goes to the store as if
//! there were no cache. A snapshot freezes the tables, whose dirty entries are stored beside the store's own snapshot or laid
//! over its view ([`DirtyColumn`](crate::format::DirtyColumn)); they stay dirty.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `share` | what a subtask has drawn of the budget |
//! | `cell`, `kept` | what is known of one stored value; of one key and namespace |
//! | `table` | the cache of one state, its clock, writing back |
//! | `value`, `map` | views: access to one key and namespace |
//! | `merge` | merging the namespaces of a key |
//! | `frozen` | dirty entries at the moment of a cut |
mod cell;
mod frozen;
mod kept;
mod map;
mod merge;
mod share;
mod table;
mod value;

pub(crate) use cell::Cell;
pub(crate) use kept::{Encoding, Kept};
pub(crate) use map::{CachedMap, CachedSortedMap, MapCell};
pub(crate) use merge::{merge_aggregating, merge_reducing};
pub(crate) use share::CacheShare;
pub(crate) use table::{CachePlace, CachedState, CachedTable};
pub(crate) use value::{Behind, CachedAggregating, CachedReducing, CachedValue};
