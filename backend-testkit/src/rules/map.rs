//! Map states.
use super::prelude::*;

fn map(states: &mut States<u32>) -> Result<MapState<String, u64>> {
    states.map("map")
}

fn entries(job: &mut Job<u32, MapState<String, u64>>, key: u32) -> BTreeMap<String, u64> {
    let entries = job.at(&key, |at, state| at.map(state).entries());
    let map: BTreeMap<_, _> = entries.iter().cloned().collect();
    assert_eq!(map.len(), entries.len(), "an entry came twice");
    map
}

/// A map that was never written is empty. (K-059)
pub fn an_unset_map_is_empty(setup: &Setup) {
    let mut job = setup.start(map);
    job.settle();
    assert!(job.at(&1, |at, state| at.map(state).is_empty()));
    assert_eq!(job.at(&1, |at, state| at.map(state).entries()), []);
    assert_eq!(
        job.at(&1, |at, state| at.map(state).get(&"a".to_owned())),
        None
    );
    assert!(!job.at(&1, |at, state| at.map(state).contains(&"a".to_owned())));
    assert!(!job.at(&1, |at, state| at.map(state).remove(&"a".to_owned())));
    assert_eq!(job.entries("map"), 0);
}

/// Putting, removing and changing entries gives what a plain map gives. (K-060)
pub fn a_map_is_a_map(setup: &Setup) {
    let mut job = setup.start(map);
    let entry = |number: u64| (format!("k{number}"), number);
    job.at(&1, |at, state| {
        at.map(state).put_all((0..20).map(entry).collect())
    });
    job.at(&2, |at, state| at.map(state).put("k1".to_owned(), 100));
    job.settle();
    assert!(job.at(&1, |at, state| at.map(state).remove(&"k3".to_owned())));
    assert!(!job.at(&1, |at, state| at.map(state).remove(&"k3".to_owned())));
    job.at(&1, |at, state| at.map(state).put("k4".to_owned(), 44));
    let found = job.at(&1, |at, state| {
        at.map(state)
            .modify(&"k5".to_owned(), |value| value.replace(55))
    });
    assert_eq!(found, Some(5));
    assert_eq!(
        job.at(&1, |at, state| at
            .map(state)
            .modify(&"k6".to_owned(), Option::take)),
        Some(6)
    );
    job.at(&1, |at, state| {
        at.map(state)
            .modify(&"new".to_owned(), |value| *value = Some(1))
    });
    job.at(&1, |at, state| at.map(state).put_all(vec![]));
    job.settle();
    let mut expected: BTreeMap<String, u64> = (0..20).map(entry).collect();
    expected.remove("k3");
    expected.remove("k6");
    expected.extend([
        ("k4".to_owned(), 44),
        ("k5".to_owned(), 55),
        ("new".to_owned(), 1),
    ]);
    assert_eq!(entries(&mut job, 1), expected);
    assert_eq!(
        entries(&mut job, 2),
        BTreeMap::from([("k1".to_owned(), 100)])
    );
    for (key, value) in expected {
        assert_eq!(job.at(&1, |at, state| at.map(state).get(&key)), Some(value));
        assert!(job.at(&1, |at, state| at.map(state).contains(&key)));
    }
}

/// An empty map and no map are the same: no entry, no key. (K-059, K-064)
pub fn an_empty_map_is_no_map(setup: &Setup) {
    let mut job = setup.start(map);
    job.at(&1, |at, state| at.map(state).put("a".to_owned(), 1));
    job.at(&2, |at, state| at.map(state).put("a".to_owned(), 1));
    job.at(&3, |at, state| at.map(state).put("a".to_owned(), 1));
    job.at(&4, |at, state| at.map(state).put_all(vec![]));
    job.settle();
    assert_eq!(sorted(job.keys("map", &())), [1, 2, 3]);
    assert!(job.at(&1, |at, state| at.map(state).remove(&"a".to_owned())));
    job.at(&2, |at, state| at.map(state).clear());
    job.at(&3, |at, state| at.map(state).retain(|_, _| false));
    job.settle();
    for key in 1..5 {
        assert!(
            job.at(&key, |at, state| at.map(state).is_empty()),
            "key {key}"
        );
    }
    assert_eq!(job.keys("map", &()), []);
    assert_eq!(job.entries("map"), 0);
}

/// A map is empty when the last entry is gone, not before; over many entries. (K-064)
pub fn a_map_is_empty_when_its_last_entry_is_gone(setup: &Setup) {
    let mut job = setup.start(map);
    let name = |number: u64| format!("{number:04}");
    job.at(&1, |at, state| {
        (0..1_024).try_for_each(|n| at.map(state).put(name(n), n))
    });
    job.settle();
    let left_early = job.at(&1, |at, state| {
        let mut empty = 0;
        for number in 0..1_024 {
            empty += u32::from(at.map(state).is_empty()?);
            at.map(state).remove(&name(number))?;
        }
        Ok(empty)
    });
    assert_eq!(left_early, 0);
    assert!(job.at(&1, |at, state| at.map(state).is_empty()));
}

