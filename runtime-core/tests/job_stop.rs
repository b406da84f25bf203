//! Jobs that are stopped with a savepoint or a checkpoint, and what goes wrong at it.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use checkpoint_storage::{MemoryStore, StoreRoot, StreamOptions, UuidSource};
use job_support::{
    Count, Hooked, Items, Ledger, asking, expected, hooked, lines, now, parts, settings, totals,
    with_memory, without_interval, wordcount, words,
};
use managed_state::operator::OperatorStates;
use managed_state::raw::RawStreams;
use runtime_core::coordinator::{CheckpointKind, CoordinatorConfig, JobStatus, Retention};
use runtime_core::execution::{CheckpointDone, JobControl, Reply, SavepointFormat};
use runtime_core::testing::Driver;
use runtime_core::{
    CheckpointStore, ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobOutcome, JobParts,
    MemoryCheckpoints, Operator, Out, RestoreFrom, Tumbling, Windowed,
};
use state_api::access::Aggregator;
use state_api::{CheckpointId, Error, ErrorKind, JobId, Result};

type Replies = Arc<Mutex<Vec<Reply<CheckpointDone>>>>;

/// Asks `control` once, at the first event that `when` likes.
fn once(
    driver: &Driver,
    parts: JobParts,
    when: impl Fn(&JobEvent) -> bool + Send + Sync + 'static,
    ask: impl Fn(&JobControl) -> Reply<CheckpointDone> + Send + Sync + 'static,
) -> (JobParts, Replies) {
    let replies = Replies::default();
    let (ours, asked) = (Arc::clone(&replies), AtomicBool::new(false));
    let parts = asking(driver, parts, move |control, event| {
        if when(event) && !asked.swap(true, Ordering::Relaxed) {
            ours.lock().unwrap().push(ask(control));
        }
    });
    (parts, replies)
}

fn running(event: &JobEvent) -> bool {
    matches!(event, JobEvent::Running { .. })
}

fn first_completed(event: &JobEvent) -> bool {
    matches!(event, JobEvent::CheckpointCompleted(_))
}

fn stop(drain: bool) -> impl Fn(&JobControl) -> Reply<CheckpointDone> {
    move |control| control.stop_with_savepoint(drain, None, SavepointFormat::Canonical)
}

fn take(replies: &Replies) -> Result<CheckpointDone> {
    now(replies.lock().unwrap().remove(0))
}

fn from(path: &str) -> ExecutionSettings {
    ExecutionSettings {
        restore: RestoreFrom::Path(path.into()),
        ..settings(10)
    }
}

#[derive(Clone)]
struct Sum;

impl Aggregator for Sum {
    type In = (u32, i64, u64);
    type Acc = u64;
    type Out = u64;

    fn create(&self) -> u64 {
        0
    }

    fn add(&self, acc: &mut u64, input: (u32, i64, u64)) -> Result<()> {
        *acc += input.2;
        Ok(())
    }

    fn merge(&self, acc: &mut u64, other: u64) -> Result<()> {
        *acc += other;
        Ok(())
    }

    fn result(&self, acc: &u64) -> u64 {
        *acc
    }
}

/// (key, time, amount): a record a millisecond.
fn events() -> Vec<(u32, i64, u64)> {
    (0..4000).map(|i| ((i % 5) as u32, i as i64, i)).collect()
}

type Sums = Windowed<u32, u64>;

fn windows(ledger: &Ledger<Sums>) -> Job {
    let job = Job::new("wordcount").parallelism(2);
    job.source("events", Items::new(events(), 2))
        .assign_watermarks(0, |e: &(u32, i64, u64)| e.1)
        .key_by(|e| e.0)
        .window(Tumbling::of(1000))
        .aggregate("sums", Sum)
        .sink_exactly_once("out", ledger.clone());
    job
}

/// The whole sum of each window.
fn whole() -> BTreeMap<(u32, i64), u64> {
    let mut sums = BTreeMap::new();
    for (key, time, amount) in events() {
        *sums.entry((key, time / 1000 * 1000)).or_default() += amount;
    }
    sums
}

