//! What a job goes on from after a failure when its store gave no certain answer, and that one that is fenced does not.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use checkpoint_storage::{CheckpointMetadata, MemoryStore, StoreRoot, StreamOptions, UuidSource};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use job_support::{
    Ledger, asking, expected, lines, now, parts, settings, totals, with_memory, wordcount,
};
use runtime_core::coordinator::{FailureReason, JobStatus};
use runtime_core::execution::{CheckpointStore, LoadedCheckpoint, SavepointFormat, StoreStart};
use runtime_core::restart::{FixedDelay, RestartStrategy};
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, FolderCheckpoints, JobEvent, JobParts, MemoryCheckpoints, RestoreFrom,
};
use state_api::{
    CheckpointId, CheckpointStorage, Error, ErrorKind, JobId, OperatorSnapshot, Result,
    SnapshotKind,
};

/// How the first publish goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    /// It exists, but nobody learns of it.
    Lost,
    /// It does not exist, and nobody learns of that.
    Missing,
    /// It does not exist.
    Refused,
}

/// A store whose first publish goes wrong, and which other calls fail as a test says.
struct Troubled {
    inner: Arc<dyn CheckpointStore>,
    first: First,
    published: AtomicU64,
    /// How often it can't say whether a checkpoint was published.
    out: AtomicU64,
    /// Deletions wait for this, if there is one, and are fenced then.
    fenced: Option<Arc<AtomicBool>>,
}

impl Troubled {
    fn new(inner: Arc<dyn CheckpointStore>, first: First) -> Self {
        Self {
            inner,
            first,
            published: AtomicU64::new(0),
            out: AtomicU64::new(0),
            fenced: None,
        }
    }
}

