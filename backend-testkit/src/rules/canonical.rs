//! Canonical savepoints: the same bytes from every backend, read by every backend. The other backend is the reference.
use super::prelude::*;
use crate::dump::{Dump, dump};
use crate::reference_store::ReferenceBackend;

type All = (
    ValueState<String, u32>,
    ListState<Vec<u8>, u32>,
    MapState<String, u64>,
    SortedMapState<i64, u64>,
    ReducingState<u64>,
    (
        managed_state::keyed::AggregatingState<super::merging::Mean>,
        Timers<u32>,
        ValueState<u64>,
    ),
);

fn all(states: &mut States<String>) -> Result<All> {
    let timed = StateOptions::new("timed").ttl(TtlConfig::new(Duration::from_secs(10))?);
    Ok((
        states.value("value")?,
        states.list("list")?,
        states.map("map")?,
        states.sorted_map("sorted")?,
        states.reducing("sum", |total, input: u64| Ok(total + input))?,
        (
            states.aggregating("mean", super::merging::Mean)?,
            states.timers("timers")?,
            states.value(timed)?,
        ),
    ))
}

fn fill(job: &mut Job<String, All>, setup: &Setup) {
    for number in 0..60_u64 {
        let key = "k".repeat(number as usize % 5) + &number.to_string();
        job.at(
            &key,
            |at, (value, list, map, sorted, sum, (mean, timers, timed))| {
                let namespace = number as u32 % 3;
                at.value_in(value, &namespace).set(key.clone())?;
                at.list_in(list, &namespace).extend(vec![
                    vec![],
                    key.clone().into_bytes(),
                    vec![0xFF; 200],
                ])?;
                at.map(map)
                    .put_all(vec![(String::new(), 1), (key.clone(), number)])?;
                at.sorted_map(sorted).put_all(vec![
                    (i64::MIN, 1),
                    (-1, 2),
                    (number.cast_signed(), 3),
                ])?;
                at.reducing(sum).add(number + 100)?;
                at.aggregating(mean).add(number + 100)?;
                at.timers_in(timers, &namespace)
                    .set(-number.cast_signed())?;
                at.value(timed).set(number)
            },
        );
        setup.clock.advance(1);
    }
    job.at(&String::new(), |at, (value, ..)| {
        at.value_in(value, &9).set("the empty key".to_owned())
    });
}

fn dump_of(job: &mut Job<String, All>, setup: &Setup) -> Dump {
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    dump(&savepoint, &*setup.storage).unwrap()
}

fn reference(setup: &Setup) -> Setup {
    setup.clone().factory(Arc::new(ReferenceBackend))
}

/// The same writes give the same canonical savepoint, whichever backend holds the state. (K-675, K-679, K-680)
pub fn equal_state_gives_equal_savepoints(setup: &Setup) {
    let start = 1_000;
    let mut job = setup.start(all);
    fill(&mut job, setup);
    setup.clock.set(start);
    let mut other = reference(setup).start(all);
    fill(&mut other, setup);
    let (ours, theirs) = (dump_of(&mut job, setup), dump_of(&mut other, setup));
    assert_eq!(
        ours.keys().collect::<Vec<_>>(),
        theirs.keys().collect::<Vec<_>>()
    );
    for (name, state) in &ours {
        assert!(!state.entries.is_empty(), "{name} is empty");
        assert_eq!(state, &theirs[name], "{name}");
    }
}

/// A savepoint of this backend is read by another one, and back, at another parallelism too, with equal contents. (K-675, K-676, K-685)
pub fn a_job_moves_to_another_backend_and_back(setup: &Setup) {
    let mut job = setup.start(all);
    fill(&mut job, setup);
    let before = dump_of(&mut job, setup);
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    drop(job);
    let mut there = reference(setup)
        .restore(&savepoint, setup.mode.asserted_at(), all)
        .unwrap();
    assert_eq!(dump_of(&mut there, setup), before);
    let savepoint = there.snapshot(SnapshotKind::CanonicalSavepoint);
    drop(there);
    let mut back = setup
        .restore(&savepoint, setup.mode.written_at(), all)
        .unwrap();
    assert_eq!(dump_of(&mut back, setup), before);
    let key = "kkkk4".to_owned();
    back.at(&key, |at, (value, list, map, _, sum, (_, _, timed))| {
        assert_eq!(at.value_in(value, &1).get()?, Some(key.clone()));
        assert_eq!(
            at.list_in(list, &1).get()?,
            [vec![], key.clone().into_bytes(), vec![0xFF; 200]]
        );
        assert_eq!(at.map(map).get(&key)?, Some(4));
        assert_eq!(at.reducing(sum).get()?, Some(104));
        assert_eq!(at.value(timed).get()?, Some(4));
        Ok(())
    });
    let fired = sorted(
        back.fire::<u32>(|(.., (_, timers, _))| timers.erase::<String>(), 100)
            .concat(),
    );
    assert_eq!(fired.len(), 60);
    assert_eq!(fired[0].0, -59);
}

