use std::mem;

use state_api::StoredKey;

use super::layout::{Address, Entry, Layout};
use super::seen::{Interval, Marked, Note, Seen};
use super::tables::{BucketCursor, Place, Tables};

/// Bytes that an entry owns in the mean, up to which entries are written with others that changed. Sizes may differ: more of them
/// could make much of little.
const MAX_MEAN_HEAP: usize = 256;

/// One layer of a region: the entries of its key groups, and the keys that this layer hides in the layers below.
///
/// A key is never in both.
#[repr(C)]
pub(crate) struct Part<K, N, V> {
    /// The entries of slot 0. It lies in line, for most regions have just one group and find theirs with one step less.
    first: Tables<Entry<K, N, V>>,
    rest: Option<Box<Rest<K, N, V>>>,
    /// Bytes that this layer has allocated for tables and marks.
    bytes: usize,
    /// Bytes that its entries own elsewhere.
    heap: usize,
    /// Which entries of slot 0 changed since the last snapshot.
    seen: Seen,
    /// All of slot 0 counts as changed since the last snapshot: writing to it needs no note. Never set in a frozen layer.
    pub(crate) is_whole: bool,
}

/// What few layers have.
struct Rest<K, N, V> {
    /// The entries of the slots from 1 on.
    more: Box<[Tables<Entry<K, N, V>>]>,
    /// The tombstones of all slots.
    dead: Box<[Tables<(K, N)>]>,
    /// Which entries of the slots from 1 on changed; empty where nobody wants to know.
    seen: Box<[Seen]>,
}

impl<K, N, V> Default for Rest<K, N, V> {
    fn default() -> Self {
        Self {
            more: Box::default(),
            dead: Box::default(),
            seen: Box::default(),
        }
    }
}

