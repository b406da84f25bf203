use std::fmt;

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

/// Returns the heap bytes that an entry owns beside its place in the table.
pub type HeapSize<K, N, V> = fn(&K, &N, &V) -> usize;

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

/// What an entry is found by within a region.
pub(crate) struct Address<'a, K, N> {
    /// The key group, counted within the region.
    pub(crate) slot: usize,
    pub(crate) hash: u64,
    pub(crate) key: &'a K,
    pub(crate) namespace: &'a N,
}

impl<K, N> Clone for Address<'_, K, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N> Copy for Address<'_, K, N> {}

impl<K: Eq + Clone, N: Eq + Clone> Address<'_, K, N> {
    #[inline]
    pub(crate) fn is<V>(&self, entry: &Entry<K, N, V>) -> bool {
        self.is_key(&entry.key, &entry.namespace)
    }

    #[inline]
    pub(crate) fn is_key(&self, key: &K, namespace: &N) -> bool {
        self.key == key && self.namespace == namespace
    }

    #[inline]
    pub(crate) fn entry<V>(&self, value: V) -> Entry<K, N, V> {
        Entry {
            key: self.key.clone(),
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
            Some(heap) => heap(&entry.key, &entry.namespace, &entry.value),
        }
    }
}

impl<K, N, V> Clone for Layout<K, N, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N, V> Copy for Layout<K, N, V> {}
