//! Where savepoints and checkpoints of a job lie.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use checkpoint_storage::{
    CheckpointMetadata, CopyOptions, GcOptions, JobStore, MemoryStore, SavepointFolder, StoreRoot,
    StoredCheckpoint, SubtaskMetadata, collect_garbage, copy_checkpoint, verify,
};
use common::job_folder::*;
use common::*;
use state_api::{Attempt, CheckpointId, ErrorKind, OperatorSnapshot, Scope, SnapshotKind};

#[test]
fn k_474_each_savepoint_has_a_folder_of_its_own_with_everything_in_it() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let store = open(&root.folder("flights"), 1).await;
            let target = root.folder("savepoints");
            let source = names(9);
            let mut folders = Vec::new();
            for id in [1, 2] {
                let folder = SavepointFolder::choose(Some(&target), None, &job(), &source)
                    .await
                    .unwrap();
                let storage = folder.storage(&store, options(0, 16));
                let mut savepoint = CheckpointMetadata::new(
                    CheckpointId(id),
                    job(),
                    Attempt(1),
                    SnapshotKind::CanonicalSavepoint,
                    0,
                );
                let mut count = operator("count", 3);
                for (index, scope) in [
                    (0, Scope::Exclusive),
                    (1, Scope::Shared),
                    (2, Scope::TaskOwned),
                ] {
                    let bytes = write_object(&storage, id, scope, "state").await;
                    let snapshot = OperatorSnapshot {
                        raw_keyed: vec![key_groups(bytes)],
                        ..Default::default()
                    };
                    count.subtasks.push(SubtaskMetadata::new(index, snapshot));
                }
                savepoint.operators.push(count);
                store.publish_savepoint(&folder, &savepoint).await.unwrap();
                let name = folder.root().url().rsplit_once('/').unwrap().1.to_owned();
                assert!(
                    name.starts_with("savepoint-flight-") && name.len() == 29,
                    "{kind} {name}"
                );
                assert_eq!(target.list(&name).await.unwrap().len(), 4, "{kind}");
                let read = StoredCheckpoint::read(&target, &name).await.unwrap();
                assert_eq!(read.metadata, savepoint, "{kind}");
                assert!(verify(&read, []).await.unwrap().faults.is_empty(), "{kind}");
                folders.push(name);
            }
            assert_ne!(folders[0], folders[1], "{kind}");
        });
    });
}

#[test]
fn k_482_the_target_of_a_savepoint_beats_the_default_and_one_of_them_is_needed() {
    let root = StoreRoot::memory(&MemoryStore::new(), "test");
    let (target, default) = (root.folder("target"), root.folder("default"));
    let choose = |target, default| now(SavepointFolder::choose(target, default, &job(), &names(3)));
    let url = |folder: SavepointFolder| folder.root().url().to_owned();
    assert!(
        url(choose(Some(&target), Some(&default)).unwrap()).starts_with("memory://test/target/")
    );
    assert!(url(choose(None, Some(&default)).unwrap()).starts_with("memory://test/default/"));
    assert_eq!(
        choose(None, None).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn k_477_the_level_of_the_job_can_be_left_out() {
    let root = StoreRoot::memory(&MemoryStore::new(), "all");
    assert_eq!(
        JobStore::job_folder(&root, &job(), true).url(),
        "memory://all/flights"
    );
    assert_eq!(
        JobStore::job_folder(&root, &job(), false).url(),
        "memory://all"
    );
}

#[test]
fn k_496_a_job_with_entropy_in_its_path_is_listed_verified_copied_and_cleared_up() {
    let store = MemoryStore::new();
    let bucket = StoreRoot::memory(&store, "bucket");
    let root = bucket.with_entropy("a-_e_-b/flights", "_e_", 1).unwrap();
    assert_eq!(root.url(), "memory://bucket/a-_e_-b/flights");
    let job = now(open(&root, 1));
    let storage = job.storage(options(0, 16));
    let shared = now(write_object(&storage, 1, Scope::Shared, "shared"));
    let mut all = Vec::new();
    for id in [1, 2] {
        all.push(now(checkpoint(&job, id, std::slice::from_ref(&shared))));
        now(job.publish(&all[id as usize - 1])).unwrap();
    }
    let (plain, spread): (Vec<_>, Vec<_>) = store
        .paths()
        .into_iter()
        .partition(|path| path.starts_with("a--b/flights/"));
    assert_eq!(
        plain.len(),
        3,
        "two of metadata and an attempt's number: {plain:?}"
    );
    assert_eq!(spread.len(), 5);
    for path in &spread {
        let digit = path
            .strip_prefix("a-")
            .unwrap()
            .split_once("-b/flights/")
            .unwrap()
            .0;
        assert!(
            digit.len() == 1 && digit.chars().all(|c| c.is_ascii_hexdigit()),
            "{path}"
        );
    }
    let found = now(job.load("latest")).unwrap();
    assert!(now(verify(&found, [])).unwrap().faults.is_empty());
    let copy = StoreRoot::memory(&store, "elsewhere").folder("copy");
    assert_eq!(
        now(copy_checkpoint(&found, &copy, CopyOptions::default()))
            .unwrap()
            .objects,
        3
    );
    // A checkpoint that is not retained goes, with its objects wherever they lie, and what is shared stays.
    now(job.discard(&all[0], [&all[1]]))
        .unwrap()
        .into_result()
        .unwrap();
    let report = now(collect_garbage(
        &root,
        &GcOptions {
            dry_run: true,
            ..GcOptions::default()
        },
    ))
    .unwrap();
    assert_eq!(
        (report.referenced, report.unreferenced.len()),
        (3, 0),
        "{report:?}"
    );
    assert!(report.foreign.is_empty());
    // The bucket by another marker, or none, is another place.
    assert_eq!(
        bucket.with_entropy("flights", "_e_", 1).unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[test]
fn a_place_where_nothing_may_be_deleted_takes_savepoints_and_one_that_is_full_is_left_as_it_was() {
    let denied = FaultyStore::new(|call, _, _| match call {
        "delete" => Fault::Deny,
        _ => Fault::None,
    });
    let full = FaultyStore::new(|call, _, _| match call {
        "publish" => Fault::Fail,
        _ => Fault::None,
    });
    for (store, fits) in [(denied, true), (full, false)] {
        let root = store.root();
        let folder = now(SavepointFolder::choose(
            Some(&root),
            None,
            &job(),
            &names(1),
        ));
        assert_eq!(folder.is_ok(), fits);
        assert_eq!(store.inner.paths().is_empty(), !fits);
    }
}
