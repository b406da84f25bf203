use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use state_api::Result;

use super::chained::Stage;
use super::link::Link;
use crate::record::{END_OF_TIME, Record, SplitEvent};

/// The number of records after which a watermark is sent, at the latest.
const RECORDS_PER_WATERMARK: u32 = 1024;

/// Gives records their event time, and derives watermarks that allow for records out of order within a bound.
///
/// Event time is kept per split of the source: the watermark is that of the split that is furthest behind, so one that is
/// read later than another is not late.
pub(crate) struct WatermarkStage<T, F> {
    time_of: Arc<F>,
    bound_ms: i64,
    /// The greatest event time per unfinished split.
    splits: BTreeMap<u64, i64>,
    /// The split that records are of; records of a source without splits are of split 0.
    current: u64,
    current_max: i64,
    sent: i64,
    records: u32,
    types: PhantomData<fn(T)>,
}

impl<T, F> WatermarkStage<T, F> {
    pub(crate) fn new(time_of: Arc<F>, bound_ms: i64) -> Self {
        Self {
            time_of,
            bound_ms,
            splits: BTreeMap::new(),
            current: 0,
            current_max: i64::MIN,
            sent: i64::MIN,
            records: 0,
            types: PhantomData,
        }
    }
}

impl<T: Record, F: Fn(&T) -> i64 + Send + Sync + 'static> WatermarkStage<T, F> {
    fn send(&mut self, next: &mut dyn Link<T>) -> Result<()> {
        self.records = 0;
        let others = self
            .splits
            .iter()
            .filter(|(id, _)| **id != self.current)
            .map(|(_, max)| *max)
            .min();
        let behind = others.unwrap_or(i64::MAX).min(self.current_max);
        if behind == i64::MIN {
            return Ok(());
        }
        // A record as old as the bound allows is still in time: the watermark stays below it.
        let watermark = behind.saturating_sub(self.bound_ms).saturating_sub(1);
        if watermark > self.sent {
            self.sent = watermark;
            return next.watermark(watermark);
        }
        Ok(())
    }
}

impl<T: Record, F: Fn(&T) -> i64 + Send + Sync + 'static> Stage for WatermarkStage<T, F> {
    type In = T;
    type Out = T;

    #[inline]
    fn process(&mut self, value: T, _time: i64, next: &mut dyn Link<T>) -> Result<()> {
        let time = (self.time_of)(&value);
        self.current_max = self.current_max.max(time);
        next.emit(value, time)?;
        self.records += 1;
        if self.records >= RECORDS_PER_WATERMARK {
            return self.send(next);
        }
        Ok(())
    }

    fn split(&mut self, event: SplitEvent, next: &mut dyn Link<T>) -> Result<()> {
        match event {
            SplitEvent::Started(id) => {
                self.splits.entry(id).or_insert(i64::MIN);
                if self.splits.len() == 1 {
                    self.current = id;
                }
            }
            SplitEvent::Selected(id) => {
                if id != self.current {
                    if let Some(max) = self.splits.get_mut(&self.current) {
                        *max = self.current_max;
                    }
                    self.current = id;
                    self.current_max = *self.splits.entry(id).or_insert(i64::MIN);
                }
            }
            SplitEvent::Finished(id) => {
                self.splits.remove(&id);
                if id == self.current {
                    // What is left decides; without anything left the end of the input does.
                    let behind = self.splits.iter().next();
                    (self.current, self.current_max) =
                        behind.map_or((id, self.current_max), |(id, max)| (*id, *max));
                }
            }
        }
        next.split(event)
    }

    /// Watermarks of an upstream are replaced by our own; only the end of time passes.
    fn watermark(&mut self, time: i64, next: &mut dyn Link<T>) -> Result<()> {
        if time == END_OF_TIME {
            next.watermark(time)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, next: &mut dyn Link<T>) -> Result<()> {
        self.send(next)
    }
}
