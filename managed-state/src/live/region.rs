use std::mem;
use std::sync::Arc;

use state_api::StoredKey;

use super::layers::{Layers, MAX_FROZEN};
use super::layout::{Address, Layout};
use super::part::{DrainCursor, Part};
use super::seen::{Interval, Note};
use super::tables::Place;

/// What moving one entry costs in a merge budget, where looking at one bucket costs one.
const MOVE_COST: usize = 8;

/// A run of key groups that are frozen, merged and released together.
///
/// It is a stack: `top` is written to; under it may lie one layer that `top` is merged into (`Below::lower`), and under that
/// the frozen ones. With a `lower` no new key enters `top`, so that a merge comes to its end.
///
/// What an access looks at fills the first cache line.
#[repr(C, align(64))]
pub(crate) struct Region<K, N, V> {
    pub(crate) below: Option<Box<Below<K, N, V>>>,
    pub(crate) top: Part<K, N, V>,
    /// An empty `below` of an earlier freeze, kept so that freezing allocates little.
    spare: Option<Box<Below<K, N, V>>>,
}

pub(crate) struct Below<K, N, V> {
    /// A layer taken back from snapshots that are gone.
    lower: Option<Part<K, N, V>>,
    /// Layers of open snapshots.
    frozen: Layers<K, N, V>,
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
    /// Whether the key is noted as changed, where the table remembers changes.
    pub(crate) note: Note,
}

impl<T> Written<T> {
    fn in_place(result: T, note: Note) -> Self {
        Self {
            result,
            copied: false,
            note,
        }
    }
}

/// A removed value, if it could be moved out or a copy was wanted.
pub(crate) struct Removed<V>(pub(crate) Option<V>);

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
            spare: None,
        }
    }
}

impl<K, N, V> Default for Below<K, N, V> {
    fn default() -> Self {
        Self {
            lower: None,
            frozen: Layers::default(),
            cursor: DrainCursor::default(),
        }
    }
}

