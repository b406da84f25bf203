use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use imbl::GenericHashMap;
use imbl::shared_ptr::DefaultSharedPtr;
use state_api::StateKey;

/// Entries up to which a map is copied whole and searched from one end to the other.
const SMALL: usize = 16;

/// A map without order whose copies share structure once it is large, so that changing one of them copies a small part.
#[derive(Clone)]
pub struct LiveMap<MK, MV>(Repr<MK, MV>);

type Large<MK, MV> =
    GenericHashMap<Hashed<MK>, MV, BuildHasherDefault<StableHasher>, DefaultSharedPtr>;

#[derive(Clone)]
enum Repr<MK, MV> {
    Small(Vec<(MK, MV)>),
    Large(Box<Large<MK, MV>>),
}

/// A key that hashes by its stable hash.
#[derive(Clone, PartialEq, Eq)]
struct Hashed<MK>(MK);

impl<MK: StateKey> Hash for Hashed<MK> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.stable_hash());
    }
}

/// A key that is looked up.
struct Wanted<'a, MK>(&'a MK);

impl<MK: StateKey> Hash for Wanted<'_, MK> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.stable_hash());
    }
}

impl<MK: Eq> equivalent::Equivalent<Hashed<MK>> for Wanted<'_, MK> {
    fn equivalent(&self, key: &Hashed<MK>) -> bool {
        *self.0 == key.0
    }
}

/// Passes a stable hash on.
#[derive(Clone, Copy, Default)]
struct StableHasher(u64);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<MK, MV> Default for LiveMap<MK, MV> {
    fn default() -> Self {
        Self(Repr::Small(Vec::new()))
    }
}

impl<MK, MV> LiveMap<MK, MV> {
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
                size_of::<Large<MK, MV>>() + large.len() * (size_of::<(MK, MV)>() + 8) * 3 / 2
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns an iterator over the entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&MK, &MV)> {
        let (small, large) = match &self.0 {
            Repr::Small(small) => (Some(small.iter()), None),
            Repr::Large(large) => (None, Some(large.iter())),
        };
        let small = small.into_iter().flatten().map(|(key, value)| (key, value));
        small.chain(
            large
                .into_iter()
                .flatten()
                .map(|(key, value)| (&key.0, value)),
        )
    }
}

impl<MK: StateKey, MV: Clone> LiveMap<MK, MV> {
    /// Reads the value of a key.
    #[must_use]
    pub fn get(&self, key: &MK) -> Option<&MV> {
        match &self.0 {
            Repr::Small(small) => small.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            Repr::Large(large) => large.get(&Wanted(key)),
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
            Repr::Small(small) => small
                .iter_mut()
                .find(|(k, _)| k == key)
                .map(|(_, value)| value),
            // A lookup to be written to would unshare the path even of a key that is not there.
            Repr::Large(large) if large.contains_key(&Wanted(key)) => large.get_mut(&Wanted(key)),
            Repr::Large(_) => None,
        }
    }

    /// Sets the value of a key and returns the old one.
    pub fn insert(&mut self, key: MK, value: MV) -> Option<MV> {
        match &mut self.0 {
            Repr::Small(small) => {
                if let Some((_, old)) = small.iter_mut().find(|(k, _)| *k == key) {
                    return Some(std::mem::replace(old, value));
                }
                small.push((key, value));
                if small.len() > SMALL {
                    let large: Large<MK, MV> = std::mem::take(small)
                        .into_iter()
                        .map(|(key, value)| (Hashed(key), value))
                        .collect();
                    self.0 = Repr::Large(Box::new(large));
                }
                None
            }
            Repr::Large(large) => large.insert(Hashed(key), value),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &MK) -> Option<MV> {
        let removed = match &mut self.0 {
            Repr::Small(small) => {
                let position = small.iter().position(|(k, _)| k == key)?;
                Some(small.swap_remove(position).1)
            }
            Repr::Large(large) if large.contains_key(&Wanted(key)) => large.remove(&Wanted(key)),
            Repr::Large(_) => None,
        };
        self.settle();
        removed
    }

    /// Keeps the entries for which the function returns true; it may change values.
    pub fn retain(&mut self, mut keep: impl FnMut(&MK, &mut MV) -> bool) {
        match &mut self.0 {
            Repr::Small(small) => small.retain_mut(|(key, value)| keep(key, value)),
            Repr::Large(large) => {
                let mut removed = Vec::new();
                for (key, value) in large.iter_mut() {
                    if !keep(&key.0, value) {
                        removed.push(key.0.clone());
                    }
                }
                for key in &removed {
                    large.remove(&Wanted(key));
                }
            }
        }
        self.settle();
    }

    /// Makes the map small again after removals, with a distance that keeps it from changing back and forth.
    fn settle(&mut self) {
        if let Repr::Large(large) = &mut self.0
            && large.len() <= SMALL / 2
        {
            let small = std::mem::take(large.as_mut())
                .into_iter()
                .map(|(key, value)| (key.0, value));
            self.0 = Repr::Small(small.collect());
        }
    }
}

impl<MK: StateKey, MV: Clone> FromIterator<(MK, MV)> for LiveMap<MK, MV> {
    fn from_iter<I: IntoIterator<Item = (MK, MV)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<MK: StateKey, MV: Clone + PartialEq> PartialEq for LiveMap<MK, MV> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<MK: fmt::Debug, MV: fmt::Debug> fmt::Debug for LiveMap<MK, MV> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
