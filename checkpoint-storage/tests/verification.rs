//! What is found when stored checkpoints are verified, and how it is named.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::{Arc, Mutex};

use checkpoint_storage::{
    CheckpointState, Damage, MemoryStore, StoreRoot, StoredCheckpoint, Verification, VerifyOptions,
    WorkDone, survey, verify_checkpoints,
};
use common::job_folder::*;
use common::*;
use state_api::{EntryCount, JobId, KeyedHandle, Scope, StateKind, StateSummary};

/// Two checkpoints that share an object, and each with two of its own.
async fn two_checkpoints(root: &StoreRoot) {
    let job = open(root, 1).await;
    let storage = job.storage(options(0, 16));
    let shared = write_object(&storage, 1, Scope::Shared, "shared by both").await;
    for id in [1, 2] {
        let mut metadata = checkpoint(&job, id, std::slice::from_ref(&shared)).await;
        for subtask in &mut metadata.operators[0].subtasks {
            let snapshot = Arc::make_mut(&mut subtask.snapshot);
            if let KeyedHandle::Incremental(handle) = &mut snapshot.managed_keyed[0] {
                handle.states.push(StateSummary {
                    meta: state_meta("counts", StateKind::Value, "u64"),
                    entries: EntryCount::Exact(1),
                });
            }
        }
        job.publish(&metadata).await.unwrap();
    }
}

async fn complete(root: &StoreRoot) -> (Vec<StoredCheckpoint>, usize) {
    let mut found = Vec::new();
    let mut damaged = 0;
    for folder in survey(root).await.unwrap().folders {
        for listed in folder.checkpoints {
            match listed.state {
                CheckpointState::Complete(checkpoint) => found.push(*checkpoint),
                CheckpointState::Damaged(_) => damaged += 1,
                _ => {}
            }
        }
    }
    (found, damaged)
}

async fn verified(root: &StoreRoot) -> (Verification, usize) {
    let (found, damaged) = complete(root).await;
    let all: Vec<_> = found.iter().collect();
    (
        verify_checkpoints(&all, VerifyOptions::default()).await,
        damaged,
    )
}

#[test]
fn whole_checkpoints_verify_on_every_store() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            two_checkpoints(&root).await;
            let (report, damaged) = verified(&root).await;
            assert!(report.is_whole() && damaged == 0, "{kind}: {report:?}");
            assert_eq!((report.checkpoints.len(), report.objects), (2, 5), "{kind}");
            let job = &report.checkpoints[0].job;
            let newest = report.newest_whole(job).unwrap();
            assert!(
                report
                    .newest_whole(&JobId::new("another").unwrap())
                    .is_none()
            );
            assert_eq!(newest.checkpoint.0, 2, "{kind}");
        });
    });
}

#[test]
fn a_byte_flipped_anywhere_is_found_and_named_with_all_that_it_affects() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    now(two_checkpoints(&root));
    for path in store.paths() {
        if path.starts_with("attempts/") {
            continue;
        }
        let bytes = store.get(&path).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            store.put(&path, flipped);
            let (report, unreadable) = now(verified(&root));
            if path.ends_with("_metadata") {
                assert_eq!(unreadable, 1, "byte {at} of {path}");
                continue;
            }
            let [damaged] = &report.damaged[..] else {
                panic!("byte {at} of {path}: {report:?}");
            };
            assert_eq!(damaged.damage, Damage::Digest, "byte {at} of {path}");
            assert_eq!(damaged.object.path.as_str(), path);
            let job = &report.checkpoints[0].job;
            let folders: Vec<_> = damaged.affects.iter().map(|a| a.folder.as_str()).collect();
            match path.split('/').next().unwrap() {
                "shared" => {
                    assert_eq!(folders, ["memory://test/chk-2", "memory://test/chk-1"]);
                    assert!(report.newest_whole(job).is_none());
                }
                own => {
                    assert_eq!(folders, [format!("memory://test/{own}")]);
                    let whole = &report.newest_whole(job).unwrap().folder;
                    assert_ne!(*whole, folders[0]);
                }
            }
            let affected = &damaged.affects[0];
            assert_eq!(affected.operator.as_str(), "count");
            assert!(affected.subtask.is_some() && affected.part == "keyed");
            assert_eq!(affected.states, [Arc::from("counts")]);
        }
        store.put(&path, bytes);
    }
}

#[test]
fn a_missing_a_cut_and_a_grown_object_are_told_apart() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            two_checkpoints(&root).await;
            let (found, _) = complete(&root).await;
            let object = found[0].metadata.objects().next().unwrap().object.clone();
            let path = object.path.as_str();
            let bytes = root.read_all(path).await.unwrap();
            let mut grown = bytes.to_vec();
            grown.push(0);
            let bodies = [
                (None, Damage::Missing),
                (Some(bytes.slice(..bytes.len() - 1)), Damage::Length),
                (Some(grown.into()), Damage::Length),
            ];
            for (body, damage) in bodies {
                root.delete(path).await.unwrap();
                if let Some(body) = body {
                    root.publish(path, body).await.unwrap();
                }
                let (report, _) = verified(&root).await;
                assert_eq!(report.damaged.len(), 1, "{kind} {damage:?}");
                assert_eq!(report.damaged[0].damage, damage, "{kind}");
                assert_eq!(report.checkpoints[0].damaged, [0], "{kind}");
                assert!(report.checkpoints[1].damaged.is_empty(), "{kind}");
            }
        });
    });
}

