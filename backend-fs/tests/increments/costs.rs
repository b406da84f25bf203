//! What a checkpoint costs, and that nothing is lost of what it leaves out.
use super::*;
use managed_state::changes::{EntryChange, StreamIndex};
use managed_state::format::GroupReader;

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

/// The states that the last streams of a checkpoint clear as a whole, once for each key group.
fn cleared(setup: &Setup, checkpoint: &Checkpoint) -> Vec<String> {
    let mut cleared = Vec::new();
    for handle in checkpoint.all().map(incremental) {
        let bytes = match &handle.shared.last().unwrap().bytes {
            StateHandle::Inline(bytes) => bytes.clone(),
            StateHandle::Object(object) => setup.memory.object(object.path.as_str()).unwrap(),
        };
        let index = StreamIndex::read(&bytes, &bytes, bytes.len() as u64).unwrap();
        for group in index.offsets.range().iter() {
            let extent = index.offsets.get(group).unwrap();
            if extent.len == 0 {
                continue;
            }
            let block = bytes.slice(extent.offset as usize..(extent.offset + extent.len) as usize);
            let mut reader = GroupReader::open(group, index.names.len(), &block).unwrap();
            while let Some(section) = reader.next().unwrap() {
                let mut entries = section.entries();
                while let Some((key, value)) = entries.next().unwrap() {
                    if key.is_empty() && EntryChange::read(value).unwrap() == EntryChange::Cleared {
                        cleared.push(index.names[section.column as usize].to_string());
                    }
                }
            }
        }
    }
    cleared
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
        assert_eq!(cleared(&setup, checkpoint), ["hot"; 4], "round {round}");
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
        job.at(&key, |at, (hot, cold)| {
            at.value(hot).set(3)?;
            at.value(cold).set(3)
        });
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
