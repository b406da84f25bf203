//! What a checkpoint costs, what it goes on top of, and whose the objects are.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use backend_fs::{BackgroundBases, ChangeStreams, FsBackend, FsConfig};
use backend_hashmap::HashMapBackend;
use backend_testkit::fuzz::Random;
use backend_testkit::{
    Call, Checkpoint, Cut, Fault, FaultyStorage, Job, LiveBackend, MemoryStorage, Mode, Setup,
    block_on, dump, poll_once,
};
use futures_util::future::BoxFuture;
use managed_state::keyed::{KeyedStates, ListState, MapState, SortedMapState, Timers, ValueState};
use state_api::access::{ListAccess, MapAccess, SortedMapAccess, ValueAccess};
use state_api::{
    BackendFactory, ErrorKind, Executor, IncrementalHandle, KeyedHandle, Result, SnapshotKind,
    StateHandle,
};

type Counts = Job<u32, ValueState<u64>>;

fn counts(states: &mut KeyedStates<u32>) -> Result<ValueState<u64>> {
    states.value("count")
}

fn setup() -> Setup {
    Setup::new(Arc::new(FsBackend), Mode::Direct).unwrap()
}

/// A base is due once there are changes at all.
fn eager() -> Setup {
    let backend = LiveBackend::new("fs", |cx| {
        let config = FsConfig {
            change_ratio: 1e-6,
            ..FsConfig::default()
        };
        Ok(Box::new(ChangeStreams::new(config, cx)))
    });
    Setup::new(Arc::new(backend), Mode::Direct).unwrap()
}

fn fill(job: &mut Counts, keys: impl IntoIterator<Item = u32>, value: u64) {
    for key in keys {
        job.at(&key, |at, state| at.value(state).set(value));
    }
}

fn read(job: &mut Counts, keys: std::ops::Range<u32>) -> Vec<Option<u64>> {
    keys.map(|key| job.at(&key, |at, state| at.value(state).get()))
        .collect()
}

fn incremental(handle: &KeyedHandle) -> &IncrementalHandle {
    match handle {
        KeyedHandle::Incremental(handle) => handle,
        other => panic!("{other:?}"),
    }
}

fn new_bytes(checkpoint: &Checkpoint) -> u64 {
    let handles = checkpoint.all().map(incremental);
    handles.map(|handle| handle.new_bytes).sum()
}

/// Names of the objects that checkpoints may share, by subtask.
fn shared(checkpoint: &Checkpoint) -> Vec<Vec<String>> {
    let names = |handle: &IncrementalHandle| {
        let files = handle.shared.iter();
        files.map(|file| file.name.to_string()).collect()
    };
    checkpoint
        .all()
        .map(|handle| names(incremental(handle)))
        .collect()
}

/// Paths of all objects of a checkpoint.
fn objects(checkpoint: &Checkpoint) -> BTreeSet<String> {
    let parts = checkpoint.all().flat_map(KeyedHandle::parts);
    let objects = parts.filter_map(StateHandle::object);
    objects.map(|object| object.path.to_string()).collect()
}

#[test]
fn a_checkpoint_after_one_percent_of_the_keys_changed_writes_three_percent_of_the_bytes_at_most() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..20_000, 1);
    let full = new_bytes(&job.snapshot(SnapshotKind::Checkpoint));
    fill(&mut job, (0..20_000).step_by(100), 2);
    let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
    let changes = new_bytes(&checkpoint);
    assert!(
        changes * 100 <= full * 3 && changes * 20_000 >= full * 200,
        "200 of 20,000 keys in {changes} of {full} bytes"
    );
    for parallelism in [3, 2, 5, 1] {
        job.revert_to(&checkpoint, parallelism);
        let values = read(&mut job, 0..20_000);
        let expected = |key: u32| Some(if key.is_multiple_of(100) { 2 } else { 1 });
        assert!(
            values == (0..20_000).map(expected).collect::<Vec<_>>(),
            "parallelism {parallelism}"
        );
    }
}

/// Each handle repeats what is inline of those before it.
#[test]
fn small_streams_stay_in_the_handle_only_as_long_as_they_are_few_together() {
    const THRESHOLD: usize = 20 << 10;
    let setup = setup();
    let memory = setup.memory.clone().inline_below(THRESHOLD + 1);
    let setup = setup.storage(Arc::new(memory));
    let mut job = setup.start_at(1, counts).unwrap();
    fill(&mut job, 0..20_000, 1);
    let (mut most, mut written, mut objects_before) = (0, 0, 0);
    let mut last = job.snapshot(SnapshotKind::Checkpoint);
    for round in 0..60 {
        let from = round * 200;
        fill(&mut job, from..from + 200, 2);
        last = job.snapshot(SnapshotKind::Checkpoint);
        let parts = last.all().flat_map(KeyedHandle::parts);
        let inline: u64 = parts
            .filter(|part| part.object().is_none())
            .map(StateHandle::len)
            .sum();
        let made = objects(&last).len() - objects_before;
        assert!(made <= 1 || round == 0, "{made} objects in round {round}");
        objects_before = objects(&last).len();
        most = most.max(inline);
        written += new_bytes(&last);
    }
    assert!(written > 60 * 2_000, "{written} bytes of changes");
    assert!(
        (1..=THRESHOLD as u64).contains(&most),
        "{most} bytes inline"
    );
    let mut restored = setup.restore(&last, 2, counts).unwrap();
    let changed = read(&mut restored, 0..20_000);
    let changed = changed.iter().filter(|value| **value == Some(2)).count();
    assert_eq!(changed, 60 * 200);
}