/// Windows that fired with less than their whole sum, the sum of all that fired, and their number.
fn fired(ledger: &Ledger<Sums>) -> (usize, u64, usize) {
    let (whole, records) = (whole(), ledger.records());
    let partial = records
        .iter()
        .filter(|w| whole[&(w.key, w.start_ms)] != w.value)
        .count();
    (
        partial,
        records.iter().map(|w| w.value).sum(),
        records.len(),
    )
}

fn stop_windows(seed: u64, drain: bool) -> (Ledger<Sums>, JobParts, CheckpointDone) {
    let ledger = Ledger::new();
    let (parts, _) = with_memory(parts());
    let mut driver = Driver::new(seed).budget(8);
    let (first, replies) = once(&driver, parts.clone(), first_completed, stop(drain));
    let outcome = driver.run(&windows(&ledger), &settings(10), first).unwrap();
    assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
    let done = take(&replies).unwrap();
    assert_eq!(done.kind, CheckpointKind::StopWithSavepoint { drain });
    (ledger, parts, done)
}

#[test]
fn k_629_to_suspend_fires_nothing_and_the_windows_fire_whole_after_the_restore() {
    for seed in 0..10 {
        let (ledger, parts, done) = stop_windows(seed, false);
        assert_eq!(fired(&ledger).0, 0, "seed {seed}");
        let settings = from(&done.path.unwrap());
        Driver::new(seed)
            .run(&windows(&ledger), &settings, parts)
            .unwrap();
        let total: u64 = whole().values().sum();
        assert_eq!(fired(&ledger), (0, total, whole().len()), "seed {seed}");
    }
}

#[test]
fn k_629_to_drain_fires_every_window_and_commits_what_came_of_it() {
    for seed in 0..10 {
        let (ledger, parts, done) = stop_windows(seed, true);
        assert!(
            fired(&ledger).0 > 0,
            "seed {seed}: the stop came in the middle"
        );
        let settings = from(&done.path.unwrap());
        Driver::new(seed)
            .run(&windows(&ledger), &settings, parts)
            .unwrap();
        let total: u64 = whole().values().sum();
        assert_eq!(fired(&ledger).1, total, "seed {seed}");
    }
}

fn fails_once() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

#[test]
fn k_776_a_drain_that_fails_restarts_the_job_whose_sources_had_ended() {
    for seed in 0..10 {
        let (lines, ledger, failed) = (lines(1000), Ledger::new(), fails_once());
        let mut driver = Driver::new(seed);
        let (parts, replies) = once(&driver, with_memory(parts()).0, running, stop(true));
        let hook = Hooked {
            snapshot: Arc::new(move || match failed.swap(true, Ordering::Relaxed) {
                false => Err(Error::user("not now")),
                true => Ok(()),
            }),
            ..Hooked::new()
        };
        let outcome = driver
            .run(&hooked(&lines, &ledger, hook), &without_interval(), parts)
            .unwrap();
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 1));
        let error = take(&replies).unwrap_err();
        assert!(error.to_string().contains("not now"), "{error}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn k_772_a_commit_that_fails_after_the_savepoint_goes_back_to_the_savepoint() {
    for seed in 0..10 {
        let (lines, ledger, failed) = (lines(1000), Ledger::new(), fails_once());
        let mut driver = Driver::new(seed);
        let (mut parts, replies) = once(&driver, with_memory(parts()).0, running, stop(false));
        let (asking, restored) = (parts.events, Arc::new(Mutex::new(Vec::new())));
        let runs = Arc::clone(&restored);
        parts.events = Arc::new(move |event: &JobEvent| {
            asking.on_event(event);
            if let JobEvent::RunStarted { restored, .. } = event {
                runs.lock().unwrap().push(*restored);
            }
        });
        let hook = Hooked {
            completed: Arc::new(move |_| match failed.swap(true, Ordering::Relaxed) {
                false => Err(Error::user("the broker is gone")),
                true => Ok(()),
            }),
            ..Hooked::new()
        };
        let outcome = driver
            .run(&hooked(&lines, &ledger, hook), &without_interval(), parts)
            .unwrap();
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 1));
        assert_eq!(*restored.lock().unwrap(), [None, Some(CheckpointId(1))]);
        let error = take(&replies).unwrap_err();
        assert!(error.to_string().contains("the broker is gone"), "{error}");
        assert_eq!(error.context("path"), Some("savepoint-1-1"));
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

