use state_api::StoredKey;

use super::layers::MAX_FROZEN;
use super::layout::{Address, Entry, Layout};
use super::part::Part;
use super::seen::Interval;

/// Words of marks that are looked through in the time in which one key is looked up, or less.
const WORDS_PER_LOOKUP: usize = 32;

/// The layers of a region to be read as one, newest first.
pub(crate) struct Stack<'a, K, N, V> {
    parts: [Option<&'a Part<K, N, V>>; MAX_FROZEN + 2],
    len: usize,
    layout: &'a Layout<K, N, V>,
}

impl<K, N, V> Clone for Stack<'_, K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for Stack<'_, K, N, V> {}

impl<'a, K: Eq + Clone, N: Eq + Clone, V> Stack<'a, K, N, V> {
    /// Stacks layers that come newest first.
    pub(crate) fn new(
        layout: &'a Layout<K, N, V>,
        layers: impl Iterator<Item = &'a Part<K, N, V>>,
    ) -> Self {
        let mut stack = Self {
            parts: [None; MAX_FROZEN + 2],
            len: 0,
            layout,
        };
        for layer in layers {
            stack.parts[stack.len] = Some(layer);
            stack.len += 1;
        }
        stack
    }

    pub(crate) fn depth(&self) -> usize {
        self.len
    }

    pub(crate) fn layer(&self, layer: usize) -> Option<&'a Part<K, N, V>> {
        self.parts.get(layer).copied().flatten()
    }

    /// Says whether an entry of a layer is hidden or replaced by a newer one.
    #[inline]
    pub(crate) fn is_shadowed(&self, layer: usize, slot: usize, entry: &Entry<K, N, V>) -> bool {
        if layer == 0 {
            return false;
        }
        let at = entry.address(slot, self.layout.hash(entry));
        self.parts[..layer]
            .iter()
            .flatten()
            .any(|newer| newer.decides(at))
    }

    /// Reads one key.
    pub(crate) fn get<Q>(&self, at: Address<'_, Q, N>) -> Option<&'a V>
    where
        K: StoredKey<Q>,
    {
        for part in self.parts.iter().flatten() {
            if let Some(value) = part.get(at) {
                return Some(value);
            }
            if part.is_dead(at) {
                return None;
            }
        }
        None
    }

    /// Yields the entries of a key group that changed in the interval before the snapshot, in the order of their places, if their
    /// marks tell all of them: `changed` is how many keys were noted, each once, and none was removed.
    ///
    /// Each mark is of a key that was noted, but for those of entries that were merged into another layer meanwhile, which are
    /// marked there again. So where only one layer has marks, as many as were noted are of just those keys; and none is hidden by
    /// a newer layer, whose entry would have come in the same interval and be marked.
    pub(crate) fn marked(
        &self,
        slot: usize,
        interval: Interval,
        changed: usize,
    ) -> Option<impl Iterator<Item = &'a Entry<K, N, V>> + use<'a, K, N, V>> {
        let mut found = None;
        for part in self.parts.iter().flatten() {
            let marked = part.marked(slot, interval)?;
            if marked.words() > changed * WORDS_PER_LOOKUP {
                return None;
            }
            if marked.len() > 0 && found.replace(marked).is_some() {
                return None;
            }
        }
        let found = found.filter(|marked| marked.len() == changed)?;
        Some(found.entries())
    }

    /// Yields the entries of a key group, each key once.
    pub(crate) fn entries(self, slot: usize) -> impl Iterator<Item = &'a Entry<K, N, V>> {
        let layers = self.parts.into_iter().flatten().enumerate();
        layers.flat_map(move |(layer, part)| {
            part.entries(slot)
                .filter(move |entry| !self.is_shadowed(layer, slot, entry))
        })
    }

    /// Yields the keys of a key group whose hashes lie in one of `slices` slices.
    pub(crate) fn for_each_in_slice(
        &self,
        slot: usize,
        slice: usize,
        slices: usize,
        mut visit: impl FnMut(&'a Entry<K, N, V>),
    ) {
        for (layer, part) in self.parts.iter().flatten().enumerate() {
            let Some(tables) = part.live(slot) else {
                continue;
            };
            tables.for_each_in_slice(
                slice,
                slices,
                |e| self.layout.hash(e),
                |entry| {
                    if !self.is_shadowed(layer, slot, entry) {
                        visit(entry);
                    }
                },
            );
        }
    }
}
