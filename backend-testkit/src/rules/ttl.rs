//! Times-to-live. The clock stands at 1,000 ms when a rule starts.
use super::prelude::*;

fn ttl(ms: u64) -> TtlConfig {
    TtlConfig::new(Duration::from_millis(ms)).unwrap()
}

fn timed(states: &mut States<u32>, config: TtlConfig) -> Result<ValueState<u64>> {
    states.value(StateOptions::new("value").ttl(config))
}

fn get(job: &mut Job<u32, ValueState<u64>>, key: u32) -> Option<u64> {
    job.at(&key, |at, state| at.value(state).get())
}

/// A state with a time-to-live that does not end is a state like others. (K-043, K-171, K-172, K-177)
pub fn a_far_expiry_changes_nothing(setup: &Setup) {
    let mut job = setup.start(|states| timed(states, ttl(u64::MAX)));
    assert_eq!(get(&mut job, 1), None);
    job.at(&1, |at, state| at.value(state).set(1));
    job.at(&2, |at, state| at.value(state).set(2));
    job.settle();
    setup.clock.set(i64::MAX - 1);
    assert_eq!(
        (get(&mut job, 1), get(&mut job, 2), get(&mut job, 3)),
        (Some(1), Some(2), None)
    );
    job.at(&1, |at, state| {
        at.value(state).modify(|value| *value = None)
    });
    job.settle();
    assert_eq!(get(&mut job, 1), None);
    assert_eq!(job.entries("value"), 1);
}

/// Expiry counts from the latest write, the boundary belongs to it, and the read that finds it removes the entry. (K-173, K-178)
pub fn expiry_counts_from_the_latest_write(setup: &Setup) {
    let start = 1_000;
    let mut job = setup.start(|states| timed(states, ttl(100).without_background_cleanup()));
    job.at(&1, |at, state| at.value(state).set(1));
    setup.clock.set(start + 20);
    job.settle();
    assert_eq!(get(&mut job, 1), Some(1));
    setup.clock.set(start + 50);
    job.at(&1, |at, state| at.value(state).set(2));
    setup.clock.set(start + 120);
    job.settle();
    assert_eq!(get(&mut job, 1), Some(2));
    setup.clock.set(start + 149);
    assert_eq!(get(&mut job, 1), Some(2));
    setup.clock.set(start + 150);
    assert_eq!(get(&mut job, 1), None);
    assert_eq!(job.entries("value"), 0);
    setup.clock.set(start + 170);
    job.at(&1, |at, state| at.value(state).update(|value| *value += 7));
    setup.clock.set(start + 220);
    job.settle();
    assert_eq!(get(&mut job, 1), Some(7));
    setup.clock.set(start + 300);
    assert_eq!(get(&mut job, 1), None);
}

/// With relaxed visibility the read that finds an expired entry sees it once more. (K-174)
pub fn relaxed_visibility_shows_an_expired_value_once(setup: &Setup) {
    let mut job = setup.start(|states| {
        timed(
            states,
            ttl(100)
                .without_background_cleanup()
                .visibility(TtlVisibility::ReturnExpiredIfNotCleanedUp),
        )
    });
    job.at(&1, |at, state| at.value(state).set(1));
    setup.clock.advance(200);
    job.settle();
    assert_eq!(get(&mut job, 1), Some(1));
    assert_eq!(get(&mut job, 1), None);
    // A write does not start from an expired value.
    job.at(&2, |at, state| at.value(state).set(5));
    setup.clock.advance(200);
    job.settle();
    assert_eq!(
        job.at(&2, |at, state| at
            .value(state)
            .update(|value| std::mem::replace(value, 6))),
        0
    );
}

