use std::mem;
use std::sync::Arc;

use super::layout::{Entry, Layout};
use super::part::{DrainCursor, Drained, Part};
use super::tables::Place;

/// Frozen layers that a region may have under its writable ones.
pub(crate) const MAX_FROZEN: usize = 3;

/// What moving one entry costs in a merge budget, where looking at one bucket costs one.
const MOVE_COST: usize = 8;

/// A run of key groups that are frozen, merged and released together.
///
/// It is a stack: `top` is written to; under it may lie one layer that `top` is merged into (`Below::lower`), and under that
/// the frozen ones. With a `lower` no new key enters `top`, so that a merge comes to its end.
pub(crate) struct Region<K, N, V> {
    pub(crate) top: Part<K, N, V>,
    pub(crate) below: Option<Box<Below<K, N, V>>>,
}

pub(crate) struct Below<K, N, V> {
    /// A layer taken back from snapshots that are gone.
    lower: Option<Part<K, N, V>>,
    /// Layers of open snapshots, oldest first.
    frozen: Vec<Arc<Part<K, N, V>>>,
    cursor: DrainCursor,
}

/// Where the newest version of a key is.
enum Found {
    Top(Place),
    Lower(Place),
    Frozen(usize, Place),
    Nowhere,
}

/// What a write to a layered region did.
pub(crate) struct Written<T> {
    pub(crate) result: T,
    /// The value was cloned out of a frozen layer.
    pub(crate) copied: bool,
}

/// How a merging step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The region is one bare layer.
    Bare,
    /// Snapshots hold all layers under the top one.
    Held,
    /// The budget ended first.
    Unfinished,
}

impl<K, N, V> Default for Region<K, N, V> {
    fn default() -> Self {
        Self {
            top: Part::default(),
            below: None,
        }
    }
}

impl<K, N, V> Region<K, N, V> {
    /// Returns the layers, newest first.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = &Part<K, N, V>> {
        let below = self.below.as_deref();
        let lower = below.and_then(|b| b.lower.as_ref());
        let frozen = below
            .map_or(&[][..], |b| &b.frozen)
            .iter()
            .rev()
            .map(Arc::as_ref);
        std::iter::once(&self.top).chain(lower).chain(frozen)
    }

    /// Returns the number of layers, the writable one included.
    pub(crate) fn depth(&self) -> usize {
        self.parts().count()
    }

    /// Returns the bytes of the lowest layer, and of those over it.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let mut parts = self.parts().rev();
        let base = parts.next().map_or(0, Part::bytes);
        (base, parts.map(Part::bytes).sum())
    }

    /// Returns how many layers a freeze would add.
    fn unfrozen(&self) -> usize {
        let lower = self.below.as_ref().is_some_and(|b| b.lower.is_some());
        usize::from(lower) + usize::from(!self.top.is_blank())
    }

    /// Says whether a freeze would stack too many layers.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.below.as_ref().map_or(0, |b| b.frozen.len()) + self.unfrozen() > MAX_FROZEN
    }

    /// Makes every layer a frozen one and returns them, oldest first.
    pub(crate) fn freeze(&mut self) -> Vec<Arc<Part<K, N, V>>> {
        if self.top.is_blank() && self.below.is_none() {
            return Vec::new();
        }
        let below = self.below.get_or_insert_with(|| {
            Box::new(Below {
                lower: None,
                frozen: Vec::with_capacity(MAX_FROZEN),
                cursor: DrainCursor::default(),
            })
        });
        below.cursor = DrainCursor::default();
        if let Some(lower) = below.lower.take() {
            below.frozen.push(Arc::new(lower));
        }
        if !self.top.is_blank() {
            below.frozen.push(Arc::new(mem::take(&mut self.top)));
        }
        below.frozen.clone()
    }
}

