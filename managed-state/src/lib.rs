//! Typed state over live tables or over any byte store.

pub mod live;
