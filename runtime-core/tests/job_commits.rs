//! Commits that are neither done nor failed, in whole jobs.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use job_support::{
    Count, Items, Ledger, LedgerWriter, expected, lines, parts, settings, totals, with_memory,
    words,
};
use runtime_core::sink::{
    COMMIT_TRIES, CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter,
};
use runtime_core::testing::Driver;
use runtime_core::{Job, JobOutcome};
use state_api::{CheckpointId, Error, Result};

type Counts = Ledger<(String, u64)>;

/// A ledger that is busy for the next commits.
#[derive(Clone)]
struct Busy {
    ledger: Counts,
    left: Arc<AtomicU32>,
}

struct BusyWriter {
    writer: LedgerWriter<(String, u64)>,
    left: Arc<AtomicU32>,
}

impl TwoPhaseSink for Busy {
    type In = (String, u64);
    type Transaction = u64;
    type Writer = BusyWriter;

    fn writer(&self, cx: &SinkContext) -> Result<BusyWriter> {
        Ok(BusyWriter {
            writer: self.ledger.writer(cx)?,
            left: Arc::clone(&self.left),
        })
    }
}

impl TwoPhaseWriter for BusyWriter {
    type In = (String, u64);
    type Transaction = u64;

    fn write(&mut self, record: (String, u64), time_ms: Option<i64>) -> Result<()> {
        self.writer.write(record, time_ms)
    }

    fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<Option<PreCommitted<u64>>> {
        self.writer.pre_commit(checkpoint)
    }

    fn commit(&mut self, transaction: &u64) -> Result<CommitOutcome> {
        let take_one = |left: u32| left.checked_sub(1);
        let busy = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one);
        match busy {
            Ok(_) => Ok(CommitOutcome::RetryLater(Error::retryable("busy"))),
            Err(_) => self.writer.commit(transaction),
        }
    }

    fn recover_and_abort(&mut self, transaction: &u64) -> Result<()> {
        self.writer.recover_and_abort(transaction)
    }
}

/// Runs a bounded word count whose sink is busy for a number of commits.
fn run(seed: u64, busy: u32, interval_ms: u64) -> (JobOutcome, u32, bool) {
    let (lines, ledger) = (lines(200), Ledger::new());
    let sink = Busy {
        ledger: ledger.clone(),
        left: Arc::new(AtomicU32::new(busy)),
    };
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.clone(), 4))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", sink);
    let (parts, _store) = with_memory(parts());
    let outcome = Driver::new(seed)
        .run(&job, &settings(interval_ms), parts)
        .unwrap();
    let restarts = outcome.restarts;
    (
        outcome,
        restarts,
        totals(&ledger.records()) == expected(&lines),
    )
}

#[test]
fn k_725_a_busy_sink_gets_its_transactions_with_a_later_checkpoint_and_the_job_never_fails() {
    for seed in 0..10 {
        let (_, restarts, complete) = run(seed, 5, 10);
        assert_eq!((restarts, complete), (0, true), "seed {seed}");
    }
}

#[test]
fn k_725_at_the_end_of_the_job_a_busy_sink_is_tried_at_once() {
    // No interval is reached: only the last checkpoint commits.
    let (_, restarts, complete) = run(1, COMMIT_TRIES - 1, 1_000_000);
    assert_eq!((restarts, complete), (0, true));
}

#[test]
fn k_725_a_sink_that_stays_busy_fails_the_job_and_the_restart_commits() {
    let (_, restarts, complete) = run(2, 3 * COMMIT_TRIES, 1_000_000);
    assert!(restarts > 0);
    assert!(complete);
}