impl CheckpointStore for Troubled {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        self.inner.start()
    }

    fn storage(&self) -> Arc<dyn CheckpointStorage> {
        self.inner.storage()
    }

    fn storage_of(&self, id: CheckpointId) -> Arc<dyn CheckpointStorage> {
        self.inner.storage_of(id)
    }

    fn load<'a>(
        &'a self,
        from: &'a RestoreFrom,
    ) -> BoxFuture<'a, Result<Option<LoadedCheckpoint>>> {
        self.inner.load(from)
    }

    fn find_published(&self, id: CheckpointId) -> BoxFuture<'_, Result<Option<LoadedCheckpoint>>> {
        let out = |left: u64| left.checked_sub(1);
        let failed = self
            .out
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, out);
        match failed {
            Ok(_) => Box::pin(ready(Err(Error::retryable("the store is out")))),
            Err(_) => self.inner.find_published(id),
        }
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        if self.published.fetch_add(1, Ordering::Relaxed) > 0 {
            return self.inner.publish(metadata);
        }
        let error = Error::retryable("the answer was lost");
        match self.first {
            First::Refused => Box::pin(ready(Err(Error::limit("the disk is full")))),
            First::Missing => Box::pin(ready(Err(error))),
            First::Lost => Box::pin(async move {
                self.inner.publish(metadata).await?;
                Err(error)
            }),
        }
    }

    fn discard(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        self.inner.discard(metadata)
    }

    fn discard_unpublished(
        &self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
    ) -> BoxFuture<'_, Result<()>> {
        let Some(fenced) = self.fenced.clone() else {
            return self.inner.discard_unpublished(id, snapshots);
        };
        Box::pin(poll_fn(move |cx| {
            if fenced.load(Ordering::Relaxed) {
                return Poll::Ready(Err(Error::new(ErrorKind::Fenced, "another attempt")));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

/// Keeps what each run was started from, and how the job ended.
#[derive(Clone, Default)]
struct Runs {
    restored: Arc<Mutex<Vec<Option<CheckpointId>>>>,
    ended: Arc<Mutex<Option<JobStatus>>>,
}

impl Runs {
    fn listen(&self, parts: JobParts) -> JobParts {
        let ours = self.clone();
        let events = move |event: &JobEvent| match event {
            JobEvent::RunStarted { restored, .. } => ours.restored.lock().unwrap().push(*restored),
            JobEvent::Ended(status) => *ours.ended.lock().unwrap() = Some(*status),
            _ => {}
        };
        JobParts {
            events: Arc::new(events),
            ..parts
        }
    }

    fn restored(&self) -> Vec<Option<u64>> {
        let restored = self.restored.lock().unwrap();
        restored.iter().map(|id| id.map(|id| id.0)).collect()
    }
}

/// Makes stores that lead to the same checkpoints.
type Stores = Box<dyn Fn(u64) -> Arc<dyn CheckpointStore>>;

fn stores() -> [Stores; 2] {
    let (folder, memory) = (MemoryStore::new(), MemoryCheckpoints::new());
    let in_folder = move |seed| {
        let store = FolderCheckpoints::new(
            StoreRoot::memory(&folder, "checkpoints"),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(seed),
            StreamOptions::default(),
        );
        Arc::new(store) as Arc<dyn CheckpointStore>
    };
    [
        Box::new(in_folder),
        Box::new(move |_| Arc::new(memory.clone())),
    ]
}

#[test]
fn after_a_publish_without_an_answer_a_fresh_start_does_not_go_on_from_an_earlier_history() {
    for stores in stores() {
        let lines = lines(400);
        // An earlier history, whose last checkpoint leaves nothing to do.
        let earlier = parts().checkpoints(stores(1));
        let job = wordcount(&lines, 2, &Ledger::new());
        Driver::new(1).run(&job, &settings(10), earlier).unwrap();
        let fresh = ExecutionSettings {
            restore: RestoreFrom::Nothing,
            ..settings(10)
        };
        for (seed, first) in [(2, First::Missing), (3, First::Lost)] {
            let (ledger, runs) = (Ledger::new(), Runs::default());
            let store = Troubled::new(stores(seed), first);
            let parts = runs.listen(parts().checkpoints(Arc::new(store)));
            let job = wordcount(&lines, 2, &ledger);
            let outcome = Driver::new(seed).run(&job, &fresh, parts).unwrap();
            assert_eq!(outcome.restarts, 1, "{first:?}");
            let restored = runs.restored();
            assert_eq!(restored[0], None, "{first:?}");
            assert_eq!(restored[1].is_some(), first == First::Lost, "{restored:?}");
            assert_eq!(totals(&ledger.records()), expected(&lines), "{first:?}");
        }
    }
}

#[test]
fn after_a_publish_without_an_answer_a_job_goes_on_from_the_savepoint_that_it_started_from() {
    let (lines, ledger) = (lines(1000), Ledger::new());
    let job = wordcount(&lines, 2, &ledger);
    let (parts, store) = with_memory(parts());
    let mut driver = Driver::new(3);
    let (asked, reply) = (AtomicBool::new(false), Arc::new(Mutex::new(None)));
    let ours = Arc::clone(&reply);
    let stopping = asking(&driver, parts.clone(), move |control, event| {
        if matches!(event, JobEvent::CheckpointCompleted(_)) && !asked.swap(true, Ordering::Relaxed)
        {
            let format = SavepointFormat::Canonical;
            *ours.lock().unwrap() = Some(control.stop_with_savepoint(false, None, format));
        }
    });
    driver.run(&job, &settings(10), stopping).unwrap();
    let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
    let runs = Runs::default();
    let store = Troubled::new(Arc::new(store.clone()), First::Missing);
    let parts = runs.listen(parts.checkpoints(Arc::new(store)));
    let from = ExecutionSettings {
        restore: RestoreFrom::Path(done.path.unwrap()),
        ..settings(10)
    };
    let outcome = driver.run(&job, &from, parts).unwrap();
    assert_eq!(outcome.restarts, 1);
    assert_eq!(runs.restored(), [Some(done.id.0); 2]);
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn a_store_that_is_out_when_the_job_restarts_is_asked_again_as_the_restart_strategy_allows() {
    for (seed, out, attempts) in [(1, 3, 4), (2, 3, 3), (3, u64::MAX, 2)] {
        let (lines, ledger, runs) = (lines(400), Ledger::new(), Runs::default());
        let store = Troubled::new(Arc::new(MemoryCheckpoints::new()), First::Missing);
        store.out.store(out, Ordering::Relaxed);
        let parts = runs.listen(parts().checkpoints(Arc::new(store)));
        let settings = ExecutionSettings {
            restart: RestartStrategy::FixedDelay(FixedDelay {
                attempts,
                delay: Duration::from_millis(5),
            }),
            ..settings(10)
        };
        let job = wordcount(&lines, 2, &ledger);
        let result = Driver::new(seed).run(&job, &settings, parts);
        if u64::from(attempts) > out {
            assert_eq!(result.unwrap().restarts, 4);
            assert_eq!(runs.restored(), [None; 2], "a run begins with an answer");
            assert_eq!(totals(&ledger.records()), expected(&lines));
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.message(), "the store is out");
            assert_eq!(runs.restored(), [None]);
            let ended = *runs.ended.lock().unwrap();
            assert_eq!(ended, Some(JobStatus::Failed), "its end is told");
        }
    }
}

#[test]
fn a_job_that_learns_between_two_runs_that_it_is_fenced_does_not_begin_the_second() {
    // Known while the subtasks leave, or only in the delay.
    for (seed, at_once) in (0..20).map(|seed| (seed, seed % 2 == 0)) {
        let (ledger, fenced) = (Ledger::new(), Arc::new(AtomicBool::new(false)));
        let mut store = Troubled::new(Arc::new(MemoryCheckpoints::new()), First::Refused);
        store.fenced = Some(Arc::clone(&fenced));
        let (runs, said) = (Runs::default(), Arc::clone(&fenced));
        let parts = runs.listen(parts().checkpoints(Arc::new(store)));
        let inner = Arc::clone(&parts.events);
        let events = move |event: &JobEvent| {
            let due = match event {
                JobEvent::CheckpointAborted { failure, .. } => {
                    at_once && failure.reason == FailureReason::Publish
                }
                JobEvent::RunFailed { .. } => true,
                _ => false,
            };
            if due {
                said.store(true, Ordering::Relaxed);
            }
            inner.on_event(event);
        };
        let parts = JobParts {
            events: Arc::new(events),
            ..parts
        };
        let settings = ExecutionSettings {
            restart: RestartStrategy::FixedDelay(FixedDelay {
                attempts: 1,
                delay: Duration::from_secs(60),
            }),
            ..settings(10)
        };
        let error = Driver::new(seed)
            .max_steps(200_000)
            .run(&wordcount(&lines(1000), 2, &ledger), &settings, parts)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "seed {seed}: {error}");
        assert_eq!(runs.restored(), [None], "seed {seed}");
    }
}

#[test]
fn a_checkpoint_that_a_newer_attempt_published_under_the_same_id_is_not_found_as_ones_own() {
    for stores in stores() {
        let (older, newer) = (stores(1), stores(2));
        let attempts = [&older, &newer].map(|s| s.start().now_or_never().unwrap().unwrap().attempt);
        let job = JobId::new("wordcount").unwrap();
        let (id, kind) = (CheckpointId(1), SnapshotKind::Checkpoint);
        let metadata = CheckpointMetadata::new(id, job, attempts[1], kind, 0);
        let published = newer.publish(Arc::new(metadata)).now_or_never().unwrap();
        published.unwrap();
        let found = [&older, &newer].map(|s| s.find_published(id).now_or_never().unwrap());
        assert_eq!(found.map(|found| found.unwrap().is_some()), [false, true]);
    }
}