/// With renewal on reads, a value that is read often enough never expires. (K-175, K-176)
pub fn reads_renew_if_told_to(setup: &Setup) {
    for visibility in [
        TtlVisibility::NeverReturnExpired,
        TtlVisibility::ReturnExpiredIfNotCleanedUp,
    ] {
        let mut job = setup.start(move |states| {
            let config = ttl(100)
                .update(TtlUpdate::OnReadAndWrite)
                .visibility(visibility);
            timed(states, config.without_background_cleanup())
        });
        job.at(&1, |at, state| at.value(state).set(1));
        for _ in 0..4 {
            setup.clock.advance(70);
            job.settle();
            assert_eq!(get(&mut job, 1), Some(1));
        }
        setup.clock.advance(100);
        job.settle();
        let last_look = (visibility == TtlVisibility::ReturnExpiredIfNotCleanedUp).then_some(1);
        assert_eq!(get(&mut job, 1), last_look);
        assert_eq!(get(&mut job, 1), None);
    }
}

/// Reads of lists and maps renew what they read if told to. (K-175, K-180, K-181)
pub fn reads_of_collections_renew_if_told_to(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let options =
            |name: &str| StateOptions::new(name).ttl(ttl(100).update(TtlUpdate::OnReadAndWrite));
        let sum = |total: &u64, input: u64| Ok(total + input);
        let list = states.list::<u64, ()>(options("list"))?;
        Ok((
            list,
            states.map::<u64, u64, ()>(options("map"))?,
            states.reducing::<u64, ()>(options("sum"), sum)?,
        ))
    });
    job.at(&1, |at, (list, map, sum)| {
        at.list(list).extend(vec![1, 2])?;
        at.map(map).put_all(vec![(1, 1), (2, 2)])?;
        at.reducing(sum).add(3)
    });
    for _ in 0..3 {
        setup.clock.advance(70);
        job.settle();
        job.at(&1, |at, (list, map, sum)| {
            assert_eq!(at.list(list).get()?, [1, 2]);
            assert_eq!(at.map(map).get(&1)?, Some(1));
            assert_eq!(at.reducing(sum).get()?, Some(3));
            Ok(())
        });
    }
    // The other map entry was never read.
    assert_eq!(job.at(&1, |at, (_, map, _)| at.map(map).get(&2)), None);
    assert_eq!(
        job.at(&1, |at, (_, map, _)| at.map(map).entries()),
        [(1, 1)]
    );
}

/// Map entries expire one by one, in every way of reading. (K-180)
pub fn map_entries_expire_one_by_one(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.map::<String, u64, ()>(StateOptions::new("map").ttl(ttl(100)))
    });
    let (old, new) = ("old".to_owned(), "new".to_owned());
    job.at(&1, |at, state| at.map(state).put(old.clone(), 1));
    setup.clock.advance(60);
    job.at(&1, |at, state| at.map(state).put(new.clone(), 2));
    setup.clock.advance(39);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.map(state).entries()).len(), 2);
    setup.clock.advance(1);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.map(state).get(&old)), None);
    assert!(!job.at(&1, |at, state| at.map(state).contains(&old)));
    assert!(!job.at(&1, |at, state| at.map(state).remove(&old)));
    assert_eq!(
        job.at(&1, |at, state| at.map(state).entries()),
        [(new.clone(), 2)]
    );
    assert_eq!(
        job.at(&1, |at, state| at.map(state).modify(&old, Option::take)),
        None
    );
    setup.clock.advance(60);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.map(state).entries()), []);
    assert!(job.at(&1, |at, state| at.map(state).is_empty()));
    assert_eq!(job.entries("map"), 0);
}

