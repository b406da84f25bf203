//! Checkpoints that fail at one of their stages, and what the job makes of it: area Z end to end.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, MemoryStore, StoreRoot, StreamOptions, UuidSource,
    list_checkpoints,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use job_support::{
    Count, Hooked, Items, Ledger, expected, hooked, lines, parts, settings, totals, with_memory,
    wordcount, words,
};
use managed_state::keyed::{At, ValueState};
use managed_state::operator::{OperatorListState, OperatorStates};
use runtime_core::coordinator::{CoordinatorConfig, FailureReason};
use runtime_core::execution::{CheckpointStore, LoadedCheckpoint, StoreStart};
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::{Driver, FaultyCheckpoints, StoreFaults};
use runtime_core::{
    ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, KeyedOperator,
    MemoryCheckpoints, Operator, Out, RestoreFrom, States,
};
use state_api::access::ValueAccess;
use state_api::{
    CheckpointId, CheckpointStorage, Error, ErrorKind, JobId, OperatorSnapshot, Result, StateType,
};

fn tolerant(failures: u32) -> ExecutionSettings {
    let settings = settings(10);
    let checkpointing = CoordinatorConfig {
        tolerable_failures: failures,
        ..settings.checkpointing.clone()
    };
    ExecutionSettings {
        checkpointing,
        ..settings
    }
}

/// Collects why checkpoints were given up.
fn listening(parts: JobParts) -> (JobParts, Arc<Mutex<Vec<FailureReason>>>) {
    let reasons: Arc<Mutex<Vec<FailureReason>>> = Arc::default();
    let ours = Arc::clone(&reasons);
    let events = move |event: &JobEvent| {
        if let JobEvent::CheckpointAborted { failure, .. } = event {
            ours.lock().unwrap().push(failure.reason);
        }
    };
    (
        JobParts {
            events: Arc::new(events),
            ..parts
        },
        reasons,
    )
}

