use std::sync::Arc;

use state_api::access::Aggregator;
use state_api::{Result, StateKey, StateType};

use super::{
    Aggregated, Listed, Reduced, TimeWindow, WindowFunction, WindowOperator, Windowed, Windows,
};
use crate::operator::{KeyedOperator, SideOutput};
use crate::record::Record;

/// How records of type `T` are assigned to windows, when windows are over, and where late records go.
///
/// The builder of jobs makes the operator ([`KeyedStream::window`](crate::KeyedStream::window)); made here, it can be tried out
/// in a harness.
pub struct Windowing<T> {
    pub(super) windows: Windows,
    /// Whether windows go by the clock; by event time otherwise.
    pub(super) by_clock: bool,
    allowed_lateness_ms: i64,
    pub(super) late_output: Option<SideOutput<T>>,
}

impl<T> Clone for Windowing<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Windowing<T> {}

impl<T> Windowing<T> {
    /// Creates windows in event time that allow no lateness.
    #[must_use]
    pub fn new(windows: impl Into<Windows>) -> Self {
        Self {
            windows: windows.into(),
            by_clock: false,
            allowed_lateness_ms: 0,
            late_output: None,
        }
    }

    /// Keeps windows by the clock at which records are processed, not by event time; no record is late then.
    #[must_use]
    pub fn by_clock(mut self) -> Self {
        self.by_clock = true;
        self
    }

    /// Keeps the state of a window for some milliseconds of event time after it fired: it fires again for each record that
    /// comes late, with all its records. A record is late for good when the watermark has reached the window's last
    /// millisecond plus this.
    #[must_use]
    pub fn allowed_lateness(mut self, ms: i64) -> Self {
        self.allowed_lateness_ms = ms.max(0);
        self
    }

    /// Names the output that records go to which come after all their windows are over; without one they are dropped and
    /// counted in `holdfast_late_records_total`.
    #[must_use]
    pub fn late_output(mut self, late: SideOutput<T>) -> Self {
        self.late_output = Some(late);
        self
    }

    /// Returns when a window fires: as soon as no record can come for it in time.
    pub(super) fn fires_at(&self, window: TimeWindow) -> i64 {
        // At the last millisecond the clock still gives records that time; a watermark of that time says there are no more.
        if self.by_clock {
            window.end_ms
        } else {
            window.last_ms()
        }
    }

    /// Returns when the state of a window is removed.
    pub(super) fn over_at(&self, window: TimeWindow) -> i64 {
        if self.by_clock {
            window.end_ms
        } else {
            window.last_ms().saturating_add(self.allowed_lateness_ms)
        }
    }

    pub(super) fn is_over(&self, window: TimeWindow, watermark: i64) -> bool {
        !self.by_clock && self.over_at(window) <= watermark
    }

    /// Returns whether a record that is in no window came late for good.
    pub(super) fn is_late(&self, time_ms: i64, watermark: i64) -> bool {
        !self.by_clock && time_ms.saturating_add(self.allowed_lateness_ms) <= watermark
    }
}

impl<T: Record> Windowing<T> {
    /// Makes the operator that folds the records of each key and window.
    pub fn aggregate<K, A>(
        self,
        aggregator: A,
    ) -> impl KeyedOperator<Key = K, In = T, Out = Windowed<K, A::Out>>
    where
        K: StateKey,
        A: Aggregator<In = T>,
        A::Out: Record,
    {
        WindowOperator::new(self, Aggregated::<K, A>::new(aggregator))
    }

    /// Makes the operator that reduces the records of each key and window to one by a function of two.
    pub fn reduce<K: StateKey>(
        self,
        reduce: impl Fn(&T, T) -> Result<T> + Send + Sync + 'static,
    ) -> impl KeyedOperator<Key = K, In = T, Out = Windowed<K, T>>
    where
        T: StateType,
    {
        WindowOperator::new(self, Reduced::<K, T>::new(Arc::new(reduce)))
    }

    /// Makes the operator that gathers the records of each key and window and processes them together.
    pub fn process<F: WindowFunction<In = T>>(
        self,
        function: F,
    ) -> impl KeyedOperator<Key = F::Key, In = T, Out = F::Out> {
        WindowOperator::new(self, Listed::new(function))
    }
}
