use crate::{Error, KeyGroup, KeyGroupRange, Result};

/// Where the bytes of one key group lie in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupExtent {
    /// First byte, counted from the start of the stream.
    pub offset: u64,
    /// Number of bytes; 0 when the group has no data.
    pub len: u64,
}

impl GroupExtent {
    /// The extent of a group without data.
    pub const NONE: Self = Self { offset: 0, len: 0 };

    /// Says whether the group has no data.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A key-group range with, for each group, where its bytes lie in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGroupOffsets {
    range: KeyGroupRange,
    extents: Vec<GroupExtent>,
}

impl KeyGroupOffsets {
    /// Creates offsets that say "no data" for every group of the range.
    #[must_use]
    pub fn new(range: KeyGroupRange) -> Self {
        Self {
            range,
            extents: vec![GroupExtent::NONE; range.len()],
        }
    }

    /// Creates offsets from one extent per group, in the order of the groups.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of extents is not the number of groups.
    pub fn from_extents(range: KeyGroupRange, extents: Vec<GroupExtent>) -> Result<Self> {
        if extents.len() != range.len() {
            return Err(Error::invalid(format!(
                "{} offsets given for the {} key groups of {range}",
                extents.len(),
                range.len()
            )));
        }
        Ok(Self { range, extents })
    }

    /// Returns the key groups.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        self.range
    }

    /// Returns where the bytes of a group lie.
    ///
    /// # Errors
    /// `InvalidArgument` when the group is not in the range.
    pub fn get(&self, group: KeyGroup) -> Result<GroupExtent> {
        Ok(self.extents[self.index_of(group)?])
    }

    /// Records where the bytes of a group lie.
    ///
    /// # Errors
    /// `InvalidArgument` when the group is not in the range.
    pub fn set(&mut self, group: KeyGroup, extent: GroupExtent) -> Result<()> {
        let index = self.index_of(group)?;
        self.extents[index] = extent;
        Ok(())
    }

    /// Returns the part that lies in another range, with the offsets as they are; possibly empty.
    #[must_use]
    pub fn intersect(&self, range: KeyGroupRange) -> Self {
        let range = self.range.intersect(range);
        let extents = match self.range.index_of(range.start()) {
            Some(first) if !range.is_empty() => self.extents[first..first + range.len()].to_vec(),
            _ => Vec::new(),
        };
        Self { range, extents }
    }

    /// Iterates over groups and extents in ascending order of the groups, groups without data included.
    pub fn iter(&self) -> impl Iterator<Item = (KeyGroup, GroupExtent)> + '_ {
        self.range.iter().zip(self.extents.iter().copied())
    }

    /// Returns the number of bytes of all groups.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.extents
            .iter()
            .fold(0, |sum, e| sum.saturating_add(e.len))
    }

    fn index_of(&self, group: KeyGroup) -> Result<usize> {
        self.range.index_of(group).ok_or_else(|| {
            Error::invalid(format!(
                "key group {group} is not in the range {}",
                self.range
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn range(start: i64, end: i64) -> KeyGroupRange {
        KeyGroupRange::try_new(start, end).unwrap()
    }

    fn extent(offset: u64) -> GroupExtent {
        GroupExtent { offset, len: 10 }
    }

    fn zero_to_nine() -> KeyGroupOffsets {
        KeyGroupOffsets::from_extents(range(0, 9), (0..10).map(|i| extent(100 + i * 10)).collect())
            .unwrap()
    }

    #[test]
    fn k_022_an_intersection_keeps_the_absolute_offsets() {
        let part = zero_to_nine().intersect(range(3, 5));
        assert_eq!(part.range(), range(3, 5));
        let read: Vec<_> = part.iter().collect();
        assert_eq!(
            read,
            [
                (KeyGroup(3), extent(130)),
                (KeyGroup(4), extent(140)),
                (KeyGroup(5), extent(150))
            ]
        );
    }

    #[test]
    fn k_023_an_intersection_with_a_disjoint_range_is_empty() {
        let part = zero_to_nine().intersect(range(20, 30));
        assert!(part.range().is_empty());
        assert_eq!(part.iter().count(), 0);
    }

    #[test]
    fn k_024_a_group_outside_the_range_is_refused() {
        let mut offsets = KeyGroupOffsets::new(range(3, 5));
        for outside in [KeyGroup(2), KeyGroup(6)] {
            assert_eq!(
                offsets.get(outside).unwrap_err().kind(),
                ErrorKind::InvalidArgument
            );
            let error = offsets.set(outside, extent(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn k_025_the_number_of_offsets_must_be_the_number_of_groups() {
        for len in [0, 2, 4] {
            let error =
                KeyGroupOffsets::from_extents(range(3, 5), vec![extent(1); len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn k_026_what_is_set_is_read_back_in_ascending_order() {
        let mut offsets = KeyGroupOffsets::new(range(3, 5));
        assert!(offsets.get(KeyGroup(4)).unwrap().is_empty());
        for group in [5, 3, 4] {
            offsets
                .set(KeyGroup(group), extent(u64::from(group) * 7))
                .unwrap();
        }
        for group in [3, 4, 5] {
            assert_eq!(
                offsets.get(KeyGroup(group)).unwrap(),
                extent(u64::from(group) * 7)
            );
        }
        let groups: Vec<_> = offsets.iter().map(|(g, e)| (g.0, e.offset)).collect();
        assert_eq!(groups, [(3, 21), (4, 28), (5, 35)]);
        assert_eq!(offsets.total_len(), 30);
    }
}
