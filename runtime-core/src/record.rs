use state_api::Result;

use crate::operator::SideRecord;

/// A value that flows through a job.
///
/// Implemented for every type that qualifies; records are cloned only where a stream has several consumers.
pub trait Record: Clone + Send + 'static {}

impl<T: Clone + Send + 'static> Record for T {}

/// The event time of records that have none.
pub const NO_TIMESTAMP: i64 = i64::MIN;

/// The watermark after the last record: no event time is left.
pub const END_OF_TIME: i64 = i64::MAX;

/// A record with its event time in milliseconds ([`NO_TIMESTAMP`] if it has none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed<T> {
    /// The record.
    pub value: T,
    /// Event time in milliseconds.
    pub time: i64,
}

/// Says where a source stands in the parts of its input, so that watermarks are kept per part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitEvent {
    /// A part will bring records; until it does it holds back the watermark.
    Started(u64),
    /// The records that follow are of this part.
    Selected(u64),
    /// A part brings no more records.
    Finished(u64),
}

/// Takes records one after the other: what a source or an operator writes to.
///
/// # Contract
/// Implemented by the runtime, and by `Vec` for tests of sources; called on the subtask's thread.
pub trait Emit<T> {
    /// Takes a record with its event time in milliseconds ([`NO_TIMESTAMP`] if it has none).
    ///
    /// # Errors
    /// Those of the operators behind.
    fn emit(&mut self, value: T, time: i64) -> Result<()>;

    /// Takes a record of a side output; drops it if nobody reads that one.
    ///
    /// # Errors
    /// Those of the operators behind.
    fn emit_side(&mut self, record: SideRecord<'_>, time: i64) -> Result<()> {
        let _ = (record, time);
        Ok(())
    }

    /// Takes note of the part that a source reads.
    ///
    /// # Errors
    /// Those of the operators behind.
    fn split(&mut self, event: SplitEvent) -> Result<()> {
        let _ = event;
        Ok(())
    }
}

impl<T> Emit<T> for Vec<T> {
    fn emit(&mut self, value: T, _time: i64) -> Result<()> {
        self.push(value);
        Ok(())
    }
}

impl<T> Emit<T> for Vec<Timed<T>> {
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        self.push(Timed { value, time });
        Ok(())
    }
}
