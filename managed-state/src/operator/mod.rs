//! Operator state: lists and broadcast maps of one subtask, not bound to a key.
//!
//! It lives in memory whichever backend holds the keyed state, shares structure with its snapshots, and is written as one
//! stream with the place of each list element, so that a list is split without being read (`docs/formats/operator.md`).
mod broadcast;
mod compatibility;
mod list;
mod part;
mod reading;
mod snapshot;
mod states;
mod token;

#[cfg(test)]
mod tests;

pub use broadcast::{BroadcastMap, BroadcastView};
pub use compatibility::compatibility;
pub use list::OperatorList;
pub use reading::{
    StoredOperatorState, broadcast_element, broadcast_entries, read_operator_states,
    write_operator_states,
};
pub use states::OperatorStates;
pub use token::{BroadcastState, OperatorListState};
