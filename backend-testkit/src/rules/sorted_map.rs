//! Sorted map states.
use super::prelude::*;

fn sorted_map(states: &mut States<u32>) -> Result<SortedMapState<i64, String>> {
    states.sorted_map("map")
}

fn range(
    job: &mut Job<u32, SortedMapState<i64, String>>,
    from: Option<i64>,
    to: Option<i64>,
) -> Vec<i64> {
    job.at(&1, |at, state| {
        let mut keys = Vec::new();
        at.sorted_map(state)
            .range(from.as_ref(), to.as_ref(), |key, value| {
                assert_eq!(*value, key.to_string());
                keys.push(*key);
                Ok(())
            })?;
        Ok(keys)
    })
}

const KEYS: [i64; 9] = [i64::MIN, -300, -256, -1, 0, 1, 255, 256, i64::MAX];

fn fill(job: &mut Job<u32, SortedMapState<i64, String>>) {
    for key in KEYS.iter().rev() {
        job.at(&1, |at, state| {
            at.sorted_map(state).put(*key, key.to_string())
        });
    }
}

/// Entries come in the order of their map keys, negative ones first. (K-058, K-060)
pub fn entries_come_in_order(setup: &Setup) {
    let mut job = setup.start(sorted_map);
    fill(&mut job);
    job.settle();
    assert_eq!(range(&mut job, None, None), KEYS);
    let entries = job.at(&1, |at, state| at.sorted_map(state).entries());
    assert_eq!(
        entries.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        KEYS
    );
}

/// A range includes its start and excludes its end; an end before the start is an empty range. (K-060)
pub fn a_range_includes_its_start_and_excludes_its_end(setup: &Setup) {
    let mut job = setup.start(sorted_map);
    fill(&mut job);
    job.settle();
    assert_eq!(range(&mut job, Some(-1), Some(255)), [-1, 0, 1]);
    assert_eq!(range(&mut job, Some(2), None), [255, 256, i64::MAX]);
    assert_eq!(range(&mut job, None, Some(-299)), [i64::MIN, -300]);
    assert_eq!(range(&mut job, Some(1), Some(1)), [0_i64; 0]);
    assert_eq!(range(&mut job, Some(5), Some(-5)), [0_i64; 0]);
    assert_eq!(range(&mut job, Some(i64::MIN), Some(i64::MAX)), KEYS[..8]);
}

/// First and last are the smallest and the greatest map key that are there. (K-060)
pub fn first_and_last_are_the_ends(setup: &Setup) {
    let mut job = setup.start(sorted_map);
    assert_eq!(job.at(&1, |at, state| at.sorted_map(state).first()), None);
    assert_eq!(job.at(&1, |at, state| at.sorted_map(state).last()), None);
    fill(&mut job);
    job.at(&2, |at, state| at.sorted_map(state).put(5, "5".to_owned()));
    job.settle();
    let key = |entry: Option<(i64, String)>| entry.map(|(key, _)| key);
    assert_eq!(
        key(job.at(&1, |at, state| at.sorted_map(state).first())),
        Some(i64::MIN)
    );
    assert_eq!(
        key(job.at(&1, |at, state| at.sorted_map(state).last())),
        Some(i64::MAX)
    );
    job.at(&1, |at, state| at.sorted_map(state).remove(&i64::MIN));
    job.at(&1, |at, state| at.sorted_map(state).remove(&i64::MAX));
    job.settle();
    assert_eq!(
        key(job.at(&1, |at, state| at.sorted_map(state).first())),
        Some(-300)
    );
    assert_eq!(
        key(job.at(&1, |at, state| at.sorted_map(state).last())),
        Some(256)
    );
    assert_eq!(
        key(job.at(&2, |at, state| at.sorted_map(state).last())),
        Some(5)
    );
}

