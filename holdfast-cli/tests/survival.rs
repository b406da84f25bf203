//! The job `flights`, killed, frozen or out of disk space at random moments, ends with the rows of a run that nothing befell.
//!
//! `HOLDFAST_SURVIVALS=100` asks for more jobs, `HOLDFAST_SEED` repeats a run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and shows its seed"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_testkit::fuzz::Random;
use rustix::process::Signal;
use support::disk::{Disk, Rows};
use support::{Worker, arg, every_nth_flight, rows_of, text};

/// The exit code of a run that a newer one has succeeded.
const FENCED: i32 = 77;

/// What befalls a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    /// SIGKILL.
    Killed,
    /// SIGSTOP, and SIGCONT some time later.
    Frozen,
    /// SIGSTOP, and SIGCONT when a successor has begun or finished.
    Succeeded,
    /// The disk is full for a while.
    DiskFull,
}

const BLOWS: [Blow; 4] = [Blow::Killed, Blow::Frozen, Blow::DiskFull, Blow::Succeeded];

/// A job that suffers two blows before it is left to finish.
struct Trial {
    seed: u64,
    random: Random,
    /// Those that read each other's checkpoints.
    backends: &'static [&'static str],
    /// Whether checkpoints write only what earlier ones lack, where the backend asks.
    incremental: bool,
    /// Where local databases are: on the disk that becomes full, or beside it.
    databases: PathBuf,
    _beside: tempfile::TempDir,
    disk: Disk,
    told: String,
    /// How often a full disk was noticed.
    felt: u64,
}

impl Trial {
    fn new(seed: u64, sets: &[&'static [&'static str]]) -> Self {
        let mut random = Random::new(seed);
        let mounted = random.below(4) > 0;
        let backends = *random.one_of(sets);
        // A database alone takes room for a list of its files that grows to some megabytes.
        let megabytes = if backends.contains(&"rocksdb") { 96 } else { 6 };
        let disk = Disk::new(mounted, megabytes);
        let beside = tempfile::tempdir().unwrap();
        let databases = match random.below(2) {
            0 => disk.path().join("databases"),
            _ => beside.path().join("databases"),
        };
        Self {
            seed,
            incremental: random.below(2) == 0,
            random,
            backends,
            databases,
            _beside: beside,
            disk,
            told: String::new(),
            felt: 0,
        }
    }

    fn start(&mut self, input: &Path) -> Worker {
        let parallelism = *self.random.one_of(&["1", "2", "3"]);
        let inline = *self.random.one_of(&["0", "20kb"]);
        let inline = format!("execution.checkpointing.data-inline-threshold={inline}");
        let tolerable = *self.random.one_of(&["0", "1000"]);
        let tolerable = format!("execution.checkpointing.tolerable-failed-checkpoints={tolerable}");
        let backend = *self.random.one_of(self.backends);
        let incremental = format!("execution.checkpointing.incremental={}", self.incremental);
        let localdir = format!("state.backend.rocksdb.localdir={}", arg(&self.databases));
        let (output, checkpoints) = (
            self.disk.path().join("out"),
            self.disk.path().join("checkpoints"),
        );
        let arguments = [
            "run",
            "flights",
            "--events",
            "--no-socket",
            "--input",
            arg(input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
            "--from",
            "latest",
            "--interval",
            "25ms",
            "--rate",
            if self.backends.contains(&"rocksdb") {
                // Its checkpoints take longer: so that as many things are told before the end.
                "4000"
            } else {
                "6000"
            },
            "--backend",
            backend,
            "--parallelism",
            parallelism,
            "-D",
            &inline,
            "-D",
            &tolerable,
            "-D",
            &incremental,
            "-D",
            &localdir,
        ];
        let unaligned = *self.random.one_of(&[
            &[][..],
            &["--unaligned"],
            &["--unaligned", "--aligned-timeout", "5ms"],
        ]);
        let arguments = [&arguments[..], unaligned].concat();
        Worker::spawn(&mut self.disk.command(&arguments))
    }

    /// Waits for some things to be told; returns whether the run still goes on.
    fn pass(&mut self, worker: &mut Worker, most: usize) -> bool {
        let events = self.random.below(most) + 1;
        (0..events).all(|_| {
            let event = worker.next().unwrap_or_default();
            self.felt += u64::from(event["event"] == "aborted");
            !event.is_null() && event["event"] != "finished"
        })
    }

    /// Lists the checkpoints, by another process.
    fn look(&self) {
        let checkpoints = self.disk.path().join("checkpoints");
        let mut command = self.disk.command(&["list", arg(&checkpoints)]);
        let looked = command.output().unwrap();
        let errors = text(&looked.stderr);
        assert!(!errors.contains("panicked"), "seed {}: {errors}", self.seed);
    }

    fn note(&mut self, what: &str) {
        self.told.push_str(what);
        self.told.push_str("; ");
    }

    /// Lets a run end by itself, however it does; codes say what may be.
    fn end(&mut self, worker: Worker, codes: &[i32]) {
        let (_, status, errors) = worker.rest();
        let code = status.code();
        self.felt += u64::from(code == Some(1));
        assert!(
            code.is_some_and(|code| codes.contains(&code)),
            "seed {}: {}{status}: {errors}",
            self.seed,
            self.told
        );
        assert!(
            !errors.contains("panicked") && !errors.contains("internal error"),
            "seed {}: {errors}",
            self.seed
        );
        self.note(&format!("ended with {}", code.unwrap_or_default()));
    }

    /// Runs the job into a blow; returns whether it was hit.
    fn suffer(&mut self, blow: Blow, input: &Path) -> bool {
        let mut worker = self.start(input);
        if !self.pass(&mut worker, 40) {
            self.end(worker, &[0]);
            return false;
        }
        self.note(&format!("{blow:?}"));
        match blow {
            Blow::Killed => worker.kill(),
            Blow::Frozen => {
                worker.signal(Signal::STOP);
                // It stays so for as long as somebody looks at what it has left.
                for _ in 0..self.random.below(4) {
                    self.look();
                }
                worker.signal(Signal::CONT);
                self.end(worker, &[0]);
            }
            Blow::Succeeded => {
                worker.signal(Signal::STOP);
                let mut successor = self.start(input);
                let goes_on = self.pass(&mut successor, 40);
                worker.signal(Signal::CONT);
                // What was read before the freeze may have been all.
                self.end(worker, &[0, FENCED]);
                if goes_on && self.random.below(2) == 0 {
                    successor.kill();
                } else {
                    self.end(successor, &[0, FENCED]);
                }
            }
            Blow::DiskFull => {
                let full = self.disk.fill(&worker);
                let goes_on = self.pass(&mut worker, 30);
                full.free();
                if goes_on && self.random.below(3) == 0 {
                    worker.kill();
                } else {
                    // It fails, or it outlives what was short.
                    self.end(worker, &[0, 1]);
                }
            }
        }
        true
    }

    fn run(mut self, number: u64, input: &Path, expected: &[String]) -> (Vec<Blow>, u64) {
        // Each takes its turn to be the first; the rest is chance.
        let first = BLOWS[usize::try_from(number % 4).unwrap()];
        let second = *self.random.one_of(&BLOWS);
        let mut hits = Vec::new();
        for blow in [first, second] {
            if self.suffer(blow, input) {
                hits.push(blow);
            }
        }
        let last = self.start(input);
        self.end(last, &[0]);
        let Rows(found) = self.disk.rows("out");
        assert!(
            found == expected,
            "seed {}: {}{} rows, not {}",
            self.seed,
            self.told,
            found.len(),
            expected.len()
        );
        // It has finished: none is left of all that died.
        let left = self.disk.names(&self.databases);
        assert!(left.is_empty(), "seed {}: {}{left:?}", self.seed, self.told);
        (hits, self.felt)
    }
}

