use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use state_api::access::{
    Aggregator, ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess,
};
use state_api::{
    ByteStore, CodecKind, Error, ErrorKind, KeyGroup, ManualClock, MaxParallelism, OrderedKey,
    Result, StateKey, StateKind, StateMeta, StateType, TtlConfig, TypeMeta,
};

use super::*;
use crate::format::test_storage::MapStore;

const GROUPS: u32 = 128;

/// A store with a clock, and states of it by name.
pub(super) struct Fixture {
    pub(super) store: MapStore,
    pub(super) clock: Arc<ManualClock>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            store: MapStore::default(),
            clock: Arc::new(ManualClock::at(0)),
        }
    }

    pub(super) fn meta<K: StateKey, N: StateKey, V: StateType>(
        name: &str,
        kind: StateKind,
        ttl: Option<TtlConfig>,
    ) -> StateMeta {
        StateMeta {
            name: name.into(),
            kind,
            key: TypeMeta::of::<K>(CodecKind::Compact),
            namespace: TypeMeta::of::<N>(CodecKind::Compact),
            map_key: None,
            value: TypeMeta::of::<V>(CodecKind::Compact),
            ttl_ms: ttl.map(|ttl| ttl.ttl_ms()),
        }
    }

    pub(super) fn state<K: StateKey, N: StateKey, V: StateType>(
        &mut self,
        name: &str,
        kind: StateKind,
        ttl: Option<TtlConfig>,
    ) -> ByteState {
        let column = self.store.open_column(name).unwrap();
        ByteState::new(
            column,
            &Self::meta::<K, N, V>(name, kind, ttl),
            ttl,
            self.clock.clone(),
        )
    }
}

pub(super) fn bound<K: StateKey>(key: &K) -> ByteKey {
    let max = MaxParallelism::new(GROUPS).unwrap();
    let mut bound = ByteKey::new(max.prefix_len());
    bound.bind(key, max.group_of_hash64(key.stable_hash()));
    bound
}

fn text(s: &str) -> String {
    s.to_owned()
}

macro_rules! value {
    ($f:ident, $state:ident, $key:expr, $ns:expr) => {
        ByteValue::<u64>::new($state.at(&mut $f.store, &bound($key), $ns), None)
    };
}

macro_rules! list {
    ($f:ident, $state:ident, $key:expr, $ns:expr) => {
        ByteList::<u64>::new($state.at(&mut $f.store, &bound($key), $ns))
    };
}

macro_rules! map {
    ($f:ident, $state:ident, $key:expr) => {
        ByteMap::<u64, u64>::new($state.at(&mut $f.store, &bound($key), &()))
    };
}

#[test]
fn k_032_a_key_is_encoded_once_for_all_namespaces() {
    let mut f = Fixture::new();
    let mut state = f.state::<String, String, u64>("v", StateKind::Value, None);
    let key = bound(&text("carrier"));
    for (namespace, value) in [("a long namespace", 1), ("n", 2), ("", 3)] {
        ByteValue::<u64>::new(state.at(&mut f.store, &key, &text(namespace)), None)
            .set(value)
            .unwrap();
    }
    for (namespace, value) in [("a long namespace", 1), ("n", 2), ("", 3)] {
        let mut view = ByteValue::<u64>::new(state.at(&mut f.store, &key, &text(namespace)), None);
        assert_eq!(view.get().unwrap(), Some(value));
    }
    assert_eq!(f.store.column(state.column()).len(), 3);
}

#[test]
fn k_034_k_035_k_044_a_value_is_absent_until_set_and_after_none() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("v", StateKind::Value, None);
    assert_eq!(value!(f, state, &1u64, &()).get().unwrap(), None);
    value!(f, state, &1u64, &()).set(5).unwrap();
    value!(f, state, &2u64, &()).update(|n| *n += 7).unwrap();
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 2);
    let had = value!(f, state, &1u64, &()).modify(Option::take).unwrap();
    assert_eq!(had, Some(5));
    assert_eq!(value!(f, state, &2u64, &()).get().unwrap(), Some(7));
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 1);
    value!(f, state, &2u64, &()).clear().unwrap();
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 0);
}

