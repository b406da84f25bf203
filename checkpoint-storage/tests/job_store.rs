//! The job folder: attempts, publication, listing, pointers, clean-up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, DeleteReport, JobStore, ListedCheckpoint, METADATA_NAME,
    MemoryStore, ObjectCheckpointStorage, SavepointFolder, StoreRoot, StoredCheckpoint,
    SubtaskMetadata, read_handle, verify,
};
use common::*;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, ErrorKind, OperatorSnapshot, Scope, SnapshotKind,
    StateHandle,
};

async fn open(root: &StoreRoot, seed: u64) -> JobStore {
    JobStore::open(root.clone(), job(), names(seed))
        .await
        .unwrap()
}

async fn write_object(
    storage: &ObjectCheckpointStorage,
    checkpoint: u64,
    scope: Scope,
    body: &str,
) -> StateHandle {
    let mut stream = storage.create(CheckpointId(checkpoint), scope);
    stream
        .write(Bytes::copy_from_slice(body.as_bytes()))
        .await
        .unwrap();
    stream.finish().await.unwrap().unwrap()
}

/// A checkpoint of one operator with two subtasks: each has an object of its own, the second one shared objects too.
async fn checkpoint(store: &JobStore, id: u64, shared: &[StateHandle]) -> CheckpointMetadata {
    let storage = store.storage(options(0, 16));
    let mut count = operator("count", 2);
    for index in 0..2 {
        let own = write_object(
            &storage,
            id,
            Scope::Exclusive,
            &format!("state {id} of {index}"),
        )
        .await;
        let files = shared
            .iter()
            .enumerate()
            .map(|(i, h)| file(&i.to_string(), h.clone()));
        let files = if index == 1 {
            files.collect()
        } else {
            Vec::new()
        };
        let snapshot = OperatorSnapshot {
            managed_keyed: vec![incremental(id, vec![file("own", own)], files)],
            ..OperatorSnapshot::default()
        };
        count.subtasks.push(SubtaskMetadata::new(index, snapshot));
    }
    let mut all = metadata(id, store.attempt().0);
    all.operators = vec![count];
    all
}

fn shown(listed: &[ListedCheckpoint]) -> Vec<(&str, &str)> {
    let state = |c: &ListedCheckpoint| match c.state {
        CheckpointState::Complete(_) => "complete",
        CheckpointState::Incomplete => "incomplete",
        CheckpointState::Abandoned => "abandoned",
        CheckpointState::Damaged(_) => "damaged",
    };
    listed.iter().map(|c| (c.name.as_str(), state(c))).collect()
}

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
fn an_attempt_number_whose_answer_was_lost_is_recognised() {
    let store = FaultyStore::new(|call, path, _| match call {
        "publish" if path == "attempts/1" => Fault::FailAfter,
        _ => Fault::None,
    });
    assert_eq!(now(open(&store.root(), 1)).attempt(), Attempt(1));
}

