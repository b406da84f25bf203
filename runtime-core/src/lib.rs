//! Operators, tasks, barriers, the coordinator and restarts: stateful stream jobs in one process.
//!
//! | where | what |
//! | --- | --- |
//! | [`source`], [`sink`] | what inputs and outputs implement |

mod record;
pub mod sink;
pub mod source;

pub use record::{END_OF_TIME, Emit, NO_TIMESTAMP, Record, SplitEvent, Timed};

pub mod config;
pub mod coordinator;
pub mod restart;
