//! Self-contained copies of checkpoints: whole, restorable, and completed after any interruption.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use checkpoint_storage::{
    CheckpointMetadata, CopyOptions, MemoryStore, OwnRoot, StoreRoot, StoredCheckpoint,
    VerifyOptions, copy_checkpoint, verify_checkpoints,
};
use common::job_folder::*;
use common::*;
use state_api::{ErrorKind, Scope};

/// The second of two checkpoints, which shares objects with the first.
async fn second(root: &StoreRoot) -> StoredCheckpoint {
    let job = open(root, 1).await;
    let storage = job.storage(options(0, 16));
    let shared = [
        write_object(&storage, 1, Scope::Shared, "one that is shared").await,
        write_object(&storage, 1, Scope::Shared, "another one").await,
    ];
    for id in [1, 2] {
        let metadata = checkpoint(&job, id, &shared).await;
        job.publish(&metadata).await.unwrap();
    }
    job.load("chk-2").await.unwrap()
}

async fn check_copy(target: &StoreRoot, of: &CheckpointMetadata) {
    let copy = StoredCheckpoint::read(target, "").await.unwrap();
    assert_eq!(copy.metadata.own_root, OwnRoot::Folder);
    assert!(copy.metadata.roots.is_empty());
    assert_eq!(copy.metadata.objects().count(), of.objects().count());
    for (there, here) in copy.metadata.objects().zip(of.objects()) {
        assert_eq!(
            (there.object.len, there.object.digest),
            (here.object.len, here.object.digest)
        );
        assert!(!there.object.path.as_str().contains('/'));
    }
    let report = verify_checkpoints(&[&copy], VerifyOptions::default()).await;
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(
        all_objects(target, "").await.len(),
        report.objects + 1,
        "nothing else is there"
    );
}

#[test]
fn k_497_a_copy_stands_alone_on_every_store_and_is_made_once() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let found = second(&root.folder("job")).await;
            for (above, target) in [
                (root.clone(), root.folder("copies/of-2")),
                // To another kind of store.
                (
                    root.clone(),
                    StoreRoot::memory(&MemoryStore::new(), "elsewhere").folder("copy"),
                ),
            ] {
                let report = copy_checkpoint(&found, &target, CopyOptions::default())
                    .await
                    .unwrap();
                assert_eq!((report.objects, report.reused), (4, 0), "{kind}");
                check_copy(&target, &found.metadata).await;
                let again = copy_checkpoint(&found, &target, CopyOptions::default())
                    .await
                    .unwrap();
                assert!(again.already_there, "{kind}");
                drop(above);
            }
            // Without what it was copied from; and a copy can be copied.
            let copied = StoredCheckpoint::read(&root.folder("copies"), "of-2")
                .await
                .unwrap();
            for path in all_objects(&root, "job").await {
                root.delete(&path).await.unwrap();
            }
            let third = root.folder("copies/of-of-2");
            copy_checkpoint(&copied, &third, CopyOptions::default())
                .await
                .unwrap();
            check_copy(&third, &found.metadata).await;
        });
    });
}

#[test]
fn objects_of_several_roots_come_together_under_one() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    let found = now(second(&root.folder("a")));
    // A job that has claimed the checkpoint and added an object of its own.
    let other = now(open(&root.folder("b"), 9));
    let own = now(write_object(
        &other.storage(options(0, 16)),
        3,
        Scope::Exclusive,
        "its own",
    ));
    let (mut metadata, foreign) = found.into_foreign();
    let subtask = &mut metadata.operators[0].subtasks[0];
    Arc::make_mut(&mut subtask.snapshot)
        .managed_keyed
        .push(incremental(3, vec![file("own", own)], vec![]));
    metadata.checkpoint = state_api::CheckpointId(3);
    metadata.attempt = other.attempt();
    now(other.publish(&metadata)).unwrap();
    let found = now(other.load("chk-3")).unwrap();
    let target = root.folder("copy");
    let error = now(copy_checkpoint(&found, &target, CopyOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("memory://test/a"), "{error}");
    let roots = [foreign];
    let named = CopyOptions {
        roots: &roots,
        ..CopyOptions::default()
    };
    assert_eq!(
        now(copy_checkpoint(&found, &target, named))
            .unwrap()
            .objects,
        5
    );
    now(check_copy(&target, &found.metadata));
}

