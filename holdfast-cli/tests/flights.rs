//! The job `flights` gives the same rows at every parallelism, on every backend, and across restores.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::{Path, PathBuf};

use support::place::ask;
use support::{Worker, arg, january, rows, rows_of, tree};

const BACKENDS: &[&str] = &[
    "hashmap",
    "fs",
    "reference",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

const WHOLE: &str = "execution.checkpointing.incremental=false";
#[cfg(feature = "rocksdb")]
const INCREMENTAL: &str = "execution.checkpointing.incremental=true";

/// Backends, and whether their checkpoints are incremental where they can be told.
const STARTS: &[(&str, &str)] = &[
    ("hashmap", WHOLE),
    ("fs", WHOLE),
    ("reference", WHOLE),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", WHOLE),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", INCREMENTAL),
];

#[test]
fn the_rows_of_january_are_those_that_counting_by_hand_gives() {
    let rows = rows_of(&january(), &[]);
    let mut counts = std::collections::BTreeMap::<(String, String), (u64, u64, i64)>::new();
    for line in std::fs::read_to_string(january()).unwrap().lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let day = format!("{}-{:0>2}-{:0>2}", f[0], f[1], f[2]);
        let (flights, cancelled, minutes) = counts.entry((day, f[9].to_owned())).or_default();
        *flights += 1;
        match f[3] {
            "NA" => *cancelled += 1,
            _ => *minutes += f[5].parse::<i64>().unwrap(),
        }
    }
    assert_eq!(rows.len(), counts.len());
    for row in &rows {
        let f: Vec<&str> = row.split(',').collect();
        let (flights, cancelled, minutes) = counts[&(f[0].to_owned(), f[1].to_owned())];
        let (given, mean) = (
            (
                f[f.len() - 3].parse::<u64>().unwrap(),
                f[f.len() - 2].parse::<u64>().unwrap(),
            ),
            f[f.len() - 1],
        );
        assert_eq!(given, (flights, cancelled), "{row}");
        if flights > cancelled {
            let exact = minutes as f64 / (flights - cancelled) as f64;
            assert!(
                (mean.parse::<f64>().unwrap() - exact).abs() < 0.0051,
                "{row}: {exact}"
            );
        } else {
            assert_eq!(mean, "NA", "{row}");
        }
    }
    assert!(
        rows.iter()
            .any(|row| row.starts_with("2013-01-01,UA,United Air Lines Inc.,165,")),
        "{:?}",
        &rows[..5]
    );
}

#[test]
fn january_is_the_same_at_parallelism_1_2_and_4_on_every_backend() {
    same_at_every_parallelism(&january());
}

#[test]
fn k_760_january_is_the_same_when_restored_three_times_in_a_chain_at_other_parallelisms() {
    same_across_rescaling(&january(), 6_000);
}

