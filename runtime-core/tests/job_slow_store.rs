//! Stores that answer late or never: the job can still be asked, cancelled and restarted, and its end has a bound.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::future::{pending, poll_fn, ready};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use checkpoint_storage::{CheckpointMetadata, MemoryStore, StoreRoot, StreamOptions, UuidSource};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use job_support::{
    Count, Items, Ledger, asking, expected, lines, now, parts, settings, totals, without_interval,
    wordcount, words,
};
use runtime_core::coordinator::{CoordinatorConfig, FailureReason, JobStatus, Retention};
use runtime_core::execution::{
    CheckpointStore, JobControl, JobReport, JobState, LoadedCheckpoint, Reply, SavepointFormat,
    StoreStart,
};
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, MemoryCheckpoints, RestoreFrom,
};
use state_api::{
    CheckpointId, CheckpointStorage, Clock, Error, ErrorKind, JobId, ObjectHandle,
    OperatorSnapshot, Result, SnapshotKind,
};

/// A moment in a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Starting,
    Publishing(CheckpointId),
    Published(CheckpointId),
    StopNoted,
    Finding,
    Discarding,
    Ending,
}

type Wait = dyn Fn(Moment) -> BoxFuture<'static, ()> + Send + Sync;

/// A store whose calls wait at some moments.
struct Slow {
    inner: Arc<dyn CheckpointStore>,
    wait: Box<Wait>,
}

impl Slow {
    fn new(
        inner: Arc<dyn CheckpointStore>,
        wait: impl Fn(Moment) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            wait: Box::new(wait),
        })
    }
}

impl CheckpointStore for Slow {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        Box::pin(async move {
            (self.wait)(Moment::Starting).await;
            self.inner.start().await
        })
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        self.inner.storage()
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        self.inner.load(from)
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        Box::pin(async move {
            (self.wait)(Moment::Finding).await;
            self.inner.find_published(id).await
        })
    }

    fn prepare_savepoint(
        &self,
        id: CheckpointId,
        target: Option<String>,
    ) -> BoxFuture<'_, Result<Arc<dyn CheckpointStorage>>> {
        self.inner.prepare_savepoint(id, target)
    }

    fn storage_of(&self, id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        self.inner.storage_of(id)
    }

    fn location(&self, id: CheckpointId) -> Option<String> {
        self.inner.location(id)
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let id = metadata.checkpoint;
            (self.wait)(Moment::Publishing(id)).await;
            let published = self.inner.publish(metadata).await;
            (self.wait)(Moment::Published(id)).await;
            published
        })
    }

    fn note_stop(&self, savepoint: CheckpointId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let noted = self.inner.note_stop(savepoint).await;
            (self.wait)(Moment::StopNoted).await;
            noted
        })
    }

    fn delete_shared(&self, objects: Vec<ObjectHandle>) -> BoxFuture<'_, Result<()>> {
        self.inner.delete_shared(objects)
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            (self.wait)(Moment::Discarding).await;
            self.inner.discard(metadata).await
        })
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        self.inner.discard_unpublished(id, snapshots)
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            (self.wait)(Moment::Ending).await;
            self.inner.end().await
        })
    }
}

/// Waits for something that is looked at again and again.
fn until(is_so: impl Fn() -> bool + Send + 'static) -> BoxFuture<'static, ()> {
    Box::pin(poll_fn(move |cx| {
        if is_so() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }))
}

fn at_once() -> BoxFuture<'static, ()> {
    Box::pin(ready(()))
}

fn with_store(store: Arc<Slow>) -> JobParts {
    parts().checkpoints(store)
}

/// Nothing is kept: the end of the job deletes its last checkpoint.
fn keeping_nothing() -> ExecutionSettings {
    let settings = without_interval();
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            retention: Retention::Never,
            ..settings.checkpointing
        },
        ..settings
    }
}

