//! The accesses that are not direct: changes are noted, a snapshot is open or not yet merged, a region has several groups. They take
//! what the caller has in registers; an address built for them would be stored on the usual path too.
use state_api::StoredKey;

use super::layout::{Address, Entry};
use super::region::Removed;
use super::table::LiveTable;

impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    #[inline(never)]
    pub(super) fn get_mut_noted<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
    ) -> Option<&mut V>
    where
        K: StoredKey<Q>,
    {
        Some(&mut self.noted(group, hash, key, namespace)?.value)
    }

    #[inline(never)]
    pub(super) fn insert_noted<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        value: V,
    ) -> bool
    where
        K: StoredKey<Q>,
    {
        let heap = self.layout.heap;
        let Some(found) = self.noted(group, hash, key, namespace) else {
            return self.insert_layered(group, hash, key, namespace, value);
        };
        let Some(heap) = heap else {
            found.value = value;
            return true;
        };
        let before = (heap.of_value)(&found.value);
        let delta = (heap.of_value)(&value).wrapping_sub(before);
        found.value = value;
        self.regions[group].top.adjust_heap(delta.cast_signed());
        true
    }

    /// Finds the entry of a bare region that is about to change, and notes its key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn noted<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
    ) -> Option<&mut Entry<K, N, V>>
    where
        K: StoredKey<Q>,
    {
        let at = Address {
            slot: 0,
            hash,
            key,
            namespace,
        };
        let top = &mut self.regions[group].top;
        let capture = self.capture.as_mut();
        let capture = capture.and_then(|c| c.interval().map(|i| (c, i)));
        let Some((capture, interval)) = capture else {
            return top.find_mut(at);
        };
        if capture.is_whole(group, 0) {
            top.is_whole = true;
            return top.find_mut(at);
        }
        let entries = match capture.counts_whole_groups() {
            true => top.entries_to_note(),
            false => usize::MAX,
        };
        let (entry, note) = top.find_to_change(at, interval)?;
        capture.record_found(group, at, note, entries);
        Some(entry)
    }

    /// Returns the number of entries of which more than half have to change for all of a region to count as changed.
    fn entries_to_note(&self, region: usize) -> usize {
        match &self.capture {
            Some(capture) if capture.counts_whole_groups() => {
                self.regions[region].entries_to_note()
            }
            _ => usize::MAX,
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn get_layered<Q>(
        &self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
    ) -> Option<&V>
    where
        K: StoredKey<Q>,
    {
        let (region, at) = self.address(group, hash, key, namespace);
        let region = &self.regions[region];
        region.top.get(at).or_else(|| region.get_below(at))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn get_mut_layered<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
    ) -> Option<&mut V>
    where
        K: StoredKey<Q>,
    {
        self.turn();
        let interval = self.change_interval();
        let (region, at) = self.address(group, hash, key, namespace);
        let entries = self.entries_to_note(region);
        let written = self.regions[region].get_mut(at, &self.layout, interval);
        self.snapshots.copies += u64::from(written.copied);
        if let Some(capture) = &mut self.capture {
            capture.record(region, at, written.note, false, entries);
        }
        written.result
    }

    #[cold]
    #[inline(never)]
    pub(super) fn insert_layered<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        value: V,
    ) -> bool
    where
        K: StoredKey<Q>,
    {
        self.turn();
        let interval = self.change_interval();
        let (region, at) = self.address(group, hash, key, namespace);
        let entries = self.entries_to_note(region);
        let written = self.regions[region].insert(at, value, &self.layout, interval);
        self.len += usize::from(!written.result);
        if let Some(capture) = &mut self.capture {
            capture.record(region, at, written.note, false, entries);
        }
        written.result
    }

    #[cold]
    #[inline(never)]
    pub(super) fn get_or_insert_layered<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        make: impl FnOnce() -> V,
    ) -> &mut V
    where
        K: StoredKey<Q>,
    {
        self.turn();
        let interval = self.change_interval();
        let (region, at) = self.address(group, hash, key, namespace);
        let entries = self.entries_to_note(region);
        let region_of_key = &mut self.regions[region];
        let (written, new) = region_of_key.get_or_insert_with(at, &self.layout, interval, make);
        self.len += usize::from(new);
        if let Some(capture) = &mut self.capture {
            capture.record(region, at, written.note, false, entries);
        }
        self.snapshots.copies += u64::from(written.copied);
        written
            .result
            .expect("the entry was found or added just now")
    }

    #[cold]
    #[inline(never)]
    pub(super) fn remove_layered<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        wanted: bool,
    ) -> Option<Removed<V>>
    where
        K: StoredKey<Q>,
    {
        self.turn();
        let interval = self.change_interval();
        let (region, at) = self.address(group, hash, key, namespace);
        let entries = self.entries_to_note(region);
        let written = self.regions[region].remove(at, &self.layout, interval, wanted);
        self.snapshots.copies += u64::from(written.copied);
        let removed = written.result?;
        self.len -= 1;
        if let Some(capture) = &mut self.capture {
            capture.record(region, at, written.note, true, entries);
        }
        Some(removed)
    }
}
