//! Operators learn once that their input has ended, whatever happens to the job afterwards.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use job_support::ends::{Counted, Ends, check, ending, tail};
use job_support::{Ledger, asking, lines, now, parts, settings, with_memory};
use managed_state::keyed::{At, DueTimer, Timers};
use runtime_core::coordinator::CheckpointKind;
use runtime_core::execution::{CheckpointDone, Reply, SavepointFormat};
use runtime_core::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use runtime_core::testing::{Driver, SteppedJob};
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobParts, KeyedOperator, MemoryCheckpoints, Out, RestoreFrom,
    States,
};
use state_api::{Clock, ManualClock, Result};

fn one(lines: &[String], parallelism: u32, tail: Ends<Counted>, ledger: &Ledger<Counted>) -> Job {
    let job = Job::new("wordcount").parallelism(parallelism);
    ending(&job, "one", (lines, 4), tail, ledger);
    job
}

fn is_final(event: &JobEvent) -> bool {
    matches!(event, JobEvent::CheckpointCompleted(stats) if stats.kind == CheckpointKind::Final)
}

fn from(path: String) -> ExecutionSettings {
    ExecutionSettings {
        restore: RestoreFrom::Path(path),
        ..settings(10)
    }
}

#[test]
fn k_628_k_766_what_had_ended_before_a_checkpoint_is_not_told_of_its_end_again() {
    for (seed, after) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
        let (few, many) = (lines(10), lines(3000));
        let (short, long) = (Ledger::new(), Ledger::new());
        let (parts, _) = with_memory(parts());
        let fails = Arc::new(AtomicBool::new(false));
        let job = |parallelism| {
            let job = Job::new("wordcount").parallelism(parallelism);
            ending(&job, "short", (&few, 1), Ends::new(tail), &short);
            let tail = Ends {
                mark: tail,
                fails: Arc::clone(&fails),
            };
            ending(&job, "long", (&many, 4), tail, &long);
            job
        };
        let mut driver = Driver::new(seed).budget(4);
        let reply: Arc<Mutex<Option<Reply<CheckpointDone>>>> = Arc::default();
        let (savepoint, ours) = (Arc::clone(&reply), Arc::clone(&fails));
        let first = asking(&driver, parts.clone(), move |control, event| {
            if let JobEvent::CheckpointCompleted(stats) = event {
                // The short input is long over.
                match stats.id.0 {
                    2 => ours.store(true, Ordering::Relaxed),
                    4 => {
                        let format = SavepointFormat::Canonical;
                        let stop = control.stop_with_savepoint(false, None, format);
                        *savepoint.lock().unwrap() = Some(stop);
                    }
                    _ => {}
                }
            }
        });
        let outcome = driver.run(&job(2), &settings(10), first).unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
        check(&short.records(), &few, 2).unwrap();
        driver
            .run(&job(after), &from(done.path.unwrap()), parts)
            .unwrap();
        check(&short.records(), &few, 2).unwrap();
        check(&long.records(), &many, after.into()).unwrap();
    }
}

