//! Savepoints of running jobs: where they go, who hears of them, and what starts from them.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use backend_testkit::ReferenceBackend;
use checkpoint_storage::{
    MemoryStore, StoreRoot, StoredCheckpoint, StreamOptions, UuidSource, verify,
};
use futures_util::FutureExt;
use job_support::{
    Count, Hooked, Items, Ledger, asking, expected, hooked, lines, now, parts, settings, totals,
    with_memory, without_interval, wordcount, words,
};
use runtime_core::coordinator::{CheckpointKind, JobStatus};
use runtime_core::execution::{CheckpointDone, JobControl, Reply, SavepointFormat};
use runtime_core::testing::Driver;
use runtime_core::{
    CheckpointStore, ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, LocalExecution,
    RestoreFrom,
};
use state_api::{BackendFactory, CheckpointId, Error, JobId, Result, SnapshotKind, SystemClock};

type Replies = Arc<Mutex<Vec<Reply<CheckpointDone>>>>;

fn is_savepoint(event: &JobEvent) -> bool {
    matches!(event, JobEvent::CheckpointCompleted(stats) if stats.kind.is_savepoint())
}

fn from(path: &str) -> ExecutionSettings {
    ExecutionSettings {
        restore: RestoreFrom::Path(path.into()),
        ..settings(10)
    }
}

/// Asks for a savepoint at the second checkpoint and cancels the job when it is there.
fn savepoint_and_cancel(
    driver: &Driver,
    parts: JobParts,
    target: Option<&str>,
    format: SavepointFormat,
) -> (JobParts, Replies) {
    let replies = Replies::default();
    let (ours, target) = (Arc::clone(&replies), target.map(str::to_owned));
    let parts = asking(driver, parts, move |control, event| match event {
        JobEvent::Running { .. } => {
            let reply = control.savepoint(target.clone(), format);
            ours.lock().unwrap().push(reply);
        }
        event if is_savepoint(event) => control.cancel(),
        _ => {}
    });
    (parts, replies)
}

fn take(replies: &Replies) -> Result<CheckpointDone> {
    now(replies.lock().unwrap().remove(0))
}

#[test]
fn k_376_k_773_a_savepoint_is_taken_without_periodic_checkpoints_and_a_job_starts_from_it() {
    for (seed, format) in [
        (1, SavepointFormat::Canonical),
        (2, SavepointFormat::Native),
        (3, SavepointFormat::Canonical),
    ] {
        let (lines, ledger) = (lines(1000), Ledger::new());
        let (parts, store) = with_memory(parts());
        let mut driver = Driver::new(seed);
        let (first, replies) = savepoint_and_cancel(&driver, parts.clone(), Some("mine"), format);
        let outcome = driver
            .run(&wordcount(&lines, 2, &ledger), &without_interval(), first)
            .unwrap();
        assert_eq!(outcome.status, JobStatus::Cancelled);
        let done = take(&replies).unwrap();
        assert_eq!(
            (done.id, done.kind),
            (CheckpointId(1), CheckpointKind::Savepoint)
        );
        assert_eq!(done.path.as_deref(), Some("mine/savepoint-1-1"));
        assert!(store.completed().is_empty(), "seed {seed}");
        let savepoint = &store.savepoints()["mine/savepoint-1-1"];
        let expected_kind = match format {
            SavepointFormat::Canonical => SnapshotKind::CanonicalSavepoint,
            SavepointFormat::Native => SnapshotKind::NativeSavepoint,
        };
        assert_eq!(savepoint.kind, expected_kind);
        // Nobody committed what came before it; who starts from it does.
        assert!(ledger.records().is_empty());
        Driver::new(seed)
            .run(
                &wordcount(&lines, 3, &ledger),
                &from("mine/savepoint-1-1"),
                parts,
            )
            .unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        let first_id = store.completed().first().map(|m| m.checkpoint);
        assert!(first_id > Some(CheckpointId(1)), "{first_id:?}");
    }
}

#[test]
fn k_376_k_377_operators_never_hear_of_a_savepoint_and_it_ends_no_checkpoint() {
    for seed in 0..5 {
        let (lines, ledger) = (lines(2000), Ledger::new());
        let (parts, store) = with_memory(parts());
        let completed: Arc<Mutex<BTreeSet<CheckpointId>>> = Arc::default();
        let heard = Arc::clone(&completed);
        let hook = Hooked {
            completed: Arc::new(move |id| {
                heard.lock().unwrap().insert(id);
                Ok(())
            }),
            ..Hooked::new()
        };
        let replies = Replies::default();
        let ours = Arc::clone(&replies);
        let mut driver = Driver::new(seed);
        let parts = asking(&driver, parts, move |control, event| {
            if let JobEvent::CheckpointCompleted(stats) = event
                && stats.kind == CheckpointKind::Checkpoint
            {
                let reply = control.savepoint(None, SavepointFormat::Native);
                ours.lock().unwrap().push(reply);
            }
        });
        driver
            .run(&hooked(&lines, &ledger, hook), &settings(10), parts)
            .unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        let savepoints: BTreeSet<_> = replies
            .lock()
            .unwrap()
            .drain(..)
            .filter_map(|reply| now(reply).ok())
            .map(|done| done.id)
            .collect();
        assert!(!savepoints.is_empty(), "seed {seed}");
        assert_eq!(store.savepoints().len(), savepoints.len());
        let told_of = completed.lock().unwrap();
        assert!(
            told_of.is_disjoint(&savepoints),
            "{told_of:?} {savepoints:?}"
        );
        assert!(told_of.len() > 1);
    }
}

