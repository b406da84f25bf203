//! The job folder: attempts and the publication of checkpoints.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use checkpoint_storage::{
    CheckpointMetadata, METADATA_NAME, MemoryStore, StoreRoot, read_handle, verify,
};
use common::job_folder::*;
use common::*;
use state_api::{Attempt, CheckpointId, ErrorKind};

#[test]
fn a_published_checkpoint_is_listed_loaded_and_verified() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let store = open(&root, 1).await;
            assert_eq!(
                (store.attempt(), store.first_checkpoint()),
                (Attempt(1), CheckpointId(1)),
                "{kind}"
            );
            assert!(store.latest().await.unwrap().is_none());
            let written = checkpoint(&store, 1, &[]).await;
            assert_eq!(
                shown(&store.list().await.unwrap()),
                [("chk-1", "incomplete")],
                "{kind}"
            );
            let published = store.publish(&written).await.unwrap();
            assert_eq!(published.url, format!("{}/chk-1", root.url()));
            assert_eq!(
                shown(&store.list().await.unwrap()),
                [("chk-1", "complete")],
                "{kind}"
            );
            for pointer in ["latest", "chk-1", "chk-1/", "chk-1/_metadata"] {
                let loaded = store.load(pointer).await.unwrap();
                assert_eq!(loaded.metadata, written, "{kind} {pointer}");
                assert_eq!(loaded.metadata_len, published.metadata_len);
            }
            let report = verify(&store.latest().await.unwrap().unwrap(), [])
                .await
                .unwrap();
            assert_eq!(
                (report.objects, report.bytes, report.faults.len()),
                (2, 24, 0),
                "{kind}"
            );
            assert_eq!(
                store.load("elsewhere").await.unwrap_err().kind(),
                ErrorKind::InvalidArgument
            );
        });
    });
}

#[test]
fn a_whole_job_runs_in_memory_without_a_runtime() {
    let root = StoreRoot::memory(&MemoryStore::new(), "job");
    now(async {
        let store = open(&root, 1).await;
        let one = checkpoint(&store, 1, &[]).await;
        store.publish(&one).await.unwrap();
        let two = checkpoint(&store, 2, &[]).await;
        store.publish(&two).await.unwrap();
        assert_eq!(
            store
                .discard(&one, [&two])
                .await
                .unwrap()
                .into_result()
                .unwrap(),
            2
        );
        let loaded = store.latest().await.unwrap().unwrap();
        let handle = loaded.metadata.operators[0].subtasks[1]
            .snapshot
            .parts()
            .next()
            .unwrap()
            .clone();
        assert_eq!(
            read_handle(&loaded.storage([]), &handle).await.unwrap(),
            "state 2 of 1"
        );
    });
}

#[test]
fn k_480_three_checkpoints_of_metadata_alone_live_and_die_alone() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let store = open(&root, 1).await;
            let all: Vec<_> = (1..=3).map(|id| metadata(id, 1)).collect();
            for each in &all {
                store.publish(each).await.unwrap();
            }
            assert_eq!(
                shown(&store.list().await.unwrap()),
                [
                    ("chk-3", "complete"),
                    ("chk-2", "complete"),
                    ("chk-1", "complete")
                ],
                "{kind}"
            );
            store.discard(&all[1], [&all[0], &all[2]]).await.unwrap();
            assert_eq!(
                shown(&store.list().await.unwrap()),
                [("chk-3", "complete"), ("chk-1", "complete")],
                "{kind}"
            );
            assert!(
                root.list("")
                    .await
                    .unwrap()
                    .iter()
                    .all(|entry| entry.name != "chk-2"),
                "{kind}"
            );
            store.discard(&all[1], []).await.unwrap();
        });
    });
}

#[test]
fn k_481_an_id_that_is_taken_is_refused_and_what_is_there_stays() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let store = open(&root, 1).await;
            let first = metadata(1, 1);
            store.publish(&first).await.unwrap();
            // The same call again tells that it is done.
            store.publish(&first).await.unwrap();
            let other = CheckpointMetadata {
                created_ms: 5,
                ..first.clone()
            };
            let error = store.publish(&other).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.context("checkpoint")),
                (ErrorKind::AlreadyExists, Some("1")),
                "{kind}"
            );
            assert_eq!(store.load("chk-1").await.unwrap().metadata, first, "{kind}");
        });
    });
}

