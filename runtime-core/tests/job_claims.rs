//! Who owns the checkpoint that a job starts from, and what of shared objects is deleted when.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use backend_hashmap::HashMapSnapshots;
use checkpoint_storage::{
    CLAIM_NAME, CheckpointState, MemoryStore, StoreRoot, StoredCheckpoint, StreamOptions,
    UuidSource, list_checkpoints, verify,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use job_support::{
    Count, Items, Ledger, asking, expected, lines, parts, settings, totals, without_interval,
    wordcount, words,
};
use runtime_core::config::ClaimMode;
use runtime_core::coordinator::{CoordinatorConfig, JobStatus, Retention};
use runtime_core::execution::SavepointFormat;
use runtime_core::testing::{Driver, FaultyCheckpoints, StoreFaults};
use runtime_core::{ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, RestoreFrom};
use state_api::{
    BackendContext, BackendFactory, CheckpointId, Error, ErrorKind, FrozenTables,
    IncrementalHandle, JobId, KeyedBackend, KeyedHandle, LiveSnapshots, LoadTables, NamedHandle,
    PersistContext, RestoreContext, Result, Scope, Snapshot, SnapshotKind, SnapshotRequest,
};

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in memory waits")
}

/// Writes all state each time, and beside it a shared object that later checkpoints refer to, as incremental ones do.
#[derive(Clone, Default)]
struct Sharing {
    kinds: Arc<Mutex<BTreeMap<CheckpointId, SnapshotKind>>>,
    /// Whether every checkpoint has the object of the last one; else each third has a new one.
    keeps: bool,
}

impl BackendFactory for Sharing {
    fn name(&self) -> &str {
        "sharing"
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        Ok(KeyedBackend::Live(Box::new(SharingSnapshots {
            kinds: Arc::clone(&self.kinds),
            keeps: self.keeps,
            cx: cx.clone(),
            written: Arc::default(),
            base: None,
        })))
    }
}

struct SharingSnapshots {
    kinds: Arc<Mutex<BTreeMap<CheckpointId, SnapshotKind>>>,
    keeps: bool,
    cx: BackendContext,
    written: Arc<Mutex<BTreeMap<CheckpointId, NamedHandle>>>,
    /// The shared object of the last checkpoint known to be complete.
    base: Option<NamedHandle>,
}

struct SharingSnapshot {
    tables: Box<dyn Snapshot<Vec<KeyedHandle>>>,
    reused: Option<NamedHandle>,
    incremental: IncrementalHandle,
    written: Arc<Mutex<BTreeMap<CheckpointId, NamedHandle>>>,
}

impl Snapshot<Vec<KeyedHandle>> for SharingSnapshot {
    fn persist(
        mut self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move {
            let mut handles = self.tables.persist(cx.clone()).await?;
            let shared = match self.reused {
                Some(shared) => shared,
                None => {
                    let mut stream = cx.storage.create(cx.checkpoint, Scope::Shared);
                    stream.write(vec![7; 100].into()).await?;
                    let bytes = stream.finish().await?.unwrap();
                    let name = format!("base-{}", cx.checkpoint).into();
                    NamedHandle { name, bytes }
                }
            };
            self.written
                .lock()
                .unwrap()
                .insert(cx.checkpoint, shared.clone());
            self.incremental.shared.push(shared);
            handles.push(KeyedHandle::Incremental(self.incremental));
            Ok(handles)
        })
    }
}

impl LiveSnapshots for SharingSnapshots {
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        self.kinds
            .lock()
            .unwrap()
            .insert(request.checkpoint, request.kind);
        let tables = HashMapSnapshots.snapshot(request, tables)?;
        if request.kind.is_savepoint() {
            return Ok(tables);
        }
        let reuses = request.kind == SnapshotKind::Checkpoint
            && (self.keeps || !request.checkpoint.0.is_multiple_of(3));
        Ok(Box::new(SharingSnapshot {
            tables,
            reused: self.base.clone().filter(|_| reuses),
            incremental: IncrementalHandle {
                format: "sharing".into(),
                backend_id: "one".into(),
                checkpoint: request.checkpoint,
                range: self.cx.range,
                private: Vec::new(),
                shared: Vec::new(),
                new_bytes: 0,
                states: Vec::new(),
            },
            written: Arc::clone(&self.written),
        }))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut whole = Vec::new();
            for handle in handles {
                let KeyedHandle::Incremental(files) = handle else {
                    whole.push(handle.clone());
                    continue;
                };
                for file in &files.shared {
                    let mut reader = cx.storage.open(file.bytes.object().unwrap()).await?;
                    while reader.next().await?.is_some() {}
                    self.base = Some(file.clone());
                }
            }
            HashMapSnapshots.restore(&whole, cx, tables).await
        })
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.base = self.written.lock().unwrap().get(&checkpoint).cloned();
        Ok(())
    }
}