/// A state that changes all the time, and one that hardly does.
type HotAndCold = (ValueState<u64>, ValueState<u64>);

fn hot_and_cold(states: &mut KeyedStates<u32>) -> Result<HotAndCold> {
    Ok((states.value("hot")?, states.value("cold")?))
}

fn both(job: &mut Job<u32, HotAndCold>) -> Vec<(Option<u64>, Option<u64>)> {
    let read = |key| {
        job.at(&key, |at, (hot, cold)| {
            Ok((at.value(hot).get()?, at.value(cold).get()?))
        })
    };
    (0..20_000).map(read).collect()
}

#[test]
fn a_state_of_which_most_changed_is_written_anew_and_the_others_are_not() {
    let setup = setup().max_parallelism(4);
    let mut job = setup.start_at(2, hot_and_cold).unwrap();
    for key in 0..20_000 {
        job.at(&key, |at, (_, cold)| at.value(cold).set(1));
    }
    for key in 0..2_000 {
        job.at(&key, |at, (hot, _)| at.value(hot).set(1));
    }
    let full = new_bytes(&job.snapshot(SnapshotKind::Checkpoint));
    let mut last = None;
    for round in 2..6 {
        for key in 0..2_000 {
            // What is removed is gone, what is removed and comes again is there.
            job.at(&key, |at, (hot, _)| match (key + round) % 5 {
                0 => at.value(hot).clear(),
                _ => at.value(hot).set(u64::from(round)),
            });
        }
        job.at(&round, |at, (_, cold)| at.value(cold).set(2));
        let expected = both(&mut job);
        let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
        let checkpoint = cut.persist(&setup).unwrap();
        let is_stream = |names: &Vec<String>| names.last().unwrap().starts_with("changes-");
        assert!(shared(&checkpoint).iter().all(is_stream), "round {round}");
        // One of them is declined: its changes are in the next one, where few keys changed.
        if round == 3 {
            job.aborted(checkpoint.id).unwrap();
            job.at(&7, |at, (hot, _)| at.value(hot).set(9));
            last = Some((job.snapshot(SnapshotKind::Checkpoint), both(&mut job)));
        } else {
            job.completed(checkpoint.id).unwrap();
            last = Some((checkpoint, expected));
        }
        let (checkpoint, expected) = last.as_ref().unwrap();
        assert!(new_bytes(checkpoint) * 4 < full, "round {round}");
        for parallelism in [1, 2, 3] {
            let mut restored = setup.restore(checkpoint, parallelism, hot_and_cold);
            let found = both(restored.as_mut().unwrap());
            assert!(
                found == *expected,
                "round {round}, parallelism {parallelism}"
            );
        }
    }
    // All of both: that is a base, and it is written as one.
    for key in 0..20_000 {
        job.at(&key, |at, (_, cold)| at.value(cold).set(3));
    }
    let base = job.snapshot(SnapshotKind::Checkpoint);
    let is_base = |names: &Vec<String>| names.len() == 1 && names[0].starts_with("base-");
    assert!(shared(&base).iter().all(is_base), "{:?}", shared(&base));
    let (before, _) = last.unwrap();
    job.revert_to(&before, 3);
    assert!(both(&mut job).iter().all(|(_, cold)| *cold != Some(3)));
}

