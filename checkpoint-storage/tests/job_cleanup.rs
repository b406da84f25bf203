//! What is deleted in a job folder, by whom, and what stays.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use bytes::Bytes;
use checkpoint_storage::{CheckpointMetadata, DeleteReport, MemoryStore, StoreRoot, verify};
use common::job_folder::*;
use common::*;
use state_api::{Attempt, CheckpointId, ErrorKind, Scope, SnapshotKind};

#[test]
fn a_discarded_checkpoint_takes_its_own_objects_and_leaves_those_of_others() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let store = open(&root, 1).await;
            let shared =
                write_object(&store.storage(options(0, 16)), 1, Scope::Shared, "shared").await;
            let one = checkpoint(&store, 1, std::slice::from_ref(&shared)).await;
            let mut two = checkpoint(&store, 2, std::slice::from_ref(&shared)).await;
            // The second one still refers to an object in the folder of the first.
            let borrowed = one.operators[0].subtasks[0].snapshot.clone();
            Arc::make_mut(&mut two.operators[0].subtasks[0].snapshot)
                .managed_keyed
                .extend(borrowed.managed_keyed.iter().cloned());
            for each in [&one, &two] {
                store.publish(each).await.unwrap();
            }
            let report = store.discard(&one, [&two]).await.unwrap();
            assert_eq!((report.deleted, report.failed.len()), (1, 0), "{kind}");
            let second = store.load("chk-2").await.unwrap();
            assert!(
                verify(&second, []).await.unwrap().faults.is_empty(),
                "{kind}"
            );
            assert!(
                root.list("")
                    .await
                    .unwrap()
                    .iter()
                    .any(|entry| entry.name == "chk-1"),
                "{kind}"
            );
            // Again, and with nothing retained: what is gone is no error.
            assert_eq!(
                store
                    .discard(&one, [])
                    .await
                    .unwrap()
                    .into_result()
                    .unwrap(),
                2,
                "{kind}"
            );
            assert!(
                root.list("")
                    .await
                    .unwrap()
                    .iter()
                    .all(|entry| entry.name != "chk-1"),
                "{kind}"
            );
        });
    });
}

#[test]
fn a_stray_file_keeps_the_folder_of_a_discarded_checkpoint() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    runtime.block_on(async {
        let store = open(&root, 1).await;
        let one = checkpoint(&store, 1, &[]).await;
        store.publish(&one).await.unwrap();
        std::fs::write(folder.path().join("chk-1/notes.txt"), "mine").unwrap();
        store
            .discard(&one, [])
            .await
            .unwrap()
            .into_result()
            .unwrap();
        assert_eq!(all_objects(&root, "chk-1").await, ["chk-1/notes.txt"]);
    });
}

#[test]
fn a_discard_that_fails_anywhere_is_completed_by_the_next() {
    let mut failing = 0;
    loop {
        // Counts down from the moment it is set; below zero nothing fails.
        let countdown = Arc::new(AtomicIsize::new(-1));
        let hit = Arc::clone(&countdown);
        let store = FaultyStore::new(move |_, _, _| match hit.fetch_sub(1, Ordering::SeqCst) {
            0 => Fault::Fail,
            _ => Fault::None,
        });
        let job = now(open(&store.root(), 1));
        let one = now(checkpoint(&job, 1, &[]));
        now(job.publish(&one)).unwrap();
        countdown.store(failing, Ordering::SeqCst);
        let outcome = now(job.discard(&one, [])).and_then(DeleteReport::into_result);
        let missed = countdown.swap(-1, Ordering::SeqCst) >= 0;
        // Never a checkpoint that looks complete but has lost an object.
        let object = |path: &str| store.inner.get(path).is_some();
        if object("chk-1/_metadata") {
            assert!(
                one.objects().all(|used| object(used.object.path.as_str())),
                "call {failing}"
            );
        }
        if missed {
            assert!(failing > 5 && outcome.is_ok());
            break;
        }
        now(job.discard(&one, [])).unwrap().into_result().unwrap();
        assert_eq!(store.inner.paths(), ["attempts/1"], "call {failing}");
        failing += 1;
    }
}

#[test]
fn k_321_when_one_object_can_not_be_deleted_the_others_are_and_it_is_reported() {
    let store = FaultyStore::new(|call, path, _| match call {
        "delete" if path.ends_with("stuck") => Fault::Fail,
        _ => Fault::None,
    });
    let job = now(open(&store.root(), 1));
    let names = ["shared/1-a", "shared/1-stuck", "shared/1-b"];
    let objects = names.map(|name| {
        store.inner.put(name, "body");
        object(state_api::Root::Own, name, b"body")
            .object()
            .unwrap()
            .clone()
    });
    let report = now(job.delete_objects(&objects)).unwrap();
    assert_eq!(report.deleted, 2);
    let error = report.into_result().unwrap_err();
    assert_eq!(
        (error.kind(), error.context("first")),
        (ErrorKind::Retryable, Some("shared/1-stuck"))
    );
    assert_eq!(store.inner.paths(), ["attempts/1", "shared/1-stuck"]);
}

