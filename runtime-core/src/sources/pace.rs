use state_api::Clock;

const NANOS: f64 = 1e9;

/// Most time that is made up for after a wait, in nanoseconds: a source that was held back doesn't burst for long.
const CATCH_UP_NS: u64 = 1_000_000_000;

/// Says how many records may be emitted by now so that a rate is kept.
#[derive(Debug)]
pub(super) struct Pace {
    /// Records per second; above 0.
    rate: f64,
    /// Moment from which records are counted.
    since_ns: Option<u64>,
    /// Records since then.
    emitted: u64,
}

impl Pace {
    pub(super) fn new(rate: f64) -> Self {
        Self {
            rate,
            since_ns: None,
            emitted: 0,
        }
    }

    /// Returns how many records are due; the first is at once.
    pub(super) fn due(&mut self, clock: &dyn Clock) -> usize {
        let now = clock.monotonic_ns();
        let since = *self.since_ns.get_or_insert(now);
        let due = self
            .count_at(now.saturating_sub(since))
            .saturating_sub(self.emitted);
        let most = ((self.rate * CATCH_UP_NS as f64 / NANOS) as u64).max(1);
        if due > most {
            let since = now.saturating_sub(CATCH_UP_NS);
            self.since_ns = Some(since);
            self.emitted = self.count_at(now - since).saturating_sub(most);
        }
        usize::try_from(due.min(most)).unwrap_or(usize::MAX)
    }

    /// Counts records as emitted.
    pub(super) fn emitted(&mut self, records: usize) {
        self.emitted += records as u64;
    }

    /// Returns the wall-clock time in milliseconds at which the next record is due.
    pub(super) fn wake_at_ms(&self, clock: &dyn Clock) -> i64 {
        let elapsed = clock
            .monotonic_ns()
            .saturating_sub(self.since_ns.unwrap_or(0));
        let next_ns = self.emitted as f64 / self.rate * NANOS;
        let wait_ms = ((next_ns - elapsed as f64) / 1e6)
            .ceil()
            .clamp(1.0, 86_400_000.0);
        clock.now_ms().saturating_add(wait_ms as i64)
    }

    fn count_at(&self, elapsed_ns: u64) -> u64 {
        ((elapsed_ns as f64 * self.rate / NANOS) as u64).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ManualClock;

    fn take(pace: &mut Pace, clock: &ManualClock) -> usize {
        let due = pace.due(clock);
        pace.emitted(due);
        due
    }

    #[test]
    fn records_come_at_the_rate_and_the_next_moment_is_named() {
        let clock = ManualClock::at(5_000);
        let mut pace = Pace::new(10.0);
        assert_eq!(take(&mut pace, &clock), 1);
        assert_eq!(take(&mut pace, &clock), 0);
        assert_eq!(pace.wake_at_ms(&clock), 5_100);
        clock.set(5_099);
        assert_eq!(take(&mut pace, &clock), 0);
        clock.set(5_100);
        assert_eq!(take(&mut pace, &clock), 1);
        clock.set(5_550);
        assert_eq!(take(&mut pace, &clock), 4);
    }

    #[test]
    fn what_was_missed_is_made_up_for_at_most_a_second() {
        let clock = ManualClock::at(100_000);
        let mut pace = Pace::new(10.0);
        assert_eq!(take(&mut pace, &clock), 1);
        clock.set(160_000);
        assert_eq!(take(&mut pace, &clock), 10);
        clock.set(160_100);
        assert_eq!(take(&mut pace, &clock), 1);
    }

    #[test]
    fn a_rate_below_one_a_second_waits_its_time() {
        let clock = ManualClock::at(100_000);
        let mut pace = Pace::new(0.1);
        assert_eq!(take(&mut pace, &clock), 1);
        assert_eq!(pace.wake_at_ms(&clock), 110_000);
        clock.set(140_000);
        assert_eq!(take(&mut pace, &clock), 1);
        assert_eq!(take(&mut pace, &clock), 0);
    }
}
