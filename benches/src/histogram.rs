//! How often which time occurred.
/// Sub-buckets of a power of two: values are kept to 3 %.
const FINE: u32 = 5;

/// How often times of each length occurred, in nanoseconds; the greatest one exactly.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; 64 << FINE],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    #[inline]
    fn bucket(ns: u64) -> usize {
        if ns < 1 << FINE {
            return ns as usize;
        }
        let shift = ns.ilog2() - FINE;
        (((shift + 1) as usize) << FINE) + ((ns >> shift) as usize & ((1 << FINE) - 1))
    }

    /// The least value of a bucket.
    fn floor(bucket: usize) -> u64 {
        let (shift, fine) = (bucket >> FINE, (bucket & ((1 << FINE) - 1)) as u64);
        match shift {
            0 => fine,
            _ => ((1 << FINE) + fine) << (shift - 1),
        }
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[Self::bucket(ns)] += 1;
        self.total += 1;
        self.max = self.max.max(ns);
    }

    /// Returns the number counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the greatest.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the value that a part of all (0 to 1) does not exceed, to 3 %.
    #[must_use]
    pub fn quantile(&self, part: f64) -> u64 {
        let rank = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Self::floor(bucket);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_per_cent() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|ns| histogram.record(ns));
        assert_eq!(histogram.max(), 100_000);
        for part in [0.01, 0.5, 0.99, 0.9999] {
            let found = histogram.quantile(part) as f64;
            let exact = part * 100_000.0;
            assert!(
                found <= exact && found > exact * 0.96,
                "{part}: {found} for {exact}"
            );
        }
    }
}
