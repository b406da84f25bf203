use std::mem;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use state_api::{Error, Result};

use super::frozen::{FrozenTable, Held, OverlayLimitReached, ReleaseSignal, Shared};
use super::layers::MAX_FROZEN;
use super::part::Part;
use super::region::{Merge, Region};
use super::table::LiveTable;

/// Merge budget of one write: up to four entries, or the buckets between them.
const TURN_BUDGET: usize = 32;

/// Merge budget of a freeze that would stack too many layers, some 100 µs.
const FREEZE_BUDGET: usize = 32 * 1024;

/// Layered writes between two looks at the overlay limit.
const LIMIT_CHECK: u32 = 1024;

/// How much memory writes may take while a snapshot is open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlayLimit {
    /// Bytes of the overlays as a fraction of those of the table under them.
    pub fraction: f64,
    /// Bytes that are always allowed.
    pub floor: usize,
}

impl Default for OverlayLimit {
    /// A quarter of the table, and always 4 MiB.
    fn default() -> Self {
        Self {
            fraction: 0.25,
            floor: 4 << 20,
        }
    }
}

/// What a table did and holds, to be shown and tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Regions that have more than one layer.
    pub layered_regions: usize,
    /// Layers of the deepest region, the writable one included.
    pub depth: usize,
    /// Snapshots that still hold layers.
    pub open_snapshots: usize,
    /// Values cloned because a snapshot held them.
    pub copies: u64,
    /// Snapshots taken back because of the overlay limit.
    pub aborted: u64,
}

/// The snapshots of a table, and the state of its merging.
pub(crate) struct Snapshots<K, N, V> {
    open: Vec<Weak<Shared<K, N, V>>>,
    signal: ReleaseSignal,
    /// The signal's count when the regions were last looked through.
    seen: usize,
    /// Regions from the cursor on that are still to be looked at.
    pending: usize,
    cursor: usize,
    ticks: u32,
    pub(crate) limit: OverlayLimit,
    pub(crate) copies: u64,
    aborted: u64,
}

impl<K, N, V> Default for Snapshots<K, N, V> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            signal: ReleaseSignal::default(),
            seen: 0,
            pending: 0,
            cursor: 0,
            ticks: 0,
            limit: OverlayLimit::default(),
            copies: 0,
            aborted: 0,
        }
    }
}

impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    /// Sets how much memory writes may take while a snapshot is open.
    pub fn set_overlay_limit(&mut self, limit: OverlayLimit) {
        self.snapshots.limit = limit;
    }

    /// Takes a snapshot under an id. The time does not depend on the number of entries.
    ///
    /// # Errors
    /// `LimitExceeded` if too many layers are stacked already: earlier snapshots are still open, or what was written
    /// meanwhile is not merged yet. Nothing changed then.
    pub fn freeze(&mut self, id: u64) -> Result<FrozenTable<K, N, V>> {
        self.expect_any_change();
        let (mut budget, interval) = (FREEZE_BUDGET, self.change_interval());
        for region in &mut self.regions {
            if region.is_too_deep() {
                region.merge(&self.layout, interval, &mut budget);
            }
            if region.is_too_deep() {
                return Err(Error::limit(
                    "snapshot declined: earlier snapshots are open or not merged yet",
                )
                .with("snapshot", id)
                .with("layers", region.depth())
                .with("layers_allowed", MAX_FROZEN));
            }
        }
        let (slots, groups) = (self.layout.slots, self.groups);
        let regions = self.regions.iter_mut().enumerate().map(|(number, region)| {
            Mutex::new(Held::new(
                region.freeze(),
                slots.min(groups - number * slots),
            ))
        });
        let shared = Arc::new(Shared {
            regions: regions.collect(),
            layout: self.layout,
            shift: self.shift,
            aborted: OnceLock::new(),
            signal: self.snapshots.signal.clone(),
        });
        self.snapshots.open.retain(|open| open.strong_count() > 0);
        self.snapshots.open.push(Arc::downgrade(&shared));
        let regions = &self.regions;
        let entries = |region: usize| regions[region].entries_at_most();
        let changes = (self.capture.as_mut()).map(|capture| capture.seal(id, entries));
        self.direct &= changes.is_none();
        Ok(FrozenTable {
            shared,
            changes,
            id,
            len: self.len,
            groups: self.groups,
        })
    }

    /// Forgets the changes up to a snapshot that is complete, and durable.
    pub fn confirm(&mut self, id: u64) {
        self.expect_any_change();
        if let Some(capture) = &mut self.capture {
            capture.confirm(id);
        }
    }

    /// Learns that nothing will be based on a snapshot, which failed: what changed before it counts as changed after it.
    pub fn discard(&mut self, id: u64) {
        self.expect_any_change();
        if let Some(capture) = &mut self.capture {
            capture.fold(id);
        }
    }

    /// Forgets all changes, after the table was filled from a snapshot: those that follow are changes since that one, made
    /// after the snapshot `latest`.
    pub fn restored_from(&mut self, id: u64, latest: u64) {
        self.expect_any_change();
        if let Some(capture) = &mut self.capture {
            capture.start_at(id, latest);
            let regions = self.regions.iter_mut();
            regions.for_each(|region| region.top.is_whole = false);
            self.direct = false;
        }
    }

    /// Merges layers that no snapshot holds any more; returns whether there is more to do.
    ///
    /// Call it between batches and when idle. A budget of 1,000 takes some ten microseconds; with nothing to do the call
    /// costs a few nanoseconds.
    pub fn maintain(&mut self, budget: usize) -> bool {
        let mut budget = budget;
        self.merge(&mut budget);
        self.enforce_limit();
        self.snapshots.pending > 0
    }

    /// The share of merging, and of looking after limits, that one layered write does.
    #[inline]
    pub(crate) fn turn(&mut self) {
        self.snapshots.ticks += 1;
        if self.snapshots.ticks >= LIMIT_CHECK {
            self.snapshots.ticks = 0;
            self.enforce_limit();
        }
        let mut budget = TURN_BUDGET;
        self.merge(&mut budget);
    }

    fn merge(&mut self, budget: &mut usize) {
        let interval = self.change_interval();
        let count = self.snapshots.signal.count();
        if count != self.snapshots.seen {
            self.snapshots.seen = count;
            self.snapshots.pending = self.regions.len();
        }
        while self.snapshots.pending > 0 && *budget > 0 {
            self.expect_change_of_region(self.snapshots.cursor);
            let snapshots = &mut self.snapshots;
            let region = &mut self.regions[snapshots.cursor];
            if region.merge(&self.layout, interval, budget) == Merge::Unfinished {
                return;
            }
            *budget = budget.saturating_sub(8);
            snapshots.pending -= 1;
            snapshots.cursor = (snapshots.cursor + 1) % self.regions.len();
        }
    }

    #[cold]
    fn enforce_limit(&mut self) {
        let (base, overlay) = self.layer_bytes();
        let OverlayLimit { fraction, floor } = self.snapshots.limit;
        let limit = ((base as f64 * fraction) as usize).max(floor);
        if overlay <= limit {
            return;
        }
        let reason = OverlayLimitReached {
            overlay_bytes: overlay,
            limit_bytes: limit,
        };
        for open in mem::take(&mut self.snapshots.open) {
            if let Some(open) = open.upgrade().filter(|open| open.is_holding()) {
                self.snapshots.aborted += u64::from(open.abort(reason));
            }
        }
    }

    fn layer_bytes(&self) -> (usize, usize) {
        self.regions
            .iter()
            .map(Region::bytes)
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Returns the bytes of tables, overlays, what entries own on the heap, and captured changes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tallied_bytes().unwrap_or_else(|| self.count_bytes())
    }

    /// Adds up the bytes of all regions.
    pub(crate) fn count_bytes(&self) -> usize {
        let (base, overlay) = self.layer_bytes();
        base + overlay
            + self.regions.len() * mem::size_of::<Region<K, N, V>>()
            + self.capture.as_ref().map_or(0, |capture| capture.bytes())
    }

    /// Returns the bytes of what was written while snapshots were open and is not merged yet.
    #[must_use]
    pub fn overlay_bytes(&self) -> usize {
        self.layer_bytes().1
    }

    /// Returns counts of layers, snapshots and copies.
    #[must_use]
    pub fn stats(&self) -> TableStats {
        let open = self.snapshots.open.iter().filter_map(Weak::upgrade);
        TableStats {
            layered_regions: self.regions.iter().filter(|r| r.below.is_some()).count(),
            depth: self.regions.iter().map(Region::depth).max().unwrap_or(0),
            open_snapshots: open.filter(|open| open.is_holding()).count(),
            copies: self.snapshots.copies,
            aborted: self.snapshots.aborted,
        }
    }

    /// Removes all entries of a key group.
    ///
    /// Without an open snapshot this frees the tables of the group; else each key gets a tombstone.
    pub fn clear_group(&mut self, group: usize) {
        self.expect_any_change();
        let (region, slot) = self.locate(group);
        if !self.is_capturing() && self.regions[region].below.is_none() {
            self.len -= self.regions[region].top.clear(slot, &self.layout);
            return;
        }
        let keys: Vec<(K, N)> = self
            .iter(group)
            .map(|(key, namespace, _)| (key.clone(), namespace.clone()))
            .collect();
        for (key, namespace) in keys {
            self.remove(
                group,
                self.layout.hasher.hash(&key, &namespace),
                &key,
                &namespace,
            );
        }
    }

    /// Removes all entries. Layers that snapshots hold live on with them alone.
    pub fn clear(&mut self) {
        self.expect_any_change();
        if self.is_capturing() {
            (0..self.groups).for_each(|group| self.clear_group(group));
            return;
        }
        for region in &mut self.regions {
            region.below = None;
            region.top = Part::default();
        }
        self.len = 0;
        self.snapshots.pending = 0;
    }
}