#[test]
fn damaged_and_unfinished_checkpoints_are_reported_and_skipped() {
    let folder = MemoryStore::new();
    let root = StoreRoot::memory(&folder, "job");
    let store = now(open(&root, 1));
    for id in 1..=4 {
        now(store.publish(&metadata(id, 1))).unwrap();
    }
    let mut flipped = folder.get("chk-4/_metadata").unwrap().to_vec();
    flipped[40] ^= 1;
    folder.put("chk-4/_metadata", flipped);
    let whole = folder.get("chk-3/_metadata").unwrap();
    folder.put("chk-3/_metadata", whole.slice(..whole.len() - 1));
    folder.put("chk-5/1-x", "an object");
    folder.put("chk-7/_metadata", folder.get("chk-2/_metadata").unwrap());
    folder.put("chk-x/_metadata", "not ours");
    let listed = now(store.list()).unwrap();
    assert_eq!(
        shown(&listed),
        [
            ("chk-2", "complete"),
            ("chk-1", "complete"),
            ("chk-7", "damaged"),
            ("chk-5", "incomplete"),
            ("chk-4", "damaged"),
            ("chk-3", "damaged")
        ]
    );
    for damaged in &listed {
        if let CheckpointState::Damaged(e) = &damaged.state {
            assert_eq!(e.kind(), ErrorKind::Corrupt);
            assert_eq!(
                e.context("checkpoint"),
                Some(format!("memory://job/{}", damaged.name).as_str())
            );
        }
    }
    assert_eq!(
        now(store.latest()).unwrap().unwrap().metadata.checkpoint,
        CheckpointId(2)
    );
    assert_eq!(
        now(store.load("chk-4")).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        now(store.load("chk-5")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    // The next attempt starts above everything that left a trace.
    assert_eq!(now(open(&root, 2)).first_checkpoint(), CheckpointId(8));
}

#[test]
fn verify_names_object_operator_and_subtask_and_deletes_nothing() {
    on_every_store(|kind, runtime, root| {
        for damage in ["flipped", "truncated", "missing"] {
            runtime.block_on(async {
                let store = open(&root, 1).await;
                let id = store.first_checkpoint().0;
                let written = checkpoint(&store, id, &[]).await;
                store.publish(&written).await.unwrap();
                let victim = written.objects().nth(1).unwrap().object.clone();
                let path = victim.path.as_str();
                let mut bytes = root.read_all(path).await.unwrap().to_vec();
                root.delete(path).await.unwrap();
                bytes[3] ^= 1;
                if damage == "truncated" {
                    bytes.pop();
                }
                if damage != "missing" {
                    root.publish(path, bytes.into()).await.unwrap();
                }
                let before = all_objects(&root, "").await;
                let report = verify(&store.load("latest").await.unwrap(), [])
                    .await
                    .unwrap();
                assert_eq!(report.faults.len(), 1, "{kind} {damage}");
                let error = report.into_result().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{kind} {damage}");
                assert_eq!(error.context("object"), Some(path), "{kind} {damage}");
                assert_eq!(error.context("operator"), Some("count"));
                assert_eq!(error.context("subtask"), Some("1"));
                assert_eq!(all_objects(&root, "").await, before, "{kind} {damage}");
            });
        }
    });
}

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
            two.operators[0].subtasks[0]
                .snapshot
                .managed_keyed
                .extend(borrowed.managed_keyed);
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
fn k_478_a_pointer_names_the_metadata_its_folder_or_the_latest() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(&folder.path().join("flights"), runtime.handle());
    runtime.block_on(async {
        let store = open(&root, 1).await;
        let one = checkpoint(&store, 1, &[]).await;
        store.publish(&one).await.unwrap();
        let at = folder.path().join("flights").to_string_lossy().into_owned();
        let spellings = [
            "chk-1",
            "chk-1/",
            "chk-1/_metadata",
            "latest",
            "latest/",
            "./chk-1",
            "../flights/chk-1",
        ];
        for spelling in spellings {
            for scheme in ["", "file://", "file:"] {
                let pointer = format!("{scheme}{at}/{spelling}");
                let found = StoredCheckpoint::find(&pointer, runtime.handle()).await;
                let found = found.unwrap_or_else(|e| panic!("{pointer}: {e}"));
                assert_eq!(found.metadata, one, "{pointer}");
                assert!(
                    verify(&found, []).await.unwrap().faults.is_empty(),
                    "{pointer}"
                );
            }
        }
    });
}

#[test]
fn k_479_a_pointer_to_nothing_is_an_error_that_says_so() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(&folder.path().join("flights"), runtime.handle());
    runtime.block_on(async {
        let find = async |pointer: &str| {
            StoredCheckpoint::find(pointer, runtime.handle())
                .await
                .unwrap_err()
        };
        let at = folder.path().to_string_lossy().into_owned();
        assert_eq!(find("").await.kind(), ErrorKind::InvalidArgument);
        assert_eq!(find("s3:broken").await.kind(), ErrorKind::Config);
        assert_eq!(
            find("nowhere://bucket/a/chk-1").await.kind(),
            ErrorKind::Config
        );
        assert_eq!(
            find(&format!("{at}/gone/chk-1")).await.kind(),
            ErrorKind::NotFound
        );
        let store = open(&root, 1).await;
        let error = find(&format!("{at}/flights/latest")).await;
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().contains("no complete checkpoint"),
            "{error}"
        );
        store.publish(&metadata(1, 1)).await.unwrap();
        let error = find(&format!("{at}/flights")).await;
        assert_eq!(error.kind(), ErrorKind::NotFound);
        for words in [
            "no complete checkpoint: it has no _metadata",
            "add /latest or one of chk-1",
        ] {
            assert!(error.to_string().contains(words), "{error} lacks {words}");
        }
    });
}

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
fn k_497_a_checkpoint_and_a_savepoint_that_were_moved_read_as_before() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    runtime.block_on(async {
        let store = open(&local(&at("flights"), runtime.handle()), 1).await;
        let shared = write_object(&store.storage(options(0, 16)), 1, Scope::Shared, "shared").await;
        store
            .publish(&checkpoint(&store, 1, &[shared]).await)
            .await
            .unwrap();
        let target = local(&at("savepoints"), runtime.handle());
        let place = SavepointFolder::choose(Some(&target), None, &job(), &names(3))
            .await
            .unwrap();
        let mut savepoint = CheckpointMetadata::new(
            CheckpointId(2),
            job(),
            Attempt(1),
            SnapshotKind::NativeSavepoint,
            0,
        );
        savepoint.operators.push(operator("count", 1));
        let bytes = write_object(
            &place.storage(&store, options(0, 16)),
            2,
            Scope::Shared,
            "all",
        )
        .await;
        let snapshot = OperatorSnapshot {
            raw_keyed: vec![key_groups(bytes)],
            ..Default::default()
        };
        savepoint.operators[0]
            .subtasks
            .push(SubtaskMetadata::new(0, snapshot));
        store.publish_savepoint(&place, &savepoint).await.unwrap();
        let name = place.root().url().rsplit_once('/').unwrap().1.to_owned();
        std::fs::rename(at("flights"), at("moved")).unwrap();
        std::fs::rename(at("savepoints").join(name), at("kept")).unwrap();
        for pointer in [
            at("moved/chk-1"),
            at("moved/latest"),
            at("kept"),
            at("kept/_metadata"),
        ] {
            let found = StoredCheckpoint::find(&pointer.to_string_lossy(), runtime.handle())
                .await
                .unwrap();
            let report = verify(&found, []).await.unwrap();
            assert!(
                report.objects > 0 && report.faults.is_empty(),
                "{pointer:?}"
            );
        }
    });
}