/// How a source fails while the job stops.
#[derive(Clone, Copy, Debug)]
enum Fails {
    /// It declines its part of the savepoint.
    Declines,
    /// It dies at its part of the savepoint.
    Panics,
    /// It dies when it is to end its input for a drain.
    AtItsEnd,
    /// At its record of that number, whatever the stop has come to.
    AtRecord(u64),
}

/// Passes records on in the chain of a source, and fails once.
#[derive(Clone)]
struct Failing {
    how: Fails,
    failed: Arc<AtomicBool>,
    records: u64,
}

impl Failing {
    fn new(how: Fails) -> Self {
        Self {
            how,
            failed: fails_once(),
            records: 0,
        }
    }

    fn fail(&self) -> Result<()> {
        match self.failed.swap(true, Ordering::Relaxed) {
            false => Err(Error::user("on purpose")),
            true => Ok(()),
        }
    }
}

impl Operator for Failing {
    type In = String;
    type Out = String;

    fn process(
        &mut self,
        record: String,
        _: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        self.records += 1;
        match self.how {
            Fails::AtRecord(number) if number == self.records => self.fail()?,
            _ => {}
        }
        out.emit(record)
    }

    fn snapshot(&mut self, _: &mut OperatorStates, _: &mut RawStreams) -> Result<()> {
        match self.how {
            Fails::Declines => self.fail(),
            // Unlike `panic!` it writes nothing to the terminal.
            Fails::Panics if self.fail().is_err() => resume_unwind(Box::new("on purpose")),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, _: &mut OperatorStates, _: &mut Out<'_, String>) -> Result<()> {
        match self.how {
            Fails::AtItsEnd => self.fail(),
            _ => Ok(()),
        }
    }
}

/// Stops a job of two pipelines, of which one has a source that fails. Returns how the job ended, what became of the stop, and
/// whether the source failed.
fn stop_two_pipelines(seed: u64, how: Fails, drain: bool) -> (JobOutcome, bool, bool) {
    let (lines, failing) = (lines(600), Failing::new(how));
    let (left, right) = (Ledger::new(), Ledger::new());
    let job = Job::new("wordcount").parallelism(2);
    for (name, ledger) in [("left", &left), ("right", &right)] {
        let read = job.source(&format!("{name} lines"), Items::new(lines.clone(), 4));
        let read = match name {
            "right" => read.operator("failing", failing.clone()),
            _ => read,
        };
        read.flat_map(words)
            .key_by(|word: &String| word.clone())
            .process(&format!("{name} count"), Count::default())
            .sink_exactly_once(&format!("{name} out"), ledger.clone());
    }
    let mut driver = Driver::new(seed).budget(4);
    let (parts, replies) = once(&driver, with_memory(parts()).0, running, stop(drain));
    let outcome = driver
        .run(&job, &without_interval(), parts.clone())
        .unwrap();
    let answer = take(&replies);
    let failed = failing.failed.load(Ordering::Relaxed);
    if let Ok(done) = &answer {
        let parts = JobParts {
            events: Arc::new(|_: &JobEvent| {}),
            ..parts
        };
        let path = done.path.as_ref().unwrap();
        driver.run(&job, &from(path), parts).unwrap();
    }
    let whole = expected(&lines);
    assert_eq!(totals(&left.records()), whole, "{how:?}, seed {seed}");
    assert_eq!(totals(&right.records()), whole, "{how:?}, seed {seed}");
    (outcome, answer.is_ok(), failed)
}

#[test]
fn k_763_k_777_a_source_that_fails_while_the_job_stops_restarts_both_pipelines() {
    for seed in 0..10 {
        for (how, drain) in [
            (Fails::Declines, false),
            (Fails::Declines, true),
            (Fails::Panics, false),
            (Fails::Panics, true),
            (Fails::AtItsEnd, true),
        ] {
            // There is no other checkpoint, and nothing else ends the input so early: it is the stop that it fails at.
            let (outcome, stopped, failed) = stop_two_pipelines(seed, how, drain);
            let ended = (outcome.status, outcome.restarts, outcome.checkpoints);
            // Both run to the end of their input, behind which is the only checkpoint that completes.
            assert_eq!(ended, (JobStatus::Finished, 1, 1), "{how:?}, seed {seed}");
            assert_eq!((stopped, failed), (false, true), "{how:?}, seed {seed}");
        }
    }
}

#[test]
fn k_777_whenever_a_source_fails_around_a_stop_no_pipeline_is_left_behind() {
    let (mut stopped, mut restarted) = (0, 0);
    for seed in 0..40 {
        let how = Fails::AtRecord(1 + seed % 20);
        let (outcome, was_stopped, failed) = stop_two_pipelines(seed, how, seed % 3 == 0);
        assert_eq!(outcome.status, JobStatus::Finished, "seed {seed}");
        // Where the savepoint came first, it fails when the job goes on from there, or never.
        stopped += u32::from(was_stopped && outcome.restarts == 0);
        restarted += u32::from(outcome.restarts > 0);
        assert!(outcome.restarts <= u32::from(failed), "seed {seed}");
    }
    assert!(stopped > 5 && restarted > 5, "{stopped}, {restarted}");
}

#[test]
fn k_763_a_savepoint_that_never_begins_leaves_the_job_as_it_was() {
    let (lines, ledger) = (lines(600), Ledger::new());
    let store = runtime_core::FolderCheckpoints::new(
        checkpoint_storage::StoreRoot::memory(&checkpoint_storage::MemoryStore::new(), "all"),
        state_api::JobId::new("wordcount").unwrap(),
        checkpoint_storage::UuidSource::seeded(1),
        checkpoint_storage::StreamOptions::default(),
    );
    let mut driver = Driver::new(1);
    let parts = parts().checkpoints(Arc::new(store));
    let (parts, replies) = once(&driver, parts, running, stop(true));
    let outcome = driver
        .run(&wordcount(&lines, 2, &ledger), &settings(10), parts)
        .unwrap();
    assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
    assert!(take(&replies).is_err());
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

fn run_stopped(
    seed: u64,
    lines: &[String],
    drain: bool,
    ledger: &Ledger<(String, u64)>,
) -> (JobOutcome, Result<CheckpointDone>) {
    let (parts, _) = with_memory(parts());
    let mut driver = Driver::new(seed);
    let (first, replies) = once(&driver, parts.clone(), running, stop(drain));
    let job = wordcount(lines, 2, ledger);
    let outcome = driver.run(&job, &without_interval(), first).unwrap();
    let done = take(&replies);
    if let Ok(done) = &done {
        let settings = from(done.path.as_ref().unwrap());
        driver.run(&job, &settings, parts).unwrap();
    }
    (outcome, done)
}

#[test]
fn k_778_input_that_ends_while_the_job_stops_is_no_hindrance() {
    let mut stopped = 0;
    for seed in 0..60 {
        let (lines, ledger) = (lines(30), Ledger::new());
        let (outcome, done) = run_stopped(seed, &lines, seed % 2 == 0, &ledger);
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
        match done {
            Ok(_) => stopped += 1,
            // Its last checkpoint had begun before the request came.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "seed {seed}"),
        }
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
    assert!(stopped > 40, "{stopped} of 60");
}

#[test]
fn k_627_a_stop_that_comes_when_all_input_has_ended_is_answered_and_the_job_ends_once() {
    for seed in 0..60 {
        let (lines, ledger) = (lines(1), Ledger::new());
        let (parts, _) = with_memory(parts());
        let mut driver = Driver::new(seed);
        let final_begins = |event: &JobEvent| matches!(event, JobEvent::CheckpointTriggered(_));
        let (parts, replies) = once(&driver, parts, final_begins, stop(seed % 2 == 0));
        let outcome = driver
            .run(&wordcount(&lines, 2, &ledger), &without_interval(), parts)
            .unwrap();
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
        // Which of the two checkpoints is the last is a matter of luck; nobody is left without an answer.
        drop(take(&replies));
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

fn short_lived() -> ExecutionSettings {
    let settings = settings(10);
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            retention: Retention::Never,
            ..settings.checkpointing
        },
        ..settings
    }
}

#[test]
fn a_job_that_is_put_aside_keeps_its_last_checkpoint_and_goes_on_from_there() {
    for seed in 0..10 {
        let (lines, ledger) = (lines(1000), Ledger::new());
        let (parts, store) = with_memory(parts());
        let mut driver = Driver::new(seed);
        let (first, replies) = once(&driver, parts.clone(), first_completed, |control| {
            control.stop_with_checkpoint()
        });
        let job = wordcount(&lines, 2, &ledger);
        let outcome = driver.run(&job, &short_lived(), first).unwrap();
        assert_eq!(outcome.status, JobStatus::Suspended, "seed {seed}");
        let done = take(&replies).unwrap();
        assert_eq!(done.kind, CheckpointKind::StopWithCheckpoint);
        let kept: Vec<_> = store.completed().iter().map(|m| m.checkpoint).collect();
        assert_eq!(kept, [done.id], "seed {seed}");
        // What was counted until then is committed.
        let committed = totals(&ledger.records());
        assert!(committed.values().sum::<u64>() > 0, "seed {seed}");
        driver.run(&job, &short_lived(), parts).unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
        assert!(store.completed().is_empty(), "seed {seed}");
    }
}

#[test]
fn a_last_checkpoint_that_fails_lets_the_job_go_on() {
    for seed in 0..10 {
        let (lines, ledger, failed) = (lines(1000), Ledger::new(), fails_once());
        let mut driver = Driver::new(seed);
        let (parts, replies) = once(&driver, with_memory(parts()).0, running, |control| {
            control.stop_with_checkpoint()
        });
        let hook = Hooked {
            snapshot: Arc::new(move || match failed.swap(true, Ordering::Relaxed) {
                false => Err(Error::user("not now")),
                true => Ok(()),
            }),
            ..Hooked::new()
        };
        let outcome = driver
            .run(&hooked(&lines, &ledger, hook), &without_interval(), parts)
            .unwrap();
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
        assert!(take(&replies).is_err(), "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn a_job_that_was_stopped_with_a_savepoint_does_not_go_on_from_an_older_checkpoint() {
    let memory = MemoryStore::new();
    let in_folder = |seed| {
        let root = StoreRoot::memory(&memory, "all");
        let store = FolderCheckpoints::new(
            root.folder("checkpoints"),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(seed),
            StreamOptions::default(),
        );
        Arc::new(store.savepoints(root.folder("savepoints"))) as Arc<dyn CheckpointStore>
    };
    let in_memory = MemoryCheckpoints::new();
    let stores: [&dyn Fn(u64) -> Arc<dyn CheckpointStore>; 2] =
        [&in_folder, &|_| Arc::new(in_memory.clone())];
    for store in stores {
        let (lines, ledger) = (lines(1000), Ledger::new());
        let job = wordcount(&lines, 2, &ledger);
        let mut driver = Driver::new(3);
        let latest = ExecutionSettings {
            restore: RestoreFrom::Latest,
            checkpointing: CoordinatorConfig {
                retained: 3,
                ..settings(10).checkpointing
            },
            ..settings(10)
        };
        let (parts_of, replies) = once(
            &driver,
            parts().checkpoints(store(1)),
            first_completed,
            stop(false),
        );
        driver.run(&job, &latest, parts_of).unwrap();
        let savepoint = take(&replies).unwrap().path.unwrap();
        let parts_of = parts().checkpoints(store(2));
        let refused = driver.run(&job, &latest, parts_of.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(refused.to_string().contains(&savepoint), "{refused}");
        if savepoint.starts_with("memory://") {
            // From outside no path leads into that store.
            continue;
        }
        // From the savepoint it goes on; what it completes then is the latest again.
        let on = ExecutionSettings {
            checkpointing: latest.checkpointing.clone(),
            ..from(&savepoint)
        };
        driver.run(&job, &on, parts_of.clone()).unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines));
        driver.run(&job, &latest, parts_of).unwrap();
        assert_eq!(totals(&ledger.records()), expected(&lines));
    }
}
