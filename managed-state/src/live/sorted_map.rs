use std::fmt;
use std::ops::Bound;

use imbl::OrdMap;

/// Entries up to which a map is copied whole.
const SMALL: usize = 32;

/// A map in the order of its keys whose copies share structure once it is large, so that changing one of them copies a
/// small part.
#[derive(Clone)]
pub struct LiveSortedMap<MK, MV>(Repr<MK, MV>);

#[derive(Clone)]
enum Repr<MK, MV> {
    Small(Vec<(MK, MV)>),
    Large(Box<OrdMap<MK, MV>>),
}

impl<MK, MV> Default for LiveSortedMap<MK, MV> {
    fn default() -> Self {
        Self(Repr::Small(Vec::new()))
    }
}

impl<MK, MV> LiveSortedMap<MK, MV> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Small(small) => small.len(),
            Repr::Large(large) => large.len(),
        }
    }

    /// Says whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the map takes on the heap, what its entries own not included; an estimate once it is large.
    #[inline]
    #[must_use]
    pub fn allocated(&self) -> usize {
        match &self.0 {
            Repr::Small(small) => small.capacity() * size_of::<(MK, MV)>(),
            // Nodes are about two thirds full.
            Repr::Large(large) => {
                size_of::<OrdMap<MK, MV>>() + large.len() * (size_of::<(MK, MV)>() + 8) * 3 / 2
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<MK: Ord + Clone, MV: Clone> LiveSortedMap<MK, MV> {
    /// Reads the value of a key.
    #[must_use]
    pub fn get(&self, key: &MK) -> Option<&MV> {
        match &self.0 {
            Repr::Small(small) => small
                .binary_search_by(|(k, _)| k.cmp(key))
                .ok()
                .map(|at| &small[at].1),
            Repr::Large(large) => large.get(key),
        }
    }

    /// Says whether a key has a value.
    #[must_use]
    pub fn contains_key(&self, key: &MK) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value of a key to be changed in place.
    pub fn get_mut(&mut self, key: &MK) -> Option<&mut MV> {
        match &mut self.0 {
            Repr::Small(small) => match small.binary_search_by(|(k, _)| k.cmp(key)) {
                Ok(at) => Some(&mut small[at].1),
                Err(_) => None,
            },
            // A lookup to be written to would unshare the path even of a key that is not there.
            Repr::Large(large) if large.contains_key(key) => large.get_mut(key),
            Repr::Large(_) => None,
        }
    }

    /// Sets the value of a key and returns the old one.
    pub fn insert(&mut self, key: MK, value: MV) -> Option<MV> {
        match &mut self.0 {
            Repr::Small(small) => match small.binary_search_by(|(k, _)| k.cmp(&key)) {
                Ok(at) => Some(std::mem::replace(&mut small[at].1, value)),
                Err(at) => {
                    small.insert(at, (key, value));
                    if small.len() > SMALL {
                        self.0 = Repr::Large(Box::new(std::mem::take(small).into_iter().collect()));
                    }
                    None
                }
            },
            Repr::Large(large) => large.insert(key, value),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &MK) -> Option<MV> {
        let removed = match &mut self.0 {
            Repr::Small(small) => {
                let at = small.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
                Some(small.remove(at).1)
            }
            Repr::Large(large) if large.contains_key(key) => large.remove(key),
            Repr::Large(_) => None,
        };
        self.settle();
        removed
    }

    /// Removes the keys from `from` on (from the first if `None`) up to but not including `to` (to the last if `None`).
    pub fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) {
        let keys: Vec<MK> = self.range(from, to).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.remove(key);
        }
    }

    /// Keeps the entries for which the function returns true; it may change values.
    pub fn retain(&mut self, mut keep: impl FnMut(&MK, &mut MV) -> bool) {
        match &mut self.0 {
            Repr::Small(small) => small.retain_mut(|(key, value)| keep(key, value)),
            Repr::Large(large) => {
                let keys: Vec<MK> = large.keys().cloned().collect();
                for key in &keys {
                    if large.get_mut(key).is_some_and(|value| !keep(key, value)) {
                        large.remove(key);
                    }
                }
            }
        }
        self.settle();
    }

    /// Returns an iterator over the entries in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&MK, &MV)> {
        self.range(None, None)
    }

    /// Returns an iterator over the entries from `from` on (from the first if `None`) up to but not including `to` (to the
    /// last if `None`), in the order of the keys. A range that ends before it begins is empty.
    pub fn range(&self, from: Option<&MK>, to: Option<&MK>) -> impl Iterator<Item = (&MK, &MV)> {
        let (small, large) = match &self.0 {
            Repr::Small(small) => {
                let start = from.map_or(0, |from| small.partition_point(|(k, _)| k < from));
                let end = to.map_or(small.len(), |to| small.partition_point(|(k, _)| k < to));
                (Some(small.get(start..end).unwrap_or_default().iter()), None)
            }
            Repr::Large(large) => {
                let empty = matches!((from, to), (Some(from), Some(to)) if from >= to);
                let from = from.map_or(Bound::Unbounded, Bound::Included);
                let to = to.map_or(Bound::Unbounded, Bound::Excluded);
                (None, (!empty).then(|| large.range::<_, MK>((from, to))))
            }
        };
        let small = small.into_iter().flatten().map(|(key, value)| (key, value));
        small.chain(large.into_iter().flatten())
    }

    /// Returns the entry of the least key.
    #[must_use]
    pub fn first(&self) -> Option<(&MK, &MV)> {
        match &self.0 {
            Repr::Small(small) => small.first().map(|(key, value)| (key, value)),
            Repr::Large(large) => large.get_min().map(|(key, value)| (key, value)),
        }
    }

    /// Returns the entry of the greatest key.
    #[must_use]
    pub fn last(&self) -> Option<(&MK, &MV)> {
        match &self.0 {
            Repr::Small(small) => small.last().map(|(key, value)| (key, value)),
            Repr::Large(large) => large.get_max().map(|(key, value)| (key, value)),
        }
    }

    /// Makes the map small again after removals, with a distance that keeps it from changing back and forth.
    fn settle(&mut self) {
        if let Repr::Large(large) = &mut self.0
            && large.len() <= SMALL / 2
        {
            self.0 = Repr::Small(std::mem::take(large.as_mut()).into_iter().collect());
        }
    }
}

impl<MK: Ord + Clone, MV: Clone> FromIterator<(MK, MV)> for LiveSortedMap<MK, MV> {
    fn from_iter<I: IntoIterator<Item = (MK, MV)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<MK: Ord + Clone, MV: Clone + PartialEq> PartialEq for LiveSortedMap<MK, MV> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<MK: Ord + Clone + fmt::Debug, MV: Clone + fmt::Debug> fmt::Debug for LiveSortedMap<MK, MV> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