#[test]
fn a_checkpoint_without_changes_writes_nothing() {
    let mut job = setup().start(counts);
    fill(&mut job, 0..100, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    let second = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!((new_bytes(&second), shared(&second)), (0, shared(&first)));
}

type Nested = (
    MapState<u32, u64>,
    SortedMapState<u32, u64>,
    ListState<u64>,
    Timers,
);

fn nested(states: &mut KeyedStates<u32>) -> Result<Nested> {
    Ok((
        states.map("map")?,
        states.sorted_map("sorted")?,
        states.list("list")?,
        states.timers("timers")?,
    ))
}

/// The entries of the map, those of the sorted map, and the elements of the list.
type Contents = (Vec<(u32, u64)>, Vec<(u32, u64)>, Vec<u64>);

fn contents(job: &mut Job<u32, Nested>, key: u32) -> Contents {
    job.at(&key, |at, (map, sorted, list, _)| {
        let mut entries = at.map(map).entries()?;
        entries.sort_unstable();
        Ok((
            entries,
            at.sorted_map(sorted).entries()?,
            at.list(list).get()?,
        ))
    })
}

/// States that come after checkpoints of others, with a base to build upon at once, after a declined one, and after a restore.
#[test]
fn states_registered_between_checkpoints_lose_nothing() {
    type Late = (MapState<u32, u64>, SortedMapState<u32, u64>, ListState<u64>);
    fn late(states: &mut KeyedStates<u32>) -> Result<Late> {
        Ok((
            states.map("map")?,
            states.sorted_map("sorted")?,
            states.list("list")?,
        ))
    }
    let setup = setup();
    let mut old: Option<Checkpoint> = None;
    for (round, declines) in [(1_u64, false), (2, true), (3, false), (4, true)] {
        let mut job = match &old {
            Some(checkpoint) => setup.restore(checkpoint, 1, counts).unwrap(),
            None => setup.start(counts),
        };
        let (mut all, mut tokens) = (Vec::new(), Vec::new());
        for step in 0..4 {
            let (round, step) = (round * 10 + step, step as u32);
            fill(&mut job, [step], round);
            if step == 1 {
                for index in 0..job.parallelism() as usize {
                    tokens.push(late(job.subtask(index).0).unwrap());
                }
            }
            if step > 0 {
                let index = job.subtask_of(&7);
                let states = job.subtask(index).0;
                let (map, sorted, list) = tokens[index];
                let mut at = states.at(&7);
                at.map(map).put(step, round).unwrap();
                at.sorted_map(sorted).put(step, round).unwrap();
                at.list(list).push(round).unwrap();
                all = at.list(list).get().unwrap();
            }
            if declines && step > 0 && step < 3 {
                let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
                let id = cut.id;
                cut.persist(&setup).unwrap();
                job.aborted(id).unwrap();
            } else {
                old = Some(job.snapshot(SnapshotKind::Checkpoint));
            }
        }
        let checkpoint = old.as_ref().unwrap();
        assert_eq!(all.len() as u64, round * 3);
        for parallelism in [1, 2] {
            let mut again = setup.restore(checkpoint, parallelism, late).unwrap();
            let (mut map, sorted, list) = again.at(&7, |at, (map, sorted, list)| {
                Ok((
                    at.map(map).entries()?,
                    at.sorted_map(sorted).entries()?,
                    at.list(list).get()?,
                ))
            });
            map.sort_unstable();
            let expected: Vec<_> = (1..4)
                .map(|step| (step, round * 10 + u64::from(step)))
                .collect();
            assert_eq!(
                (map, sorted, list),
                (expected.clone(), expected, all.clone()),
                "round {round}"
            );
        }
    }
}

/// Map entries, list elements and timers cost what they are, whatever else there is of the same key.
#[test]
fn map_entries_list_elements_and_timers_are_written_one_by_one() {
    let setup = setup();
    let mut job = setup.start(nested);
    job.at(&7, |at, (map, sorted, list, timers)| {
        at.map(map)
            .put_all((0..5_000).map(|i| (i, u64::from(i))).collect())?;
        at.sorted_map(sorted)
            .put_all((0..5_000).map(|i| (i, u64::from(i))).collect())?;
        at.list(list).extend((0..5_000).collect())?;
        (0..5_000).try_for_each(|time| at.timers(timers).set(time).map(drop))
    });
    let full = new_bytes(&job.snapshot(SnapshotKind::Checkpoint));
    job.at(&7, |at, (map, sorted, list, timers)| {
        at.map(map).put(9_999, 1)?;
        at.map(map).remove(&17)?;
        at.map(map).modify(&18, |value| *value = Some(180))?;
        at.sorted_map(sorted).remove_range(Some(&10), Some(&20))?;
        at.sorted_map(sorted).put(0, 77)?;
        at.list(list).push(5_000)?;
        at.list(list).pop_front()?;
        at.list(list).pop_front()?;
        at.timers(timers).set(9_000)?;
        at.timers(timers).remove(30)?;
        at.timers(timers).set(9_001)?;
        at.timers(timers).remove(9_001).map(drop)
    });
    // Again, on top of changes that are not confirmed.
    let declined = job.cut(SnapshotKind::Checkpoint).unwrap();
    let id = declined.id;
    drop(declined);
    job.aborted(id).unwrap();
    job.at(&7, |at, (map, _, list, _)| {
        at.map(map).put(17, 170)?;
        at.list(list).extend(vec![5_001, 5_002])?;
        at.list(list).pop_front().map(drop)
    });
    let expected = contents(&mut job, 7);
    assert_eq!(expected.2[..2], [3, 4]);
    assert_eq!(expected.2[4_998..], [5_001, 5_002]);
    let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
    let changes = new_bytes(&checkpoint);
    assert!(changes < 1_000, "{changes} of {full} bytes");
    for parallelism in [2, 3] {
        job.revert_to(&checkpoint, parallelism);
        assert!(contents(&mut job, 7) == expected);
        assert_eq!(job.entries("timers"), 5_000);
    }
    let due = job.fire::<()>(|(.., timers)| timers.erase::<u32>(), i64::MAX);
    let times: Vec<i64> = due.concat().into_iter().map(|(time, ..)| time).collect();
    let left = (0..5_000).filter(|time| *time != 30).chain([9_000]);
    assert_eq!(times, left.collect::<Vec<_>>());
}

/// Collections that go and come back are not mixed with what they were.
#[test]
fn collections_that_are_cleared_and_made_anew_replace_what_was_there() {
    let setup = setup();
    let mut job = setup.start(nested);
    let make = |job: &mut Job<u32, Nested>, keys: std::ops::Range<u32>, from: u64| {
        for key in keys {
            job.at(&key, |at, (map, sorted, list, _)| {
                at.map(map).put(from as u32, from)?;
                at.sorted_map(sorted).put(from as u32, from)?;
                at.list(list).push(from)
            });
        }
    };
    make(&mut job, 0..40, 1);
    make(&mut job, 0..40, 2);
    job.snapshot(SnapshotKind::Checkpoint);
    for key in 0..20 {
        job.at(&key, |at, (map, sorted, list, _)| {
            at.map(map).clear()?;
            at.sorted_map(sorted).remove_range(None, None)?;
            at.list(list).clear()
        });
    }
    make(&mut job, 0..10, 3);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    make(&mut job, 0..30, 4);
    job.at(&39, |at, (map, _, list, _)| {
        at.map(map).retain(|_, value| {
            *value += 10;
            true
        })?;
        at.list(list).retain(|element| *element != 1)
    });
    let expected: Vec<_> = (0..40).map(|key| contents(&mut job, key)).collect();
    let second = job.snapshot(SnapshotKind::Checkpoint);
    job.revert_to(&second, 3);
    let restored: Vec<_> = (0..40).map(|key| contents(&mut job, key)).collect();
    assert_eq!(restored, expected);
    assert_eq!(restored[5].2, [3, 4]);
    assert_eq!(restored[15].2, [4]);
    assert_eq!(restored[39].2, [2]);
    job.revert_to(&first, 2);
    assert_eq!(contents(&mut job, 5).2, [3]);
    assert_eq!(contents(&mut job, 15), (vec![], vec![], vec![]));
}

#[test]
fn k_242_k_245_changes_of_a_declined_checkpoint_are_in_the_next_one_and_its_objects_are_not() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let declined = cut.persist(&setup).unwrap();
    job.aborted(declined.id).unwrap();
    fill(&mut job, 10..20, 3);
    let next = job.snapshot(SnapshotKind::Checkpoint);
    // A late word changes nothing.
    job.completed(declined.id).unwrap();
    let own = |checkpoint: &Checkpoint| -> BTreeSet<String> {
        let of_first = objects(&first);
        objects(checkpoint).difference(&of_first).cloned().collect()
    };
    assert!(own(&declined).is_disjoint(&own(&next)));
    assert!(objects(&next).is_superset(&objects(&first)));
    job.revert_to(&next, 2);
    let values = read(&mut job, 0..30);
    assert!(values[..10].iter().all(|value| *value == Some(2)));
    assert!(values[10..20].iter().all(|value| *value == Some(3)));
    assert!(values[20..].iter().all(|value| *value == Some(1)));
}

