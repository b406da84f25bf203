//! Reducing and aggregating states.
use super::prelude::*;

fn sum(states: &mut States<String>) -> Result<ReducingState<u64>> {
    states.reducing("sum", |total, input: u64| checked_sum(*total, input))
}

/// Adds; the number 13 is refused, so that a rule can see what a failure leaves.
fn checked_sum(total: u64, input: u64) -> Result<u64> {
    if input == 13 {
        Err(Error::user("13 is not added"))
    } else {
        Ok(total + input)
    }
}

/// The mean of numbers; refuses 13.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean;

impl Aggregator for Mean {
    type In = u64;
    type Acc = (u64, u64);
    type Out = u64;

    fn create(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, acc: &mut (u64, u64), input: u64) -> Result<()> {
        acc.1 = checked_sum(acc.1, input)?;
        acc.0 += 1;
        Ok(())
    }

    fn merge(&self, acc: &mut (u64, u64), other: (u64, u64)) -> Result<()> {
        acc.1 = checked_sum(acc.1, other.1)?;
        acc.0 += other.0;
        Ok(())
    }

    fn result(&self, acc: &(u64, u64)) -> u64 {
        acc.1.checked_div(acc.0).unwrap_or(0)
    }
}

/// Collects words in an accumulator on the heap.
#[derive(Clone, Copy, Debug)]
struct Words;

impl Aggregator for Words {
    type In = &'static str;
    type Acc = Vec<String>;
    type Out = String;

    fn create(&self) -> Vec<String> {
        vec!["<".to_owned()]
    }

    fn add(&self, acc: &mut Vec<String>, input: &'static str) -> Result<()> {
        if input.is_empty() {
            return Err(Error::user("a word has letters"));
        }
        acc.push(input.to_owned());
        Ok(())
    }

    fn merge(&self, acc: &mut Vec<String>, other: Vec<String>) -> Result<()> {
        acc.extend(other);
        Ok(())
    }

    fn result(&self, acc: &Vec<String>) -> String {
        acc.concat()
    }
}

/// A reducing state to which nothing was added has no result. (K-071)
pub fn nothing_added_gives_none(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<String>| {
        Ok((sum(states)?, states.aggregating::<_, ()>("mean", Mean)?))
    });
    job.settle();
    assert_eq!(
        job.at(&"abc".to_owned(), |at, (sum, mean)| Ok((
            at.reducing(sum).get()?,
            at.aggregating(mean).get()?
        ))),
        (None, None)
    );
}

/// What is added is reduced key by key. (K-072)
pub fn inputs_are_reduced_key_by_key(setup: &Setup) {
    let mut job = setup.start(sum);
    let inputs = [
        ("def", 17),
        ("g", 1),
        ("def", 11),
        ("g", 2),
        ("g", 3),
        ("g", 2),
        ("g", 1),
    ];
    for (key, input) in inputs {
        job.at(&key.to_owned(), |at, state| at.reducing(state).add(input));
    }
    job.settle();
    assert_eq!(
        job.at(&"abc".to_owned(), |at, state| at.reducing(state).get()),
        None
    );
    assert_eq!(
        job.at(&"def".to_owned(), |at, state| at.reducing(state).get()),
        Some(28)
    );
    assert_eq!(
        job.at(&"g".to_owned(), |at, state| at.reducing(state).get()),
        Some(9)
    );
    job.at(&"def".to_owned(), |at, state| at.reducing(state).clear());
    job.settle();
    assert_eq!(
        job.at(&"def".to_owned(), |at, state| at.reducing(state).get()),
        None
    );
    assert_eq!(
        job.at(&"g".to_owned(), |at, state| at.reducing(state).get()),
        Some(9)
    );
    job.at(&"g".to_owned(), |at, state| at.reducing(state).clear());
    job.settle();
    assert_eq!(job.entries("sum"), 0);
}

/// What is added is folded into one accumulator per key, made once. (K-074, K-075, K-078)
pub fn inputs_are_folded_into_one_accumulator(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.aggregating::<_, ()>("mean", Mean)?,
            states.aggregating::<_, ()>("words", Words)?,
        ))
    });
    for (input, word) in [(1, "a"), (2, "b"), (6, "c")] {
        job.at(&1, |at, (mean, words)| {
            at.aggregating(mean).add(input)?;
            at.aggregating(words).add(word)
        });
        job.settle();
    }
    job.at(&2, |at, (mean, _)| at.aggregating(mean).add(10));
    job.settle();
    assert_eq!(
        job.at(&1, |at, (mean, _)| at.aggregating(mean).get()),
        Some(3)
    );
    assert_eq!(
        job.at(&1, |at, (_, words)| at.aggregating(words).get()),
        Some("<abc".to_owned())
    );
    assert_eq!(
        job.at(&2, |at, (mean, words)| Ok((
            at.aggregating(mean).get()?,
            at.aggregating(words).get()?
        ))),
        (Some(10), None)
    );
    job.at(&1, |at, (mean, words)| {
        at.aggregating(mean).clear()?;
        at.aggregating(words).clear()
    });
    job.settle();
    assert_eq!(
        job.at(&1, |at, (_, words)| at.aggregating(words).get()),
        None
    );
    assert_eq!((job.entries("mean"), job.entries("words")), (1, 0));
}

