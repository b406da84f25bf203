//! Damaged and arbitrary inputs for decoders of bytes from disk.
//!
//! [`fuzz`] makes them, [`Bound`](crate::meter::Bound) holds a decoder to an amount of memory. A decoder may refuse what it
//! gets or take it; it must not panic, and must not set memory aside on the word of a length that lies.
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::settings::Settings;

/// A small generator of random numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below another one; 0 below 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// Returns one of several things, which must not be none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns up to so many arbitrary bytes; in every other call small numbers, which look more like lengths and tags.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        let values = if self.below(2) == 0 { 256 } else { 20 };
        (0..len).map(|_| self.below(values) as u8).collect()
    }

    /// Changes bytes as damage does: flips, cuts, repeats, swaps, and lengths that lie.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            self.change(bytes);
        }
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            bytes.push(self.number() as u8);
        }
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(16)).min(bytes.len());
        match self.below(10) {
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes[at] = *self.one_of(&[0, 1, 0x7f, 0x80, 0xfe, 0xff]),
            3 => bytes[at] = self.number() as u8,
            4 => bytes.truncate(at),
            5 => bytes.insert(at, self.number() as u8),
            6 => drop(bytes.drain(at..end)),
            7 => bytes.extend_from_within(at..end),
            8 => {
                let from = self.below(bytes.len());
                bytes.swap(at, from);
            }
            // Varints and fixed integers of 4 gigabytes, 2^63 - 1 and 2^64 - 1.
            _ => {
                const LIES: &[&[u8]] = &[
                    &[0xff, 0xff, 0xff, 0xff, 0x0f],
                    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
                    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                    &[0xff; 8],
                ];
                let lie = *self.one_of(LIES);
                let end = (at + self.below(lie.len() + 1)).min(bytes.len());
                drop(bytes.splice(at..end, lie.iter().copied()));
            }
        }
    }
}

/// Tries a decoder on arbitrary bytes and on damaged samples; `HOLDFAST_CASES` and `HOLDFAST_SEED` say how many and which.
/// Returns how many.
///
/// The generator is for what `attempt` chooses itself: which part of a structure takes the bytes, say.
///
/// # Panics
/// When `attempt` does; the message names the seed of that one input, and its bytes.
pub fn fuzz(cases: u32, samples: &[Vec<u8>], attempt: impl FnMut(&mut Random, Vec<u8>)) -> u32 {
    let settings = Settings::from_env_or(cases);
    fuzz_with(settings, samples, attempt);
    settings.cases
}

/// Does the same, whatever the environment says.
///
/// # Panics
/// As [`fuzz`].
pub fn fuzz_with(
    settings: Settings,
    samples: &[Vec<u8>],
    mut attempt: impl FnMut(&mut Random, Vec<u8>),
) {
    for case in 0..settings.cases {
        // Each case has a seed of its own, with which it runs alone.
        let seed = settings.seed.wrapping_add(u64::from(case));
        let mut random = Random::new(seed);
        let input = match random.below(4) {
            0 => random.bytes(200),
            _ if samples.is_empty() => random.bytes(200),
            _ => {
                let mut input = random.one_of(samples).clone();
                random.damage(&mut input);
                input
            }
        };
        let shown = hex(&input);
        if catch_unwind(AssertUnwindSafe(|| attempt(&mut random, input))).is_err() {
            panic!("HOLDFAST_SEED={seed} HOLDFAST_CASES=1 fails on the input {shown}");
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 512;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}
