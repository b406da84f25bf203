//! What is deleted in a job folder because nothing refers to it, and what never is.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, CopyOptions, Fate, GcOptions, GcReport, JobStore,
    Liveness, MemoryStore, StoreRoot, StoredCheckpoint, Why, collect_garbage, copy_checkpoint,
    left_beside, list_checkpoints, verify,
};
use common::job_folder::*;
use common::*;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{CheckpointId, ErrorKind, JobId, Scope};

fn taking_over(seed: u64) -> GcOptions<'static> {
    GcOptions {
        take_over: true,
        names: names(seed),
        ..GcOptions::default()
    }
}

/// Two complete checkpoints that share an object, and what a killed attempt leaves: objects of a third, shared ones, one of
/// a task's own; beside them files of others.
async fn left_by_a_killed_attempt(root: &StoreRoot) -> Vec<CheckpointMetadata> {
    let job = open(root, 1).await;
    let storage = job.storage(options(0, 16));
    let shared = write_object(&storage, 1, Scope::Shared, "shared by both").await;
    let mut complete = Vec::new();
    for id in [1, 2] {
        let metadata = checkpoint(&job, id, std::slice::from_ref(&shared)).await;
        job.publish(&metadata).await.unwrap();
        complete.push(metadata);
    }
    for scope in [Scope::Exclusive, Scope::Shared, Scope::TaskOwned] {
        write_object(&storage, 3, scope, "of a checkpoint that never was").await;
    }
    write_object(&storage, 2, Scope::Exclusive, "of a late acknowledgement").await;
    let unique = names(77).next();
    for path in [
        "notes.txt".to_owned(),
        "chk-2/notes.txt".into(),
        "shared/.theirs.tmp".into(),
        "backup/chk-1".into(),
        format!("chk-3/._metadata.{unique}.tmp"),
    ] {
        root.publish(&path, Bytes::from_static(b"x")).await.unwrap();
    }
    complete
}

/// Paths of what is listed, each with why.
fn listed(report: &GcReport) -> Vec<(&str, Why)> {
    let folder = |path: &'_ str| -> usize { path.find('/').unwrap() };
    let found = report.unreferenced.iter();
    found.map(|u| (&u.path[..folder(&u.path)], u.why)).collect()
}

fn expected() -> [(&'static str, Why); 5] {
    let third = Why::NeverCompleted(CheckpointId(3));
    [
        ("chk-2", Why::NotOf(CheckpointId(2))),
        ("chk-3", Why::Temporary),
        ("chk-3", third),
        ("shared", Why::OfNone),
        ("taskowned", Why::OfNone),
    ]
}

#[test]
fn what_a_killed_attempt_left_is_listed_then_deleted_and_everything_else_stays() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let complete = left_by_a_killed_attempt(&root).await;
            let before = all_objects(&root, "").await;
            let dry = GcOptions {
                dry_run: true,
                ..taking_over(8)
            };
            let report = collect_garbage(&root, &dry).await.unwrap();
            let mut found = listed(&report);
            found.sort_by_key(|(folder, why)| (folder.to_owned(), *why != Why::Temporary));
            assert_eq!(found, expected(), "{kind}");
            assert!(
                report.unreferenced.iter().all(|u| matches!(
                    (u.why, &u.fate),
                    (_, Fate::Listed) | (Why::OfNone, Fate::LeftToTask)
                )),
                "{kind}"
            );
            assert!(
                report
                    .unreferenced
                    .iter()
                    .all(|u| u.len.is_some_and(|len| len > 0)),
                "{kind}"
            );
            assert_eq!(report.evidence.checkpoints.len(), 2, "{kind}");
            assert_eq!(report.referenced, 5, "{kind}");
            assert_eq!(
                report.foreign,
                [
                    "chk-2/notes.txt",
                    "notes.txt",
                    "shared/.theirs.tmp",
                    "backup/"
                ],
                "{kind}"
            );
            assert_eq!(
                all_objects(&root, "").await,
                before,
                "{kind}: a dry run changes nothing"
            );

            let report = collect_garbage(&root, &taking_over(9)).await.unwrap();
            assert!(report.stopped.is_empty(), "{kind}: {:?}", report.stopped);
            let (of_tasks, gone): (Vec<_>, Vec<_>) = report
                .unreferenced
                .iter()
                .partition(|u| u.path.starts_with("taskowned/"));
            let all_gone = gone.iter().all(|u| matches!(u.fate, Fate::Deleted));
            assert!(all_gone, "{kind}: {:?}", report.unreferenced);
            assert!(matches!(of_tasks[..], [u] if matches!(u.fate, Fate::LeftToTask)));
            // The number of the attempt that was killed goes too.
            assert_eq!(gone.len(), 5, "{kind}");
            let gone: Vec<_> = gone.iter().map(|u| u.path.clone()).collect();
            let mut kept: Vec<_> = before
                .into_iter()
                .filter(|path| !gone.contains(path))
                .collect();
            kept.extend(["attempts/2", "attempts/2-ended", "chk-3/_metadata"].map(str::to_owned));
            kept.sort();
            let mut after = all_objects(&root, "").await;
            after.sort();
            assert_eq!(after, kept, "{kind}");
            check_whole(&root, complete.len()).await;

            // Again: it ended, so nobody has to say that it did, and nothing is left but the last one's number.
            let report = collect_garbage(&root, &GcOptions::default()).await.unwrap();
            assert!(report.stopped.is_empty(), "{kind}: {:?}", report.stopped);
            assert!(
                report
                    .unreferenced
                    .iter()
                    .all(|u| u.why == Why::Superseded || matches!(u.fate, Fate::LeftToTask)),
                "{kind}: {:?}",
                report.unreferenced
            );
        });
    });
}

