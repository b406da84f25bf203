//! Checkpoints that one job has claimed: who may delete them, and who not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::{Arc, Mutex};

use checkpoint_storage::{
    CLAIM_NAME, CheckpointState, ClaimRecord, JobStore, METADATA_NAME, MemoryPublish, MemoryStore,
    StoreRoot, StoredCheckpoint, list_checkpoints, verify,
};
use common::job_folder::*;
use common::*;
use state_api::{ErrorKind, JobId, Scope};

async fn other(root: &StoreRoot, name: &str) -> JobStore {
    JobStore::open(root.folder(name), JobId::new(name).unwrap(), names(9))
        .await
        .unwrap()
}

#[test]
fn what_another_job_has_claimed_is_not_deleted_by_its_owner() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let owner = open(&root.folder("flights"), 1).await;
            let one = checkpoint(&owner, 1, &[]).await;
            owner.publish(&one).await.unwrap();
            let found = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
            let claimer = other(&root, "second").await;
            claimer.claim(&found).await.unwrap();
            claimer.claim(&found).await.unwrap();
            let record = ClaimRecord::read(&found.folder).await.unwrap().unwrap();
            assert_eq!(record.job.as_str(), "second", "{kind}");
            assert_eq!(record.folder, claimer.root().url(), "{kind}");
            let refused = owner.check_unclaimed(&found).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{kind}");
            assert!(refused.message().contains("job second"), "{refused}");
            claimer.check_unclaimed(&found).await.unwrap();

            let report = owner.discard(&one, []).await.unwrap();
            assert!(report.claimed && report.deleted == 0, "{kind}");
            let again = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
            assert!(
                verify(&again, []).await.unwrap().faults.is_empty(),
                "{kind}"
            );

            let refused = other(&root, "third").await.claim(&found).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{kind}");
            let refused = other(&root, "third")
                .await
                .discard_claimed(&found, [])
                .await;
            assert_eq!(
                refused.unwrap_err().kind(),
                ErrorKind::InvalidArgument,
                "{kind}"
            );

            let report = claimer.discard_claimed(&found, []).await.unwrap();
            assert_eq!((report.deleted, report.failed.len()), (2, 0), "{kind}");
            assert!(found.folder.list("").await.unwrap().is_empty(), "{kind}");
            // Repeatable.
            claimer.discard_claimed(&found, []).await.unwrap();
        });
    });
}

#[test]
fn a_claim_of_what_is_being_deleted_is_refused_and_leaves_no_record() {
    let root = StoreRoot::memory(&MemoryStore::new(), "all");
    now(async {
        let owner = open(&root.folder("flights"), 1).await;
        let one = checkpoint(&owner, 1, &[]).await;
        owner.publish(&one).await.unwrap();
        let found = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
        found.folder.delete(METADATA_NAME).await.unwrap();
        let refused = other(&root, "second")
            .await
            .claim(&found)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        assert_eq!(found.folder.len(CLAIM_NAME).await.unwrap(), None);
    });
}

#[test]
fn objects_of_a_claimed_checkpoint_that_a_later_one_names_stay() {
    let root = StoreRoot::memory(&MemoryStore::new(), "all");
    now(async {
        let owner = open(&root.folder("flights"), 1).await;
        let one = checkpoint(&owner, 1, &[]).await;
        owner.publish(&one).await.unwrap();
        let found = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
        let claimer = other(&root, "second").await;
        claimer.claim(&found).await.unwrap();
        let (mut later, _) = found.clone().into_foreign();
        later.operators[0].subtasks.truncate(1);
        let report = claimer.discard_claimed(&found, [&later]).await.unwrap();
        assert_eq!(report.deleted, 1);
        let kept = later.objects().next().unwrap().object.path.clone();
        assert!(found.own.len(kept.as_str()).await.unwrap().is_some());
    });
}

#[test]
fn a_record_that_cannot_be_read_is_somebodys_claim() {
    let root = StoreRoot::memory(&MemoryStore::new(), "all");
    now(async {
        let owner = open(&root.folder("flights"), 1).await;
        let shared = write_object(&owner.storage(options(0, 16)), 1, Scope::Shared, "s").await;
        let one = checkpoint(&owner, 1, &[shared]).await;
        owner.publish(&one).await.unwrap();
        let found = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
        for text in [
            "",
            "holdfast: claimed by job x",
            "holdfast: claimed by job ../x in y\n",
        ] {
            found.folder.delete(CLAIM_NAME).await.unwrap();
            found.folder.publish(CLAIM_NAME, text.into()).await.unwrap();
            let read = ClaimRecord::read(&found.folder).await;
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt, "{text:?}");
            assert!(owner.discard(&one, []).await.unwrap().claimed, "{text:?}");
        }
    });
}

/// The store of a [`FaultyStore`] without its faults.
fn without_faults(inner: &MemoryStore) -> StoreRoot {
    let publish = MemoryPublish::new(inner.clone());
    StoreRoot::new(Arc::new(inner.clone()), Arc::new(publish), "faulty://test")
}

/// What is left to do when a deletion has failed.
#[derive(Clone, Copy, Debug)]
enum Afterwards {
    /// The same attempt repeats it.
    Again,
    /// The next attempt finds what there is.
    NextAttempt,
}