#[test]
fn k_036_k_038_a_default_is_read_but_never_stored() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("v", StateKind::Value, None);
    let key = bound(&1u64);
    let default = 42;
    let mut view = ByteValue::new(state.at(&mut f.store, &key, &()), Some(&default));
    assert_eq!(view.get().unwrap(), Some(42));
    view.update(|n| *n += 1).unwrap();
    assert_eq!(view.get().unwrap(), Some(43));
    view.clear().unwrap();
    assert_eq!(view.get().unwrap(), Some(42));
    assert_eq!(f.store.column(state.column()).len(), 0);
}

#[test]
fn k_049_k_050_a_list_is_appended_replaced_and_cleared() {
    let mut f = Fixture::new();
    let mut state = f.state::<String, (), u64>("l", StateKind::List, None);
    let (def, abc) = (text("def"), text("abc"));
    list!(f, state, &def, &()).push(17).unwrap();
    list!(f, state, &def, &()).push(11).unwrap();
    assert_eq!(list!(f, state, &def, &()).get().unwrap(), [17, 11]);
    list!(f, state, &def, &()).replace(vec![]).unwrap();
    assert_eq!(list!(f, state, &def, &()).get().unwrap(), []);
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 0);
    list!(f, state, &def, &()).replace(vec![10, 16]).unwrap();
    for add in [vec![], vec![3, 4], vec![], vec![5, 6]] {
        list!(f, state, &abc, &()).extend(add).unwrap();
    }
    assert_eq!(list!(f, state, &abc, &()).get().unwrap(), [3, 4, 5, 6]);
    list!(f, state, &abc, &()).replace(vec![1, 2]).unwrap();
    assert_eq!(list!(f, state, &abc, &()).get().unwrap(), [1, 2]);
    assert_eq!(list!(f, state, &def, &()).get().unwrap(), [10, 16]);
}

#[test]
fn a_list_is_shortened_from_the_front_and_by_choice() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("l", StateKind::List, None);
    list!(f, state, &1u64, &())
        .extend((0..200).collect())
        .unwrap();
    let mut list = list!(f, state, &1u64, &());
    assert_eq!(list.pop_front().unwrap(), Some(0));
    list.retain(|n| n % 50 == 0).unwrap();
    assert_eq!(list.get().unwrap(), [50, 100, 150]);
    assert_eq!(list.len().unwrap(), 3);
    let stop = list.for_each(|n| {
        if *n == 100 {
            Err(Error::new(ErrorKind::User, "enough"))
        } else {
            Ok(())
        }
    });
    assert_eq!(stop.unwrap_err().kind(), ErrorKind::User);
    for expected in [Some(50), Some(100), Some(150), None] {
        assert_eq!(list.pop_front().unwrap(), expected);
    }
    assert!(list.is_empty().unwrap());
    assert_eq!(f.store.column(state.column()).len(), 0);
}

/// The namespaces of K-055: per key, what is in namespaces 1, 2 and 3.
const MERGE_CASES: [(&str, [&[u64]; 3]); 5] = [
    ("abc", [&[11, 44], &[22, 55], &[33]]),
    ("def", [&[], &[11, 44, 22], &[55, 33]]),
    ("ghi", [&[], &[], &[]]),
    ("jkl", [&[11, 22, 33, 44, 55], &[], &[]]),
    ("mno", [&[], &[], &[11, 22, 33, 44, 55]]),
];

#[test]
fn k_055_k_056_lists_of_namespaces_are_merged() {
    let mut f = Fixture::new();
    let mut state = f.state::<String, u32, u64>("l", StateKind::List, None);
    for (key, lists) in MERGE_CASES {
        for (namespace, elements) in (1u32..).zip(lists) {
            list!(f, state, &text(key), &namespace)
                .extend(elements.to_vec())
                .unwrap();
        }
    }
    for (key, lists) in MERGE_CASES {
        merge_lists(
            &mut state,
            &mut f.store,
            &bound(&text(key)),
            &1u32,
            &[2, 3, 1, 2],
        )
        .unwrap();
        assert_eq!(
            list!(f, state, &text(key), &1u32).get().unwrap(),
            lists.concat()
        );
        assert!(list!(f, state, &text(key), &2u32).is_empty().unwrap());
        list!(f, state, &text(key), &1u32).clear().unwrap();
    }
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 0);
}

