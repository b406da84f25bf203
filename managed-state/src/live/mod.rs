//! Live tables: typed objects in memory that can be frozen at any moment without stopping.
//!
//! A [`LiveTable`] holds one state of one subtask: entries (key, namespace, value) over a range of key groups. Without a
//! snapshot an access is a lookup in a bare hash table. [`LiveTable::freeze`] turns what is there into shared layers in a
//! time that does not depend on their size, and later writes go to new layers above them; once the snapshot is gone the
//! layers are merged, a few entries per write.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `table`, `indirect` | [`LiveTable`]: keyed access, and the part of it that snapshots and noted changes take |
//! | `load` | filling a table out of a snapshot |
//! | `snapshots` | freezing, merging, limits, accounting |
//! | `tally` | a running total of the bytes |
//! | `visit` | enumeration of live entries |
//! | `frozen` | [`FrozenTable`]: what a snapshot reads |
//! | `region`, `layers`, `part`, `tables` | a stack of layers, the shared ones of it, one layer, its size-bounded hash tables |
//! | `stack` | reading layers as one |
//! | `capture`, `seen` | which keys changed since a confirmed snapshot |
//! | `list`, `map`, `sorted_map` | nested collections that share structure with their snapshots |

mod capture;
mod frozen;
mod indirect;
mod layers;
mod layout;
mod list;
mod load;
mod map;
mod part;
mod region;
mod seen;
mod snapshots;
mod sorted_map;
mod stack;
mod table;
mod tables;
mod tally;
mod visit;

#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod tally_tests;
#[cfg(test)]
mod test_support;

pub(crate) use capture::Epoch;
pub(crate) use layout::Entry;

pub use frozen::{ChangedKeys, FrozenGroup, FrozenTable, OverlayLimitReached};
pub use layout::{EntryHasher, HeapSize};
pub use list::LiveList;
pub use map::LiveMap;
pub use snapshots::{OverlayLimit, TableStats};
pub use sorted_map::LiveSortedMap;
pub use table::{Change, LiveTable};
pub use visit::{PageCursor, SweepCursor};
