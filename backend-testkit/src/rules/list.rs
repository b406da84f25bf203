//! List states.
use super::prelude::*;

fn list(states: &mut States<u32>) -> Result<ListState<u64>> {
    states.list("list")
}

/// A list that was never written is empty; a list has no default. (K-048, K-053)
pub fn an_unset_list_is_empty(setup: &Setup) {
    let mut job = setup.start(list);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), []);
    assert_eq!(job.at(&1, |at, state| at.list(state).len()), 0);
    assert!(job.at(&1, |at, state| at.list(state).is_empty()));
    assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), None);
    assert_eq!(job.entries("list"), 0);
}

/// Pushing, extending and replacing give the elements in order, key by key. (K-049)
pub fn elements_keep_their_order(setup: &Setup) {
    let mut job = setup.start(list);
    job.at(&1, |at, state| at.list(state).push(17));
    job.at(&1, |at, state| at.list(state).push(11));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [17, 11]);
    job.at(&1, |at, state| at.list(state).replace(vec![]));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), []);
    job.at(&1, |at, state| at.list(state).replace(vec![10, 16]));
    job.at(&2, |at, state| at.list(state).extend(vec![]));
    job.at(&2, |at, state| at.list(state).extend(vec![3, 4]));
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.list(state).get()), [3, 4]);
    job.at(&2, |at, state| at.list(state).extend(vec![]));
    job.at(&2, |at, state| at.list(state).extend(vec![5, 6]));
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.list(state).get()), [3, 4, 5, 6]);
    job.at(&2, |at, state| at.list(state).replace(vec![1, 2]));
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.list(state).get()), [1, 2]);
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [10, 16]);
}

/// An empty list and no list are the same: no entry, no key. (K-050, K-056)
pub fn an_empty_list_is_no_list(setup: &Setup) {
    let mut job = setup.start(list);
    job.at(&1, |at, state| at.list(state).extend(vec![1, 2]));
    job.at(&2, |at, state| at.list(state).extend(vec![]));
    job.at(&3, |at, state| at.list(state).push(3));
    job.at(&4, |at, state| at.list(state).push(4));
    job.settle();
    assert_eq!(job.entries("list"), 3);
    job.at(&1, |at, state| at.list(state).replace(vec![]));
    assert_eq!(job.at(&3, |at, state| at.list(state).pop_front()), Some(3));
    job.at(&4, |at, state| at.list(state).retain(|_| false));
    job.settle();
    assert_eq!(job.entries("list"), 0);
    assert_eq!(job.keys("list", &()), []);
}

/// Retaining keeps order and drops the rest; popping takes from the front. (K-049)
pub fn retaining_and_popping_leave_the_rest(setup: &Setup) {
    let mut job = setup.start(list);
    job.at(&1, |at, state| at.list(state).extend((0..1_000).collect()));
    job.settle();
    job.at(&1, |at, state| {
        at.list(state).retain(|element| element % 3 == 0)
    });
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), Some(0));
    assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), Some(3));
    job.at(&1, |at, state| at.list(state).push(7));
    job.settle();
    let expected: Vec<u64> = (6..1_000).step_by(3).chain([7]).collect();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), expected);
    assert_eq!(job.at(&1, |at, state| at.list(state).len()), expected.len());
}

/// Going through a list stops at the first error and hands it on; the list stays. (K-051, K-052)
pub fn an_error_of_the_visitor_stops_the_visit(setup: &Setup) {
    let mut job = setup.start(list);
    job.at(&1, |at, state| at.list(state).extend(vec![1, 2, 3]));
    job.settle();
    let mut seen = Vec::new();
    let result = job.try_at(&1, |at, state| {
        at.list(state).for_each(|element| {
            seen.push(*element);
            if *element == 2 {
                Err(Error::user("enough"))
            } else {
                Ok(())
            }
        })
    });
    fails(ErrorKind::User, result);
    assert_eq!(seen, [1, 2]);
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [1, 2, 3]);
}