/// Entries of a sorted map expire one by one; first and last skip them. (K-180)
pub fn sorted_map_entries_expire_one_by_one(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.sorted_map::<i64, u64, ()>(
            StateOptions::new("map").ttl(ttl(100).without_background_cleanup()),
        )
    });
    for key in [1, 2, 8, 9] {
        job.at(&1, |at, state| at.sorted_map(state).put(key, 0));
    }
    setup.clock.advance(60);
    job.at(&1, |at, state| {
        at.sorted_map(state).put_all(vec![(4, 1), (5, 2), (6, 3)])
    });
    setup.clock.advance(40);
    job.settle();
    assert_eq!(
        job.at(&1, |at, state| at.sorted_map(state).first()),
        Some((4, 1))
    );
    assert_eq!(
        job.at(&1, |at, state| at.sorted_map(state).last()),
        Some((6, 3))
    );
    let found = job.at(&1, |at, state| {
        let mut found = Vec::new();
        at.sorted_map(state).range(Some(&2), Some(&6), |key, _| {
            found.push(*key);
            Ok(())
        })?;
        Ok(found)
    });
    assert_eq!(found, [4, 5]);
    setup.clock.advance(60);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.sorted_map(state).first()), None);
}

/// List elements expire one by one; when all are expired the list is gone. (K-181)
pub fn list_elements_expire_one_by_one(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.list::<u64, ()>(StateOptions::new("list").ttl(ttl(100)))
    });
    job.at(&1, |at, state| at.list(state).extend(vec![1, 2]));
    setup.clock.advance(60);
    job.at(&1, |at, state| at.list(state).push(3));
    setup.clock.advance(40);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).len()), 1);
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [3]);
    job.at(&1, |at, state| at.list(state).push(4));
    setup.clock.advance(60);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).pop_front()), Some(4));
    setup.clock.advance(40);
    job.settle();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), []);
    assert_eq!(job.entries("list"), 0);
}

/// Elements of a long list expire one by one wherever they stand, and are renewed by reads if told to. (K-175, K-181)
pub fn elements_of_a_long_list_expire_one_by_one(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let renewed = ttl(100).update(TtlUpdate::OnReadAndWrite);
        Ok((
            states.list::<u64, ()>(StateOptions::new("list").ttl(ttl(100)))?,
            states.list::<u64, ()>(StateOptions::new("renewed").ttl(renewed))?,
        ))
    });
    for turn in 0..3_u64 {
        let elements: Vec<u64> = (turn * 2_000..(turn + 1) * 2_000).collect();
        job.at(&1, |at, (list, renewed)| {
            at.list(list).extend(elements.clone())?;
            at.list(renewed).extend(elements)
        });
        setup.clock.advance(30);
    }
    let popped = job.at(&1, |at, (list, renewed)| {
        Ok((at.list(list).pop_front()?, at.list(renewed).pop_front()?))
    });
    assert_eq!(popped, (Some(0), Some(0)));
    let renewed = job.at(&1, |at, (_, renewed)| at.list(renewed).get());
    assert_eq!(renewed, (1..6_000).collect::<Vec<u64>>());
    job.settle();
    setup.clock.advance(10);
    assert_eq!(job.at(&1, |at, (list, _)| at.list(list).len()), 4_000);
    assert_eq!(
        job.at(&1, |at, (list, _)| at.list(list).pop_front()),
        Some(2_000)
    );
    job.settle();
    setup.clock.advance(30);
    let left = job.at(&1, |at, (list, _)| at.list(list).get());
    assert_eq!(left, (4_000..6_000).collect::<Vec<u64>>());
    job.at(&1, |at, (list, _)| at.list(list).push(1));
    setup.clock.advance(30);
    assert_eq!(job.at(&1, |at, (list, _)| at.list(list).get()), [1]);
    // The other list was read at 90.
    setup.clock.advance(29);
    let renewed = job.at(&1, |at, (_, renewed)| at.list(renewed).get());
    assert_eq!(renewed.len(), 5_999);
    job.settle();
    setup.clock.advance(100);
    assert_eq!(job.at(&1, |at, (_, renewed)| at.list(renewed).len()), 0);
    assert_eq!(job.at(&1, |at, (list, _)| at.list(list).pop_front()), None);
    job.settle();
    assert_eq!((job.entries("list"), job.entries("renewed")), (0, 0));
}

