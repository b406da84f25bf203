use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use state_api::{Clock, Result};

use super::chained::Stage;
use super::link::Link;
use crate::job::Watermarks;
use crate::record::{END_OF_TIME, Record, SplitEvent};

/// The number of records after which a watermark is sent, at the latest.
const RECORDS_PER_WATERMARK: u32 = 1024;

/// The most silence between two looks that counts, in milliseconds, unless there was nothing to read in between: a subtask
/// that waits for those behind it has not read its splits, so they were not silent.
const BUSY_MS: i64 = 100;

/// How far a split of the source has come.
#[derive(Clone, Copy, Debug)]
struct SplitTime {
    /// The greatest event time.
    max: i64,
    /// Whether there was a record since the last look.
    active: bool,
    silent_ms: i64,
}

impl SplitTime {
    const NEW: Self = Self {
        max: i64::MIN,
        active: false,
        silent_ms: 0,
    };
}

/// Gives records their event time, and derives watermarks that allow for records out of order within a bound.
///
/// Event time is kept per split of the source: the watermark is that of the split that is furthest behind, so one that is
/// read later than another is not late. A split that is silent for long enough holds nobody back.
///
/// It keeps nothing in checkpoints. What was read is not read again after a restore, so it begins without a watermark; that
/// records stay late that were late before is seen to where it matters, by keyed operators.
pub(crate) struct WatermarkStage<T, F> {
    time_of: Arc<F>,
    watermarks: Watermarks,
    clock: Arc<dyn Clock>,
    /// The unfinished splits.
    splits: BTreeMap<u64, SplitTime>,
    /// The split that records are of; records of a source without splits are of split 0.
    current: u64,
    /// That split, more recent than in the map.
    time: SplitTime,
    looked_at_ms: i64,
    /// Whether nothing was there to read since the last look.
    waiting: bool,
    sent: i64,
    /// Whether those behind know that nothing comes for a while.
    said_idle: bool,
    records: u32,
    types: PhantomData<fn(T)>,
}

impl<T, F> WatermarkStage<T, F> {
    pub(crate) fn new(time_of: Arc<F>, watermarks: Watermarks, clock: Arc<dyn Clock>) -> Self {
        Self {
            time_of,
            watermarks,
            looked_at_ms: clock.now_ms(),
            clock,
            splits: BTreeMap::new(),
            current: 0,
            time: SplitTime::NEW,
            waiting: false,
            sent: i64::MIN,
            said_idle: false,
            records: 0,
            types: PhantomData,
        }
    }

    fn others(&self) -> impl Iterator<Item = &SplitTime> {
        let others = self.splits.iter().filter(|(id, _)| **id != self.current);
        others.map(|(_, time)| time)
    }

    /// Adds the time since the last look to the silence of the splits.
    fn look(&mut self, waiting: bool) {
        let now = self.clock.now_ms();
        let mut silent_ms = now.saturating_sub(self.looked_at_ms).max(0);
        if !(waiting && self.waiting) {
            silent_ms = silent_ms.min(BUSY_MS);
        }
        (self.looked_at_ms, self.waiting) = (now, waiting);
        let current = self.current;
        let others = self.splits.iter_mut().filter(|(id, _)| **id != current);
        for time in others.map(|(_, time)| time).chain([&mut self.time]) {
            time.silent_ms = if std::mem::take(&mut time.active) {
                0
            } else {
                time.silent_ms.saturating_add(silent_ms)
            };
        }
    }

    fn is_idle(&self, time: &SplitTime) -> bool {
        let after_ms = self.watermarks.idle_after_ms;
        after_ms.is_some_and(|after_ms| time.silent_ms >= after_ms)
    }
}

impl<T: Record, F: Fn(&T) -> i64 + Send + Sync + 'static> WatermarkStage<T, F> {
    /// Sends the watermark, or says that all splits are idle, as far as it is news.
    fn send(&mut self, waiting: bool, next: &mut dyn Link<T>) -> Result<()> {
        self.records = 0;
        if self.sent == END_OF_TIME {
            return Ok(());
        }
        if self.watermarks.idle_after_ms.is_some() {
            self.look(waiting);
        }
        let awake = self
            .others()
            .chain([&self.time])
            .filter(|time| !self.is_idle(time));
        match awake.map(|time| time.max).min() {
            None if self.said_idle => Ok(()),
            None => {
                self.said_idle = true;
                next.idle()
            }
            Some(i64::MIN) => Ok(()),
            Some(behind) => {
                // A record as old as the bound allows is still in time: the watermark stays below it.
                let watermark = behind
                    .saturating_sub(self.watermarks.bound_ms)
                    .saturating_sub(1);
                if watermark <= self.sent {
                    return Ok(());
                }
                (self.sent, self.said_idle) = (watermark, false);
                next.watermark(watermark)
            }
        }
    }
}

impl<T: Record, F: Fn(&T) -> i64 + Send + Sync + 'static> Stage for WatermarkStage<T, F> {
    type In = T;
    type Out = T;

    #[inline]
    fn process(&mut self, value: T, _time: i64, next: &mut dyn Link<T>) -> Result<()> {
        let time = (self.time_of)(&value);
        self.time.max = self.time.max.max(time);
        self.time.active = true;
        (self.waiting, self.said_idle) = (false, false);
        next.emit(value, time)?;
        self.records += 1;
        if self.records >= RECORDS_PER_WATERMARK {
            return self.send(false, next);
        }
        Ok(())
    }

    fn split(&mut self, event: SplitEvent, next: &mut dyn Link<T>) -> Result<()> {
        match event {
            SplitEvent::Started(id) => {
                self.splits.entry(id).or_insert(SplitTime::NEW);
                if self.splits.len() == 1 && self.current != id {
                    (self.current, self.time) = (id, SplitTime::NEW);
                }
            }
            SplitEvent::Selected(id) => {
                if id != self.current {
                    if let Some(time) = self.splits.get_mut(&self.current) {
                        *time = self.time;
                    }
                    self.current = id;
                    self.time = *self.splits.entry(id).or_insert(SplitTime::NEW);
                }
            }
            SplitEvent::Finished(id) => {
                self.splits.remove(&id);
                if id == self.current {
                    // What is left decides; without anything left the end of the input does.
                    let behind = self.splits.iter().next();
                    (self.current, self.time) =
                        behind.map_or((id, self.time), |(id, time)| (*id, *time));
                }
            }
        }
        next.split(event)
    }

    /// Watermarks of an upstream are replaced by our own; only the end of time passes.
    fn watermark(&mut self, time: i64, next: &mut dyn Link<T>) -> Result<()> {
        if time == END_OF_TIME {
            self.sent = END_OF_TIME;
            next.watermark(time)
        } else {
            Ok(())
        }
    }

    fn idle(&mut self, next: &mut dyn Link<T>) -> Result<()> {
        self.said_idle = true;
        next.idle()
    }

    fn flush(&mut self, next: &mut dyn Link<T>) -> Result<()> {
        self.send(false, next)
    }

    fn tick(&mut self, next: &mut dyn Link<T>) -> Result<Option<i64>> {
        let Some(after_ms) = self.watermarks.idle_after_ms else {
            return Ok(None);
        };
        self.send(true, next)?;
        if self.sent == END_OF_TIME {
            return Ok(None);
        }
        let awake = self
            .others()
            .chain([&self.time])
            .filter(|time| !self.is_idle(time));
        let left = awake.map(|time| after_ms - time.silent_ms).min();
        Ok(left.map(|left| self.looked_at_ms.saturating_add(left)))
    }
}
