use std::fmt;

use state_api::CheckpointId;

/// How far a subtask is with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActivityPhase {
    /// A barrier came; input channels that brought theirs wait for these. Channels are numbered through all inputs, each with
    /// one channel per subtask in front of it.
    Aligning {
        /// The channels whose barrier is missing.
        missing: Vec<usize>,
    },
    /// Operators freeze their state; the subtask processes nothing meanwhile.
    SyncPart,
    /// The snapshot is taken, and what comes on these channels before their barriers is recorded.
    RecordingInFlight {
        /// The channels whose barrier is missing.
        missing: Vec<usize>,
    },
    /// What was frozen is written to the store.
    AsyncPart,
    /// It has acked or declined.
    Reported,
}

impl fmt::Display for ActivityPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aligning { missing } => write!(f, "aligning, no barrier yet on {}", On(missing)),
            Self::SyncPart => f.write_str("freezing state"),
            Self::RecordingInFlight { missing } => {
                write!(f, "recording records in flight on {}", On(missing))
            }
            Self::AsyncPart => f.write_str("writing state to the store"),
            Self::Reported => f.write_str("done"),
        }
    }
}

/// Names the first few channels.
struct On<'a>(&'a [usize]);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        f.write_str(if self.0.len() == 1 {
            "channel"
        } else {
            "channels"
        })?;
        for (i, channel) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{} {channel}", if i == 0 { "" } else { "," })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What a subtask does for a checkpoint, for whoever waits for its ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The newest checkpoint that it has seen a barrier of.
    pub checkpoint: CheckpointId,
    /// How far it is.
    pub phase: ActivityPhase,
    /// Since when, in milliseconds of wall-clock time.
    pub since_ms: i64,
    /// Bytes so far: of records processed while aligning (see [`alignment_bytes`](crate::execution::CheckpointStats::alignment_bytes)),
    /// of records in flight that were recorded, or of state that was handed to the store.
    pub bytes: u64,
}
