//! Commits that are neither done nor failed, in whole jobs.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use job_support::{
    Count, Items, Ledger, LedgerWriter, expected, lines, now, parts, settings, totals, with_memory,
    without_interval, words,
};
use managed_state::operator::OperatorStates;
use runtime_core::coordinator::{CoordinatorConfig, JobStatus};
use runtime_core::execution::{CheckpointDone, JobControl, Reply, SavepointFormat};
use runtime_core::sink::{
    COMMIT_TRIES, CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter,
};
use runtime_core::testing::Driver;
use runtime_core::{ExecutionSettings, Job, JobEvent, JobOutcome, Operator, Out, SnapshotWork};
use state_api::{CheckpointId, Error, Result};

type Counts = Ledger<(String, u64)>;

/// A ledger that is busy for the next commits.
#[derive(Clone)]
struct Busy {
    ledger: Counts,
    left: Arc<AtomicU32>,
}

impl Busy {
    fn new(ledger: &Counts, commits: u32) -> Self {
        Self {
            ledger: ledger.clone(),
            left: Arc::new(AtomicU32::new(commits)),
        }
    }
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
    let sink = Busy::new(&ledger, busy);
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

#[test]
fn k_725_without_checkpoints_a_busy_sink_is_tried_at_once_when_all_input_has_ended() {
    let (lines, ledger) = (lines(200), Ledger::new());
    let job = Job::new("wordcount");
    job.source("lines", Items::new(lines.clone(), 4))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", Busy::new(&ledger, COMMIT_TRIES - 1));
    let settings = without_interval();
    let outcome = Driver::new(1).run(&job, &settings, parts()).unwrap();
    assert_eq!((outcome.checkpoints, outcome.restarts), (0, 0));
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

/// A word count that asks for a stop at its 100th line, and whose sink is busy then.
fn stopped_by_itself(control: JobControl, stop: Stop, sink: Busy) -> (Job, Stopped) {
    let (seen, answer) = (AtomicU32::new(0), Stopped::default());
    let reply = Arc::clone(&answer);
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines(1000), 4))
        .map(move |line: String| {
            if seen.fetch_add(1, Ordering::Relaxed) == 100 {
                *reply.lock().unwrap() = Some(stop(&control));
            }
            line
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", sink);
    (job, answer)
}

type Stop = fn(&JobControl) -> Reply<CheckpointDone>;
type Stopped = Arc<Mutex<Option<Reply<CheckpointDone>>>>;

#[test]
fn k_725_k_772_at_a_stop_in_the_middle_of_the_input_a_busy_sink_is_tried_at_once() {
    let stops: [(Stop, JobStatus); 2] = [
        (
            |control| control.stop_with_savepoint(false, None, SavepointFormat::Canonical),
            JobStatus::Finished,
        ),
        (JobControl::stop_with_checkpoint, JobStatus::Suspended),
    ];
    for (stop, status) in stops {
        for seed in 0..5 {
            let ledger = Ledger::new();
            let mut driver = Driver::new(seed);
            let sink = Busy::new(&ledger, 3);
            let (job, answer) = stopped_by_itself(driver.control(), stop, sink);
            let (parts, _store) = with_memory(parts());
            let outcome = driver.run(&job, &settings(1_000_000), parts).unwrap();
            assert_eq!((outcome.status, outcome.restarts), (status, 0));
            now(answer.lock().unwrap().take().unwrap()).unwrap();
            let counted = totals(&ledger.records()).values().sum::<u64>();
            assert_eq!(ledger.prepared(), 0, "seed {seed}");
            assert!((300..3000).contains(&counted), "seed {seed}: {counted}");
        }
    }
}

#[test]
fn k_725_a_pipeline_that_has_ended_waits_for_later_checkpoints_while_others_go_on() {
    for seed in 0..5 {
        let (few, many) = (lines(10), lines(10_000));
        let (short, long) = (Ledger::new(), Ledger::new());
        // Too many for the transaction of one sink, and few for each of the four.
        let busy = Busy::new(&short, COMMIT_TRIES + 4);
        let free = Busy::new(&long, 0);
        let left = Arc::clone(&busy.left);
        let job = Job::new("wordcount").parallelism(4);
        for (name, lines, sink) in [("short", &few, busy), ("long", &many, free)] {
            job.source(&format!("{name} lines"), Items::new(lines.clone(), 4))
                .flat_map(words)
                .key_by(|word: &String| word.clone())
                .process(&format!("{name} count"), Count::default())
                .sink_exactly_once(&format!("{name} out"), sink);
        }
        let (parts, _store) = with_memory(parts());
        let mut driver = Driver::new(seed).budget(4);
        let outcome = driver.run(&job, &settings(30), parts).unwrap();
        assert_eq!(outcome.restarts, 0, "seed {seed}");
        assert_eq!(left.load(Ordering::Relaxed), 0, "seed {seed}");
        assert!(outcome.checkpoints > 4, "seed {seed}");
        assert_eq!(totals(&short.records()), expected(&few), "seed {seed}");
        assert_eq!(totals(&long.records()), expected(&many), "seed {seed}");
    }
}

/// What a sink sees of the checkpoints that its transactions are of.
#[derive(Clone, Default)]
struct Course {
    completed: Arc<Mutex<BTreeSet<u64>>>,
    declined: Arc<Mutex<BTreeSet<u64>>>,
    /// Commits of transactions of a checkpoint that was declined, after a later one was complete.
    carried: Arc<AtomicU32>,
    /// Commits of transactions of which no checkpoint was complete, that one or a later one.
    early: Arc<AtomicU32>,
}

/// A ledger whose transactions know their checkpoint.
#[derive(Clone)]
struct Watched {
    ledger: Counts,
    course: Course,
}

struct WatchedWriter {
    writer: LedgerWriter<(String, u64)>,
    course: Course,
}

impl TwoPhaseSink for Watched {
    type In = (String, u64);
    type Transaction = (u64, u64);
    type Writer = WatchedWriter;

    fn writer(&self, cx: &SinkContext) -> Result<WatchedWriter> {
        Ok(WatchedWriter {
            writer: self.ledger.writer(cx)?,
            course: self.course.clone(),
        })
    }
}

impl TwoPhaseWriter for WatchedWriter {
    type In = (String, u64);
    type Transaction = (u64, u64);

    fn write(&mut self, record: (String, u64), time_ms: Option<i64>) -> Result<()> {
        self.writer.write(record, time_ms)
    }

    fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<Option<PreCommitted<(u64, u64)>>> {
        let ended = self.writer.pre_commit(checkpoint)?;
        Ok(ended.map(|ended| PreCommitted {
            transaction: (ended.transaction, checkpoint.0),
            harden: ended.harden,
        }))
    }

    fn commit(&mut self, (transaction, of): &(u64, u64)) -> Result<CommitOutcome> {
        let completed = self.course.completed.lock().unwrap();
        if completed.last().is_none_or(|newest| newest < of) {
            self.course.early.fetch_add(1, Ordering::Relaxed);
        }
        if self.course.declined.lock().unwrap().contains(of) {
            self.course.carried.fetch_add(1, Ordering::Relaxed);
        }
        self.writer.commit(transaction)
    }

    fn recover_and_abort(&mut self, (transaction, _): &(u64, u64)) -> Result<()> {
        self.writer.recover_and_abort(transaction)
    }
}

/// Passes records on; each third part of a checkpoint fails, when the other subtask, and the sinks behind, have done theirs.
#[derive(Clone, Default)]
struct Declines {
    parts: Arc<AtomicU32>,
}

impl Operator for Declines {
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
        let part = self.parts.fetch_add(1, Ordering::Relaxed);
        Ok((part % 3 == 2).then(|| SnapshotWork::future(async { Err(Error::user("not now")) })))
    }
}

#[test]
fn k_726_nothing_of_a_checkpoint_that_one_subtask_declines_is_committed_before_a_later_one_is_complete()
 {
    let mut carried = 0;
    for seed in 0..10 {
        let (lines, ledger, course) = (lines(2_000), Ledger::new(), Course::default());
        let job = Job::new("wordcount").parallelism(2);
        job.source("lines", Items::new(lines.clone(), 4))
            .operator("declines", Declines::default())
            .flat_map(words)
            .key_by(|word: &String| word.clone())
            .process("count", Count::default())
            .sink_exactly_once(
                "out",
                Watched {
                    ledger: ledger.clone(),
                    course: course.clone(),
                },
            );
        let settings = settings(10);
        let settings = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                tolerable_failures: CoordinatorConfig::UNLIMITED,
                ..settings.checkpointing
            },
            ..settings
        };
        let (mut parts, _store) = with_memory(parts());
        let seen = course.clone();
        parts.events = Arc::new(move |event: &JobEvent| match event {
            JobEvent::CheckpointCompleted(stats) => {
                seen.completed.lock().unwrap().insert(stats.id.0);
            }
            JobEvent::CheckpointAborted { id, .. } => {
                seen.declined.lock().unwrap().insert(id.0);
            }
            _ => {}
        });
        let outcome = Driver::new(seed)
            .budget(4)
            .run(&job, &settings, parts)
            .unwrap();
        assert_eq!(outcome.restarts, 0, "seed {seed}");
        assert!(outcome.aborted > 0, "seed {seed}");
        assert_eq!(course.early.load(Ordering::Relaxed), 0, "seed {seed}");
        carried += course.carried.load(Ordering::Relaxed);
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
    assert!(
        carried > 2,
        "{carried} were there to be committed too early"
    );
}
