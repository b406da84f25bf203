use std::fmt;

use state_api::StoredKey;

use super::capture::{Capture, Epoch};
use super::layout::{Address, EntryHasher, HeapSize, Layout};
use super::part::Part;
use super::region::{Region, Removed};
use super::seen::Interval;
use super::snapshots::Snapshots;
use super::tally::Tally;

/// Key groups up to which each is a region of its own.
const SINGLE_REGIONS: usize = 128;

/// Regions at most of a table of more groups. Freezing costs an allocation or two for each, and jobs with very many groups
/// have many states too.
const SHARED_REGIONS: usize = 32;

/// The entries of one state over a contiguous range of key groups.
///
/// Callers pass the index of the key group within the range and the hash of key and namespace, which they compute once per
/// record; the hash must be the one that the table's [`EntryHasher`] gives. Values must not change through shared
/// references (no interior mutability): a snapshot would see it.
///
/// The group index must be below [`LiveTable::groups`]; operations panic on one that is out of range, some only in debug builds.
pub struct LiveTable<K, N, V> {
    pub(crate) regions: Box<[Region<K, N, V>]>,
    /// A group's region is `group >> shift`, its slot there `group & slot_mask`.
    pub(crate) shift: u32,
    pub(crate) slot_mask: usize,
    /// Each region has one group and changes are not captured: most accesses need to look no further.
    pub(crate) direct: bool,
    pub(crate) layout: Layout<K, N, V>,
    pub(crate) len: usize,
    pub(crate) capture: Option<Box<Capture<K, N>>>,
    pub(crate) snapshots: Snapshots<K, N, V>,
    /// Where somebody asks for the bytes at each access.
    pub(crate) tally: Option<Box<Tally>>,
    pub(crate) first_group: u16,
    pub(crate) groups: usize,
}

/// What [`LiveTable::modify`] does with the entry after its function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Leaves the entry as the function left it, or absent.
    Keep,
    /// Sets the value.
    Put(V),
    /// Removes the entry.
    Remove,
}

/// The layer of a group, the address of a key in it, the layout, and the number of entries of the table.
type Direct<'t, 'k, K, Q, N, V> = (
    &'t mut Part<K, N, V>,
    Address<'k, Q, N>,
    &'t Layout<K, N, V>,
    &'t mut usize,
);

impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    /// Creates an empty table over `groups` key groups from `first_group` on.
    #[must_use]
    pub fn new(first_group: u16, groups: usize, hasher: EntryHasher<K, N>) -> Self {
        let slots = match groups {
            ..=SINGLE_REGIONS => 1,
            _ => groups.div_ceil(SHARED_REGIONS).next_power_of_two(),
        };
        Self {
            regions: (0..groups.div_ceil(slots))
                .map(|_| Region::default())
                .collect(),
            shift: slots.ilog2(),
            slot_mask: slots - 1,
            direct: slots == 1,
            layout: Layout {
                hasher,
                heap: None,
                slots,
            },
            len: 0,
            capture: None,
            snapshots: Snapshots::default(),
            tally: None,
            first_group,
            groups,
        }
    }

    /// Counts what entries own on the heap; without it they are taken to own nothing.
    ///
    /// # Panics
    /// If the table has entries already.
    #[must_use]
    pub fn with_heap_size(mut self, heap_size: HeapSize<K, N, V>) -> Self {
        assert!(self.len == 0, "the heap size is set before the first entry");
        self.layout.heap = Some(heap_size);
        self
    }

    /// Remembers which keys change between snapshots, for those that store only changes: from the first snapshot on, or from
    /// [`LiveTable::restored_from`].
    ///
    /// # Panics
    /// If the table has entries already.
    #[must_use]
    pub fn with_change_capture(mut self) -> Self {
        assert!(
            self.len == 0,
            "change capture is set before the first entry"
        );
        let capture = Capture::new(self.regions.len(), self.layout.slots, self.layout.hasher);
        self.capture = Some(Box::new(capture));
        self
    }

    /// Counts a key group as changed as a whole once more than half of its keys changed, if changes are remembered: then
    /// nothing more of it is noted, and a snapshot says so by [`ChangedKeys::All`](super::ChangedKeys::All).
    ///
    /// To write such a group takes about twice the bytes of its changes at most, if values are of a size, and less time: its
    /// entries are read in their order, where each change has to be looked for. Groups of fewer than 64 changed keys, those whose
    /// entries own much on the heap, and those of tables with more than 128 groups go on noting.
    #[must_use]
    pub fn with_whole_groups(mut self) -> Self {
        let capture = self.capture.take();
        self.capture = capture.map(|capture| match self.slot_mask {
            0 => Box::new(capture.with_whole_groups()),
            _ => capture,
        });
        self
    }

    /// Returns the interval that changes are marked with, if they are remembered.
    #[inline]
    pub(crate) fn change_interval(&self) -> Option<Interval> {
        self.capture.as_ref()?.interval()
    }

    /// Returns where the table stands between snapshots, if it remembers changes.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.capture.as_ref()?.epoch()
    }

    /// Says whether changes are remembered now.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.is_on())
    }

    /// Returns the first key group.
    #[must_use]
    pub fn first_group(&self) -> u16 {
        self.first_group
    }

    /// Returns the number of key groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn locate(&self, group: usize) -> (usize, usize) {
        debug_assert!(group < self.groups, "key group {group} of {}", self.groups);
        (group >> self.shift, group & self.slot_mask)
    }

    #[inline]
    pub(super) fn address<'a, Q>(
        &self,
        group: usize,
        hash: u64,
        key: &'a Q,
        namespace: &'a N,
    ) -> (usize, Address<'a, Q, N>)
    where
        K: StoredKey<Q>,
    {
        let (region, slot) = self.locate(group);
        (
            region,
            Address {
                slot,
                hash,
                key,
                namespace,
            },
        )
    }

    /// Says whether a group is read without looking at layers and other groups.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn is_bare(&self, group: usize) -> bool {
        self.slot_mask == 0 && self.regions[group].below.is_none()
    }

    /// Says whether a group is written to without looking at layers, other groups or captured changes. Only where each region has
    /// one group can all of it count as changed.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn is_direct(&self, group: usize) -> bool {
        match self.regions.get(group) {
            Some(region) => (self.direct || region.top.is_whole) && region.below.is_none(),
            None => false,
        }
    }

    /// Returns what an access to a group needs if it [is direct](Self::is_direct).
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn direct<'a, Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &'a Q,
        namespace: &'a N,
    ) -> Direct<'_, 'a, K, Q, N, V>
    where
        K: StoredKey<Q>,
    {
        debug_assert_eq!(
            hash,
            self.layout.hasher.hash(&K::of(key), namespace),
            "not the table's hash"
        );
        let at = Address {
            slot: 0,
            hash,
            key,
            namespace,
        };
        (
            &mut self.regions[group].top,
            at,
            &self.layout,
            &mut self.len,
        )
    }

    /// Reads the value of a key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[must_use]
    pub fn get<Q>(&self, group: usize, hash: u64, key: &Q, namespace: &N) -> Option<&V>
    where
        K: StoredKey<Q>,
    {
        debug_assert_eq!(
            hash,
            self.layout.hasher.hash(&K::of(key), namespace),
            "not the table's hash"
        );
        if !self.is_bare(group) {
            return self.get_layered(group, hash, key, namespace);
        }
        self.regions[group].top.get(Address {
            slot: 0,
            hash,
            key,
            namespace,
        })
    }

    /// Looks at the entries of keys that are used next, by group, hash and key, and calls `touch` with each value.
    ///
    /// In so tight a loop the processor waits for several of them at a time. Returns what `touch` read, so that the reading is
    /// not optimised away.
    pub fn prefetch<Q>(
        &self,
        keys: &[(usize, u64, &Q)],
        namespace: &N,
        touch: impl Fn(&V) -> u8,
    ) -> u8
    where
        K: StoredKey<Q>,
    {
        keys.iter().fold(0, |bytes, &(group, hash, key)| {
            let value = self.get(group, hash, key, namespace);
            bytes ^ value.map_or(0, &touch)
        })
    }

    /// Says whether a key has a value.
    #[inline]
    #[must_use]
    pub fn contains<Q>(&self, group: usize, hash: u64, key: &Q, namespace: &N) -> bool
    where
        K: StoredKey<Q>,
    {
        self.get(group, hash, key, namespace).is_some()
    }

    /// Returns the value of a key to be changed in place. It is copied first if a snapshot holds it.
    ///
    /// If the change alters what the value owns on the heap, tell it by [`LiveTable::adjust_heap`], or use
    /// [`LiveTable::modify`], which measures the value before and after.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn get_mut<Q>(&mut self, group: usize, hash: u64, key: &Q, namespace: &N) -> Option<&mut V>
    where
        K: StoredKey<Q>,
    {
        if !self.is_direct(group) {
            return match self.is_bare(group) {
                true => self.get_mut_noted(group, hash, key, namespace),
                false => self.get_mut_layered(group, hash, key, namespace),
            };
        }
        let (top, at, ..) = self.direct(group, hash, key, namespace);
        top.get_mut(at)
    }

    /// Sets the value of a key; says whether it had one.
    ///
    /// A value held by a snapshot is not copied.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn insert<Q>(&mut self, group: usize, hash: u64, key: &Q, namespace: &N, value: V) -> bool
    where
        K: StoredKey<Q>,
    {
        if !self.is_direct(group) {
            return match self.is_bare(group) {
                true => self.insert_noted(group, hash, key, namespace, value),
                false => self.insert_layered(group, hash, key, namespace, value),
            };
        }
        let (top, at, layout, len) = self.direct(group, hash, key, namespace);
        let had = top.replace(at, value, layout).is_some();
        *len += usize::from(!had);
        had
    }

    /// Returns the value of a key, inserting what the function makes if there is none.
    ///
    /// What [`LiveTable::get_mut`] says of the heap holds here too.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn get_or_insert_with<Q>(
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
        if !self.is_direct(group) {
            return self.get_or_insert_layered(group, hash, key, namespace, make);
        }
        let (top, at, layout, len) = self.direct(group, hash, key, namespace);
        let (value, new) = top.get_or_insert_with(at, layout, make);
        *len += usize::from(new);
        value
    }

    /// Removes a key; says whether it had a value.
    #[inline]
    pub fn remove<Q>(&mut self, group: usize, hash: u64, key: &Q, namespace: &N) -> bool
    where
        K: StoredKey<Q>,
    {
        self.take_if(group, hash, key, namespace, false).is_some()
    }

    /// Removes a key and returns its value, a clone if a snapshot holds it.
    #[inline]
    pub fn take<Q>(&mut self, group: usize, hash: u64, key: &Q, namespace: &N) -> Option<V>
    where
        K: StoredKey<Q>,
    {
        self.take_if(group, hash, key, namespace, true)
            .and_then(|removed| removed.0)
    }

    #[inline]
    fn take_if<Q>(
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
        if !self.is_direct(group) {
            return self.remove_layered(group, hash, key, namespace, wanted);
        }
        let (top, at, layout, len) = self.direct(group, hash, key, namespace);
        let value = top.remove(at, layout)?;
        *len -= 1;
        Some(Removed(Some(value)))
    }

    /// Sets the value of a key and returns the old one, a clone if a snapshot holds it.
    pub fn replace<Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        value: V,
    ) -> Option<V>
    where
        K: StoredKey<Q>,
    {
        let mut value = Some(value);
        self.modify(group, hash, key, namespace, |old| {
            match (old, value.take()) {
                (Some(old), Some(value)) => (Change::Keep, Some(std::mem::replace(old, value))),
                (_, Some(value)) => (Change::Put(value), None),
                (_, None) => (Change::Keep, None),
            }
        })
    }

    /// Reads, changes, sets or removes a value: the function gets what is there and says what to do.
    ///
    /// It costs one lookup, and another one if the function sets or removes.
    #[inline]
    pub fn modify<R, Q>(
        &mut self,
        group: usize,
        hash: u64,
        key: &Q,
        namespace: &N,
        change: impl FnOnce(Option<&mut V>) -> (Change<V>, R),
    ) -> R
    where
        K: StoredKey<Q>,
    {
        let heap = self.layout.heap;
        let (mut found, mut delta) = (false, 0_isize);
        let (then, result) = match self.get_mut(group, hash, key, namespace) {
            None => change(None),
            Some(value) => {
                found = true;
                let before = heap.map(|heap| (heap.of_value)(value));
                let (then, result) = change(Some(value));
                if let (Some(heap), Some(before)) = (heap, before) {
                    delta = (heap.of_value)(value).wrapping_sub(before).cast_signed();
                }
                (then, result)
            }
        };
        if delta != 0 {
            self.adjust_heap(group, hash, key, namespace, delta);
        }
        match then {
            Change::Keep => {}
            Change::Put(value) => {
                self.insert(group, hash, key, namespace, value);
            }
            Change::Remove if found => {
                self.remove(group, hash, key, namespace);
            }
            Change::Remove => {}
        }
        result
    }

    /// Tells by how many bytes the heap of a value changed through [`LiveTable::get_mut`].
    #[inline]
    pub fn adjust_heap<Q>(&mut self, group: usize, hash: u64, key: &Q, namespace: &N, delta: isize)
    where
        K: StoredKey<Q>,
    {
        let (region, at) = self.address(group, hash, key, namespace);
        let region = &mut self.regions[region];
        if region.below.is_none() {
            region.top.adjust_heap(delta);
        } else {
            region.adjust_heap(at, delta);
        }
    }
}

impl<K, N, V> fmt::Debug for LiveTable<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTable")
            .field("first_group", &self.first_group)
            .field("groups", &self.groups)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
