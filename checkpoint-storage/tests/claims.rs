//! Checkpoints that one job has claimed: who may delete them, and who not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use checkpoint_storage::{
    CLAIM_NAME, ClaimRecord, JobStore, METADATA_NAME, MemoryStore, StoreRoot, StoredCheckpoint,
    verify,
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
