use std::fmt;

use state_api::StoredKey;

/// Computes the hash of an entry when a table grows or merges.
///
/// It must give the very hash that callers pass to the operations of the table: mixed with a seed of the process and with
/// the namespace, so that crafted keys cause no long probe sequences.
pub struct EntryHasher<K, N> {
    seed: u64,
    hash: fn(&K, &N, u64) -> u64,
}

impl<K, N> EntryHasher<K, N> {
    /// Creates a hasher from a seed and a function of key, namespace and seed.
    #[must_use]
    pub const fn new(seed: u64, hash: fn(&K, &N, u64) -> u64) -> Self {
        Self { seed, hash }
    }

    /// Returns the hash of a key and a namespace.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &K, namespace: &N) -> u64 {
        (self.hash)(key, namespace, self.seed)
    }
}

impl<K, N> Clone for EntryHasher<K, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N> Copy for EntryHasher<K, N> {}

impl<K, N> fmt::Debug for EntryHasher<K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryHasher")
    }
}

/// Tells the heap bytes that an entry owns beside its place in the table.
pub struct HeapSize<K, N, V> {
    /// What key and namespace own.
    pub of_key: fn(&K, &N) -> usize,
    /// What the value owns.
    pub of_value: fn(&V) -> usize,
}

impl<K, N, V> Clone for HeapSize<K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for HeapSize<K, N, V> {}

impl<K, N, V> fmt::Debug for HeapSize<K, N, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeapSize")
    }
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub(crate) struct Entry<K, N, V> {
    pub(crate) key: K,
    pub(crate) namespace: N,
    pub(crate) value: V,
}

impl<K, N, V> Entry<K, N, V> {
    #[inline]
    pub(crate) fn address(&self, slot: usize, hash: u64) -> Address<'_, K, N> {
        Address {
            slot,
            hash,
            key: &self.key,
            namespace: &self.namespace,
        }
    }
}

/// What an entry is found by within a region; `Q` is the type of key that the caller has, as [`StoredKey`] relates it to the
/// type that the table keeps.
pub(crate) struct Address<'a, Q, N> {
    /// The key group, counted within the region.
    pub(crate) slot: usize,
    pub(crate) hash: u64,
    pub(crate) key: &'a Q,
    pub(crate) namespace: &'a N,
}

impl<Q, N> Clone for Address<'_, Q, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, N> Copy for Address<'_, Q, N> {}

impl<Q, N: Eq + Clone> Address<'_, Q, N> {
    #[inline]
    pub(crate) fn is<K: StoredKey<Q>, V>(&self, entry: &Entry<K, N, V>) -> bool {
        self.is_key(&entry.key, &entry.namespace)
    }

    #[inline]
    pub(crate) fn is_key<K: StoredKey<Q>>(&self, key: &K, namespace: &N) -> bool {
        key.is(self.key) && self.namespace == namespace
    }

    #[inline]
    pub(crate) fn entry<K: StoredKey<Q>, V>(&self, value: V) -> Entry<K, N, V> {
        Entry {
            key: K::of(self.key),
            namespace: self.namespace.clone(),
            value,
        }
    }
}

/// What every layer of a table needs to know about its entries.
pub(crate) struct Layout<K, N, V> {
    pub(crate) hasher: EntryHasher<K, N>,
    pub(crate) heap: Option<HeapSize<K, N, V>>,
    /// Key groups in a region.
    pub(crate) slots: usize,
}

impl<K, N, V> Layout<K, N, V> {
    #[inline]
    pub(crate) fn hash(&self, entry: &Entry<K, N, V>) -> u64 {
        self.hasher.hash(&entry.key, &entry.namespace)
    }

    #[inline]
    pub(crate) fn heap_of(&self, entry: &Entry<K, N, V>) -> usize {
        match self.heap {
            None => 0,
            Some(heap) => {
                (heap.of_key)(&entry.key, &entry.namespace) + (heap.of_value)(&entry.value)
            }
        }
    }
}

impl<K, N, V> Clone for Layout<K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for Layout<K, N, V> {}
