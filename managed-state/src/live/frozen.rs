use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use state_api::{Error, Result};

use super::capture::Changes;
use super::layers::Layers;
use super::layout::{Address, Entry, Layout};
use super::stack::Stack;

/// How many entries are read between two looks at whether the snapshot was aborted.
const ABORT_CHECK: usize = 1024;

/// How many entries are touched before the first of them is visited: so many fetches from memory are under way at a time.
const WINDOW: usize = 32;

/// A table as it was at one moment, unreachable by later writes to the live one.
///
/// It may go to another thread, outlive the table, be dropped in any order with other snapshots, or be leaked: what it
/// costs meanwhile is the copies of values that the live table writes to. The live table aborts it if those take too
/// much memory; reading then fails, and the layers are let go at once, whether or not anybody still looks at the snapshot.
pub struct FrozenTable<K, N, V> {
    pub(crate) shared: Arc<Shared<K, N, V>>,
    pub(crate) changes: Option<Changes<K, N>>,
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) groups: usize,
}

/// Which keys of a group changed between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedKeys {
    /// So many, each of which was visited.
    Some(u64),
    /// So many that they were not remembered: all entries that there are count as changed, and any other key as removed.
    All,
}

/// Why the live table took a snapshot back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlayLimitReached {
    /// Bytes of what was written since the oldest open snapshot.
    pub overlay_bytes: usize,
    /// Bytes that were allowed.
    pub limit_bytes: usize,
}

impl OverlayLimitReached {
    fn to_error(self, id: u64) -> Error {
        Error::limit("snapshot aborted: what was written since it was taken needs too much memory")
            .with("snapshot", id)
            .with("overlay_bytes", self.overlay_bytes)
            .with("limit_bytes", self.limit_bytes)
    }
}

/// What a snapshot holds, where the live table can take it back.
pub(crate) struct Shared<K, N, V> {
    pub(crate) regions: Box<[Mutex<Held<K, N, V>>]>,
    pub(crate) layout: Layout<K, N, V>,
    pub(crate) shift: u32,
    pub(crate) aborted: OnceLock<OverlayLimitReached>,
    pub(crate) signal: ReleaseSignal,
}

/// The layers of a region, oldest first, and which of its key groups are released.
pub(crate) struct Held<K, N, V> {
    layers: Layers<K, N, V>,
    released: Vec<bool>,
    remaining: usize,
}

impl<K, N, V> Held<K, N, V> {
    pub(crate) fn new(layers: Layers<K, N, V>, groups: usize) -> Self {
        Self {
            layers,
            released: Vec::new(),
            remaining: groups,
        }
    }
}

/// Tells the live table that layers were let go; raised after each of them, also when dropped.
#[derive(Clone, Default)]
pub(crate) struct ReleaseSignal(Arc<AtomicUsize>);

impl ReleaseSignal {
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Raises the signal when dropped; as the last field of a struct it does so after the others are gone.
struct RaiseOnDrop(ReleaseSignal);

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.0.raise();
    }
}

impl<K, N, V> Shared<K, N, V> {
    fn lock(&self, region: usize) -> MutexGuard<'_, Held<K, N, V>> {
        self.regions[region]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn let_go(&self, region: usize) {
        let layers = std::mem::take(&mut self.lock(region).layers);
        if !layers.is_empty() {
            drop(layers);
            self.signal.raise();
        }
    }

    /// Takes the snapshot back; its owner sees the reason.
    pub(crate) fn abort(&self, reason: OverlayLimitReached) -> bool {
        let first = self.aborted.set(reason).is_ok();
        (0..self.regions.len()).for_each(|region| self.let_go(region));
        first
    }

    /// Says whether the snapshot still holds layers.
    pub(crate) fn is_holding(&self) -> bool {
        (0..self.regions.len()).any(|region| !self.lock(region).layers.is_empty())
    }
}

impl<K, N, V> FrozenTable<K, N, V> {
    /// Returns the id under which the snapshot was taken.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of entries in all key groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether the table was empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of key groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Returns why the live table took the snapshot back, if it did.
    #[must_use]
    pub fn aborted(&self) -> Option<OverlayLimitReached> {
        self.shared.aborted.get().copied()
    }

    fn locate(&self, group: usize) -> (usize, usize) {
        assert!(group < self.groups, "key group {group} of {}", self.groups);
        (
            group >> self.shared.shift,
            group & (self.shared.layout.slots - 1),
        )
    }

