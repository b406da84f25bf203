use std::sync::Arc;

use managed_state::format::CompositeLayout;
use state_api::{ByteStore, CodecKind, Column, Page, StateKey, StateType, TypeMeta, prefix_end};

use super::*;
use crate::RocksDbStore;
use crate::fault_tests::{open, open_with};
use crate::memory::{HashedColumn, SharedMemory};

fn meta<K: StateKey, N: StateKey>(name: &str, kind: StateKind) -> StateMeta {
    StateMeta {
        name: name.into(),
        kind,
        key: TypeMeta::of::<K>(CodecKind::Compact),
        namespace: TypeMeta::of::<N>(CodecKind::Compact),
        map_key: (kind == StateKind::Map).then(|| TypeMeta::of::<u64>(CodecKind::Compact)),
        value: TypeMeta::of::<u64>(CodecKind::Compact),
        ttl_ms: None,
    }
}

/// Returns a stored key, and how much of it comes before the map key.
fn stored<K: StateKey, N: StateKey>(group: usize, key: &K, namespace: &N) -> (usize, Vec<u8>) {
    let mut bytes = vec![7; group];
    CompositeLayout::of::<K, N>().put(key, namespace, &mut bytes);
    let shared = bytes.len();
    9_u64.encode(&mut bytes);
    (shared, bytes)
}

fn assert_found<K: StateKey, N: StateKey>(key: &K, namespace: &N) {
    for group in [1, 2] {
        let KeyAccess::Together(prefix) =
            KeyAccess::of(&meta::<K, N>("map", StateKind::Map), group)
        else {
            panic!("maps under such keys are not found by hash");
        };
        let (shared, bytes) = stored(group, key, namespace);
        assert_eq!(prefix.take(&bytes), Some(&bytes[..shared]));
        assert_eq!(prefix.take(&bytes[..shared]), Some(&bytes[..shared]));
        assert_eq!(prefix.take(&bytes[..shared - 1]), None);
        assert!(prefix.take(&[]).is_none());
    }
}

#[test]
fn key_and_namespace_end_where_they_were_written_to_end() {
    assert_found(&0_u64, &());
    assert_found(&(1_u32, 2_u8), &(3_i64, 4_i64));
    for text in ["", "a", "a longer one, with ß", &"x".repeat(300)] {
        assert_found(&text.to_owned(), &());
        assert_found(&text.to_owned(), &-1_i64);
    }
    // Both vary in length, or the namespace alone.
    for meta in [
        meta::<String, String>("map", StateKind::Map),
        meta::<u64, String>("map", StateKind::Map),
    ] {
        assert_eq!(KeyAccess::of(&meta, 1), KeyAccess::Ordered);
    }
    let meta = meta::<String, String>("value", StateKind::Value);
    assert_eq!(KeyAccess::of(&meta, 1), KeyAccess::Single);
}

#[test]
fn only_a_range_within_one_start_is_read_without_sorting() {
    let access = KeyAccess::Together(Prefix::Fixed(2));
    assert!(access.is_together(b"ab", Some(b"ac")));
    assert!(access.is_together(b"abx", Some(b"abz")));
    assert!(access.is_together(b"a\xff", Some(b"b")));
    for (start, end) in [
        (&b"ab"[..], Some(&b"ad"[..])),
        (b"ab", None),
        (b"a", Some(b"b")),
        (b"ab", Some(b"acx")),
    ] {
        assert!(!access.is_together(start, end));
    }
    assert!(!KeyAccess::Single.is_together(b"ab", Some(b"ac")));
}

fn key(group: u8, key: u64, entry: u64) -> Vec<u8> {
    let mut bytes = vec![group];
    bytes.extend_from_slice(&key.to_be_bytes());
    bytes.extend_from_slice(&entry.to_be_bytes());
    bytes
}

/// Opens a column of maps under numbers, which write buffers find by hash.
fn open_maps(store: &mut RocksDbStore) -> Column {
    let column = store
        .open_state_column(&meta::<u64, ()>("maps", StateKind::Map))
        .unwrap();
    assert!(store.column_cells()[0].access().is_hashed());
    column
}

fn keys(store: &RocksDbStore, column: Column, start: &[u8], end: Option<&[u8]>) -> Vec<Vec<u8>> {
    let mut page = Page::default();
    store
        .scan(column, start, end, usize::MAX, &mut page)
        .unwrap();
    page.entries.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn what_is_found_by_hash_is_read_in_order_from_write_buffers_and_files_alike() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("writebuffer.size", "16mb"),
        ("memory.fixed-per-tm", "96mb"),
    ];
    let mut store = open_with(dir.path(), &options);
    let column = open_maps(&mut store);
    let mut model = std::collections::BTreeMap::new();
    // The last round stays in the write buffer, more than are sorted at once.
    for round in 0_u64..3 {
        for i in 0..20_000_u64 {
            let key = key((i % 5) as u8, (i * 7919 + round) % 3_000, i % 11);
            store.put(column, &key, &round.to_le_bytes()).unwrap();
            model.insert(key, round);
        }
        if round < 2 {
            store.flush(column).unwrap();
        }
    }
    let one = key(2, 17, 0)[..9].to_vec();
    let end = prefix_end(&one).unwrap();
    let of_model = |start: &[u8], end: Option<&[u8]>| -> Vec<Vec<u8>> {
        let range = model.range(start.to_vec()..);
        let keys = range.map(|(key, _)| key.clone());
        keys.take_while(|key| end.is_none_or(|end| key.as_slice() < end))
            .collect()
    };
    let buffered = || store.cell(column).buffered();
    assert_eq!(
        keys(&store, column, &one, Some(&end)),
        of_model(&one, Some(&end))
    );
    assert_eq!(buffered(), 20_000, "one map is read without writing files");
    assert_eq!(keys(&store, column, b"", None), of_model(b"", None));
    assert_eq!(
        buffered(),
        0,
        "much is written to a file before it is read in order"
    );
    let mut value = Vec::new();
    for (key, round) in &model {
        assert!(store.get(column, key, &mut value).unwrap());
        assert_eq!(value, round.to_le_bytes());
    }
}

