//! Typed state over live tables or over any byte store.

pub mod bytes;
mod cache;
pub mod changes;
pub mod format;
pub mod increments;
pub mod keyed;
pub mod live;
pub mod operator;
pub mod raw;
