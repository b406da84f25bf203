//! Incremental checkpoints for byte stores that know which keys changed.
//!
//! A checkpoint is a chain of objects: one with all pairs, and those with what changed since, each built on the last checkpoint
//! that was reported complete. The store brings three things: a view of itself as it is at the cut, a log of the keys that
//! changed, and a position in that log that it can go back to. What is written, in which form, when a full object is due, what
//! may be shared with whom and how it comes back at another parallelism is here. The layout is in `docs/formats/pairs.md`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `chain` | the objects of a checkpoint that others build upon, and whether that pays |
//! | `bookkeeping` | [`Increments`], which a store's `NativeSnapshots` goes through |
//! | `snapshot` | the async part |
//! | `pairs` | pairs and removed keys as bytes: [`PairWriter`], and their reader |
//! | `restore` | [`restore_pairs`] |
mod bookkeeping;
mod chain;
mod pairs;
mod restore;
mod snapshot;

pub use bookkeeping::Increments;
pub use pairs::PairWriter;
pub use restore::restore_pairs;
