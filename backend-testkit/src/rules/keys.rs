//! Going through the keys of a state.
use super::prelude::*;

/// Each key of a namespace comes once, and no key of another namespace. (K-079)
pub fn keys_of_a_namespace_come_once(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.value::<u64, u32>("value"));
    for key in 0..1_000 {
        job.at(&key, |at, state| at.value_in(state, &1).set(1));
        job.at(&(key + 1_000), |at, state| at.value_in(state, &2).set(2));
    }
    job.settle();
    assert_eq!(
        sorted(job.keys("value", &1_u32)),
        (0..1_000).collect::<Vec<_>>()
    );
    assert_eq!(
        sorted(job.keys("value", &2_u32)),
        (1_000..2_000).collect::<Vec<_>>()
    );
    assert_eq!(job.keys("value", &3_u32), []);
}

/// Each pair of key and namespace comes once. (K-080)
pub fn pairs_of_key_and_namespace_come_once(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.list::<u64, u32>("list"));
    for key in 0..100 {
        for namespace in 0..3 {
            job.at(&key, |at, state| {
                at.list_in(state, &namespace).extend(vec![1, 2])
            });
        }
        job.at(&key, |at, state| at.list_in(state, &(key % 3)).clear());
    }
    job.settle();
    let expected: Vec<(u32, u32)> = (0..100)
        .flat_map(|key| (0..3).filter(move |n| *n != key % 3).map(move |n| (key, n)))
        .collect();
    assert_eq!(sorted(job.keys_and_namespaces::<u32>("list")), expected);
}

/// A state that was not registered has no keys, which is no error. (K-081)
pub fn an_unknown_state_has_no_keys(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    assert_eq!(job.keys("unknown", &()), []);
    assert_eq!(job.keys_and_namespaces::<u32>("unknown"), []);
}

/// Asking for keys in a namespace of another type is refused. (K-216)
pub fn a_namespace_of_another_type_is_refused(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    let (states, _) = job.subtask(0);
    fails(ErrorKind::InvalidArgument, states.keys("value", &7_u64));
    fails(
        ErrorKind::InvalidArgument,
        states.for_each_key("value", &"x".to_owned(), |_| Ok(())),
    );
}

/// While going through all keys, the state itself may be cleared. (K-082)
pub fn a_state_may_be_cleared_while_its_keys_are_visited(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    for key in 0..1_000 {
        job.at(&key, |at, state| at.value(state).set(u64::from(key)));
    }
    job.settle();
    let mut visited = Vec::new();
    for subtask in 0..job.parallelism() as usize {
        let (states, token) = job.subtask(subtask);
        let visit = states.for_each_key("value", &(), |at| {
            visited.push(*at.key());
            if at.key() % 2 == 0 {
                at.value(token).clear()
            } else {
                Ok(())
            }
        });
        visit.unwrap();
    }
    assert_eq!(sorted(visited), (0..1_000).collect::<Vec<_>>());
    job.settle();
    assert_eq!(
        sorted(job.keys("value", &())),
        (0..1_000).filter(|key| key % 2 == 1).collect::<Vec<_>>()
    );
}

/// While going through all keys, other states may be written. (K-083)
pub fn another_state_may_be_written_while_keys_are_visited(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((states.value::<u64, ()>("a")?, states.list::<u64, ()>("b")?))
    });
    for key in 0..300 {
        job.at(&key, |at, (a, _)| at.value(a).set(u64::from(key)));
    }
    job.settle();
    for subtask in 0..job.parallelism() as usize {
        let (states, (a, b)) = job.subtask(subtask);
        let visit = states.for_each_key("a", &(), |at| {
            let value = at.value(a).get()?.unwrap_or_default();
            at.value(a).set(value + 1)?;
            at.list(b).push(value)
        });
        visit.unwrap();
    }
    job.settle();
    assert_eq!(sorted(job.keys("b", &())), (0..300).collect::<Vec<_>>());
    for key in 0..300 {
        let found = job.at(&key, |at, (a, b)| {
            Ok((at.value(a).get()?, at.list(b).get()?))
        });
        assert_eq!(found, (Some(u64::from(key) + 1), vec![u64::from(key)]));
    }
}

/// An error of the visitor ends the visit and is handed on. (K-082)
pub fn an_error_while_keys_are_visited_is_handed_on(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let key = (0..).find(|key| job.subtask_of(key) == 0).unwrap();
    job.at(&key, |at, state| at.value(state).set(1));
    let (states, _) = job.subtask(0);
    fails(
        ErrorKind::User,
        states.for_each_key("value", &(), |_| Err(Error::user("enough"))),
    );
}