/// The folders of jobs and savepoints in one store.
struct Folders(StoreRoot);

impl Folders {
    fn new() -> Self {
        Self(StoreRoot::memory(&MemoryStore::new(), "all"))
    }

    fn store(&self, job: &str, seed: u64) -> Arc<FolderCheckpoints> {
        let store = FolderCheckpoints::new(
            self.0.folder(job),
            JobId::new(job).unwrap(),
            UuidSource::seeded(seed),
            StreamOptions::new(0, 64).unwrap(),
        );
        let savepoints = self.0.folder("savepoints");
        Arc::new(store.savepoints(savepoints).allow([self.0.clone()]))
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let listed = now(self.0.list(folder)).unwrap();
        listed.into_iter().map(|entry| entry.name).collect()
    }

    /// Checks that every complete checkpoint of a job is whole; returns their ids and the shared objects they use.
    fn check(&self, job: &str) -> (Vec<u64>, BTreeSet<String>) {
        let (mut ids, mut shared) = (Vec::new(), BTreeSet::new());
        for listed in now(list_checkpoints(&self.0.folder(job))).unwrap() {
            let CheckpointState::Complete(found) = listed.state else {
                continue;
            };
            let roots: Vec<_> = found
                .foreign_roots()
                .map(|url| self.0.folder(url.strip_prefix("memory://all/").unwrap()))
                .collect();
            let report = now(verify(&found, roots)).unwrap();
            assert!(
                report.faults.is_empty(),
                "{}: {:?}",
                listed.name,
                report.faults
            );
            ids.push(found.metadata.checkpoint.0);
            shared.extend(found.metadata.shared_objects().map(ToString::to_string));
        }
        ids.sort_unstable();
        (ids, shared)
    }
}

/// Settings of a job by name, starting at a path.
fn starting(job: &str, path: &str, claim: ClaimMode) -> ExecutionSettings {
    ExecutionSettings {
        job_id: JobId::new(job).unwrap(),
        restore: RestoreFrom::Path(path.into()),
        claim,
        ..settings(10)
    }
}

fn retaining(settings: ExecutionSettings, retained: u32) -> ExecutionSettings {
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            retained,
            ..settings.checkpointing
        },
        ..settings
    }
}

