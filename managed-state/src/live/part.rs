use std::mem;

use super::layout::{Entry, Layout};
use super::tables::{BucketCursor, Place, Tables};

/// One layer of a region: the entries of its key groups, and the keys that this layer hides in the layers below.
///
/// A key is never in both.
pub(crate) struct Part<K, N, V> {
    slots: Box<[Tables<Entry<K, N, V>>]>,
    dead: Box<[Tables<(K, N)>]>,
    /// Bytes that this layer has allocated for tables.
    bytes: usize,
    /// Bytes that its entries own elsewhere.
    heap: usize,
}

impl<K, N, V> Default for Part<K, N, V> {
    fn default() -> Self {
        Self {
            slots: Box::default(),
            dead: Box::default(),
            bytes: 0,
            heap: 0,
        }
    }
}

/// A position in the entries and tombstones of a part that is being drained.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainCursor {
    slot: usize,
    dead: bool,
    bucket: BucketCursor,
}

/// What a drain takes out of a part.
pub(crate) enum Drained<K, N, V> {
    Live(usize, Entry<K, N, V>),
    Dead(usize, K, N),
}

impl<K: Eq + Clone, N: Eq + Clone, V> Part<K, N, V> {
    #[inline]
    pub(crate) fn get(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> Option<&V> {
        Some(
            &self
                .slots
                .get(slot)?
                .get(hash, |e| e.is(key, namespace))?
                .value,
        )
    }

    #[inline]
    pub(crate) fn get_mut(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
    ) -> Option<&mut V> {
        Some(
            &mut self
                .slots
                .get_mut(slot)?
                .get_mut(hash, |e| e.is(key, namespace))?
                .value,
        )
    }

    #[inline]
    pub(crate) fn find(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> Option<Place> {
        self.slots.get(slot)?.find(hash, |e| e.is(key, namespace))
    }

    #[inline]
    pub(crate) fn at(&self, slot: usize, place: Place) -> &Entry<K, N, V> {
        self.slots[slot].at(place)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize, place: Place) -> &mut Entry<K, N, V> {
        self.slots[slot].at_mut(place)
    }

    /// Returns the value of a key, made first if there is none, and whether it was made.
    #[inline]
    pub(crate) fn get_or_insert_with(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
        make: impl FnOnce() -> V,
    ) -> (&mut V, bool) {
        if self.slots.is_empty() {
            self.allocate_slots(layout.slots);
        }
        let found = self.slots[slot].entry(
            hash,
            |e| e.is(key, namespace),
            |e| layout.hash(e),
            &mut self.bytes,
        );
        match found {
            Ok(entry) => (&mut entry.value, false),
            Err(vacancy) => {
                let entry = Entry {
                    key: key.clone(),
                    namespace: namespace.clone(),
                    value: make(),
                };
                self.heap += layout.heap_of(&entry);
                (&mut vacancy.fill(entry).value, true)
            }
        }
    }

    /// Sets the value of a key and returns the old one.
    #[inline]
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        value: V,
        layout: &Layout<K, N, V>,
    ) -> Option<V> {
        if self.slots.is_empty() {
            self.allocate_slots(layout.slots);
        }
        let found = self.slots[slot].entry(
            hash,
            |e| e.is(key, namespace),
            |e| layout.hash(e),
            &mut self.bytes,
        );
        match found {
            Ok(entry) => {
                let before = layout.heap_of(entry);
                let old = mem::replace(&mut entry.value, value);
                self.heap = (self.heap + layout.heap_of(entry)).saturating_sub(before);
                Some(old)
            }
            Err(vacancy) => {
                let entry = Entry {
                    key: key.clone(),
                    namespace: namespace.clone(),
                    value,
                };
                self.heap += layout.heap_of(&entry);
                vacancy.fill(entry);
                None
            }
        }
    }

    /// Takes over an entry from another layer.
    pub(crate) fn adopt(
        &mut self,
        slot: usize,
        entry: Entry<K, N, V>,
        layout: &Layout<K, N, V>,
    ) -> bool {
        if self.slots.is_empty() {
            self.allocate_slots(layout.slots);
        }
        let hash = layout.hash(&entry);
        let heap = layout.heap_of(&entry);
        let eq = |e: &Entry<K, N, V>| e.is(&entry.key, &entry.namespace);
        match self.slots[slot].entry(hash, eq, |e| layout.hash(e), &mut self.bytes) {
            Ok(old) => {
                self.heap = (self.heap + heap).saturating_sub(layout.heap_of(old));
                *old = entry;
                false
            }
            Err(vacancy) => {
                self.heap += heap;
                vacancy.fill(entry);
                true
            }
        }
    }

    #[inline]
    pub(crate) fn remove(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
    ) -> Option<V> {
        let slot = self.slots.get_mut(slot)?;
        let entry = slot.remove(
            hash,
            |e| e.is(key, namespace),
            |e| layout.hash(e),
            &mut self.bytes,
        )?;
        self.heap = self.heap.saturating_sub(layout.heap_of(&entry));
        Some(entry.value)
    }

    #[inline]
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    #[inline]
    pub(crate) fn is_dead(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> bool {
        let dead = self.dead.get(slot);
        dead.is_some_and(|dead| {
            dead.get(hash, |(k, n)| k == key && n == namespace)
                .is_some()
        })
    }

    /// Hides a key of the layers below.
    pub(crate) fn bury(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
    ) {
        if self.dead.is_empty() {
            self.dead = (0..layout.slots).map(|_| Tables::default()).collect();
            self.bytes += layout.slots * mem::size_of::<Tables<(K, N)>>();
        }
        let found = self.dead[slot].entry(
            hash,
            |(k, n)| k == key && n == namespace,
            |(k, n)| layout.hasher.hash(k, n),
            &mut self.bytes,
        );
        if let Err(vacancy) = found {
            vacancy.fill((key.clone(), namespace.clone()));
        }
    }

    /// Takes a tombstone away; says whether there was one.
    #[inline]
    pub(crate) fn exhume(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
    ) -> bool {
        let Some(dead) = self.dead.get_mut(slot) else {
            return false;
        };
        let removed = dead.remove(
            hash,
            |(k, n)| k == key && n == namespace,
            |(k, n)| layout.hasher.hash(k, n),
            &mut self.bytes,
        );
        removed.is_some()
    }

    /// Says whether this layer decides what a reader of the layers below sees of a key.
    #[inline]
    pub(crate) fn shadows(&self, slot: usize, entry: &Entry<K, N, V>, hash: u64) -> bool {
        self.is_dead(slot, hash, &entry.key, &entry.namespace)
            || self
                .find(slot, hash, &entry.key, &entry.namespace)
                .is_some()
    }

    /// Takes out entries and tombstones until the budget is used up; returns false once the part is empty and freed.
    pub(crate) fn drain(
        &mut self,
        cursor: &mut DrainCursor,
        budget: &mut usize,
        cost: usize,
        layout: &Layout<K, N, V>,
        mut sink: impl FnMut(Drained<K, N, V>),
    ) -> bool {
        while cursor.slot < self.slots.len().max(self.dead.len()) {
            let slot = cursor.slot;
            if !cursor.dead {
                if let Some(live) = self.slots.get_mut(slot) {
                    let heap = &mut self.heap;
                    let sink = |entry| {
                        *heap = heap.saturating_sub(layout.heap_of(&entry));
                        sink(Drained::Live(slot, entry));
                    };
                    if live.drain(&mut cursor.bucket, budget, cost, &mut self.bytes, sink) {
                        return true;
                    }
                }
                (cursor.dead, cursor.bucket) = (true, BucketCursor::default());
            }
            if let Some(dead) = self.dead.get_mut(slot) {
                let sink = |(key, namespace)| sink(Drained::Dead(slot, key, namespace));
                if dead.drain(&mut cursor.bucket, budget, cost, &mut self.bytes, sink) {
                    return true;
                }
            }
            *cursor = DrainCursor {
                slot: slot + 1,
                ..DrainCursor::default()
            };
            *budget = budget.saturating_sub(1);
        }
        debug_assert!(
            self.is_void(),
            "entries came into a part while it was drained"
        );
        *cursor = DrainCursor::default();
        *self = Self::default();
        false
    }
}

impl<K, N, V> Part<K, N, V> {
    #[cold]
    #[inline(never)]
    fn allocate_slots(&mut self, slots: usize) {
        self.slots = (0..slots).map(|_| Tables::default()).collect();
        self.bytes += slots * mem::size_of::<Tables<Entry<K, N, V>>>();
    }

    /// Says whether the part neither holds nor hides anything.
    pub(crate) fn is_void(&self) -> bool {
        self.dead.iter().all(Tables::is_empty) && self.slots.iter().all(Tables::is_empty)
    }

    /// Frees the entries of a key group and returns how many there were.
    pub(crate) fn clear(&mut self, slot: usize, layout: &Layout<K, N, V>) -> usize {
        let Some(live) = self.slots.get_mut(slot) else {
            return 0;
        };
        let live = mem::take(live);
        self.bytes -= live.allocated();
        if layout.heap.is_some() {
            self.heap = self
                .heap
                .saturating_sub(live.iter().map(|entry| layout.heap_of(entry)).sum());
        }
        live.len()
    }

    /// Says whether nothing was ever written to the part since it was made or drained.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.slots.is_empty() && self.dead.is_empty()
    }

    /// Returns the number of entries that this layer holds of a key group.
    pub(crate) fn len(&self, slot: usize) -> usize {
        self.slots.get(slot).map_or(0, Tables::len)
    }

    pub(crate) fn entries(&self, slot: usize) -> impl Iterator<Item = &Entry<K, N, V>> {
        self.slots.get(slot).into_iter().flat_map(Tables::iter)
    }

    pub(crate) fn tables(&self, slot: usize) -> Option<&Tables<Entry<K, N, V>>> {
        self.slots.get(slot)
    }

    /// Returns the bytes of the tables and of what their entries own.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.heap
    }

    /// Corrects the heap bytes by what changed in place.
    #[inline]
    pub(crate) fn adjust_heap(&mut self, delta: isize) {
        self.heap = self.heap.saturating_add_signed(delta);
    }

    /// Recounts the allocated bytes of the tables, to check the running count.
    #[cfg(test)]
    pub(crate) fn recount(&self) -> usize {
        self.slots.iter().map(Tables::allocated).sum::<usize>()
            + self.slots.len() * mem::size_of::<Tables<Entry<K, N, V>>>()
            + self.dead.iter().map(Tables::allocated).sum::<usize>()
            + self.dead.len() * mem::size_of::<Tables<(K, N)>>()
    }
}

#[cfg(test)]
impl<K, N, V> Part<K, N, V> {
    /// Returns the running count of table bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the running count of heap bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap
    }
}