#[test]
fn the_end_of_a_job_waits_ten_seconds_for_the_store_and_answers_meanwhile() {
    for stuck in [Moment::Discarding, Moment::Ending] {
        let (lines, ledger) = (lines(200), Ledger::new());
        let mut driver = Driver::new(1);
        let (control, clock) = (driver.control(), driver.clock());
        let replies: Arc<Mutex<Vec<Reply<JobReport>>>> = Arc::default();
        let (ours, began) = (Arc::clone(&replies), Arc::new(AtomicI64::new(-1)));
        let (since, of_store) = (Arc::clone(&began), Arc::clone(&clock));
        let store = Slow::new(Arc::new(MemoryCheckpoints::new()), move |moment| {
            if moment != stuck {
                return at_once();
            }
            since.store(of_store.now_ms(), Ordering::Relaxed);
            ours.lock().unwrap().push(control.status());
            Box::pin(pending())
        });
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&warnings);
        let parts = JobParts {
            events: Arc::new(move |event: &JobEvent| {
                if let JobEvent::Warning(error) = event {
                    told.lock().unwrap().push(error.to_string());
                }
            }),
            ..with_store(store)
        };
        let job = wordcount(&lines, 2, &ledger);
        let outcome = driver.run(&job, &keeping_nothing(), parts).unwrap();
        assert_eq!(outcome.status, JobStatus::Finished);
        let took = clock.now_ms() - began.load(Ordering::Relaxed);
        assert!((1..=10_010).contains(&took), "{stuck:?}: {took} ms");
        let report = now(replies.lock().unwrap().remove(0)).unwrap();
        assert_eq!(report.state, JobState::Stopping, "{stuck:?}");
        let warnings = warnings.lock().unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].contains("what is left is for `gc`"),
            "{stuck:?}: {warnings:?}"
        );
        assert_eq!(totals(&ledger.records()), expected(&lines));
    }
}

#[test]
fn a_cancel_and_questions_are_heard_while_the_store_lets_no_job_start() {
    let mut driver = Driver::new(1);
    let control = driver.control();
    let replies = Arc::new(Mutex::new(None));
    let asked = Arc::clone(&replies);
    let store = Slow::new(Arc::new(MemoryCheckpoints::new()), move |moment| {
        if moment != Moment::Starting {
            return at_once();
        }
        *asked.lock().unwrap() = Some((control.status(), control.checkpoint(false)));
        control.cancel();
        Box::pin(pending())
    });
    let job = wordcount(&lines(200), 2, &Ledger::new());
    let outcome = driver.run(&job, &settings(10), with_store(store)).unwrap();
    assert_eq!(outcome.status, JobStatus::Cancelled);
    let (status, checkpoint) = replies.lock().unwrap().take().unwrap();
    assert_eq!(now(status).unwrap().state, JobState::Starting);
    let error = now(checkpoint).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable, "{error}");
}

#[test]
fn a_cancel_is_heard_while_a_checkpoint_is_published_without_end() {
    for seed in 0..5 {
        let mut driver = Driver::new(seed);
        let (control, clock) = (driver.control(), driver.clock());
        let (began, of_store) = (Arc::new(AtomicI64::new(-1)), Arc::clone(&clock));
        let since = Arc::clone(&began);
        let store = Slow::new(Arc::new(MemoryCheckpoints::new()), move |moment| {
            if !matches!(moment, Moment::Publishing(_)) {
                return at_once();
            }
            since.store(of_store.now_ms(), Ordering::Relaxed);
            control.cancel();
            Box::pin(pending())
        });
        let job = wordcount(&lines(2000), 2, &Ledger::new());
        let parts = with_store(store);
        let outcome = driver.run(&job, &settings(10), parts).unwrap();
        assert_eq!(outcome.status, JobStatus::Cancelled, "seed {seed}");
        let took = clock.now_ms() - began.load(Ordering::Relaxed);
        // There are steps of the subtasks as well.
        assert!((5_000..=10_500).contains(&took), "seed {seed}: {took} ms");
    }
}

/// A word count that fails once, at the first record after it was told to.
fn failing_once(lines: &[String], ledger: &Ledger<(String, u64)>) -> (Job, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let due = Arc::clone(&fails);
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.to_vec(), 4))
        .try_map(
            move |line: String| match due.swap(false, Ordering::Relaxed) {
                true => Err(Error::user("on purpose")),
                false => Ok(line),
            },
        )
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    (job, fails)
}

/// What becomes of the first checkpoint, of which the store says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    IsNotThere,
    IsThere,
    /// The store has it only when the next run is under way.
    ComesLate,
}