#[test]
fn a_state_that_is_gone_through_page_by_page_is_not_sorted_for_each_page() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("writebuffer.size", "16mb"),
        ("memory.fixed-per-tm", "96mb"),
    ];
    let mut store = open_with(dir.path(), &options);
    let column = open_maps(&mut store);
    for n in 0..40_000_u64 {
        store.put(column, &key(0, n, 0), b"v").unwrap();
    }
    store.flush(column).unwrap();
    let buffered = |store: &RocksDbStore| store.cell(column).buffered();
    // Returns the keys, and the entries of write buffers that were sorted for them.
    let go_through = |store: &RocksDbStore| {
        let (mut page, mut from) = (Page::default(), Vec::new());
        let (mut keys, mut sorted) = (0, 0);
        loop {
            store.scan(column, &from, None, 128, &mut page).unwrap();
            keys += page.entries.len();
            sorted += buffered(store);
            let Some((last, _)) = page.entries.last() else {
                return (keys, sorted);
            };
            from = [last.as_slice(), &[0]].concat();
        }
    };
    // Few in the buffer: to sort them for each page costs less than a file.
    for n in 0..100 {
        store.put(column, &key(1, n, 0), b"v").unwrap();
    }
    let (keys, sorted) = go_through(&store);
    assert_eq!((keys, buffered(&store)), (40_100, 100));
    assert_eq!(sorted, 100 * 315);
    for n in 0..5_000 {
        store.put(column, &key(2, n, 0), b"v").unwrap();
    }
    let (keys, sorted) = go_through(&store);
    assert_eq!((keys, buffered(&store)), (45_100, 0));
    // Every page would have been 1.8 million.
    assert!(sorted <= 64 << 10, "{sorted} entries");
}

#[test]
fn a_map_is_written_while_it_is_gone_through_and_removed_without_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let column = open_maps(&mut store);
    for entry in 0..1_000 {
        for of in [41, 42, 43] {
            store.put(column, &key(0, of, entry), b"v").unwrap();
        }
    }
    let start = key(0, 42, 0)[..9].to_vec();
    let end = prefix_end(&start).unwrap();
    let mut page = Page::default();
    let mut from = start.clone();
    let mut seen = 0;
    loop {
        store
            .scan(column, &from, Some(&end), 64, &mut page)
            .unwrap();
        let Some((last, _)) = page.entries.last() else {
            break;
        };
        from = [last.as_slice(), &[0]].concat();
        for (key, _) in &page.entries {
            seen += 1;
            store.delete(column, key).unwrap();
            store
                .put(column, &[key.as_slice(), b"x"].concat()[..17], b"w")
                .unwrap();
        }
    }
    assert_eq!(seen, 1_000);
    let mut last = Page::default();
    store
        .scan_last(column, &start, Some(&end), &mut last)
        .unwrap();
    assert_eq!(last.entries[0].0, key(0, 42, 999));
    store.delete_range(column, &start, Some(&end)).unwrap();
    assert!(keys(&store, column, &start, Some(&end)).is_empty());
    assert_eq!(keys(&store, column, b"", None).len(), 2_000);
}

#[test]
fn one_key_that_is_written_all_the_time_is_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let column = store
        .open_state_column(&meta::<u64, ()>("value", StateKind::Value))
        .unwrap();
    let mut value = Vec::new();
    for n in 0..10_000_u64 {
        store.put(column, &key(1, 1, 1), &n.to_le_bytes()).unwrap();
        assert!(store.get(column, &key(1, 1, 1), &mut value).unwrap());
        assert_eq!(value, n.to_le_bytes());
    }
    assert_eq!(keys(&store, column, b"", None).len(), 1);
}

#[test]
fn buckets_take_no_more_than_their_part_of_the_memory_and_give_it_back() {
    let memory = SharedMemory::new(48 << 20, 0.5);
    let limit = memory.write_buffer_limit();
    let mut columns = Vec::new();
    while let Some(column) = HashedColumn::draw(&memory, 2 << 20) {
        assert_eq!(column.bytes(), limit / 100);
        columns.push(column);
    }
    assert_eq!(columns.len(), 12);
    drop(columns.pop());
    assert!(HashedColumn::draw(&Arc::clone(&memory), 1 << 10).is_some());
}

#[test]
fn write_buffers_are_ordered_where_that_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let options = [("writebuffer.hashed", "false")];
    let mut store = open_with(dir.path(), &options);
    store
        .open_state_column(&meta::<u64, ()>("maps", StateKind::Map))
        .unwrap();
    assert!(!store.column_cells()[0].access().is_hashed());
}