fn on_backend(parts: JobParts, backend: Arc<dyn BackendFactory>) -> JobParts {
    JobParts { backend, ..parts }
}

#[test]
fn k_675_a_canonical_savepoint_of_one_backend_is_restored_by_the_other_and_back() {
    let live: Arc<dyn BackendFactory> = Arc::new(backend_hashmap::HashMapBackend);
    let bytes: Arc<dyn BackendFactory> = Arc::new(ReferenceBackend);
    for (first, second) in [(&live, &bytes), (&bytes, &live)] {
        let (lines, ledger) = (lines(1000), Ledger::new());
        let (parts, _) = with_memory(parts());
        let mut driver = Driver::new(7);
        let on_first = on_backend(parts.clone(), Arc::clone(first));
        let (on_first, replies) =
            savepoint_and_cancel(&driver, on_first, None, SavepointFormat::Canonical);
        let job = wordcount(&lines, 2, &ledger);
        driver.run(&job, &without_interval(), on_first).unwrap();
        let path = take(&replies).unwrap().path.unwrap();
        let on_second = on_backend(parts, Arc::clone(second));
        driver.run(&job, &from(&path), on_second).unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines));
    }
}

fn folder(store: &MemoryStore, seed: u64) -> (StoreRoot, FolderCheckpoints) {
    let root = StoreRoot::memory(store, "all");
    let checkpoints = FolderCheckpoints::new(
        root.folder("checkpoints"),
        JobId::new("wordcount").unwrap(),
        UuidSource::seeded(seed),
        StreamOptions::new(0, 64).unwrap(),
    )
    .savepoints(root.folder("savepoints"));
    (root, checkpoints)
}

#[test]
fn k_376_a_savepoint_in_a_folder_holds_all_its_objects_and_the_job_folder_none() {
    let (lines, ledger) = (lines(1000), Ledger::new());
    let memory = MemoryStore::new();
    let (root, store) = folder(&memory, 5);
    let mut driver = Driver::new(11);
    let parts = parts().checkpoints(Arc::new(store));
    let (parts, replies) = savepoint_and_cancel(&driver, parts, None, SavepointFormat::Canonical);
    driver
        .run(&wordcount(&lines, 2, &ledger), &without_interval(), parts)
        .unwrap();
    let done = take(&replies).unwrap();
    let url = done.path.unwrap();
    let name = url.strip_prefix("memory://all/savepoints/").unwrap();
    let found = StoredCheckpoint::read(&root.folder("savepoints"), name)
        .now_or_never()
        .unwrap()
        .unwrap();
    assert_eq!(found.metadata.kind, SnapshotKind::CanonicalSavepoint);
    assert!(found.metadata.objects().count() > 0);
    let report = verify(&found, []).now_or_never().unwrap().unwrap();
    assert!(report.faults.is_empty() && report.objects > 0);
    assert_eq!(done.total_bytes, found.metadata.total_bytes());
    let in_job_folder = root.list("checkpoints").now_or_never().unwrap().unwrap();
    let names: Vec<_> = in_job_folder.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["attempts"]);
}

#[test]
fn a_savepoint_that_fails_leaves_no_file_and_concerns_only_who_asked_for_it() {
    for seed in 0..5 {
        let (lines, ledger) = (lines(1000), Ledger::new());
        let memory = MemoryStore::new();
        let (root, store) = folder(&memory, seed);
        let replies = Replies::default();
        let ours = Arc::clone(&replies);
        let mut driver = Driver::new(seed);
        let hook = Hooked {
            snapshot: Arc::new(|| Err(Error::user("not now"))),
            ..Hooked::new()
        };
        let parts = parts().checkpoints(Arc::new(store));
        let parts = asking(&driver, parts, move |control, event| match event {
            JobEvent::Running { .. } => {
                let reply = control.savepoint(None, SavepointFormat::Native);
                ours.lock().unwrap().push(reply);
            }
            JobEvent::CheckpointAborted { .. } => control.cancel(),
            _ => {}
        });
        let outcome = driver
            .run(&hooked(&lines, &ledger, hook), &without_interval(), parts)
            .unwrap();
        assert_eq!(
            (outcome.status, outcome.restarts),
            (JobStatus::Cancelled, 0)
        );
        let error = take(&replies).unwrap_err();
        assert!(error.to_string().contains("not now"), "{error}");
        let left = root.list("savepoints").now_or_never().unwrap().unwrap();
        for folder in left {
            let inside = root.list(&format!("savepoints/{}", folder.name));
            assert_eq!(inside.now_or_never().unwrap().unwrap(), [], "seed {seed}");
        }
    }
}

