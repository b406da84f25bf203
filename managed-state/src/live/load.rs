use super::layout::Entry;
use super::table::LiveTable;

/// Filling a table out of a snapshot.
impl<K, N, V> LiveTable<K, N, V>
where
    K: Eq + Clone,
    N: Eq + Clone,
    V: Clone,
{
    /// Makes room for the entries that a key group without any is about to get; otherwise it grows by and by.
    pub fn reserve(&mut self, group: usize, entries: usize) {
        let (region, slot) = self.locate(group);
        let region = &mut self.regions[region];
        if region.below.is_none() {
            region.top.reserve(slot, entries, &self.layout);
        }
    }

    /// Adds an entry whose key has none, without copying the key.
    pub fn add(&mut self, group: usize, hash: u64, key: K, namespace: N, value: V) {
        debug_assert!(
            !self.contains(group, hash, &key, &namespace),
            "the key has an entry"
        );
        let (region, slot) = self.locate(group);
        if self.capture.is_some() || self.regions[region].below.is_some() {
            self.insert(group, hash, &key, &namespace, value);
            return;
        }
        let entry = Entry {
            key,
            namespace,
            value,
        };
        let top = &mut self.regions[region].top;
        top.insert_absent(slot, hash, entry, &self.layout);
        self.len += 1;
    }
}