#[test]
fn a_restart_does_not_wait_for_ever_for_a_checkpoint_that_is_being_published() {
    for first in [First::IsNotThere, First::IsThere, First::ComesLate] {
        for seed in 0..5 {
            let (lines, ledger) = (lines(2000), Ledger::new());
            let (job, fails) = failing_once(&lines, &ledger);
            let restored = Arc::new(Mutex::new(Vec::new()));
            let runs = Arc::clone(&restored);
            let memory = MemoryCheckpoints::new();
            let store = Slow::new(Arc::new(memory.clone()), move |moment| {
                let id = CheckpointId(1);
                if moment == Moment::Publishing(id) {
                    fails.store(true, Ordering::Relaxed);
                }
                let runs = Arc::clone(&runs);
                match (first, moment) {
                    (First::IsNotThere, Moment::Publishing(at)) if at == id => Box::pin(pending()),
                    (First::ComesLate, Moment::Publishing(at)) if at == id => {
                        until(move || runs.lock().unwrap().len() > 1)
                    }
                    (First::IsThere, Moment::Published(at)) if at == id => Box::pin(pending()),
                    _ => at_once(),
                }
            });
            let runs = Arc::clone(&restored);
            let parts = JobParts {
                events: Arc::new(move |event: &JobEvent| {
                    if let JobEvent::RunStarted { restored, .. } = event {
                        runs.lock().unwrap().push(*restored);
                    }
                }),
                ..with_store(store)
            };
            let mut driver = Driver::new(seed).budget(4);
            let outcome = driver.run(&job, &settings(10), parts).unwrap();
            assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 1));
            let from = (first == First::IsThere).then_some(CheckpointId(1));
            assert_eq!(*restored.lock().unwrap(), [None, from], "{first:?}");
            // Whatever the store did and when, it goes once a later one is complete.
            let left = memory.completed();
            let stays = left.iter().any(|left| left.checkpoint == CheckpointId(1));
            assert!(!stays, "{first:?}, seed {seed}: {left:?}");
            assert_eq!(
                totals(&ledger.records()),
                expected(&lines),
                "{first:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_cancel_is_heard_while_the_store_is_asked_what_to_restart_from() {
    let (lines, ledger) = (lines(2000), Ledger::new());
    let (job, fails) = failing_once(&lines, &ledger);
    let mut driver = Driver::new(3).budget(4);
    let control = driver.control();
    let store = Slow::new(
        Arc::new(MemoryCheckpoints::new()),
        move |moment| match moment {
            Moment::Published(_) => {
                fails.store(true, Ordering::Relaxed);
                Box::pin(pending())
            }
            Moment::Finding => {
                control.cancel();
                Box::pin(pending())
            }
            _ => at_once(),
        },
    );
    let outcome = driver.run(&job, &settings(10), with_store(store)).unwrap();
    assert_eq!(
        (outcome.status, outcome.restarts),
        (JobStatus::Cancelled, 0)
    );
}

#[test]
fn a_cancel_that_comes_while_a_run_fails_is_no_restart() {
    let mut while_it_failed = 0;
    for seed in 0..20 {
        let (lines, ledger) = (lines(2000), Ledger::new());
        let (job, fails) = failing_once(&lines, &ledger);
        let mut driver = Driver::new(seed).budget(4);
        let failures = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&failures);
        let asked = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::clone(&asked);
        let store = Slow::new(Arc::new(MemoryCheckpoints::new()), |_| at_once());
        let parts = asking(
            &driver,
            with_store(store),
            move |control, event| match event {
                JobEvent::CheckpointTriggered(_) => fails.store(true, Ordering::Relaxed),
                JobEvent::CheckpointAborted { failure, .. }
                    if failure.reason == FailureReason::TaskFailed =>
                {
                    cancelled.store(true, Ordering::Relaxed);
                    control.cancel();
                }
                JobEvent::RunFailed { restart_in_ms, .. } => {
                    told.lock().unwrap().push(*restart_in_ms)
                }
                _ => {}
            },
        );
        let outcome = driver.run(&job, &settings(10), parts).unwrap();
        if asked.load(Ordering::Relaxed) {
            assert_eq!(
                (outcome.status, outcome.restarts),
                (JobStatus::Cancelled, 0)
            );
            let failures = failures.lock().unwrap();
            assert_eq!(failures.len(), 1, "what failed is told");
            while_it_failed += usize::from(failures[0].is_none());
        }
    }
    assert!(while_it_failed > 5, "{while_it_failed} of 20");
}

