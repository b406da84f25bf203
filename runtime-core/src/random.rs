/// Pseudo-random numbers that only a seed decides (SplitMix64, by Steele, Lea and Flood).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if that is 0.
    #[cfg(feature = "testing")]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns `true` so many times in a thousand.
    #[cfg(feature = "testing")]
    pub(crate) fn per_mille(&mut self, times: u32) -> bool {
        self.below(1000) < u64::from(times)
    }
}