/// Backends that read each other's checkpoints.
const SETS: &[&[&str]] = &[
    &["hashmap", "reference"],
    &["fs"],
    #[cfg(feature = "rocksdb")]
    &["rocksdb"],
];

#[test]
fn jobs_that_are_killed_frozen_and_out_of_disk_space_end_with_the_right_rows() {
    let wanted = from_environment("HOLDFAST_SURVIVALS").unwrap_or(12);
    let felt = survive(SETS, wanted);
    assert!(felt > 0 || cfg!(not(target_os = "linux")));
}

/// As above with all jobs over RocksDB, of which the choice among backends leaves few.
#[cfg(feature = "rocksdb")]
#[test]
fn jobs_over_rocksdb_that_are_killed_frozen_and_out_of_disk_space_end_with_the_right_rows() {
    let wanted = from_environment("HOLDFAST_SURVIVALS").unwrap_or(8);
    survive(&[&["rocksdb"]], wanted);
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    text.parse().ok()
}

/// Runs so many jobs, and more until each blow has hit one; returns how often a full disk was noticed.
fn survive(sets: &[&'static [&'static str]], wanted: u64) -> u64 {
    let seed = from_environment("HOLDFAST_SEED").unwrap_or(20_130_117);
    println!(
        "HOLDFAST_SEED={seed}; full disks are {}",
        Disk::new(true, 1).what()
    );
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 9);
    let expected = rows_of(&input, &[]);
    assert!(expected.len() > 300);
    let next = AtomicU64::new(0);
    let felt = AtomicU64::new(0);
    let ended = AtomicU64::new(0);
    let hits = Mutex::new(BTreeMap::<Blow, u64>::new());
    let all_hit = || {
        let hits = hits.lock().unwrap();
        BLOWS.iter().all(|blow| hits.contains_key(blow))
    };
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= wanted && all_hit() {
                return;
            }
            assert!(number < wanted * 4, "some blow never hits a job that runs");
            let seed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9));
            println!("job {number}: seed {seed}");
            let (suffered, times) = Trial::new(seed, sets).run(number, &input, &expected);
            felt.fetch_add(times, Ordering::Relaxed);
            ended.fetch_add(1, Ordering::Relaxed);
            for hit in suffered {
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
    let felt = felt.into_inner();
    println!(
        "{} jobs ended with the right rows: {hits:?}; a full disk was noticed {felt} times",
        ended.into_inner()
    );
    felt
}