fn sum(value: &u64, input: u64) -> Result<u64> {
    if input == 13 {
        return Err(Error::new(ErrorKind::User, "13 is refused"));
    }
    Ok(value + input)
}

#[test]
fn k_071_k_072_k_077_a_reducing_state_reduces_and_survives_a_failure() {
    let mut f = Fixture::new();
    let mut state = f.state::<String, (), u64>("r", StateKind::Reducing, None);
    let key = bound(&text("def"));
    let mut view = ByteReducing::new(state.at(&mut f.store, &key, &()), &sum);
    assert_eq!(view.get().unwrap(), None);
    view.add(17).unwrap();
    view.add(11).unwrap();
    assert_eq!(view.get().unwrap(), Some(28));
    assert_eq!(view.add(13).unwrap_err().kind(), ErrorKind::User);
    assert_eq!(view.get().unwrap(), Some(28));
    view.clear().unwrap();
    assert_eq!(view.get().unwrap(), None);
}

#[test]
fn k_073_k_078_values_of_namespaces_are_merged() {
    let mut f = Fixture::new();
    let mut state = f.state::<String, u32, u64>("r", StateKind::Reducing, None);
    for (key, lists) in MERGE_CASES {
        let key = bound(&text(key));
        for (namespace, elements) in (1u32..).zip(lists) {
            for element in elements {
                ByteReducing::new(state.at(&mut f.store, &key, &namespace), &sum)
                    .add(*element)
                    .unwrap();
            }
        }
        merge_reducing(&mut state, &mut f.store, &key, &1, &[2, 3, 3, 1], &sum).unwrap();
        let expected = (!lists.concat().is_empty()).then_some(165);
        assert_eq!(
            ByteReducing::new(state.at(&mut f.store, &key, &1u32), &sum)
                .get()
                .unwrap(),
            expected
        );
        ByteReducing::new(state.at(&mut f.store, &key, &1u32), &sum)
            .clear()
            .unwrap();
    }
    assert_eq!(count_entries(&f.store, state.column()).unwrap(), 0);
}

#[test]
fn k_077_a_merge_that_fails_leaves_all_namespaces_alone() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, u32, u64>("r", StateKind::Reducing, None);
    for (namespace, n) in [(1u32, 5), (2, 6), (3, 13)] {
        value!(f, state, &1u64, &namespace).set(n).unwrap();
    }
    let before = f.store.column(state.column()).clone();
    merge_reducing(&mut state, &mut f.store, &bound(&1u64), &1, &[2, 3], &sum).unwrap_err();
    assert_eq!(f.store.column(state.column()), &before);
}

/// Averages, over an accumulator of sum and count.
#[derive(Clone)]
struct Average;

impl Aggregator for Average {
    type In = u64;
    type Acc = (u64, u64);
    type Out = f64;

    fn create(&self) -> Self::Acc {
        (0, 0)
    }

    fn add(&self, acc: &mut Self::Acc, input: u64) -> Result<()> {
        *acc = (acc.0 + input, acc.1 + 1);
        Ok(())
    }

    fn merge(&self, acc: &mut Self::Acc, other: Self::Acc) -> Result<()> {
        *acc = (acc.0 + other.0, acc.1 + other.1);
        Ok(())
    }

    fn result(&self, acc: &Self::Acc) -> f64 {
        acc.0 as f64 / acc.1 as f64
    }
}

#[test]
fn k_074_k_076_an_aggregating_state_folds_and_merges() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, u32, (u64, u64)>("a", StateKind::Aggregating, None);
    let key = bound(&9u64);
    for (namespace, input) in [(1u32, 10), (1, 20), (2, 60)] {
        ByteAggregating::new(state.at(&mut f.store, &key, &namespace), &Average)
            .add(input)
            .unwrap();
    }
    assert_eq!(
        ByteAggregating::new(state.at(&mut f.store, &key, &1u32), &Average)
            .get()
            .unwrap(),
        Some(15.0)
    );
    merge_aggregating(&mut state, &mut f.store, &key, &1, &[2, 7], &Average).unwrap();
    let mut view = ByteAggregating::new(state.at(&mut f.store, &key, &1u32), &Average);
    assert_eq!(view.get().unwrap(), Some(30.0));
    view.clear().unwrap();
    assert_eq!(view.get().unwrap(), None);
    assert_eq!(f.store.column(state.column()).len(), 0);
}