impl<K: Eq + Clone, N: Eq + Clone, V: Clone> Region<K, N, V> {
    /// Takes back layers that no snapshot holds and merges towards one bare layer, until the budget is used up.
    pub(crate) fn merge(&mut self, layout: &Layout<K, N, V>, budget: &mut usize) -> Merge {
        loop {
            let Some(below) = self.below.as_deref_mut() else {
                return Merge::Bare;
            };
            if let Some(lower) = &mut below.lower {
                let frozen = &below.frozen;
                let more =
                    self.top
                        .drain(
                            &mut below.cursor,
                            budget,
                            MOVE_COST,
                            layout,
                            |drained| match drained {
                                Drained::Live(slot, entry) => {
                                    if lower.has_dead() {
                                        lower.exhume(
                                            slot,
                                            layout.hash(&entry),
                                            &entry.key,
                                            &entry.namespace,
                                            layout,
                                        );
                                    }
                                    lower.adopt(slot, entry, layout);
                                }
                                Drained::Dead(slot, key, namespace) => {
                                    let hash = layout.hasher.hash(&key, &namespace);
                                    lower.remove(slot, hash, &key, &namespace, layout);
                                    if is_visible(frozen, slot, hash, &key, &namespace) {
                                        lower.bury(slot, hash, &key, &namespace, layout);
                                    }
                                }
                            },
                        );
                if more {
                    return Merge::Unfinished;
                }
                if let Some(lower) = below.lower.take() {
                    self.top = lower;
                }
            }
            match below.frozen.pop().map(Arc::try_unwrap) {
                None => {
                    self.below = None;
                    return Merge::Bare;
                }
                Some(Err(held)) => {
                    below.frozen.push(held);
                    return Merge::Held;
                }
                Some(Ok(layer)) => {
                    below.lower = Some(layer);
                    below.cursor = DrainCursor::default();
                }
            }
        }
    }

