//! How records travel between subtasks: bounded queues of batches with barriers in band.
//!
//! A [`Sender`] and a [`Receiver`] share one queue per pair of subtasks. Nothing in here waits: a full queue gives the
//! element back, an empty one says so, and each side rings the other's [`Signal`] when that changes. A thread that has
//! nothing to do parks on its own signal; a driver that steps all subtasks on one thread just steps on.
//!
//! Records travel a batch at a time, so there is no lock and no allocation per record.
mod element;
mod output;
mod queue;
mod signal;

pub use element::{Barrier, Element};
pub use output::{BATCH_RECORDS, BatchWriter};
pub use queue::{QUEUE_RECORDS, Received, Receiver, Sender, channel};
pub use signal::Signal;