#[test]
fn k_059_k_060_a_map_behaves_as_a_map() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("m", StateKind::Map, None);
    let mut map = map!(f, state, &1u64);
    assert!(map.is_empty().unwrap());
    assert_eq!(map.entries().unwrap(), []);
    assert_eq!(map.get(&3).unwrap(), None);
    assert!(!map.contains(&3).unwrap());
    map.put_all(vec![(1, 10), (2, 20), (3, 30)]).unwrap();
    map.put(4, 40).unwrap();
    assert!(map.remove(&2).unwrap());
    assert!(!map.remove(&2).unwrap());
    map.modify(&3, |value| *value = value.map(|v| v + 1))
        .unwrap();
    map.modify(&4, |value| *value = None).unwrap();
    map.modify(&5, |value| assert_eq!(*value, None)).unwrap();
    assert_eq!(map.entries().unwrap(), [(1, 10), (3, 31)]);
    assert!(map.contains(&3).unwrap());
    map.clear().unwrap();
    assert!(map.is_empty().unwrap());
}

#[test]
fn k_063_a_map_of_many_pages_is_changed_while_visited() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("m", StateKind::Map, None);
    let mut map = map!(f, state, &1u64);
    map.put_all((0..4096).map(|n| (n, n)).collect()).unwrap();
    let mut seen = 0;
    map.retain(|key, value| {
        seen += 1;
        *value *= 2;
        key % 2 == 0
    })
    .unwrap();
    assert_eq!(seen, 4096);
    let mut entries = map.entries().unwrap();
    entries.sort_unstable();
    assert_eq!(
        entries,
        (0..4096).step_by(2).map(|n| (n, 2 * n)).collect::<Vec<_>>()
    );
}

#[test]
fn k_064_a_map_is_empty_only_when_the_last_entry_is_gone() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("m", StateKind::Map, None);
    let mut map = map!(f, state, &1u64);
    for n in 0..1024 {
        map.put(n, n).unwrap();
        assert!(!map.is_empty().unwrap());
    }
    for n in 0..1024 {
        assert!(!map.is_empty().unwrap());
        map.remove(&n).unwrap();
    }
    assert!(map.is_empty().unwrap());
}

#[test]
fn k_068_a_map_holds_none_as_a_value() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), Option<u64>>("m", StateKind::Map, None);
    let key = bound(&1u64);
    let mut map = ByteMap::<u64, Option<u64>>::new(state.at(&mut f.store, &key, &()));
    map.put(7, None).unwrap();
    assert_eq!(map.get(&7).unwrap(), Some(None));
    assert!(map.contains(&7).unwrap());
    assert!(!map.contains(&8).unwrap());
}

#[test]
fn k_069_a_clear_that_fails_says_so() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("m", StateKind::Map, None);
    map!(f, state, &1u64).put(1, 1).unwrap();
    f.store.fail_deletes = true;
    assert_eq!(
        map!(f, state, &1u64).clear().unwrap_err().kind(),
        ErrorKind::Retryable
    );
    assert!(!map!(f, state, &1u64).is_empty().unwrap());
}

#[test]
fn k_070_a_map_never_yields_entries_of_a_neighbour() {
    let mut f = Fixture::new();
    let mut state = f.state::<u16, (), u64>("m", StateKind::Map, None);
    // All in one key group, so that the keys are neighbours in the store; 0x00FF and 0xFFFF end the prefix in 0xFF.
    let keys = [0x00FFu16, 0x0100, 0x0001, 0xFFFF, 0xFFFE];
    let bound = |key: u16| {
        let mut bound = ByteKey::new(1);
        bound.bind(&key, KeyGroup(127));
        bound
    };
    for key in keys {
        let mut map = ByteMap::<u64, u64>::new(state.at(&mut f.store, &bound(key), &()));
        map.put_all((0..1000).map(|n| (n << 48, u64::from(key))).collect())
            .unwrap();
    }
    for (removed, key) in keys.into_iter().enumerate() {
        let mut map = ByteMap::<u64, u64>::new(state.at(&mut f.store, &bound(key), &()));
        let mut count = 0;
        map.for_each(|_, value| {
            count += 1;
            assert_eq!(*value, u64::from(key));
            Ok(())
        })
        .unwrap();
        assert_eq!(count, 1000);
        map.clear().unwrap();
        assert_eq!(
            count_entries(&f.store, state.column()).unwrap(),
            4000 - removed as u64 * 1000
        );
    }
}

