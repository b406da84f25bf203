use std::fmt;

use crate::{Error, KeyGroup, MaxParallelism, Result};

/// A contiguous run of key groups, both ends included; possibly empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyGroupRange {
    // Kept as start and length so that there is one empty range.
    start: u16,
    len: u16,
}

impl KeyGroupRange {
    /// The range without groups.
    pub const EMPTY: Self = Self { start: 0, len: 0 };

    /// Creates the range `start..=end`; a start past the end gives [`KeyGroupRange::EMPTY`].
    ///
    /// # Panics
    /// When a group is not below [`MaxParallelism::UPPER_BOUND`]; use [`KeyGroupRange::try_new`] for numbers read from outside.
    #[must_use]
    pub const fn new(start: KeyGroup, end: KeyGroup) -> Self {
        if start.0 > end.0 {
            return Self::EMPTY;
        }
        assert!(
            (end.0 as u32) < MaxParallelism::UPPER_BOUND,
            "key groups are below 32768"
        );
        Self {
            start: start.0,
            len: end.0 - start.0 + 1,
        }
    }

    /// Creates a range from untrusted numbers; a start past the end gives [`KeyGroupRange::EMPTY`].
    ///
    /// # Errors
    /// `InvalidArgument` when the start is negative, or the range is not empty and its end is 32,768 or more.
    pub fn try_new(start: i64, end: i64) -> Result<Self> {
        if start < 0 {
            return Err(Error::invalid(format!(
                "key group range starts at {start}, below 0"
            )));
        }
        if start > end {
            return Ok(Self::EMPTY);
        }
        match (u16::try_from(start), u16::try_from(end)) {
            (Ok(start), Ok(end)) if u32::from(end) < MaxParallelism::UPPER_BOUND => {
                Ok(Self::new(KeyGroup(start), KeyGroup(end)))
            }
            _ => Err(Error::invalid(format!(
                "key group range {start}..={end} ends past the last possible group {}",
                MaxParallelism::UPPER_BOUND - 1
            ))),
        }
    }

    /// Returns the first group; without meaning when the range is empty.
    #[must_use]
    pub const fn start(self) -> KeyGroup {
        KeyGroup(self.start)
    }

    /// Returns the last group; without meaning when the range is empty.
    #[must_use]
    pub const fn end(self) -> KeyGroup {
        KeyGroup((self.start + self.len).saturating_sub(1))
    }

    /// Returns the number of groups.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len as usize
    }

    /// Says whether there are no groups.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Says whether a group lies in the range.
    #[inline]
    #[must_use]
    pub const fn contains(self, group: KeyGroup) -> bool {
        group.0.wrapping_sub(self.start) < self.len
    }

    /// Says whether all groups of another range lie in this one.
    #[must_use]
    pub fn contains_range(self, other: Self) -> bool {
        self.intersect(other) == other
    }

    /// Returns the position of a group within the range, from 0.
    #[inline]
    #[must_use]
    pub const fn index_of(self, group: KeyGroup) -> Option<usize> {
        if self.contains(group) {
            Some((group.0 - self.start) as usize)
        } else {
            None
        }
    }

    /// Returns the groups that lie in both ranges.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return Self::EMPTY;
        }
        Self::new(self.start().max(other.start()), self.end().min(other.end()))
    }

    /// Iterates over the groups in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = KeyGroup> + ExactSizeIterator + Clone {
        (self.start..self.start + self.len).map(KeyGroup)
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("[]");
        }
        write!(f, "[{},{}]", self.start(), self.end())
    }
}

impl fmt::Debug for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, end: i64) -> KeyGroupRange {
        KeyGroupRange::try_new(start, end).unwrap()
    }

    #[test]
    fn k_018_intersection_holds_the_common_groups() {
        assert_eq!(range(0, 10).intersect(range(3, 7)), range(3, 7));
        assert_eq!(range(0, 10).intersect(range(10, 20)), range(10, 10));
        assert_eq!(range(0, 10).intersect(range(11, 20)), KeyGroupRange::EMPTY);
        assert_eq!(range(4, 9).intersect(range(4, 9)), range(4, 9));
        assert_eq!(
            range(4, 9).intersect(KeyGroupRange::EMPTY),
            KeyGroupRange::EMPTY
        );
    }

    #[test]
    fn k_019_a_range_of_one_group_holds_just_it() {
        let one = range(5, 5);
        assert_eq!(one.iter().collect::<Vec<_>>(), [KeyGroup(5)]);
        assert_eq!(
            [4, 5, 6].map(|g| one.contains(KeyGroup(g))),
            [false, true, false]
        );
        assert_eq!(one.len(), 1);
        assert_eq!(one.index_of(KeyGroup(5)), Some(0));
        assert_eq!(one.index_of(KeyGroup(6)), None);
    }

    #[test]
    fn k_020_a_start_past_the_end_gives_the_empty_range() {
        for empty in [range(7, 3), KeyGroupRange::new(KeyGroup(7), KeyGroup(3))] {
            assert_eq!(empty, KeyGroupRange::EMPTY);
            assert_eq!(empty.len(), 0);
            assert!(empty.is_empty());
            assert_eq!(empty.iter().count(), 0);
            assert!(!empty.contains(KeyGroup(0)));
            assert_eq!(empty.to_string(), "[]");
        }
    }

    #[test]
    fn k_021_a_negative_start_is_refused() {
        use crate::ErrorKind;
        for (start, end) in [(-1, 3), (i64::MIN, -5), (0, 32_768), (40_000, 50_000)] {
            let error = KeyGroupRange::try_new(start, end).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(range(0, 32_767).len(), 32_768);
        assert_eq!(range(0, 32_767).end(), KeyGroup(32_767));
    }

    #[test]
    fn a_range_contains_its_parts_and_the_empty_range() {
        assert!(range(2, 9).contains_range(range(2, 9)));
        assert!(range(2, 9).contains_range(range(4, 5)));
        assert!(range(2, 9).contains_range(KeyGroupRange::EMPTY));
        assert!(!range(2, 9).contains_range(range(9, 10)));
    }
}
