//! Nested collections against those of std, with copies that must not change.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::{LiveList, LiveMap, LiveSortedMap};

#[derive(Clone, Debug)]
enum Op {
    Put(u32, u64),
    Change(u32, u64),
    Remove(u32),
    Retain(u64),
    RemoveRange(u32, u32),
    Copy,
}

fn op(keys: u32) -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..keys, any::<u64>()).prop_map(|(k, v)| Op::Put(k, v)),
        4 => (0..keys, any::<u64>()).prop_map(|(k, v)| Op::Change(k, v)),
        6 => (0..keys).prop_map(Op::Remove),
        1 => (2..9_u64).prop_map(Op::Retain),
        1 => (0..keys, 0..keys).prop_map(|(a, b)| Op::RemoveRange(a, b)),
        1 => Just(Op::Copy),
    ]
}

proptest! {
    #[test]
    fn a_map_behaves_as_a_plain_map(ops in prop::collection::vec(op(60), 1..300)) {
        let (mut map, mut model) = (LiveMap::<u32, u64>::new(), BTreeMap::new());
        let mut copies = Vec::new();
        for op in ops {
            match op {
                Op::Put(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                Op::Change(k, v) => {
                    if let Some(value) = map.get_mut(&k) { *value = v; }
                    if let Some(value) = model.get_mut(&k) { *value = v; }
                }
                Op::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                Op::Retain(n) => {
                    map.retain(|_, v| { *v /= 2; *v % n != 0 });
                    model.retain(|_, v| { *v /= 2; *v % n != 0 });
                }
                Op::RemoveRange(..) => {}
                Op::Copy => copies.push((map.clone(), model.clone())),
            }
            prop_assert_eq!(map.len(), model.len());
        }
        copies.push((map, model));
        for (map, model) in copies {
            let entries: BTreeMap<u32, u64> = map.iter().map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(&entries, &model);
            prop_assert!((0..60).all(|k| map.get(&k) == model.get(&k)));
            prop_assert_eq!(&model.into_iter().collect::<LiveMap<_, _>>(), &map);
        }
    }

    #[test]
    fn a_sorted_map_behaves_as_a_plain_sorted_map(ops in prop::collection::vec(op(120), 1..300), from in 0..120_u32, to in 0..120_u32) {
        let (mut map, mut model) = (LiveSortedMap::<u32, u64>::new(), BTreeMap::new());
        let mut copies = Vec::new();
        for op in ops {
            match op {
                Op::Put(k, v) => prop_assert_eq!(map.insert(k, v), model.insert(k, v)),
                Op::Change(k, v) => {
                    if let Some(value) = map.get_mut(&k) { *value = v; }
                    if let Some(value) = model.get_mut(&k) { *value = v; }
                }
                Op::Remove(k) => prop_assert_eq!(map.remove(&k), model.remove(&k)),
                Op::Retain(n) => {
                    map.retain(|_, v| { *v /= 2; *v % n != 0 });
                    model.retain(|_, v| { *v /= 2; *v % n != 0 });
                }
                Op::RemoveRange(a, b) => {
                    map.remove_range(Some(&a), Some(&b));
                    model.retain(|k, _| !(a..b).contains(k));
                }
                Op::Copy => copies.push((map.clone(), model.clone())),
            }
            prop_assert_eq!(map.len(), model.len());
        }
        copies.push((map, model));
        for (map, model) in copies {
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert_eq!(map.first(), model.first_key_value());
            prop_assert_eq!(map.last(), model.last_key_value());
            prop_assert!(map.range(Some(&from), None).eq(model.range(from..)));
            prop_assert!(map.range(None, Some(&to)).eq(model.range(..to)));
            let between = model.iter().filter(|(k, _)| (from..to).contains(*k));
            prop_assert!(map.range(Some(&from), Some(&to)).eq(between));
        }
    }

    #[test]
    fn a_list_behaves_as_a_plain_list(ops in prop::collection::vec(op(200), 1..400)) {
        let (mut list, mut model) = (LiveList::<u64>::new(), VecDeque::new());
        let mut copies = Vec::new();
        for op in ops {
            match op {
                Op::Put(_, v) => { list.push(v); model.push_back(v); }
                Op::Change(k, v) => {
                    let many = (0..u64::from(k)).map(|i| i ^ v);
                    list.extend(many.clone());
                    model.extend(many);
                }
                Op::Remove(_) => prop_assert_eq!(list.pop_front(), model.pop_front()),
                Op::Retain(n) => {
                    list.iter_mut().for_each(|v| *v /= 2);
                    model.iter_mut().for_each(|v| *v /= 2);
                    list.retain(|v| v % n != 0);
                    model.retain(|v| v % n != 0);
                }
                Op::RemoveRange(a, b) => {
                    let n = (a % 8).min(b % 8);
                    list.replace((0..n).map(u64::from));
                    model = (0..n).map(u64::from).collect();
                }
                Op::Copy => copies.push((list.clone(), model.clone())),
            }
            prop_assert_eq!(list.len(), model.len());
        }
        copies.push((list, model));
        for (list, model) in copies {
            prop_assert!(list.iter().eq(model.iter()));
            prop_assert_eq!(list.get(3), model.get(3));
        }
    }
}

#[test]
fn a_long_copy_shares_what_is_not_changed() {
    let list: LiveList<u64> = (0..10_000).collect();
    let mut copy = list.clone();
    copy.push(1);
    let shared = list
        .iter()
        .zip(copy.iter())
        .filter(|(a, b)| std::ptr::eq(*a, *b));
    assert!(shared.count() > 9000);

    let map: LiveMap<u32, u64> = (0..10_000).map(|key| (key, 0)).collect();
    let mut copy = map.clone();
    copy.insert(3, 1);
    let shared = map
        .iter()
        .filter(|(key, value)| copy.get(key).is_some_and(|v| std::ptr::eq(v, *value)));
    assert!(shared.count() > 9000);
    assert_eq!((map.get(&3), copy.get(&3)), (Some(&0), Some(&1)));
}
