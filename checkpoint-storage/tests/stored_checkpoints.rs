//! Checkpoints found by a path: damage, pointers, folders that were moved.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, MemoryStore, SavepointFolder, StoreRoot, StoredCheckpoint,
    SubtaskMetadata, read_handle, verify,
};
use common::job_folder::*;
use common::*;
use state_api::{Attempt, CheckpointId, ErrorKind, OperatorSnapshot, Scope, SnapshotKind};

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
