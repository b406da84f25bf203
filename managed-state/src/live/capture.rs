use std::sync::Arc;

use state_api::{Result, StoredKey};

use super::layout::{Address, EntryHasher, Layout};
use super::part::Part;

/// Keys changed between two snapshots, by region and key group.
type ChangeSet<K, N> = Box<[Part<K, N, ()>]>;

/// Unconfirmed snapshots whose changes are kept apart; changes before the oldest of them are forgotten, and a snapshot that
/// would need them is a full one.
const MAX_SEALED: usize = 64;

/// Remembers which keys changed since the last snapshot that was confirmed.
pub(crate) struct Capture<K, N> {
    current: ChangeSet<K, N>,
    sealed: Vec<(u64, Arc<ChangeSet<K, N>>)>,
    /// The oldest snapshot since which every change is known; with none, nothing is remembered yet.
    floor: Option<u64>,
    /// The snapshot sealed last.
    latest: u64,
    /// The snapshot confirmed last.
    confirmed: u64,
    layout: Layout<K, N, ()>,
}

/// Where a table stands between snapshots: what a cell that remembers its own changes goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The snapshot taken last: a change made now is one after it.
    pub(crate) now: u64,
    /// The snapshot confirmed last: changes before it are of no use.
    pub(crate) confirmed: u64,
}

fn blank<K, N>(regions: usize) -> ChangeSet<K, N> {
    (0..regions).map(|_| Part::default()).collect()
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
            latest: 0,
            confirmed: 0,
            layout,
        }
    }

    /// Says whether changes are remembered: not before there is anything that they could be changes of.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.floor.is_some()
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.is_on().then_some(Epoch {
            now: self.latest,
            confirmed: self.confirmed,
        })
    }

    pub(crate) fn record<Q>(&mut self, region: usize, at: Address<'_, Q, N>)
    where
        K: StoredKey<Q>,
    {
        if self.is_on() {
            self.current[region].get_or_insert_with(at, &self.layout, || ());
        }
    }

    /// Closes the current set under the id of a snapshot and returns what that snapshot can tell.
    pub(crate) fn seal(&mut self, id: u64) -> Changes<K, N> {
        if self.is_on() {
            let regions = self.current.len();
            let set = std::mem::replace(&mut self.current, blank(regions));
            self.sealed.push((id, Arc::new(set)));
        } else {
            self.floor = Some(id);
        }
        self.latest = id;
        if self.sealed.len() > MAX_SEALED {
            let (oldest, _) = self.sealed.remove(0);
            self.floor = Some(oldest);
        }
        Changes {
            sets: self.sealed.clone(),
            floor: self.floor,
            hasher: self.layout.hasher,
            slots: self.layout.slots,
        }
    }

    /// Forgets what a complete snapshot holds.
    pub(crate) fn confirm(&mut self, id: u64) {
        if self.floor.is_some_and(|floor| floor < id) {
            self.floor = Some(id);
            self.sealed.retain(|(sealed, _)| *sealed > id);
        }
        self.confirmed = self.confirmed.max(id);
    }

    /// Forgets all changes: the table is now as in a snapshot.
    pub(crate) fn start_at(&mut self, id: u64) {
        self.current = blank(self.current.len());
        self.sealed.clear();
        self.floor = Some(id);
        self.latest = id;
        self.confirmed = id;
    }

    pub(crate) fn bytes(&self) -> usize {
        let sealed = self.sealed.iter().flat_map(|(_, set)| set.iter());
        self.current.iter().chain(sealed).map(Part::bytes).sum()
    }
}

/// The keys changed up to a snapshot, as far back as the last one confirmed when it was taken.
pub(crate) struct Changes<K, N> {
    sets: Vec<(u64, Arc<ChangeSet<K, N>>)>,
    floor: Option<u64>,
    hasher: EntryHasher<K, N>,
    slots: usize,
}

impl<K: Eq + Clone, N: Eq + Clone> Changes<K, N> {
    pub(crate) fn reach_back_to(&self, id: u64) -> bool {
        self.floor.is_some_and(|floor| floor <= id)
    }

    /// Returns how many keys changed since a snapshot, those that did several times once for each snapshot.
    pub(crate) fn count_since(&self, id: u64) -> u64 {
        let sets = self.sets.iter().filter(|(sealed, _)| *sealed > id);
        let count =
            |part: &Part<K, N, ()>| (0..self.slots).map(|slot| part.len(slot)).sum::<usize>();
        sets.flat_map(|(_, set)| set.iter())
            .map(count)
            .sum::<usize>() as u64
    }

    pub(crate) fn for_each_since(
        &self,
        id: u64,
        region: usize,
        slot: usize,
        mut visit: impl FnMut(&K, &N) -> Result<()>,
    ) -> Result<()> {
        let sets: Vec<_> = self
            .sets
            .iter()
            .filter(|(sealed, _)| *sealed > id)
            .map(|(_, set)| &set[region])
            .collect();
        for (i, set) in sets.iter().enumerate() {
            for change in set.entries(slot) {
                let newer = &sets[i + 1..];
                let again = !newer.is_empty() && {
                    let hash = self.hasher.hash(&change.key, &change.namespace);
                    newer
                        .iter()
                        .any(|set| set.find(change.address(slot, hash)).is_some())
                };
                if !again {
                    visit(&change.key, &change.namespace)?;
                }
            }
        }
        Ok(())
    }
}