/// Checks that so many checkpoints are complete, and all of them whole.
async fn check_whole(root: &StoreRoot, count: usize) {
    let mut complete = 0;
    for listed in list_checkpoints(root).await.unwrap() {
        match listed.state {
            CheckpointState::Complete(found) => {
                let report = verify(&found, [root.clone()]).await.unwrap();
                assert!(report.faults.is_empty(), "{}: {report:?}", listed.name);
                complete += 1;
            }
            CheckpointState::Damaged(error) => panic!("{}: {error}", listed.name),
            _ => {}
        }
    }
    assert_eq!(complete, count);
}

#[test]
fn a_self_contained_checkpoint_among_those_of_the_job_loses_nothing_and_stops_the_clean_up() {
    let root = StoreRoot::memory(&MemoryStore::new(), "test");
    let job = now(open(&root, 1));
    let metadata = now(checkpoint(&job, 1, &[]));
    now(job.publish(&metadata)).unwrap();
    let found = now(job.load("latest")).unwrap();
    let copy = CopyOptions::default();
    let elsewhere = StoreRoot::memory(&MemoryStore::new(), "backup");
    now(copy_checkpoint(&found, &elsewhere, copy)).unwrap();
    // Put back by hand, under the name of a checkpoint.
    for path in now(all_objects(&elsewhere, "")) {
        let bytes = now(elsewhere.read_all(&path)).unwrap();
        now(root.publish(&format!("chk-12/{path}"), bytes)).unwrap();
    }
    let before = now(all_objects(&root, "chk-12"));
    let report = now(collect_garbage(&root, &taking_over(8))).unwrap();
    assert!(!report.stopped.is_empty(), "{report:?}");
    assert_eq!(now(all_objects(&root, "chk-12")), before);
    assert_eq!(
        now(job.load("latest")).unwrap().metadata.checkpoint,
        CheckpointId(1)
    );
    // It is read where it is named.
    let found = now(StoredCheckpoint::read(&root, "chk-12")).unwrap();
    assert!(now(verify(&found, [])).unwrap().faults.is_empty());
}