/// Merging namespaces leaves expired values out and renews the result. (K-182)
pub fn merging_leaves_expired_values_out(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let options =
            |name: &str| StateOptions::new(name).ttl(ttl(100).without_background_cleanup());
        let sum =
            states.reducing::<u64, u32>(options("sum"), |total, input: u64| Ok(total + input))?;
        Ok((sum, states.list::<u64, u32>(options("list"))?))
    });
    job.at(&1, |at, (sum, list)| {
        at.reducing_in(sum, &1).add(1)?;
        at.list_in(list, &1).push(1)
    });
    setup.clock.advance(60);
    job.at(&1, |at, (sum, list)| {
        at.reducing_in(sum, &2).add(10)?;
        at.list_in(list, &2).push(10)
    });
    setup.clock.advance(40);
    job.settle();
    job.at(&1, |at, (sum, list)| {
        at.merge_reducing(sum, &9, &[1, 2, 3])?;
        at.merge_lists(list, &9, &[1, 2, 3])
    });
    setup.clock.advance(99);
    job.settle();
    assert_eq!(
        job.at(&1, |at, (sum, _)| at.reducing_in(sum, &9).get()),
        Some(10)
    );
    assert_eq!(job.at(&1, |at, (_, list)| at.list_in(list, &9).get()), [10]);
    setup.clock.advance(1);
    assert_eq!(
        job.at(&1, |at, (sum, _)| at.reducing_in(sum, &9).get()),
        None
    );
    assert_eq!(job.at(&1, |at, (_, list)| at.list_in(list, &9).get()), []);
}

/// Keys and namespaces expire on their own. (K-183, K-184)
pub fn keys_and_namespaces_expire_on_their_own(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        states.value::<u64, u32>(StateOptions::new("value").ttl(ttl(100)))
    });
    for (key, namespace) in [(1, 1), (1, 2), (2, 1)] {
        job.at(&key, |at, state| at.value_in(state, &namespace).set(7));
        setup.clock.advance(30);
    }
    job.settle();
    setup.clock.set(1_000 + 100);
    let read = |job: &mut Job<u32, ValueState<u64, u32>>| {
        [(1, 1), (1, 2), (2, 1)]
            .map(|(key, namespace)| job.at(&key, |at, state| at.value_in(state, &namespace).get()))
    };
    assert_eq!(read(&mut job), [None, Some(7), Some(7)]);
    setup.clock.set(1_000 + 130);
    job.settle();
    assert_eq!(read(&mut job), [None, None, Some(7)]);
    setup.clock.set(1_000 + 160);
    job.settle();
    assert_eq!(read(&mut job), [None, None, None]);
}

/// A value that is expired when something is added counts as none: the state starts anew. (K-201)
pub fn adding_to_an_expired_value_starts_anew(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let options =
            |name: &str| StateOptions::new(name).ttl(ttl(100).without_background_cleanup());
        let sum =
            states.reducing::<u64, ()>(options("sum"), |total, input: u64| Ok(total + input))?;
        Ok((
            sum,
            states.aggregating::<_, ()>(options("mean"), super::merging::Mean)?,
            states.list::<u64, ()>(options("list"))?,
        ))
    });
    let add = |job: &mut Job<_, (_, _, _)>, input| {
        job.at(&1, |at, (sum, mean, list)| {
            at.reducing(sum).add(input)?;
            at.aggregating(mean).add(input)?;
            at.list(list).push(input)
        });
    };
    add(&mut job, 10);
    setup.clock.advance(100);
    job.settle();
    add(&mut job, 4);
    job.settle();
    job.at(&1, |at, (sum, mean, list)| {
        assert_eq!(at.reducing(sum).get()?, Some(4));
        assert_eq!(at.aggregating(mean).get()?, Some(4));
        assert_eq!(at.list(list).get()?, [4]);
        Ok(())
    });
    // Each addition renews what is there.
    setup.clock.advance(60);
    add(&mut job, 6);
    setup.clock.advance(60);
    job.settle();
    job.at(&1, |at, (sum, mean, list)| {
        assert_eq!(at.reducing(sum).get()?, Some(10));
        assert_eq!(at.aggregating(mean).get()?, Some(5));
        assert_eq!(at.list(list).get()?, [6]);
        Ok(())
    });
}