/// Removing a range removes what is in it and nothing else. (K-060)
pub fn removing_a_range_leaves_the_rest(setup: &Setup) {
    let mut job = setup.start(sorted_map);
    fill(&mut job);
    job.at(&2, |at, state| at.sorted_map(state).put(0, "0".to_owned()));
    job.settle();
    job.at(&1, |at, state| {
        at.sorted_map(state).remove_range(Some(&-256), Some(&255))
    });
    job.settle();
    assert_eq!(
        range(&mut job, None, None),
        [i64::MIN, -300, 255, 256, i64::MAX]
    );
    job.at(&1, |at, state| {
        at.sorted_map(state).remove_range(Some(&300), Some(&-300))
    });
    assert_eq!(range(&mut job, None, None).len(), 5);
    job.at(&1, |at, state| {
        at.sorted_map(state).remove_range(None, None)
    });
    job.settle();
    assert_eq!(range(&mut job, None, None), [0_i64; 0]);
    assert!(job.at(&1, |at, state| at.sorted_map(state).is_empty()));
    assert!(!job.at(&2, |at, state| at.sorted_map(state).is_empty()));
    assert_eq!(sorted(job.keys("map", &())), [2]);
}

/// A sorted map is a map: it puts, changes, retains and clears as one. (K-060, K-063)
pub fn a_sorted_map_is_a_map(setup: &Setup) {
    let mut job =
        setup.start(|states: &mut States<u32>| states.sorted_map::<String, u64, ()>("map"));
    let name = |number: u64| format!("{number:04}");
    job.at(&1, |at, state| {
        at.sorted_map(state)
            .put_all((0..1_000).map(|n| (name(n), n)).collect())
    });
    job.settle();
    job.at(&1, |at, state| {
        at.sorted_map(state).retain(|_, value| {
            *value *= 2;
            *value % 3 == 0
        })
    });
    assert_eq!(
        job.at(&1, |at, state| at
            .sorted_map(state)
            .modify(&name(3), |value| value.replace(1))),
        Some(6)
    );
    assert!(job.at(&1, |at, state| at.sorted_map(state).remove(&name(6))));
    job.settle();
    let expected: Vec<(String, u64)> = (0..1_000)
        .filter(|n| n % 3 == 0 && *n != 6)
        .map(|n| (name(n), if n == 3 { 1 } else { 2 * n }))
        .collect();
    assert_eq!(
        job.at(&1, |at, state| at.sorted_map(state).entries()),
        expected
    );
    job.at(&1, |at, state| at.sorted_map(state).clear());
    job.settle();
    assert_eq!(job.entries("map"), 0);
}

/// Map keys of variable length are in order and apart, prefixes of each other too. (K-029, K-070)
pub fn map_keys_of_variable_length_are_in_order(setup: &Setup) {
    let mut job = setup
        .start(|states: &mut States<String>| states.sorted_map::<(String, u8), u64, String>("map"));
    let mut keys = vec![
        ("", 9),
        ("a", 0),
        ("a", 1),
        ("a\0", 0),
        ("a\0b", 0),
        ("aa", 0),
        ("b", 0),
    ];
    for (key, namespace) in [("x", ""), ("x", "a"), ("xa", "")] {
        for (number, (text, byte)) in (0..).zip(keys.iter().rev()) {
            let namespace = namespace.to_owned();
            job.at(&key.to_owned(), |at, state| {
                at.sorted_map_in(state, &namespace)
                    .put(((*text).to_owned(), *byte), number)
            });
        }
    }
    job.settle();
    keys.sort_unstable();
    for (key, namespace) in [("x", ""), ("x", "a"), ("xa", "")] {
        let namespace = namespace.to_owned();
        let found = job.at(&key.to_owned(), |at, state| {
            at.sorted_map_in(state, &namespace).entries()
        });
        let found: Vec<(&str, u8)> = found
            .iter()
            .map(|((text, byte), _)| (text.as_str(), *byte))
            .collect();
        assert_eq!(found, keys, "{key:?} {namespace:?}");
    }
}

/// While going through a sorted map in order, its entries may be removed and replaced. (K-063)
pub fn a_sorted_map_may_be_written_while_it_is_visited(setup: &Setup) {
    let mut job = setup.start(sorted_map);
    job.at(&1, |at, state| {
        at.sorted_map(state)
            .put_all((0..300).map(|n| (n, n.to_string())).collect())
    });
    job.settle();
    let mut seen = Vec::new();
    job.at(&1, |at, state| {
        at.for_each_sorted_entry(state, |at, key, _| {
            seen.push(*key);
            at.sorted_map(state).remove(key)?;
            at.sorted_map(state)
                .put(key - 1_000, (key - 1_000).to_string())
        })
    });
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
    job.settle();
    assert_eq!(
        range(&mut job, None, None),
        (-1_000..-700).collect::<Vec<_>>()
    );
}