    /// Lets go of a key group that is not needed any more; again is no error.
    ///
    /// The table takes the memory back as soon as all groups of a region are released: with up to 128 key groups each is a
    /// region of its own.
    ///
    /// # Panics
    /// If the table has no such group.
    pub fn release_group(&self, group: usize) {
        let (region, slot) = self.locate(group);
        let mut held = self.shared.lock(region);
        if held.released.is_empty() {
            held.released = vec![false; self.shared.layout.slots];
        }
        if std::mem::replace(&mut held.released[slot], true) {
            return;
        }
        held.remaining -= 1;
        if held.remaining == 0 {
            drop(held);
            self.shared.let_go(region);
        }
    }

    /// Opens a key group for reading. Its layers stay in memory while the returned value lives, so it must not be kept
    /// while waiting for anything.
    ///
    /// # Errors
    /// `LimitExceeded` if the live table took the snapshot back, `InvalidArgument` if the group is released.
    ///
    /// # Panics
    /// If the table has no such group.
    pub fn group(&self, group: usize) -> Result<FrozenGroup<'_, K, N, V>> {
        let (region, slot) = self.locate(group);
        let held = self.shared.lock(region);
        if let Some(reason) = self.shared.aborted.get() {
            return Err(reason.to_error(self.id));
        }
        if held.released.get(slot).copied().unwrap_or(false) {
            return Err(Error::invalid("the key group is released")
                .with("group", group)
                .with("snapshot", self.id));
        }
        let layers = held.layers.clone();
        Ok(FrozenGroup {
            table: self,
            slot,
            group,
            layers,
            _raise: RaiseOnDrop(self.shared.signal.clone()),
        })
    }
}

impl<K: Eq + Clone, N: Eq + Clone, V> FrozenTable<K, N, V> {
    /// Calls a function for each entry of a key group, each key once, and returns how many there were.
    ///
    /// # Errors
    /// As [`FrozenTable::group`], also half-way; and what the function returns.
    pub fn for_each(
        &self,
        group: usize,
        mut visit: impl FnMut(&K, &N, &V) -> Result<()>,
    ) -> Result<u64> {
        self.for_each_window(group, |window| {
            window
                .iter()
                .flatten()
                .try_for_each(|entry| visit(&entry.key, &entry.namespace, &entry.value))
        })
    }

    /// Calls a function for each entry of a key group, as [`FrozenTable::for_each`] does, and `touch` for entries some way
    /// ahead: entries lie in an order that is not the one of what they own on the heap, and reading a byte of several
    /// before the first is visited has their cache misses overlap.
    ///
    /// # Errors
    /// As [`FrozenTable::for_each`].
    pub fn for_each_touched(
        &self,
        group: usize,
        touch: impl Fn(&K, &N, &V) -> u8,
        mut visit: impl FnMut(&K, &N, &V) -> Result<()>,
    ) -> Result<u64> {
        self.for_each_window(group, |window| {
            let touched = window.iter().flatten().fold(0, |bytes, entry| {
                bytes ^ touch(&entry.key, &entry.namespace, &entry.value)
            });
            black_box(touched);
            window
                .iter()
                .flatten()
                .try_for_each(|entry| visit(&entry.key, &entry.namespace, &entry.value))
        })
    }

    /// Calls a function for the entries of a key group, some at a time, and returns how many there were.
    ///
    /// # Errors
    /// As [`FrozenTable::for_each`].
    pub(crate) fn for_each_window(
        &self,
        group: usize,
        mut visit: impl FnMut(&[Option<&Entry<K, N, V>>]) -> Result<()>,
    ) -> Result<u64> {
        let frozen = self.group(group)?;
        let (mut window, mut filled, mut count) = ([None; WINDOW], 0, 0);
        frozen.entries().try_for_each(|entry| {
            window[filled] = Some(entry);
            filled += 1;
            if filled < WINDOW {
                return Ok(());
            }
            filled = 0;
            count += WINDOW;
            visit(&window)?;
            match count.is_multiple_of(ABORT_CHECK) {
                true => frozen.check(),
                false => Ok(()),
            }
        })?;
        visit(&window[..filled])?;
        Ok((count + filled) as u64)
    }

    /// Says whether the keys changed since a snapshot are known: it must be no older than the last one confirmed.
    #[must_use]
    pub fn knows_changes_since(&self, id: u64) -> bool {
        self.changes
            .as_ref()
            .is_some_and(|changes| changes.reach_back_to(id))
    }

    /// Returns the number of keys changed after a snapshot; one that changed several times may count as often.
    #[must_use]
    pub fn changed_since(&self, id: u64) -> u64 {
        self.changes
            .as_ref()
            .map_or(0, |changes| changes.count_since(id))
    }

