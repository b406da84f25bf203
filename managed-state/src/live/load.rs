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
        self.expect_change(group);
        let (region, slot) = self.locate(group);
        let region = &mut self.regions[region];
        if region.below.is_none() {
            region.top.reserve(slot, entries, &self.layout);
        }
    }

    /// Adds an entry unless its key has one, without copying the key; says whether it did.
    pub fn add(&mut self, group: usize, hash: u64, key: K, namespace: N, value: V) -> bool {
        self.expect_change(group);
        let (region, slot) = self.locate(group);
        if self.is_capturing() || self.regions[region].below.is_some() {
            return !self.contains(group, hash, &key, &namespace)
                && !self.insert(group, hash, &key, &namespace, value);
        }
        let entry = Entry {
            key,
            namespace,
            value,
        };
        let added = self.regions[region]
            .top
            .add(slot, hash, entry, &self.layout);
        self.len += usize::from(added);
        added
    }
}

#[cfg(test)]
mod tests {
    use crate::live::test_support::hasher;
    use crate::live::{EntryHasher, LiveTable};

    const HASHER: fn() -> EntryHasher<u32, u16> = hasher;

    fn filled(entries: u32, reserve: bool) -> LiveTable<u32, u16, u64> {
        let hasher = HASHER();
        let mut table = LiveTable::new(0, 1, hasher);
        if reserve {
            table.reserve(0, entries as usize);
        }
        for key in 0..entries {
            assert!(table.add(0, hasher.hash(&key, &1), key, 1, u64::from(key)));
        }
        table
    }

    #[test]
    fn a_table_with_room_made_holds_the_same_in_the_same_memory() {
        // The last two take several tables each, one of them split at some of its levels only.
        for entries in [0, 1, 3, 4, 1000, 26_624, 26_625, 80_000, 140_000] {
            let (grown, reserved) = (filled(entries, false), filled(entries, true));
            assert_eq!(reserved.len(), entries as usize);
            let part = &reserved.regions[0].top;
            assert_eq!(part.counted().0, part.recount(), "{entries} entries");
            assert!(
                reserved.bytes() <= grown.bytes() * 5 / 4,
                "{entries} entries take {} bytes, {} if the table grows",
                reserved.bytes(),
                grown.bytes()
            );
            for key in 0..entries {
                let hash = HASHER().hash(&key, &1);
                assert_eq!(reserved.get(0, hash, &key, &1), Some(&u64::from(key)));
            }
        }
    }

    #[test]
    fn making_room_is_enough_for_what_was_announced() {
        for entries in [1, 1000, 20_000] {
            let mut table = LiveTable::<u32, u16, u64>::new(0, 1, HASHER());
            table.reserve(0, entries);
            let before = table.bytes();
            for key in 0..entries as u32 {
                assert!(table.add(0, HASHER().hash(&key, &1), key, 1, 0));
            }
            assert_eq!(table.bytes(), before, "{entries} entries");
        }
    }

    #[test]
    fn an_entry_that_is_there_is_not_added_whether_or_not_a_snapshot_holds_it() {
        let mut table = filled(10, true);
        let hash = HASHER().hash(&7, &1);
        assert!(!table.add(0, hash, 7, 1, 70));
        let frozen = table.freeze(1).unwrap();
        assert!(!table.add(0, hash, 7, 1, 70));
        assert!(table.add(0, HASHER().hash(&10, &1), 10, 1, 100));
        assert_eq!(table.get(0, hash, &7, &1), Some(&7));
        assert_eq!((table.len(), frozen.len()), (11, 10));
    }
}