#[test]
fn a_sorted_map_is_read_in_order_and_by_range() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), String>("s", StateKind::SortedMap, None);
    let other = bound(&2u64);
    ByteSortedMap::<i64, String>::new(state.at(&mut f.store, &other, &()))
        .put(-1000, text("not mine"))
        .unwrap();
    let key = bound(&1u64);
    let mut map = ByteSortedMap::<i64, String>::new(state.at(&mut f.store, &key, &()));
    assert_eq!(map.first().unwrap(), None);
    assert_eq!(map.last().unwrap(), None);
    for n in [5, -3, 300, 0, -300, 7] {
        map.put(n, n.to_string()).unwrap();
    }
    let mut range = |from: Option<i64>, to: Option<i64>| {
        let mut keys = Vec::new();
        map.range(from.as_ref(), to.as_ref(), |key, value| {
            assert_eq!(&key.to_string(), value);
            keys.push(*key);
            Ok(())
        })
        .unwrap();
        keys
    };
    assert_eq!(range(None, None), [-300, -3, 0, 5, 7, 300]);
    assert_eq!(range(Some(-3), Some(7)), [-3, 0, 5]);
    assert_eq!(range(Some(8), None), [300]);
    assert_eq!(range(None, Some(-300)), []);
    assert_eq!(range(Some(7), Some(-7)), []);
    assert_eq!(map.first().unwrap(), Some((-300, text("-300"))));
    assert_eq!(map.last().unwrap(), Some((300, text("300"))));
    map.remove_range(Some(&-3), Some(&300)).unwrap();
    map.remove_range(Some(&400), Some(&-400)).unwrap();
    assert_eq!(map.entries().unwrap().len(), 2);
}

fn keys_of<K: StateKey + Ord, N: StateKey + Ord>(
    store: &MapStore,
    state: &ByteState,
) -> Vec<(K, N)> {
    let mut pages = KeyPages::<K, N>::new(state.column(), 1);
    let mut pairs = Vec::new();
    while pages.next_page(store, &mut pairs).unwrap() {}
    pairs.sort_unstable();
    pairs
}

#[test]
fn k_066_k_067_k_079_k_080_each_key_and_namespace_is_listed_once() {
    let mut f = Fixture::new();
    let mut maps = f.state::<u64, u32, u64>("m", StateKind::Map, None);
    let mut expected = Vec::new();
    for key in 0..300u64 {
        for namespace in [1u32, 2] {
            if (key + u64::from(namespace)) % 3 != 0 {
                let entries = if key % 50 == 0 { 500 } else { 3 };
                let bound = bound(&key);
                let mut map = ByteMap::<u64, u64>::new(maps.at(&mut f.store, &bound, &namespace));
                map.put_all((0..entries).map(|n| (n, n)).collect()).unwrap();
                expected.push((key, namespace));
            }
        }
    }
    assert_eq!(keys_of::<u64, u32>(&f.store, &maps), expected);
    let empty = f.state::<u64, u32, u64>("never written", StateKind::Value, None);
    assert_eq!(keys_of::<u64, u32>(&f.store, &empty), []);
}

#[test]
fn k_082_keys_are_cleared_between_pages() {
    let mut f = Fixture::new();
    let mut state = f.state::<u64, (), u64>("v", StateKind::Value, None);
    for key in 0..1000u64 {
        value!(f, state, &key, &()).set(key).unwrap();
    }
    let mut pages = KeyPages::<u64, ()>::new(state.column(), 1);
    let mut page = Vec::new();
    let mut seen = 0;
    while pages.next_page(&f.store, &mut page).unwrap() {
        for (key, ()) in page.drain(..) {
            seen += 1;
            if key % 2 == 0 {
                value!(f, state, &key, &()).clear().unwrap();
            }
        }
    }
    assert_eq!(seen, 1000);
    assert_eq!(keys_of::<u64, ()>(&f.store, &state).len(), 500);
}

