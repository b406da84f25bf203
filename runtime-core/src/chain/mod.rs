//! What runs inside one subtask: a head that takes records in, and the operators chained behind it.
//!
//! A head is a source or an operator behind an exchange; each [`Link`](link::Link) behind it is one more operator, down to
//! sinks and to the outputs of the next exchange. A record passes through all of them by plain calls.
pub(crate) mod broadcast_head;
pub(crate) mod chained;
pub(crate) mod declared;
pub(crate) mod environment;
pub(crate) mod event_time;
pub(crate) mod fan_out;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod input_end;
pub(crate) mod key_selector;
pub(crate) mod keyed_core;
pub(crate) mod keyed_head;
pub(crate) mod link;
pub(crate) mod outputs;
pub(crate) mod plain_head;
pub(crate) mod port;
pub(crate) mod restored_keyed;
pub(crate) mod sinks;
pub(crate) mod source_head;
pub(crate) mod stateless;
pub(crate) mod valve;
pub(crate) mod watermarks;
#[cfg(test)]
mod watermarks_tests;