#[test]
fn a_copy_that_is_interrupted_at_any_call_is_completed_by_the_next() {
    let mut reused = 0;
    for call in 0.. {
        for fault in [Fault::Fail, Fault::FailAfter] {
            let source = MemoryStore::new();
            let found = now(second(&StoreRoot::memory(&source, "source")));
            let countdown = Arc::new(AtomicIsize::new(call));
            let hit = Arc::clone(&countdown);
            let store = FaultyStore::new(move |_, _, _| match hit.fetch_sub(1, Ordering::SeqCst) {
                0 => fault,
                // The process is gone: what it would do about the failure does not happen.
                isize::MIN..0 => Fault::Fail,
                _ => Fault::None,
            });
            let target = store.root().folder("copy");
            let first = now(copy_checkpoint(&found, &target, CopyOptions::default()));
            let missed = countdown.swap(isize::MAX, Ordering::SeqCst) >= 0;
            let there = StoreRoot::memory(&store.inner, "target").folder("copy");
            // Never one that looks complete and is not.
            if now(there.len("_metadata")).unwrap().is_some() {
                let copy = now(StoredCheckpoint::read(&there, "")).unwrap();
                assert!(now(verify_checkpoints(&[&copy], VerifyOptions::default())).is_whole());
            }
            if missed {
                assert!(first.is_ok() && call > 15 && reused > 5, "{call} {reused}");
                return;
            }
            let report = now(copy_checkpoint(&found, &there, CopyOptions::default())).unwrap();
            reused += report.reused;
            if !report.already_there {
                now(check_copy(&there, &found.metadata));
            }
        }
    }
}

#[test]
fn of_two_copies_into_one_folder_at_once_both_succeed_and_one_is_there() {
    for yields in 0..3 {
        let source = MemoryStore::new();
        let found = now(second(&StoreRoot::memory(&source, "source")));
        let mut store = FaultyStore::new(|_, _, _| Fault::None);
        store.yields = yields;
        let target = store.root();
        let runtime = runtime();
        let (one, two) = runtime.block_on(async {
            let one = copy_checkpoint(&found, &target, CopyOptions::default());
            let two = async {
                pending(yields * 5).await;
                copy_checkpoint(&found, &target, CopyOptions::default()).await
            };
            futures_util::future::join(one, two).await
        });
        one.unwrap();
        two.unwrap();
        let copy = now(StoredCheckpoint::read(
            &StoreRoot::memory(&store.inner, "t"),
            "",
        ))
        .unwrap();
        assert!(now(verify_checkpoints(&[&copy], VerifyOptions::default())).is_whole());
    }
}

#[test]
fn a_damaged_object_is_named_and_no_copy_comes_of_it() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    let found = now(second(&root.folder("job")));
    let object = found.metadata.objects().last().unwrap().object.clone();
    let path = format!("job/{}", object.path);
    let mut bytes = store.get(&path).unwrap().to_vec();
    bytes[0] ^= 1;
    store.put(&path, bytes);
    let target = root.folder("copy");
    let error = now(copy_checkpoint(&found, &target, CopyOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(object.path.as_str()), "{error}");
    assert!(now(target.len("_metadata")).unwrap().is_none());
}

#[test]
fn a_folder_that_holds_something_else_is_left_alone() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    let found = now(second(&root.folder("job")));
    store.put("home/letter.txt", "dear");
    store.put("other/_metadata", "torn");
    store.put("savepoint/7-67e55044-10b1-426f-9247-bb680e5fe0c8", "state");
    let copy = |target: StoreRoot| now(copy_checkpoint(&found, &target, CopyOptions::default()));
    for (folder, kind) in [
        ("home", ErrorKind::InvalidArgument),
        ("job", ErrorKind::InvalidArgument),
        ("job/chk-2", ErrorKind::InvalidArgument),
        ("copies/chk-2", ErrorKind::InvalidArgument),
        ("other", ErrorKind::AlreadyExists),
        ("job/shared", ErrorKind::InvalidArgument),
        ("elsewhere/taskowned", ErrorKind::InvalidArgument),
        ("elsewhere/attempts", ErrorKind::InvalidArgument),
        // A savepoint that is being written, it may be.
        ("savepoint", ErrorKind::InvalidArgument),
    ] {
        let before = store.paths();
        assert_eq!(
            copy(root.folder(folder)).unwrap_err().kind(),
            kind,
            "{folder}"
        );
        assert_eq!(store.paths(), before, "{folder}");
    }
    // Another checkpoint of the same job.
    copy(root.folder("copy")).unwrap();
    let job = now(StoredCheckpoint::read(&root.folder("job"), "chk-1")).unwrap();
    let error = now(copy_checkpoint(
        &job,
        &root.folder("copy"),
        CopyOptions::default(),
    ))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(
        error.to_string().contains("checkpoint 2 of job flights"),
        "{error}"
    );
}
