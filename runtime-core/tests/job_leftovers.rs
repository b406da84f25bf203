//! What snapshots had written when they were cancelled: it belongs to nobody and is deleted, also when nobody goes on.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use checkpoint_storage::{MemoryStore, StoreRoot, StreamOptions, UuidSource};
use futures_util::FutureExt;
use job_support::{Items, Ledger, expected, lines, parts, settings, totals};
use managed_state::operator::{OperatorListState, OperatorStates};
use runtime_core::coordinator::JobStatus;
use runtime_core::task::SnapshotWork;
use runtime_core::testing::Driver;
use runtime_core::{FolderCheckpoints, Job, Operator, Out};
use state_api::{CheckpointId, Error, JobId, Result};

type Hook = Arc<dyn Fn() + Send + Sync>;

/// Passes records on; the first snapshot calls a hook when the operators behind have written theirs, and never ends.
#[derive(Clone)]
struct Hangs {
    hook: Hook,
    hung: Arc<AtomicBool>,
}

impl Operator for Hangs {
    type In = String;
    type Out = String;

    fn process(
        &mut self,
        record: String,
        _: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        out.emit(record)
    }

    fn snapshot_work(&mut self, _: CheckpointId) -> Result<Option<SnapshotWork>> {
        if self.hung.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let hook = Arc::clone(&self.hook);
        Ok(Some(SnapshotWork::future(async move {
            hook();
            pending().await
        })))
    }
}

/// Passes records on and keeps the last.
#[derive(Clone, Default)]
struct Keeps {
    last: OperatorListState<String>,
}

impl Operator for Keeps {
    type In = String;
    type Out = String;

    fn open(&mut self, states: &mut OperatorStates) -> Result<()> {
        self.last = states.list("last")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: String,
        states: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        states.elements_mut(self.last)?.replace([record.clone()]);
        out.emit(record)
    }
}

/// The objects below a folder.
fn names(root: &StoreRoot, folder: &str) -> Vec<String> {
    let listed = root.list(folder).now_or_never().expect("it is in memory");
    listed.unwrap().into_iter().map(|e| e.name).collect()
}

struct Bench {
    root: StoreRoot,
    /// What lay in the folder of the first checkpoint when its snapshot hung.
    lay: Arc<Mutex<Vec<String>>>,
    armed: Arc<AtomicBool>,
    lines: Vec<String>,
    ledger: Ledger<(String, u64)>,
}

impl Bench {
    fn new() -> Self {
        Self {
            root: StoreRoot::memory(&MemoryStore::new(), "all"),
            lay: Arc::default(),
            armed: Arc::default(),
            lines: lines(2000),
            ledger: Ledger::new(),
        }
    }

    fn store(&self, seed: u64) -> Arc<FolderCheckpoints> {
        Arc::new(FolderCheckpoints::new(
            self.root.clone(),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(seed),
            StreamOptions::new(0, 64).unwrap(),
        ))
    }

    /// A word count that calls `hook` when its first snapshot hangs, and fails once when it is `armed`.
    fn job(&self, hook: impl Fn() + Send + Sync + 'static) -> Job {
        let (root, lay, armed) = (
            self.root.clone(),
            Arc::clone(&self.lay),
            Arc::clone(&self.armed),
        );
        let hook = move || {
            *lay.lock().unwrap() = names(&root, "chk-1");
            hook();
        };
        let job = Job::new("wordcount").parallelism(1);
        job.source("lines", Items::new(self.lines.clone(), 1))
            .try_map(
                move |line: String| match armed.swap(false, Ordering::Relaxed) {
                    true => Err(Error::user("on purpose")),
                    false => Ok(line),
                },
            )
            .operator(
                "hangs",
                Hangs {
                    hook: Arc::new(hook),
                    hung: Arc::default(),
                },
            )
            .operator("keeps", Keeps::default())
            .flat_map(job_support::words)
            .key_by(|word: &String| word.clone())
            .process("count", job_support::Count::default())
            .sink_exactly_once("out", self.ledger.clone());
        job
    }
}

#[test]
fn what_a_snapshot_had_written_that_the_end_of_the_job_cancelled_is_deleted() {
    for seed in 0..10 {
        let bench = Bench::new();
        let mut driver = Driver::new(seed).budget(4);
        let control = driver.control();
        let job = bench.job(move || control.cancel());
        let parts = parts().checkpoints(bench.store(seed));
        let outcome = driver.run(&job, &settings(10), parts).unwrap();
        assert_eq!(outcome.status, JobStatus::Cancelled, "seed {seed}");
        assert!(!bench.lay.lock().unwrap().is_empty(), "seed {seed}");
        let left = names(&bench.root, "chk-1");
        assert_eq!(left, [""; 0], "seed {seed}");
    }
}

#[test]
fn what_a_snapshot_had_written_that_a_failure_cancelled_is_deleted() {
    for seed in 0..10 {
        let bench = Bench::new();
        let armed = Arc::clone(&bench.armed);
        let job = bench.job(move || armed.store(true, Ordering::Relaxed));
        let parts = parts().checkpoints(bench.store(seed));
        let outcome = Driver::new(seed)
            .budget(4)
            .run(&job, &settings(10), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        assert!(!bench.lay.lock().unwrap().is_empty(), "seed {seed}");
        let left = names(&bench.root, "chk-1");
        assert_eq!(left, [""; 0], "seed {seed}");
        let seen = totals(&bench.ledger.records());
        assert_eq!(seen, expected(&bench.lines), "seed {seed}");
    }
}
