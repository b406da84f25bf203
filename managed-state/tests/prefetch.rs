//! Asking ahead for keys: a live table looks at their entries; a byte store is told the stored keys of the states that have
//! one entry for each key.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use backend_testkit::ReferenceStore;
use managed_state::keyed::{KeyedContext, KeyedStates, ListState, MapState, ValueState};
use managed_state::live::{EntryHasher, LiveTable};
use state_api::access::{ListAccess, ValueAccess};
use state_api::{
    BatchEntry, ByteStore, ByteView, Column, KeyGroup, KeyGroupRange, KeyedBackend, ManualClock,
    MaxParallelism, Page, Result, WriteBatch,
};

/// Columns with stored keys.
type Keys = Arc<Mutex<Vec<(Column, Vec<Vec<u8>>)>>>;

/// Writes down what it is told.
struct Listening {
    inner: ReferenceStore,
    told: Keys,
    written: Keys,
}

impl ByteStore for Listening {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.inner.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.inner.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.get(column, key, value)
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        for entry in &batch.entries {
            if let BatchEntry::Put(column, key, _) = entry {
                let written = (*column, vec![key.clone()]);
                self.written.lock().unwrap().push(written);
            }
        }
        self.inner.write(batch)
    }

    fn prefetches(&self) -> bool {
        true
    }

    fn prefetch(&mut self, column: Column, keys: &[&[u8]]) {
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        self.told.lock().unwrap().push((column, keys));
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(&self.inner, column, start, end, limit, page)
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.inner.view()
    }
}

#[test]
fn stored_keys_of_the_own_groups_are_announced_to_states_with_one_entry_a_key() {
    let (told, written) = (Keys::default(), Keys::default());
    let store = Listening {
        inner: ReferenceStore::new(),
        told: Arc::clone(&told),
        written: Arc::clone(&written),
    };
    let max = MaxParallelism::new(128).unwrap();
    let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(63));
    let cx = KeyedContext::new(max, range, Arc::new(ManualClock::at(0)), 0);
    let mut states = KeyedStates::<String>::new(KeyedBackend::Bytes(Box::new(store)), cx).unwrap();
    let value: ValueState<u64> = states.value("value").unwrap();
    let list: ListState<u64> = states.list("list").unwrap();
    let _: MapState<u64, u64> = states.map("map").unwrap();
    let _: ValueState<u64, u32> = states.value("windowed").unwrap();

    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let hashes: Vec<_> = keys.iter().map(|key| states.hash(key)).collect();
    states.prefetch(keys.iter().zip(hashes.iter().copied()));

    let told = std::mem::take(&mut *told.lock().unwrap());
    let columns: Vec<u32> = told.iter().map(|(column, _)| column.0).collect();
    assert_eq!(columns, [0, 1], "those of `value` and `list`");

    let own: Vec<&String> = keys
        .iter()
        .filter(|key| range.contains(states.hash(key).group()))
        .collect();
    assert!(!own.is_empty() && own.len() < keys.len());
    for key in &own {
        states.at(key).value(value).set(1).unwrap();
    }
    for key in &own {
        states.at(key).list(list).push(1).unwrap();
    }
    let mut expected: Vec<(Column, Vec<Vec<u8>>)> = Vec::new();
    for (column, keys) in written.lock().unwrap().iter() {
        match expected.last_mut().filter(|(last, _)| last == column) {
            Some((_, all)) => all.extend(keys.iter().cloned()),
            None => expected.push((*column, keys.clone())),
        }
    }
    assert_eq!(told, expected);
}

#[test]
fn a_table_looks_at_the_newest_of_its_layers() {
    let hasher = EntryHasher::new(5, |key: &u32, (), seed| {
        (u64::from(*key) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    // One region for each group, and several groups in a region.
    for groups in [4_usize, 400] {
        let mut table = LiveTable::<u32, (), u32>::new(0, groups, hasher);
        let place = |key: u32| (key as usize % groups, hasher.hash(&key, &()));
        let insert = |table: &mut LiveTable<u32, (), u32>, key: u32, value: u32| {
            let (group, hash) = place(key);
            table.insert(group, hash, &key, &(), value);
        };
        for key in 0..100 {
            insert(&mut table, key, key);
        }
        let frozen = table.freeze(1).unwrap();
        insert(&mut table, 7, 700);
        insert(&mut table, 200, 20_000);
        let (group, hash) = place(8);
        table.remove(group, hash, &8, &());

        let keys = [3, 7, 8, 150, 200];
        let wanted: Vec<_> = keys
            .iter()
            .map(|key| (place(*key).0, place(*key).1, key))
            .collect();
        let seen = RefCell::new(Vec::new());
        let bytes = table.prefetch(&wanted, &(), |value| {
            seen.borrow_mut().push(*value);
            *value as u8
        });
        assert_eq!(seen.into_inner(), [3, 700, 20_000]);
        assert_eq!(bytes, 3 ^ (700_u32 as u8) ^ (20_000_u32 as u8));
        drop(frozen);
    }
}
