use state_api::access::Aggregator;
use state_api::{Result, StateKey, StateType};

use super::{KeyedStream, Stream};
use crate::operator::{SideOutput, WindowFunction, Windowed, Windowing, Windows};
use crate::record::Record;

/// A keyed stream whose records are assigned to windows.
///
/// A window fires when the watermark passes its last millisecond. What comes for it after that is late: it is dropped and
/// counted in `holdfast_late_records_total`, unless lateness is allowed or a late output is named.
pub struct WindowedStream<K, T> {
    keyed: KeyedStream<K, T>,
    windowing: Windowing<T>,
}

impl<K: StateKey, T: Record> WindowedStream<K, T> {
    pub(crate) fn new(keyed: KeyedStream<K, T>, windows: Windows) -> Self {
        Self {
            keyed,
            windowing: Windowing::new(windows),
        }
    }

    /// Keeps windows by the clock: as [`Windowing::by_clock`].
    #[must_use]
    pub fn by_clock(mut self) -> Self {
        self.windowing = self.windowing.by_clock();
        self
    }

    /// Lets windows fire again for records that come late: as [`Windowing::allowed_lateness`].
    #[must_use]
    pub fn allowed_lateness(mut self, ms: i64) -> Self {
        self.windowing = self.windowing.allowed_lateness(ms);
        self
    }

    /// Names the output for records that come after all their windows are over; [`Stream::side_output`] of the stream of
    /// results reads it.
    #[must_use]
    pub fn late_output(mut self, late: SideOutput<T>) -> Self {
        self.windowing = self.windowing.late_output(late);
        self
    }

    /// Folds the records of each key and window; `uid` names the state in checkpoints.
    pub fn aggregate<A>(&self, uid: &str, aggregator: A) -> Stream<Windowed<K, A::Out>>
    where
        A: Aggregator<In = T>,
        A::Out: Record,
    {
        self.keyed
            .process(uid, self.windowing.aggregate(aggregator))
    }

    /// Reduces the records of each key and window to one by a function of two; `uid` names the state in checkpoints.
    pub fn reduce(
        &self,
        uid: &str,
        reduce: impl Fn(&T, T) -> Result<T> + Send + Sync + 'static,
    ) -> Stream<Windowed<K, T>>
    where
        T: StateType,
    {
        self.keyed.process(uid, self.windowing.reduce(reduce))
    }

    /// Gathers the records of each key and window and processes them together; `uid` names the state in checkpoints.
    pub fn process<F>(&self, uid: &str, function: F) -> Stream<F::Out>
    where
        F: WindowFunction<Key = K, In = T>,
    {
        self.keyed.process(uid, self.windowing.process(function))
    }
}
