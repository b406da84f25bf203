use state_api::{StateKey, StateType};

/// A window in time: the namespace of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey)]
pub struct TimeWindow {
    /// First millisecond of the window.
    pub start_ms: i64,
    /// First millisecond after the window.
    pub end_ms: i64,
}

impl TimeWindow {
    /// Creates a window from its first millisecond to the one after its last.
    #[must_use]
    pub fn new(start_ms: i64, end_ms: i64) -> Self {
        Self { start_ms, end_ms }
    }

    /// Returns the last millisecond of the window: the event time of its results.
    #[inline]
    #[must_use]
    pub fn last_ms(self) -> i64 {
        self.end_ms.saturating_sub(1)
    }

    /// Returns whether the windows overlap or one begins where the other one ends.
    #[must_use]
    pub fn touches(self, other: Self) -> bool {
        self.start_ms <= other.end_ms && other.start_ms <= self.end_ms
    }

    /// Returns the smallest window that covers both.
    #[must_use]
    pub fn cover(self, other: Self) -> Self {
        Self {
            start_ms: self.start_ms.min(other.start_ms),
            end_ms: self.end_ms.max(other.end_ms),
        }
    }
}

/// The result of one window of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowed<K, R> {
    /// The key.
    pub key: K,
    /// First millisecond of the window.
    pub start_ms: i64,
    /// First millisecond after the window.
    pub end_ms: i64,
    /// What the records of the window were folded into.
    pub value: R,
}

impl<K, R> Windowed<K, R> {
    pub(crate) fn new(key: K, window: TimeWindow, value: R) -> Self {
        Self {
            key,
            start_ms: window.start_ms,
            end_ms: window.end_ms,
            value,
        }
    }
}
