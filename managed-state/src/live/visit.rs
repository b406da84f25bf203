use super::stack::Stack;
use super::table::LiveTable;
use super::tables::BucketCursor;

/// Entries that a page of keys has on average.
const PAGE: usize = 4096;

/// A position in an enumeration of the keys of one group, by slices of the hash.
///
/// A key that is there from the first page to the last is returned exactly once, whatever is written between pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageCursor {
    next: usize,
    /// A power of two, 0 before the first page.
    slices: usize,
}

/// A position in an endless round over all entries of a table, for incremental cleanup.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepCursor {
    group: usize,
    layer: usize,
    bucket: BucketCursor,
}

impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    fn stack(&self, region: usize) -> Stack<'_, K, N, V> {
        Stack::new(&self.layout, self.regions[region].parts())
    }

    /// Returns an iterator over the entries of a key group, each key once.
    pub fn iter(&self, group: usize) -> impl Iterator<Item = (&K, &N, &V)> {
        let (region, slot) = self.locate(group);
        self.stack(region)
            .entries(slot)
            .map(|e| (&e.key, &e.namespace, &e.value))
    }

    /// Counts the entries of a key group: at once without open snapshots, by a walk with them.
    #[must_use]
    pub fn group_len(&self, group: usize) -> usize {
        let (region, slot) = self.locate(group);
        match &self.regions[region] {
            region if region.below.is_none() => region.top.len(slot),
            _ => self.iter(group).count(),
        }
    }

    /// Calls `f` with each key of the next page of a key group; returns false after the last page.
    ///
    /// The table may be written to between pages: a key that stays is returned exactly once, one that comes or goes at most
    /// once. A page has about four thousand keys; it may have none although others follow.
    pub fn keys_page(
        &self,
        group: usize,
        cursor: &mut PageCursor,
        mut f: impl FnMut(&K, &N),
    ) -> bool {
        let (region, slot) = self.locate(group);
        let stack = self.stack(region);
        if cursor.slices == 0 {
            let entries: usize = self.regions[region]
                .parts()
                .map(|part| part.len(slot))
                .sum();
            cursor.slices = entries.div_ceil(PAGE).next_power_of_two();
        }
        if cursor.next < cursor.slices {
            stack.for_each_in_slice(slot, cursor.next, cursor.slices, |entry| {
                f(&entry.key, &entry.namespace);
            });
            cursor.next += 1;
        }
        cursor.next < cursor.slices
    }

    /// Looks at about `entries` entries from a cursor on, over all groups and round again, and removes those that are
    /// expired; returns how many it removed.
    ///
    /// A call ends at the end of a round. Each entry is met about once a round; one that moves because its table grows or is merged may be missed or met
    /// twice in a round.
    pub fn sweep(
        &mut self,
        cursor: &mut SweepCursor,
        entries: usize,
        mut is_expired: impl FnMut(&K, &N, &V) -> bool,
    ) -> usize {
        let mut left = entries;
        // Empty buckets and groups cost little, but not nothing.
        let mut buckets = entries * 4 + 16;
        let mut expired = Vec::new();
        while left > 0 && buckets > 0 {
            if cursor.group >= self.groups {
                *cursor = SweepCursor::default();
                break;
            }
            let group = cursor.group;
            let (region, slot) = self.locate(group);
            let stack = self.stack(region);
            let mut more = false;
            let layer = cursor.layer;
            if let Some(tables) = stack.layer(layer).and_then(|part| part.live(slot)) {
                let mut step = buckets.min(left);
                let before = step;
                more = tables.walk(&mut cursor.bucket, &mut step, |entry| {
                    left = left.saturating_sub(1);
                    if !stack.is_shadowed(layer, slot, entry)
                        && is_expired(&entry.key, &entry.namespace, &entry.value)
                    {
                        let hash = self.layout.hash(entry);
                        expired.push((group, hash, entry.key.clone(), entry.namespace.clone()));
                    }
                });
                buckets -= before - step;
            }
            if !more {
                buckets = buckets.saturating_sub(1);
                cursor.bucket = BucketCursor::default();
                cursor.layer += 1;
                if cursor.layer >= stack.depth() {
                    *cursor = SweepCursor {
                        group: group + 1,
                        ..SweepCursor::default()
                    };
                }
            }
        }
        for (group, hash, key, namespace) in &expired {
            self.expect_change(*group);
            self.remove(*group, *hash, key, namespace);
        }
        expired.len()
    }
}
