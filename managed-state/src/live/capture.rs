use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use state_api::{Result, StoredKey};

use super::layout::{Address, EntryHasher, Layout};
use super::part::Part;
use super::seen::{Interval, Note};

/// Unconfirmed snapshots whose changes are kept apart; changes before the oldest of them are forgotten, and a snapshot that
/// would need them is a full one.
const MAX_SEALED: usize = 64;

/// Keys that a log has before it is looked through.
const SMALL_LOG: usize = 64;

#[cfg(test)]
thread_local! {
    /// How often a log was looked through.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The keys of a key group that changed between two snapshots.
#[derive(Clone)]
struct Log<K, N> {
    keys: Vec<(K, N)>,
    /// A key may be there twice.
    repeats: bool,
    /// A key was removed, and may come again.
    removed: bool,
    /// So many keys changed that the group counts as changed as a whole: there are no keys in the log any more.
    is_whole: bool,
    /// The number of keys at which repetitions are taken out, and at which they may be too many.
    next_look: usize,
}

impl<K, N> Default for Log<K, N> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            repeats: false,
            removed: false,
            is_whole: false,
            next_look: SMALL_LOG,
        }
    }
}

impl<K: Eq + Clone, N: Eq + Clone> Log<K, N> {
    fn whole() -> Self {
        Self {
            is_whole: true,
            ..Self::default()
        }
    }

    /// Says whether nothing changed.
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.is_whole
    }

    /// Adds a key of a group that has so many entries; says whether it did.
    #[inline]
    fn push(&mut self, key: K, namespace: N, entries: usize, layout: &Layout<K, N, ()>) -> bool {
        if self.keys.len() >= self.next_look && self.look(entries, layout) {
            return false;
        }
        self.keys.push((key, namespace));
        true
    }

    /// Adds what is in an older log.
    fn append(&mut self, mut older: Self) {
        if self.is_whole || older.is_whole {
            *self = Self::whole();
            return;
        }
        // Marks of older changes are gone: whatever changes from now on is added again.
        self.repeats = true;
        self.removed |= older.removed;
        self.keys.append(&mut older.keys);
    }

    /// Takes out repetitions, so that a key that comes and goes all the time takes no more room than others. If what is left is
    /// more than half of the group, all of it counts as changed, and this returns true.
    #[cold]
    fn look(&mut self, entries: usize, layout: &Layout<K, N, ()>) -> bool {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let mut least = SMALL_LOG;
        if self.repeats {
            let mut known = Known::new(*layout);
            self.keys
                .retain(|(key, namespace)| known.add(key, namespace));
            // The next time costs as much again: there has to be something to take out.
            least += self.keys.len() / 4 * 5;
        }
        let (found, too_many) = (self.keys.len(), entries / 2);
        if found > too_many {
            *self = Self::whole();
            return true;
        }
        self.next_look = (found * 2).min(too_many + 1).max(least);
        false
    }
}

/// Keys that were met already.
struct Known<K, N> {
    keys: Part<K, N, ()>,
    layout: Layout<K, N, ()>,
}

impl<K: Eq + Clone, N: Eq + Clone> Known<K, N> {
    fn new(layout: Layout<K, N, ()>) -> Self {
        Self {
            keys: Part::default(),
            layout: Layout { slots: 1, ..layout },
        }
    }

    /// Says whether a key is met for the first time.
    fn add(&mut self, key: &K, namespace: &N) -> bool {
        let at = Address {
            slot: 0,
            hash: self.layout.hasher.hash(key, namespace),
            key,
            namespace,
        };
        self.keys.get_or_insert_with(at, &self.layout, || ()).1
    }
}

/// Keys changed between two snapshots, by region, each with a log for every key group, or none before its first change.
type ChangeSet<K, N> = Box<[Vec<Log<K, N>>]>;