    /// Calls a function for each key of a group changed after a snapshot, once, with its value or `None` if it was removed; for
    /// none if all of the group [counts as changed](super::LiveTable::with_whole_groups). `touch` is called for entries some way
    /// ahead, as by [`FrozenTable::for_each_touched`].
    ///
    /// # Errors
    /// `InvalidArgument` if changes since then are not known; else as [`FrozenTable::for_each`].
    pub fn for_each_change_since(
        &self,
        id: u64,
        group: usize,
        touch: impl Fn(&K, &N, &V) -> u8,
        mut visit: impl FnMut(&K, &N, Option<&V>) -> Result<()>,
    ) -> Result<ChangedKeys> {
        let Some(changes) = self
            .changes
            .as_ref()
            .filter(|changes| changes.reach_back_to(id))
        else {
            return Err(Error::invalid("changes since that snapshot are not known")
                .with("since", id)
                .with("snapshot", self.id));
        };
        let (region, slot) = self.locate(group);
        let frozen = self.group(group)?;
        let stack = frozen.stack();
        let mut count = 0_u64;
        // The values of several keys are looked for before the first of them is used: the processor waits for all at a time.
        let mut window: Vec<(&K, &N, Option<&V>)> = Vec::with_capacity(WINDOW);
        let mut flush = |window: &mut Vec<(&K, &N, Option<&V>)>| {
            let touched = window.iter().fold(0, |bytes, (key, namespace, value)| {
                bytes ^ value.map_or(0, |value| touch(key, namespace, value))
            });
            black_box(touched);
            count += window.len() as u64;
            let mut found = window.drain(..);
            found.try_for_each(|(key, namespace, value)| visit(key, namespace, value))?;
            match (count as usize).is_multiple_of(ABORT_CHECK) {
                true => frozen.check(),
                false => Ok(()),
            }
        };
        // Where marks tell what changed, nothing has to be looked for.
        let marked = changes
            .noted_once(id, region, slot)
            .and_then(|(interval, keys)| stack.marked(slot, interval, keys));
        if let Some(mut entries) = marked {
            entries.try_for_each(|entry| {
                window.push((&entry.key, &entry.namespace, Some(&entry.value)));
                match window.len() {
                    WINDOW => flush(&mut window),
                    _ => Ok(()),
                }
            })?;
            flush(&mut window)?;
            debug_assert_eq!(
                Some(count),
                changes
                    .noted_once(id, region, slot)
                    .map(|(_, keys)| keys as u64)
            );
            return Ok(ChangedKeys::Some(count));
        }
        let are_known = changes.for_each_since(id, region, slot, |key, namespace| {
            let hash = self.shared.layout.hasher.hash(key, namespace);
            let at = Address {
                slot,
                hash,
                key,
                namespace,
            };
            window.push((key, namespace, stack.get(at)));
            match window.len() {
                WINDOW => flush(&mut window),
                _ => Ok(()),
            }
        })?;
        flush(&mut window)?;
        Ok(match are_known {
            true => ChangedKeys::Some(count),
            false => ChangedKeys::All,
        })
    }
}

impl<K, N, V> Drop for FrozenTable<K, N, V> {
    fn drop(&mut self) {
        (0..self.shared.regions.len()).for_each(|region| self.shared.let_go(region));
    }
}

impl<K, N, V> fmt::Debug for FrozenTable<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenTable")
            .field("id", &self.id)
            .field("len", &self.len)
            .field("groups", &self.groups)
            .field("aborted", &self.aborted())
            .finish_non_exhaustive()
    }
}

/// One key group of a snapshot, open for reading.
pub struct FrozenGroup<'a, K, N, V> {
    table: &'a FrozenTable<K, N, V>,
    slot: usize,
    group: usize,
    layers: Layers<K, N, V>,
    _raise: RaiseOnDrop,
}

impl<K: Eq + Clone, N: Eq + Clone, V> FrozenGroup<'_, K, N, V> {
    fn stack(&self) -> Stack<'_, K, N, V> {
        Stack::new(&self.table.shared.layout, self.layers.iter().rev())
    }

    /// Returns an iterator over the entries, each key once.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &N, &V)> {
        self.entries().map(|e| (&e.key, &e.namespace, &e.value))
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<K, N, V>> {
        self.stack().entries(self.slot)
    }

    /// Fails if the live table took the snapshot back since the group was opened.
    ///
    /// # Errors
    /// `LimitExceeded` with the reason.
    pub fn check(&self) -> Result<()> {
        match self.table.shared.aborted.get() {
            None => Ok(()),
            Some(reason) => Err(reason.to_error(self.table.id)),
        }
    }
}

impl<K, N, V> fmt::Debug for FrozenGroup<'_, K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenGroup")
            .field("group", &self.group)
            .field("layers", &self.layers.len())
            .finish_non_exhaustive()
    }
}
