//! Keys, key groups and namespaces: which subtask owns what, and what is kept apart.
use super::prelude::*;

/// Each key is in the state of exactly one subtask: the one that owns its key group. (K-008, K-012, K-101)
pub fn each_key_is_in_exactly_one_subtask(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    for key in 0..200 {
        job.at(&key, |at, state| at.value(state).set(u64::from(key)));
    }
    job.settle();
    let mut seen = 0;
    for subtask in 0..job.parallelism() as usize {
        let keys = job.subtask(subtask).0.keys("value", &()).unwrap();
        seen += keys.len();
        for key in keys {
            assert_eq!(job.subtask_of(&key), subtask, "key {key}");
        }
    }
    assert_eq!(seen, 200);
    for key in 0..200 {
        assert_eq!(
            job.at(&key, |at, state| at.value(state).get()),
            Some(u64::from(key))
        );
    }
}

/// A key whose group belongs to another subtask is refused, and no state is touched. (K-017, K-104)
pub fn a_key_of_another_subtask_is_refused(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let other = 1 - job.subtask_of(&7).min(1);
    let (states, token) = job.subtask(other);
    fails(ErrorKind::Bug, states.at(&7).value(token).set(1));
    fails(ErrorKind::Bug, states.at(&7).value(token).get());
    job.settle();
    assert_eq!(job.at(&7, |at, state| at.value(state).get()), None);
    assert_eq!(job.entries("value"), 0);
}

/// More than 128 key groups take two bytes in a stored key; nothing else changes. (K-027, K-028)
pub fn many_key_groups_work_as_few_do(setup: &Setup) {
    for groups in [128, 129, 1_000] {
        let mut job = setup.clone().max_parallelism(groups).start(value::<u32>);
        for key in 0..300 {
            job.at(&key, |at, state| at.value(state).set(u64::from(key) + 1));
        }
        job.settle();
        assert_eq!(
            sorted(job.keys("value", &())),
            (0..300).collect::<Vec<_>>(),
            "{groups} groups"
        );
        for key in 0..300 {
            assert_eq!(
                job.at(&key, |at, state| at.value(state).get()),
                Some(u64::from(key) + 1)
            );
        }
    }
}

/// With as many key groups as subtasks, and with a single group, each key is found. (K-011, K-012)
pub fn a_single_key_group_holds_all_keys(setup: &Setup) {
    let groups = setup.mode.written_at().max(setup.mode.asserted_at());
    let mut job = setup.clone().max_parallelism(groups).start(value::<u32>);
    for key in 0..50 {
        job.at(&key, |at, state| at.value(state).set(1));
    }
    job.settle();
    assert_eq!(job.keys("value", &()).len(), 50);
}

/// Keys and namespaces of variable length are kept apart even if their bytes put together are the same. (K-029, K-030)
pub fn key_and_namespace_do_not_run_into_each_other(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<String>| states.value::<u64, String>("value"));
    let pairs = [
        ("ab", "c"),
        ("a", "bc"),
        ("", "abc"),
        ("abc", ""),
        ("a", "b\0c"),
        ("a\0b", "c"),
    ];
    for (number, (key, namespace)) in (1..).zip(pairs) {
        let namespace = namespace.to_owned();
        job.at(&key.to_owned(), |at, state| {
            at.value_in(state, &namespace).set(number)
        });
    }
    job.settle();
    for (number, (key, namespace)) in (1..).zip(pairs) {
        let namespace = namespace.to_owned();
        let found = job.at(&key.to_owned(), |at, state| {
            at.value_in(state, &namespace).get()
        });
        assert_eq!(found, Some(number), "{key:?} {namespace:?}");
    }
    let expected = pairs.map(|(key, namespace)| (key.to_owned(), namespace.to_owned()));
    assert_eq!(
        sorted(job.keys_and_namespaces::<String>("value")),
        sorted(expected.to_vec())
    );
}

/// Long keys, empty keys and keys of any bytes are keys like others. (K-031, K-685)
pub fn long_and_empty_keys_are_keys_like_others(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<Vec<u8>>| {
        let value = states.value::<u64, ()>("value")?;
        Ok((value, states.map::<String, u64, Vec<u8>>("map")?))
    });
    let keys = [
        vec![],
        vec![0],
        vec![0xFF; 300],
        vec![0, 0, 0xFF],
        b"key".to_vec(),
        vec![0xFF; 70_000],
    ];
    for (number, key) in (1..).zip(&keys) {
        job.at(key, |at, (value, map)| {
            at.value(value).set(number)?;
            at.map_in(map, key).put(String::new(), number)
        });
    }
    job.settle();
    for (number, key) in (1..).zip(&keys) {
        let (value, entries) = job.at(key, |at, (value, map)| {
            Ok((at.value(value).get()?, at.map_in(map, key).entries()?))
        });
        assert_eq!(value, Some(number));
        assert_eq!(entries, [(String::new(), number)]);
    }
    assert_eq!(sorted(job.keys("value", &())), sorted(keys.to_vec()));
}