/// A word count that fails once, after `armed` is set.
fn failing(lines: &[String], ledger: &Ledger<(String, u64)>, armed: &Arc<AtomicBool>) -> Job {
    let job = Job::new("wordcount").parallelism(2);
    let (armed, failed) = (Arc::clone(armed), AtomicBool::new(false));
    job.source("lines", Items::new(lines.to_vec(), 4))
        .try_map(move |line: String| {
            if armed.load(Ordering::Relaxed) && !failed.swap(true, Ordering::Relaxed) {
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}

/// Stops a job early with a savepoint or a checkpoint; returns where that is.
fn stopped(
    folders: &Folders,
    seed: u64,
    backend: &Sharing,
    job: &Job,
    savepoint: Option<SavepointFormat>,
) -> String {
    let settings = ExecutionSettings {
        job_id: JobId::new("first").unwrap(),
        ..settings(10)
    };
    stopped_with(folders, seed, backend, job, savepoint, &settings)
}

/// As [`stopped`], with settings of its own.
fn stopped_with(
    folders: &Folders,
    seed: u64,
    backend: &Sharing,
    job: &Job,
    savepoint: Option<SavepointFormat>,
    settings: &ExecutionSettings,
) -> String {
    let reply = Arc::new(Mutex::new(None));
    let (ours, asked) = (Arc::clone(&reply), AtomicBool::new(false));
    let mut driver = Driver::new(seed).budget(3);
    let store = folders.store(settings.job_id.as_str(), seed);
    let mut parts = parts().checkpoints(store);
    parts.backend = Arc::new(backend.clone());
    let parts = asking(&driver, parts, move |control, event| {
        if let JobEvent::CheckpointCompleted(_) = event
            && !asked.swap(true, Ordering::Relaxed)
        {
            *ours.lock().unwrap() = Some(match savepoint {
                Some(format) => control.stop_with_savepoint(false, None, format),
                None => control.stop_with_checkpoint(),
            });
        }
    });
    driver.run(job, settings, parts).unwrap();
    let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
    done.path.unwrap()
}

const KINDS: [Option<SavepointFormat>; 3] = [
    None,
    Some(SavepointFormat::Native),
    Some(SavepointFormat::Canonical),
];

#[test]
fn k_396_k_761_a_job_without_a_claim_outlives_the_deletion_of_what_it_started_from() {
    for (seed, kind) in (0..9).zip(KINDS.into_iter().cycle()) {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let backend = Sharing::default();
        let path = stopped(
            &folders,
            seed,
            &backend,
            &wordcount(&lines, 2, &ledger),
            kind,
        );
        backend.kinds.lock().unwrap().clear();
        let place = path.strip_prefix("memory://all/").unwrap().to_owned();
        let (before, deleted) = (folders.names(&place), Arc::new(AtomicBool::new(false)));
        let (root, gone, of_first) = (folders.0.clone(), Arc::clone(&deleted), place.clone());
        let mut parts = parts().checkpoints(folders.store("second", seed + 100));
        parts.backend = Arc::new(backend.clone());
        parts.events = Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(_) = event
                && !gone.swap(true, Ordering::Relaxed)
            {
                // Its owner takes it away as soon as a checkpoint of the new job is there.
                assert_eq!(
                    now(root.list(&of_first)).unwrap().len(),
                    before.len(),
                    "untouched"
                );
                for folder in [of_first.as_str(), "first/shared"] {
                    for entry in now(root.list(folder)).unwrap() {
                        now(root.delete(&format!("{folder}/{}", entry.name))).unwrap();
                    }
                }
            }
        });
        let settings = starting("second", &path, ClaimMode::NoClaim);
        let outcome = Driver::new(seed)
            .budget(3)
            .run(&failing(&lines, &ledger, &deleted), &settings, parts)
            .unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        assert!(deleted.load(Ordering::Relaxed));
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        let kinds = backend.kinds.lock().unwrap();
        let mut in_order = kinds.values();
        assert_eq!(in_order.next(), Some(&SnapshotKind::FullCheckpoint));
        assert!(
            in_order.any(|kind| *kind == SnapshotKind::Checkpoint),
            "seed {seed}"
        );
        folders.check("second");
    }
}

#[test]
fn k_761_a_claimed_snapshot_goes_when_the_job_no_longer_needs_it() {
    for (seed, kind) in (0..9).zip(KINDS.into_iter().cycle()) {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let backend = Sharing::default();
        let path = stopped(
            &folders,
            seed,
            &backend,
            &wordcount(&lines, 2, &ledger),
            kind,
        );
        backend.kinds.lock().unwrap().clear();
        let place = path.strip_prefix("memory://all/").unwrap().to_owned();
        assert!(!folders.names(&place).is_empty());
        let mut parts = parts().checkpoints(folders.store("second", seed + 100));
        parts.backend = Arc::new(backend.clone());
        let (root, armed) = (folders.0.clone(), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&armed);
        parts.events = Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(_) = event {
                begun.store(true, Ordering::Relaxed);
                Folders(root.clone()).check("second");
            }
        });
        let settings = starting("second", &path, ClaimMode::Claim);
        let outcome = Driver::new(seed)
            .budget(3)
            .run(&failing(&lines, &ledger, &armed), &settings, parts)
            .unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        assert_eq!(folders.names(&place), [""; 0], "seed {seed}: it is gone");
        // Incremental checkpoints build on it from the first.
        let first = backend.kinds.lock().unwrap().values().next().copied();
        assert_eq!(first, Some(SnapshotKind::Checkpoint));
        let (ids, shared) = folders.check("second");
        assert_eq!(ids.len(), 1, "seed {seed}");
        let lying = folders.names("second/shared").len() + folders.names("first/shared").len();
        assert_eq!(lying, shared.len(), "seed {seed}: {shared:?}");
    }
}

