use state_api::{CheckpointId, SnapshotKind};

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
}

impl Barrier {
    /// Creates the barrier of a checkpoint.
    #[must_use]
    pub fn new(id: CheckpointId, timestamp_ms: i64) -> Self {
        Self {
            id,
            timestamp_ms,
            kind: SnapshotKind::Checkpoint,
            last: false,
            drain: false,
        }
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