/// Going through many entries sees each once, changes those it changes and drops those it drops. (K-061, K-062, K-063)
pub fn retaining_sees_each_entry_once(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.map::<u64, u64, ()>("map"));
    job.at(&1, |at, state| {
        at.map(state).put_all((0..4_096).map(|n| (n, n)).collect())
    });
    job.settle();
    let mut seen = BTreeSet::new();
    job.at(&1, |at, state| {
        at.map(state).retain(|key, value| {
            assert!(seen.insert(*key), "{key} came twice");
            *value += 1;
            key % 2 == 0
        })
    });
    assert_eq!(seen.len(), 4_096);
    job.settle();
    let left = sorted(job.at(&1, |at, state| at.map(state).entries()));
    assert_eq!(
        left,
        (0..4_096)
            .step_by(2)
            .map(|n| (n, n + 1))
            .collect::<Vec<_>>()
    );
}

/// While going through a map its entries may be removed and replaced, and other states written. (K-060, K-063)
pub fn a_map_may_be_written_while_it_is_visited(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.map::<u64, u64, ()>("map")?,
            states.value::<u64, ()>("sum")?,
        ))
    });
    job.at(&1, |at, (map, _)| {
        at.map(map).put_all((0..500).map(|n| (n, n)).collect())
    });
    job.settle();
    job.at(&1, |at, (map, sum)| {
        at.for_each_entry(map, |at, key, value| {
            at.value(sum).update(|sum| *sum += value)?;
            if key % 2 == 0 {
                at.map(map).remove(key).map(|_| ())
            } else {
                at.map(map).put(*key, value * 2)
            }
        })
    });
    job.settle();
    assert_eq!(
        job.at(&1, |at, (_, sum)| at.value(sum).get()),
        Some(500 * 499 / 2)
    );
    let left = sorted(job.at(&1, |at, (map, _)| at.map(map).entries()));
    assert_eq!(
        left,
        (1..500).step_by(2).map(|n| (n, n * 2)).collect::<Vec<_>>()
    );
}

/// An error of the visitor ends the visit and is handed on; the map stays. (K-062)
pub fn an_error_of_the_visitor_ends_the_visit(setup: &Setup) {
    let mut job = setup.start(map);
    job.at(&1, |at, state| {
        at.map(state)
            .put_all(vec![("a".to_owned(), 1), ("b".to_owned(), 2)])
    });
    job.settle();
    let mut seen = 0;
    let result = job.try_at(&1, |at, state| {
        at.map(state).for_each(|_, _| {
            seen += 1;
            Err(Error::user("enough"))
        })
    });
    fails(ErrorKind::User, result);
    assert_eq!(seen, 1);
    assert_eq!(entries(&mut job, 1).len(), 2);
}

/// A map entry whose value is none is there. (K-068, K-202)
pub fn an_entry_with_the_value_none_is_there(setup: &Setup) {
    let mut job =
        setup.start(|states: &mut States<u32>| states.map::<String, Option<u64>, ()>("map"));
    job.at(&1, |at, state| at.map(state).put("a".to_owned(), None));
    job.settle();
    assert_eq!(
        job.at(&1, |at, state| at.map(state).get(&"a".to_owned())),
        Some(None)
    );
    assert!(job.at(&1, |at, state| at.map(state).contains(&"a".to_owned())));
    assert!(!job.at(&1, |at, state| at.map(state).is_empty()));
}

/// A key with many map entries is one key of the state, in the namespace that it has them in. (K-066, K-067)
pub fn a_key_with_many_entries_is_one_key(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.map::<u64, u64, u32>("map"));
    for key in 0..5 {
        job.at(&key, |at, state| {
            at.map_in(state, &(key % 2))
                .put_all((0..300).map(|n| (n, n)).collect())
        });
    }
    job.at(&0, |at, state| at.map_in(state, &1).put(1, 1));
    job.settle();
    assert_eq!(sorted(job.keys("map", &0_u32)), [0, 2, 4]);
    assert_eq!(sorted(job.keys("map", &1_u32)), [0, 1, 3]);
    let pairs = sorted(job.keys_and_namespaces::<u32>("map"));
    assert_eq!(pairs, [(0, 0), (0, 1), (1, 1), (2, 0), (3, 1), (4, 0)]);
    assert_eq!(job.entries("map"), 6);
}

/// The entries of one key are never those of a key next to it. (K-070)
pub fn entries_of_neighbouring_keys_are_apart(setup: &Setup) {
    let mut job = setup
        .clone()
        .max_parallelism(3)
        .start(|states: &mut States<String>| states.map::<String, u64, ()>("map"));
    let keys = ["a", "aa", "ab", "b", "a\0", "a\u{FF}", ""];
    for (number, key) in (0..).zip(keys) {
        job.at(&key.to_owned(), |at, state| {
            at.map(state)
                .put_all((0..200).map(|n| (format!("a{n}"), number)).collect())
        });
    }
    job.at(&"aa".to_owned(), |at, state| at.map(state).clear());
    job.settle();
    for (number, key) in (0..).zip(keys) {
        let entries = job.at(&key.to_owned(), |at, state| at.map(state).entries());
        assert_eq!(entries.len(), if key == "aa" { 0 } else { 200 }, "{key:?}");
        assert!(entries.iter().all(|(_, value)| *value == number), "{key:?}");
    }
}

/// Two entries are equal if key and value are, wherever they were read. (K-065)
pub fn entries_read_twice_are_equal(setup: &Setup) {
    let mut job = setup.start(map);
    job.at(&1, |at, state| at.map(state).put("a".to_owned(), 1));
    let before = job.at(&1, |at, state| at.map(state).entries());
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.map(state).entries()), before);
    job.at(&1, |at, state| at.map(state).put("a".to_owned(), 2));
    assert_ne!(job.at(&1, |at, state| at.map(state).entries()), before);
}
