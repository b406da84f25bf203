//! The builder of jobs: typed streams from sources through operators to sinks.
//!
//! Operators that follow each other without an exchange are chained: they run in one subtask and pass records on by plain
//! calls. An exchange (`key_by`, `rebalance`, a broadcast) begins a new chain, which may have a parallelism of its own.
mod edge;
mod graph;
mod keyed_stream;
mod stream;
mod watermarks;
mod windowed_stream;

pub use graph::Job;
pub use keyed_stream::{ConnectedStreams, KeyedStream};
pub use stream::Stream;
pub use watermarks::Watermarks;
pub use windowed_stream::WindowedStream;

pub(crate) use graph::{RunPlan, Vertex};