/// A long list from which elements were taken is one entry of a savepoint, moves to another backend and back, and is a queue there. (K-675, K-676)
pub fn a_long_list_moves_to_another_backend_and_back(setup: &Setup) {
    let start = |states: &mut States<u64>| states.list::<String, ()>("list");
    let element = |n: u64| format!("element {n}");
    let fill = |job: &mut Job<u64, ListState<String>>| {
        for key in 0..4_u64 {
            job.at(&key, |at, list| {
                at.list(list).extend((0..3_000).map(element).collect())
            });
            for n in 0..500 {
                assert_eq!(
                    job.at(&key, |at, list| at.list(list).pop_front()),
                    Some(element(n))
                );
            }
            job.at(&key, |at, list| at.list(list).push(element(3_000)));
        }
    };
    let mut job = setup.start(start);
    fill(&mut job);
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    drop(job);
    let before = dump(&savepoint, &*setup.storage).unwrap();
    assert_eq!(before["list"].entries.len(), 4);
    let mut other = reference(setup).start(start);
    fill(&mut other);
    let theirs = other.snapshot(SnapshotKind::CanonicalSavepoint);
    assert_eq!(dump(&theirs, &*setup.storage).unwrap(), before);

    let mut there = reference(setup)
        .restore(&savepoint, setup.mode.asserted_at(), start)
        .unwrap();
    for key in 0..4_u64 {
        there.at(&key, |at, list| at.list(list).push(element(3_001)));
        assert_eq!(
            there.at(&key, |at, list| at.list(list).pop_front()),
            Some(element(500))
        );
    }
    let savepoint = there.snapshot(SnapshotKind::CanonicalSavepoint);
    let mut back = setup
        .restore(&savepoint, setup.mode.written_at(), start)
        .unwrap();
    for key in 0..4_u64 {
        for n in 501..3_002 {
            assert_eq!(
                back.at(&key, |at, list| at.list(list).pop_front()),
                Some(element(n))
            );
        }
        assert_eq!(back.at(&key, |at, list| at.list(list).len()), 0);
    }
    assert_eq!(back.entries("list"), 0);
}

/// A state without entries is in the savepoint by name and is restored empty. (K-677, K-678)
pub fn a_state_without_entries_is_listed(setup: &Setup) {
    let mut job = setup.start(all);
    job.at(&"only".to_owned(), |at, (value, ..)| {
        at.value_in(value, &1).set("x".to_owned())
    });
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    let dumped = dump(&savepoint, &*setup.storage).unwrap();
    let names = [
        "list", "map", "mean", "sorted", "sum", "timed", "timers", "value",
    ];
    assert_eq!(dumped.keys().map(String::as_str).collect::<Vec<_>>(), names);
    for (name, state) in dumped {
        assert_eq!(state.entries.len(), usize::from(name == "value"), "{name}");
    }
    // One key group has bytes; the others have no place in the stream.
    let extents = savepoint.all().map(|handle| match handle {
        KeyedHandle::KeyGroups(groups) => groups
            .offsets
            .iter()
            .filter(|(_, extent)| !extent.is_empty())
            .count(),
        KeyedHandle::Incremental(_) => panic!("a canonical savepoint is one stream"),
    });
    assert_eq!(extents.sum::<usize>(), 1);
    let mut other = reference(setup)
        .restore(&savepoint, setup.mode.asserted_at(), all)
        .unwrap();
    assert_eq!(other.entries("map"), 0);
    assert_eq!(
        other.at(&"only".to_owned(), |at, (value, ..)| at
            .value_in(value, &1)
            .get()),
        Some("x".to_owned())
    );
}

/// A canonical savepoint says so in each of its handles. (K-675, K-683)
pub fn a_savepoint_is_in_the_canonical_format(setup: &Setup) {
    let mut job = setup.start(all);
    fill(&mut job, setup);
    let savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    assert_eq!(savepoint.all().count(), job.parallelism() as usize);
    assert!(
        savepoint
            .all()
            .all(|handle| handle.format() == managed_state::format::CANONICAL)
    );
}