#[test]
fn k_246_k_247_savepoints_move_no_base_and_full_checkpoints_share_nothing() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    let native = job.snapshot(SnapshotKind::NativeSavepoint);
    let canonical = job.snapshot(SnapshotKind::CanonicalSavepoint);
    // Whoever tells of savepoints too does no harm.
    job.completed(native.id).unwrap();
    job.completed(canonical.id).unwrap();
    assert!(objects(&native).is_disjoint(&objects(&first)));
    assert_eq!(shared(&native), [[""; 0]; 2]);
    let next = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&next).is_superset(&objects(&first)));
    assert!(shared(&next).iter().all(|names| names.len() == 2));
    let full = job.snapshot(SnapshotKind::FullCheckpoint);
    assert!(objects(&full).is_disjoint(&objects(&next)));
    fill(&mut job, 20..30, 3);
    let after = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&after).is_superset(&objects(&full)));
    for (checkpoint, changed) in [(&native, 10), (&next, 10), (&after, 20)] {
        job.revert_to(checkpoint, 3);
        let values = read(&mut job, 0..1_000);
        let old = values.iter().filter(|value| **value == Some(1)).count();
        assert_eq!(old, 1_000 - changed);
    }
    // A savepoint's objects are its own: the first checkpoint after it has a base.
    job.revert_to(&native, 2);
    fill(&mut job, 0..1, 5);
    let restarted = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&restarted).is_disjoint(&objects(&native)));
}

/// Once a full checkpoint is complete what earlier ones wrote may go, and the notice may come after the next barrier.
#[test]
fn nothing_goes_on_top_of_what_a_full_checkpoint_on_its_way_replaces() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    let cut = job.cut(SnapshotKind::FullCheckpoint).unwrap();
    let full = cut.persist(&setup).unwrap();
    fill(&mut job, 0..10, 2);
    let next = job.cut(SnapshotKind::Checkpoint).unwrap();
    let next = next.persist(&setup).unwrap();
    assert!(objects(&next).is_disjoint(&objects(&first)));
    job.aborted(full.id).unwrap();
    job.aborted(next.id).unwrap();
    let last = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&last).is_superset(&objects(&first)));
}

#[test]
fn k_262_the_first_checkpoint_after_a_restore_goes_on_top_of_what_was_restored() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..1_000, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    let second = job.snapshot(SnapshotKind::Checkpoint);
    job.revert_to(&second, 2);
    fill(&mut job, 5..15, 3);
    let third = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&third).is_superset(&objects(&second)));
    assert!(new_bytes(&third) < 1_000, "{}", new_bytes(&third));
    // At another parallelism there is nothing to go on top of.
    job.revert_to(&third, 3);
    let values = read(&mut job, 0..20);
    assert_eq!(values[4..6], [Some(2), Some(3)]);
    let fourth = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&fourth).is_disjoint(&objects(&third)));
}

