//! Self-contained copies of checkpoints: in another folder, on another store.
mod checkpoint;
mod object;
mod sources;

pub use checkpoint::{CopyOptions, CopyReport, copy_checkpoint};
pub use sources::CopySealing;