#[test]
fn a_claim_outlasts_the_process_and_what_was_claimed_is_kept_as_long_as_any_of_it_is_used() {
    let mut used = 0;
    for seed in 0..9 {
        let (lines, ledger, folders) = (lines(16_000), Ledger::new(), Folders::new());
        let job = wordcount(&lines, 2, &ledger);
        let path = stopped(&folders, seed, &Sharing::default(), &job, None);
        let place = path.strip_prefix("memory://all/").unwrap().to_owned();
        // Another job claims it, and ends after a checkpoint of its own.
        let settings_of_second = starting("second", &path, ClaimMode::Claim);
        let backend = Sharing {
            keeps: seed % 3 != 0,
            ..Sharing::default()
        };
        let settings = &settings_of_second;
        stopped_with(&folders, seed + 100, &backend, &job, None, settings);
        let (_, shared) = folders.check("second");
        if shared.iter().any(|object| object.contains("first")) {
            used += 1;
            let left = folders.names(&place);
            for name in ["_metadata", "_claimed"] {
                assert!(left.iter().any(|it| it == name), "seed {seed}: {left:?}");
            }
        }
        // The next process knows of the claim by what is in the store alone.
        let latest = ExecutionSettings {
            job_id: JobId::new("second").unwrap(),
            restore: RestoreFrom::Latest,
            claim: ClaimMode::NoClaim,
            ..settings.clone()
        };
        let mut parts = parts().checkpoints(folders.store("second", seed + 200));
        parts.backend = Arc::new(Sharing::default());
        Driver::new(seed)
            .budget(3)
            .run(&job, &latest, parts)
            .unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        let (_, shared) = folders.check("second");
        if !shared.iter().any(|object| object.contains("first")) {
            assert_eq!(folders.names(&place), [""; 0], "seed {seed}: it is gone");
        }
    }
    assert_eq!(used, 6, "those that kept it");
}

/// What is complete stays whole: a claimer gets one checkpoint, not those that were built upon it.
#[test]
fn checkpoints_beside_a_claimed_one_keep_the_objects_that_they_share_with_it() {
    let (mut shared_with_it, mut gone) = (0, 0);
    for (seed, claimer) in (0..8).zip(["second", "first"].into_iter().cycle()) {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let job = wordcount(&lines, 2, &ledger);
        let settings_of_first = ExecutionSettings {
            job_id: JobId::new("first").unwrap(),
            ..retaining(settings(10), 4)
        };
        let mut parts = parts().checkpoints(folders.store("first", seed));
        parts.backend = Arc::new(Sharing::default());
        Driver::new(seed)
            .budget(3)
            .run(&job, &settings_of_first, parts)
            .unwrap();
        let (before, _) = folders.check("first");
        assert_eq!(before.len(), 4, "seed {seed}");
        let path = format!("memory://all/first/chk-{}", before[0]);
        let of_oldest = now(StoredCheckpoint::read(
            &folders.0.folder("first"),
            &format!("chk-{}", before[0]),
        ));
        let of_oldest = of_oldest.unwrap().metadata;
        // It goes on until the claimed one is subsumed, in one process or, knowing the claim from the store alone, in two.
        let claiming = starting(claimer, &path, ClaimMode::Claim);
        if seed % 4 < 2 {
            stopped_with(
                &folders,
                seed + 100,
                &Sharing {
                    keeps: true,
                    ..Sharing::default()
                },
                &job,
                None,
                &claiming,
            );
        }
        let retained = if claimer == "first" { 8 } else { 1 };
        let going_on = match seed % 4 {
            0 | 1 => ExecutionSettings {
                restore: RestoreFrom::Latest,
                claim: ClaimMode::NoClaim,
                checkpointing: retaining(settings(10), retained).checkpointing,
                ..claiming
            },
            _ => claiming,
        };
        let mut parts = self::parts().checkpoints(folders.store(claimer, seed + 200));
        parts.backend = Arc::new(Sharing::default());
        Driver::new(seed)
            .budget(3)
            .run(&job, &going_on, parts)
            .unwrap();
        let (after, shared) = folders.check("first");
        for id in &before[1..] {
            let stays = claimer == "second" || seed % 4 >= 2;
            assert!(
                after.contains(id) || !stays,
                "seed {seed}: {id} in {after:?}"
            );
        }
        let oldest: BTreeSet<_> = of_oldest
            .shared_objects()
            .map(ToString::to_string)
            .collect();
        shared_with_it += shared.intersection(&oldest).count();
        let (_, used) = folders.check("second");
        let in_first = used.iter().any(|object| object.contains("/first/"));
        if claimer == "second" && !in_first {
            let claimed = folders.names(&format!("first/chk-{}", before[0]));
            assert_eq!(
                claimed,
                Vec::<String>::new(),
                "seed {seed}: it is discarded"
            );
            gone += 1;
        }
    }
    assert_eq!(gone, 4, "the claimed checkpoint is needed for ever");
    assert!(shared_with_it > 0, "nothing was shared");
}