/// Lets another job claim a checkpoint before a call of its deletion, and the store fail at a later one, or the owner die.
///
/// Returns whether the claim succeeded, or `None` when there were no calls so late.
fn claimed_while_discarded(
    claim_at: usize,
    fault_at: usize,
    fault: Fault,
    dies: bool,
    afterwards: Afterwards,
) -> Option<bool> {
    let what =
        format!("claim at {claim_at}, {fault:?} at {fault_at}, dies: {dies}, {afterwards:?}");
    let inner = MemoryStore::new();
    let bare = without_faults(&inner);
    let one = now(async {
        let owner = open(&bare.folder("flights"), 1).await;
        let one = checkpoint(&owner, 1, &[]).await;
        owner.publish(&one).await.unwrap();
        one
    });
    let found = now(StoredCheckpoint::read(&bare.folder("flights"), "chk-1")).unwrap();
    let claimer = now(other(&bare, "second"));
    let (calls, claimed) = (
        Arc::new(Mutex::new(None::<usize>)),
        Arc::new(Mutex::new(None)),
    );
    let (counted, outcome) = (Arc::clone(&calls), Arc::clone(&claimed));
    let seen = found.clone();
    let store = FaultyStore::over(inner.clone(), move |_, _, _| {
        let mut calls = counted.lock().unwrap();
        let Some(call) = calls.as_mut() else {
            return Fault::None;
        };
        let n = *call;
        *call += 1;
        if n == claim_at {
            *outcome.lock().unwrap() = Some(now(claimer.claim(&seen)));
        }
        match n.cmp(&fault_at) {
            std::cmp::Ordering::Equal => fault,
            std::cmp::Ordering::Greater if dies => Fault::Fail,
            _ => Fault::None,
        }
    });
    let owner = now(open(&store.root().folder("flights"), 2));
    *calls.lock().unwrap() = Some(0);
    drop(now(owner.discard(&one, [])));
    *calls.lock().unwrap() = None;
    let claimed = claimed.lock().unwrap().take()?;
    if let Err(refused) = &claimed {
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{what}: {refused}");
    }

    match afterwards {
        Afterwards::Again => {
            let report = now(owner.discard(&one, [])).unwrap();
            assert_eq!(report.claimed, claimed.is_ok(), "{what}");
        }
        Afterwards::NextAttempt => now(async {
            let next = open(&bare.folder("flights"), 3).await;
            for listed in list_checkpoints(next.root()).await.unwrap() {
                if let CheckpointState::Complete(found) = listed.state {
                    next.discard(&found.metadata, []).await.unwrap();
                }
            }
            next.sweep_abandoned().await.unwrap();
        }),
    }
    if claimed.is_ok() {
        let found = now(StoredCheckpoint::read(&bare.folder("flights"), "chk-1"));
        let faults = now(verify(&found.expect(&what), [])).unwrap().faults;
        assert!(faults.is_empty(), "{what}: {faults:?}");
    } else {
        // But for the mark that keeps it from being completed.
        let is_mark = |path: &str| {
            let bytes = inner.get(path).unwrap();
            path.ends_with(METADATA_NAME) && bytes.starts_with(b"holdfast: never completed")
        };
        let left = inner.paths().into_iter();
        let left = left.filter(|path| path.contains("/chk-1/") && !is_mark(path));
        let left: Vec<_> = left.collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
    Some(claimed.is_ok())
}

#[test]
fn a_claim_between_any_two_calls_of_a_deletion_has_the_whole_checkpoint_or_nothing_whatever_fails_after_it()
 {
    let (mut taken, mut refused) = (0, 0);
    for claim_at in 0.. {
        let mut reached = false;
        for fault_at in claim_at..claim_at + 12 {
            for fault in [Fault::Fail, Fault::FailAfter] {
                for dies in [false, true] {
                    for then in [Afterwards::Again, Afterwards::NextAttempt] {
                        match claimed_while_discarded(claim_at, fault_at, fault, dies, then) {
                            Some(true) => taken += 1,
                            Some(false) => refused += 1,
                            None => continue,
                        }
                        reached = true;
                    }
                }
            }
        }
        if !reached {
            assert!(claim_at > 6, "{claim_at}");
            break;
        }
    }
    assert!(taken > 20 && refused > 100, "{taken} {refused}");
}

#[test]
fn a_sweep_leaves_what_another_job_has_claimed_and_begun_to_delete() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "all");
    now(async {
        let owner = open(&root.folder("flights"), 1).await;
        let one = checkpoint(&owner, 1, &[]).await;
        owner.publish(&one).await.unwrap();
        let found = StoredCheckpoint::read(owner.root(), "chk-1").await.unwrap();
        other(&root, "second").await.claim(&found).await.unwrap();
        found.folder.delete(METADATA_NAME).await.unwrap();
        let before = all_objects(&root, "flights/chk-1").await;
        assert_eq!(before.len(), 3);
        let next = open(&root.folder("flights"), 2).await;
        assert!(next.sweep_abandoned().await.unwrap().swept.is_empty());
        assert_eq!(all_objects(&root, "flights/chk-1").await, before);
        // Nor what nobody can tell whose it is.
        store.put("flights/chk-1/_claimed", "?");
        next.sweep_abandoned().await.unwrap();
        assert_eq!(all_objects(&root, "flights/chk-1").await, before);
    });
}
