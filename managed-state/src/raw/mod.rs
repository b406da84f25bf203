//! Raw state: bytes that an operator writes itself, per key group or in partitions (`docs/formats/raw.md`).
//!
//! The bytes are gathered in memory while the task is at its cut, and persisted with the rest of the snapshot.
mod block;
mod input;
mod keyed;
mod operator;
mod streams;

#[cfg(test)]
mod tests;

pub use input::{
    RawKeyedInput, RawKeyedPartition, RawOperatorInput, RawReader, restore_raw_keyed,
    restore_raw_operator,
};
pub use keyed::RawKeyedOutput;
pub use operator::RawOperatorOutput;
pub use streams::{RawSnapshots, RawStreams};

/// The word under which raw keyed state stands in handles.
pub const RAW: &str = "raw";