/// Stops a job with a savepoint that expires when it is complete and noted, and the job fails of it.
fn stopped_too_late(
    inner: Arc<dyn CheckpointStore>,
    seed: u64,
) -> (Vec<String>, Ledger<(String, u64)>) {
    let (lines, ledger) = (lines(1000), Ledger::new());
    let mut driver = Driver::new(seed).budget(4);
    let (clock, expired) = (driver.clock(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&expired);
    let store = Slow::new(inner, move |moment| {
        if moment != Moment::StopNoted {
            return at_once();
        }
        clock.advance(60_000);
        let expired = Arc::clone(&expired);
        until(move || expired.load(Ordering::Relaxed))
    });
    let asked = AtomicBool::new(false);
    let stop = move |control: &JobControl, event: &JobEvent| match event {
        JobEvent::CheckpointCompleted(_) if !asked.swap(true, Ordering::Relaxed) => {
            drop(control.stop_with_savepoint(false, None, SavepointFormat::Canonical));
        }
        JobEvent::CheckpointAborted { failure, .. } if failure.reason == FailureReason::Expired => {
            seen.store(true, Ordering::Relaxed);
        }
        _ => {}
    };
    let parts = asking(&driver, with_store(store), stop);
    let settings = ExecutionSettings {
        restart: RestartStrategy::None,
        checkpointing: CoordinatorConfig {
            timeout: Duration::from_secs(50),
            ..settings(10).checkpointing
        },
        ..settings(10)
    };
    let job = wordcount(&lines, 2, &ledger);
    let error = driver.run(&job, &settings, parts).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    (lines, ledger)
}

#[test]
fn a_stop_whose_savepoint_expired_while_it_was_published_does_not_refuse_the_latest() {
    for seed in 0..5 {
        let (memory, in_memory) = (MemoryStore::new(), MemoryCheckpoints::new());
        let in_folder = |start| {
            let root = StoreRoot::memory(&memory, "all");
            let store = FolderCheckpoints::new(
                root.folder("checkpoints"),
                JobId::new("wordcount").unwrap(),
                UuidSource::seeded(start),
                StreamOptions::default(),
            );
            Arc::new(store.savepoints(root.folder("savepoints"))) as Arc<dyn CheckpointStore>
        };
        let stores: [&dyn Fn(u64) -> Arc<dyn CheckpointStore>; 2] =
            [&in_folder, &|_| Arc::new(in_memory.clone())];
        for store in stores {
            let (lines, ledger) = stopped_too_late(store(1), seed);
            let latest = ExecutionSettings {
                restore: RestoreFrom::Latest,
                ..settings(10)
            };
            let parts = parts().checkpoints(store(2));
            let job = wordcount(&lines, 2, &ledger);
            Driver::new(seed).run(&job, &latest, parts).unwrap();
            assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        }
        assert!(in_memory.savepoints().is_empty(), "seed {seed}");
        let root = StoreRoot::memory(&memory, "all");
        let left = root.list("savepoints").now_or_never().unwrap().unwrap();
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
}

/// What a store of a job in a local folder says is the latest.
async fn latest(store: &FolderCheckpoints) -> Result<Option<CheckpointId>> {
    let found = store.load(&RestoreFrom::Latest).await?;
    Ok(found.map(|found| found.metadata.checkpoint))
}

fn job_store(home: &Path) -> FolderCheckpoints {
    let io = tokio::runtime::Handle::current();
    let job = JobId::new("wordcount").unwrap();
    let store = FolderCheckpoints::local(home.join("checkpoints"), job, &io).unwrap();
    store.savepoints(StoreRoot::local(home.join("savepoints"), io).unwrap())
}

#[test]
fn a_savepoint_stays_for_as_long_as_it_is_noted_that_the_job_was_stopped_with_it() {
    let io = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let home = tempfile::tempdir().unwrap();
    io.block_on(async {
        let store = job_store(home.path());
        let attempt = store.start().await.unwrap().attempt;
        let id = CheckpointId(1);
        store.prepare_savepoint(id, None).await.unwrap();
        let job = JobId::new("wordcount").unwrap();
        let kind = SnapshotKind::CanonicalSavepoint;
        let savepoint = Arc::new(CheckpointMetadata::new(id, job, attempt, kind, 0));
        store.publish(Arc::clone(&savepoint)).await.unwrap();
        store.note_stop(id).await.unwrap();
        let path = store.location(id).unwrap();
        let path = Path::new(path.strip_prefix("file://").unwrap_or(&path)).to_owned();
        let refused = latest(&store).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);

        // The note can't be deleted: whoever starts the job now is sent to the savepoint, and finds it.
        let note = home.path().join("checkpoints/wordcount/stopped-1-1");
        let away = home.path().join("away");
        std::fs::rename(&note, &away).unwrap();
        std::fs::create_dir(&note).unwrap();
        std::fs::write(note.join("in the way"), "").unwrap();
        store.discard(Arc::clone(&savepoint)).await.unwrap_err();
        assert!(path.join("_metadata").exists(), "{path:?}");

        std::fs::remove_dir_all(&note).unwrap();
        std::fs::rename(&away, &note).unwrap();
        for _ in 0..2 {
            store.discard(Arc::clone(&savepoint)).await.unwrap();
        }
        assert_eq!(latest(&store).await.unwrap(), None);
        assert!(!path.exists(), "{path:?}");
    });
}
