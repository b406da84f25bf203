//! Files in, files out, through a whole job that fails and restarts: each line is in the output once.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime_core::coordinator::{CoordinatorConfig, Retention};
use runtime_core::restart::{FixedDelay, RestartStrategy};
use runtime_core::sinks::{CollectSink, FileSink, TransactionalCollect};
use runtime_core::sources::{FileLines, Generator};
use runtime_core::{Driver, ExecutionSettings, Job, JobParts, MemoryCheckpoints, RestoreFrom};
use state_api::{Error, ManualClock, Result};

fn settings() -> ExecutionSettings {
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            interval: Some(Duration::from_millis(10)),
            retention: Retention::Always,
            ..CoordinatorConfig::default()
        },
        restart: RestartStrategy::FixedDelay(FixedDelay {
            attempts: 1_000,
            delay: Duration::from_millis(1),
        }),
        ..ExecutionSettings::new("copy").expect("a valid id")
    }
}

fn parts(store: &MemoryCheckpoints) -> JobParts {
    JobParts::new(
        Arc::new(backend_hashmap::HashMapBackend),
        Arc::new(ManualClock::default()),
    )
    .checkpoints(Arc::new(store.clone()))
}

/// Fails each time so many records have passed, counted over all restarts.
fn failing_every<T>(records: u64) -> impl Fn(T) -> Result<T> + Send + Sync + 'static {
    let passed = AtomicU64::new(0);
    move |record| match passed.fetch_add(1, Ordering::Relaxed) {
        n if n % records == records - 1 => Err(Error::user("a fault on purpose")),
        _ => Ok(record),
    }
}

fn input(folder: &Path, files: usize, lines: usize) -> Vec<String> {
    fs::create_dir(folder).expect("the folder can be made");
    let mut all = Vec::new();
    for file in 0..files {
        let lines: Vec<String> = (0..lines).map(|line| format!("{file} {line}")).collect();
        // The last line has no end.
        fs::write(folder.join(format!("in-{file}.txt")), lines.join("\n"))
            .expect("the folder can be written");
        all.extend(lines);
    }
    all.sort();
    all
}

fn output(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).expect("the output is there") {
        let path = entry.expect("the output can be listed").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("names are text");
        assert!(name.starts_with("part-"), "{name} is left behind");
        lines.extend(
            fs::read_to_string(&path)
                .expect("parts are text")
                .lines()
                .map(str::to_owned),
        );
    }
    lines.sort();
    lines
}

#[test]
fn k_740_k_717_a_copy_that_fails_again_and_again_has_every_line_once() {
    for seed in 0..6 {
        let home = tempfile::tempdir().unwrap();
        let expected = input(&home.path().join("in"), 2, 400);
        let job = Job::new("copy").parallelism(1 + seed as u32 % 3);
        job.source(
            "lines",
            FileLines::new(home.path().join("in")).range_bytes(1_000),
        )
        .try_map(failing_every(700))
        .sink_exactly_once("files", FileSink::lines(home.path().join("out")));
        let store = MemoryCheckpoints::new();
        Driver::new(seed)
            .run(&job, &settings(), parts(&store))
            .unwrap();
        assert_eq!(output(&home.path().join("out")), expected, "seed {seed}");
    }
}

#[test]
fn k_727_a_copy_that_dies_goes_on_at_another_parallelism_with_every_line_once() {
    for (seed, before, after) in [(1, 1, 3), (2, 3, 1), (3, 2, 2)] {
        let home = tempfile::tempdir().unwrap();
        let expected = input(&home.path().join("in"), 3, 300);
        let store = MemoryCheckpoints::new();
        let copy = |parallelism, records| {
            let job = Job::new("copy").parallelism(parallelism);
            job.source(
                "lines",
                FileLines::new(home.path().join("in")).range_bytes(1_000),
            )
            .try_map(failing_every(records))
            .sink_exactly_once("files", FileSink::lines(home.path().join("out")));
            job
        };
        let once = ExecutionSettings {
            restart: RestartStrategy::None,
            ..settings()
        };
        Driver::new(seed)
            .budget(4)
            .run(&copy(before, 800), &once, parts(&store))
            .unwrap_err();
        assert!(
            !store.completed().is_empty(),
            "seed {seed}: it died before the first checkpoint"
        );
        let again = ExecutionSettings {
            restore: RestoreFrom::Latest,
            ..once
        };
        Driver::new(seed)
            .run(&copy(after, u64::MAX), &again, parts(&store))
            .unwrap();
        assert_eq!(output(&home.path().join("out")), expected, "seed {seed}");
    }
}

#[test]
fn generated_records_are_collected_once_with_transactions_and_at_least_once_without() {
    for seed in 0..4 {
        let (exact, plain) = (TransactionalCollect::new(), CollectSink::new());
        let job = Job::new("numbers").parallelism(2);
        let numbers = job
            .source("numbers", Generator::new(|index| index).take(2_000))
            .try_map(failing_every(900));
        numbers.sink_exactly_once("exact", exact.clone());
        numbers.sink("plain", plain.clone());
        Driver::new(seed)
            .run(&job, &settings(), parts(&MemoryCheckpoints::new()))
            .unwrap();
        let mut records = exact.records();
        records.sort_unstable();
        assert_eq!(records, (0..2_000).collect::<Vec<u64>>(), "seed {seed}");
        let mut records = plain.records();
        records.sort_unstable();
        records.dedup();
        assert_eq!(records, (0..2_000).collect::<Vec<u64>>(), "seed {seed}");
    }
}