/// The changes between two snapshots.
struct Sealed<K, N> {
    /// The snapshot after them.
    id: u64,
    /// What they were marked with.
    interval: Interval,
    /// The number of keys that were noted, some of which may count twice.
    keys: usize,
    /// The regions that count as changed as a whole, and how many entries they have at most.
    whole: Arc<[(usize, usize)]>,
    set: Arc<ChangeSet<K, N>>,
}

impl<K, N> Clone for Sealed<K, N> {
    fn clone(&self) -> Self {
        Self {
            set: Arc::clone(&self.set),
            whole: Arc::clone(&self.whole),
            ..*self
        }
    }
}

/// Remembers which keys changed since the last snapshot that was confirmed.
pub(crate) struct Capture<K, N> {
    current: ChangeSet<K, N>,
    sealed: Vec<Sealed<K, N>>,
    /// The oldest snapshot since which every change is known; with none, nothing is remembered yet.
    floor: Option<u64>,
    interval: Interval,
    /// The snapshot sealed last.
    latest: u64,
    /// Whether a group of which half the keys changed counts as changed as a whole.
    whole_groups: bool,
    layout: Layout<K, N, ()>,
}

/// Where a table stands between snapshots: what a cell that remembers its own changes goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The snapshot taken last: a change made now is one after it.
    pub(crate) now: u64,
    /// The oldest snapshot since which every change is known: those before it are of no use.
    pub(crate) floor: u64,
}

/// Returns the logs of a region's key groups, made when the first of them is needed.
#[inline]
fn logs_of<K, N>(logs: &mut Vec<Log<K, N>>, slots: usize) -> &mut [Log<K, N>] {
    if logs.is_empty() {
        logs.resize_with(slots, Log::default);
    }
    logs
}

fn blank<K, N>(regions: usize) -> ChangeSet<K, N> {
    (0..regions).map(|_| Vec::new()).collect()
}

impl<K: Eq + Clone, N: Eq + Clone> Capture<K, N> {
    pub(crate) fn new(regions: usize, slots: usize, hasher: EntryHasher<K, N>) -> Self {
        let layout = Layout {
            hasher,
            heap: None,
            slots,
        };
        Self {
            current: blank(regions),
            sealed: Vec::new(),
            floor: None,
            interval: Interval(0),
            latest: 0,
            whole_groups: false,
            layout,
        }
    }

    /// Takes a group of which half the keys changed to be changed as a whole.
    pub(crate) fn with_whole_groups(self) -> Self {
        Self {
            whole_groups: true,
            ..self
        }
    }

    /// Says whether key groups may count as changed as a whole.
    #[inline]
    pub(crate) fn counts_whole_groups(&self) -> bool {
        self.whole_groups
    }

    /// Says whether all of a key group counts as changed: nothing more of it needs to be noted.
    #[inline]
    pub(crate) fn is_whole(&self, region: usize, slot: usize) -> bool {
        let log = self.current[region].get(slot);
        log.is_some_and(|log| log.is_whole)
    }

