//! How records travel between subtasks: bounded queues of batches with barriers in band.
//!
//! A [`Sender`] and a [`Receiver`] share one queue per pair of subtasks. Nothing in here waits: a full queue gives the
//! element back, an empty one says so, and each side rings the other's [`Signal`] when that changes. A thread that has
//! nothing to do parks on its own signal; a driver that steps all subtasks on one thread just steps on.
//!
//! Records travel a batch at a time, so there is no lock and no allocation per record.
//!
//! The barrier of an unaligned checkpoint does not wait in line: it goes to the [`Urgent`] lane of its channel, with a note of
//! how much it overtook, and calls the receiver, who looks up before the next record. Everything that was sent before
//! it lies in the queue then (the sender hands over what it kept back), so the receiver alone makes the overtaken records part of the
//! checkpoint. A barrier that overtakes only after a timeout waits in line and is announced; the receiver pulls it out.
mod element;
mod output;
mod queue;
mod signal;

pub use element::{Barrier, BarrierMode, Element};
pub use output::{BATCH_RECORDS, BatchWriter};
pub use queue::{QUEUE_RECORDS, Received, Receiver, Sender, Urgent, channel};
pub use signal::Signal;
