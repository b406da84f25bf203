use backend_testkit::fuzz::Random;
use backend_testkit::storage::{CountingStorage, FaultyStorage, MemoryStorage};
use backend_testkit::{Call, Fault, block_on, poll_once};
use state_api::{ByteStore, CancelToken, ErrorKind, PersistContext, SnapshotKind};
use std::sync::Arc;

use crate::harness::{Model, SMALL, Subtasks, all_objects, files, objects};

fn put(subtasks: &mut Subtasks, model: &mut Model, key: &[u8], value: &[u8]) {
    let (store, column) = subtasks.owner(0, key);
    store.put(column, key, value).unwrap();
    model.insert((0, key.to_vec()), value.to_vec());
}

#[test]
fn k_241_a_checkpoint_writes_only_what_the_last_complete_one_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let mut model = Model::new();
    let mut random = Random::new(1);
    let large: Vec<u8> = (0..5_000).map(|_| random.number() as u8).collect();
    put(&mut subtasks, &mut model, b"\x01a", &large);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    put(&mut subtasks, &mut model, b"\x02b", &[2; 100]);
    let second = subtasks.snapshot(SnapshotKind::Checkpoint);
    let (old, new) = (
        objects(&files(&first[0]).shared),
        objects(&files(&second[0]).shared),
    );
    assert_eq!((old.len(), new.len()), (1, 2));
    assert!(
        old.iter()
            .all(|(name, object)| new.get(name) == Some(object))
    );
    // Of the first file nothing is written again; the layout is.
    assert!(files(&first[0]).new_bytes > files(&second[0]).new_bytes);
    let layout = objects(&files(&second[0]).private);
    assert_eq!(layout.keys().collect::<Vec<_>>(), ["layout"]);
    assert_ne!(layout, objects(&files(&first[0]).private));
    // Nothing changed: nothing but the layout is written.
    let third = subtasks.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(objects(&files(&third[0]).shared), new);
    subtasks.restore(&third, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn k_242_k_245_what_is_not_complete_is_built_upon_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let mut model = Model::new();
    put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
    // Complete or not: nobody has said so yet.
    let (first, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
    let of_first = subtasks.persist(first, cuts.remove(0)).unwrap();
    put(&mut subtasks, &mut model, b"\x02b", &[2; 500]);
    let (second, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
    let of_second = subtasks.persist(second, cuts.remove(0)).unwrap();
    assert!(all_objects(&of_first).is_disjoint(&all_objects(&of_second)));
    let abort = |subtasks: &mut Subtasks, checkpoint| {
        let native = subtasks.stores[0].native().unwrap();
        native.checkpoint_aborted(checkpoint).unwrap();
    };
    abort(&mut subtasks, second);
    subtasks.completed(first);
    put(&mut subtasks, &mut model, b"\x03c", &[3; 500]);
    let third = subtasks.snapshot(SnapshotKind::Checkpoint);
    let (old, new) = (
        objects(&files(&of_first[0]).shared),
        objects(&files(&third[0]).shared),
    );
    assert!(
        old.iter()
            .all(|(name, object)| new.get(name) == Some(object))
    );
    assert!(all_objects(&third).is_disjoint(&all_objects(&of_second)));
    // Late notices: the base stays.
    subtasks.completed(second);
    abort(&mut subtasks, first);
    let fourth = subtasks.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(objects(&files(&fourth[0]).shared), new);
    subtasks.restore(&fourth, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn ic_03_a_checkpoint_that_fails_takes_along_what_it_wrote_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let memory = MemoryStorage::new();
    let faulty = FaultyStorage::new(Arc::new(memory.clone()));
    subtasks.storage = Arc::new(faulty.clone());
    let mut model = Model::new();
    put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    let of_first = memory.names();
    put(&mut subtasks, &mut model, b"\x02b", &[2; 500]);
    // The file that is new is written, the layout is not.
    faulty.fail_nth_of(Call::Finish, 2, Fault::Fail(ErrorKind::Retryable));
    let (second, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
    subtasks.persist(second, cuts.remove(0)).unwrap_err();
    assert_eq!(memory.names(), of_first);
    let native = subtasks.stores[0].native().unwrap();
    native.checkpoint_aborted(second).unwrap();
    let third = subtasks.snapshot(SnapshotKind::Checkpoint);
    subtasks.restore(&third, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
    subtasks.restore(&first, 1).unwrap();
    model.remove(&(0, b"\x02b".to_vec()));
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn ic_04_ic_06_checkpoints_that_are_under_way_at_once_stand_alone_in_whatever_order_they_end() {
    // Of three: those that complete, in this order; the others are aborted in between.
    for order in [&[1, 0, 2][..], &[2, 1, 0], &[1], &[2, 0], &[0]] {
        let dir = tempfile::tempdir().unwrap();
        let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
        let mut model = Model::new();
        put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
        let mut written = Vec::new();
        for n in 0..3 {
            put(&mut subtasks, &mut model, &[2, n], &[n; 500]);
            let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
            let handles = subtasks.persist(checkpoint, cuts.remove(0)).unwrap();
            written.push((checkpoint, handles, model.clone()));
        }
        for (one, (_, handles, _)) in written.iter().enumerate() {
            for (_, other, _) in &written[one + 1..] {
                assert!(all_objects(handles).is_disjoint(&all_objects(other)));
            }
        }
        for (n, (checkpoint, ..)) in written.iter().enumerate() {
            if !order.contains(&n) {
                let native = subtasks.stores[0].native().unwrap();
                native.checkpoint_aborted(*checkpoint).unwrap();
            }
        }
        order.iter().for_each(|&n| subtasks.completed(written[n].0));
        // Built upon the newest that completed.
        let next = subtasks.snapshot(SnapshotKind::Checkpoint);
        let newest = order.iter().max().unwrap();
        let of_newest = objects(&files(&written[*newest].1[0]).shared);
        let of_next = objects(&files(&next[0]).shared);
        for (name, object) in &of_newest {
            assert_eq!(of_next.get(name), Some(object), "{order:?}");
        }
        for &n in order {
            let (_, handles, model) = &written[n];
            subtasks.restore(handles, 1).unwrap();
            assert_eq!(&subtasks.contents(), model, "{order:?}: {n}");
        }
        subtasks.restore(&next, 1).unwrap();
        assert_eq!(subtasks.contents(), model);
    }
}

#[test]
fn ic_07_ic_08_ic_10_a_file_of_the_same_name_as_in_an_earlier_attempt_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let mut model = Model::new();
    put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    // An attempt that completes two more, and one that dies with one on its way: files of the same numbers and sizes.
    let mut others = std::collections::BTreeSet::new();
    let mut named = Vec::new();
    for (attempt, checkpoints) in [(2, 2), (3, 1), (9, 1)] {
        subtasks.restore(&first, 1).unwrap();
        for _ in 0..checkpoints {
            put(&mut subtasks, &mut model, b"\x02k", &[attempt; 500]);
            let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
            let handles = subtasks.persist(checkpoint, cuts.remove(0)).unwrap();
            if attempt != 3 {
                subtasks.completed(checkpoint);
            }
            let shared = objects(&files(&handles[0]).shared);
            let new = shared
                .iter()
                .filter(|(_, object)| !all_objects(&first).contains(*object));
            let new: Vec<_> = new
                .map(|(name, object)| (name.clone(), object.clone()))
                .collect();
            if attempt == 9 {
                let taken = |name: &String| named.contains(name);
                assert!(new.iter().any(|(name, _)| taken(name)), "{named:?} {new:?}");
                assert!(new.iter().all(|(_, object)| !others.contains(object)));
                subtasks.restore(&handles, 1).unwrap();
                assert_eq!(subtasks.contents(), model);
            }
            for (name, object) in new {
                named.push(name);
                others.insert(object);
            }
        }
    }
}

#[test]
fn k_246_k_247_full_checkpoints_share_with_later_ones_and_savepoints_with_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let mut model = Model::new();
    put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    let savepoint = subtasks.snapshot(SnapshotKind::NativeSavepoint);
    assert!(files(&savepoint[0]).shared.is_empty());
    assert!(all_objects(&savepoint).is_disjoint(&all_objects(&first)));
    let next = subtasks.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(
        objects(&files(&next[0]).shared),
        objects(&files(&first[0]).shared)
    );
    let full = subtasks.snapshot(SnapshotKind::FullCheckpoint);
    assert!(all_objects(&full).is_disjoint(&all_objects(&next)));
    let after = subtasks.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(
        objects(&files(&after[0]).shared),
        objects(&files(&full[0]).shared)
    );
    subtasks.restore(&savepoint, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn k_248_k_249_an_empty_store_has_no_files_and_files_are_shared_but_the_layout_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    assert!(subtasks.snapshot(SnapshotKind::Checkpoint).is_empty());
    let mut model = Model::new();
    put(&mut subtasks, &mut model, b"\x01a", &[1; 500]);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    let handle = files(&first[0]);
    assert!(handle.shared.iter().all(|file| file.name.ends_with(".sst")));
    assert_eq!(handle.private.len(), 1);
    assert!(
        objects(&handle.shared)
            .values()
            .all(|name| name.starts_with("shared/"))
    );
    assert!(
        objects(&handle.private)
            .values()
            .all(|name| name.starts_with("chk-"))
    );
}

#[test]
fn k_262_ic_22_the_first_checkpoint_after_a_restore_builds_on_what_was_restored() {
    let dir = tempfile::tempdir().unwrap();
    // A compaction by itself would put other files in the place of these at any time.
    let options = [SMALL, &[("compaction.style", "NONE")]].concat();
    let mut subtasks = Subtasks::new(dir.path(), 2, 16, &options);
    let (mut random, mut model) = (Random::new(3), Model::new());
    subtasks.work(&mut random, &mut model, 20_000);
    subtasks.snapshot(SnapshotKind::Checkpoint);
    let first = subtasks.snapshot(SnapshotKind::Checkpoint);
    subtasks.restore(&first, 2).unwrap();
    let restored = subtasks.stores[0].restored().unwrap();
    assert_eq!(
        restored.fetched_files as usize,
        files(&first[0]).shared.len()
    );
    assert_eq!((restored.skipped_files, restored.rewritten_bytes), (0, 0));
    let second = subtasks.snapshot(SnapshotKind::Checkpoint);
    for (old, new) in first.iter().zip(&second) {
        let (old, new) = (files(old), files(new));
        assert_eq!(old.backend_id, new.backend_id);
        assert!(old.shared.len() > 3);
        assert_eq!(objects(&old.shared), objects(&new.shared));
    }
    subtasks.restore(&second, 2).unwrap();
    let full = subtasks.snapshot(SnapshotKind::FullCheckpoint);
    assert!(all_objects(&full).is_disjoint(&all_objects(&second)));
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn ic_12_a_cut_never_has_what_came_later_however_much_the_database_does_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let (mut random, mut model) = (Random::new(11), Model::new());
    for round in 0..12 {
        subtasks.work(&mut random, &mut model, 3_000);
        let expected = model.clone();
        let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
        // Flushes and compactions remove files and write others.
        subtasks.work(&mut random, &mut model, 3_000);
        subtasks.stores[0].compact().unwrap();
        let handles = subtasks.persist(checkpoint, cuts.remove(0)).unwrap();
        if round % 3 != 0 {
            subtasks.completed(checkpoint);
        }
        let other = tempfile::tempdir().unwrap();
        let mut restored = Subtasks::new(other.path(), 1, 16, SMALL);
        restored.storage = Arc::clone(&subtasks.storage);
        restored.restore(&handles, 1).unwrap();
        assert!(restored.contents() == expected, "round {round}");
    }
}

#[test]
fn k_250_k_251_ic_05_a_failing_upload_is_told_and_the_others_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let (mut random, mut model) = (Random::new(5), Model::new());
    subtasks.work(&mut random, &mut model, 10_000);
    let counting = CountingStorage::new(Arc::new(MemoryStorage::new()));
    let faulty = FaultyStorage::new(Arc::new(counting.clone()));
    subtasks.storage = Arc::new(faulty.clone());
    faulty.fail_nth_of(Call::Finish, 3, Fault::Fail(ErrorKind::LimitExceeded));
    let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
    let error = subtasks.persist(checkpoint, cuts.remove(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(counting.counts().open, 0);
    assert_no_cuts(&subtasks);
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    subtasks.restore(&handles, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}

#[test]
fn a_snapshot_that_is_dropped_at_any_point_leaves_nothing_in_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let (mut random, mut model) = (Random::new(7), Model::new());
    subtasks.work(&mut random, &mut model, 5_000);
    let counting = CountingStorage::new(Arc::new(MemoryStorage::new()));
    for call in 0..40 {
        let faulty = FaultyStorage::new(Arc::new(counting.clone()));
        subtasks.storage = Arc::new(faulty.clone());
        if call > 0 {
            faulty.fail_nth(call, Fault::Hang);
        }
        let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
        let mut cx = PersistContext::new(
            checkpoint,
            Arc::clone(&subtasks.storage),
            Arc::new(backend_testkit::InlineExecutor),
        );
        cx.cancel = CancelToken::new();
        if call == 0 {
            drop(cuts);
        } else {
            let cancel = cx.cancel.clone();
            let mut persist = cuts.remove(0).persist(cx);
            if let Some(written) = poll_once(&mut persist) {
                written.unwrap();
            } else if call % 2 == 0 {
                drop(persist);
            } else {
                cancel.cancel();
                assert_eq!(block_on(persist).unwrap_err().kind(), ErrorKind::Cancelled);
            }
        }
        assert_no_cuts(&subtasks);
        assert_eq!(counting.counts().open, 0, "hanging at call {call}");
    }
    subtasks.storage = Arc::new(MemoryStorage::new());
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    subtasks.restore(&handles, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}

fn assert_no_cuts(subtasks: &Subtasks) {
    let left: Vec<_> = std::fs::read_dir(subtasks.stores[0].folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("cut"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn k_240_a_snapshot_outlives_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let (mut random, mut model) = (Random::new(9), Model::new());
    subtasks.work(&mut random, &mut model, 5_000);
    let (checkpoint, mut cuts) = subtasks.cut(SnapshotKind::Checkpoint);
    subtasks.stores.clear();
    let handles = subtasks.persist(checkpoint, cuts.remove(0)).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    subtasks.restore(&handles, 1).unwrap();
    assert_eq!(subtasks.contents(), model);
}