#[test]
fn savepoints_and_checkpoints_of_other_jobs_are_not_discarded() {
    let root = StoreRoot::memory(&MemoryStore::new(), "job");
    let store = now(open(&root, 1));
    let savepoint = CheckpointMetadata::new(
        CheckpointId(1),
        job(),
        Attempt(1),
        SnapshotKind::CanonicalSavepoint,
        0,
    );
    let other = CheckpointMetadata {
        job: state_api::JobId::new("other").unwrap(),
        ..metadata(1, 1)
    };
    for refused in [savepoint, other] {
        assert_eq!(
            now(store.discard(&refused, [])).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
}

#[test]
fn what_lower_attempts_left_unfinished_is_swept_and_can_not_be_completed_any_more() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let old = open(&root, 1).await;
            let one = checkpoint(&old, 1, &[]).await;
            old.publish(&one).await.unwrap();
            let two = checkpoint(&old, 2, &[]).await;
            let stray = Bytes::from_static(b"mine");
            root.publish("chk-2/notes.txt", stray).await.unwrap();
            let new = open(&root, 2).await;
            let own = checkpoint(&new, 3, &[]).await;
            let report = new.sweep_abandoned().await.unwrap();
            assert_eq!(
                (report.swept, report.left),
                (vec!["chk-2".to_owned()], vec!["chk-2/notes.txt".to_owned()]),
                "{kind}"
            );
            assert!(report.failed.is_empty());
            assert_eq!(
                shown(&new.list().await.unwrap()),
                [
                    ("chk-1", "complete"),
                    ("chk-3", "incomplete"),
                    ("chk-2", "abandoned")
                ],
                "{kind}"
            );
            // The old attempt wakes up; even past its first fencing check it could not complete what lost its objects.
            let error = root
                .publish("chk-2/_metadata", two.encode().unwrap())
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind}");
            assert_eq!(
                old.publish(&two).await.unwrap_err().kind(),
                ErrorKind::Fenced,
                "{kind}"
            );
            let error = new.load("chk-2").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(
                error.to_string().contains("attempt 2 gave it up"),
                "{error}"
            );
            // A second sweep finds nothing, and what is being written is left alone.
            assert_eq!(
                new.sweep_abandoned().await.unwrap().swept,
                Vec::<String>::new(),
                "{kind}"
            );
            new.publish(&own).await.unwrap();
            assert!(
                verify(&new.load("chk-3").await.unwrap(), [])
                    .await
                    .unwrap()
                    .faults
                    .is_empty(),
                "{kind}"
            );
            // Ids go on above the mark.
            assert_eq!(
                open(&root, 3).await.first_checkpoint(),
                CheckpointId(4),
                "{kind}"
            );
        });
    });
}

#[test]
fn a_sweep_keeps_what_a_complete_checkpoint_names_in_the_folder_of_one_that_is_gone() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "job");
    now(async {
        let old = open(&root, 1).await;
        let one = checkpoint(&old, 1, &[]).await;
        let mut two = checkpoint(&old, 2, &[]).await;
        let borrowed = one.operators[0].subtasks[0].snapshot.clone();
        Arc::make_mut(&mut two.operators[0].subtasks[0].snapshot)
            .managed_keyed
            .extend(borrowed.managed_keyed.iter().cloned());
        for each in [&one, &two] {
            old.publish(each).await.unwrap();
        }
        // It is discarded, and its attempt dies before it is done.
        root.delete("chk-1/_metadata").await.unwrap();
        let next = open(&root, 2).await;
        next.sweep_abandoned().await.unwrap();
        let second = next.load("chk-2").await.unwrap();
        assert!(verify(&second, []).await.unwrap().faults.is_empty());
        // What only the first named is gone.
        assert_eq!(all_objects(&root, "chk-1").await.len(), 2);
    });
}

#[test]
fn k_475_task_owned_objects_outlive_the_checkpoint() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "job");
    let job = now(open(&root, 1));
    let owned = now(write_object(
        &job.storage(options(0, 16)),
        1,
        Scope::TaskOwned,
        "log",
    ));
    let one = now(checkpoint(&job, 1, std::slice::from_ref(&owned)));
    now(job.publish(&one)).unwrap();
    now(job.discard(&one, [])).unwrap().into_result().unwrap();
    assert_eq!(
        store.paths(),
        [
            "attempts/1".to_owned(),
            owned.object().unwrap().path.to_string()
        ]
    );
}
