use std::fmt;
use std::sync::Arc;

use state_api::{KeyGroup, OperatorStateMode, OperatorUid, StateKind, Value};

/// One entry of a state as dynamic values. Of a list each element is an entry, of a map each map key.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The operator.
    pub operator: OperatorUid,
    /// The subtask that wrote it.
    pub subtask: u32,
    /// Name of the state.
    pub state: Arc<str>,
    /// Kind of the state.
    pub kind: StateKind,
    /// How operator state is dealt out; `None` for keyed state.
    pub mode: Option<OperatorStateMode>,
    /// The key group; `None` for operator state.
    pub key_group: Option<KeyGroup>,
    /// The key; `None` for operator state.
    pub key: Option<Value>,
    /// The namespace; `None` if the state has none.
    pub namespace: Option<Value>,
    /// The map key, of maps and broadcast state.
    pub map_key: Option<Value>,
    /// The position in the list, from 0.
    pub index: Option<u64>,
    /// The time of a timer in milliseconds.
    pub time_ms: Option<i64>,
    /// The value; `None` for timers.
    pub value: Option<Value>,
    /// When it was last renewed in milliseconds since the Unix epoch, of states with a time-to-live.
    pub renewed_ms: Option<i64>,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_ms: Option<i64>,
}

/// Bytes that nobody but their writer can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPart {
    /// The operator.
    pub operator: OperatorUid,
    /// The subtask that wrote it; `None` for the operator's coordinator.
    pub subtask: Option<u32>,
    /// What it is for.
    pub kind: RawKind,
    /// The key group, if it belongs to one.
    pub key_group: Option<KeyGroup>,
    /// The position among the subtask's partitions, if it belongs to none.
    pub partition: Option<u64>,
    /// Number of bytes as stored, checksums included.
    pub bytes: u64,
}

/// What bytes are for that nobody but their writer can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RawKind {
    /// Written by an operator per key group.
    Keyed,
    /// Written by an operator in partitions.
    Operator,
    /// Keyed records that an unaligned checkpoint overtook.
    InFlightKeyed,
    /// Records without a key that an unaligned checkpoint overtook.
    InFlight,
    /// Saved by the operator's coordinator.
    Coordinator,
}

impl RawKind {
    /// Returns the words used in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyed => "raw keyed",
            Self::Operator => "raw operator",
            Self::InFlightKeyed => "keyed in flight",
            Self::InFlight => "in flight",
            Self::Coordinator => "coordinator",
        }
    }
}

impl fmt::Display for RawKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a checkpoint holds, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An entry of a state.
    Entry(Box<Entry>),
    /// Raw bytes, of which only the length is known.
    Raw(RawPart),
}