impl<K, N, V> Default for Part<K, N, V> {
    fn default() -> Self {
        Self {
            first: Tables::default(),
            rest: None,
            bytes: 0,
            heap: 0,
            seen: Seen::default(),
            is_whole: false,
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
    /// An entry, and what is known of its key.
    Live(usize, Entry<K, N, V>, Note),
    Dead(usize, K, N),
}

impl<K, N, V> Part<K, N, V> {
    /// Returns the entries of a key group.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn live(&self, slot: usize) -> Option<&Tables<Entry<K, N, V>>> {
        match slot.checked_sub(1) {
            None => Some(&self.first),
            Some(slot) => self.rest.as_ref()?.more.get(slot),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn live_mut(&mut self, slot: usize) -> Option<&mut Tables<Entry<K, N, V>>> {
        match slot.checked_sub(1) {
            None => Some(&mut self.first),
            Some(slot) => self.rest.as_mut()?.more.get_mut(slot),
        }
    }

    #[inline]
    fn dead(&self, slot: usize) -> Option<&Tables<(K, N)>> {
        self.rest.as_ref()?.dead.get(slot)
    }

    /// Makes the tables of slots from 1 on, empty.
    #[cold]
    #[inline(never)]
    fn allocate_more(&mut self, slots: usize) {
        let rest = self.rest.get_or_insert_default();
        if rest.more.is_empty() {
            rest.more = (1..slots).map(|_| Tables::default()).collect();
            self.bytes += rest.more.len() * size_of::<Tables<Entry<K, N, V>>>();
        }
    }

    #[cold]
    #[inline(never)]
    fn allocate_dead(&mut self, slots: usize) {
        let rest = self.rest.get_or_insert_default();
        if rest.dead.is_empty() {
            rest.dead = (0..slots).map(|_| Tables::default()).collect();
            self.bytes += slots * size_of::<Tables<(K, N)>>();
        }
    }

    /// Says whether nothing was ever written to the part since it was made or drained.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.first.is_blank() && self.rest.is_none()
    }

    fn is_void(&self) -> bool {
        self.first.is_empty()
            && self.rest.as_ref().is_none_or(|rest| {
                rest.more.iter().all(Tables::is_empty) && rest.dead.iter().all(Tables::is_empty)
            })
    }

    /// Returns the number of entries that this layer holds of a key group.
    pub(crate) fn len(&self, slot: usize) -> usize {
        self.live(slot).map_or(0, Tables::len)
    }

    /// Returns the number of entries of slot 0; `usize::MAX` if they own so much that those which did not change had better not be
    /// written with the others.
    #[inline]
    pub(crate) fn entries_to_note(&self) -> usize {
        let entries = self.first.len();
        if self.heap > entries.saturating_mul(MAX_MEAN_HEAP) {
            return usize::MAX;
        }
        entries
    }

    pub(crate) fn entries(&self, slot: usize) -> impl Iterator<Item = &Entry<K, N, V>> {
        self.live(slot).into_iter().flat_map(Tables::iter)
    }

    /// Returns the bytes of the tables and marks, and of what the entries own.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.heap
    }

    fn seen_mut(&mut self, slot: usize) -> Option<&mut Seen> {
        match slot.checked_sub(1) {
            None => Some(&mut self.seen),
            Some(slot) => self.rest.as_mut()?.seen.get_mut(slot),
        }
    }

    /// Marks the entry at a place as changed and says whether its key is noted already.
    #[inline]
    pub(crate) fn mark(&mut self, slot: usize, place: Place, interval: Interval) -> Note {
        let (seen, tables) = match (slot.checked_sub(1), &mut self.rest) {
            (None, _) => (&mut self.seen, &self.first),
            (Some(slot), Some(rest)) => {
                if rest.seen.is_empty() {
                    rest.seen = rest.more.iter().map(|_| Seen::default()).collect();
                    self.bytes += size_of_val(&*rest.seen);
                }
                (&mut rest.seen[slot], &rest.more[slot])
            }
            (Some(_), None) => return Note::Unsure,
        };
        seen.mark(place, tables, interval, &mut self.bytes)
    }

    /// Returns the entries of a key group that are marked as changed in an interval; `None` if not all of them are known.
    pub(crate) fn marked(
        &self,
        slot: usize,
        interval: Interval,
    ) -> Option<Marked<'_, Entry<K, N, V>>> {
        const NOTHING: &Seen = &Seen::new();
        let seen = match (slot.checked_sub(1), &self.rest) {
            (None, _) => &self.seen,
            (Some(slot), Some(rest)) => rest.seen.get(slot).unwrap_or(NOTHING),
            (Some(_), None) => NOTHING,
        };
        match self.live(slot) {
            Some(tables) => seen.marked(tables, interval),
            None => NOTHING.marked(&self.first, interval),
        }
    }

    /// Learns that an entry came from where its mark was forgotten.
    #[cold]
    fn doubt(&mut self, slot: usize, place: Place, interval: Interval) {
        self.mark(slot, place, interval);
        if let Some(seen) = self.seen_mut(slot) {
            seen.doubt::<Entry<K, N, V>>(place);
        }
    }

    /// Corrects the heap bytes by what changed in place.
    #[inline]
    pub(crate) fn adjust_heap(&mut self, delta: isize) {
        self.heap = self.heap.saturating_add_signed(delta);
    }

    /// Frees the entries of a key group and returns how many there were.
    pub(crate) fn clear(&mut self, slot: usize, layout: &Layout<K, N, V>) -> usize {
        let live = self.live_mut(slot).map(mem::take).unwrap_or_default();
        self.bytes -= live.allocated();
        if layout.heap.is_some() {
            let heap: usize = live.iter().map(|entry| layout.heap_of(entry)).sum();
            self.heap = self.heap.saturating_sub(heap);
        }
        live.len()
    }
}