    fn locate(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> Found {
        if let Some(place) = self.top.find(slot, hash, key, namespace) {
            return Found::Top(place);
        }
        let Some(below) = self.below.as_deref() else {
            return Found::Nowhere;
        };
        if self.top.is_dead(slot, hash, key, namespace) {
            return Found::Nowhere;
        }
        if let Some(lower) = &below.lower {
            if let Some(place) = lower.find(slot, hash, key, namespace) {
                return Found::Lower(place);
            }
            if lower.is_dead(slot, hash, key, namespace) {
                return Found::Nowhere;
            }
        }
        for (layer, part) in below.frozen.iter().enumerate().rev() {
            if let Some(place) = part.find(slot, hash, key, namespace) {
                return Found::Frozen(layer, place);
            }
            if part.is_dead(slot, hash, key, namespace) {
                return Found::Nowhere;
            }
        }
        Found::Nowhere
    }

    /// Reads a key that the top layer does not hold.
    #[cold]
    #[inline(never)]
    pub(crate) fn get_below(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> Option<&V> {
        match self.locate(slot, hash, key, namespace) {
            Found::Top(place) => Some(&self.top.at(slot, place).value),
            Found::Lower(place) => {
                Some(&self.below.as_ref()?.lower.as_ref()?.at(slot, place).value)
            }
            Found::Frozen(layer, place) => {
                Some(&self.below.as_ref()?.frozen[layer].at(slot, place).value)
            }
            Found::Nowhere => None,
        }
    }

    /// Says whether a key has a value.
    pub(crate) fn contains(&self, slot: usize, hash: u64, key: &K, namespace: &N) -> bool {
        !matches!(self.locate(slot, hash, key, namespace), Found::Nowhere)
    }

    /// The layer that new entries go to, with the frozen ones under it.
    fn target(&mut self) -> (&mut Part<K, N, V>, &[Arc<Part<K, N, V>>]) {
        match self.below.as_deref_mut() {
            None => (&mut self.top, &[]),
            Some(Below {
                lower: Some(lower),
                frozen,
                ..
            }) => (lower, frozen),
            Some(Below {
                lower: None,
                frozen,
                ..
            }) => (&mut self.top, frozen),
        }
    }

    /// Returns the value of a key to be changed in place; it is copied if a snapshot holds it.
    pub(crate) fn get_mut(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
    ) -> Written<Option<&mut V>> {
        match self.locate(slot, hash, key, namespace) {
            Found::Top(place) => Written {
                result: Some(&mut self.top.at_mut(slot, place).value),
                copied: false,
            },
            Found::Lower(place) => {
                let lower = self.below.as_deref_mut().and_then(|b| b.lower.as_mut());
                Written {
                    result: lower.map(|l| &mut l.at_mut(slot, place).value),
                    copied: false,
                }
            }
            Found::Frozen(layer, place) => {
                let (target, frozen) = self.target();
                let Entry {
                    key,
                    namespace,
                    value,
                } = frozen[layer].at(slot, place);
                let copy = || value.clone();
                let (value, _) =
                    target.get_or_insert_with(slot, hash, key, namespace, layout, copy);
                Written {
                    result: Some(value),
                    copied: true,
                }
            }
            Found::Nowhere => Written {
                result: None,
                copied: false,
            },
        }
    }

    /// Adds a key that [`Region::get_mut`] did not find.
    pub(crate) fn insert_new(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        value: V,
        layout: &Layout<K, N, V>,
    ) -> &mut V {
        let hidden = self.top.exhume(slot, hash, key, namespace, layout);
        let (target, _) = self.target();
        if hidden {
            // The tombstone may not have reached the layer under it yet.
            target.remove(slot, hash, key, namespace, layout);
        }
        target.exhume(slot, hash, key, namespace, layout);
        target
            .get_or_insert_with(slot, hash, key, namespace, layout, || value)
            .0
    }

    /// Sets the value of a key without copying the old one; says whether there was one.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        value: V,
        layout: &Layout<K, N, V>,
    ) -> bool {
        match self.locate(slot, hash, key, namespace) {
            Found::Top(_) => {
                self.top.replace(slot, hash, key, namespace, value, layout);
                true
            }
            Found::Lower(_) | Found::Frozen(..) => {
                self.target()
                    .0
                    .replace(slot, hash, key, namespace, value, layout);
                true
            }
            Found::Nowhere => {
                self.insert_new(slot, hash, key, namespace, value, layout);
                false
            }
        }
    }

    /// Removes a key and returns its value, cloned if a snapshot holds it and `wanted`.
    pub(crate) fn remove(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        layout: &Layout<K, N, V>,
        wanted: bool,
    ) -> Written<Option<Removed<V>>> {
        let (value, copied) = match self.locate(slot, hash, key, namespace) {
            Found::Nowhere => {
                return Written {
                    result: None,
                    copied: false,
                };
            }
            Found::Top(_) => {
                let value = self.top.remove(slot, hash, key, namespace, layout);
                // What the top layer hid must not come to light.
                if let Some(lower) = self.below.as_deref_mut().and_then(|b| b.lower.as_mut()) {
                    lower.remove(slot, hash, key, namespace, layout);
                }
                (value, false)
            }
            Found::Lower(_) => (
                self.target().0.remove(slot, hash, key, namespace, layout),
                false,
            ),
            Found::Frozen(layer, place) if wanted => (
                Some(self.target().1[layer].at(slot, place).value.clone()),
                true,
            ),
            Found::Frozen(..) => (None, false),
        };
        let (target, frozen) = self.target();
        if is_visible(frozen, slot, hash, key, namespace) {
            target.bury(slot, hash, key, namespace, layout);
        }
        Written {
            result: Some(Removed(value)),
            copied,
        }
    }

    /// Corrects the heap bytes of the layer that holds a key.
    pub(crate) fn adjust_heap(
        &mut self,
        slot: usize,
        hash: u64,
        key: &K,
        namespace: &N,
        delta: isize,
    ) {
        match self.locate(slot, hash, key, namespace) {
            Found::Top(_) => self.top.adjust_heap(delta),
            Found::Lower(_) => self.target().0.adjust_heap(delta),
            Found::Frozen(..) | Found::Nowhere => {}
        }
    }
}

/// A removed value, if it was to be had without a copy or a copy was wanted.
pub(crate) struct Removed<V>(pub(crate) Option<V>);

/// Says whether a stack of layers, oldest first, shows a key.
fn is_visible<K: Eq + Clone, N: Eq + Clone, V>(
    layers: &[Arc<Part<K, N, V>>],
    slot: usize,
    hash: u64,
    key: &K,
    namespace: &N,
) -> bool {
    for layer in layers.iter().rev() {
        if layer.find(slot, hash, key, namespace).is_some() {
            return true;
        }
        if layer.is_dead(slot, hash, key, namespace) {
            return false;
        }
    }
    false
}
