use std::time::Duration;

use crate::remote::Pacing;

/// How calls to a store behind a network are made: how often, how long, how many at a time, in pieces of what size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPolicy {
    /// Number of times that a call is made before its failure is reported, the first one included; at least 1.
    pub attempts: u32,
    /// Wait before the second attempt; each later one waits twice as long.
    pub initial_backoff: Duration,
    /// Longest wait between two attempts.
    pub max_backoff: Duration,
    /// Time after which a call counts as failed.
    pub timeout: Duration,
    /// Number of requests at a time over all streams of a store.
    pub concurrent: usize,
    /// Length of the parts of an upload in bytes.
    pub part_len: usize,
    /// Number of parts of one upload at a time.
    pub concurrent_parts: usize,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            attempts: 8,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            timeout: Duration::from_secs(60),
            concurrent: 64,
            part_len: 8 << 20,
            concurrent_parts: 4,
        }
    }
}

impl RequestPolicy {
    /// Returns the wait before the attempt that follows failure number `failures` (from 1): exponential, its upper half random.
    pub(crate) fn backoff(&self, failures: u32, pacing: &Pacing) -> Duration {
        let doubled = 1_u32
            .checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let full = self
            .initial_backoff
            .saturating_mul(doubled)
            .min(self.max_backoff);
        full.mul_f64(0.5 + pacing.fraction() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use state_api::SystemClock;

    use super::*;
    use crate::names::UuidSource;

    fn pacing(seed: u64) -> Pacing {
        Pacing::new(Arc::new(SystemClock), UuidSource::seeded(seed), |_| {
            async {}.boxed()
        })
    }

    #[test]
    fn waits_double_up_to_a_bound_and_half_of_each_is_chance() {
        let policy = RequestPolicy::default();
        let pacing = pacing(7);
        for (failures, full_ms) in [(1, 100), (2, 200), (3, 400), (8, 10_000), (40, 10_000)] {
            let full = Duration::from_millis(full_ms);
            let waits: Vec<_> = (0..200)
                .map(|_| policy.backoff(failures, &pacing))
                .collect();
            assert!(
                waits.iter().all(|wait| *wait >= full / 2 && *wait <= full),
                "{waits:?}"
            );
            let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
            assert!(spread > full / 3, "{failures}: {spread:?}");
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        let policy = RequestPolicy::default();
        let waits = |seed| {
            let pacing = pacing(seed);
            (1..9)
                .map(|n| policy.backoff(n, &pacing))
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(3), waits(3));
        assert_ne!(waits(3), waits(4));
    }
}