#[test]
fn an_object_that_is_shared_is_read_once_and_progress_adds_up() {
    let store = FaultyStore::new(|_, _, _| Fault::None);
    let root = store.root();
    now(two_checkpoints(&root));
    let (found, _) = now(complete(&root));
    let all: Vec<_> = found.iter().collect();
    let before = store.calls().len();
    let last = Mutex::new(WorkDone::default());
    let watcher = |work: WorkDone| {
        let mut last = last.lock().unwrap();
        assert!(work.bytes >= last.bytes && work.objects >= last.objects);
        *last = work;
    };
    let options = VerifyOptions {
        concurrency: 2,
        watcher: &watcher,
        ..VerifyOptions::default()
    };
    let report = now(verify_checkpoints(&all, options));
    assert!(report.is_whole());
    let calls = store.calls().split_off(before);
    let reads = |what: &str| calls.iter().filter(|call| call.starts_with(what)).count();
    assert_eq!((reads("read "), reads("read shared/")), (5, 1), "{calls:?}");
    let done = *last.lock().unwrap();
    assert_eq!((done.objects, done.objects_total), (5, 5));
    assert_eq!((done.bytes, done.bytes_total), (report.bytes, report.bytes));
}

#[test]
fn a_checkpoint_that_its_job_deletes_meanwhile_is_not_damaged_and_the_others_are() {
    let inner = MemoryStore::new();
    let theirs = inner.clone();
    let store = FaultyStore::over(inner.clone(), move |call, path, _| {
        // The job goes on while the first object is read.
        if call == "read" && !path.ends_with("_metadata") {
            let paths = theirs.paths().into_iter();
            let gone = paths.filter(|path| path.starts_with("chk-1/"));
            gone.for_each(|path| assert!(theirs.remove(&path)));
        }
        Fault::None
    });
    now(async {
        let root = store.root();
        two_checkpoints(&root).await;
        let (report, _) = verified(&root).await;
        assert!(report.is_whole(), "{report:?}");
        let deleted = |report: &Verification| -> Vec<_> {
            let found = report.checkpoints.iter();
            found.map(|c| (c.checkpoint.0, c.deleted)).collect()
        };
        assert_eq!(deleted(&report), [(2, false), (1, true)]);
        // What both need is needed by the other alone now.
        let inner = MemoryStore::new();
        let again = StoreRoot::memory(&inner, "again");
        two_checkpoints(&again).await;
        let (found, _) = complete(&again).await;
        for path in inner.paths() {
            let gone = path.starts_with("shared/") || path.starts_with("chk-1/");
            assert!(!gone || inner.remove(&path));
        }
        let all: Vec<_> = found.iter().collect();
        let report = verify_checkpoints(&all, VerifyOptions::default()).await;
        assert_eq!(deleted(&report), [(2, false), (1, true)]);
        let [damaged] = &report.damaged[..] else {
            panic!("{report:?}");
        };
        let affected: Vec<_> = damaged.affects.iter().map(|a| a.checkpoint.0).collect();
        assert_eq!((damaged.damage, affected), (Damage::Missing, vec![2]));
    });
}

#[test]
fn what_could_not_be_read_is_no_damage_and_the_others_are_read_all_the_same() {
    for call in ["len", "read"] {
        let store = FaultyStore::new(move |made, path, _| {
            if made == call && path.starts_with("shared/") {
                Fault::Fail
            } else {
                Fault::None
            }
        });
        now(two_checkpoints(&store.root()));
        let (report, _) = now(verified(&store.root()));
        let [unread] = &report.damaged[..] else {
            panic!("{report:?}")
        };
        assert_eq!(unread.damage, Damage::Unreadable);
        assert!(!unread.damage.is_certain());
    }
}

#[test]
fn a_checkpoint_that_refers_to_another_folder_is_verified_only_where_that_is_named() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "a");
    now(two_checkpoints(&root));
    let (mut found, _) = now(complete(&root));
    let mut borrower = found.remove(0);
    borrower.metadata.rebase("memory://a");
    borrower.own = StoreRoot::memory(&store, "b");
    let report = now(verify_checkpoints(&[&borrower], VerifyOptions::default()));
    assert_eq!(report.damaged.len(), 3);
    assert!(report.damaged.iter().all(|d| d.damage == Damage::NotNamed));
    let named = [root];
    let options = VerifyOptions {
        roots: &named,
        ..VerifyOptions::default()
    };
    assert!(now(verify_checkpoints(&[&borrower], options)).is_whole());
}
