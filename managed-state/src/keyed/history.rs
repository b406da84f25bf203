//! What changed in a nested collection between snapshots, kept in the collection's own cell, so that a frozen cell knows its
//! changes as of the cut.

use state_api::StateKey;

use crate::live::{Epoch, LiveList, LiveMap};

/// What happened to a collection between two snapshots.
pub(crate) trait Mark<C>: Clone {
    /// Starts a mark of a collection that nothing happened to yet.
    fn start(of: &C) -> Self;

    /// Starts a mark of a collection that took the place of another one.
    fn whole() -> Self;

    /// Bytes that the mark owns on the heap.
    fn bytes(&self) -> usize;
}

/// The marks of a collection by the snapshot that each follows, oldest first; at most as many as the table keeps snapshots.
#[derive(Clone, Debug)]
#[expect(
    clippy::box_collection,
    reason = "a collection without changes has eight bytes for this, not twenty-four"
)]
pub(crate) struct History<D>(Option<Box<Vec<(u64, D)>>>);

impl<D> Default for History<D> {
    fn default() -> Self {
        Self(None)
    }
}

impl<D> History<D> {
    /// Returns the mark of now, started if it is the first change since the last snapshot.
    #[inline]
    pub(crate) fn mark(&mut self, epoch: Epoch, start: impl FnOnce() -> D) -> &mut D {
        let marks = self.0.get_or_insert_default();
        if marks.last().is_none_or(|(after, _)| *after != epoch.now) {
            marks.retain(|(after, _)| *after >= epoch.floor);
            marks.push((epoch.now, start()));
        }
        let last = marks.len() - 1;
        &mut marks[last].1
    }

    pub(crate) fn since(&self, cut: u64) -> impl Iterator<Item = &D> + Clone {
        let marks = self.0.iter().flat_map(|marks| marks.iter());
        marks
            .filter(move |(after, _)| *after >= cut)
            .map(|(_, mark)| mark)
    }

    pub(crate) fn bytes<C>(&self) -> usize
    where
        D: Mark<C>,
    {
        let Some(marks) = &self.0 else {
            return 0;
        };
        let owned = marks.iter().map(|(_, mark)| mark.bytes());
        size_of::<Vec<(u64, D)>>() + marks.capacity() * size_of::<(u64, D)>() + owned.sum::<usize>()
    }
}

/// What happened to a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListMark {
    /// The number of elements at the snapshot before.
    before: usize,
    /// The number of elements taken off the front since then.
    pub(crate) popped: usize,
    /// Anything else happened than popping and appending.
    pub(crate) is_whole: bool,
}

impl<T> Mark<LiveList<T>> for ListMark {
    fn start(of: &LiveList<T>) -> Self {
        Self {
            before: of.len(),
            popped: 0,
            is_whole: false,
        }
    }

    fn whole() -> Self {
        Self {
            before: 0,
            popped: 0,
            is_whole: true,
        }
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl ListMark {
    /// Returns the length that a list had at a snapshot and how many of its elements were taken off since; `None` if none of
    /// them is left, or if that does not say it all.
    pub(crate) fn edit<'m>(
        mut marks: impl Iterator<Item = &'m Self> + Clone,
    ) -> Option<(usize, usize)> {
        let before = marks.clone().next()?.before;
        let dropped = marks.clone().map(|mark| mark.popped).sum();
        (marks.all(|mark| !mark.is_whole) && dropped < before).then_some((before, dropped))
    }
}

/// What happened to a map.
#[derive(Clone, Debug)]
pub(crate) struct MapMark<MK> {
    /// Keys that were set or removed.
    pub(crate) touched: LiveMap<MK, ()>,
    /// The map took the place of another one, or every value may be another.
    pub(crate) is_whole: bool,
}

impl<MK: StateKey, M> Mark<M> for MapMark<MK> {
    fn start(_of: &M) -> Self {
        Self {
            touched: LiveMap::new(),
            is_whole: false,
        }
    }

    fn whole() -> Self {
        Self {
            touched: LiveMap::new(),
            is_whole: true,
        }
    }

    fn bytes(&self) -> usize {
        self.touched.allocated()
    }
}

impl<MK: StateKey> MapMark<MK> {
    #[inline]
    pub(crate) fn touch(&mut self, key: &MK) {
        if !self.is_whole {
            self.touched.insert(key.clone(), ());
        }
    }

    /// Returns whether the keys that were touched say it all.
    pub(crate) fn is_by_key<'m>(mut marks: impl Iterator<Item = &'m Self> + Clone) -> bool
    where
        MK: 'm,
    {
        marks.clone().next().is_some() && marks.all(|mark| !mark.is_whole)
    }

    /// Calls a function for each key that was touched, once.
    pub(crate) fn for_each_key<'m>(
        marks: impl Iterator<Item = &'m Self> + Clone,
        mut visit: impl FnMut(&MK),
    ) where
        MK: 'm,
    {
        for (i, mark) in marks.clone().enumerate() {
            for (key, ()) in mark.touched.iter() {
                let mut newer = marks.clone().skip(i + 1);
                if !newer.any(|newer| newer.touched.contains_key(key)) {
                    visit(key);
                }
            }
        }
    }
}