/// Keeps what runs beside checkpoints until it is told to run it.
#[derive(Default)]
struct Later(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Executor for Later {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(future);
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

#[test]
fn a_base_is_written_beside_checkpoints_and_taken_up_by_the_next_one() {
    let setup = eager();
    let mut job = setup.start_at(1, counts).unwrap();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    // On top of a base alone nothing outweighs it yet.
    let second = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(shared(&second)[0].len(), 2);
    fill(&mut job, 10..20, 3);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let (id, later) = (cut.id, Arc::new(Later::default()));
    // The checkpoint is whole before the base begins.
    let third = cut
        .persist(&setup.clone().executor(Arc::<Later>::clone(&later)))
        .unwrap();
    let base = later.0.lock().unwrap().pop().unwrap();
    assert!(objects(&third).is_superset(&objects(&second)));
    job.completed(id).unwrap();
    // More checkpoints meanwhile, complete and not, on top of the old base.
    fill(&mut job, 20..30, 4);
    let fourth = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&fourth).is_superset(&objects(&third)));
    block_on(base);
    fill(&mut job, 30..40, 5);
    let fifth = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&fifth).is_disjoint(&objects(&first)));
    assert_eq!(shared(&fifth)[0].len(), 2, "{:?}", shared(&fifth));
    assert_eq!(shared(&fifth)[0][0], format!("base-{id}"));
    for checkpoint in [&third, &fourth, &fifth] {
        let mut restored = setup.restore(checkpoint, 2, counts).unwrap();
        let values = read(&mut restored, 0..1_000);
        let changed = values.iter().filter(|value| **value != Some(1)).count();
        let expected = 20 + 10 * (checkpoint.id.0 - third.id.0) as usize;
        assert_eq!(changed, expected);
    }
}

#[test]
fn a_base_whose_checkpoint_is_given_up_is_written_again_and_one_that_nobody_has_is_removed() {
    let setup = eager();
    let mut job = setup.start_at(1, counts).unwrap();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    for round in 0..2 {
        fill(&mut job, 0..10, 2 + round);
        job.snapshot(SnapshotKind::Checkpoint);
    }
    // The base is there, and a checkpoint that is given up has it.
    fill(&mut job, 10..20, 9);
    let declined = job.cut(SnapshotKind::Checkpoint).unwrap();
    let declined = declined.persist(&setup).unwrap();
    assert!(objects(&declined).is_disjoint(&objects(&first)));
    job.aborted(declined.id).unwrap();
    // It may be gone: the old one is right still, and its changes are all known.
    for name in objects(&declined) {
        assert!(setup.memory.remove(&name));
    }
    let next = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&next).is_superset(&objects(&first)));
    let with_base = setup.memory.names().len();
    // That one brought the next base, which no checkpoint has when the job ends.
    let mut restored = setup.restore(&next, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(3), Some(9)]);
    drop(job);
    assert_eq!(setup.memory.names().len(), with_base - 1);
    assert!(
        objects(&next)
            .iter()
            .all(|name| setup.memory.object(name).is_some())
    );
}

/// A job of one subtask whose bases are due once there are changes at all, over a storage that can be told to fail.
fn watched(max_streams: usize) -> (Setup, FaultyStorage, Arc<Mutex<BackgroundBases>>) {
    let bases = Arc::new(Mutex::new(BackgroundBases::default()));
    let made = Arc::clone(&bases);
    let backend = LiveBackend::new("fs", move |cx| {
        let config = FsConfig {
            change_ratio: 1e-6,
            max_streams,
            ..FsConfig::default()
        };
        let strategy = ChangeStreams::new(config, cx);
        *made.lock().unwrap() = strategy.background_bases();
        Ok(Box::new(strategy))
    });
    let setup = Setup::new(Arc::new(backend), Mode::Direct).unwrap();
    let faulty = FaultyStorage::new(Arc::new(setup.memory.clone()));
    let setup = setup.storage(Arc::new(faulty.clone()));
    (setup, faulty, bases)
}

/// Such a job with two checkpoints: the base, which is returned, and one on top of it.
fn watched_job(max_streams: usize) -> (Setup, FaultyStorage, BackgroundBases, Counts, Checkpoint) {
    let (setup, faulty, bases) = watched(max_streams);
    let mut job = setup.start_at(1, counts).unwrap();
    let bases = bases.lock().unwrap().clone();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    job.snapshot(SnapshotKind::Checkpoint);
    (setup, faulty, bases, job, first)
}

#[test]
fn a_base_that_fails_harms_no_checkpoint_and_each_failure_is_told() {
    let (setup, faulty, bases, mut job, first) = watched_job(128);
    assert_eq!((bases.failures(), bases.count()), (0, 0));
    let mut checkpoint = first.clone();
    for round in 0..6_u64 {
        fill(&mut job, 0..10, 3 + round);
        // The second stream to be finished is that of the base.
        let fault = match round % 2 {
            0 => Fault::Fail(ErrorKind::Retryable),
            _ => Fault::LoseAnswer,
        };
        faulty.fail_nth_of(Call::Finish, 2, fault);
        checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        assert!(objects(&checkpoint).is_superset(&objects(&first)));
        assert_eq!((bases.failures(), bases.count()), (round + 1, 0));
        let why = bases.last_error().unwrap();
        assert_eq!(why.kind(), ErrorKind::Retryable, "{why}");
    }
    let mut restored = setup.restore(&checkpoint, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(8), Some(1)]);
    drop(restored);
    job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!((bases.failures(), bases.count()), (6, 1));
    assert!(bases.last_error().is_none());
}

