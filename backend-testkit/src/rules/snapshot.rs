//! What a snapshot holds and where it can be restored.
use super::prelude::*;

fn fill(job: &mut Job<u32, ValueState<u64>>, keys: std::ops::Range<u32>, value: u64) {
    for key in keys {
        job.at(&key, |at, state| at.value(state).set(value));
    }
}

fn read(job: &mut Job<u32, ValueState<u64>>, keys: std::ops::Range<u32>) -> Vec<Option<u64>> {
    keys.map(|key| job.at(&key, |at, state| at.value(state).get()))
        .collect()
}

/// Each restore shows the state as of its own snapshot. (K-033, K-054, K-058)
pub fn each_restore_shows_its_own_snapshot(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    fill(&mut job, 0..20, 1);
    let first = job.checkpoint();
    fill(&mut job, 10..30, 2);
    job.at(&0, |at, state| at.value(state).clear());
    let second = job.checkpoint();
    fill(&mut job, 0..30, 3);
    for parallelism in [setup.mode.asserted_at(), 1] {
        job.revert_to(&first, parallelism);
        assert_eq!(
            read(&mut job, 0..30),
            [vec![Some(1); 20], vec![None; 10]].concat()
        );
    }
    job.revert_to(&second, setup.mode.asserted_at());
    assert_eq!(
        read(&mut job, 0..30),
        [vec![None], vec![Some(1); 9], vec![Some(2); 20]].concat()
    );
}

/// A backend without state has nothing to write, and starts from nothing. (K-045)
pub fn nothing_written_restores_to_nothing(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let checkpoint = job.snapshot(setup.mode.kind());
    job.revert_to(&checkpoint, setup.mode.asserted_at());
    assert_eq!(read(&mut job, 0..5), [None; 5]);
    let nothing = Checkpoint {
        handles: vec![],
        ..checkpoint
    };
    job.revert_to(&nothing, setup.mode.asserted_at());
    assert!(job.subtask(0).0.is_restored());
    fill(&mut job, 0..5, 1);
    job.settle();
    assert_eq!(read(&mut job, 0..5), [Some(1); 5]);
}

/// A restored state that is not touched is in the next snapshot, registered or not, and readable in a third run. (K-046, K-150)
pub fn state_that_is_not_touched_survives(setup: &Setup) {
    let all = |states: &mut States<u32>| {
        let list = states.list::<String, u32>("list")?;
        Ok((
            value(states)?,
            list,
            states.map::<u64, u64, ()>("map")?,
            states.timers::<()>("timers")?,
        ))
    };
    let mut job = setup.start(all);
    for key in 0..30 {
        job.at(&key, |at, (value, list, map, timers)| {
            at.value(value).set(u64::from(key))?;
            at.list_in(list, &7)
                .extend(vec!["a".to_owned(), key.to_string()])?;
            at.map(map).put(1, u64::from(key))?;
            at.timers(timers).set(i64::from(key)).map(|_| ())
        });
    }
    // Registered, not touched.
    job.settle();
    // Not registered: three times, at changing parallelism.
    let job = job.restart(|_| Ok(())).unwrap();
    let job = job
        .restart(|states| states.value::<u64, ()>("other"))
        .unwrap();
    let job = job.restart(value::<u32>).unwrap();
    let mut job = job.restart(all).unwrap();
    for key in 0..30 {
        job.at(&key, |at, (value, list, map, _)| {
            assert_eq!(at.value(value).get()?, Some(u64::from(key)));
            assert_eq!(
                at.list_in(list, &7).get()?,
                ["a".to_owned(), key.to_string()]
            );
            assert_eq!(at.map(map).entries()?, [(1, u64::from(key))]);
            Ok(())
        });
    }
    let fired = job
        .fire::<()>(|(.., timers)| timers.erase::<u32>(), 100)
        .concat();
    assert_eq!(
        sorted(fired),
        (0..30)
            .map(|key| (i64::from(key), key, ()))
            .collect::<Vec<_>>()
    );
}

/// After a change of parallelism each subtask has exactly the keys of its key groups, up and down, evenly or not. (K-099, K-100, K-101, K-102)
pub fn rescaling_moves_each_key_to_its_owner(setup: &Setup) {
    let setup = setup.clone().max_parallelism(13);
    let mut job = setup.start_at(4, value::<u32>).unwrap();
    fill(&mut job, 0..300, 1);
    for (round, parallelism) in (2..).zip([2, 4, 4, 13, 5, 1, 3]) {
        let checkpoint = job.snapshot(setup.mode.kind());
        job.revert_to(&checkpoint, parallelism);
        for subtask in 0..parallelism as usize {
            let keys = job.subtask(subtask).0.keys("value", &()).unwrap();
            assert!(
                keys.iter().all(|key| job.subtask_of(key) == subtask),
                "parallelism {parallelism}"
            );
        }
        assert_eq!(job.entries("value"), 300, "parallelism {parallelism}");
        assert_eq!(read(&mut job, 0..300), vec![Some(round - 1); 300]);
        fill(&mut job, 0..300, round);
    }
}