#[test]
fn k_482_without_any_folder_to_put_it_in_a_savepoint_is_refused_and_the_job_goes_on() {
    let (lines, ledger) = (lines(300), Ledger::new());
    let store = FolderCheckpoints::new(
        StoreRoot::memory(&MemoryStore::new(), "all"),
        JobId::new("wordcount").unwrap(),
        UuidSource::seeded(1),
        StreamOptions::default(),
    );
    let replies = Replies::default();
    let ours = Arc::clone(&replies);
    let mut driver = Driver::new(4);
    let parts = parts().checkpoints(Arc::new(store));
    let parts = asking(&driver, parts, move |control, event| {
        if let JobEvent::Running { .. } = event {
            let reply = control.savepoint(None, SavepointFormat::Canonical);
            ours.lock().unwrap().push(reply);
        }
    });
    driver
        .run(&wordcount(&lines, 2, &ledger), &settings(10), parts)
        .unwrap();
    let error = take(&replies).unwrap_err().to_string();
    assert!(
        error.contains("execution.checkpointing.savepoint-dir"),
        "{error}"
    );
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn k_497_k_762_a_savepoint_folder_is_moved_restored_and_deleted_by_its_owner() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (lines, ledger) = (lines(20_000), Ledger::new());
    let parts = || -> JobParts {
        let store = FolderCheckpoints::local(
            dir.path().join("checkpoints"),
            JobId::new("wordcount").unwrap(),
            runtime.handle(),
        )
        .unwrap();
        let mut parts = parts().checkpoints(Arc::new(store) as Arc<dyn CheckpointStore>);
        parts.clock = Arc::new(SystemClock);
        parts
    };
    // Nobody gets to the end before the savepoint has begun.
    let triggered = Arc::new(AtomicBool::new(false));
    let start = |settings: ExecutionSettings, parts: JobParts| {
        let job = Job::new("wordcount").parallelism(2);
        let (seen, triggered) = (AtomicU64::new(0), Arc::clone(&triggered));
        job.source("lines", Items::new(lines.to_vec(), 4))
            .flat_map(move |line| {
                if seen.fetch_add(1, Ordering::Relaxed) > 500 {
                    while !triggered.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
                words(line)
            })
            .key_by(|word: &String| word.clone())
            .process("count", Count::default())
            .sink_exactly_once("out", ledger.clone());
        LocalExecution::start(job, settings, parts, runtime.handle()).unwrap()
    };
    let control: Arc<Mutex<Option<JobControl>>> = Arc::default();
    let (of_job, replies) = (Arc::clone(&control), Replies::default());
    let ours = Arc::clone(&replies);
    let target = dir.path().join("first").to_string_lossy().into_owned();
    let mut first = parts();
    let begun = Arc::clone(&triggered);
    first.events = Arc::new(move |event: &JobEvent| match event {
        JobEvent::Running { .. } => {
            // The handle is there as soon as the job has started.
            let control = loop {
                if let Some(control) = of_job.lock().unwrap().clone() {
                    break control;
                }
                std::thread::yield_now();
            };
            let reply =
                control.stop_with_savepoint(false, Some(target.clone()), SavepointFormat::Native);
            ours.lock().unwrap().push(reply);
        }
        JobEvent::CheckpointTriggered(_) => begun.store(true, Ordering::Relaxed),
        _ => {}
    });
    let handle = start(without_interval(), first);
    *control.lock().unwrap() = Some(handle.control());
    let outcome = handle.wait().unwrap();
    assert_eq!(outcome.status, JobStatus::Finished);
    let done = replies.lock().unwrap().remove(0).wait().unwrap();
    let path = done.path.unwrap();
    let folder = path.strip_prefix("file://").unwrap();
    let moved = dir.path().join("moved");
    std::fs::rename(folder, &moved).unwrap();
    let settings = from(&moved.to_string_lossy());
    let outcome = start(settings, parts()).wait().unwrap();
    assert_eq!(outcome.status, JobStatus::Finished);
    assert_eq!(totals(&ledger.records()), expected(&lines));
    std::fs::remove_dir_all(&moved).unwrap();
    // All of it was in that folder: nothing is left where it was written, and the job that started from it goes on without it.
    assert!(!left_in(&dir.path().join("first")), "a file is left");
    let latest = ExecutionSettings {
        restore: RestoreFrom::Latest,
        ..without_interval()
    };
    let restored = Arc::new(Mutex::new(Vec::new()));
    let (seen, mut third) = (Arc::clone(&restored), parts());
    third.events = Arc::new(move |event: &JobEvent| {
        if let JobEvent::RunStarted { restored, .. } = event {
            seen.lock().unwrap().push(*restored);
        }
    });
    let outcome = start(latest, third).wait().unwrap();
    assert_eq!(outcome.status, JobStatus::Finished);
    assert!(matches!(restored.lock().unwrap()[..], [Some(_)]));
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

/// Tells whether a folder, or one below it, holds a file.
fn left_in(folder: &std::path::Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries
        .map(|entry| entry.unwrap().path())
        .any(|path| match path.is_dir() {
            true => left_in(&path),
            false => true,
        })
}