#[test]
fn metadata_of_another_attempt_or_job_is_not_published() {
    let root = StoreRoot::memory(&MemoryStore::new(), "job");
    let store = now(open(&root, 1));
    let other_job = CheckpointMetadata {
        job: state_api::JobId::new("other").unwrap(),
        ..metadata(1, 1)
    };
    for wrong in [metadata(1, 2), other_job] {
        assert_eq!(
            now(store.publish(&wrong)).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
}

#[test]
fn a_higher_attempt_fences_publication_and_deletion() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let old = open(&root, 1).await;
            let one = checkpoint(&old, 1, &[]).await;
            old.publish(&one).await.unwrap();
            let two = checkpoint(&old, 2, &[]).await;
            let new = open(&root, 2).await;
            assert_eq!(
                (new.attempt(), new.first_checkpoint()),
                (Attempt(2), CheckpointId(3)),
                "{kind}"
            );
            let before = all_objects(&root, "").await;
            assert_eq!(
                old.publish(&two).await.unwrap_err().kind(),
                ErrorKind::Fenced,
                "{kind}"
            );
            assert_eq!(
                old.discard(&one, []).await.unwrap_err().kind(),
                ErrorKind::Fenced,
                "{kind}"
            );
            assert_eq!(
                old.sweep_abandoned().await.unwrap().swept,
                Vec::<String>::new(),
                "{kind}"
            );
            let objects: Vec<_> = one.objects().map(|used| used.object.clone()).collect();
            assert_eq!(
                old.delete_objects(&objects).await.unwrap_err().kind(),
                ErrorKind::Fenced,
                "{kind}"
            );
            assert_eq!(
                all_objects(&root, "").await,
                before,
                "{kind}: a fenced attempt touches nothing"
            );
            new.check_fenced().await.unwrap();
            assert_eq!(new.latest().await.unwrap().unwrap().metadata, one, "{kind}");
        });
    });
}

#[test]
fn attempts_that_start_at_once_get_different_numbers() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    let starts = (0..8).map(|seed| {
        let root = root.clone();
        runtime.spawn(async move { open(&root, seed).await.attempt().0 })
    });
    let starts: Vec<_> = starts.collect();
    let mut attempts: Vec<_> = starts
        .into_iter()
        .map(|start| runtime.block_on(start).unwrap())
        .collect();
    attempts.sort_unstable();
    assert_eq!(attempts, (1..=8).collect::<Vec<_>>());
}

#[test]
fn an_attempt_that_was_held_up_between_fencing_check_and_publication_learns_of_it() {
    // The successor starts at the very moment of the publication.
    let inner = MemoryStore::new();
    let successor = inner.clone();
    let store = FaultyStore::over(inner, move |call, path, _| {
        if call == "publish" && path == "chk-9/_metadata" {
            successor.put("attempts/2", "successor");
        }
        Fault::None
    });
    let old = now(open(&store.root(), 1));
    now(old.publish(&metadata(8, 1))).unwrap();
    let late = metadata(9, 1);
    assert_eq!(
        now(old.publish(&late)).unwrap_err().kind(),
        ErrorKind::Fenced
    );
    // It is there nevertheless. A successor that has completed nothing goes on from it, one that has does not.
    let new = now(open(&store.root(), 3));
    assert_eq!(now(new.latest()).unwrap().unwrap().metadata, late);
    now(new.publish(&metadata(5, new.attempt().0))).unwrap();
    assert_eq!(
        now(new.latest()).unwrap().unwrap().metadata.checkpoint,
        CheckpointId(5)
    );
}

#[test]
fn a_publication_whose_answer_was_lost_is_recognised_and_one_that_was_not_done_fails() {
    for (fault, expected) in [
        (Fault::FailAfter, None),
        (Fault::Fail, Some(ErrorKind::Retryable)),
        (Fault::Lie, Some(ErrorKind::Retryable)),
    ] {
        let store = FaultyStore::new(move |call, path, _| match call {
            "publish" if path.ends_with(METADATA_NAME) => fault,
            _ => Fault::None,
        });
        let job = now(open(&store.root(), 1));
        let outcome = now(job.publish(&metadata(1, 1))).err().map(|e| e.kind());
        assert_eq!(outcome, expected, "{fault:?}");
        assert_eq!(
            store.inner.get("chk-1/_metadata").is_some(),
            fault == Fault::FailAfter
        );
    }
}

#[test]
fn a_store_that_denies_access_after_the_metadata_may_be_written_leaves_it_in_doubt() {
    // What is denied once the publication was tried, and whether that had failed.
    for (denied, failed) in [
        ("len", Fault::None),
        ("list", Fault::None),
        ("read", Fault::FailAfter),
        ("read", Fault::Deny),
    ] {
        let tried = Arc::new(AtomicBool::new(false));
        let store = FaultyStore::new(move |call, path, _| match call {
            "publish" if path.ends_with(METADATA_NAME) => {
                tried.store(true, Ordering::Relaxed);
                failed
            }
            _ if call == denied && tried.load(Ordering::Relaxed) => Fault::Deny,
            _ => Fault::None,
        });
        let job = now(open(&store.root(), 1));
        let error = now(job.publish(&metadata(1, 1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retryable, "{denied}: {error}");
    }
    // Where it is seen that nothing is there, nothing is in doubt.
    let store = FaultyStore::new(|call, path, _| match call {
        "publish" if path.ends_with(METADATA_NAME) => Fault::Deny,
        _ => Fault::None,
    });
    let job = now(open(&store.root(), 1));
    let error = now(job.publish(&metadata(1, 1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[test]
fn an_attempt_number_whose_answer_was_lost_is_recognised() {
    let store = FaultyStore::new(|call, path, _| match call {
        "publish" if path == "attempts/1" => Fault::FailAfter,
        _ => Fault::None,
    });
    assert_eq!(now(open(&store.root(), 1)).attempt(), Attempt(1));
}