/// Elements of a long list, and the bytes that they take, which is more than fits into one page of a store.
const LONG: u64 = 4_000;

/// A long list is a queue: what is popped from its front is gone, what is pushed comes last, and its length is right all along. (K-049, K-050)
pub fn a_long_list_is_popped_and_appended_to(setup: &Setup) {
    let mut job = setup.start(list);
    job.at(&1, |at, state| at.list(state).extend((0..LONG).collect()));
    job.at(&2, |at, state| at.list(state).push(7));
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).len()), LONG as usize);
    for turn in 0..4 {
        for n in turn * 300..(turn + 1) * 300 {
            assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), Some(n));
            if n % 3 == 0 {
                job.at(&1, |at, state| at.list(state).push(LONG + n / 3));
            }
        }
        job.settle();
        assert_eq!(job.entries("list"), 2);
    }
    assert_eq!(sorted(job.keys("list", &())), [1, 2]);
    let expected: Vec<u64> = (1_200..LONG + 400).collect();
    assert_eq!(job.at(&1, |at, state| at.list(state).len()), expected.len());
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), expected);
    job.settle();
    for n in expected {
        assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), Some(n));
    }
    assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), None);
    job.settle();
    assert_eq!(job.entries("list"), 1);
    assert_eq!(job.at(&2, |at, state| at.list(state).get()), [7]);
}

/// A long list is replaced, cleared and shortened by choice without a trace of what was there. (K-049, K-050)
pub fn a_long_list_is_shortened_replaced_and_cleared(setup: &Setup) {
    let mut job = setup.start(list);
    let long = || (0..LONG).collect::<Vec<u64>>();
    for key in 1..=5 {
        job.at(&key, |at, state| at.list(state).extend(long()));
        job.at(&key, |at, state| at.list(state).pop_front());
    }
    job.settle();
    job.at(&1, |at, state| at.list(state).retain(|n| n % 7 == 0));
    job.at(&2, |at, state| at.list(state).retain(|n| *n >= LONG - 3));
    job.at(&3, |at, state| at.list(state).replace(vec![1, 2]));
    job.at(&4, |at, state| at.list(state).clear());
    job.at(&5, |at, state| at.list(state).retain(|_| false));
    job.settle();
    assert_eq!(job.entries("list"), 3);
    let sevens: Vec<u64> = (7..LONG).step_by(7).collect();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), sevens);
    for (key, left) in [
        (2, vec![LONG - 3, LONG - 2, LONG - 1]),
        (3, vec![1, 2]),
        (4, vec![]),
        (5, vec![]),
    ] {
        assert_eq!(
            job.at(&key, |at, state| at.list(state).get()),
            left,
            "{key}"
        );
        job.at(&key, |at, state| at.list(state).push(9));
    }
    job.settle();
    assert_eq!(job.at(&2, |at, state| at.list(state).len()), 4);
    assert_eq!(job.at(&4, |at, state| at.list(state).get()), [9]);
    assert_eq!(job.at(&5, |at, state| at.list(state).pop_front()), Some(9));
}

/// Long lists of namespaces are merged in order, whether something was popped from them before or not. (K-055)
pub fn long_lists_of_namespaces_are_merged(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.list::<u64, u32>("list"));
    for (namespace, first) in [(1, 0), (2, LONG), (3, 2 * LONG)] {
        job.at(&1, |at, state| {
            let mut list = at.list_in(state, &namespace);
            list.extend((first..first + LONG).collect())
        });
    }
    for namespace in [1, 3] {
        job.at(&1, |at, state| at.list_in(state, &namespace).pop_front());
    }
    job.settle();
    job.at(&1, |at, state| at.merge_lists(state, &1, &[2, 3]));
    job.settle();
    assert_eq!(job.entries("list"), 1);
    let expected: Vec<u64> = (1..3 * LONG).filter(|n| *n != 2 * LONG).collect();
    assert_eq!(
        job.at(&1, |at, state| at.list_in(state, &1).get()),
        expected
    );
    assert_eq!(
        job.at(&1, |at, state| at.list_in(state, &1).pop_front()),
        Some(1)
    );
    assert_eq!(job.at(&1, |at, state| at.list_in(state, &3).get()), []);
}

