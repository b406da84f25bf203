//! Operators, tasks, barriers, the coordinator and restarts: stateful stream jobs in one process.
//!
//! | where | what |
//! | --- | --- |
//! | [`job`] | the builder: typed streams from sources to sinks |
//! | [`operator`] | what users write: operators over keyed, broadcast and subtask state |
//! | [`source`], [`sink`] | what inputs and outputs implement |
//! | [`sources`], [`sinks`] | inputs and outputs that come along |
//! | `kafka` (a feature) | what the Kafka source and sink have in common |
//! | [`register_backends`] | the state backends that features bring |
//! | [`config`] | options from files and from the program |
//! | [`channel`] | bounded queues of batches between subtasks, barriers in band |
//! | [`alignment`] | where barriers of several channels become one cut |
//! | [`task`] | the checkpoint procedure of a subtask |
//! | [`coordinator`] | when checkpoints begin, complete and end: a pure state machine |
//! | [`restart`] | what follows a failure |
//! | [`compat`] | whether a job can start from a checkpoint of an older program |
//! | [`assign`] | who gets which part of a checkpoint |
//! | [`execution`] | threads, the loop around the coordinator, and a driver for tests |
pub mod alignment;
pub mod assign;
mod backends;
mod chain;
pub mod channel;
pub mod compat;
pub mod config;
pub mod coordinator;
pub mod execution;
pub mod job;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod operator;
mod random;
mod record;
pub mod restart;
pub mod sink;
pub mod sinks;
pub mod source;
pub mod sources;
mod streams_through;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;

pub use backends::register_backends;
pub use compat::{CompatReport, check_compat};
pub use config::CheckpointMode;
pub use execution::{
    CheckpointStore, ExecutionSettings, FolderCheckpoints, JobEvent, JobEvents, JobOutcome,
    JobParts, LocalExecution, MemoryCheckpoints, RestoreFrom,
};
pub use job::{Job, KeyedStream, Stream, Watermarks};
pub use operator::{
    BroadcastOperator, BroadcastSide, KeyedOperator, Operator, Out, Session, SideOutput, Sliding,
    States, TimeWindow, Tumbling, TwoInputOperator, WindowFunction, Windowed, Windowing,
};
pub use record::{END_OF_TIME, Emit, NO_TIMESTAMP, Record, SplitEvent, Timed};
pub use task::SnapshotWork;
#[cfg(feature = "testing")]
pub use testing::Driver;
