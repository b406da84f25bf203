//! What the tests of this module share.

use super::EntryHasher;

/// A hasher that mixes key, namespace and seed.
pub(super) fn hasher<N: Copy + Into<u64>>() -> EntryHasher<u32, N> {
    EntryHasher::new(0x5eed, |key, namespace, seed| {
        mix(u64::from(*key) ^ (*namespace).into().rotate_left(32) ^ seed)
    })
}

/// The finalizer of SplitMix64.
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A repeatable sequence of numbers.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}
