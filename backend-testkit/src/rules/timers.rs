//! Timers.
use super::prelude::*;

fn timers(states: &mut States<String>) -> Result<Timers<u32>> {
    states.timers("timers")
}

fn set(job: &mut Job<String, Timers<u32>>, key: &str, namespace: u32, time: i64) -> bool {
    job.at(&key.to_owned(), |at, timers| {
        at.timers_in(timers, &namespace).set(time)
    })
}

fn remove(job: &mut Job<String, Timers<u32>>, key: &str, namespace: u32, time: i64) -> bool {
    job.at(&key.to_owned(), |at, timers| {
        at.timers_in(timers, &namespace).remove(time)
    })
}

fn fire(job: &mut Job<String, Timers<u32>>, up_to: i64) -> Vec<Vec<(i64, String, u32)>> {
    job.fire(|timers| timers.erase::<String>(), up_to)
}

/// Setting a timer says whether it became the earliest of its subtask. (K-084)
pub fn setting_says_whether_the_earliest_changed(setup: &Setup) {
    let mut job = setup.start(timers);
    // All under keys of one subtask, as a queue sees them.
    let mut of_first = (0..)
        .map(|n| format!("k{n}"))
        .filter(|key| job.subtask_of(key) == 0);
    let (a, b) = (of_first.next().unwrap(), of_first.next().unwrap());
    drop(of_first);
    assert!(set(&mut job, &a, 1, 44));
    assert!(set(&mut job, &b, 1, 1));
    assert!(!set(&mut job, &b, 1, 1));
    assert!(!set(&mut job, &b, 1, 3));
    assert!(!set(&mut job, &a, 1, 42));
    job.settle();
    let first = job.subtask_of(&a);
    let (states, token) = job.subtask(first);
    assert_eq!(states.next_timer(token.erase::<String>()).unwrap(), Some(1));
}

/// A timer set twice is there once. (K-085)
pub fn a_timer_set_twice_fires_once(setup: &Setup) {
    let mut job = setup.start(timers);
    set(&mut job, "a", 1, 10);
    job.settle();
    assert!(!set(&mut job, "a", 1, 10));
    assert_eq!(job.entries("timers"), 1);
    job.settle();
    let fired: Vec<_> = fire(&mut job, 10).concat();
    assert_eq!(fired, [(10, "a".to_owned(), 1)]);
    assert_eq!(job.entries("timers"), 0);
}

/// Timers fire in the order of their times, in each subtask; those that are not due stay. (K-086, K-088)
pub fn timers_fire_in_order(setup: &Setup) {
    let mut job = setup.start(timers);
    let times = [5, -7, 300, 256, 255, i64::MIN, 0, i64::MAX, 5, -1];
    for key in 0..20 {
        for (namespace, time) in (0..).zip(times) {
            set(&mut job, &format!("k{key}"), namespace, time);
        }
    }
    job.settle();
    let early = fire(&mut job, 255);
    for fired in &early {
        assert!(fired.is_sorted_by_key(|(time, ..)| *time), "{fired:?}");
    }
    let expected = |due: &dyn Fn(i64) -> bool| {
        let of_key = |key: u32| {
            (0..)
                .zip(times)
                .map(move |(namespace, time)| (time, format!("k{key}"), namespace))
        };
        sorted(
            (0..20)
                .flat_map(of_key)
                .filter(|(time, ..)| due(*time))
                .collect(),
        )
    };
    assert_eq!(sorted(early.concat()), expected(&|time| time <= 255));
    job.settle();
    assert_eq!(
        sorted(fire(&mut job, i64::MAX).concat()),
        expected(&|time| time > 255)
    );
    assert_eq!(fire(&mut job, i64::MAX).concat(), []);
    assert_eq!(job.entries("timers"), 0);
}

/// Removing a timer says whether the earliest changed; one that is not there changes nothing. (K-087)
pub fn removing_says_whether_the_earliest_changed(setup: &Setup) {
    let mut job = setup.start(timers);
    for time in [10, 20, 30] {
        set(&mut job, "a", 1, time);
    }
    job.settle();
    assert!(!remove(&mut job, "a", 1, 20));
    assert!(!remove(&mut job, "a", 2, 10), "another namespace");
    assert!(!remove(&mut job, "a", 1, 11));
    assert!(remove(&mut job, "a", 1, 10));
    job.settle();
    assert_eq!(fire(&mut job, 100).concat(), [(30, "a".to_owned(), 1)]);
}

/// A timer fires in the subtask that owns its key, also after a change of parallelism. (K-089, K-092)
pub fn timers_fire_where_their_key_is(setup: &Setup) {
    let mut job = setup.start(timers);
    for key in 0..100 {
        set(&mut job, &format!("k{key}"), 0, key);
    }
    job.settle();
    let fired = fire(&mut job, 1_000);
    assert_eq!(fired.concat().len(), 100);
    for (subtask, timers) in fired.iter().enumerate() {
        for (_, key, _) in timers {
            assert_eq!(job.subtask_of(key), subtask, "{key}");
        }
    }
}

/// Sets of timers of other names are independent. (K-092)
pub fn sets_of_timers_are_independent(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.timers::<()>("event")?,
            states.timers::<u64>("processing")?,
        ))
    });
    job.at(&1, |at, (event, processing)| {
        at.timers(event).set(10)?;
        at.timers_in(processing, &7).set(10)?;
        at.timers_in(processing, &7).set(5)
    });
    job.settle();
    assert_eq!(
        job.fire::<()>(|(event, _)| event.erase::<u32>(), 10)
            .concat(),
        [(10, 1, ())]
    );
    job.settle();
    assert_eq!(
        job.fire::<u64>(|(_, processing)| processing.erase::<u32>(), 10)
            .concat(),
        [(5, 1, 7), (10, 1, 7)]
    );
}

/// Many timers, more than any cache holds, fire as a plain sorted set does, with others set and removed in between. (K-091)
pub fn many_timers_fire_as_a_sorted_set(setup: &Setup) {
    let mut job = setup.clone().max_parallelism(3).start(timers);
    let mut expected = BTreeSet::new();
    let mut random = 12_345_u64;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for round in 0..4 {
        for _ in 0..700 {
            let (key, time) = (format!("k{}", next() % 40), (next() % 5_000) as i64);
            if next() % 4 == 0 {
                remove(&mut job, &key, 0, time);
                expected.remove(&(time, key));
            } else {
                set(&mut job, &key, 0, time);
                expected.insert((time, key));
            }
        }
        if round == 1 {
            job.settle();
        }
        let up_to = 1_000 * (round + 1);
        let fired = fire(&mut job, up_to);
        assert!(
            fired
                .iter()
                .all(|fired| fired.is_sorted_by_key(|(time, ..)| *time))
        );
        let fired: BTreeSet<_> = fired
            .concat()
            .into_iter()
            .map(|(time, key, _)| (time, key))
            .collect();
        let due: BTreeSet<_> = expected
            .iter()
            .filter(|(time, _)| *time <= up_to)
            .cloned()
            .collect();
        assert_eq!(fired, due, "round {round}");
        expected.retain(|(time, _)| *time > up_to);
        assert_eq!(job.entries("timers"), expected.len() as u64);
    }
}