#[test]
fn k_606_a_snapshot_hook_that_fails_declines_the_checkpoint_and_the_job_goes_on() {
    for seed in 0..5 {
        let (lines, ledger) = (lines(400), Ledger::new());
        let (parts, reasons) = listening(with_memory(parts()).0);
        let calls = AtomicU64::new(0);
        let hook = Hooked {
            snapshot: Arc::new(move || match calls.fetch_add(1, Ordering::Relaxed) {
                1 => Err(Error::user("not now")),
                _ => Ok(()),
            }),
            completed: Arc::new(|_| Ok(())),
        };
        let outcome = Driver::new(seed)
            .run(&hooked(&lines, &ledger, hook), &tolerant(10), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 0, "seed {seed}");
        assert_eq!(
            *reasons.lock().unwrap(),
            [FailureReason::SyncPart],
            "seed {seed}"
        );
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

/// Tells of each checkpoint in a folder whether it is whole.
fn are_whole(root: &StoreRoot) -> Vec<bool> {
    let listed = list_checkpoints(root).now_or_never().unwrap().unwrap();
    let states = listed.iter().map(|listed| &listed.state);
    states
        .map(|state| matches!(state, CheckpointState::Complete(_)))
        .collect()
}

#[test]
fn k_607_writes_that_fail_decline_the_checkpoint_and_leave_nothing_behind() {
    let mut failed = 0;
    for seed in 0..5 {
        let (lines, ledger) = (lines(400), Ledger::new());
        let root = StoreRoot::memory(&MemoryStore::new(), "all");
        let store = FolderCheckpoints::new(
            root.clone(),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(seed),
            StreamOptions::new(0, 64).unwrap(),
        );
        let faults = StoreFaults {
            write: 100,
            ..StoreFaults::default()
        };
        let store = FaultyCheckpoints::new(Arc::new(store), faults, seed);
        let (parts, reasons) = listening(parts().checkpoints(Arc::new(store)));
        let outcome = Driver::new(seed)
            .run(&wordcount(&lines, 2, &ledger), &tolerant(1000), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 0, "seed {seed}");
        let reasons = reasons.lock().unwrap();
        assert!(
            reasons
                .iter()
                .all(|reason| *reason == FailureReason::AsyncPart)
        );
        failed += reasons.len();
        assert_eq!(are_whole(&root), [true], "the last one is kept");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
    assert!(failed > 5, "{failed} failed");
}

#[test]
fn k_771_more_failures_than_are_tolerated_fail_the_job_with_the_checkpoint_and_the_reason() {
    let parts = unreliable(|_| Publishing::Fails(Error::limit("the disk is full")));
    let settings = ExecutionSettings {
        restart: RestartStrategy::None,
        ..tolerant(1)
    };
    let job = wordcount(&lines(400), 2, &Ledger::new());
    let failed = Driver::new(1).run(&job, &settings, parts).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Retryable);
    assert_eq!(failed.context("checkpoint"), Some("2"));
    let text = failed.to_string();
    for part in ["could not be published", "the disk is full"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn k_611_a_failed_completion_hook_fails_the_run_and_nothing_is_lost() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let failed = AtomicBool::new(false);
    let hook = Hooked {
        snapshot: Arc::new(|| Ok(())),
        completed: Arc::new(move |_| {
            if failed.swap(true, Ordering::Relaxed) {
                Ok(())
            } else {
                Err(Error::user("on purpose"))
            }
        }),
    };
    let (parts, _) = with_memory(parts());
    let outcome = Driver::new(2)
        .run(&hooked(&lines, &ledger, hook), &settings(10), parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

/// A store in memory whose publishing goes wrong as a hook says.
struct Unreliable {
    inner: MemoryCheckpoints,
    publish: Box<dyn Fn(CheckpointId) -> Publishing + Send + Sync>,
}

enum Publishing {
    Works,
    Fails(Error),
    Hangs,
    /// It exists, but nobody learns of it.
    Unknown,
}

impl CheckpointStore for Unreliable {
    fn start(&self) -> BoxFuture<'_, Result<StoreStart>> {
        self.inner.start()
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
        self.inner.find_published(id)
    }

    fn publish(&self, metadata: Arc<CheckpointMetadata>) -> BoxFuture<'_, Result<()>> {
        match (self.publish)(metadata.checkpoint) {
            Publishing::Works => self.inner.publish(metadata),
            Publishing::Fails(error) => Box::pin(ready(Err(error))),
            Publishing::Hangs => Box::pin(pending()),
            Publishing::Unknown => Box::pin(async move {
                self.inner.publish(metadata).await?;
                Err(Error::retryable("the answer was lost"))
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
        self.inner.discard_unpublished(id, snapshots)
    }
}

fn unreliable(publish: impl Fn(CheckpointId) -> Publishing + Send + Sync + 'static) -> JobParts {
    let store = Unreliable {
        inner: MemoryCheckpoints::new(),
        publish: Box::new(publish),
    };
    parts().checkpoints(Arc::new(store))
}

#[test]
fn a_transaction_of_a_checkpoint_that_was_not_published_is_committed_with_the_next() {
    for seed in 0..10 {
        let (lines, ledger) = (lines(400), Ledger::new());
        let parts = unreliable(|id| match id.0 % 2 {
            1 => Publishing::Fails(Error::limit("the disk is full")),
            _ => Publishing::Works,
        });
        let outcome = Driver::new(seed)
            .run(&wordcount(&lines, 2, &ledger), &tolerant(1000), parts)
            .unwrap();
        assert!(outcome.aborted > 0, "seed {seed}");
        assert_eq!(outcome.restarts, 0, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn k_626_a_final_checkpoint_that_fails_is_taken_again_before_the_job_ends() {
    for seed in 0..5 {
        let (lines, ledger) = (lines(200), Ledger::new());
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let parts = unreliable(move |_| match count.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Publishing::Fails(Error::limit("the disk is full")),
            _ => Publishing::Works,
        });
        let (parts, reasons) = listening(parts);
        let rare = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                // The only checkpoint is the one at the end of the input.
                interval: Some(std::time::Duration::from_secs(3600)),
                ..tolerant(10).checkpointing
            },
            ..tolerant(10)
        };
        let outcome = Driver::new(seed)
            .run(&wordcount(&lines, 2, &ledger), &rare, parts)
            .unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3, "seed {seed}");
        assert_eq!(
            (outcome.checkpoints, outcome.aborted),
            (1, 2),
            "seed {seed}"
        );
        assert_eq!((outcome.restarts, reasons.lock().unwrap().len()), (0, 2));
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn a_checkpoint_whose_outcome_is_unknown_is_found_in_the_store_after_a_failure() {
    for seed in 0..10 {
        let (lines, ledger) = (lines(400), Ledger::new());
        // One failure is too many: the job restarts from what the store says is newest.
        let parts = unreliable(|id| {
            if id.0 == 2 {
                Publishing::Unknown
            } else {
                Publishing::Works
            }
        });
        let outcome = Driver::new(seed)
            .run(&wordcount(&lines, 2, &ledger), &settings(10), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn checkpoints_that_would_end_with_the_first_task_are_refused() {
    let settings = ExecutionSettings {
        checkpointing: CoordinatorConfig {
            after_tasks_finish: false,
            ..settings(10).checkpointing
        },
        ..settings(10)
    };
    let job = wordcount(&lines(10), 2, &Ledger::new());
    let refused = Driver::new(1).run(&job, &settings, parts()).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.context("option")),
        (
            ErrorKind::Config,
            Some("execution.checkpointing.checkpoints-after-tasks-finish")
        )
    );
}

#[test]
fn a_store_that_hangs_holds_up_no_record() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let processed = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&processed);
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.clone(), 4))
        .flat_map(words)
        .map(move |word| {
            seen.fetch_add(1, Ordering::Relaxed);
            word
        })
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    let parts = unreliable(|_| Publishing::Hangs);
    // The final checkpoint never completes, so the job can't end; its records are all processed nevertheless.
    let error = Driver::new(1)
        .max_steps(50_000)
        .run(&job, &tolerant(1000), parts)
        .unwrap_err();
    assert!(error.to_string().contains("did not end"), "{error}");
    assert_eq!(processed.load(Ordering::Relaxed), 1200);
    assert!(ledger.records().is_empty());
}

/// Counts in operator state that is split, union state, and a keyed value: all must survive together.
#[derive(Clone, Default)]
struct Positions {
    lines: OperatorListState<u64>,
}

impl Operator for Positions {
    type In = String;
    type Out = String;

    fn open(&mut self, states: &mut OperatorStates) -> Result<()> {
        self.lines = states.list("lines")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: String,
        states: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        let lines = states.elements_mut(self.lines)?;
        let total = lines.iter().sum::<u64>() + 1;
        lines.replace([total]);
        out.emit(record)
    }

    fn finish(&mut self, states: &mut OperatorStates, out: &mut Out<'_, String>) -> Result<()> {
        let total: u64 = states.elements(self.lines)?.iter().sum();
        out.emit(format!("total:{total}"))
    }
}

/// Sums the totals that subtasks report at their end.
#[derive(Clone, Default)]
struct SumTotals {
    sum: ValueState<u64>,
}

impl KeyedOperator for SumTotals {
    type Key = ();
    type In = String;
    type Out = u64;

    fn open(&mut self, states: &mut States<'_, ()>) -> Result<()> {
        self.sum = states.value("sum")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: String,
        at: &mut At<'_, ()>,
        out: &mut Out<'_, u64>,
    ) -> Result<()> {
        let Some(total) = record
            .strip_prefix("total:")
            .and_then(|n| n.parse::<u64>().ok())
        else {
            return Ok(());
        };
        let sum = at.value(self.sum).update(|sum| {
            *sum += total;
            *sum
        })?;
        out.emit(sum)
    }
}

#[test]
fn state_of_an_operator_without_keys_is_split_over_the_subtasks_of_the_next_run() {
    for (seed, failing_line) in [(1, 200), (2, 350), (3, 399)] {
        let (lines, ledger) = (lines(400), Ledger::new());
        let failed = AtomicBool::new(false);
        let count = AtomicU64::new(0);
        let job = Job::new("positions").parallelism(3);
        job.source("lines", Items::new(lines, 4))
            .operator("positions", Positions::default())
            .try_map(move |line| {
                if count.fetch_add(1, Ordering::Relaxed) == failing_line
                    && !failed.swap(true, Ordering::Relaxed)
                {
                    return Err(Error::user("on purpose"));
                }
                Ok(line)
            })
            .key_by(|_: &String| ())
            .process("sum", SumTotals::default())
            .sink_exactly_once("out", ledger.clone());
        let (parts, _) = with_memory(parts());
        let outcome = Driver::new(seed).run(&job, &settings(10), parts).unwrap();
        assert_eq!(outcome.restarts, 1);
        assert_eq!(ledger.records().last(), Some(&400), "seed {seed}");
    }
}

#[test]
fn the_bytes_of_an_alignment_are_those_of_the_encoded_records() {
    const LONG: usize = 1_001;
    let mut encoded = Vec::new();
    "x".repeat(LONG).encode(&mut encoded);
    let words: Vec<String> = (0..600).map(|i| format!("{i:0LONG$}")).collect();
    let ledger = Ledger::new();
    let job = Job::new("wordcount").parallelism(3);
    job.source("words", Items::new(words, 4))
        .persist_in_flight()
        .key_by_ref(|word: &String| word)
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    let bytes: Arc<Mutex<Vec<u64>>> = Arc::default();
    let to = Arc::clone(&bytes);
    let (parts, _) = with_memory(JobParts {
        events: Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(stats) = event {
                to.lock().unwrap().push(stats.alignment_bytes);
            }
        }),
        ..parts()
    });
    Driver::new(5)
        .budget(4)
        .run(&job, &settings(10), parts)
        .unwrap();
    let bytes = bytes.lock().unwrap();
    assert!(bytes.iter().any(|bytes| *bytes > 0), "{bytes:?}");
    let whole = |bytes: &u64| bytes.is_multiple_of(encoded.len() as u64);
    assert!(bytes.iter().all(whole), "{bytes:?}");
}