#[test]
fn a_clean_up_that_is_interrupted_at_any_call_is_completed_by_the_next() {
    let mut call = 0;
    loop {
        let countdown = Arc::new(AtomicIsize::new(-1));
        let hit = Arc::clone(&countdown);
        // From that call on the store is gone, as it is for a process that was killed.
        let store = FaultyStore::new(move |_, _, _| match hit.load(Ordering::SeqCst) {
            isize::MIN..0 => Fault::None,
            0 => Fault::Fail,
            _ => {
                hit.fetch_sub(1, Ordering::SeqCst);
                Fault::None
            }
        });
        let root = store.root();
        now(left_by_a_killed_attempt(&root));
        countdown.store(call, Ordering::SeqCst);
        let outcome = now(collect_garbage(&root, &taking_over(8)));
        let missed = countdown.swap(-1, Ordering::SeqCst) > 0;
        now(check_whole(&root, 2));
        let report = now(collect_garbage(&root, &taking_over(9))).unwrap();
        assert!(
            report.stopped.is_empty(),
            "call {call}: {:?}",
            report.stopped
        );
        now(check_whole(&root, 2));
        let left = now(collect_garbage(&root, &taking_over(10))).unwrap();
        assert!(
            left.unreferenced
                .iter()
                .all(|u| u.why == Why::Superseded || matches!(u.fate, Fate::LeftToTask)),
            "call {call}: {:?}",
            left.unreferenced
        );
        if missed {
            assert!(
                outcome.unwrap().stopped.is_empty() && call > 25,
                "{call} calls"
            );
            return;
        }
        call += 1;
    }
}

#[test]
fn while_a_job_runs_its_objects_are_listed_as_pending_and_it_goes_on() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    runtime.block_on(async {
        let job = open(&root, 1).await;
        write_object(&job.storage(options(0, 16)), 1, Scope::Exclusive, "pending").await;
        assert_eq!(
            Liveness::of(&root).await.unwrap(),
            Liveness::Runs(job.attempt())
        );
        // Not even if somebody says that the folder may be taken over.
        let report = collect_garbage(&root, &taking_over(8)).await.unwrap();
        assert!(report.attempt.is_none());
        assert!(
            report.stopped[0]
                .message()
                .contains("attempt 1 of the job runs")
        );
        let [pending] = &report.unreferenced[..] else {
            panic!("{report:?}")
        };
        assert!(matches!(pending.fate, Fate::MayBePending(attempt) if attempt == job.attempt()));
        let metadata = checkpoint(&job, 1, &[]).await;
        job.publish(&metadata).await.unwrap();
        drop(job);
        assert!(matches!(
            Liveness::of(&root).await.unwrap(),
            Liveness::Gone(_)
        ));
        let report = collect_garbage(&root, &GcOptions::default()).await.unwrap();
        assert!(report.stopped.is_empty());
        check_whole(&root, 1).await;
    });
}

#[test]
fn where_nobody_can_tell_whether_a_job_runs_its_end_must_have_been_noted_or_be_vouched_for() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    let job = now(open(&root, 1));
    let report = now(collect_garbage(&root, &GcOptions::default())).unwrap();
    assert!(report.attempt.is_none());
    assert!(
        report.stopped[0]
            .message()
            .contains("can't tell whether it runs")
    );
    now(job.check_fenced()).unwrap();
    now(job.end()).unwrap();
    now(job.end()).unwrap();
    let report = now(collect_garbage(&root, &GcOptions::default())).unwrap();
    assert_eq!(report.liveness, Liveness::Ended(job.attempt()));
    assert!(report.stopped.is_empty() && report.attempt.is_some());
    assert_eq!(
        now(job.check_fenced()).unwrap_err().kind(),
        ErrorKind::Fenced
    );
}