/// A restored value keeps the time of its last write. (K-187)
pub fn a_restored_value_keeps_its_time(setup: &Setup) {
    let mut job = setup.start(|states| timed(states, ttl(100)));
    job.at(&1, |at, state| at.value(state).set(1));
    setup.clock.advance(50);
    job.settle();
    assert_eq!(get(&mut job, 1), Some(1));
    setup.clock.advance(50);
    job.settle();
    assert_eq!(get(&mut job, 1), None);
}

/// A duration that changed between two runs applies to the old times. (K-191)
pub fn a_new_duration_applies_to_old_times(setup: &Setup) {
    let mut job = setup.start(|states| timed(states, ttl(100)));
    job.at(&1, |at, state| at.value(state).set(1));
    setup.clock.advance(90);
    let mut job = job.restart(|states| timed(states, ttl(200))).unwrap();
    setup.clock.advance(100);
    assert_eq!(get(&mut job, 1), Some(1));
    setup.clock.advance(10);
    assert_eq!(get(&mut job, 1), None);
}

/// A state that gets a time-to-live in a later run counts from its registration. (K-190)
pub fn a_plain_state_may_get_a_time_to_live(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            value(states)?,
            states.list::<u64, ()>("list")?,
            states.map::<u64, u64, ()>("map")?,
        ))
    });
    job.at(&1, |at, (value, list, map)| {
        at.value(value).set(1)?;
        at.list(list).extend(vec![1, 2])?;
        at.map(map).put(1, 2)
    });
    setup.clock.advance(5_000);
    let mut job = job
        .restart(|states| {
            let options = |name: &str| StateOptions::new(name).ttl(ttl(100));
            let list = states.list::<u64, ()>(options("list"))?;
            Ok((
                timed(states, ttl(100))?,
                list,
                states.map::<u64, u64, ()>(options("map"))?,
            ))
        })
        .unwrap();
    setup.clock.advance(99);
    job.at(&1, |at, (value, list, map)| {
        assert_eq!(at.value(value).get()?, Some(1));
        assert_eq!(at.list(list).get()?, [1, 2]);
        assert_eq!(at.map(map).entries()?, [(1, 2)]);
        Ok(())
    });
    setup.clock.advance(1);
    job.at(&1, |at, (value, list, map)| {
        assert_eq!(at.value(value).get()?, None);
        assert_eq!(at.list(list).get()?, []);
        assert_eq!(at.map(map).entries()?, []);
        Ok(())
    });
}

/// A state that loses its time-to-live in a later run keeps its values for good. (K-188, K-189)
pub fn a_time_to_live_may_be_dropped(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let options = |name: &str| StateOptions::new(name).ttl(ttl(100));
        let list = states.list::<u64, ()>(options("list"))?;
        Ok((
            timed(states, ttl(100))?,
            list,
            states.map::<u64, u64, ()>(options("map"))?,
        ))
    });
    job.at(&1, |at, (value, list, map)| {
        at.value(value).set(1)?;
        at.list(list).extend(vec![1, 2])?;
        at.map(map).put(1, 2)
    });
    let register = |states: &mut States<u32>| {
        Ok((
            value(states)?,
            states.list::<u64, ()>("list")?,
            states.map::<u64, u64, ()>("map")?,
        ))
    };
    let mut job = job.restart(register).unwrap();
    setup.clock.advance(1_000_000);
    for _ in 0..2 {
        job.at(&1, |at, (value, list, map)| {
            assert_eq!(at.value(value).get()?, Some(1));
            assert_eq!(at.list(list).get()?, [1, 2]);
            assert_eq!(at.map(map).entries()?, [(1, 2)]);
            Ok(())
        });
        job.settle();
    }
}