#[test]
fn a_base_that_hangs_harms_no_checkpoint_and_is_given_up_once_another_is_complete() {
    let (setup, faulty, bases, mut job, first) = watched_job(2);
    let later = Arc::new(Later::default());
    fill(&mut job, 0..10, 3);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let third = cut
        .persist(&setup.clone().executor(Arc::<Later>::clone(&later)))
        .unwrap();
    job.completed(third.id).unwrap();
    let mut base = later.0.lock().unwrap().pop().unwrap();
    faulty.fail_nth_of(Call::Finish, 1, Fault::Hang);
    assert!(poll_once(&mut base).is_none());
    assert_eq!(faulty.hanging(), 1);
    // On top of the old base for as long as that is allowed, then a base by itself.
    let mut files = vec![shared(&third)[0].len()];
    for value in 4..9 {
        fill(&mut job, 0..10, value);
        let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        files.push(shared(&checkpoint)[0].len());
        let is_base = objects(&checkpoint).is_disjoint(&objects(&first));
        assert_eq!(is_base, value >= 7, "{value}");
        let mut restored = setup.restore(&checkpoint, 2, counts).unwrap();
        assert_eq!(read(&mut restored, 9..11), [Some(value), Some(1)]);
    }
    assert_eq!(files, [3, 4, 5, 6, 1, 2]);
    // It is not waited for any more, and what it wrote is gone.
    assert_eq!(poll_once(&mut base), Some(()));
    assert_eq!((faulty.hanging(), bases.count()), (0, 0));
    faulty.heal();
    let objects_of_first_base = setup.memory.names().len();
    drop(job);
    assert_eq!(setup.memory.names().len(), objects_of_first_base);
}

#[test]
fn a_base_that_fails_for_ever_makes_a_checkpoint_fail_in_the_end() {
    let (setup, faulty, bases) = watched(2);
    let mut job = setup.start_at(1, counts).unwrap();
    let bases = bases.lock().unwrap().clone();
    fill(&mut job, 0..1_000, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    let mut files = Vec::new();
    for value in 2..7 {
        fill(&mut job, 0..10, value);
        faulty.fail_nth_of(Call::Finish, 2, Fault::Fail(ErrorKind::Retryable));
        let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        files.push(shared(&checkpoint)[0].len());
        faulty.heal();
    }
    assert_eq!((files, bases.failures()), (vec![2, 3, 4, 5, 6], 4));
    faulty.fail_all(Call::Finish, Fault::Fail(ErrorKind::Retryable));
    for _ in 0..3 {
        let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
        let id = cut.id;
        let error = cut.persist(&setup).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retryable);
        job.aborted(id).unwrap();
    }
    faulty.heal();
    let healed = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(shared(&healed), [[format!("base-{}", healed.id)]]);
    let mut restored = setup.restore(&healed, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(6), Some(1)]);
}

/// How the owner of a base that a checkpoint in flight goes on top of loses interest in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disowned {
    Full,
    FullAndComplete,
    EndOfTask,
}

#[test]
fn a_base_stays_for_a_checkpoint_in_flight_that_goes_on_top_of_it_and_goes_with_it() {
    for disowned in [
        Disowned::Full,
        Disowned::FullAndComplete,
        Disowned::EndOfTask,
    ] {
        for is_written in [true, false] {
            let setup = eager();
            let mut job = setup.start_at(1, counts).unwrap();
            fill(&mut job, 0..1_000, 1);
            job.snapshot(SnapshotKind::Checkpoint);
            for value in 2..4 {
                fill(&mut job, 0..10, value);
                job.snapshot(SnapshotKind::Checkpoint);
            }
            let before = setup.memory.names().len();
            fill(&mut job, 10..20, 9);
            let in_flight = job.cut(SnapshotKind::Checkpoint).unwrap();
            let mut job = Some(job);
            match disowned {
                Disowned::EndOfTask => job = None,
                Disowned::Full | Disowned::FullAndComplete => {
                    let job = job.as_mut().unwrap();
                    let full = job.cut(SnapshotKind::FullCheckpoint).unwrap();
                    let full = full.persist(&setup).unwrap();
                    if disowned == Disowned::FullAndComplete {
                        job.completed(full.id).unwrap();
                    }
                }
            }
            if !is_written {
                drop(in_flight);
                drop(job);
                let own = usize::from(disowned != Disowned::EndOfTask);
                assert_eq!(setup.memory.names().len(), before - 1 + own, "{disowned:?}");
                continue;
            }
            let in_flight = in_flight.persist(&setup).unwrap();
            assert!(shared(&in_flight)[0][0].starts_with("base-"));
            if let Some(job) = &mut job {
                job.completed(in_flight.id).unwrap();
                fill(job, 20..30, 10);
                let next = job.snapshot(SnapshotKind::Checkpoint);
                let mut restored = setup.restore(&next, 2, counts).unwrap();
                let expected = [Some(3), Some(9), Some(9), Some(10)];
                assert_eq!(read(&mut restored, 9..11), expected[..2], "{disowned:?}");
                assert_eq!(read(&mut restored, 19..21), expected[2..], "{disowned:?}");
            }
            drop(job);
            let mut restored = setup.restore(&in_flight, 2, counts).unwrap();
            assert_eq!(read(&mut restored, 9..11), [Some(3), Some(9)]);
        }
    }
}

