use super::table::LiveTable;

/// Regions whose changes are followed one by one; when more have changed, all are counted anew.
const MAX_CHANGING: usize = 16;

/// What a table takes in memory, kept up to date for those that ask at each access.
pub(crate) struct Tally {
    /// Bytes of the table, but for what changed since.
    counted: usize,
    /// Regions that may have changed since, with their bytes then.
    changing: Vec<(usize, usize)>,
    /// Whether anything else may have.
    is_stale: bool,
}

impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    /// Keeps a running total of the bytes, for which each access by key that may change something is told of by
    /// [`LiveTable::expect_change`] before.
    #[must_use]
    pub(crate) fn with_running_total(mut self) -> Self {
        self.tally = Some(Box::new(Tally {
            counted: 0,
            changing: Vec::new(),
            is_stale: true,
        }));
        self
    }

    /// Learns that a key group is about to change.
    pub(crate) fn expect_change(&mut self, group: usize) {
        let (region, _) = self.locate(group);
        self.expect_change_of_region(region);
    }

    /// Learns that a region is about to change.
    pub(super) fn expect_change_of_region(&mut self, region: usize) {
        let Some(tally) = &self.tally else {
            return;
        };
        if tally.is_stale || tally.changing.iter().any(|(known, _)| *known == region) {
            return;
        }
        let bytes = self.region_bytes(region);
        if let Some(tally) = &mut self.tally {
            match tally.changing.len() < MAX_CHANGING {
                true => tally.changing.push((region, bytes)),
                false => tally.is_stale = true,
            }
        }
    }

    /// Learns that any region may change, or what is kept beside them.
    pub(crate) fn expect_any_change(&mut self) {
        if let Some(tally) = &mut self.tally {
            tally.is_stale = true;
        }
    }

    /// Returns the bytes as [`LiveTable::bytes`] does; the next time costs no more than what changed until then.
    pub(crate) fn settle(&mut self) -> usize {
        let bytes = self.bytes();
        debug_assert_eq!(
            bytes,
            self.count_bytes(),
            "a change that nobody was told of"
        );
        if let Some(tally) = &mut self.tally {
            tally.counted = bytes;
            tally.changing.clear();
            tally.is_stale = false;
        }
        bytes
    }

    /// Returns the bytes by the running total, if there is one that holds.
    pub(super) fn tallied_bytes(&self) -> Option<usize> {
        let tally = self.tally.as_ref().filter(|tally| !tally.is_stale)?;
        let changed = tally.changing.iter();
        Some(changed.fold(tally.counted, |bytes, (region, before)| {
            bytes - before + self.region_bytes(*region)
        }))
    }

    /// Returns the bytes of the layers of a region, and of its changes since the last snapshot.
    fn region_bytes(&self, region: usize) -> usize {
        let (base, overlay) = self.regions[region].bytes();
        let noted = self.capture.as_ref();
        base + overlay + noted.map_or(0, |capture| capture.bytes_since_snapshot(region))
    }
}
