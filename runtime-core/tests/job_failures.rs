//! Jobs that fail, restart, change their parallelism, and are cancelled.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use job_support::{
    Count, Items, Ledger, asking, expected, lines, now, parts, settings, totals, with_memory,
    wordcount, words,
};
use runtime_core::config::CheckpointMode;
use runtime_core::coordinator::{CoordinatorConfig, JobStatus};
use runtime_core::execution::{CheckpointDone, Reply, SavepointFormat};
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, LocalExecution, RestoreFrom,
};
use state_api::{Error, ErrorKind, JobId, SystemClock};

/// A word count whose flat map fails when the shared countdown reaches zero.
fn failing(
    lines: &[String],
    parallelism: u32,
    ledger: &Ledger<(String, u64)>,
    every: u64,
    failures: u64,
) -> Job {
    let job = Job::new("wordcount").parallelism(parallelism);
    let (seen, left) = (AtomicU64::new(0), AtomicU64::new(failures));
    job.source("lines", Items::new(lines.to_vec(), 4))
        .flat_map(move |line| {
            let n = seen.fetch_add(1, Ordering::Relaxed) + 1;
            if n.is_multiple_of(every) && left.load(Ordering::Relaxed) > 0 {
                left.fetch_sub(1, Ordering::Relaxed);
                panic!("on purpose at line {n}");
            }
            words(line)
        })
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}