/// A coordinator's side in little: objects are removed once no checkpoint from the last complete one on uses them, and none that
/// is pending may.
#[derive(Default)]
struct Coordinator {
    last_used: BTreeMap<String, u64>,
    completed: u64,
    /// The last complete checkpoint when a pending one began.
    floors: BTreeMap<u64, u64>,
}

impl Coordinator {
    fn began(&mut self, id: u64) {
        self.floors.insert(id, self.completed);
    }

    fn aborted(&mut self, id: u64) {
        self.floors.remove(&id);
    }

    /// Takes note of a checkpoint, of one that comes late too: what is removed by then stays so.
    fn acknowledged(&mut self, checkpoint: &Checkpoint, memory: &MemoryStorage) {
        for name in objects(checkpoint) {
            if memory.object(&name).is_some() {
                let last = self.last_used.entry(name).or_default();
                *last = (*last).max(checkpoint.id.0);
            }
        }
    }

    fn completed(&mut self, id: u64, memory: &MemoryStorage) {
        self.completed = id;
        self.floors.retain(|pending, _| *pending > id);
        let floor = self.floors.values().copied().fold(id, u64::min);
        self.last_used.retain(|name, last| {
            let is_kept = *last >= floor;
            assert!(is_kept || memory.remove(name), "{name} is removed once");
            is_kept
        });
    }
}

type Kinds = (ValueState<u64>, MapState<u32, u64>, ListState<u64>, Timers);

fn kinds(states: &mut KeyedStates<u32>) -> Result<Kinds> {
    Ok((
        states.value("value")?,
        states.map("map")?,
        states.list("list")?,
        states.timers("timers")?,
    ))
}

/// What there is of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfKey {
    value: Option<u64>,
    map: BTreeMap<u32, u64>,
    list: Vec<u64>,
    timers: BTreeSet<i64>,
}

type Model = BTreeMap<u32, OfKey>;

const KEYS: u32 = 40;

/// Changes one state of a key, in the job as in the model.
fn change(job: &mut Job<u32, Kinds>, model: &mut Model, random: &mut Random) {
    let key = random.below(KEYS as usize) as u32;
    let of_key = model.entry(key).or_default();
    let (what, small, number) = (
        random.below(12),
        random.below(6) as u32,
        random.number() % 1_000,
    );
    job.at(&key, |at, (value, map, list, timers)| match what {
        0 | 1 => {
            of_key.value = Some(number);
            at.value(value).set(number)
        }
        2 => {
            of_key.value = None;
            at.value(value).clear()
        }
        3 | 4 => {
            of_key.map.insert(small, number);
            at.map(map).put(small, number)
        }
        5 => {
            of_key.map.remove(&small);
            at.map(map).remove(&small).map(drop)
        }
        6 if number < 300 => {
            of_key.map.clear();
            at.map(map).clear()
        }
        6 | 7 => {
            of_key.list.extend([number, number + 1]);
            at.list(list).extend(vec![number, number + 1])
        }
        8 => {
            if !of_key.list.is_empty() {
                of_key.list.remove(0);
            }
            at.list(list).pop_front().map(drop)
        }
        9 if number < 300 => {
            of_key.list.clear();
            at.list(list).clear()
        }
        9 => {
            of_key.list.retain(|element| element % 2 == 0);
            at.list(list).retain(|element| element % 2 == 0)
        }
        10 => {
            of_key.timers.insert(i64::from(small));
            at.timers(timers).set(i64::from(small)).map(drop)
        }
        _ => {
            of_key.timers.remove(&i64::from(small));
            at.timers(timers).remove(i64::from(small)).map(drop)
        }
    });
}

/// Takes all that there is out of a job.
fn drained(job: &mut Job<u32, Kinds>) -> Model {
    let mut found = Model::new();
    for key in 0..KEYS {
        let of_key = job.at(&key, |at, (value, map, list, _)| {
            Ok(OfKey {
                value: at.value(value).get()?,
                map: at.map(map).entries()?.into_iter().collect(),
                list: at.list(list).get()?,
                timers: BTreeSet::new(),
            })
        });
        found.insert(key, of_key);
    }
    for (time, key, ()) in job
        .fire(|(.., timers)| timers.erase::<u32>(), i64::MAX)
        .concat()
    {
        assert!(found.entry(key).or_default().timers.insert(time));
    }
    found.retain(|_, of_key| *of_key != OfKey::default());
    found
}

