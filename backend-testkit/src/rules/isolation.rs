//! A snapshot and the writes after it: neither sees the other.
use super::prelude::*;

type All = (
    ValueState<Vec<u64>>,
    ListState<String>,
    MapState<u64, Vec<u64>>,
    SortedMapState<i64, String>,
    ReducingState<u64>,
    Timers,
);

fn all(states: &mut States<u32>) -> Result<All> {
    Ok((
        states.value("value")?,
        states.list("list")?,
        states.map("map")?,
        states.sorted_map("sorted")?,
        states.reducing("sum", |total, input: u64| Ok(total + input))?,
        states.timers("timers")?,
    ))
}

fn write(job: &mut Job<u32, All>, keys: std::ops::Range<u32>, mark: u64) {
    for key in keys {
        job.at(&key, |at, (value, list, map, sorted, sum, timers)| {
            at.value(value).update(|value| value.push(mark))?;
            at.list(list).push(mark.to_string())?;
            at.map(map).modify(&(mark % 3), |value| {
                value.get_or_insert_default().push(mark)
            })?;
            at.sorted_map(sorted)
                .put(mark.cast_signed(), "x".repeat(mark as usize % 10))?;
            at.reducing(sum).add(mark)?;
            at.timers(timers).set(mark.cast_signed()).map(|_| ())
        });
    }
}

/// Everything that a job's states hold, in an order of its own.
fn contents(job: &mut Job<u32, All>, keys: std::ops::Range<u32>) -> Vec<String> {
    let mut contents = Vec::new();
    for key in keys {
        let of_key = job.at(&key, |at, (value, list, map, sorted_map, sum, _)| {
            let map = sorted(at.map(map).entries()?);
            let ordered = at.sorted_map(sorted_map).entries()?;
            Ok(format!(
                "{key}: {:?} {:?} {map:?} {ordered:?} {:?}",
                at.value(value).get()?,
                at.list(list).get()?,
                at.reducing(sum).get()?
            ))
        });
        contents.push(of_key);
    }
    contents
}

/// A snapshot never sees a later write, however deep in a value: not a change, not a removal, not a new key. (K-054, K-058, K-121, K-123, K-127, K-143)
pub fn a_snapshot_never_sees_a_later_write(setup: &Setup) {
    let mut job = setup.start(all);
    write(&mut job, 0..20, 1);
    write(&mut job, 0..20, 2);
    let expected = contents(&mut job, 0..30);
    let cut = job.cut(setup.mode.kind()).unwrap();
    write(&mut job, 5..30, 3);
    for key in 0..5 {
        job.at(&key, |at, (value, list, map, sorted, sum, timers)| {
            at.value(value).clear()?;
            at.list(list).pop_front()?;
            at.map(map).clear()?;
            at.sorted_map(sorted).remove_range(None, Some(&2))?;
            at.reducing(sum).clear()?;
            at.timers(timers).remove(1).map(|_| ())
        });
    }
    let now = contents(&mut job, 0..30);
    let checkpoint = cut.persist(setup).unwrap();
    assert_eq!(
        contents(&mut job, 0..30),
        now,
        "the running state changed with the snapshot"
    );
    job.revert_to(&checkpoint, setup.mode.asserted_at());
    assert_eq!(contents(&mut job, 0..30), expected);
    let fired = sorted(
        job.fire::<()>(|(.., timers)| timers.erase::<u32>(), 100)
            .concat(),
    );
    assert_eq!(
        fired,
        sorted(
            (0..20)
                .flat_map(|key| [(1, key, ()), (2, key, ())])
                .collect()
        )
    );
}