impl<K, N, V> Region<K, N, V> {
    /// Returns the layers, newest first.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = &Part<K, N, V>> {
        let below = self.below.as_deref();
        let lower = below.and_then(|b| b.lower.as_ref());
        let frozen = below.into_iter().flat_map(|b| b.frozen.iter().rev());
        std::iter::once(&self.top).chain(lower).chain(frozen)
    }

    /// Returns the number of entries of the only key group; one that is in several layers counts as often, and so do removed ones.
    pub(crate) fn entries_at_most(&self) -> usize {
        self.parts().map(|part| part.len(0)).sum()
    }

    /// Returns the number of entries of which more than half have to change for all of the only key group to count as changed.
    pub(crate) fn entries_to_note(&self) -> usize {
        let counted = self.parts().map(Part::entries_to_note);
        counted.fold(0, usize::saturating_add)
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

    /// Says whether a freeze would stack too many layers.
    pub(crate) fn is_too_deep(&self) -> bool {
        let Some(below) = &self.below else {
            return false;
        };
        let new = usize::from(below.lower.is_some()) + usize::from(!self.top.is_blank());
        below.frozen.len() + new > MAX_FROZEN
    }

    /// Makes every layer a frozen one and returns them.
    pub(crate) fn freeze(&mut self) -> Layers<K, N, V> {
        // Notes begin anew, whatever becomes of the layer.
        self.top.is_whole = false;
        if self.top.is_blank() && self.below.is_none() {
            return Layers::default();
        }
        let spare = &mut self.spare;
        let below = self
            .below
            .get_or_insert_with(|| spare.take().unwrap_or_default());
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
    pub(crate) fn merge(
        &mut self,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
        budget: &mut usize,
    ) -> Merge {
        loop {
            let Some(below) = self.below.as_deref_mut() else {
                return Merge::Bare;
            };
            if let Some(lower) = &mut below.lower {
                let frozen = &below.frozen;
                let sink = |drained| lower.absorb(drained, layout, interval, |at| frozen.show(at));
                if self
                    .top
                    .drain(&mut below.cursor, budget, MOVE_COST, layout, interval, sink)
                {
                    return Merge::Unfinished;
                }
                self.top = below.lower.take().unwrap_or_default();
            }
            if let Some(layer) = below.frozen.pop_unshared() {
                below.lower = Some(layer);
                below.cursor = DrainCursor::default();
            } else if below.frozen.is_empty() {
                self.spare = self.below.take();
                return Merge::Bare;
            } else {
                return Merge::Held;
            }
        }
    }

    fn locate<Q>(&self, at: Address<'_, Q, N>) -> Found
    where
        K: StoredKey<Q>,
    {
        if let Some(place) = self.top.find(at) {
            return Found::Top(place);
        }
        let Some(below) = self.below.as_deref().filter(|_| !self.top.is_dead(at)) else {
            return Found::Nowhere;
        };
        if let Some(lower) = &below.lower {
            if let Some(place) = lower.find(at) {
                return Found::Lower(place);
            }
            if lower.is_dead(at) {
                return Found::Nowhere;
            }
        }
        match below.frozen.find(at) {
            Some((layer, place)) => Found::Frozen(layer, place),
            None => Found::Nowhere,
        }
    }

    /// Reads a key that the top layer does not hold.
    pub(crate) fn get_below<Q>(&self, at: Address<'_, Q, N>) -> Option<&V>
    where
        K: StoredKey<Q>,
    {
        let below = self.below.as_deref().filter(|_| !self.top.is_dead(at))?;
        if let Some(lower) = &below.lower {
            if let Some(value) = lower.get(at) {
                return Some(value);
            }
            if lower.is_dead(at) {
                return None;
            }
        }
        let (layer, place) = below.frozen.find(at)?;
        Some(&below.frozen.get(layer)?.at(at.slot, place)?.value)
    }

    /// The layer that new entries go to.
    fn target(&mut self) -> &mut Part<K, N, V> {
        match self.below.as_deref_mut() {
            Some(Below {
                lower: Some(lower), ..
            }) => lower,
            _ => &mut self.top,
        }
    }

    /// Marks the entry of a key that is about to change and says whether the key is noted already.
    fn note<Q>(
        &mut self,
        found: &Found,
        at: Address<'_, Q, N>,
        interval: Option<Interval>,
    ) -> Note {
        let Some(interval) = interval else {
            return Note::Known;
        };
        match (found, self.below.as_deref_mut()) {
            (Found::Top(place), _) => self.top.mark(at.slot, *place, interval),
            (
                Found::Lower(place),
                Some(Below {
                    lower: Some(lower), ..
                }),
            ) => lower.mark(at.slot, *place, interval),
            _ => Note::New,
        }
    }

    /// Returns the value of a key to be changed in place; it is copied if a snapshot holds it.
    pub(crate) fn get_mut<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
    ) -> Written<Option<&mut V>>
    where
        K: StoredKey<Q>,
    {
        let found = self.locate(at);
        self.reach(found, at, layout, interval)
    }

    /// Returns the value of a key, made first if there is none, and whether it was made.
    pub(crate) fn get_or_insert_with<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
        make: impl FnOnce() -> V,
    ) -> (Written<Option<&mut V>>, bool)
    where
        K: StoredKey<Q>,
    {
        match self.locate(at) {
            Found::Nowhere => {
                let value = self.insert_new(at, make(), layout, interval);
                (Written::in_place(Some(value), Note::New), true)
            }
            found => (self.reach(found, at, layout, interval), false),
        }
    }

    fn reach<Q>(
        &mut self,
        found: Found,
        at: Address<'_, Q, N>,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
    ) -> Written<Option<&mut V>>
    where
        K: StoredKey<Q>,
    {
        let note = self.note(&found, at, interval);
        let (part, place, copied) = match (found, self.below.as_deref_mut()) {
            (Found::Top(place), _) => (&mut self.top, Some(place), false),
            (
                Found::Lower(place),
                Some(Below {
                    lower: Some(lower), ..
                }),
            ) => (lower, Some(place), false),
            (Found::Frozen(layer, place), Some(Below { lower, frozen, .. })) => {
                let target = lower.as_mut().unwrap_or(&mut self.top);
                let entry = frozen.get(layer).and_then(|part| part.at(at.slot, place));
                let copy = entry
                    .map(|entry| target.insert_absent(at.slot, at.hash, entry.clone(), layout));
                if let (Some(interval), Some(place)) = (interval, copy) {
                    target.mark(at.slot, place, interval);
                }
                (target, copy, true)
            }
            _ => return Written::in_place(None, Note::Known),
        };
        let entry = place.and_then(|place| part.at_mut(at.slot, place));
        Written {
            result: entry.map(|entry| &mut entry.value),
            copied,
            note,
        }
    }

    /// Adds a key that is not there.
    pub(crate) fn insert_new<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        value: V,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
    ) -> &mut V
    where
        K: StoredKey<Q>,
    {
        let hidden = self.top.exhume(at, layout);
        let target = self.target();
        if hidden {
            // The tombstone may not have reached the layer under it yet.
            target.remove(at, layout);
        }
        target.exhume(at, layout);
        let place = self.add(at, value, layout, interval);
        let entry = self.target().at_mut(at.slot, place);
        &mut entry.expect("the entry was added just now").value
    }

    /// Adds an entry to the layer that new ones go to, which does not have its key.
    fn add<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        value: V,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
    ) -> Place
    where
        K: StoredKey<Q>,
    {
        let target = self.target();
        let place = target.insert_absent(at.slot, at.hash, at.entry(value), layout);
        if let Some(interval) = interval {
            target.mark(at.slot, place, interval);
        }
        place
    }

    /// Sets the value of a key without copying the old one; says whether there was one.
    pub(crate) fn insert<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        value: V,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
    ) -> Written<bool>
    where
        K: StoredKey<Q>,
    {
        let found = self.locate(at);
        let note = self.note(&found, at, interval);
        match found {
            Found::Top(place) => self.top.set(at.slot, place, value, layout),
            Found::Lower(place) => self.target().set(at.slot, place, value, layout),
            Found::Frozen(..) => {
                self.add(at, value, layout, interval);
            }
            Found::Nowhere => {
                self.insert_new(at, value, layout, interval);
                return Written::in_place(false, note);
            }
        }
        Written::in_place(true, note)
    }

    /// Removes a key and returns its value, cloned if a snapshot holds it and it is `wanted`.
    pub(crate) fn remove<Q>(
        &mut self,
        at: Address<'_, Q, N>,
        layout: &Layout<K, N, V>,
        interval: Option<Interval>,
        wanted: bool,
    ) -> Written<Option<Removed<V>>>
    where
        K: StoredKey<Q>,
    {
        let found = self.locate(at);
        let note = self.note(&found, at, interval);
        let (value, copied) = match found {
            Found::Nowhere => return Written::in_place(None, Note::Known),
            Found::Top(_) => {
                let value = self.top.remove(at, layout);
                // What the top layer hid must not come to light.
                if let Some(lower) = self.below.as_deref_mut().and_then(|b| b.lower.as_mut()) {
                    lower.remove(at, layout);
                }
                (value, false)
            }
            Found::Lower(_) => (self.target().remove(at, layout), false),
            Found::Frozen(layer, place) => {
                let below = self.below.as_deref().filter(|_| wanted);
                let entry = below.and_then(|b| b.frozen.get(layer)?.at(at.slot, place));
                (entry.map(|entry| entry.value.clone()), wanted)
            }
        };
        if self
            .below
            .as_deref()
            .is_some_and(|below| below.frozen.show(at))
        {
            self.target().bury(at, layout);
        }
        Written {
            result: Some(Removed(value)),
            copied,
            note,
        }
    }

    /// Corrects the heap bytes of the layer that holds a key.
    pub(crate) fn adjust_heap<Q>(&mut self, at: Address<'_, Q, N>, delta: isize)
    where
        K: StoredKey<Q>,
    {
        match self.locate(at) {
            Found::Top(_) => self.top.adjust_heap(delta),
            Found::Lower(_) => self.target().adjust_heap(delta),
            Found::Frozen(..) | Found::Nowhere => {}
        }
    }
}
