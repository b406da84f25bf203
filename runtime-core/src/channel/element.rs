use state_api::{CheckpointId, Error, Result, SnapshotKind};

use crate::config::CheckpointMode;

/// How the barrier of a checkpoint passes the records that are queued before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BarrierMode {
    /// In line with them: a channel that brought it waits for the others.
    #[default]
    Aligned,
    /// In line at first; this many milliseconds after the checkpoint's trigger it overtakes.
    AlignedWithTimeout(u64),
    /// Before them: they become part of the checkpoint.
    Unaligned,
}

impl BarrierMode {
    /// Picks the mode of a checkpoint from what is configured: only a checkpoint that is taken exactly once can overtake,
    /// and a savepoint never does. `timeout_ms` is how long barriers stay in line first; `u64::MAX` means for ever.
    #[must_use]
    pub fn of(kind: SnapshotKind, mode: CheckpointMode, unaligned: bool, timeout_ms: u64) -> Self {
        if kind.is_savepoint() || mode == CheckpointMode::AtLeastOnce || !unaligned {
            return Self::Aligned;
        }
        match timeout_ms {
            0 => Self::Unaligned,
            u64::MAX => Self::Aligned,
            timeout => Self::AlignedWithTimeout(timeout),
        }
    }
}

/// Cuts a stream of records: what came before it is in the checkpoint, what comes after is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint.
    pub id: CheckpointId,
    /// When the checkpoint was triggered, in milliseconds of wall-clock time.
    pub timestamp_ms: i64,
    /// What is asked of the snapshot.
    pub kind: SnapshotKind,
    /// Whether the job ends with this checkpoint: behind it nothing is processed until its outcome is known.
    pub last: bool,
    /// Whether sources end their input before it.
    pub drain: bool,
    /// How it passes queued records, on channels that let it choose.
    pub mode: BarrierMode,
    /// Set on a channel whose records can't be part of a checkpoint: there it stays in line whatever its mode.
    pub forced_aligned: bool,
}

impl Barrier {
    /// Creates the barrier of an aligned checkpoint.
    #[must_use]
    pub fn new(id: CheckpointId, timestamp_ms: i64) -> Self {
        Self {
            id,
            timestamp_ms,
            kind: SnapshotKind::Checkpoint,
            last: false,
            drain: false,
            mode: BarrierMode::Aligned,
            forced_aligned: false,
        }
    }

    /// Sets how it passes queued records.
    ///
    /// # Errors
    /// `InvalidArgument` for the barrier of a savepoint that would overtake records.
    pub fn with_mode(mut self, mode: BarrierMode) -> Result<Self> {
        if self.kind.is_savepoint() && mode != BarrierMode::Aligned {
            return Err(Error::invalid("the barriers of a savepoint are aligned")
                .with("checkpoint", self.id));
        }
        self.mode = mode;
        Ok(self)
    }

    /// Returns how it passes the records of the channel that it is on.
    #[must_use]
    pub fn effective_mode(&self) -> BarrierMode {
        if self.forced_aligned {
            BarrierMode::Aligned
        } else {
            self.mode
        }
    }

    /// Returns it for a channel whose records can't be part of a checkpoint.
    #[must_use]
    pub fn force_aligned(mut self) -> Self {
        self.forced_aligned = true;
        self
    }

    /// Returns it for the next channels, which choose for themselves.
    #[must_use]
    pub fn unforced(mut self) -> Self {
        self.forced_aligned = false;
        self
    }
}

/// What travels through a channel, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Element<T> {
    /// Records.
    Batch(Vec<T>),
    /// No record with a smaller event time (in milliseconds) follows.
    Watermark(i64),
    /// Nothing comes for a while: watermarks of others shall not wait for this channel. Ended by the next batch or watermark.
    Idle,
    /// A checkpoint begins here.
    Barrier(Barrier),
    /// A checkpoint that will have no barrier here: whoever waits for it gives up.
    CancelMarker(CheckpointId),
    /// No more records follow; barriers may.
    EndOfInput,
}

impl<T> Element<T> {
    /// Returns the number of records in it.
    #[must_use]
    pub fn records(&self) -> usize {
        match self {
            Self::Batch(records) => records.len(),
            _ => 0,
        }
    }
}
