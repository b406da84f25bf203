use std::sync::Arc;

use state_api::{Clock, RestoreTimes};

/// A part of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Until the files are there.
    Fetch,
    /// Until they are an open database.
    Open,
    /// Until nothing beyond the key groups is seen any more.
    Clip,
}

/// Divides the time of a restore among its parts: each lap begins where the last one ended, so that none of it is left out.
pub(crate) struct Laps {
    clock: Arc<dyn Clock>,
    last_ns: u64,
    times: RestoreTimes,
}

impl Laps {
    /// Starts the first lap.
    pub(crate) fn start(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            last_ns: clock.monotonic_ns(),
            times: RestoreTimes::default(),
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Ends a lap now.
    pub(crate) fn end(&mut self, part: Part) {
        self.end_at(part, self.clock.monotonic_ns());
    }

    /// Ends a lap at a moment of the clock.
    pub(crate) fn end_at(&mut self, part: Part, at_ns: u64) {
        let ns = match part {
            Part::Fetch => &mut self.times.fetch_ns,
            Part::Open => &mut self.times.open_ns,
            Part::Clip => &mut self.times.clip_ns,
        };
        *ns += at_ns - self.last_ns;
        self.last_ns = at_ns;
    }

    /// Returns the laps that have ended.
    pub(crate) fn times(&self) -> RestoreTimes {
        self.times
    }
}