    /// Says whether changes are remembered: not before there is anything that they could be changes of.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.floor.is_some()
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        Some(Epoch {
            now: self.latest,
            floor: self.floor?,
        })
    }

    /// Returns the interval that changes are marked with, if they are remembered.
    #[inline]
    pub(crate) fn interval(&self) -> Option<Interval> {
        self.is_on().then_some(self.interval)
    }

    /// Remembers a change of a key, or that it was removed. `entries` is the number of those of its group; `usize::MAX` if the group
    /// must not count as changed as a whole.
    #[inline]
    pub(crate) fn record<Q>(
        &mut self,
        region: usize,
        at: Address<'_, Q, N>,
        note: Note,
        is_removal: bool,
        entries: usize,
    ) where
        K: StoredKey<Q>,
    {
        if !self.is_on() || (note == Note::Known && !is_removal) || self.is_whole(region, at.slot) {
            return;
        }
        let log = &mut logs_of(&mut self.current[region], self.layout.slots)[at.slot];
        log.repeats |= log.removed || note == Note::Unsure;
        log.removed |= is_removal;
        if note != Note::Known {
            log.push(K::of(at.key), at.namespace.clone(), entries, &self.layout);
        }
    }

    /// Remembers the change of an entry that was found in a region of one group.
    ///
    /// Whether its key is noted already is known late, after the entry was fetched from memory, and can't be foretold. A key that
    /// is cheap to copy is added in any case, and taken back if it was: a branch that the processor guesses wrong keeps it from
    /// looking for the entries of the next records meanwhile.
    #[inline]
    pub(crate) fn record_found<Q>(
        &mut self,
        region: usize,
        at: Address<'_, Q, N>,
        note: Note,
        entries: usize,
    ) where
        K: StoredKey<Q>,
    {
        if mem::needs_drop::<(K, N)>() {
            if note != Note::Known {
                self.record(region, at, note, false, entries);
            }
            return;
        }
        let log = &mut logs_of(&mut self.current[region], self.layout.slots)[0];
        log.repeats |= (note == Note::Unsure) | (log.removed & (note == Note::New));
        let pushed = log.push(K::of(at.key), at.namespace.clone(), entries, &self.layout);
        let taken_back = usize::from(pushed & (note == Note::Known));
        log.keys.truncate(log.keys.len() - taken_back);
    }

    /// Closes the current set under the id of a snapshot and returns what that snapshot can tell. `entries` returns how many
    /// entries there are at most in a region.
    pub(crate) fn seal(&mut self, id: u64, entries: impl Fn(usize) -> usize) -> Changes<K, N> {
        if self.is_on() {
            let regions = self.current.len();
            let set = mem::replace(&mut self.current, blank(regions));
            let logs = set.iter().flatten();
            let regions = set.iter().enumerate();
            let whole = regions.filter(|(_, logs)| logs.iter().any(|log| log.is_whole));
            self.sealed.push(Sealed {
                id,
                interval: self.interval,
                keys: logs.map(|log| log.keys.len()).sum(),
                whole: whole.map(|(region, _)| (region, entries(region))).collect(),
                set: Arc::new(set),
            });
        } else {
            self.floor = Some(id);
        }
        self.latest = id;
        self.interval.0 += 1;
        if self.sealed.len() > MAX_SEALED {
            self.floor = Some(self.sealed.remove(0).id);
        }
        Changes {
            sets: self.sealed.clone(),
            floor: self.floor,
            layout: self.layout,
        }
    }

    /// Forgets what a complete snapshot holds.
    pub(crate) fn confirm(&mut self, id: u64) {
        if self.floor.is_some_and(|floor| floor < id) {
            self.floor = Some(id);
            self.sealed.retain(|sealed| sealed.id > id);
        }
    }

    /// Counts the changes before a snapshot that nothing will be based on as changes of now, so that keys which change all
    /// the time are not kept once for every snapshot that fails.
    ///
    /// What later snapshots say of changes since then is more than there were, and right.
    pub(crate) fn fold(&mut self, id: u64) {
        let Some(index) = self.sealed.iter().position(|sealed| sealed.id == id) else {
            return;
        };
        let folded = self.sealed.remove(index);
        let set = Arc::try_unwrap(folded.set).unwrap_or_else(|shared| (*shared).clone());
        for (into, logs) in self.current.iter_mut().zip(set) {
            for (slot, log) in logs.into_iter().enumerate() {
                if !log.is_empty() {
                    logs_of(into, self.layout.slots)[slot].append(log);
                }
            }
        }
    }

    /// Forgets all changes: the table is now as in a snapshot, and a change made now is one after the snapshot `latest`.
    pub(crate) fn start_at(&mut self, id: u64, latest: u64) {
        self.current = blank(self.current.len());
        self.sealed.clear();
        self.floor = Some(id);
        self.interval.0 += 1;
        self.latest = latest;
    }

    /// Returns the bytes of all changes that are remembered.
    pub(crate) fn bytes(&self) -> usize {
        let sealed = self.sealed.iter().flat_map(|sealed| sealed.set.iter());
        self.current.iter().chain(sealed).map(Self::bytes_of).sum()
    }

    /// Returns the bytes of the changes of a region since the snapshot taken last.
    pub(crate) fn bytes_since_snapshot(&self, region: usize) -> usize {
        self.current.get(region).map_or(0, Self::bytes_of)
    }

    fn bytes_of(logs: &Vec<Log<K, N>>) -> usize {
        let keys = logs.iter().map(|log| log.keys.capacity()).sum::<usize>();
        logs.capacity() * size_of::<Log<K, N>>() + keys * size_of::<(K, N)>()
    }
}