/// With clean-up in full snapshots, a canonical savepoint leaves expired entries out; the running state keeps them. (K-128, K-185, K-186, K-200)
pub fn savepoints_leave_expired_entries_out(setup: &Setup) {
    let register = |states: &mut States<u32>| {
        let options = |name: &str| {
            StateOptions::new(name).ttl(
                ttl(100)
                    .without_background_cleanup()
                    .cleanup_full_snapshot(),
            )
        };
        let value = states.value::<u64, u32>(options("value"))?;
        let list = states.list::<u64, u32>(options("list"))?;
        Ok((value, list, states.map::<u64, u64, u32>(options("map"))?))
    };
    let mut job = setup.start(register);
    for (key, namespace) in [(1, 1), (2, 1), (2, 2)] {
        job.at(&key, |at, (value, list, map)| {
            at.value_in(value, &namespace).set(1)?;
            at.list_in(list, &namespace).push(1)?;
            at.map_in(map, &namespace).put(1, 1)
        });
        if (key, namespace) != (2, 2) {
            setup.clock.advance(50);
        }
    }
    // Two are expired now, at 1,100, one of them in each of two ways: (1, 1) is of 1,000 and (2, 1) of 1,050.
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    assert_eq!(job.entries("value"), 3);
    let restored: Job<u32, _> = setup
        .restore(&savepoint, job.other_parallelism(), register)
        .unwrap();
    for state in ["value", "list", "map"] {
        assert_eq!(restored.entries(state), 2, "{state}");
    }
    setup.clock.advance(50);
    let (first, second) = (
        job.cut(SnapshotKind::CanonicalSavepoint).unwrap(),
        job.cut(SnapshotKind::CanonicalSavepoint).unwrap(),
    );
    for cut in [second, first] {
        let savepoint = cut.persist(setup).unwrap();
        let mut restored: Job<u32, _> = setup
            .restore(&savepoint, job.other_parallelism(), register)
            .unwrap();
        assert_eq!(restored.keys_and_namespaces::<u32>("value"), [(2, 2)]);
        assert_eq!(restored.keys_and_namespaces::<u32>("list"), [(2, 2)]);
        assert_eq!(restored.keys_and_namespaces::<u32>("map"), [(2, 2)]);
    }
}

/// Background clean-up never removes what is not expired, also with a snapshot open. (K-192, K-193)
pub fn clean_up_spares_what_is_not_expired(setup: &Setup) {
    let mut job =
        setup.start(|states| timed(states, ttl(100).cleanup_incrementally(1_000, true).unwrap()));
    for key in 0..100 {
        job.at(&key, |at, state| at.value(state).set(1));
    }
    setup.clock.advance(60);
    for key in 50..100 {
        job.at(&key, |at, state| at.value(state).set(2));
    }
    job.settle();
    let cut = job.cut(setup.mode.kind()).unwrap();
    setup.clock.advance(60);
    for key in 200..230 {
        job.at(&key, |at, state| at.value(state).set(3));
    }
    for subtask in 0..job.parallelism() as usize {
        let (states, _) = job.subtask(subtask);
        states.sweep_for_record();
        while states.maintain(1_000) {}
    }
    for key in 0..100 {
        assert_eq!(get(&mut job, key), (key >= 50).then_some(2), "key {key}");
    }
    let checkpoint = cut.persist(setup).unwrap();
    setup.clock.set(1_060);
    job.revert_to(&checkpoint, setup.mode.asserted_at());
    for key in 0..100 {
        assert_eq!(
            get(&mut job, key),
            Some(if key < 50 { 1 } else { 2 }),
            "key {key}"
        );
    }
    assert_eq!(get(&mut job, 200), None);
}