#[test]
fn an_owner_that_runs_on_after_a_claim_keeps_what_its_later_checkpoints_use() {
    for seed in 0..4 {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let keeping = Sharing {
            keeps: true,
            ..Sharing::default()
        };
        let job = wordcount(&lines, 2, &ledger);
        let path = stopped(&folders, seed, &keeping, &job, None);
        let owner = ExecutionSettings {
            job_id: JobId::new("first").unwrap(),
            restore: RestoreFrom::Latest,
            ..retaining(settings(10), 4)
        };
        let (goes_on, of_both) = (Arc::new(AtomicBool::new(false)), ledger.clone());
        let (root, owners_lines, went_on) =
            (folders.0.clone(), lines.clone(), Arc::clone(&goes_on));
        let mut parts = parts().checkpoints(folders.store("second", seed + 100));
        parts.backend = Arc::new(Sharing::default());
        parts.events = Arc::new(move |event: &JobEvent| {
            if !matches!(event, JobEvent::CheckpointCompleted(_))
                || went_on.swap(true, Ordering::Relaxed)
            {
                return;
            }
            let store = Folders(root.clone()).store("first", seed + 200);
            let mut parts = self::parts().checkpoints(store);
            parts.backend = Arc::new(keeping.clone());
            let job = wordcount(&owners_lines, 2, &of_both);
            Driver::new(seed)
                .budget(3)
                .run(&job, &owner, parts)
                .unwrap();
        });
        let claiming = starting("second", &path, ClaimMode::Claim);
        Driver::new(seed)
            .budget(3)
            .run(&job, &claiming, parts)
            .unwrap();
        assert!(goes_on.load(Ordering::Relaxed));
        let (ids, shared) = folders.check("first");
        assert!(ids.len() > 1 && !shared.is_empty(), "{ids:?} {shared:?}");
        folders.check("second");
    }
}

#[test]
fn k_275_shared_objects_live_as_long_as_a_retained_checkpoint_uses_them() {
    for (seed, retained) in [(1, 1), (2, 1), (3, 3), (4, 2)] {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let mut parts = parts().checkpoints(folders.store("wordcount", seed));
        parts.backend = Arc::new(Sharing::default());
        let (root, armed) = (folders.0.clone(), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&armed);
        parts.events = Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(stats) = event {
                begun.store(stats.id.0 >= 2, Ordering::Relaxed);
                Folders(root.clone()).check("wordcount");
            }
        });
        let settings = retaining(settings(10), retained);
        let job = failing(&lines, &ledger, &armed);
        let outcome = Driver::new(seed)
            .budget(3)
            .run(&job, &settings, parts)
            .unwrap();
        assert!(outcome.checkpoints > 3, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        let (ids, shared) = folders.check("wordcount");
        assert_eq!(ids.len(), retained as usize, "seed {seed}");
        // What failed checkpoints and lost acks wrote has gone as well.
        let lying = folders.names("wordcount/shared").len();
        assert_eq!(lying, shared.len(), "seed {seed}: {shared:?}");
    }
}