/// Runs something at a call of the store.
fn at_call(
    call: usize,
    inner: &MemoryStore,
    what: impl Fn(StoreRoot) -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> (FaultyStore, Arc<AtomicUsize>) {
    let armed = Arc::new(AtomicUsize::new(usize::MAX));
    let count = Arc::clone(&armed);
    let behind = inner.clone();
    let store = FaultyStore::over(inner.clone(), move |_, _, _| {
        let left = count.load(Ordering::SeqCst);
        if left != usize::MAX && left > 0 {
            count.store(left - 1, Ordering::SeqCst);
            if left == 1 {
                what(StoreRoot::memory(&behind, "test"))
                    .now_or_never()
                    .expect("memory does not wait");
            }
        }
        Fault::None
    });
    armed.store(call, Ordering::SeqCst);
    (store, armed)
}

/// A clean-up at each call of an attempt that was held up and thinks it is alone: what it completes is whole, whatever its
/// checkpoint consists of.
#[test]
fn a_checkpoint_that_is_completed_around_a_clean_up_is_whole_or_never_completed() {
    for with_own in [true, false] {
        let (mut completed, mut prevented) = (0, 0);
        for call in 1.. {
            let inner = MemoryStore::new();
            let (store, armed) = at_call(usize::MAX, &inner, |root| {
                async move {
                    let report = collect_garbage(&root, &taking_over(8)).await.unwrap();
                    let incident = report.stopped.iter().map(|e| e.message().to_owned());
                    assert!(
                        incident
                            .into_iter()
                            .all(|m| m.contains("was completed while"))
                    );
                }
                .boxed()
            });
            let root = store.root();
            let job = now(JobStore::open(
                StoreRoot::memory(&inner, "test"),
                job(),
                names(1),
            ));
            drop(job.unwrap());
            let job = now(JobStore::open(root.clone(), common::job(), names(2))).unwrap();
            let writer = job.storage(options(0, 16));
            let shared = now(write_object(&writer, 1, Scope::Shared, "shared"));
            let mut metadata = now(checkpoint(&job, 1, &[shared]));
            if !with_own {
                for subtask in &mut metadata.operators[0].subtasks {
                    let snapshot = Arc::make_mut(&mut subtask.snapshot);
                    for handle in &mut snapshot.managed_keyed {
                        if let state_api::KeyedHandle::Incremental(handle) = handle {
                            handle.private.clear();
                        }
                    }
                }
                for path in inner.paths() {
                    if path.starts_with("chk-") {
                        inner.remove(&path);
                    }
                }
            }
            armed.store(call, Ordering::SeqCst);
            let outcome = now(job.publish(&metadata));
            let reached = armed.swap(usize::MAX, Ordering::SeqCst) == 0;
            let root = StoreRoot::memory(&inner, "test");
            let visible = now(list_checkpoints(&root))
                .unwrap()
                .into_iter()
                .any(|listed| matches!(listed.state, CheckpointState::Complete(_)));
            now(check_whole(&root, usize::from(visible)));
            if outcome.is_ok() {
                assert!(visible, "call {call}");
                completed += 1;
            } else {
                prevented += 1;
            }
            if !reached {
                break;
            }
        }
        assert!(
            completed >= 1 && prevented >= 3,
            "{completed} completed, {prevented} prevented"
        );
    }
}

/// A run that begins at each call of a clean-up: its objects and checkpoints stay, and the clean-up stops.
#[test]
fn a_run_that_begins_during_a_clean_up_fences_it_and_loses_nothing() {
    for call in 1.. {
        let inner = MemoryStore::new();
        let root = StoreRoot::memory(&inner, "test");
        now(left_by_a_killed_attempt(&root));
        let (store, armed) = at_call(usize::MAX, &inner, |root| {
            async move {
                let job = open(&root, 5).await;
                let id = job.first_checkpoint().0;
                let storage = job.storage(options(0, 16));
                let shared = write_object(&storage, id, Scope::Shared, "of the new run").await;
                let metadata = checkpoint(&job, id, &[shared]).await;
                job.publish(&metadata).await.unwrap();
            }
            .boxed()
        });
        armed.store(call, Ordering::SeqCst);
        let root = store.root();
        let outcome = now(collect_garbage(&root, &taking_over(8)));
        let reached = armed.swap(usize::MAX, Ordering::SeqCst) == 0;
        let root = StoreRoot::memory(&inner, "test");
        now(check_whole(&root, 2 + usize::from(reached)));
        if !reached {
            assert!(outcome.unwrap().stopped.is_empty());
            assert!(call > 25);
            return;
        }
        if let Ok(report) = outcome
            && let Some(error) = report.stopped.first()
        {
            assert!(
                [ErrorKind::Fenced, ErrorKind::Corrupt, ErrorKind::Retryable]
                    .contains(&error.kind()),
                "{error}"
            );
        }
    }
}

#[test]
fn damaged_metadata_stops_every_deletion_and_no_attempt_is_taken_for_it() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    now(left_by_a_killed_attempt(&root));
    store.put("chk-1/_metadata", "torn");
    let before = store.paths();
    let report = now(collect_garbage(&root, &taking_over(8))).unwrap();
    assert_eq!(report.stopped.len(), 1);
    assert_eq!(report.stopped[0].kind(), ErrorKind::Corrupt);
    assert!(
        report.stopped[0].to_string().contains("chk-1"),
        "{}",
        report.stopped[0]
    );
    assert_eq!(store.paths(), before);
    // Removing it is a person's decision; then it goes on.
    store.remove("chk-1/_metadata");
    let report = now(collect_garbage(&root, &taking_over(9))).unwrap();
    assert!(report.stopped.is_empty());
    now(check_whole(&root, 1));
}

