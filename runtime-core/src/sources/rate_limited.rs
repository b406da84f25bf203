use std::sync::Arc;

use state_api::{CheckpointId, Clock, Error, Result};

use super::pace::Pace;
use crate::record::{Emit, SplitEvent};
use crate::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};

/// Records that are passed on between two looks at the clock and at the output.
const BATCH: usize = 256;

/// Slows a source down to a number of records per second, all subtasks together.
///
/// The rate is kept by the clock of the runtime and not part of a checkpoint. A source that was held back makes up for at most
/// a second.
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    source: S,
    per_second: f64,
}

impl<S> RateLimited<S> {
    /// Limits a source to records per second; the rate is checked when the job starts.
    #[must_use]
    pub fn new(source: S, per_second: f64) -> Self {
        Self { source, per_second }
    }

    fn rate(&self) -> Result<f64> {
        if self.per_second > 0.0 && self.per_second.is_finite() {
            return Ok(self.per_second);
        }
        Err(Error::config(format!(
            "the rate of a source must be above 0 records per second, not {}",
            self.per_second
        )))
    }
}

impl<S: Source> Source for RateLimited<S> {
    type Out = S::Out;
    type Split = S::Split;
    type Reader = RateLimitedReader<S::Reader>;

    fn enumerate(&self, parallelism: u32) -> Result<Vec<S::Split>> {
        self.rate()?;
        self.source.enumerate(parallelism)
    }

    fn reader(&self, cx: &SourceContext, splits: Vec<S::Split>) -> Result<Self::Reader> {
        let share = self.rate()? / f64::from(cx.subtask.parallelism.max(1));
        Ok(RateLimitedReader {
            reader: self.source.reader(cx, splits)?,
            pace: Pace::new(share),
            clock: Arc::clone(&cx.clock),
        })
    }

    fn describe(&self, split: &S::Split) -> String {
        self.source.describe(split)
    }
}

/// Reads for a [`RateLimited`] source.
#[derive(Debug)]
pub struct RateLimitedReader<R> {
    reader: R,
    pace: Pace,
    clock: Arc<dyn Clock>,
}

impl<R: SourceReader> SourceReader for RateLimitedReader<R> {
    type Out = R::Out;
    type Split = R::Split;

    fn poll(&mut self, out: &mut SourceOutput<'_, R::Out>) -> Result<SourceStatus> {
        while !out.is_full() {
            let due = self.pace.due(&*self.clock);
            if due == 0 {
                let wake_at_ms = Some(self.pace.wake_at_ms(&*self.clock));
                return Ok(SourceStatus::Waiting {
                    wake_at_ms,
                    idle: false,
                });
            }
            let budget = due.min(out.remaining()).min(BATCH);
            let before = out.emitted();
            let mut forward = Forward(out);
            let status = self
                .reader
                .poll(&mut SourceOutput::new(&mut forward, budget))?;
            let emitted = out.emitted() - before;
            self.pace.emitted(emitted);
            // Nothing came: a reader may have skipped a lot, so that it is somebody else's turn.
            if status != SourceStatus::More || emitted == 0 {
                return Ok(status);
            }
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self) -> Result<Vec<R::Split>> {
        self.reader.snapshot()
    }

    fn snapshot_for(&mut self, checkpoint: CheckpointId) -> Result<Vec<R::Split>> {
        self.reader.snapshot_for(checkpoint)
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.reader.checkpoint_completed(checkpoint)
    }
}

/// Passes on what a reader emits.
struct Forward<'a, 'b, T>(&'a mut SourceOutput<'b, T>);

impl<T> Emit<T> for Forward<'_, '_, T> {
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        self.0.emit_at(value, time)
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        match event {
            SplitEvent::Started(id) => self.0.start_split(id),
            SplitEvent::Selected(id) => self.0.select_split(id),
            SplitEvent::Finished(id) => self.0.finish_split(id),
        }
    }
}
