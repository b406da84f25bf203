//! Value states.
use super::prelude::*;

/// A value that was never set reads as none. (K-034, K-037)
pub fn an_unset_value_reads_as_none(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.value(state).get()), None);
    assert!(job.at(&2, |at, state| {
        at.value(state).with(|value| value.is_none())
    }));
}

/// A value reads as what was set last. (K-033)
pub fn the_last_set_wins(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    for round in 0..3 {
        for key in 0..5 {
            job.at(&key, |at, state| {
                at.value(state).set(u64::from(key) + 10 * round)
            });
        }
        job.settle();
        for key in 0..5 {
            assert_eq!(
                job.at(&key, |at, state| at.value(state).get()),
                Some(u64::from(key) + 10 * round)
            );
        }
    }
}

/// A value changed to none is cleared: no entry is left. (K-035)
pub fn modifying_to_none_clears(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).set(5));
    job.settle();
    let was = job.at(&1, |at, state| at.value(state).modify(Option::take));
    assert_eq!(was, Some(5));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), None);
    assert_eq!(job.entries("value"), 0);
    assert_eq!(job.keys("value", &()), []);
}

/// Modifying stores what the function leaves, and returns what it returns. (K-033)
pub fn modifying_stores_what_is_left(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let found = job.at(&1, |at, state| {
        at.value(state).modify(|value| value.replace(7))
    });
    assert_eq!(found, None);
    job.settle();
    let found = job.at(&1, |at, state| {
        at.value(state).modify(|value| value.replace(8))
    });
    assert_eq!(found, Some(7));
    job.settle();
    assert_eq!(
        job.at(&1, |at, state| at
            .value(state)
            .update(|value| std::mem::replace(value, 9))),
        8
    );
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), Some(9));
    assert_eq!(
        job.at(&2, |at, state| at.value(state).update(|value| *value)),
        0
    );
    assert_eq!(job.entries("value"), 2);
}

/// A default is read where nothing is stored, before a write and after a clear; it is never stored. (K-036)
pub fn a_default_is_read_but_never_stored(setup: &Setup) {
    let mut job =
        setup.start(|states: &mut States<u32>| states.value_with_default::<u64, ()>("value", 42));
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), Some(42));
    assert_eq!(job.entries("value"), 0);
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), Some(1));
    job.at(&1, |at, state| at.value(state).clear());
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), Some(42));
    assert_eq!(job.entries("value"), 0);
    // Starting a change from the default stores the outcome.
    job.at(&2, |at, state| at.value(state).update(|value| *value += 1));
    job.at(&3, |at, state| {
        at.value(state)
            .modify(|value| *value = value.map(|value| value * 2))
    });
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.value(state).get()), Some(43));
    assert_eq!(job.at(&3, |at, state| at.value(state).get()), Some(84));
}

/// A default that one key changed is still the default for others. (K-038)
pub fn a_default_is_not_shared_between_keys(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.value_with_default::<Vec<u64>, ()>("value", vec![1])
    });
    job.at(&1, |at, state| at.value(state).update(|list| list.push(2)));
    job.settle();
    assert_eq!(
        job.at(&1, |at, state| at.value(state).get()),
        Some(vec![1, 2])
    );
    assert_eq!(job.at(&2, |at, state| at.value(state).get()), Some(vec![1]));
}

/// States of different names are independent. (K-039)
pub fn states_of_other_names_are_independent(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.value::<u64, ()>("a")?,
            states.value::<String, ()>("b")?,
        ))
    });
    job.at(&1, |at, (a, b)| {
        at.value(a).set(1)?;
        at.value(b).set("one".to_owned())
    });
    job.at(&2, |at, (_, b)| at.value(b).set("two".to_owned()));
    job.settle();
    job.at(&1, |at, (a, _)| at.value(a).clear());
    job.settle();
    assert_eq!(
        job.at(&1, |at, (a, b)| Ok((
            at.value(a).get()?,
            at.value(b).get()?
        ))),
        (None, Some("one".to_owned()))
    );
    assert_eq!(
        job.at(&2, |at, (a, b)| Ok((
            at.value(a).get()?,
            at.value(b).get()?
        ))),
        (None, Some("two".to_owned()))
    );
    assert_eq!((job.entries("a"), job.entries("b")), (0, 2));
}