/// Elements of any bytes are apart from each other, empty ones too. (K-057)
pub fn elements_of_any_bytes_come_back(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.list::<Vec<u8>, ()>("bytes")?,
            states.list::<(), ()>("units")?,
        ))
    });
    let elements = vec![
        vec![],
        vec![b','],
        vec![0, 0xFF],
        vec![],
        vec![b'|'; 300],
        vec![2; 70_000],
    ];
    for element in &elements {
        job.at(&1, |at, (bytes, units)| {
            at.list(bytes).push(element.clone())?;
            at.list(units).push(())
        });
    }
    job.settle();
    assert_eq!(job.at(&1, |at, (bytes, _)| at.list(bytes).get()), elements);
    assert_eq!(
        job.at(&1, |at, (_, units)| at.list(units).len()),
        elements.len()
    );
}

/// Merging namespaces moves all elements behind those of the target and leaves nothing in the sources. (K-055, K-056)
pub fn merging_namespaces_moves_the_elements(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<String>| states.list::<u64, u32>("list"));
    fill_namespaces(&mut job, |at, state, namespace, element| {
        at.list_in(state, &namespace).push(element)
    });
    job.settle();
    for key in NAMESPACE_KEYS {
        job.at(&key.to_owned(), |at, state| {
            at.merge_lists(state, &1, &[2, 3])
        });
    }
    job.settle();
    for key in NAMESPACE_KEYS {
        let key = key.to_owned();
        let merged = job.at(&key, |at, state| at.list_in(state, &1).get());
        assert_eq!(
            merged.iter().sum::<u64>(),
            if key == "ghi" { 0 } else { 165 },
            "{key}"
        );
        for source in [2, 3] {
            assert_eq!(
                job.at(&key, |at, state| at.list_in(state, &source).get()),
                [],
                "{key}"
            );
        }
    }
    assert_eq!(job.entries("list"), 4);
    for key in NAMESPACE_KEYS {
        job.at(&key.to_owned(), |at, state| at.list_in(state, &1).clear());
    }
    job.settle();
    assert_eq!(job.entries("list"), 0);
}

/// The order of merged elements is that of the namespaces as they are named, the target first. (K-055)
pub fn merged_elements_follow_the_order_of_namespaces(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.list::<u64, u32>("list"));
    for (namespace, elements) in [(3, vec![30, 31]), (1, vec![10]), (2, vec![20])] {
        job.at(&1, |at, state| {
            at.list_in(state, &namespace).extend(elements)
        });
    }
    job.settle();
    // Naming the target among the sources, or a source twice, moves nothing twice.
    job.at(&1, |at, state| at.merge_lists(state, &1, &[3, 1, 2, 3, 9]));
    job.settle();
    assert_eq!(
        job.at(&1, |at, state| at.list_in(state, &1).get()),
        [10, 30, 31, 20]
    );
    assert_eq!(job.entries("list"), 1);
}

/// While going through the elements of a list, other states and the list itself may be written. (K-083)
pub fn a_list_may_be_written_while_it_is_visited(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.list::<u64, ()>("list")?,
            states.value::<u64, ()>("sum")?,
        ))
    });
    job.at(&1, |at, (list, _)| at.list(list).extend(vec![1, 2, 3]));
    job.settle();
    job.at(&1, |at, (list, sum)| {
        at.for_each_element(list, |at, element| {
            at.value(sum).update(|sum| *sum += element)?;
            at.list(list).push(element * 10)
        })
    });
    job.settle();
    assert_eq!(
        job.at(&1, |at, (list, _)| at.list(list).get()),
        [1, 2, 3, 10, 20, 30]
    );
    assert_eq!(job.at(&1, |at, (_, sum)| at.value(sum).get()), Some(6));
}
