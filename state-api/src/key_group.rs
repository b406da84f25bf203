use std::fmt;

use crate::hash::{fold64, murmur};
use crate::{Error, KeyGroupRange, Result, Subtask};

/// One of `max_parallelism` disjoint parts of the key space: the unit in which keyed state moves between subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyGroup(pub u16);

impl KeyGroup {
    /// Returns the number as an index into a table of groups.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of key groups of an operator, 1 to 32,768: its parallelism never exceeds it.
///
/// The formulas are those of Flink's `KeyGroupRangeAssignment`, so that state is cut in the same places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaxParallelism(u32);

impl MaxParallelism {
    /// The largest number of key groups.
    pub const UPPER_BOUND: u32 = 1 << 15;

    /// The smallest number that [`MaxParallelism::derive_default`] picks.
    pub const DEFAULT_LOWER_BOUND: u32 = 128;

    /// Creates a maximum parallelism.
    ///
    /// # Errors
    /// `InvalidArgument` unless `groups` is 1 to 32,768.
    pub fn new(groups: u32) -> Result<Self> {
        if groups == 0 || groups > Self::UPPER_BOUND {
            return Err(Error::invalid(format!(
                "maximum parallelism {groups} must be 1 to {}",
                Self::UPPER_BOUND
            )));
        }
        Ok(Self(groups))
    }

    /// Picks the maximum parallelism of an operator whose user has set none: 1.5 × the parallelism, rounded up to a
    /// power of two, at least 128.
    ///
    /// # Errors
    /// `InvalidArgument` unless `parallelism` is 1 to 32,768.
    pub fn derive_default(parallelism: u32) -> Result<Self> {
        if parallelism == 0 || parallelism > Self::UPPER_BOUND {
            return Err(Error::invalid(format!(
                "parallelism {parallelism} must be 1 to {}",
                Self::UPPER_BOUND
            )));
        }
        let wanted = (parallelism + parallelism / 2).next_power_of_two();
        Ok(Self(
            wanted.clamp(Self::DEFAULT_LOWER_BOUND, Self::UPPER_BOUND),
        ))
    }

    /// Returns the number of key groups.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the range of all key groups.
    #[must_use]
    pub fn all_groups(self) -> KeyGroupRange {
        KeyGroupRange::new(KeyGroup(0), KeyGroup(narrow(self.0 - 1)))
    }

    /// Returns the bytes that a key group takes as the big-endian prefix of a stored key: 1 up to 128 groups, else 2.
    #[must_use]
    pub const fn prefix_len(self) -> usize {
        if self.0 <= 128 { 1 } else { 2 }
    }

    /// Returns the key group of a 32-bit key hash.
    #[inline]
    #[must_use]
    pub fn group_of_hash32(self, hash: i32) -> KeyGroup {
        let mixed = murmur(hash).unsigned_abs();
        // Nearly every job has a power of two here, and a division costs as much as a lookup in cache.
        let group = if self.0.is_power_of_two() {
            mixed & (self.0 - 1)
        } else {
            mixed % self.0
        };
        KeyGroup(narrow(group))
    }

    /// Returns the key group of a 64-bit key hash, folded to 32 bits first.
    #[inline]
    #[must_use]
    pub fn group_of_hash64(self, hash: u64) -> KeyGroup {
        self.group_of_hash32(fold64(hash))
    }

    /// Returns the index of the subtask that owns a key group.
    ///
    /// The answer is below `parallelism` when `group` is one of these groups.
    #[inline]
    #[must_use]
    pub fn subtask_of(self, group: KeyGroup, parallelism: u32) -> u32 {
        // Both factors are at most 2^15 where the arguments are valid; 64 bits spare invalid ones an overflow.
        let index = u64::from(group.0) * u64::from(parallelism) / u64::from(self.0);
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Returns the key groups that a subtask owns; never empty.
    ///
    /// # Errors
    /// `InvalidArgument` when the parallelism is 0 or exceeds the number of groups, or the index is not below it.
    pub fn range_of(self, subtask: Subtask) -> Result<KeyGroupRange> {
        let Subtask { index, parallelism } = subtask;
        if parallelism == 0 || parallelism > self.0 {
            return Err(Error::invalid(format!(
                "parallelism {parallelism} must be 1 to the maximum parallelism {}",
                self.0
            )));
        }
        if index >= parallelism {
            return Err(Error::invalid(format!(
                "subtask index {index} must be below the parallelism {parallelism}"
            )));
        }
        let start = (index * self.0).div_ceil(parallelism);
        let end = ((index + 1) * self.0 - 1) / parallelism;
        Ok(KeyGroupRange::new(
            KeyGroup(narrow(start)),
            KeyGroup(narrow(end)),
        ))
    }
}

impl fmt::Display for MaxParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Narrows a group number, which is below 2^15 by the bound on [`MaxParallelism`].
#[inline]
fn narrow(group: u32) -> u16 {
    group as u16
}

#[cfg(test)]
#[path = "key_group_tests.rs"]
mod tests;
