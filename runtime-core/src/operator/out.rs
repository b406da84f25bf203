use state_api::Result;

use super::{SideOutput, SideRecord};
use crate::record::{Emit, NO_TIMESTAMP, Record};

/// Takes what an operator emits.
///
/// Records get the event time of what the operator is called for: the record's, or the time that a timer was set to.
pub struct Out<'a, T> {
    next: &'a mut dyn Emit<T>,
    time: i64,
    watermark: i64,
}

impl<'a, T> Out<'a, T> {
    /// Creates an output before `next`, for a record of event time `time` at a watermark, both in milliseconds.
    pub fn new(next: &'a mut dyn Emit<T>, time: i64, watermark: i64) -> Self {
        Self {
            next,
            time,
            watermark,
        }
    }

    /// Emits a record.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    #[inline]
    pub fn emit(&mut self, value: T) -> Result<()> {
        self.next.emit(value, self.time)
    }

    /// Emits a record with an event time of its own, in milliseconds.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    #[inline]
    pub fn emit_at(&mut self, value: T, time_ms: i64) -> Result<()> {
        self.next.emit(value, time_ms)
    }

    /// Emits a record to a side output, with the event time that [`emit`](Self::emit) gives; dropped if nobody reads it.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    pub fn emit_side<S: Record>(&mut self, side: SideOutput<S>, value: S) -> Result<()> {
        let mut record = Some(value);
        let record = SideRecord::new(side, &mut record);
        self.next.emit_side(record, self.time)
    }

    /// Returns the same output for records of another event time, in milliseconds.
    #[must_use]
    pub fn at_time(&mut self, time_ms: i64) -> Out<'_, T> {
        Out::new(self.next, time_ms, self.watermark)
    }

    /// Returns the event time of what the operator is called for, in milliseconds.
    #[inline]
    #[must_use]
    pub fn time(&self) -> Option<i64> {
        (self.time != NO_TIMESTAMP).then_some(self.time)
    }

    /// Returns the watermark: no record with a smaller event time (in milliseconds) is expected; `i64::MIN` before the first.
    #[inline]
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.watermark
    }
}
