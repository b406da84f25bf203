//! The canonical format of keyed state: one stream, ordered by key group, written and read by every backend.
//!
//! The layout of every byte is in `docs/formats/canonical.md`. Live tables and byte stores write it alike, so a job moves
//! between backends, and a snapshot is read by other tools with the metadata alone.
mod canonical_writer;
mod chain_handle;
mod composite;
mod elements;
mod group_reader;
mod group_writer;
mod header;
mod list_entries;
mod overlaid;
mod persist;
mod pipe;
mod restore;
mod restore_store;
mod source;
mod store_source;
mod stored_list;
mod write_back;

#[cfg(test)]
pub(crate) mod test_storage;
#[cfg(test)]
mod tests;

pub use canonical_writer::CanonicalWriter;
pub use chain_handle::{ChainHandle, MAX_CHAIN_INLINE, chain_bytes};
pub use composite::{CompositeLayout, group_end, group_of_prefix, put_group_prefix};
pub use elements::{Elements, put_element, put_encoded_element, split_timestamp};
pub use group_reader::{Entries, GroupReader, Section};
pub use group_writer::GroupWriter;
pub use header::{CANONICAL, HEADER_LEN};
pub use persist::{FrozenTablesSnapshot, Placement, persist_groups, upload};
pub use pipe::ChunkWriter;
pub use restore::{load_tables, open_columns, restore_groups, restore_into_store};
pub use restore_store::restore_store;
pub use store_source::{CanonicalColumn, canonical_snapshot};
pub use write_back::WRITE_BACK;

pub(crate) use header::{
    CHANGES_MAGIC, KEYED_MAGIC, OPERATOR_MAGIC, PAIRS_MAGIC, RAW_MAGIC, check_header, header,
};
pub(crate) use overlaid::overlaid;
pub(crate) use restore::{naming, object_name, read_all, read_groups};
pub(crate) use restore_store::{restore_stored, stored_and_dirty};
pub(crate) use stored_list::{
    Chunk, ChunkCheck, ListHead, NUMBER_LEN, StoredList, chunk_number, missing_chunk,
    put_chunk_number,
};
pub(crate) use write_back::{DirtyColumn, DirtyEntry, restore_write_back, with_write_back};