impl<K: Eq + Clone, N: Eq + Clone, V> Part<K, N, V> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get<Q>(&self, at: Address<'_, Q, N>) -> Option<&V>
    where
        K: StoredKey<Q>,
    {
        Some(&self.live(at.slot)?.get(at.hash, |e| at.is(e))?.value)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get_mut<Q>(&mut self, at: Address<'_, Q, N>) -> Option<&mut V>
    where
        K: StoredKey<Q>,
    {
        Some(
            &mut self
                .live_mut(at.slot)?
                .get_mut(at.hash, |e| at.is(e))?
                .value,
        )
    }

    #[inline]
    pub(crate) fn find<Q>(&self, at: Address<'_, Q, N>) -> Option<Place>
    where
        K: StoredKey<Q>,
    {
        self.live(at.slot)?.find(at.hash, |e| at.is(e))
    }

    /// Returns the entry at a place that was found just now.
    #[inline]
    pub(crate) fn at(&self, slot: usize, place: Place) -> Option<&Entry<K, N, V>> {
        self.live(slot)?.at(place)
    }

    /// Returns the entry at a place that was found just now.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: usize, place: Place) -> Option<&mut Entry<K, N, V>> {
        self.live_mut(slot)?.at_mut(place)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn slot_mut(
        &mut self,
        slot: usize,
        layout: &Layout<K, N, V>,
    ) -> (&mut Tables<Entry<K, N, V>>, &mut usize, &mut usize) {
        let Some(slot) = slot.checked_sub(1) else {
            return (&mut self.first, &mut self.bytes, &mut self.heap);
        };
        if self.rest.as_ref().is_none_or(|rest| rest.more.is_empty()) {
            self.allocate_more(layout.slots);
        }
        let rest = self.rest.get_or_insert_default();
        (&mut rest.more[slot], &mut self.bytes, &mut self.heap)
    }

    /// Returns the value of a key, made first if there is none, and whether it was made.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get_or_insert_with<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        layout: &Layout<K, N, V>,
        make: impl FnOnce() -> V,
    ) -> (&mut V, bool)
    where
        K: StoredKey<Q>,
    {
        let found = self.find(at);
        let place = match found {
            Some(place) => place,
            None => self.insert_absent(at.slot, at.hash, at.entry(make()), layout),
        };
        let entry = self
            .at_mut(at.slot, place)
            .expect("the entry was found or added just now");
        (&mut entry.value, found.is_none())
    }

    /// Sets the value of a key and returns the old one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn replace<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        value: V,
        layout: &Layout<K, N, V>,
    ) -> Option<V>
    where
        K: StoredKey<Q>,
    {
        // Most writes meet a key that is there, and that takes no look at whether there is room.
        let (live, _, heap) = self.slot_mut(at.slot, layout);
        let Some(entry) = live.get_mut(at.hash, |e| at.is(e)) else {
            self.insert_absent(at.slot, at.hash, at.entry(value), layout);
            return None;
        };
        if layout.heap.is_some() {
            let before = layout.heap_of(entry);
            let old = mem::replace(&mut entry.value, value);
            *heap = (*heap + layout.heap_of(entry)).saturating_sub(before);
            return Some(old);
        }
        Some(mem::replace(&mut entry.value, value))
    }

    /// Finds an entry of slot 0.
    #[inline]
    pub(crate) fn find_mut<Q>(&mut self, at: Address<'_, Q, N>) -> Option<&mut Entry<K, N, V>>
    where
        K: StoredKey<Q>,
    {
        self.first.get_mut(at.hash, |e| at.is(e))
    }

    /// Finds an entry of slot 0 that is about to change and marks it; says whether its key is noted already.
    #[inline]
    pub(crate) fn find_to_change<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        interval: Interval,
    ) -> Option<(&mut Entry<K, N, V>, Note)>
    where
        K: StoredKey<Q>,
    {
        let place = self.first.find(at.hash, |e| at.is(e))?;
        let note = (self.seen).mark(place, &self.first, interval, &mut self.bytes);
        Some((self.first.at_mut(place)?, note))
    }

    /// Sets the value of the entry at a place that was found just now.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, place: Place, value: V, layout: &Layout<K, N, V>) {
        let (live, _, heap) = self.slot_mut(slot, layout);
        let Some(entry) = live.at_mut(place) else {
            return;
        };
        if layout.heap.is_some() {
            let before = layout.heap_of(entry);
            entry.value = value;
            *heap = (*heap + layout.heap_of(entry)).saturating_sub(before);
        } else {
            entry.value = value;
        }
    }

    /// Makes room in a key group that has nothing allocated yet.
    pub(crate) fn reserve(&mut self, slot: usize, entries: usize, layout: &Layout<K, N, V>) {
        let (live, bytes, _) = self.slot_mut(slot, layout);
        live.reserve(entries, bytes);
    }

    /// Adds an entry unless its key is there; says whether it did.
    #[inline]
    pub(crate) fn add(
        &mut self,
        slot: usize,
        hash: u64,
        entry: Entry<K, N, V>,
        layout: &Layout<K, N, V>,
    ) -> bool {
        let (live, bytes, heap) = self.slot_mut(slot, layout);
        let owned = layout.heap_of(&entry);
        let is_same = |a: &Entry<K, N, V>, b: &Entry<K, N, V>| a.address(slot, hash).is(b);
        let added = live.add(hash, entry, is_same, |e| layout.hash(e), bytes);
        if added {
            *heap += owned;
        }
        added
    }

    /// Adds an entry whose key is not there.
    #[inline(never)]
    pub(crate) fn insert_absent(
        &mut self,
        slot: usize,
        hash: u64,
        entry: Entry<K, N, V>,
        layout: &Layout<K, N, V>,
    ) -> Place {
        let (live, bytes, heap) = self.slot_mut(slot, layout);
        *heap += layout.heap_of(&entry);
        live.insert_absent(hash, entry, |e| layout.hash(e), bytes)
    }

    /// Takes over an entry from another layer and says where it is now.
    fn adopt(
        &mut self,
        slot: usize,
        hash: u64,
        entry: Entry<K, N, V>,
        layout: &Layout<K, N, V>,
    ) -> Place {
        let (live, _, heap) = self.slot_mut(slot, layout);
        let at = entry.address(slot, hash);
        let found = live.find(hash, |e| at.is(e));
        let Some((place, old)) = found.and_then(|place| Some((place, live.at_mut(place)?))) else {
            return self.insert_absent(slot, hash, entry, layout);
        };
        *heap = (*heap + layout.heap_of(&entry)).saturating_sub(layout.heap_of(old));
        *old = entry;
        place
    }

    #[inline]
    pub(crate) fn remove<Q>(&mut self, at: Address<'_, Q, N>, layout: &Layout<K, N, V>) -> Option<V>
    where
        K: StoredKey<Q>,
    {
        let (live, bytes, heap) = self.slot_mut(at.slot, layout);
        let entry = live.remove(at.hash, |e| at.is(e), |e| layout.hash(e), bytes)?;
        *heap = heap.saturating_sub(layout.heap_of(&entry));
        Some(entry.value)
    }

    #[inline]
    pub(crate) fn is_dead<Q>(&self, at: Address<'_, Q, N>) -> bool
    where
        K: StoredKey<Q>,
    {
        self.dead(at.slot)
            .is_some_and(|dead| dead.get(at.hash, |(k, n)| at.is_key(k, n)).is_some())
    }

    /// Hides a key of the layers below.
    pub(crate) fn bury<Q>(&mut self, at: Address<'_, Q, N>, layout: &Layout<K, N, V>)
    where
        K: StoredKey<Q>,
    {
        if self.dead(at.slot).is_none() {
            self.allocate_dead(layout.slots);
        }
        if self.is_dead(at) {
            return;
        }
        let rehash = |(k, n): &(K, N)| layout.hasher.hash(k, n);
        let rest = self.rest.get_or_insert_default();
        let tombstone = (K::of(at.key), at.namespace.clone());
        rest.dead[at.slot].insert_absent(at.hash, tombstone, rehash, &mut self.bytes);
    }

    /// Takes a tombstone away; says whether there was one.
    pub(crate) fn exhume<Q>(&mut self, at: Address<'_, Q, N>, layout: &Layout<K, N, V>) -> bool
    where
        K: StoredKey<Q>,
    {
        let rehash = |(k, n): &(K, N)| layout.hasher.hash(k, n);
        let Some(dead) = self
            .rest
            .as_mut()
            .and_then(|rest| rest.dead.get_mut(at.slot))
        else {
            return false;
        };
        let eq = |(k, n): &(K, N)| at.is_key(k, n);
        dead.remove(at.hash, eq, rehash, &mut self.bytes).is_some()
    }

    /// Says whether this layer decides what a reader of the layers below sees of a key.
    #[inline]
    pub(crate) fn decides<Q>(&self, at: Address<'_, Q, N>) -> bool
    where
        K: StoredKey<Q>,
    {
        self.find(at).is_some() || self.is_dead(at)
    }

    /// Takes over from a newer layer what that one says of some keys. `interval` is that of a table that remembers changes;
    /// `is_visible` says whether layers under this one show a key.
    pub(crate) fn absorb(
        &mut self,
        drained: Drained<K, N, V>,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
        is_visible: impl FnOnce(Address<'_, K, N>) -> bool,
    ) {
        match drained {
            Drained::Live(slot, entry, note) => {
                let hash = layout.hash(&entry);
                if self.dead(slot).is_some() {
                    self.exhume(entry.address(slot, hash), layout);
                }
                let place = self.adopt(slot, hash, entry, layout);
                let Some(interval) = interval else { return };
                match note {
                    Note::Known => {
                        self.mark(slot, place, interval);
                    }
                    Note::Unsure => self.doubt(slot, place, interval),
                    Note::New => {
                        if let Some(seen) = self.seen_mut(slot) {
                            seen.unmark::<Entry<K, N, V>>(place);
                        }
                    }
                }
            }
            Drained::Dead(slot, key, namespace) => {
                let hash = layout.hasher.hash(&key, &namespace);
                let at = Address {
                    slot,
                    hash,
                    key: &key,
                    namespace: &namespace,
                };
                self.remove(at, layout);
                if is_visible(at) {
                    self.bury(at, layout);
                }
            }
        }
    }

    /// Takes out entries and tombstones until the budget is used up; returns false once the part is empty and freed.
    pub(crate) fn drain(
        &mut self,
        cursor: &mut DrainCursor,
        budget: &mut usize,
        cost: usize,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
        mut sink: impl FnMut(Drained<K, N, V>),
    ) -> bool {
        while cursor.slot < layout.slots {
            let slot = cursor.slot;
            if !cursor.dead {
                let (live, seen) = match (slot.checked_sub(1), &mut self.rest) {
                    (None, _) => (Some(&mut self.first), Some(&self.seen)),
                    (Some(slot), Some(rest)) => (rest.more.get_mut(slot), rest.seen.get(slot)),
                    (Some(_), None) => (None, None),
                };
                let moves = live.as_ref().map_or(0, |live| live.moves());
                let marks = interval.and_then(|interval| Some((seen?, interval)));
                let heap = &mut self.heap;
                let sink = |entry, place| {
                    *heap = heap.saturating_sub(layout.heap_of(&entry));
                    let note = marks.map_or(Note::New, |(seen, interval)| {
                        seen.note_of::<Entry<K, N, V>>(place, moves, interval)
                    });
                    sink(Drained::Live(slot, entry, note));
                };
                if live.is_some_and(|live| {
                    live.drain(&mut cursor.bucket, budget, cost, &mut self.bytes, sink)
                }) {
                    return true;
                }
                (cursor.dead, cursor.bucket) = (true, BucketCursor::default());
            }
            if let Some(dead) = self.rest.as_mut().and_then(|rest| rest.dead.get_mut(slot)) {
                let sink = |(key, namespace), _| sink(Drained::Dead(slot, key, namespace));
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

#[cfg(test)]
impl<K, N, V> Part<K, N, V> {
    /// Returns the running counts of table bytes and heap bytes.
    pub(crate) fn counted(&self) -> (usize, usize) {
        (self.bytes, self.heap)
    }

    /// Counts the allocated bytes of the tables anew.
    pub(crate) fn recount(&self) -> usize {
        let rest = self.rest.as_ref().map_or(0, |rest| {
            rest.more.iter().map(Tables::allocated).sum::<usize>()
                + rest.dead.iter().map(Tables::allocated).sum::<usize>()
                + size_of_val(&*rest.more)
                + size_of_val(&*rest.dead)
                + rest.seen.iter().map(Seen::bytes).sum::<usize>()
                + size_of_val(&*rest.seen)
        });
        self.first.allocated() + self.seen.bytes() + rest
    }
}