#[test]
fn what_another_job_has_claimed_stays_with_all_that_it_refers_to() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    now(left_by_a_killed_attempt(&root));
    let found = now(now(open(&root, 2)).load("chk-1")).unwrap();
    let claimer_root = StoreRoot::memory(&store, "test").folder("other");
    let claimer = now(JobStore::open(
        claimer_root.clone(),
        JobId::new("other").unwrap(),
        names(3),
    ))
    .unwrap();
    now(claimer.claim(&found)).unwrap();
    let opener = |url: &str| {
        assert_eq!(url, "memory://test/other");
        Ok(StoreRoot::memory(&store, "test").folder("other"))
    };
    let options_with = |seed| GcOptions {
        opener: &opener,
        ..taking_over(seed)
    };
    let report = now(collect_garbage(&root, &options_with(8))).unwrap();
    assert!(report.stopped.is_empty(), "{:?}", report.stopped);
    assert_eq!(report.evidence.claims.len(), 1);
    assert!(report.evidence.claims[0].complete);
    now(check_whole(&root, 2));

    // The claimer goes on with a checkpoint of its own, and deletes the claimed one's metadata but nothing more.
    let (mut metadata, _) = found.clone().into_foreign();
    metadata.job = JobId::new("other").unwrap();
    metadata.attempt = claimer.attempt();
    metadata.checkpoint = CheckpointId(7);
    now(claimer.publish(&metadata)).unwrap();
    store.remove("chk-1/_metadata");
    let before = store.paths();
    // Nobody can tell whether it is still at it.
    let report = now(collect_garbage(&root, &options_with(9))).unwrap();
    assert!(
        report.stopped[0].to_string().contains("other"),
        "{:?}",
        report.stopped
    );
    assert_eq!(store.paths(), before);
    // It is over, but its own checkpoint refers to all of it.
    now(claimer.end()).unwrap();
    let report = now(collect_garbage(&root, &options_with(10))).unwrap();
    assert!(report.stopped.is_empty(), "{:?}", report.stopped);
    for used in found.metadata.objects() {
        assert!(
            store.get(used.object.path.as_str()).is_some(),
            "{}",
            used.object
        );
    }
    // And once nothing of it does, the rest goes.
    store.remove("other/chk-7/_metadata");
    let report = now(collect_garbage(&root, &options_with(11))).unwrap();
    assert!(
        report
            .unreferenced
            .iter()
            .any(|u| matches!(u.why, Why::LeftByClaimer(_)))
    );
    let left: Vec<_> = store
        .paths()
        .into_iter()
        .filter(|path| path.starts_with("chk-1/"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    now(check_whole(&root, 1));
}

#[test]
fn a_claimer_of_whom_there_is_no_trace_may_have_moved_and_nothing_is_deleted() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    now(left_by_a_killed_attempt(&root));
    store.put(
        "chk-1/_claimed",
        "holdfast: claimed by job other in memory://test/other\n",
    );
    // It has begun to delete what it claimed, and its own checkpoints may need the rest.
    store.remove("chk-1/_metadata");
    let before = store.paths();
    let opener = |_: &str| Ok(StoreRoot::memory(&store, "test").folder("other"));
    let options = GcOptions {
        opener: &opener,
        ..taking_over(8)
    };
    let report = now(collect_garbage(&root, &options)).unwrap();
    assert!(
        report.stopped[0].to_string().contains("no trace"),
        "{:?}",
        report.stopped
    );
    assert_eq!(store.paths(), before);
}

#[test]
fn what_lies_beside_the_jobs_is_told_and_never_deleted() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "test");
    let unfinished = format!("savepoint-flight-0123456789ab/1-{}", names(1).next());
    for path in [
        unfinished.as_str(),
        "probe-1/race-0",
        "theirs/x",
        "flights/attempts/1",
    ] {
        store.put(path, "x");
    }
    let left = now(left_beside(&root)).unwrap();
    let folders: Vec<_> = left.iter().map(|one| one.folder.as_str()).collect();
    assert_eq!(
        folders,
        [
            "memory://test/probe-1",
            "memory://test/savepoint-flight-0123456789ab"
        ]
    );
}
