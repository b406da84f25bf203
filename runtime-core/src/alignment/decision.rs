use state_api::CheckpointId;

use crate::channel::Barrier;

/// Something that a subtask finds on an input channel, or hears about a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A barrier.
    Barrier {
        /// The channel.
        channel: usize,
        /// The barrier.
        barrier: Barrier,
    },
    /// A barrier that may overtake after a timeout is in line: it will come, but may come late.
    Announced {
        /// The channel.
        channel: usize,
        /// The barrier.
        barrier: Barrier,
    },
    /// Time has passed.
    Tick,
    /// A cancel marker: the checkpoint has no barrier on this channel.
    Cancel {
        /// The channel.
        channel: usize,
        /// The checkpoint.
        id: CheckpointId,
    },
    /// The channel brings nothing more, not even barriers.
    EndOfPartition {
        /// The channel.
        channel: usize,
    },
    /// The coordinator has given the checkpoint up.
    Abort {
        /// The checkpoint.
        id: CheckpointId,
    },
}

/// Why a subtask gives up a checkpoint that it began to align, or that others cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GiveUp {
    /// The barrier or the cancel marker of a newer one came first.
    Subsumed,
    /// A cancel marker came.
    CancelMarker,
    /// A channel ended, and checkpoints after the end of channels are switched off.
    InputEnded,
    /// The coordinator gave it up.
    Aborted,
}

/// What an alignment cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlignmentReport {
    /// Nanoseconds from the first barrier to the last; 0 with a single open channel.
    pub duration_ns: u64,
    /// Bytes of the records processed between the first barrier and the last, as whoever reads the channels measures them.
    pub bytes: u64,
    /// Bytes of records in flight that became part of the checkpoint.
    pub persisted_bytes: u64,
    /// Milliseconds from the trigger of the checkpoint to the first barrier.
    pub start_delay_ms: u64,
}

/// What the subtask must do, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read nothing from this channel.
    Block(usize),
    /// Read from this channel again.
    Unblock(usize),
    /// Take the snapshot now: every channel is at the cut, or the barrier overtook.
    Trigger {
        /// The barrier to pass on.
        barrier: Barrier,
        /// What the alignment cost so far.
        report: AlignmentReport,
        /// Whether records in flight are part of the checkpoint: what was overtaken, and on channels whose barrier has not come
        /// what comes before it. [`Decision::AllBarriersIn`] says when there are no more.
        unaligned: bool,
    },
    /// Let the barriers of this checkpoint that are in line overtake.
    Overtake(CheckpointId),
    /// Every channel brought the barrier of a checkpoint that was triggered unaligned.
    AllBarriersIn {
        /// The checkpoint.
        id: CheckpointId,
        /// What it cost.
        report: AlignmentReport,
    },
    /// Decline the checkpoint and pass a cancel marker on.
    GiveUp {
        /// The checkpoint.
        id: CheckpointId,
        /// Why.
        why: GiveUp,
    },
}