/// A function that fails hands its error on and leaves the value as it was. (K-077)
pub fn a_failing_function_leaves_the_value(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<String>| {
        let words = states.aggregating::<_, ()>("words", Words)?;
        Ok((
            sum(states)?,
            states.aggregating::<_, ()>("mean", Mean)?,
            words,
        ))
    });
    let key = "k".to_owned();
    job.at(&key, |at, (sum, mean, words)| {
        at.reducing(sum).add(5)?;
        at.aggregating(mean).add(5)?;
        at.aggregating(words).add("five")
    });
    job.settle();
    fails(
        ErrorKind::User,
        job.try_at(&key, |at, (sum, ..)| at.reducing(sum).add(13)),
    );
    fails(
        ErrorKind::User,
        job.try_at(&key, |at, (_, mean, _)| at.aggregating(mean).add(13)),
    );
    fails(
        ErrorKind::User,
        job.try_at(&key, |at, (.., words)| at.aggregating(words).add("")),
    );
    // A first input that fails leaves nothing behind either.
    fails(
        ErrorKind::User,
        job.try_at(&"new".to_owned(), |at, (_, mean, _)| {
            at.aggregating(mean).add(13)
        }),
    );
    fails(
        ErrorKind::User,
        job.try_at(&"new".to_owned(), |at, (.., words)| {
            at.aggregating(words).add("")
        }),
    );
    job.settle();
    assert_eq!(
        job.at(&key, |at, (sum, ..)| at.reducing(sum).get()),
        Some(5)
    );
    assert_eq!(
        job.at(&key, |at, (_, mean, _)| at.aggregating(mean).get()),
        Some(5)
    );
    assert_eq!(
        job.at(&key, |at, (.., words)| at.aggregating(words).get()),
        Some("<five".to_owned())
    );
    assert_eq!(
        job.at(&"new".to_owned(), |at, (_, mean, _)| at
            .aggregating(mean)
            .get()),
        None
    );
    assert_eq!(
        job.at(&"new".to_owned(), |at, (.., words)| at
            .aggregating(words)
            .get()),
        None
    );
}

/// Merging namespaces reduces all of them into the target and removes the sources. (K-073, K-078)
pub fn merging_namespaces_reduces_into_the_target(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<String>| {
        states.reducing::<u64, u32>("sum", |total, input| checked_sum(*total, input))
    });
    fill_namespaces(&mut job, |at, state, namespace, element| {
        at.reducing_in(state, &namespace).add(element)
    });
    job.settle();
    for key in NAMESPACE_KEYS {
        job.at(&key.to_owned(), |at, state| {
            at.merge_reducing(state, &1, &[2, 3])
        });
    }
    job.settle();
    for key in NAMESPACE_KEYS {
        let key = key.to_owned();
        let merged = job.at(&key, |at, state| at.reducing_in(state, &1).get());
        assert_eq!(merged, (key != "ghi").then_some(165), "{key}");
        for source in [2, 3] {
            assert_eq!(
                job.at(&key, |at, state| at.reducing_in(state, &source).get()),
                None,
                "{key}"
            );
        }
        job.at(&key, |at, state| at.reducing_in(state, &1).clear());
    }
    job.settle();
    assert_eq!(job.entries("sum"), 0);
}

/// Merging namespaces merges all accumulators into that of the target and removes the sources. (K-076, K-078)
pub fn merging_namespaces_merges_the_accumulators(setup: &Setup) {
    let mut job =
        setup.start(|states: &mut States<String>| states.aggregating::<_, u32>("mean", Mean));
    fill_namespaces(&mut job, |at, state, namespace, element| {
        at.aggregating_in(state, &namespace).add(element)
    });
    job.settle();
    for key in NAMESPACE_KEYS {
        job.at(&key.to_owned(), |at, state| {
            at.merge_aggregating(state, &1, &[2, 2, 3, 1])
        });
    }
    job.settle();
    for key in NAMESPACE_KEYS {
        let key = key.to_owned();
        let merged = job.at(&key, |at, state| at.aggregating_in(state, &1).get());
        assert_eq!(merged, (key != "ghi").then_some(33), "{key}");
        job.at(&key, |at, state| at.aggregating_in(state, &1).clear());
    }
    job.settle();
    assert_eq!(job.entries("mean"), 0);
}

/// A merge of namespaces that fails leaves all of them as they were. (K-077)
pub fn a_failing_merge_leaves_all_namespaces(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.reducing::<u64, u32>("sum", |total, input| checked_sum(*total, input))
    });
    for (namespace, input) in [(1, 1), (2, 2), (3, 13), (4, 4)] {
        job.at(&1, |at, state| at.reducing_in(state, &namespace).add(input));
    }
    job.settle();
    fails(
        ErrorKind::User,
        job.try_at(&1, |at, state| at.merge_reducing(state, &1, &[2, 3, 4])),
    );
    job.settle();
    for (namespace, input) in [(1, 1), (2, 2), (3, 13), (4, 4)] {
        assert_eq!(
            job.at(&1, |at, state| at.reducing_in(state, &namespace).get()),
            Some(input)
        );
    }
}
