use std::fmt;
use std::sync::Arc;

use crate::{TtlConfig, TypeMeta};

/// The kinds of managed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// One value per key and namespace.
    Value,
    /// A list per key and namespace.
    List,
    /// A map per key and namespace, without order.
    Map,
    /// A map per key and namespace, ordered by map key.
    SortedMap,
    /// One value into which added values are merged.
    Reducing,
    /// One accumulator into which inputs are folded.
    Aggregating,
    /// A set of timers, ordered by time.
    Timer,
    /// A list of an operator subtask.
    OperatorList,
    /// A map that is the same in every subtask.
    Broadcast,
}

impl StateKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Value,
        Self::List,
        Self::Map,
        Self::SortedMap,
        Self::Reducing,
        Self::Aggregating,
        Self::Timer,
        Self::OperatorList,
        Self::Broadcast,
    ];

    /// Returns the word used in metadata and output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::List => "list",
            Self::Map => "map",
            Self::SortedMap => "sorted-map",
            Self::Reducing => "reducing",
            Self::Aggregating => "aggregating",
            Self::Timer => "timer",
            Self::OperatorList => "operator-list",
            Self::Broadcast => "broadcast",
        }
    }

    /// Finds the kind by its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a snapshot says about a state: enough to read it without the job's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMeta {
    /// Name, unique within its operator.
    pub name: Arc<str>,
    /// Kind.
    pub kind: StateKind,
    /// Type of the key; the unit type for operator state.
    pub key: TypeMeta,
    /// Type of the namespace; the unit type where there is none.
    pub namespace: TypeMeta,
    /// Type of the map key, for maps and broadcast state.
    pub map_key: Option<TypeMeta>,
    /// Type of the value, list element, map value or accumulator; the unit type for timers.
    pub value: TypeMeta,
    /// Time-to-live in milliseconds; if present, each value is stored behind an `i64` timestamp.
    pub ttl_ms: Option<i64>,
}

/// Name, time-to-live and codec of a state: what is the same for every kind.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// Name, unique within its operator.
    pub name: Arc<str>,
    /// Time-to-live, if any.
    pub ttl: Option<TtlConfig>,
    /// Codec of the value part.
    pub codec: crate::CodecKind,
}

impl StateOptions {
    /// Creates options: no time-to-live, compact codec.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            ttl: None,
            codec: crate::CodecKind::Compact,
        }
    }

    /// Sets the time-to-live.
    #[must_use]
    pub fn ttl(mut self, ttl: TtlConfig) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the codec of the value part.
    #[must_use]
    pub fn codec(mut self, codec: crate::CodecKind) -> Self {
        self.codec = codec;
        self
    }
}

impl From<&str> for StateOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