#[test]
fn after_failures_at_any_moment_each_record_counts_once() {
    for seed in 0..20 {
        let (lines, ledger) = (lines(300), Ledger::new());
        let (parts, _) = with_memory(parts());
        let job = failing(&lines, 2, &ledger, 97, 4);
        let outcome = Driver::new(seed).run(&job, &settings(10), parts).unwrap();
        // Two subtasks may fail in one run.
        assert!((2..=4).contains(&outcome.restarts), "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

/// The greatest count of each word.
fn greatest(records: &[(String, u64)]) -> BTreeMap<String, u64> {
    let mut greatest = BTreeMap::new();
    for (word, count) in records {
        let most = greatest.entry(word.clone()).or_default();
        *most = count.max(most).to_owned();
    }
    greatest
}

#[test]
fn k_758_at_least_once_after_failures_at_any_moment_no_record_is_lost() {
    for (seed, max_concurrent) in (0..20).zip([1, 3].into_iter().cycle()) {
        let (lines, ledger) = (lines(300), Ledger::new());
        let (parts, _) = with_memory(parts());
        let job = failing(&lines, 2, &ledger, 97, 4);
        let settings = ExecutionSettings {
            mode: CheckpointMode::AtLeastOnce,
            checkpointing: CoordinatorConfig {
                max_concurrent,
                ..settings(10).checkpointing
            },
            ..settings(10)
        };
        let outcome = Driver::new(seed).run(&job, &settings, parts).unwrap();
        assert!(outcome.restarts >= 1, "seed {seed}");
        let counted = greatest(&ledger.records());
        for (word, count) in expected(&lines) {
            assert!(counted[&word] >= count, "{word}, seed {seed}");
        }
    }
}

#[test]
fn a_failure_names_the_operator_and_without_restarts_ends_the_job() {
    let (lines, ledger) = (lines(50), Ledger::new());
    let settings = ExecutionSettings {
        restart: RestartStrategy::None,
        ..settings(10)
    };
    let error = Driver::new(3)
        .run(&failing(&lines, 1, &ledger, 10, 1), &settings, parts())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(
        error.to_string().contains("on purpose at line 10"),
        "{error}"
    );
    assert_eq!(error.context("operator"), Some("lines -> flat map"));
}

#[test]
fn k_654_a_job_goes_on_at_another_parallelism() {
    for (before, after) in [(2, 4), (4, 1), (1, 3)] {
        let (lines, ledger) = (lines(1500), Ledger::new());
        let (parts, store) = with_memory(parts());
        // Fails for good after a few checkpoints.
        let first = ExecutionSettings {
            restart: RestartStrategy::None,
            ..settings(10)
        };
        Driver::new(5)
            .budget(2)
            .run(
                &failing(&lines, before, &ledger, 1000, 1),
                &first,
                parts.clone(),
            )
            .unwrap_err();
        assert_eq!(store.completed().len(), 1, "{before} to {after}");
        let outcome = Driver::new(6)
            .run(&wordcount(&lines, after, &ledger), &settings(10), parts)
            .unwrap();
        assert_eq!(outcome.restarts, 0);
        assert_eq!(
            totals(&ledger.records()),
            expected(&lines),
            "{before} to {after}"
        );
    }
}

#[test]
fn k_658_state_of_an_operator_that_is_gone_is_not_dropped_silently() {
    let (lines, ledger) = (lines(100), Ledger::new());
    let (parts, _) = with_memory(parts());
    Driver::new(1)
        .run(&wordcount(&lines, 1, &ledger), &settings(10), parts.clone())
        .unwrap();
    let job = Job::new("wordcount");
    job.source("lines", Items::new(lines.clone(), 4))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count under another name", Count::default())
        .sink_exactly_once("out", ledger.clone());
    let error = Driver::new(1)
        .run(&job, &settings(10), parts.clone())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(error.context("operator"), Some("count"));
    let lenient = ExecutionSettings {
        allow_non_restored_state: true,
        ..settings(10)
    };
    Driver::new(1).run(&job, &lenient, parts).unwrap();
}

#[test]
fn k_657_another_maximum_parallelism_than_the_checkpoints_is_refused() {
    let (lines, ledger) = (lines(100), Ledger::new());
    let (parts, _) = with_memory(parts());
    Driver::new(1)
        .run(&wordcount(&lines, 1, &ledger), &settings(10), parts.clone())
        .unwrap();
    let job = wordcount(&lines, 1, &ledger).max_parallelism(64);
    let error = Driver::new(1).run(&job, &settings(10), parts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

#[test]
fn two_operators_with_one_uid_are_refused() {
    let (lines, ledger) = (lines(10), Ledger::new());
    let job = Job::new("twice");
    let counts = job
        .source("lines", Items::new(lines, 1))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("lines", Count::default());
    counts.sink_exactly_once("out", ledger);
    let error = job.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.context("operator"), Some("lines"));
}

fn on_threads(parts: JobParts, dir: &std::path::Path, io: &tokio::runtime::Handle) -> JobParts {
    let store = FolderCheckpoints::local(dir, JobId::new("wordcount").unwrap(), io).unwrap();
    JobParts {
        clock: Arc::new(SystemClock),
        ..parts
    }
    .checkpoints(Arc::new(store))
}

#[test]
fn threads_and_a_folder_of_checkpoints_give_the_same_answer_with_failures_and_another_parallelism()
{
    let dir = tempfile::tempdir().unwrap();
    let io = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (lines, ledger) = (lines(20_000), Ledger::new());
    let first = ExecutionSettings {
        restart: RestartStrategy::None,
        ..settings(20)
    };
    let run = |job: Job, settings: ExecutionSettings| {
        let parts = on_threads(parts(), dir.path(), io.handle());
        LocalExecution::start(job, settings, parts, io.handle())
            .unwrap()
            .wait()
    };
    run(failing(&lines, 2, &ledger, 8_000, 1), first).unwrap_err();
    let outcome = run(failing(&lines, 3, &ledger, 2_000, 2), settings(20)).unwrap();
    // Two subtasks may fail in one run.
    assert!((1..=2).contains(&outcome.restarts), "{outcome:?}");
    assert_eq!(totals(&ledger.records()), expected(&lines));
    // Started again from its final checkpoint, there is nothing left to do.
    let before = ledger.records().len();
    let again = run(wordcount(&lines, 1, &ledger), settings(20)).unwrap();
    assert_eq!(
        (again.status, ledger.records().len()),
        (JobStatus::Finished, before)
    );
}

#[test]
fn a_cancelled_job_ends_without_committing() {
    let io = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let ledger: Ledger<(String, u64)> = Ledger::new();
    let job = Job::new("endless");
    job.source(
        "numbers",
        runtime_core::sources::Generator::new(|i| format!("w{}", i % 10)),
    )
    .key_by(|word: &String| word.clone())
    .process("count", Count::default())
    .sink_exactly_once("out", ledger.clone());
    let (running, started) = std::sync::mpsc::channel();
    let events = move |event: &JobEvent| {
        if matches!(event, JobEvent::Running { .. }) {
            running.send(()).unwrap();
        }
    };
    let parts = JobParts {
        clock: Arc::new(SystemClock),
        events: Arc::new(events),
        ..parts()
    };
    let settings = ExecutionSettings {
        restore: RestoreFrom::Nothing,
        ..settings(10)
    };
    let handle = LocalExecution::start(job, settings, parts, io.handle()).unwrap();
    started.recv().unwrap();
    handle.cancel();
    assert_eq!(handle.wait().unwrap().status, JobStatus::Cancelled);
    assert!(ledger.records().is_empty());
}

/// Two pipelines, one of which has little to do; the other fails once after `armed` is set.
fn uneven(
    short: (&[String], &Ledger<(String, u64)>),
    long: (&[String], &Ledger<(String, u64)>),
    parallelism: u32,
    armed: &Arc<AtomicBool>,
) -> Job {
    let job = Job::new("wordcount").parallelism(parallelism);
    for (name, (lines, ledger), breaks) in [("short", short, false), ("long", long, true)] {
        let (armed, failed) = (Arc::clone(armed), AtomicBool::new(false));
        job.source(
            &format!("{name} lines"),
            Items::new(lines.to_vec(), 1 + 3 * u64::from(breaks)),
        )
        .try_map(move |line: String| {
            let due = breaks && armed.load(Ordering::Relaxed);
            if due && !failed.swap(true, Ordering::Relaxed) {
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process(&format!("{name} count"), Count::default())
        .sink_exactly_once(&format!("{name} out"), ledger.clone());
    }
    job
}

#[test]
fn k_628_k_766_what_had_ended_before_a_checkpoint_is_not_run_again_at_any_parallelism() {
    for (seed, after) in [(1, 2), (2, 1), (3, 4), (4, 3)] {
        let (few, many) = (lines(10), lines(3000));
        let (short, long) = (Ledger::new(), Ledger::new());
        let (parts, _) = with_memory(parts());
        let armed = Arc::new(AtomicBool::new(false));
        let mut driver = Driver::new(seed).budget(4);
        let (reply, ours) = (Arc::default(), Arc::clone(&armed));
        let savepoint: Arc<Mutex<Option<Reply<CheckpointDone>>>> = Arc::clone(&reply);
        let first = asking(&driver, parts.clone(), move |control, event| {
            if let JobEvent::CheckpointCompleted(stats) = event {
                // The short input is long over.
                match (stats.id.0, stats.kind) {
                    (2, _) => ours.store(true, Ordering::Relaxed),
                    (4, _) => {
                        let format = SavepointFormat::Canonical;
                        let stop = control.stop_with_savepoint(false, None, format);
                        *savepoint.lock().unwrap() = Some(stop);
                    }
                    _ => {}
                }
            }
        });
        let job = |parallelism| {
            let (short, long) = ((few.as_slice(), &short), (many.as_slice(), &long));
            uneven(short, long, parallelism, &armed)
        };
        let outcome = driver.run(&job(2), &settings(10), first).unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
        assert_eq!(totals(&short.records()), expected(&few), "seed {seed}");
        let settings = ExecutionSettings {
            restore: RestoreFrom::Path(done.path.unwrap()),
            ..settings(10)
        };
        armed.store(false, Ordering::Relaxed);
        driver.run(&job(after), &settings, parts).unwrap();
        assert_eq!(totals(&short.records()), expected(&few), "seed {seed}");
        assert_eq!(totals(&long.records()), expected(&many), "seed {seed}");
    }
}