#[test]
fn another_job_reads_a_checkpoint_through_its_folder_by_url() {
    let store = MemoryStore::new();
    let first = StoreRoot::memory(&store, "all").folder("flights");
    let job_store = now(open(&first, 1));
    now(job_store.publish(&now(checkpoint(&job_store, 1, &[])))).unwrap();
    let (metadata, root) = now(job_store.load("latest")).unwrap().into_foreign();
    assert_eq!(metadata.roots, ["memory://all/flights".into()]);
    let second = now(open(&StoreRoot::memory(&store, "all").folder("other"), 2));
    let handle = metadata.operators[0].subtasks[0]
        .snapshot
        .parts()
        .next()
        .unwrap();
    let closed = second.storage(options(0, 16));
    assert_eq!(
        now(read_handle(&closed, handle)).unwrap_err().kind(),
        ErrorKind::Config
    );
    assert_eq!(
        now(read_handle(&closed.with_roots([root.clone()]), handle)).unwrap(),
        "state 1 of 0"
    );
    // Not claimed: not deleted.
    let object = handle.object().unwrap().clone();
    let report = now(second.delete_objects(std::slice::from_ref(&object))).unwrap();
    assert_eq!(
        report.into_result().unwrap_err().kind(),
        ErrorKind::Retryable
    );
    let claimed = second.with_claimed([root]);
    assert_eq!(
        now(claimed.delete_objects(&[object]))
            .unwrap()
            .into_result()
            .unwrap(),
        1
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
