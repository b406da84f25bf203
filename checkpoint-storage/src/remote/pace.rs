use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::remote::{Pacing, RequestPolicy};

/// The longest that a store's own wish is followed.
pub(super) const LONGEST_WISH: Duration = Duration::from_secs(60);

/// Holds requests back after a store said that they are too many.
///
/// Each such answer doubles the wait, each other answer halves it, and every held-back request starts at a moment of its own
/// within the wait, so that they do not all come back at once.
pub(crate) struct Pace {
    policy: RequestPolicy,
    pacing: Pacing,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// No request starts before this moment.
    until_ns: u64,
    /// Number of answers in a row, less those that were good.
    throttled: u32,
}

impl Pace {
    pub(crate) fn new(policy: RequestPolicy, pacing: Pacing) -> Self {
        Self {
            policy,
            pacing,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> SystemTime {
        self.pacing.now()
    }

    /// Waits until a request may start.
    pub(crate) async fn wait(&self) {
        // Again after each wait: the store may have asked for more in the meantime.
        loop {
            let (until, throttled) = {
                let state = self.lock();
                (state.until_ns, state.throttled)
            };
            let now = self.pacing.now_ns();
            if until <= now {
                return;
            }
            let own = self.policy.backoff(throttled.max(1), &self.pacing);
            self.pacing
                .sleep(Duration::from_nanos(until - now) + own.mul_f64(self.pacing.fraction()))
                .await;
        }
    }

    /// Notes that the store asked for fewer requests, after a time if it named one.
    pub(crate) fn slow_down(&self, wish: Option<Duration>) {
        let now = self.pacing.now_ns();
        let mut state = self.lock();
        // Requests that were under way together are answered alike: they count once.
        if state.until_ns <= now || state.throttled == 0 {
            state.throttled = state.throttled.saturating_add(1).min(16);
        }
        let wait = self.policy.backoff(state.throttled, &self.pacing);
        let wait = wish.map_or(wait, |wish| wait.max(wish.min(LONGEST_WISH)));
        let until = now.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        state.until_ns = state.until_ns.max(until);
    }

    /// Notes that a request was answered.
    pub(crate) fn go_on(&self) {
        let mut state = self.lock();
        state.throttled /= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;
    use state_api::Clock;

    use super::*;
    use crate::names::UuidSource;

    /// A clock that waiting moves.
    #[derive(Clone, Debug, Default)]
    struct Waiting(Arc<AtomicU64>);

    impl Clock for Waiting {
        fn now_ms(&self) -> i64 {
            0
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn pace() -> (Pace, Waiting) {
        let clock = Waiting::default();
        let moved = clock.clone();
        let pacing = Pacing::new(
            Arc::new(clock.clone()),
            UuidSource::seeded(1),
            move |time| {
                moved.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
                async {}.boxed()
            },
        );
        (Pace::new(RequestPolicy::default(), pacing), clock)
    }

    fn waited(pace: &Pace, clock: &Waiting) -> Duration {
        let before = clock.monotonic_ns();
        pace.wait().now_or_never().unwrap();
        Duration::from_nanos(clock.monotonic_ns() - before)
    }

    #[test]
    fn nothing_waits_until_the_store_asks_for_it() {
        let (pace, clock) = pace();
        assert_eq!(waited(&pace, &clock), Duration::ZERO);
        pace.go_on();
        assert_eq!(waited(&pace, &clock), Duration::ZERO);
    }

    #[test]
    fn the_stores_own_wish_is_followed_up_to_a_bound() {
        let (pace, clock) = pace();
        pace.slow_down(Some(Duration::from_secs(7)));
        assert!(waited(&pace, &clock) >= Duration::from_secs(7));
        assert_eq!(waited(&pace, &clock), Duration::ZERO);
        pace.slow_down(Some(Duration::from_secs(1_000_000)));
        assert!(waited(&pace, &clock) < Duration::from_secs(90));
    }

    #[test]
    fn waits_grow_while_the_store_goes_on_asking_and_shrink_afterwards() {
        let (pace, clock) = pace();
        let mut waits = Vec::new();
        for _ in 0..8 {
            pace.slow_down(None);
            waits.push(waited(&pace, &clock));
        }
        assert!(waits[7] > waits[0] * 8, "{waits:?}");
        for _ in 0..8 {
            pace.go_on();
        }
        pace.slow_down(None);
        assert!(waited(&pace, &clock) <= Duration::from_millis(200));
    }

    #[test]
    fn answers_to_requests_that_were_under_way_together_count_once() {
        let (pace, clock) = pace();
        for _ in 0..100 {
            pace.slow_down(None);
        }
        assert!(waited(&pace, &clock) <= Duration::from_millis(200));
    }
}