/// Two snapshots that are open at once are each right, in whichever order they are written. (K-095, K-124, K-125, K-126)
pub fn two_open_snapshots_are_each_right(setup: &Setup) {
    for later_first in [false, true] {
        let mut job = setup.start(all);
        write(&mut job, 0..20, 1);
        let first_contents = contents(&mut job, 0..30);
        let first = job.cut(setup.mode.kind()).unwrap();
        write(&mut job, 10..25, 2);
        let second_contents = contents(&mut job, 0..30);
        let second = job.cut(setup.mode.kind()).unwrap();
        write(&mut job, 0..30, 3);
        let now = contents(&mut job, 0..30);
        let (first, second) = if later_first {
            let second = second.persist(setup).unwrap();
            write(&mut job, 0..1, 4);
            (first.persist(setup).unwrap(), second)
        } else {
            let first = first.persist(setup).unwrap();
            write(&mut job, 0..1, 4);
            (first, second.persist(setup).unwrap())
        };
        assert_eq!(contents(&mut job, 1..30), now[1..]);
        job.revert_to(&first, setup.mode.asserted_at());
        assert_eq!(contents(&mut job, 0..30), first_contents);
        job.revert_to(&second, setup.mode.asserted_at());
        assert_eq!(contents(&mut job, 0..30), second_contents);
    }
}

/// While the async part runs, states may be registered and written; the snapshot holds none of it. (K-097)
pub fn a_state_registered_during_a_snapshot_is_not_in_it(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    job.at(&1, |at, state| at.value(state).set(1));
    let cut = job.cut(setup.mode.kind()).unwrap();
    let subtask = job.subtask_of(&1);
    let (states, _) = job.subtask(subtask);
    let late = states.list::<u64, ()>("late").unwrap();
    states.at(&1).list(late).extend(vec![1, 2]).unwrap();
    let checkpoint = cut.persist(setup).unwrap();
    assert_eq!(states.at(&1).list(late).get().unwrap(), [1, 2]);
    assert!(
        checkpoint
            .all()
            .flat_map(|handle| handle.states())
            .all(|state| &*state.meta.name != "late")
    );
    let mut restored = setup
        .restore(
            &checkpoint,
            setup.mode.asserted_at(),
            |states: &mut States<u32>| {
                Ok((
                    states.value::<u64, ()>("value")?,
                    states.list::<u64, ()>("late")?,
                ))
            },
        )
        .unwrap();
    assert_eq!(
        restored.at(&1, |at, (value, late)| Ok((
            at.value(value).get()?,
            at.list(late).get()?
        ))),
        (Some(1), vec![])
    );
}

/// The cut itself encodes and writes nothing: that is left to the async part. (K-095, K-111)
pub fn the_cut_leaves_the_work_to_the_async_part(setup: &Setup) {
    let executor = ManualExecutor::new();
    let counting = CountingStorage::new(Arc::new(setup.memory.clone()));
    let setup = setup
        .clone()
        .executor(Arc::new(executor.clone()))
        .storage(Arc::new(counting.clone()));
    let mut job = setup.start(all);
    write(&mut job, 0..30, 1);
    let expected = contents(&mut job, 0..30);
    let cut = job.cut(SnapshotKind::CanonicalSavepoint).unwrap();
    assert_eq!(
        (executor.waiting(), counting.counts().bytes_written),
        (0, 0)
    );
    let cx = |executor: &ManualExecutor| state_api::PersistContext {
        checkpoint: cut.id,
        storage: Arc::new(counting.clone()),
        cancel: state_api::CancelToken::new(),
        executor: Arc::new(executor.clone()),
        spill_dir: None,
    };
    let id = cut.id;
    let cx: Vec<_> = (0..job.parallelism()).map(|_| cx(&executor)).collect();
    let mut writing: Vec<_> = cut
        .into_snapshots()
        .into_iter()
        .zip(cx)
        .map(|(snapshot, cx)| snapshot.persist(cx))
        .collect();
    // The async parts wait for a CPU thread; the task writes meanwhile.
    for future in &mut writing {
        assert!(
            poll_once(future).is_none(),
            "a snapshot was encoded on the thread that polls it"
        );
    }
    write(&mut job, 0..30, 2);
    executor.run_all();
    let handles = writing
        .into_iter()
        .map(|mut future| {
            loop {
                // What it waits for is work on a CPU thread, or something that the store does by itself.
                match poll_until(&mut future, || executor.waiting() > 0) {
                    Some(handles) => break handles.unwrap(),
                    None => assert!(executor.run_one()),
                }
            }
        })
        .collect();
    let setup = setup.executor(Arc::new(InlineExecutor));
    let mut restored = setup
        .restore(&Checkpoint { id, handles }, setup.mode.asserted_at(), all)
        .unwrap();
    assert_eq!(contents(&mut restored, 0..30), expected);
}

