//! Time, and what is made of several measurements of it.
#![expect(
    clippy::disallowed_methods,
    reason = "measuring the wall clock is what this crate is for"
)]
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use crate::process::on_core;

/// Returns the current instant.
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Runs something and returns its result and the seconds that it took.
pub fn seconds<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64())
}

/// Runs something and returns its result and the seconds that the thread was on a core meanwhile, so that others on a
/// busy machine count as little as they can; by the wall clock where the system does not say.
pub fn core_seconds<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let before = on_core();
    let (result, wall) = seconds(work);
    let used = before.zip(on_core()).map(|(before, after)| after - before);
    (result, used.map_or(wall, |used| used.as_secs_f64()))
}

/// Runs `ops` operations, whose checksum is returned by `work`, and returns the nanoseconds of one on a core.
pub fn ns_per_op(ops: usize, work: impl FnOnce() -> u64) -> f64 {
    let (sum, took) = core_seconds(work);
    black_box(sum);
    took * 1e9 / ops.max(1) as f64
}

/// Median and extremes of a few measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Median; of an even number, the upper of the two in the middle.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

impl Spread {
    /// Sums up measurements; zeros if there are none.
    #[must_use]
    pub fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        Self {
            median: all.get(all.len() / 2).copied().unwrap_or_default(),
            min: all.first().copied().unwrap_or_default(),
            max: all.last().copied().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(
            f,
            "{:.digits$} ({:.digits$}–{:.digits$})",
            self.median, self.min, self.max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_median_and_extremes() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(spread.to_string(), "2.0 (1.0–3.0)");
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