/// The keys changed up to a snapshot, as far back as the last one confirmed when it was taken.
pub(crate) struct Changes<K, N> {
    sets: Vec<Sealed<K, N>>,
    floor: Option<u64>,
    layout: Layout<K, N, ()>,
}

impl<K: Eq + Clone, N: Eq + Clone> Changes<K, N> {
    pub(crate) fn reach_back_to(&self, id: u64) -> bool {
        self.floor.is_some_and(|floor| floor <= id)
    }

    /// Returns how many keys changed since a snapshot, those that were noted several times maybe as often.
    pub(crate) fn count_since(&self, id: u64) -> u64 {
        let noted: u64 = self.since(id).map(|sealed| sealed.keys as u64).sum();
        // What counts as changed as a whole does so once, with the entries that there were last.
        let whole: BTreeMap<usize, usize> = (self.since(id))
            .flat_map(|sealed| sealed.whole.iter().copied())
            .collect();
        noted + whole.values().map(|entries| *entries as u64).sum::<u64>()
    }

    fn since(&self, id: u64) -> impl Iterator<Item = &Sealed<K, N>> {
        self.sets.iter().filter(move |sealed| sealed.id > id)
    }

    /// Returns the interval before this snapshot, and how many keys of a group changed in it, if none changed in another one since
    /// snapshot `id`, each was noted once, and none was removed.
    pub(crate) fn noted_once(
        &self,
        id: u64,
        region: usize,
        slot: usize,
    ) -> Option<(Interval, usize)> {
        let (last, earlier) = self.sets.split_last().filter(|(last, _)| last.id > id)?;
        let log = last.set[region].get(slot)?;
        let mut earlier = earlier.iter().filter(|sealed| sealed.id > id);
        let is_quiet =
            |sealed: &Sealed<K, N>| sealed.set[region].get(slot).is_none_or(Log::is_empty);
        let is_plain = !(log.is_empty() || log.repeats || log.removed || log.is_whole);
        (is_plain && earlier.all(is_quiet)).then_some((last.interval, log.keys.len()))
    }

    /// Calls a function for each key of a group that changed since a snapshot, once; returns false, and calls it for none, if all
    /// of the group counts as changed.
    pub(crate) fn for_each_since<'a>(
        &'a self,
        id: u64,
        region: usize,
        slot: usize,
        mut visit: impl FnMut(&'a K, &'a N) -> Result<()>,
    ) -> Result<bool> {
        let logs = (self.since(id)).filter_map(|sealed| sealed.set[region].get(slot));
        let logs: Vec<_> = logs.filter(|log| !log.is_empty()).collect();
        if logs.iter().any(|log| log.is_whole) {
            return Ok(false);
        }
        if logs.len() == 1 && !logs[0].repeats {
            let mut keys = logs[0].keys.iter();
            keys.try_for_each(|(key, namespace)| visit(key, namespace))?;
            return Ok(true);
        }
        let mut known = Known::new(self.layout);
        let keys = logs.into_iter().flat_map(|log| &log.keys);
        for (key, namespace) in keys {
            if known.add(key, namespace) {
                visit(key, namespace)?;
            }
        }
        Ok(true)
    }
}
