//! Barrier alignment: where the barriers of a subtask's input channels become one cut.
//!
//! A subtask with several input channels gets the barrier of checkpoint *n* on each of them, at different moments.
//!
//! - Exactly once, aligned, [`ExactlyOnceBarriers`]: a channel that brought its barrier is blocked until the last open channel brought
//!   its own. Then the subtask's state holds exactly the records before the barriers: it takes its snapshot, and all
//!   channels go on. Only one checkpoint aligns at a time; a newer barrier gives up the older one.
//! - Exactly once, unaligned: the first barrier, which overtook the records queued before it, cuts at once and no channel is
//!   blocked. What the other channels bring before their barriers, and what was overtaken, is recorded: these records in flight are
//!   part of the checkpoint (FLIP-76). An alignment with a timeout begins in the first way and goes over to this one when
//!   the time is up, once.
//! - At least once, [`CountedBarriers`]: channels are never blocked, barriers are only counted, per checkpoint. Records that
//!   overtake a barrier are in the snapshot and are replayed after a restore.
//!
//! Both are pure state machines: an [`Arrival`] goes in, [`Decision`]s come out, time is a number that is passed in. The
//! caller (`chain::gate`) reads no blocked channel and carries the decisions out. The rules follow Flink's
//! `SingleCheckpointBarrierHandler` and `CheckpointBarrierTracker` (FLIP-147 for ended channels).
mod counted;
mod decision;
mod exactly_once;

pub use counted::CountedBarriers;
pub use decision::{AlignmentReport, Arrival, Decision, GiveUp};
pub use exactly_once::ExactlyOnceBarriers;