#[test]
fn january_goes_on_from_backend_to_backend_by_canonical_savepoints() {
    let (input, folder) = (january(), tempfile::tempdir().unwrap());
    let expected = rows_of(&input, &[]);
    let path = |name: &str| folder.path().join(name);
    let (output, checkpoints, savepoints) = (path("out"), path("checkpoints"), path("savepoints"));
    let mut savepoint = String::new();
    let last = BACKENDS.iter().take(1).zip(["3"]);
    let all = BACKENDS.iter().zip(["2", "4", "1", "2"]).chain(last);
    for (index, (backend, parallelism)) in all.enumerate() {
        let mut arguments = vec![
            "--input",
            arg(&input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
            "--job-id",
            "from-backend-to-backend",
            "--backend",
            backend,
            "--parallelism",
            parallelism,
        ];
        if !savepoint.is_empty() {
            arguments.extend(["--from", &savepoint]);
        }
        if index == BACKENDS.len() {
            Worker::start(&arguments).finish();
            break;
        }
        arguments.extend(["--interval", "50ms", "--rate", "5000"]);
        let mut worker = Worker::start(&arguments);
        worker.wait_past_checkpoint();
        let stop = ["stop", "from-backend-to-backend", "--format", "canonical"];
        let (told, _) = ask(&[&stop[..], &["--target", arg(&savepoints)]].concat());
        worker.finish();
        assert!(rows(&output).len() < expected.len(), "{backend}");
        told.trim_end().clone_into(&mut savepoint);
    }
    assert_eq!(rows(&output), expected);
}

#[cfg(feature = "rocksdb")]
#[test]
fn january_is_the_same_when_killed_time_and_again_over_checkpoints_that_are_files() {
    same_on_and_on(&january(), 6_000);
}

/// The flights of a whole year, which are not part of the project: `HOLDFAST_FLIGHTS` names the file.
#[test]
fn whole_year_is_the_same_at_every_parallelism_and_across_rescaling() {
    let Some(year) = std::env::var_os("HOLDFAST_FLIGHTS").map(PathBuf::from) else {
        println!("skipped: HOLDFAST_FLIGHTS names no file");
        return;
    };
    same_at_every_parallelism(&year);
    same_across_rescaling(&year, 150_000);
    same_on_and_on(&year, 150_000);
}

fn same_at_every_parallelism(input: &Path) {
    let expected = rows_of(input, &[]);
    assert!(expected.len() > 400);
    for backend in BACKENDS {
        for parallelism in ["1", "2", "4"] {
            let rows = rows_of(input, &["--backend", backend, "--parallelism", parallelism]);
            assert!(
                rows == expected,
                "{backend} at parallelism {parallelism}: {} rows, not {}",
                rows.len(),
                expected.len()
            );
        }
    }
}

/// Kills a job three times and goes on from its latest checkpoint at another parallelism. One checkpoint stays after each kill, and
/// none after the end of the job unless it is to be kept.
fn same_across_rescaling(input: &Path, rate: u32) {
    let expected = rows_of(input, &[]);
    let rate = rate.to_string();
    for (backend, incremental) in STARTS {
        for (retain, left) in [("never", 0), ("always", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let (output, checkpoints) = (path("out"), path("checkpoints"));
            let start = |parallelism: &str, more: &[&str]| {
                let common = [
                    "--input",
                    arg(input),
                    "--output",
                    arg(&output),
                    "--checkpoints",
                    arg(&checkpoints),
                    "--backend",
                    backend,
                    "-D",
                    incremental,
                    "--retain",
                    retain,
                    "--parallelism",
                    parallelism,
                ];
                Worker::start(&[&common[..], more].concat())
            };
            let from_latest = ["--from", "latest"];
            for (resumed, parallelism) in ["2", "4", "1"].into_iter().enumerate() {
                let slow = ["--interval", "50ms", "--rate", &rate];
                let from = &from_latest[..if resumed > 0 { 2 } else { 0 }];
                let mut worker = start(parallelism, &[&slow[..], from].concat());
                if resumed > 0 {
                    check_restored(&mut worker);
                }
                worker.wait_past_checkpoint();
                worker.wait_past_checkpoint();
                worker.kill();
                assert!(rows(&output).len() < expected.len());
                assert!(!complete(&checkpoints).is_empty(), "{backend}");
            }
            let mut worker = start("2", &from_latest);
            check_restored(&mut worker);
            worker.finish();
            assert!(rows(&output) == expected, "{backend}, {incremental}");
            assert_eq!(complete(&checkpoints).len(), left, "{backend}, {retain}");
        }
    }
}

fn check_restored(worker: &mut Worker) {
    let restored = worker.wait_for("running");
    assert!(
        restored["restored"].as_u64().unwrap() >= 2 && starts_in_the_middle(&restored),
        "{restored}"
    );
}

/// Returns the complete checkpoints of the only job in a folder.
fn complete(checkpoints: &Path) -> Vec<PathBuf> {
    let files = tree(checkpoints).into_iter();
    // In the place of one that was never completed stands a mark in words.
    let complete = files.filter(|(file, bytes)| {
        file.ends_with("_metadata") && !bytes.starts_with(b"holdfast: never completed")
    });
    complete.map(|(file, _)| file).collect()
}

/// Kills a job over RocksDB five times, at other parallelisms and at the same: each run restores by file what the one before has
/// written, and writes what that lacks.
#[cfg(feature = "rocksdb")]
fn same_on_and_on(input: &Path, rate: u32) {
    let expected = rows_of(input, &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (output, checkpoints) = (path("out"), path("checkpoints"));
    let localdir = format!("state.backend.rocksdb.localdir={}", arg(&path("local")));
    let start = |parallelism: &str, rate: &str| {
        Worker::start(&[
            "--input",
            arg(input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
            "--backend",
            "rocksdb",
            "-D",
            INCREMENTAL,
            "-D",
            &localdir,
            // Files that end early, so that some lie within the key groups of a subtask and others reach across.
            "-D",
            "state.backend.rocksdb.compaction.level.target-file-size-base=64kb",
            "--interval",
            "50ms",
            "--from",
            "latest",
            "--parallelism",
            parallelism,
            "--rate",
            rate,
        ])
    };
    let mut last = 0;
    for parallelism in ["2", "3", "3", "1", "4"] {
        let mut worker = start(parallelism, &rate.to_string());
        if last > 0 {
            let restored = worker.wait_for("running");
            assert!(restored["restored"].as_u64().unwrap() > last, "{restored}");
            last = restored["restored"].as_u64().unwrap();
        }
        worker.wait_past_checkpoint();
        worker.wait_past_checkpoint();
        worker.kill();
        last = last.max(1);
        assert!(rows(&output).len() < expected.len());
        // The killed process could not remove it.
        assert!(std::fs::read_dir(path("local")).unwrap().count() > 0);
    }
    start("2", "1000000").finish();
    assert!(rows(&output) == expected);
    assert_eq!(std::fs::read_dir(path("local")).unwrap().count(), 0);
}

#[cfg(not(feature = "rocksdb"))]
fn same_on_and_on(_: &Path, _: u32) {}

/// Returns whether input was left where a run started from. What is left when the event is sent does not tell: it may all be read
/// by then.
fn starts_in_the_middle(running: &serde_json::Value) -> bool {
    let positions = running["positions"].as_array().unwrap();
    positions.iter().any(|position| {
        // Such as `flights.csv 1200 in 0..2400/4800`.
        let text = position.as_str().unwrap();
        let (before, split) = text.split_once(" in ").unwrap();
        let at: u64 = before.rsplit_once(' ').unwrap().1.parse().unwrap();
        let end = split.split_once('/').unwrap().0.split_once("..").unwrap().1;
        at < end.parse().unwrap()
    })
}
