use managed_state::keyed::{AggregatingState, At, DueTimer, Timers};
use state_api::access::{Aggregator, MergeAccess};
use state_api::{Error, Result, StateKey};

use super::{KeyedOperator, Out, States};
use crate::record::Record;

/// Windows of one length, one after the other, aligned to the epoch plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tumbling {
    size_ms: i64,
    offset_ms: i64,
}

impl Tumbling {
    /// Creates windows of `size_ms` milliseconds; at least 1.
    #[must_use]
    pub fn of(size_ms: i64) -> Self {
        Self {
            size_ms: size_ms.max(1),
            offset_ms: 0,
        }
    }

    /// Shifts the windows by milliseconds, for days of another time zone, say.
    #[must_use]
    pub fn offset(mut self, offset_ms: i64) -> Self {
        self.offset_ms = offset_ms;
        self
    }

    /// Returns the start of the window that an event time lies in, both in milliseconds.
    #[must_use]
    pub fn start_of(self, time_ms: i64) -> i64 {
        let into = time_ms
            .wrapping_sub(self.offset_ms)
            .rem_euclid(self.size_ms);
        time_ms.saturating_sub(into)
    }

    /// Returns the first millisecond after a window that starts at `start_ms`.
    #[must_use]
    pub fn end_of(self, start_ms: i64) -> i64 {
        start_ms.saturating_add(self.size_ms)
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

/// Folds the records of each key and tumbling window, and emits the result when the watermark passes the window's end.
///
/// The accumulator lies in the window's namespace. Records whose window is over are dropped and counted in
/// `holdfast_late_records_total`.
#[derive(Clone)]
pub(crate) struct WindowOperator<K, A: Aggregator> {
    windows: Tumbling,
    aggregator: A,
    state: AggregatingState<A, i64>,
    timers: Timers<i64>,
    key: std::marker::PhantomData<fn(K)>,
}

impl<K, A: Aggregator> WindowOperator<K, A> {
    pub(crate) fn new(windows: Tumbling, aggregator: A) -> Self {
        let (state, timers) = (AggregatingState::default(), Timers::default());
        Self {
            windows,
            aggregator,
            state,
            timers,
            key: std::marker::PhantomData,
        }
    }
}

impl<K, A> KeyedOperator for WindowOperator<K, A>
where
    K: StateKey,
    A: Aggregator,
    A::In: Record,
    A::Out: Record,
{
    type Key = K;
    type In = A::In;
    type Out = Windowed<K, A::Out>;

    fn open(&mut self, states: &mut States<'_, K>) -> Result<()> {
        self.state = states.aggregating("window", self.aggregator.clone())?;
        self.timers = states.event_timers("window-end")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: A::In,
        at: &mut At<'_, K>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let Some(time) = out.time() else {
            return Err(Error::invalid(
                "a window needs records with event time: assign watermarks before it",
            ));
        };
        let start = self.windows.start_of(time);
        let last = self.windows.end_of(start) - 1;
        if last <= out.watermark() {
            metrics::counter!("holdfast_late_records_total").increment(1);
            return Ok(());
        }
        at.aggregating_in(self.state, &start).add(record)?;
        at.timers_in(self.timers, &start).set(last)?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<K>,
        at: &mut At<'_, K>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let start_ms: i64 = due.namespace()?;
        let mut state = at.aggregating_in(self.state, &start_ms);
        let Some(value) = state.get()? else {
            return Ok(());
        };
        state.clear()?;
        let end_ms = self.windows.end_of(start_ms);
        out.emit(Windowed {
            key: due.key.clone(),
            start_ms,
            end_ms,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_at_or_before_each_of_its_times_also_before_the_epoch() {
        let day = Tumbling::of(86_400_000);
        assert_eq!(day.start_of(0), 0);
        assert_eq!(day.start_of(86_399_999), 0);
        assert_eq!(day.start_of(86_400_000), 86_400_000);
        assert_eq!(day.start_of(-1), -86_400_000);
        let shifted = Tumbling::of(10).offset(3);
        assert_eq!([2, 3, 12, 13].map(|t| shifted.start_of(t)), [-7, 3, 3, 13]);
    }
}
