//! What a checkpoint goes on top of.
use super::*;

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