/// A backend that owns part of a snapshot's key groups takes that part only; the rest is not in its own next snapshot. (K-104)
pub fn keys_outside_the_range_are_not_taken(setup: &Setup) {
    let mut job = setup.start_at(1, value::<u32>).unwrap();
    fill(&mut job, 0..200, 1);
    let checkpoint = job.snapshot(setup.mode.kind());
    job.revert_to(&checkpoint, 3);
    let total: usize = (0..3)
        .map(|subtask| job.subtask(subtask).0.keys("value", &()).unwrap().len())
        .sum();
    assert_eq!(total, 200);
    let next = job.snapshot(setup.mode.kind());
    for (subtask, handles) in next.handles.iter().enumerate() {
        let range = job.subtask(subtask).0.context().range;
        assert!(
            handles
                .iter()
                .all(|handle| range.contains_range(handle.range())),
            "subtask {subtask}"
        );
    }
    // A part of the parts gives no more than what belongs to it.
    let own = Checkpoint {
        handles: vec![next.handles[1].clone()],
        ..next
    };
    let owned = job.subtask(1).0.keys("value", &()).unwrap();
    let mut restored = setup.restore(&own, 1, value::<u32>).unwrap();
    assert_eq!(sorted(restored.keys("value", &())), sorted(owned));
}

/// State must be restored before it is registered. (K-097)
pub fn restoring_after_registration_is_refused(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    fill(&mut job, 0..5, 1);
    let checkpoint = job.snapshot(setup.mode.kind());
    let cx = state_api::RestoreContext {
        storage: Arc::clone(&setup.storage),
        executor: Arc::clone(&setup.executor),
    };
    let (states, _) = job.subtask(0);
    fails(
        ErrorKind::InvalidArgument,
        block_on(states.restore(&checkpoint.handles[0], &cx)),
    );
    assert_eq!(read(&mut job, 0..5), [Some(1); 5]);
}

/// A snapshot says which states it holds, with kinds and types. (K-677)
pub fn a_snapshot_says_what_it_holds(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let empty = states.list::<String, u64>("empty")?;
        Ok((value(states)?, states.map::<String, u64, ()>("map")?, empty))
    });
    for key in 0..50 {
        job.at(&key, |at, (value, map, _)| {
            at.value(value).set(1)?;
            at.map(map).put("a".to_owned(), 1)
        });
    }
    let checkpoint = job.snapshot(setup.mode.kind());
    let mut counted = 0;
    for handle in checkpoint.all() {
        let names: BTreeSet<&str> = handle
            .states()
            .iter()
            .map(|state| &*state.meta.name)
            .collect();
        assert_eq!(names, BTreeSet::from(["empty", "map", "value"]));
        for state in handle.states() {
            assert_eq!(state.meta.key.schema, u32::schema());
            match &*state.meta.name {
                "value" => assert_eq!(state.meta.value.schema, u64::schema()),
                "map" => assert_eq!(
                    state.meta.map_key.as_ref().map(|key| &key.schema),
                    Some(&String::schema())
                ),
                _ => assert_eq!(state.meta.namespace.schema, u64::schema()),
            }
            if let ("value", state_api::EntryCount::Exact(count)) =
                (&*state.meta.name, state.entries)
            {
                counted += count;
            }
        }
    }
    assert!(counted == 0 || counted == 50, "{counted} entries counted");
}

/// A checkpoint that was aborted, or whose outcome is not known yet, is never needed to restore a later one. (K-033)
pub fn a_later_checkpoint_does_not_need_an_aborted_one(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let kind = setup.mode.kind();
    fill(&mut job, 0..20, 1);
    job.snapshot(kind);
    fill(&mut job, 5..25, 2);
    let aborted = job.cut(kind).unwrap();
    let id = aborted.id;
    let before: BTreeSet<String> = setup.memory.names().into_iter().collect();
    aborted.persist(setup).unwrap();
    job.aborted(id).unwrap();
    fill(&mut job, 10..30, 3);
    let unknown = job.cut(kind).unwrap().persist(setup).unwrap();
    fill(&mut job, 15..35, 4);
    let last = job.snapshot(kind);
    // What the aborted one has written is deleted, as its owner does.
    let kept: BTreeSet<String> = last
        .all()
        .chain(unknown.all())
        .flat_map(KeyedHandle::parts)
        .filter_map(StateHandle::object)
        .map(|object| object.path.as_str().to_owned())
        .collect();
    for name in setup
        .memory
        .names()
        .iter()
        .filter(|name| !before.contains(*name) && !kept.contains(*name))
    {
        assert!(setup.memory.remove(name));
    }
    job.revert_to(&last, setup.mode.asserted_at());
    assert_eq!(
        read(&mut job, 0..36),
        [
            vec![Some(1); 5],
            vec![Some(2); 5],
            vec![Some(3); 5],
            vec![Some(4); 20],
            vec![None]
        ]
        .concat()
    );
}

/// A savepoint refers to no object of any other snapshot. (K-675)
pub fn a_savepoint_stands_alone(setup: &Setup) {
    let mut job = setup.start(value::<u32>);
    let objects = |checkpoint: &Checkpoint| -> BTreeSet<String> {
        let parts = checkpoint
            .all()
            .flat_map(KeyedHandle::parts)
            .filter_map(StateHandle::object);
        parts
            .map(|object| object.path.as_str().to_owned())
            .collect()
    };
    fill(&mut job, 0..50, 1);
    let first = objects(&job.snapshot(SnapshotKind::Checkpoint));
    fill(&mut job, 0..5, 2);
    for kind in [
        SnapshotKind::CanonicalSavepoint,
        SnapshotKind::NativeSavepoint,
    ] {
        let savepoint = job.snapshot(kind);
        assert!(objects(&savepoint).is_disjoint(&first), "{kind:?}");
        fill(&mut job, 0..5, 3);
        let next = job.snapshot(SnapshotKind::Checkpoint);
        assert!(
            objects(&next).is_disjoint(&objects(&savepoint)),
            "a checkpoint builds on a savepoint"
        );
        let mut restored = setup
            .restore(&savepoint, setup.mode.asserted_at(), value::<u32>)
            .unwrap();
        assert_eq!(read(&mut restored, 5..50), [Some(1); 45]);
    }
}