#[test]
fn damaged_values_are_errors_that_name_the_state() {
    let mut f = Fixture::new();
    let ttl = TtlConfig::new(std::time::Duration::from_millis(10)).unwrap();
    for ttl in [None, Some(ttl)] {
        let mut state = f.state::<u64, (), u64>("v", StateKind::Value, ttl);
        let key = bound(&1u64);
        value!(f, state, &1u64, &()).set(1).unwrap();
        let stored = f
            .store
            .column(state.column())
            .keys()
            .next()
            .unwrap()
            .clone();
        for damaged in [&[][..], &[1, 2, 3], &[200; 30]] {
            f.store.put(state.column(), &stored, damaged).unwrap();
            let error = ByteValue::<u64>::new(state.at(&mut f.store, &key, &()), None).get();
            if damaged.len() == 30 && ttl.is_some() {
                continue;
            }
            let error = error.unwrap_err();
            assert_eq!(
                (error.kind(), error.context("state")),
                (ErrorKind::Corrupt, Some("v"))
            );
        }
        f.store.put(state.column(), &stored, &[9, 1]).unwrap();
        assert_eq!(
            list!(f, state, &1u64, &()).get().unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        assert_eq!(
            list!(f, state, &1u64, &()).pop_front().unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
}

#[test]
fn k_203_k_206_k_210_k_211_values_are_migrated_all_or_none() {
    for kind in [StateKind::Value, StateKind::List, StateKind::Map] {
        let mut f = Fixture::new();
        let mut old_state = f.state::<u64, u32, u32>("v", kind, None);
        for key in 0..300u64 {
            let (bound, namespace) = (bound(&key), (key % 3) as u32);
            let at = old_state.at(&mut f.store, &bound, &namespace);
            match kind {
                StateKind::Value => ByteValue::<u32>::new(at, None).set(key as u32).unwrap(),
                StateKind::List => ByteList::<u32>::new(at)
                    .extend(vec![key as u32, 1])
                    .unwrap(),
                _ => ByteMap::<u64, u32>::new(at).put(5, key as u32).unwrap(),
            }
        }
        let old = Fixture::meta::<u64, u32, u32>("v", kind, None);
        let ttl = TtlConfig::new(std::time::Duration::from_millis(100)).unwrap();
        // K-190: from plain to a time-to-live; the values count as written now.
        let new = Fixture::meta::<u64, u32, u64>("v", kind, Some(ttl));
        let column = old_state.column();
        let stored = f.store.column(column).clone();
        let victim = stored.keys().nth(200).unwrap().clone();
        f.store.put(column, &victim, &[1]).unwrap();
        let damaged = f.store.column(column).clone();
        let error = migrate_column::<u64>(&mut f.store, column, &old, &new, 50).unwrap_err();
        assert_eq!(
            (error.kind(), error.context("state")),
            (ErrorKind::Corrupt, Some("v"))
        );
        assert_eq!(f.store.column(column), &damaged);

        f.store.put(column, &victim, &stored[&victim]).unwrap();
        migrate_column::<u64>(&mut f.store, column, &old, &new, 50).unwrap();
        assert_eq!(f.store.column(column).len(), 300);
        let mut state = f.state::<u64, u32, u64>("v", kind, Some(ttl));
        for (now, alive) in [(149, true), (150, false)] {
            f.clock.set(now);
            for key in 0..300u64 {
                let (bound, namespace) = (bound(&key), (key % 3) as u32);
                let at = state.at(&mut f.store, &bound, &namespace);
                let found = match kind {
                    StateKind::Value => ByteValue::<u64>::new(at, None).get().unwrap(),
                    StateKind::List => ByteList::<u64>::new(at).get().unwrap().first().copied(),
                    _ => ByteMap::<u64, u64>::new(at).get(&5).unwrap(),
                };
                assert_eq!(found, alive.then_some(key));
            }
        }
    }
}

#[test]
fn k_189_a_time_to_live_is_dropped_by_migration() {
    let mut f = Fixture::new();
    let ttl = TtlConfig::new(std::time::Duration::from_millis(100)).unwrap();
    let mut state = f.state::<u64, (), u64>("v", StateKind::Value, Some(ttl));
    value!(f, state, &1u64, &()).set(5).unwrap();
    let old = Fixture::meta::<u64, (), u64>("v", StateKind::Value, Some(ttl));
    let new = Fixture::meta::<u64, (), u64>("v", StateKind::Value, None);
    migrate_column::<u64>(&mut f.store, state.column(), &old, &new, 10_000).unwrap();
    f.clock.set(10_000);
    let mut state = f.state::<u64, (), u64>("v", StateKind::Value, None);
    assert_eq!(value!(f, state, &1u64, &()).get().unwrap(), Some(5));
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8, u64),
    PutAll(u8, Vec<(u8, u64)>),
    Add(u8, u8),
    Remove(u8, u8),
    RemoveRange(u8, u8, u8),
    Retain(u8, u64),
    Clear(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u8..3;
    prop_oneof![
        (key.clone(), any::<u8>(), any::<u64>()).prop_map(|(k, m, v)| Op::Put(k, m, v)),
        (
            key.clone(),
            proptest::collection::vec((any::<u8>(), any::<u64>()), 0..200)
        )
            .prop_map(|(k, all)| Op::PutAll(k, all)),
        (key.clone(), any::<u8>()).prop_map(|(k, m)| Op::Add(k, m)),
        (key.clone(), any::<u8>()).prop_map(|(k, m)| Op::Remove(k, m)),
        (key.clone(), any::<u8>(), any::<u8>())
            .prop_map(|(k, from, to)| Op::RemoveRange(k, from, to)),
        (key.clone(), 2u64..5).prop_map(|(k, n)| Op::Retain(k, n)),
        key.prop_map(Op::Clear),
    ]
}

fn ordered<MK: OrderedKey>(key: &MK) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode_ordered(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sorted_maps_agree_with_a_model(ops in proptest::collection::vec(op(), 1..40)) {
        let mut f = Fixture::new();
        let mut state = f.state::<String, (), u64>("s", StateKind::SortedMap, None);
        let mut model: BTreeMap<u8, BTreeMap<u8, u64>> = BTreeMap::new();
        for op in ops {
            let key = match &op {
                Op::Put(k, ..) | Op::PutAll(k, _) | Op::Add(k, _) | Op::Remove(k, _) | Op::RemoveRange(k, ..)
                | Op::Retain(k, _) | Op::Clear(k) => *k,
            };
            let bound = bound(&"k".repeat(key.into()));
            let mut map = ByteSortedMap::<u8, u64>::new(state.at(&mut f.store, &bound, &()));
            let entry = model.entry(key).or_default();
            match op {
                Op::Put(_, m, v) => {
                    map.put(m, v).unwrap();
                    entry.insert(m, v);
                }
                Op::PutAll(_, all) => {
                    map.put_all(all.clone()).unwrap();
                    entry.extend(all);
                }
                Op::Add(_, m) => {
                    map.modify(&m, |v| *v = Some(v.unwrap_or(0).wrapping_add(1))).unwrap();
                    let v = entry.entry(m).or_default();
                    *v = v.wrapping_add(1);
                }
                Op::Remove(_, m) => prop_assert_eq!(map.remove(&m).unwrap(), entry.remove(&m).is_some()),
                Op::RemoveRange(_, from, to) => {
                    map.remove_range(Some(&from), Some(&to)).unwrap();
                    entry.retain(|m, _| !(from..to).contains(m));
                }
                Op::Retain(_, n) => {
                    map.retain(|_, v| { *v /= n; *v % n != 0 }).unwrap();
                    entry.retain(|_, v| { *v /= n; *v % n != 0 });
                }
                Op::Clear(_) => {
                    map.clear().unwrap();
                    entry.clear();
                }
            }
            prop_assert_eq!(map.entries().unwrap(), entry.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            prop_assert_eq!(map.first().unwrap(), entry.first_key_value().map(|(k, v)| (*k, *v)));
            prop_assert_eq!(map.last().unwrap(), entry.last_key_value().map(|(k, v)| (*k, *v)));
            prop_assert_eq!(map.is_empty().unwrap(), entry.is_empty());
        }
        let total: usize = model.values().map(BTreeMap::len).sum();
        prop_assert_eq!(count_entries(&f.store, state.column()).unwrap(), total as u64);
        prop_assert!(ordered(&1u8) < ordered(&2u8));
    }
}
