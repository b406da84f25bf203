//! The job `flights`, killed by SIGKILL at random points of every phase, ends with the rows of a run that was never killed.
//!
//! `HOLDFAST_SEED` repeats a run, `HOLDFAST_KILLS` asks for more kills.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and shows its seed"
)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_testkit::fuzz::Random;
use support::{Worker, arg, every_nth_flight, rows, rows_of, run, text};

const SIGKILL: i32 = 9;

/// Phases that the process itself is asked to die in.
const PHASES: [&str; 5] = ["aligning", "sync", "async", "publish", "commit"];

const BEFORE_FIRST: &str = "before the first checkpoint";

/// How a process is killed.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// By itself, when it comes into a phase for the n-th time.
    Phase(&'static str, u32),
    /// From outside, before anything has become a checkpoint.
    BeforeFirstCheckpoint,
    /// From outside, after it has told so many things.
    After(u32),
}

/// Backends that jobs are killed over.
const BACKENDS: &[&str] = &[
    "hashmap",
    "fs",
    "reference",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// A number from 1 on.
fn one_to(random: &mut Random, most: usize) -> u32 {
    u32::try_from(random.below(most)).unwrap() + 1
}

/// One job, killed some times and then left to finish.
struct Trial {
    seed: u64,
    backend: &'static str,
    /// Whether checkpoints write only what earlier ones lack, where the backend asks.
    incremental: bool,
    /// Whether copies are kept on local disk and used.
    local: bool,
    blows: Vec<Blow>,
}

impl Trial {
    /// Trials take turns through the phases, so that each of them comes often enough; the rest is chance.
    fn new(number: u64, seed: u64, backends: &[&'static str]) -> Self {
        let mut random = Random::new(seed);
        let first = match number % 7 {
            6 => Blow::BeforeFirstCheckpoint,
            5 => Blow::After(one_to(&mut random, 40)),
            phase => Blow::Phase(
                PHASES[usize::try_from(phase).unwrap()],
                one_to(&mut random, 4),
            ),
        };
        let second = match one_to(&mut random, 10) {
            1..=5 => {
                let phase = *random.one_of(&PHASES);
                Blow::Phase(phase, one_to(&mut random, 3))
            }
            6 => Blow::BeforeFirstCheckpoint,
            _ => Blow::After(one_to(&mut random, 40)),
        };
        let backend = *random.one_of(backends);
        Self {
            seed,
            backend,
            incremental: random.below(2) == 0,
            local: number.is_multiple_of(2),
            blows: vec![first, second],
        }
    }

    /// Runs the trial; returns where it was hit, and how often it went on from copies alone.
    fn run(&self, input: &Path, expected: &[String]) -> (Vec<&'static str>, u64) {
        let mut random = Random::new(self.seed.wrapping_add(1));
        let folder = tempfile::tempdir().unwrap();
        let (output, checkpoints) = (folder.path().join("out"), folder.path().join("checkpoints"));
        let copies = folder.path().join("copies");
        let dirs = format!("execution.checkpointing.local-backup.dirs={}", arg(&copies));
        let local = format!("execution.state-recovery.from-local={}", self.local);
        let incremental = format!("execution.checkpointing.incremental={}", self.incremental);
        let databases = folder.path().join("databases");
        let localdir = format!("state.backend.rocksdb.localdir={}", arg(&databases));
        let mut hits = Vec::new();
        let mut any_checkpoint = false;
        let mut from_copies = 0;
        for blow in self.blows.iter().map(Some).chain([None]) {
            let parallelism = *random.one_of(&["1", "2", "4"]);
            // What is in the metadata needs no copy.
            let inline = *random.one_of(if self.local { &["0"] } else { &["0", "20kb"] });
            let inline = format!("execution.checkpointing.data-inline-threshold={inline}");
            let strike = match blow {
                Some(Blow::Phase(phase, nth)) => format!("{phase}:{nth}"),
                _ => "sync:1000000".into(),
            };
            let interval = if matches!(blow, Some(Blow::BeforeFirstCheckpoint)) {
                "10s"
            } else {
                "25ms"
            };
            let worker = Worker::start(&[
                "--input",
                arg(input),
                "--output",
                arg(&output),
                "--checkpoints",
                arg(&checkpoints),
                "--from",
                "latest",
                "--interval",
                interval,
                "--rate",
                "6000",
                "--backend",
                self.backend,
                "--parallelism",
                parallelism,
                "-D",
                &inline,
                "-D",
                &dirs,
                "-D",
                &local,
                "-D",
                &incremental,
                "-D",
                &localdir,
                "--failpoint",
                &strike,
            ]);
            match blow {
                None => {
                    let (told, status, errors) = worker.rest();
                    assert!(status.success(), "seed {}: {status} {errors}", self.seed);
                    from_copies += alone(&told);
                }
                Some(Blow::Phase(phase, _)) => {
                    let (told, status, errors) = worker.rest();
                    any_checkpoint |= told.iter().any(|event| event["event"] == "completed");
                    from_copies += alone(&told);
                    if status.signal() == Some(SIGKILL) {
                        hits.push(*phase);
                    } else {
                        assert!(status.success(), "seed {}: {status} {errors}", self.seed);
                    }
                }
                Some(from_outside) => {
                    let events = match from_outside {
                        Blow::After(events) => *events,
                        _ => 3,
                    };
                    let hit = killed_after(worker, events, &mut any_checkpoint);
                    hits.extend(hit.then_some(if any_checkpoint {
                        "anywhere"
                    } else {
                        BEFORE_FIRST
                    }));
                }
            }
        }
        let found = rows(&output);
        assert!(
            found == expected,
            "seed {}, hit {hits:?}: {} rows, not {}",
            self.seed,
            found.len(),
            expected.len()
        );
        // It has finished: none is left of all that died.
        for folder in [&copies, &databases] {
            let left = std::fs::read_dir(folder).map_or(0, Iterator::count);
            assert_eq!(left, 0, "seed {}, hit {hits:?}: {folder:?}", self.seed);
        }
        assert_eq!(databases.exists(), self.backend == "rocksdb");
        (hits, from_copies)
    }
}

/// How often a run began from copies on local disk alone.
fn alone(told: &[serde_json::Value]) -> u64 {
    let alone = |event: &&serde_json::Value| {
        event["from_copies"].as_u64() > Some(0) && event["from_store"].as_u64() == Some(0)
    };
    told.iter().filter(alone).count() as u64
}

/// Kills a process after it has told so many things; returns whether it was alive.
fn killed_after(mut worker: Worker, events: u32, any_checkpoint: &mut bool) -> bool {
    for _ in 0..events {
        match worker.next() {
            None => return false,
            Some(event) => {
                *any_checkpoint |= event["event"] == "completed";
                if event["event"] == "finished" {
                    worker.finish();
                    return false;
                }
            }
        }
    }
    worker.kill();
    true
}

#[test]
fn fifty_kills_at_random_points_of_every_phase_leave_no_trace_in_the_rows() {
    let wanted = from_environment("HOLDFAST_KILLS").unwrap_or(50);
    let from_copies = kill(BACKENDS, wanted, 3);
    assert!(from_copies > 0 || wanted < 50);
}

/// As above with all the kills over RocksDB, of which the choice among backends leaves few.
#[cfg(feature = "rocksdb")]
#[test]
fn kills_over_rocksdb_at_random_points_of_every_phase_leave_no_trace_in_the_rows() {
    let wanted = from_environment("HOLDFAST_KILLS").unwrap_or(12);
    kill(&["rocksdb"], wanted, 1);
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    text.parse().ok()
}

/// Kills jobs until there are so many kills, so often in each phase at the least; returns how often a run began from copies alone.
fn kill(backends: &[&'static str], wanted: u64, least: u64) -> u64 {
    let seed = from_environment("HOLDFAST_SEED").unwrap_or(20_130_101);
    println!("HOLDFAST_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 9);
    let expected = rows_of(&input, &[]);
    assert!(expected.len() > 300);

    let next = AtomicU64::new(0);
    let hits = Mutex::new(BTreeMap::<&str, u64>::new());
    let from_copies = AtomicU64::new(0);
    let enough = || {
        let hits = hits.lock().unwrap();
        let often = |phase: &&str| hits.get(phase).copied().unwrap_or(0) >= least;
        hits.values().sum::<u64>() >= wanted && PHASES.iter().chain(&[BEFORE_FIRST]).all(often)
    };
    let work = || {
        while !enough() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            assert!(
                number < wanted * 4,
                "some phase is never reached: {:?}",
                hits.lock().unwrap()
            );
            let seed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9));
            let (hit_at, alone) = Trial::new(number, seed, backends).run(&input, &expected);
            from_copies.fetch_add(alone, Ordering::Relaxed);
            for hit in hit_at {
                *hits.lock().unwrap().entry(hit).or_default() += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let hits = hits.into_inner().unwrap();
    println!(
        "{} kills in {} jobs:",
        hits.values().sum::<u64>(),
        next.into_inner()
    );
    hits.iter()
        .for_each(|(phase, times)| println!("  {times:>3} {phase}"));
    let from_copies = from_copies.into_inner();
    println!("{from_copies} times gone on from copies on local disk alone");
    from_copies
}

#[test]
fn the_demo_ends_identical_on_every_backend() {
    for backend in BACKENDS {
        let output = run(&["demo", "--rate", "7000", "--backend", backend]);
        let told = text(&output.stdout);
        assert!(output.status.success(), "{told}{}", text(&output.stderr));
        assert!(
            told.lines().last().unwrap().starts_with("identical: "),
            "{told}"
        );
        assert!(told.matches("SIGKILL").count() >= 2, "{told}");
        let replayed: Vec<&str> = told
            .lines()
            .filter(|line| line.starts_with("restored: checkpoint"))
            .collect();
        assert!(
            replayed
                .iter()
                .filter(|line| !line.ends_with(" 0 records replayed"))
                .count()
                >= 2,
            "{told}"
        );
        assert!(told.contains(" show "), "{told}");
    }
}

#[test]
fn a_replayed_record_that_is_lost_ends_the_demo_with_different() {
    let output = run(&[
        "demo",
        "--rate",
        "7000",
        "--parallelism",
        "1",
        "--failpoint",
        "replay-skip",
    ]);
    let told = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(7),
        "{told}{}",
        text(&output.stderr)
    );
    assert!(
        told.lines().last().unwrap().starts_with("different: "),
        "{told}"
    );
}