/// Whatever completes, is given up, is written late or not at all: each complete checkpoint restores what was there, no object
/// is removed that one needs, and at the end there is none that the last one does not need.
#[test]
fn k_243_k_244_no_object_is_missing_and_none_is_left_over_whatever_becomes_of_checkpoints() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let setup = if seed % 2 == 0 { eager() } else { setup() };
        let mut job = setup.start_at(2, kinds).unwrap();
        let (mut coordinator, mut model) = (Coordinator::default(), Model::new());
        let mut unwritten: Vec<(Cut, Model)> = Vec::new();
        // Those that nobody waits for any more, and are written still.
        let mut late: Vec<Cut> = Vec::new();
        let mut pending: Vec<(Checkpoint, Model)> = Vec::new();
        let mut complete: Option<(Checkpoint, Model)> = None;
        for _ in 0..120 {
            for _ in 0..random.below(40) {
                change(&mut job, &mut model, &mut random);
            }
            match random.below(12) {
                0..4 => {
                    let kind = match random.below(6) {
                        0 => SnapshotKind::FullCheckpoint,
                        _ => SnapshotKind::Checkpoint,
                    };
                    if let Ok(cut) = job.cut(kind) {
                        coordinator.began(cut.id.0);
                        unwritten.push((cut, model.clone()));
                    }
                }
                4..7 if !unwritten.is_empty() => {
                    let (cut, then) = unwritten.remove(random.below(unwritten.len()));
                    let id = cut.id;
                    match cut.persist(&setup) {
                        Ok(checkpoint) => {
                            coordinator.acknowledged(&checkpoint, &setup.memory);
                            pending.push((checkpoint, then));
                            pending.sort_by_key(|(checkpoint, _)| checkpoint.id);
                        }
                        Err(_) => {
                            coordinator.aborted(id.0);
                            job.aborted(id).unwrap();
                        }
                    }
                }
                7 | 8 if !pending.is_empty() => {
                    // Those before it are subsumed: nobody tells of them.
                    let at = random.below(pending.len());
                    let done = pending.drain(..=at).next_back().unwrap();
                    let is_older = |(cut, _): &mut (Cut, Model)| cut.id < done.0.id;
                    late.extend(unwritten.extract_if(.., is_older).map(|(cut, _)| cut));
                    job.completed(done.0.id).unwrap();
                    coordinator.completed(done.0.id.0, &setup.memory);
                    complete = Some(done);
                }
                9 if !pending.is_empty() => {
                    let (given_up, _) = pending.remove(random.below(pending.len()));
                    coordinator.aborted(given_up.id.0);
                    job.aborted(given_up.id).unwrap();
                }
                9 if !unwritten.is_empty() => {
                    let (given_up, _) = unwritten.remove(random.below(unwritten.len()));
                    coordinator.aborted(given_up.id.0);
                    job.aborted(given_up.id).unwrap();
                    late.push(given_up);
                }
                10 if !late.is_empty() => {
                    let cut = late.remove(random.below(late.len()));
                    if random.below(2) == 0
                        && let Ok(checkpoint) = cut.persist(&setup)
                    {
                        coordinator.acknowledged(&checkpoint, &setup.memory);
                    }
                }
                11 => {
                    let Some((checkpoint, then)) = &complete else {
                        continue;
                    };
                    let mut other = setup.restore(checkpoint, 3, kinds).unwrap();
                    let mut expected = then.clone();
                    expected.retain(|_, of_key| *of_key != OfKey::default());
                    assert_eq!(drained(&mut other), expected, "seed {seed}");
                    if random.below(3) == 0 {
                        for (given_up, _) in pending.drain(..) {
                            job.aborted(given_up.id).unwrap();
                        }
                        late.extend(unwritten.drain(..).map(|(cut, _)| cut));
                        coordinator.floors.clear();
                        job.revert_to(checkpoint, 2);
                        model.clone_from(then);
                    }
                }
                _ => {}
            }
        }
        drop((unwritten, late));
        coordinator.floors.clear();
        let last = job.snapshot(SnapshotKind::Checkpoint);
        coordinator.acknowledged(&last, &setup.memory);
        coordinator.completed(last.id.0, &setup.memory);
        drop(job);
        let left: BTreeSet<String> = setup.memory.names().into_iter().collect();
        assert_eq!(left, objects(&last), "seed {seed}");
    }
}

/// The same state on two backends of live tables, moved back and forth by canonical savepoints, is the same.
#[test]
fn a_job_moves_between_hashmap_and_fs_with_equal_savepoints() {
    let backends: [Arc<dyn BackendFactory>; 2] = [Arc::new(HashMapBackend), Arc::new(FsBackend)];
    let setup = setup();
    let mut job = setup.start(nested);
    for key in 0..30 {
        job.at(&key, |at, (map, sorted, list, timers)| {
            for i in 0..key {
                at.map(map).put(i, u64::from(i * key))?;
                at.sorted_map(sorted).put(i, 1)?;
                at.list(list).push(u64::from(i))?;
                at.timers(timers).set(i64::from(i))?;
            }
            Ok(())
        });
        if key % 10 == 0 {
            job.snapshot(SnapshotKind::Checkpoint);
        }
    }
    let mut savepoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    let dumped = |savepoint: &Checkpoint| dump(savepoint, &*setup.storage).unwrap();
    let expected = dumped(&savepoint);
    for (turn, parallelism) in [(0, 3), (1, 2), (0, 1), (1, 3)] {
        let setup = setup.clone().factory(Arc::clone(&backends[turn]));
        let mut moved = setup.restore(&savepoint, parallelism, nested).unwrap();
        moved.snapshot(SnapshotKind::Checkpoint);
        savepoint = moved.snapshot(SnapshotKind::CanonicalSavepoint);
        assert_eq!(dumped(&savepoint), expected);
    }
}