/// The number of entries follows every set and clear. (K-044)
pub fn entries_are_counted(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    assert_eq!(job.entries("value"), 0);
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    assert_eq!(job.entries("value"), 1);
    job.at(&2, |at, state| at.value(state).set(2));
    job.at(&2, |at, state| at.value(state).set(3));
    job.settle();
    assert_eq!(job.entries("value"), 2);
    job.at(&1, |at, state| at.value(state).clear());
    job.at(&1, |at, state| at.value(state).clear());
    job.settle();
    assert_eq!(job.entries("value"), 1);
    job.at(&2, |at, state| at.value(state).clear());
    job.settle();
    assert_eq!(job.entries("value"), 0);
}

/// Clearing what is not there changes nothing. (K-034)
pub fn clearing_nothing_changes_nothing(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).clear());
    job.at(&2, |at, state| at.value(state).set(2));
    job.at(&3, |at, state| at.value(state).clear());
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.value(state).get()), Some(2));
    assert_eq!(job.entries("value"), 1);
}

/// Values of any shape come back as they were: empty, nested, large. (K-068, K-119)
pub fn values_of_any_shape_come_back(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let nested = states.value::<Vec<Option<(String, Option<i64>)>>, ()>("nested")?;
        let unit = states.value::<(), ()>("unit")?;
        let option = states.value::<Option<u64>, ()>("option")?;
        let evolvable = StateOptions::new("evolvable").codec(CodecKind::Evolvable);
        Ok((
            nested,
            unit,
            option,
            states.value::<Vec<u64>, ()>(evolvable)?,
        ))
    });
    let shapes = [
        vec![],
        vec![None],
        vec![
            Some((String::new(), None)),
            None,
            Some(("x".repeat(5_000), Some(i64::MIN))),
        ],
    ];
    for (key, shape) in (0..).zip(&shapes) {
        job.at(&key, |at, (nested, unit, option, evolvable)| {
            at.value(nested).set(shape.clone())?;
            at.value(unit).set(())?;
            at.value(option).set(None)?;
            at.value(evolvable).set(vec![u64::from(key); key as usize])
        });
    }
    job.settle();
    for (key, shape) in (0..).zip(&shapes) {
        job.at(&key, |at, (nested, unit, option, evolvable)| {
            assert_eq!(at.value(nested).get()?.as_ref(), Some(shape));
            assert_eq!(at.value(unit).get()?, Some(()));
            // A stored none is there.
            assert_eq!(at.value(option).get()?, Some(None));
            assert_eq!(
                at.value(evolvable).get()?,
                Some(vec![u64::from(key); key as usize])
            );
            Ok(())
        });
    }
    assert_eq!(
        job.at(&99, |at, (_, unit, option, _)| Ok((
            at.value(unit).get()?,
            at.value(option).get()?
        ))),
        (None, None)
    );
}

/// A name can be registered once; the second registration is refused and the first one goes on. (K-042)
pub fn a_name_is_registered_once(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let token = states.value::<u64, ()>("value")?;
        fails(ErrorKind::AlreadyExists, states.value::<u64, ()>("value"));
        fails(ErrorKind::AlreadyExists, states.list::<u64, ()>("value"));
        fails(ErrorKind::InvalidArgument, states.value::<u64, ()>(""));
        Ok(token)
    });
    job.at(&1, |at, state| at.value(state).set(1));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), Some(1));
}

/// A token that was not registered, or belongs to another operator, is refused. (K-042)
pub fn a_foreign_token_is_refused(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let mut other = setup.start(value::<u32>);
    let foreign = other.subtask(0).1;
    fails(
        ErrorKind::InvalidArgument,
        job.try_at(&1, |at, _| at.value(foreign).set(1)),
    );
    fails(
        ErrorKind::InvalidArgument,
        job.try_at(&1, |at, _| at.value(ValueState::<u64>::default()).set(1)),
    );
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.value(state).get()), None);
}