/// K-312: the new one is there whatever becomes of the old one, and the job hears of it by a warning.
#[test]
fn what_looks_complete_is_whole_however_often_deletions_fail_or_dawdle() {
    let mut injected = 0;
    let warnings = Arc::new(Mutex::new(0));
    for seed in 0..5 {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let faults = StoreFaults {
            delete: 400,
            slow: 600,
            ..StoreFaults::default()
        };
        let store = FaultyCheckpoints::new(folders.store("wordcount", seed), faults, seed);
        let mut parts = parts().checkpoints(Arc::new(store.clone()));
        parts.backend = Arc::new(Sharing::default());
        let (root, told) = (folders.0.clone(), Arc::clone(&warnings));
        parts.events = Arc::new(move |event: &JobEvent| match event {
            JobEvent::CheckpointCompleted(stats) => {
                let (ids, _) = Folders(root.clone()).check("wordcount");
                assert!(ids.contains(&stats.id.0), "{} of {ids:?}", stats.id);
            }
            JobEvent::Warning(_) => *told.lock().unwrap() += 1,
            _ => {}
        });
        let job = wordcount(&lines, 2, &ledger);
        let outcome = Driver::new(seed)
            .budget(3)
            .run(&job, &settings(10), parts)
            .unwrap();
        assert_eq!((outcome.restarts, outcome.aborted), (0, 0), "seed {seed}");
        assert!(outcome.checkpoints > 3, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        injected += store.injected();
        let (ids, _) = folders.check("wordcount");
        assert!(ids.len() <= 6, "seed {seed}: {ids:?}");
    }
    let warnings = *warnings.lock().unwrap();
    assert!(injected > 5 && warnings > 0, "{injected}, {warnings}");
}

#[test]
fn a_checkpoint_that_was_published_without_an_answer_keeps_its_objects_when_the_job_is_cancelled() {
    let mut found = 0;
    for seed in 0..10 {
        let (lines, ledger, folders) = (lines(4000), Ledger::new(), Folders::new());
        let faults = StoreFaults {
            publish_unknown: 1000,
            ..StoreFaults::default()
        };
        let store = FaultyCheckpoints::new(folders.store("wordcount", seed), faults, seed);
        let settings = settings(10);
        let settings = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                tolerable_failures: CoordinatorConfig::UNLIMITED,
                ..settings.checkpointing
            },
            ..settings
        };
        let mut driver = Driver::new(seed).budget(3);
        let mut parts = asking(
            &driver,
            parts().checkpoints(Arc::new(store)),
            |control, event| {
                if let JobEvent::CheckpointAborted { .. } = event {
                    control.cancel();
                }
            },
        );
        parts.backend = Arc::new(Sharing::default());
        let job = wordcount(&lines, 2, &ledger);
        let outcome = driver.run(&job, &settings, parts).unwrap();
        assert_eq!(outcome.status, JobStatus::Cancelled);
        let (ids, shared) = folders.check("wordcount");
        assert_eq!(ids.is_empty(), shared.is_empty());
        found += ids.len();
    }
    assert!(found > 0);
}

#[test]
fn a_checkpoint_is_claimed_by_one_job_and_the_second_is_told_by_whom() {
    let (lines, ledger, folders) = (lines(2000), Ledger::new(), Folders::new());
    let backend = Sharing::default();
    let path = stopped(&folders, 3, &backend, &wordcount(&lines, 2, &ledger), None);
    let run = |job: &str, claim: ClaimMode, cancel: bool| {
        let mut driver = Driver::new(5);
        let mut parts: JobParts = job_support::parts().checkpoints(folders.store(job, 77));
        parts.backend = Arc::new(backend.clone());
        let parts = asking(&driver, parts, move |control, event| {
            if let JobEvent::Running { .. } = event
                && cancel
            {
                control.cancel();
            }
        });
        let settings = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                retention: Retention::Always,
                ..without_interval().checkpointing
            },
            ..starting(job, &path, claim)
        };
        driver.run(&wordcount(&lines, 2, &ledger), &settings, parts)
    };
    assert_eq!(
        run("second", ClaimMode::Claim, true).unwrap().status,
        JobStatus::Cancelled
    );
    let place = path.strip_prefix("memory://all/").unwrap();
    assert!(folders.names(place).contains(&CLAIM_NAME.to_owned()));
    let refused = run("third", ClaimMode::Claim, true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(
        refused.to_string().contains("job second has claimed"),
        "{refused}"
    );
    assert_eq!(refused.context("claimed by"), Some("memory://all/second"));
    assert_eq!(
        run("third", ClaimMode::NoClaim, true).unwrap().status,
        JobStatus::Cancelled
    );
    // The job that took it goes on and needs it no longer, but it is another's now.
    let before = folders.names(place);
    let mut parts = parts().checkpoints(folders.store("first", 78));
    parts.backend = Arc::new(backend.clone());
    let of_first = ExecutionSettings {
        job_id: JobId::new("first").unwrap(),
        ..settings(10)
    };
    let outcome = Driver::new(6).run(&wordcount(&lines, 2, &ledger), &of_first, parts);
    assert!(outcome.unwrap().checkpoints > 1);
    assert_eq!(folders.names(place), before);
    assert_eq!(folders.check("first").0.len(), 2);
    assert_eq!(
        run("second", ClaimMode::Claim, false).unwrap().status,
        JobStatus::Finished
    );
}

#[test]
fn k_761_the_mode_that_owns_nothing_and_builds_on_it_is_refused() {
    let settings = starting("second", "chk-1", ClaimMode::Legacy);
    let folders = Folders::new();
    let parts = parts().checkpoints(folders.store("second", 1));
    let job = wordcount(&lines(10), 1, &Ledger::new());
    let error = Driver::new(1).run(&job, &settings, parts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("NO_CLAIM"), "{error}");
}