/// Snapshots that are dropped unwritten leave the state as it is, and no object behind. (K-129, K-133)
pub fn a_dropped_snapshot_leaves_nothing(setup: &Setup) {
    let mut job = setup.start(all);
    write(&mut job, 0..20, 1);
    for round in 2..40 {
        let cut = job.cut(setup.mode.kind()).unwrap();
        let id = cut.id;
        write(&mut job, 0..20, round);
        drop(cut);
        job.aborted(id).unwrap();
        for subtask in 0..job.parallelism() as usize {
            while job.subtask(subtask).0.maintain(10_000) {}
        }
    }
    assert_eq!(setup.memory.names(), [""; 0]);
    let expected = contents(&mut job, 0..20);
    job.settle();
    assert_eq!(contents(&mut job, 0..20), expected);
}

/// Too many open snapshots are declined with a reason, and the state goes on. (K-125)
pub fn open_snapshots_are_bounded_or_right(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let mut open = Vec::new();
    for round in 0..12_u64 {
        for key in 0..20 {
            job.at(&key, |at, state| at.value(state).set(round));
        }
        match job.cut(setup.mode.kind()) {
            Ok(cut) => open.push((round, cut)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::LimitExceeded),
        }
    }
    assert!(open.len() >= 2, "two snapshots may be open at once");
    for key in 0..20 {
        assert_eq!(job.at(&key, |at, state| at.value(state).get()), Some(11));
    }
    for (round, cut) in open {
        let checkpoint = cut.persist(setup).unwrap();
        let mut restored = setup
            .restore(&checkpoint, setup.mode.asserted_at(), value::<u32>)
            .unwrap();
        for key in 0..20 {
            assert_eq!(
                restored.at(&key, |at, state| at.value(state).get()),
                Some(round)
            );
        }
    }
}

/// Many checkpoints after each other leave no memory behind: the state takes what it took before. (K-120, K-122, K-132)
pub fn checkpoints_leave_no_memory_behind(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let settle = |job: &mut Job<u32, ValueState<u64>>| {
        let mut overlays = 0;
        for subtask in 0..job.parallelism() as usize {
            let (states, _) = job.subtask(subtask);
            while states.maintain(100_000) {}
            overlays += states.memory().overlays;
        }
        overlays
    };
    let memory = |job: &mut Job<u32, ValueState<u64>>| -> usize {
        (0..job.parallelism() as usize)
            .map(|subtask| job.subtask(subtask).0.memory().total)
            .sum()
    };
    for key in 0..500 {
        job.at(&key, |at, state| at.value(state).set(0));
    }
    let baseline = memory(&mut job);
    for round in 1..100 {
        let cut = job.cut(setup.mode.kind()).unwrap();
        for key in 0..500 {
            job.at(&key, |at, state| at.value(state).set(round));
        }
        let checkpoint = cut.persist(setup).unwrap();
        job.completed(checkpoint.id).unwrap();
        assert_eq!(settle(&mut job), 0, "round {round}");
    }
    let now = memory(&mut job);
    assert!(
        now <= baseline + baseline / 2 + 64 * 1024,
        "{baseline} bytes became {now}"
    );
    assert_eq!(job.entries("value"), 500);
}