/// What is written under one key is not seen under another, also for keys that share a key group. (K-033)
pub fn keys_do_not_see_each_other(setup: &Setup) {
    let mut job = setup.clone().max_parallelism(3).start(value::<u32>);
    for key in 0..40 {
        job.at(&key, |at, state| at.value(state).set(u64::from(key) * 10));
    }
    for key in (0..40).step_by(2) {
        job.at(&key, |at, state| at.value(state).clear());
    }
    job.settle();
    for key in 0..40 {
        let expected = (key % 2 == 1).then_some(u64::from(key) * 10);
        assert_eq!(
            job.at(&key, |at, state| at.value(state).get()),
            expected,
            "key {key}"
        );
    }
}

/// What is written in one namespace is not seen in another. (K-041, K-055)
pub fn namespaces_do_not_see_each_other(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.list::<u64, u64>("list"));
    for namespace in 0..10_u64 {
        job.at(&1, |at, state| {
            at.list_in(state, &namespace).push(namespace)
        });
    }
    job.at(&1, |at, state| at.list_in(state, &4).clear());
    job.settle();
    for namespace in 0..10_u64 {
        let expected = if namespace == 4 {
            vec![]
        } else {
            vec![namespace]
        };
        assert_eq!(
            job.at(&1, |at, state| at.list_in(state, &namespace).get()),
            expected
        );
    }
}

/// Java's hash codes can be what assigns keys to groups; the groups of a key are then Flink's. (K-005, K-006)
pub fn keys_can_be_assigned_as_flink_does(setup: &Setup) {
    let setup = setup.clone().hash(HashId::Flink).max_parallelism(128);
    let mut job = setup.start(value::<String>);
    for key in ["", "a", "abc", "key-1", "hello"] {
        job.at(&key.to_owned(), |at, state| {
            at.value(state).set(key.len() as u64)
        });
    }
    job.settle();
    for (key, group) in [
        ("", 94),
        ("a", 81),
        ("abc", 115),
        ("key-1", 54),
        ("hello", 35),
    ] {
        let found = job.at(&key.to_owned(), |at, state| {
            Ok((at.key_group(), at.value(state).get()?))
        });
        assert_eq!(found, (KeyGroup(group), Some(key.len() as u64)), "{key:?}");
    }
}

/// Asking for keys ahead, of this subtask or of others, there or not, with or without namespaces, changes nothing that is read. (K-008, K-034)
pub fn keys_asked_for_ahead_read_as_before(setup: &Setup) {
    type Tokens = (ValueState<u64>, ListState<u64>, ValueState<u64, u32>);
    let mut job = setup.start(|states: &mut States<String>| -> Result<Tokens> {
        Ok((
            states.value("value")?,
            states.list("list")?,
            states.value("windowed")?,
        ))
    });
    let keys: Vec<String> = (0..200).map(|key| format!("key-{key}")).collect();
    for (n, key) in (0..).zip(&keys).step_by(2) {
        job.at(key, |at, (value, list, windowed)| {
            at.value(value).set(n)?;
            at.list(list).push(n)?;
            at.value_in(windowed, &7).set(n)
        });
    }
    job.settle();
    for subtask in 0..job.parallelism() as usize {
        let (states, _) = job.subtask(subtask);
        let hashes: Vec<KeyHash> = keys.iter().map(|key| states.hash(key)).collect();
        states.prefetch(keys.iter().zip(hashes.iter().copied()));
        states.prefetch([]);
    }
    for (n, key) in (0..).zip(&keys) {
        let expected = (n % 2 == 0).then_some(n);
        let subtask = job.subtask_of(key);
        let (states, (value, list, windowed)) = job.subtask(subtask);
        let hash = states.hash(key);
        let mut at = states.at_hashed(key, hash);
        assert_eq!(ok(at.value(value).get()), expected);
        assert_eq!(ok(at.list(list).get()), Vec::from_iter(expected));
        assert_eq!(ok(at.value_in(windowed, &7).get()), expected);
    }
}
