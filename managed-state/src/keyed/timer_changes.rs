use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::live_timers::Timer;

/// Unconfirmed snapshots whose changes are kept apart, as of tables.
const MAX_SEALED: usize = 64;

/// Which timers came or went since the last snapshot that was confirmed.
///
/// Between two snapshots it is the difference of the two sets: a timer that comes and goes again, or goes and comes back, leaves
/// nothing behind.
#[derive(Default)]
pub(crate) struct TimerChanges {
    current: HashSet<Timer>,
    /// Those of snapshots that nothing will be based on.
    folded: HashSet<Timer>,
    known: KnownTimers,
}

/// The changes up to a snapshot.
#[derive(Clone, Default)]
pub(crate) struct KnownTimers {
    sealed: Vec<(u64, Arc<HashSet<Timer>>)>,
    /// The oldest snapshot since which every change is known; with none, nothing is remembered yet.
    floor: Option<u64>,
}

impl TimerChanges {
    /// Learns that a timer came or went.
    pub(crate) fn toggle(&mut self, timer: &Timer) {
        if self.known.floor.is_some() && !self.current.remove(timer) {
            self.current.insert(timer.clone());
        }
    }

    /// Closes the current set under the id of a snapshot and returns what that snapshot can tell.
    pub(crate) fn seal(&mut self, id: u64) -> KnownTimers {
        let known = &mut self.known;
        if known.floor.is_some() {
            let mut set = std::mem::take(&mut self.current);
            set.extend(self.folded.drain());
            known.sealed.push((id, Arc::new(set)));
        } else {
            known.floor = Some(id);
        }
        if known.sealed.len() > MAX_SEALED {
            known.floor = Some(known.sealed.remove(0).0);
        }
        known.clone()
    }

    pub(crate) fn confirm(&mut self, id: u64) {
        if self.known.floor.is_some_and(|floor| floor < id) {
            self.known.floor = Some(id);
            self.known.sealed.retain(|(sealed, _)| *sealed > id);
        }
    }

    /// Counts the changes before a snapshot that nothing will be based on as changes of now.
    pub(crate) fn fold(&mut self, id: u64) {
        let sealed = &mut self.known.sealed;
        if let Some(index) = sealed.iter().position(|(sealed, _)| *sealed == id) {
            let (_, set) = sealed.remove(index);
            let set = Arc::try_unwrap(set).unwrap_or_else(|shared| (*shared).clone());
            self.folded.extend(set);
        }
    }

    /// Starts anew: what is there now is what every snapshot so far has.
    pub(crate) fn start(&mut self) {
        *self = Self::default();
        self.known.floor = Some(0);
    }

    /// Returns the number of timers that are remembered.
    pub(crate) fn len(&self) -> usize {
        let sealed = self.known.sealed.iter().map(|(_, set)| set.len());
        self.current.len() + self.folded.len() + sealed.sum::<usize>()
    }
}

impl KnownTimers {
    pub(crate) fn reach_back_to(&self, id: u64) -> bool {
        self.floor.is_some_and(|floor| floor <= id)
    }

    fn since(&self, id: u64) -> impl Iterator<Item = &Arc<HashSet<Timer>>> {
        let sets = self.sealed.iter().filter(move |(sealed, _)| *sealed > id);
        sets.map(|(_, set)| set)
    }

    pub(crate) fn count_since(&self, id: u64) -> u64 {
        self.since(id).map(|set| set.len() as u64).sum()
    }

    /// Returns the timers that may have come or gone since a snapshot, by key group.
    pub(crate) fn by_group_since(&self, id: u64) -> BTreeMap<usize, BTreeSet<Timer>> {
        let mut by_group: BTreeMap<usize, BTreeSet<Timer>> = BTreeMap::new();
        for timer in self.since(id).flat_map(|set| set.iter()) {
            let group = by_group.entry(usize::from(timer.group)).or_default();
            group.insert(timer.clone());
        }
        by_group
    }
}
