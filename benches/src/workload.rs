//! Keys, values and orders, by the formulas of the peer harness, so that both do the very same work.
use std::hash::Hash;

use state_api::{StateKey, StateType};

/// The order in which keys are added.
pub const INSERT_SEED: u64 = 1;
/// The order in which keys are probed: another one, so that probes don't follow allocations.
pub const PROBE_SEED: u64 = 2;
/// Key groups, unless a measurement is about their number.
pub const KEY_GROUPS: u32 = 128;

/// Mixes 64 bits (the finaliser of splitmix64); a bijection.
#[must_use]
pub const fn mix64(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns 16 lower-case hex digits.
#[must_use]
pub fn word(id: u64) -> String {
    format!("{:016x}", mix64(id))
}

/// Returns the value that the peer harness stores at a position.
#[must_use]
pub const fn value(index: u64) -> u64 {
    mix64(!index) | 1 << 40
}

/// Returns the numbers below `n`, shuffled (Fisher-Yates) in the way a seed says.
#[must_use]
pub fn order(n: usize, seed: u64) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..n as u64).collect();
    for i in (1..n).rev() {
        let draw = mix64((seed << 32).wrapping_add(i as u64)) % (i as u64 + 1);
        ids.swap(i, draw as usize);
    }
    ids
}

/// A struct of 200 bytes without heap memory.
#[derive(Clone, Debug, Default, PartialEq, StateType)]
pub struct Payload {
    /// What it holds.
    pub words: [u64; 25],
}

/// A type of key and a type of value.
pub trait Shape: 'static {
    /// How tables name it.
    const NAME: &'static str;
    /// Key.
    type Key: StateKey + Hash;
    /// Value.
    type Value: StateType + Default;

    /// Returns the key of an id.
    fn key(id: u64) -> Self::Key;
    /// Returns a value that costs little to make.
    fn value(index: u64) -> Self::Value;
    /// Reads a value.
    fn read(value: &Self::Value) -> u64;
    /// Changes a value in place.
    fn bump(value: &mut Self::Value);
}

/// 8-byte keys, 8-byte values.
#[derive(Debug)]
pub struct Longs;

impl Shape for Longs {
    const NAME: &'static str = "u64 → u64";
    type Key = u64;
    type Value = u64;

    fn key(id: u64) -> u64 {
        mix64(id)
    }
    #[inline]
    fn value(index: u64) -> u64 {
        index
    }
    #[inline]
    fn read(value: &u64) -> u64 {
        *value
    }
    #[inline]
    fn bump(value: &mut u64) {
        *value = value.wrapping_add(1);
    }
}

/// Keys of 16 characters, 8-byte values.
#[derive(Debug)]
pub struct Words;

impl Shape for Words {
    const NAME: &'static str = "16 characters → u64";
    type Key = String;
    type Value = u64;

    fn key(id: u64) -> String {
        word(id)
    }
    #[inline]
    fn value(index: u64) -> u64 {
        index
    }
    #[inline]
    fn read(value: &u64) -> u64 {
        *value
    }
    #[inline]
    fn bump(value: &mut u64) {
        *value = value.wrapping_add(1);
    }
}

/// 8-byte keys, values of 200 bytes.
#[derive(Debug)]
pub struct Structs;

impl Shape for Structs {
    const NAME: &'static str = "u64 → 200 bytes";
    type Key = u64;
    type Value = Payload;

    fn key(id: u64) -> u64 {
        mix64(id)
    }
    #[inline]
    fn value(index: u64) -> Payload {
        Payload { words: [index; 25] }
    }
    #[inline]
    fn read(value: &Payload) -> u64 {
        value.words[7]
    }
    #[inline]
    fn bump(value: &mut Payload) {
        value.words[7] = value.words[7].wrapping_add(1);
    }
}

/// Returns the keys of a shape in an order.
#[must_use]
pub fn keys<S: Shape>(n: usize, seed: u64) -> Vec<S::Key> {
    order(n, seed).into_iter().map(S::key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_orders_are_those_of_the_peer_harness() {
        // splitmix64 with seed 0 begins with this number.
        assert_eq!(mix64(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(word(0), "e220a8397b1dcdaf");
        let mut all = order(1000, PROBE_SEED);
        assert_ne!(all, order(1000, INSERT_SEED));
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_struct_has_200_bytes() {
        assert_eq!(size_of::<Payload>(), 200);
    }
}
