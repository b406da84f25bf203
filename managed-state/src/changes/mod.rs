//! Bases and change streams: what a checkpoint of live tables is that costs what changed.
//!
//! A checkpoint is a chain of objects: a base with all entries of a subtask's key groups, and streams with what changed since,
//! in order. A change is an upsert or removal of one entry, a map entry too; the clearing of a map; or what was taken off and
//! appended to a list. Base and streams lie in key groups, which are put together on bytes alone, without the types of the
//! job: whoever has a handle can read it. The layout is in `docs/formats/change-streams.md`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `change` | one change as bytes: [`EntryChange`] |
//! | `stream` | the objects: [`write_stream`], and the index at their end |
//! | `merge` | the block of a key group out of its block in the base and those in the streams: [`merge_group`] |
//! | `restore` | [`restore_changes`], which reads the objects of a handle |
mod change;
mod merge;
mod restore;
mod stream;

pub use change::{EntryChange, ListEdit};
pub use merge::{GroupParts, Part, merge_group};
pub use restore::restore_changes;
pub use stream::{StreamIndex, StreamKind, StreamSource, WrittenStream, read_index, write_stream};

pub(crate) use change::{put_cleared, put_list_edit, put_removed, put_upsert};
