//! Reading options that are given as text: sizes, durations, and the word that a wrong one most likely stands for.
//!
//! Backends get their options as text ([`BackendContext::options`](crate::BackendContext::options)); with these they read them as
//! everything else does.
mod duration;
mod memory_size;
mod nearest;

pub use duration::parse as parse_duration;
pub use memory_size::parse as parse_memory_size;
pub use nearest::of as nearest;
