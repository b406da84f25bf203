//! The rules of a [`ByteStore`], one plain function each; the argument makes an empty store.
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use state_api::{BatchEntry, ByteStore, Column, ErrorKind, Page, WriteBatch, prefix_end};

use crate::setup::fails;

/// Makes an empty store.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn ByteStore>;

fn open(make: Make<'_>) -> (Box<dyn ByteStore>, Column) {
    let mut store = make();
    let column = store.open_column("a").unwrap();
    (store, column)
}

fn get(store: &dyn ByteStore, column: Column, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = b"what was there before".to_vec();
    let found = store.get(column, key, &mut value).unwrap();
    assert!(found || value.is_empty(), "the buffer is not emptied");
    found.then_some(value)
}

fn scan(
    store: &dyn ByteStore,
    column: Column,
    start: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut page = Page {
        entries: vec![(b"old".to_vec(), b"page".to_vec())],
    };
    store.scan(column, start, end, limit, &mut page).unwrap();
    page.entries
}

fn pair(key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

/// A column that is opened again is the same; others are apart from it, and all are known by name.
pub fn columns_are_apart_and_known_by_name(make: Make<'_>) {
    let (mut store, a) = open(make);
    let b = store.open_column("b").unwrap();
    assert_ne!(a, b);
    assert_eq!(store.open_column("a").unwrap(), a);
    store.put(a, b"k", b"1").unwrap();
    store.put(b, b"k", b"2").unwrap();
    store.delete(b, b"k").unwrap();
    assert_eq!(
        (get(&*store, a, b"k"), get(&*store, b, b"k")),
        (Some(b"1".to_vec()), None)
    );
    let mut names = store.column_names();
    names.sort();
    assert_eq!(names, ["a", "b"]);
}

/// A column that was not opened is refused by every call, and the store goes on.
pub fn an_unknown_column_is_refused(make: Make<'_>) {
    let (mut store, a) = open(make);
    let unknown = Column(a.0 + 1_000);
    store.put(a, b"k", b"v").unwrap();
    fails(
        ErrorKind::InvalidArgument,
        store.get(unknown, b"k", &mut Vec::new()),
    );
    fails(ErrorKind::InvalidArgument, store.put(unknown, b"k", b"v"));
    fails(ErrorKind::InvalidArgument, store.merge(unknown, b"k", b"v"));
    fails(ErrorKind::InvalidArgument, store.delete(unknown, b"k"));
    fails(
        ErrorKind::InvalidArgument,
        store.delete_range(unknown, b"a", Some(b"b")),
    );
    fails(
        ErrorKind::InvalidArgument,
        store.scan(unknown, b"", None, 1, &mut Page::default()),
    );
    fails(
        ErrorKind::InvalidArgument,
        store.scan_last(unknown, b"", None, &mut Page::default()),
    );
    let entries = vec![
        BatchEntry::Put(a, b"k".to_vec(), b"new".to_vec()),
        BatchEntry::Delete(unknown, b"k".to_vec()),
    ];
    fails(
        ErrorKind::InvalidArgument,
        store.write(WriteBatch { entries }),
    );
    assert_eq!(
        get(&*store, a, b"k"),
        Some(b"v".to_vec()),
        "half a batch was applied"
    );
    fails(
        ErrorKind::InvalidArgument,
        store
            .view()
            .unwrap()
            .scan(unknown, b"", None, 1, &mut Page::default()),
    );
}

/// A key has the value that was put last; empty keys and empty values are keys and values like others.
pub fn the_last_put_wins(make: Make<'_>) {
    let (mut store, a) = open(make);
    assert_eq!(get(&*store, a, b"k"), None);
    let long = vec![0xAB; 100_000];
    for (key, value) in [
        (&b"k"[..], &b"1"[..]),
        (b"", b"empty key"),
        (b"empty value", b""),
        (&[0xFF; 300], &long),
    ] {
        store.put(a, key, b"before").unwrap();
        store.put(a, key, value).unwrap();
        assert_eq!(get(&*store, a, key).as_deref(), Some(value));
    }
    store.delete(a, b"k").unwrap();
    store.delete(a, b"k").unwrap();
    assert_eq!(get(&*store, a, b"k"), None);
    assert_eq!(scan(&*store, a, b"", None, 9).len(), 3);
}

/// Merging appends to what is there, or to nothing; a put or a delete starts anew.
pub fn merging_appends(make: Make<'_>) {
    let (mut store, a) = open(make);
    store.merge(a, b"k", b"1").unwrap();
    store.merge(a, b"k", b"").unwrap();
    store.merge(a, b"k", b"23").unwrap();
    assert_eq!(get(&*store, a, b"k"), Some(b"123".to_vec()));
    store.put(a, b"k", b"x").unwrap();
    store.merge(a, b"k", b"y").unwrap();
    assert_eq!(get(&*store, a, b"k"), Some(b"xy".to_vec()));
    store.delete(a, b"k").unwrap();
    store.merge(a, b"k", b"z").unwrap();
    assert_eq!(scan(&*store, a, b"", None, 9), [pair(b"k", b"z")]);
    store.delete_range(a, b"a", None).unwrap();
    store.merge(a, b"k", b"w").unwrap();
    assert_eq!(get(&*store, a, b"k"), Some(b"w".to_vec()));
}

/// A range includes its start and excludes its end; an end at or before the start is an empty range, in scans and deletes.
pub fn ranges_include_their_start_and_exclude_their_end(make: Make<'_>) {
    let (mut store, a) = open(make);
    for key in [&b"a"[..], b"a\0", b"ab", b"b", b"\xFF", b"\xFF\xFF"] {
        store.put(a, key, b"").unwrap();
    }
    let keys =
        |found: Vec<(Vec<u8>, Vec<u8>)>| found.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(
        keys(scan(&*store, a, b"a", Some(b"b"), 9)),
        [&b"a"[..], b"a\0", b"ab"]
    );
    assert_eq!(
        keys(scan(&*store, a, b"aa", None, 9)),
        [&b"ab"[..], b"b", b"\xFF", b"\xFF\xFF"]
    );
    for (start, end) in [(&b"b"[..], &b"a"[..]), (b"a", b"a"), (b"c", b"")] {
        assert_eq!(scan(&*store, a, start, Some(end), 9), []);
        store.delete_range(a, start, Some(end)).unwrap();
    }
    assert_eq!(scan(&*store, a, b"", None, 9).len(), 6);
    store.delete_range(a, b"a\0", Some(b"b")).unwrap();
    assert_eq!(
        keys(scan(&*store, a, b"", None, 9)),
        [&b"a"[..], b"b", b"\xFF", b"\xFF\xFF"]
    );
    store
        .delete_range(a, b"\xFF", prefix_end(b"\xFF").as_deref())
        .unwrap();
    assert_eq!(keys(scan(&*store, a, b"", None, 9)), [&b"a"[..], b"b"]);
}

/// A scan gives pairs in the order of unsigned bytes, as many as asked for; fewer only at the end of the range.
pub fn scans_come_in_order_page_by_page(make: Make<'_>) {
    let (mut store, a) = open(make);
    let b = store.open_column("b").unwrap();
    let mut keys: Vec<Vec<u8>> = (0..700_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[..3].to_vec())
        .collect();
    for key in &keys {
        store.put(a, key, key).unwrap();
        store.put(b, key, b"other").unwrap();
    }
    keys.sort();
    keys.dedup();
    for limit in [1, 7, 128, 1_000] {
        let (mut found, mut start) = (Vec::new(), Vec::new());
        loop {
            let page = scan(&*store, a, &start, None, limit);
            let len = page.len();
            assert!(len <= limit);
            if let Some((last, _)) = page.last() {
                start = [last, &[0][..]].concat();
            }
            found.extend(page);
            if len < limit {
                break;
            }
        }
        assert_eq!(
            found,
            keys.iter().map(|key| pair(key, key)).collect::<Vec<_>>(),
            "pages of {limit}"
        );
    }
    assert_eq!(scan(&*store, a, b"", None, 0), []);
}

/// The last pair of a range is the greatest in it, or none.
pub fn the_last_pair_of_a_range_is_the_greatest(make: Make<'_>) {
    let (mut store, a) = open(make);
    for n in 0..300_u16 {
        store.put(a, &n.to_be_bytes(), &[n as u8]).unwrap();
    }
    let last = |start: u16, end: Option<u16>| {
        let mut page = Page {
            entries: vec![(vec![], vec![])],
        };
        let end = end.map(u16::to_be_bytes);
        store
            .scan_last(
                a,
                &start.to_be_bytes(),
                end.as_ref().map(|end| &end[..]),
                &mut page,
            )
            .unwrap();
        assert!(page.entries.len() <= 1);
        page.entries.pop()
    };
    assert_eq!(last(0, None), Some(pair(&299_u16.to_be_bytes(), &[43])));
    assert_eq!(
        last(0, Some(256)),
        Some(pair(&255_u16.to_be_bytes(), &[255]))
    );
    assert_eq!(last(5, Some(6)), Some(pair(&5_u16.to_be_bytes(), &[5])));
    assert_eq!(last(5, Some(5)), None);
    assert_eq!(last(6, Some(5)), None);
    assert_eq!(last(300, None), None);
}

/// A page belongs to the reader: it stays as it was read while the scanned range is written.
pub fn a_page_stays_while_its_range_is_written(make: Make<'_>) {
    let (mut store, a) = open(make);
    for n in 0..100_u8 {
        store.put(a, &[n], &[n]).unwrap();
    }
    let page = scan(&*store, a, b"", None, 50);
    for (key, _) in &page {
        store.delete(a, key).unwrap();
        store.put(a, &[key[0] + 100], b"new").unwrap();
    }
    assert_eq!(page, (0..50).map(|n| pair(&[n], &[n])).collect::<Vec<_>>());
    // What is read on sees the store as it is now.
    let rest = scan(&*store, a, &[49, 0], None, 1_000);
    assert_eq!(rest.len(), 100);
    assert_eq!(rest[50], pair(&[100], b"new"));
}

/// A batch is applied in order: later entries see what earlier ones have done.
pub fn a_batch_is_applied_in_order(make: Make<'_>) {
    let (mut store, a) = open(make);
    let b = store.open_column("b").unwrap();
    let key = || b"k".to_vec();
    let merge = || BatchEntry::Merge(a, key(), b"+".to_vec());
    store.put(a, b"k", b"0").unwrap();
    let entries = vec![
        merge(),
        BatchEntry::Put(b, key(), b"b".to_vec()),
        BatchEntry::Put(a, key(), b"1".to_vec()),
        BatchEntry::Delete(a, key()),
        merge(),
        merge(),
        BatchEntry::Delete(b, key()),
        BatchEntry::Merge(b, key(), b"c".to_vec()),
    ];
    store.write(WriteBatch { entries }).unwrap();
    assert_eq!(
        (get(&*store, a, b"k"), get(&*store, b, b"k")),
        (Some(b"++".to_vec()), Some(b"c".to_vec()))
    );
    store.write(WriteBatch::default()).unwrap();
    store.prefetch(a, &[b"k", b"unknown"]);
    assert_eq!(get(&*store, a, b"k"), Some(b"++".to_vec()));
}

/// A view is the store at one moment: no later write reaches it, from another thread neither, and it outlives the store.
pub fn a_view_never_sees_a_later_write(make: Make<'_>) {
    let (mut store, a) = open(make);
    for n in 0..200_u8 {
        store.put(a, &[n], &[n]).unwrap();
    }
    let first = store.view().unwrap();
    for n in 0..100_u8 {
        store.delete(a, &[n]).unwrap();
        store.merge(a, &[n + 100], b"!").unwrap();
        store.put(a, &[n, n], b"new").unwrap();
    }
    let late = store.open_column("late").unwrap();
    store.put(late, b"k", b"v").unwrap();
    let second = store.view().unwrap();
    store.delete_range(a, b"", None).unwrap();
    drop(store);
    let read = move || {
        let mut page = Page::default();
        first.scan(a, b"", None, 10_000, &mut page).unwrap();
        assert_eq!(
            page.entries,
            (0..200).map(|n| pair(&[n], &[n])).collect::<Vec<_>>()
        );
        first.scan(a, &[5], Some(&[7]), 10_000, &mut page).unwrap();
        assert_eq!(page.entries, [pair(&[5], &[5]), pair(&[6], &[6])]);
        drop(first);
        second.scan(a, b"", None, 10_000, &mut page).unwrap();
        assert_eq!(page.entries.len(), 200);
        assert_eq!(page.entries[0], pair(&[0, 0], b"new"));
        assert_eq!(page.entries[199], pair(&[199], &[199, b'!']));
        second.scan(late, b"", None, 1, &mut page).unwrap();
        assert_eq!(page.entries, [pair(b"k", b"v")]);
    };
    std::thread::spawn(read).join().unwrap();
}

#[derive(Clone, Debug)]
enum Op {
    Put(bool, Vec<u8>, Vec<u8>),
    Merge(bool, Vec<u8>, Vec<u8>),
    Delete(bool, Vec<u8>),
    DeleteRange(bool, Vec<u8>, Option<Vec<u8>>),
    Batch(Vec<Op>),
    Scan(bool, Vec<u8>, Option<Vec<u8>>, usize),
    View,
    CheckView,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || {
        proptest::collection::vec(
            prop_oneof![Just(0_u8), Just(1), Just(0x7F), Just(0x80), Just(0xFF)],
            0..4,
        )
    };
    let value = || proptest::collection::vec(any::<u8>(), 0..20);
    let end = || proptest::option::of(key());
    let batched = prop_oneof![
        2 => (any::<bool>(), key(), value()).prop_map(|(c, k, v)| Op::Put(c, k, v)),
        2 => (any::<bool>(), key(), value()).prop_map(|(c, k, v)| Op::Merge(c, k, v)),
        1 => (any::<bool>(), key()).prop_map(|(c, k)| Op::Delete(c, k)),
    ];
    let op = prop_oneof![
        6 => (any::<bool>(), key(), value()).prop_map(|(c, k, v)| Op::Put(c, k, v)),
        3 => (any::<bool>(), key(), value()).prop_map(|(c, k, v)| Op::Merge(c, k, v)),
        3 => (any::<bool>(), key()).prop_map(|(c, k)| Op::Delete(c, k)),
        2 => proptest::collection::vec(batched, 0..8).prop_map(Op::Batch),
        1 => (any::<bool>(), key(), end()).prop_map(|(c, s, e)| Op::DeleteRange(c, s, e)),
        4 => (any::<bool>(), key(), end(), 0_usize..20).prop_map(|(c, s, e, n)| Op::Scan(c, s, e, n)),
        1 => Just(Op::View),
        1 => Just(Op::CheckView),
    ];
    proptest::collection::vec(op, 1..120)
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn model_range(map: &Map, start: &[u8], end: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &[u8]| key >= start && end.is_none_or(|end| key < end);
    map.iter()
        .filter(|(key, _)| inside(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Random writes, scans and views give what plain sorted maps give.
pub fn random_operations_give_what_a_sorted_map_gives(make: Make<'_>) {
    let settings = crate::model::Settings::from_env();
    let config = Config {
        cases: settings.cases,
        rng_seed: RngSeed::Fixed(settings.seed),
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&ops(), |ops| {
        let mut store = make();
        let columns = [
            store.open_column("a").unwrap(),
            store.open_column("b").unwrap(),
        ];
        let mut maps = [Map::new(), Map::new()];
        let mut views = Vec::new();
        for op in ops {
            match op {
                Op::Put(c, key, value) => {
                    store.put(columns[usize::from(c)], &key, &value).unwrap();
                    maps[usize::from(c)].insert(key, value);
                }
                Op::Merge(c, key, value) => {
                    store.merge(columns[usize::from(c)], &key, &value).unwrap();
                    maps[usize::from(c)].entry(key).or_default().extend(value);
                }
                Op::Delete(c, key) => {
                    store.delete(columns[usize::from(c)], &key).unwrap();
                    maps[usize::from(c)].remove(&key);
                }
                Op::DeleteRange(c, start, end) => {
                    store
                        .delete_range(columns[usize::from(c)], &start, end.as_deref())
                        .unwrap();
                    for (key, _) in model_range(&maps[usize::from(c)], &start, end.as_deref()) {
                        maps[usize::from(c)].remove(&key);
                    }
                }
                Op::Batch(batch) => {
                    let mut entries = Vec::new();
                    for op in batch {
                        let entry = match op {
                            Op::Put(c, key, value) => {
                                maps[usize::from(c)].insert(key.clone(), value.clone());
                                BatchEntry::Put(columns[usize::from(c)], key, value)
                            }
                            Op::Merge(c, key, value) => {
                                maps[usize::from(c)]
                                    .entry(key.clone())
                                    .or_default()
                                    .extend(&value);
                                BatchEntry::Merge(columns[usize::from(c)], key, value)
                            }
                            Op::Delete(c, key) => {
                                maps[usize::from(c)].remove(&key);
                                BatchEntry::Delete(columns[usize::from(c)], key)
                            }
                            _ => continue,
                        };
                        entries.push(entry);
                    }
                    store.write(WriteBatch { entries }).unwrap();
                }
                Op::Scan(c, start, end, limit) => {
                    let found = scan(
                        &*store,
                        columns[usize::from(c)],
                        &start,
                        end.as_deref(),
                        limit,
                    );
                    let all = model_range(&maps[usize::from(c)], &start, end.as_deref());
                    prop_assert_eq!(&found[..], &all[..limit.min(all.len())]);
                    let mut page = Page::default();
                    store
                        .scan_last(columns[usize::from(c)], &start, end.as_deref(), &mut page)
                        .unwrap();
                    prop_assert_eq!(page.entries.first(), all.last());
                }
                Op::View => views.push((store.view().unwrap(), maps.clone())),
                Op::CheckView => {
                    for (view, maps) in views.drain(..) {
                        for (column, map) in columns.iter().zip(&maps) {
                            let mut page = Page::default();
                            view.scan(*column, b"", None, usize::MAX, &mut page)
                                .unwrap();
                            prop_assert_eq!(&page.entries, &model_range(map, b"", None));
                        }
                    }
                }
            }
        }
        for (column, map) in columns.iter().zip(&maps) {
            prop_assert_eq!(
                scan(&*store, *column, b"", None, usize::MAX),
                model_range(map, b"", None)
            );
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("seed {}: {failure}", settings.seed);
    }
}

/// The table of all rules of a byte store, handed to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_rules {
    ([$($callback:tt)*] [$($arguments:tt)*]) => {
        $($callback)*! { [$($arguments)*]
            columns_are_apart_and_known_by_name
            an_unknown_column_is_refused
            the_last_put_wins
            merging_appends
            ranges_include_their_start_and_exclude_their_end
            scans_come_in_order_page_by_page
            the_last_pair_of_a_range_is_the_greatest
            a_page_stays_while_its_range_is_written
            a_batch_is_applied_in_order
            a_view_never_sees_a_later_write
            random_operations_give_what_a_sorted_map_gives
        }
    };
}