#[test]
fn a_failure_after_the_last_checkpoint_brings_back_no_end() {
    for seed in 0..5 {
        let (lines, ledger) = (lines(100), Ledger::new());
        let (parts, _) = with_memory(parts());
        let tail = Ends::new(tail);
        let fails = Arc::clone(&tail.fails);
        let armed = AtomicBool::new(false);
        let parts = JobParts {
            events: Arc::new(move |event: &JobEvent| {
                if is_final(event) && !armed.swap(true, Ordering::Relaxed) {
                    fails.store(true, Ordering::Relaxed);
                }
            }),
            ..parts
        };
        let outcome = Driver::new(seed)
            .run(&one(&lines, 2, tail, &ledger), &settings(10), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        check(&ledger.records(), &lines, 2).unwrap();
    }
}

/// Runs the job until its last checkpoint is complete, and lets the process die before anybody hears of it.
fn die_after_the_last_checkpoint(job: Job, store: &MemoryCheckpoints) {
    let complete = Arc::new(AtomicBool::new(false));
    let ours = Arc::clone(&complete);
    let parts = JobParts {
        events: Arc::new(move |event: &JobEvent| {
            if is_final(event) {
                ours.store(true, Ordering::Relaxed);
            }
        }),
        ..parts().checkpoints(Arc::new(store.clone()))
    };
    let mut run = SteppedJob::start(job, settings(10), parts, Arc::new(ManualClock::at(0)));
    while !complete.load(Ordering::Relaxed) {
        assert!(run.step().unwrap().is_none(), "the job has ended");
    }
}

#[test]
fn a_start_from_the_last_checkpoint_brings_back_no_end_at_any_parallelism() {
    for parallelism in [2, 1, 3] {
        let (lines, ledger) = (lines(100), Ledger::new());
        let store = MemoryCheckpoints::new();
        die_after_the_last_checkpoint(one(&lines, 2, Ends::new(tail), &ledger), &store);
        let finished = |store: &MemoryCheckpoints| {
            let last = store.completed().pop().unwrap();
            last.operators.iter().all(|operator| operator.is_finished())
        };
        assert!(finished(&store));
        for seed in 0..2 {
            let parts = parts().checkpoints(Arc::new(store.clone()));
            let job = one(&lines, parallelism, Ends::new(tail), &ledger);
            Driver::new(seed).run(&job, &settings(10), parts).unwrap();
            assert!(finished(&store));
            check(&ledger.records(), &lines, 2).unwrap();
        }
    }
}

#[test]
fn a_job_that_goes_on_after_a_drain_ends_once_more() {
    let (lines, ledger) = (lines(2000), Ledger::new());
    let (parts, store) = with_memory(parts());
    let mut driver = Driver::new(7).budget(4);
    let reply: Arc<Mutex<Option<Reply<CheckpointDone>>>> = Arc::default();
    let ours = Arc::clone(&reply);
    let draining = asking(&driver, parts.clone(), move |control, event| {
        if let JobEvent::CheckpointCompleted(_) = event {
            let stop = || control.stop_with_savepoint(true, None, SavepointFormat::Canonical);
            ours.lock().unwrap().get_or_insert_with(stop);
        }
    });
    let job = one(&lines, 2, Ends::new(tail), &ledger);
    driver.run(&job, &settings(10), draining).unwrap();
    let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
    let counted = ledger.records().len();
    assert!(counted < 6000, "{counted} words are counted, and the ends");
    let path = done.path.unwrap();
    let drained = Arc::clone(&store.savepoints()[&path]);
    assert!(
        drained
            .operators
            .iter()
            .all(|operator| operator.is_finished())
    );
    // What it reads now is new to every operator, and ends in its turn.
    driver.run(&job, &from(path), parts.clone()).unwrap();
    check(&ledger.records(), &lines, 4).unwrap();
    // From its last checkpoint there is nothing more to read.
    driver.run(&job, &settings(10), parts).unwrap();
    check(&ledger.records(), &lines, 4).unwrap();
}

/// Has one record and stays open behind it; the split says how many records were read.
struct StaysOpen;

struct Reader(Vec<u64>);

impl Source for StaysOpen {
    type Out = String;
    type Split = u64;
    type Reader = Reader;

    fn enumerate(&self, _: u32) -> Result<Vec<u64>> {
        Ok(vec![0])
    }

    fn reader(&self, _: &SourceContext, splits: Vec<u64>) -> Result<Reader> {
        Ok(Reader(splits))
    }
}

impl SourceReader for Reader {
    type Out = String;
    type Split = u64;

    fn poll(&mut self, out: &mut SourceOutput<'_, String>) -> Result<SourceStatus> {
        if let Some(read @ 0) = self.0.first_mut() {
            *read = 1;
            out.emit("record".to_owned())?;
        }
        Ok(SourceStatus::Waiting {
            wake_at_ms: None,
            idle: true,
        })
    }

    fn snapshot(&mut self) -> Result<Vec<u64>> {
        Ok(self.0.clone())
    }
}

/// When the timer of [`Alarm`] is due.
const DUE_MS: i64 = 1_000_000;

/// Says of a record that it came, and again when the clock has come to a time.
#[derive(Clone, Default)]
struct Alarm {
    timers: Timers,
}

impl KeyedOperator for Alarm {
    type Key = String;
    type In = String;
    type Out = &'static str;

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.timers = states.processing_timers("alarm")?;
        Ok(())
    }

    fn process(
        &mut self,
        _: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, &'static str>,
    ) -> Result<()> {
        at.timers(self.timers).set(DUE_MS)?;
        out.emit("set")
    }

    fn on_timer(
        &mut self,
        _: &DueTimer<String>,
        _: &mut At<'_, String>,
        out: &mut Out<'_, &'static str>,
    ) -> Result<()> {
        out.emit("rings")
    }
}

type Stopped = Arc<Mutex<Option<Reply<CheckpointDone>>>>;

/// A job that is stopped, drained or not, as soon as the operator says `word`.
fn stopped_at(driver: &Driver, word: &str, drain: bool, ledger: &Ledger<String>) -> (Job, Stopped) {
    let (control, word, reply) = (driver.control(), word.to_owned(), Stopped::default());
    let stopped = Arc::clone(&reply);
    let job = Job::new("wordcount");
    job.source("source", StaysOpen)
        .key_by(|record: &String| record.clone())
        .process("alarm", Alarm::default())
        .map(move |said| {
            if said == word {
                let stop = control.stop_with_savepoint(drain, None, SavepointFormat::Canonical);
                *reply.lock().unwrap() = Some(stop);
            }
            said.to_owned()
        })
        .sink_exactly_once("out", ledger.clone());
    (job, stopped)
}

#[test]
fn a_timer_by_the_clock_fires_after_a_start_from_a_drained_savepoint_without_a_record() {
    let ledger = Ledger::new();
    let (parts, _store) = with_memory(parts());
    let mut driver = Driver::new(1).max_steps(100_000);
    let (job, stopped) = stopped_at(&driver, "set", true, &ledger);
    driver.run(&job, &settings(10), parts.clone()).unwrap();
    let done = now(stopped.lock().unwrap().take().unwrap()).unwrap();
    assert_eq!(ledger.records(), ["set"], "a drain is no reason to ring");
    assert!(driver.clock().now_ms() < DUE_MS);
    let (job, stopped) = stopped_at(&driver, "rings", false, &ledger);
    let rare = ExecutionSettings {
        restore: RestoreFrom::Path(done.path.unwrap()),
        ..settings(100_000_000)
    };
    driver.run(&job, &rare, parts).unwrap();
    assert!(now(stopped.lock().unwrap().take().unwrap()).is_ok());
    assert_eq!(ledger.records(), ["set", "rings"]);
}
