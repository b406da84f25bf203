//! A whole job under the seeded simulation: deaths, frozen processes, cancels, stops, operators that fail, changes of parallelism, a
//! faulty store, and barriers in every mode. `HOLDFAST_SEED` runs one seed alone; `HOLDFAST_SEEDS` sets how many there are per test.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and a test says what it tried"
)]
mod job_support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use checkpoint_storage::{MemoryStore, StoreRoot, StreamOptions, UuidSource};
use job_support::ends::{self, Ends, ending, tail};
use job_support::{Count, Items, Ledger, settings, words};
use managed_state::keyed::{At, ListState, ValueState};
use managed_state::operator::{BroadcastState, OperatorStates};
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::{Failpoint, Failpoints};
use runtime_core::testing::{Simulation, SimulationReport, Trouble};
use runtime_core::{
    BroadcastOperator, BroadcastSide, CheckpointMode, CheckpointStore, ExecutionSettings,
    FolderCheckpoints, Job, JobEvent, KeyedOperator, MemoryCheckpoints, Out, States,
};
use state_api::access::{ListAccess, ValueAccess};
use state_api::{Clock, JobId, Result};

/// A word with its count, and its class.
type Counted = (String, u64);
/// Class, rank within the class, word, count.
type Ranked = (u64, u64, String, u64);
/// Name of the class, rank within it, word, count.
type Named = (String, u64, String, u64);

fn class_of(word: &str) -> u64 {
    u64::from(word.bytes().last().unwrap_or(0) % 4)
}

/// Numbers what comes in, by class.
#[derive(Clone, Default)]
struct Rank {
    rank: ValueState<u64>,
}

impl KeyedOperator for Rank {
    type Key = u64;
    type In = Counted;
    type Out = Ranked;

    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.rank = states.value("rank")?;
        Ok(())
    }

    fn process(
        &mut self,
        (word, count): Counted,
        at: &mut At<'_, u64>,
        out: &mut Out<'_, Ranked>,
    ) -> Result<()> {
        let rank = at.value(self.rank).update(|n| {
            *n += 1;
            *n
        })?;
        out.emit((*at.key(), rank, word, count))
    }
}

/// Puts the name of its class on each record; those that come before the name wait for it.
#[derive(Clone, Default)]
struct Name {
    waiting: ListState<Ranked>,
    names: BroadcastState<u64, String>,
}

impl BroadcastOperator for Name {
    type Key = u64;
    type In = Ranked;
    type Broadcast = (u64, String);
    type Out = Named;

    fn open(&mut self, states: &mut States<'_, u64>, broadcast: &mut OperatorStates) -> Result<()> {
        self.waiting = states.list("waiting")?;
        self.names = broadcast.broadcast("names")?;
        Ok(())
    }

    fn process(
        &mut self,
        (class, rank, word, count): Ranked,
        at: &mut At<'_, u64>,
        broadcast: &OperatorStates,
        out: &mut Out<'_, Named>,
    ) -> Result<()> {
        match broadcast.entries(self.names)?.get(&class) {
            Some(name) => out.emit((name.clone(), rank, word, count)),
            None => at.list(self.waiting).push((class, rank, word, count)),
        }
    }

    fn process_broadcast(
        &mut self,
        (class, name): (u64, String),
        side: &mut BroadcastSide<'_, u64>,
        out: &mut Out<'_, Named>,
    ) -> Result<()> {
        let waiting = self.waiting;
        side.broadcast
            .entries_mut(self.names)?
            .insert(class, name.clone());
        side.keyed.for_each_key("waiting", &(), |at| {
            if *at.key() != class {
                return Ok(());
            }
            let records = at.list(waiting).get()?;
            at.list(waiting).clear()?;
            records
                .into_iter()
                .try_for_each(|(_, rank, word, count)| out.emit((name.clone(), rank, word, count)))
        })
    }
}

fn lines() -> Vec<String> {
    (0..300)
        .map(|i| format!("w{} w{} w{}", i % 7, i % 11, i % 13))
        .collect()
}

fn job(parallelism: u32, ledger: &Ledger<Named>) -> Job {
    job_of(lines(), parallelism, ledger)
}

fn job_of(lines: Vec<String>, parallelism: u32, ledger: &Ledger<Named>) -> Job {
    let job = Job::new("ranks").parallelism(parallelism);
    let names = (0..4).map(|class| (class, format!("class {class}")));
    let names = job
        .source("names", Items::new(names.collect(), 1))
        .parallelism(1);
    job.source("lines", Items::new(lines, 3))
        .flat_map(words)
        .persist_in_flight()
        .key_by_ref(|word: &String| word)
        .process("count", Count::default())
        .persist_in_flight()
        .key_by(|(word, _): &Counted| class_of(word))
        .process("rank", Rank::default())
        .key_by(|(class, ..): &Ranked| *class)
        .connect_broadcast(&names, "name", Name::default())
        .persist_in_flight()
        .rebalance()
        .sink_exactly_once("out", ledger.clone());
    job
}

/// Says what is wrong with an output; nothing if every record is there once, and what came of a word was ranked in the order of its
/// counts: both operators have it by key, and between them it goes from one subtask to one other.
fn check(records: &[Named]) -> std::result::Result<(), String> {
    check_of(&lines(), records)
}

fn check_of(lines: &[String], records: &[Named]) -> std::result::Result<(), String> {
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for word in lines.iter().flat_map(|line| line.split(' ')) {
        *expected.entry(word.to_owned()).or_default() += 1;
    }
    let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut ranks: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut ranked: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for (name, rank, word, count) in records {
        if *name != format!("class {}", class_of(word)) {
            return Err(format!("{word} is in {name}"));
        }
        counts.entry(word).or_default().push(*count);
        ranks.entry(name).or_default().push(*rank);
        ranked.insert((word, *count), *rank);
    }
    for (word, count) in &expected {
        let mut seen = counts.remove(word.as_str()).unwrap_or_default();
        seen.sort_unstable();
        if seen != (1..=*count).collect::<Vec<_>>() {
            return Err(format!(
                "{word} has the counts {seen:?} instead of 1 to {count}"
            ));
        }
    }
    // By word, and by count.
    for (((word, count), rank), ((next, next_count), next_rank)) in
        ranked.iter().zip(ranked.iter().skip(1))
    {
        if word == next && rank >= next_rank {
            return Err(format!(
                "{word} has rank {rank} at count {count} and {next_rank} at {next_count}"
            ));
        }
    }
    for (name, mut seen) in ranks {
        seen.sort_unstable();
        if seen != (1..=seen.len() as u64).collect::<Vec<_>>() {
            return Err(format!("{name} has the ranks {seen:?}"));
        }
    }
    Ok(())
}

/// How barriers pass queued records.
#[derive(Clone, Copy)]
enum Barriers {
    Aligned,
    Unaligned,
    /// After so many milliseconds.
    Timeout(u64),
}

fn settings_of(barriers: Barriers) -> ExecutionSettings {
    let (unaligned, timeout) = match barriers {
        Barriers::Aligned => (false, 0),
        Barriers::Unaligned => (true, 0),
        Barriers::Timeout(timeout) => (true, timeout),
    };
    let settings = settings(10);
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            tolerable_failures: CoordinatorConfig::UNLIMITED,
            timeout: Duration::from_secs(5),
            unaligned,
            aligned_timeout: Duration::from_millis(timeout),
            ..settings.checkpointing
        },
        ..settings
    }
}

/// Everything but settings of the seed's own.
fn trouble() -> Trouble {
    Trouble {
        settings: false,
        ..Trouble::some()
    }
}

fn simulation(seed: u64, settings: ExecutionSettings, trouble: Trouble) -> Simulation {
    let backend = Arc::new(backend_hashmap::HashMapBackend);
    telling(Simulation::new(seed, backend, settings).trouble(trouble))
}

/// Lets one seed that runs alone tell what happens.
fn telling(simulation: Simulation) -> Simulation {
    if std::env::var_os("HOLDFAST_SEED").is_none() {
        return simulation;
    }
    let clock = simulation.clock();
    let tell = move |event: &JobEvent| println!("{} ms: {event:?}", clock.now_ms());
    simulation.events(Arc::new(tell))
}

fn simulate(simulation: Simulation) -> Result<(std::result::Result<(), String>, SimulationReport)> {
    simulate_into(&Ledger::new(), simulation)
}

fn simulate_into(
    ledger: &Ledger<Named>,
    simulation: Simulation,
) -> Result<(std::result::Result<(), String>, SimulationReport)> {
    let report = simulation.run(|parallelism| job(parallelism, ledger))?;
    Ok((check(&ledger.records()), report))
}

fn seeds(first: u64, default: u64) -> std::ops::Range<u64> {
    let of = |name| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().expect("a number"))
    };
    match of("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + of("HOLDFAST_SEEDS").unwrap_or(default),
    }
}

/// Commits of a run that may go wrong.
const COMMIT_FAULTS: u32 = 2;

/// What many runs went through.
#[derive(Debug, Default)]
struct Tally {
    deaths: u64,
    thaws: u64,
    cancels: u64,
    stops: u64,
    failures: u64,
    failed: u64,
    /// Those that went wrong.
    commits: u64,
    faults: u64,
    checkpoints: u64,
    savepoints: u64,
}

impl Tally {
    fn add(&mut self, report: &SimulationReport) {
        self.deaths += u64::from(report.deaths);
        self.thaws += u64::from(report.thaws);
        self.cancels += u64::from(report.cancels);
        self.stops += u64::from(report.stops);
        self.failures += u64::from(report.failures);
        self.failed += u64::from(report.failed);
        self.faults += report.faults;
        self.checkpoints += report.outcome.checkpoints;
    }
}

/// Runs many seeds over stores of their own, and sees to it that trouble was had.
fn run_in<S>(
    first: u64,
    default: u64,
    barriers: Barriers,
    trouble: impl Fn(u64) -> Trouble,
    store: impl Fn(u64) -> S,
) -> Tally
where
    S: Fn() -> Arc<dyn CheckpointStore> + 'static,
{
    let mut tally = Tally::default();
    let seeds = seeds(first, default);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let simulation =
            simulation(seed, settings_of(barriers), trouble(seed)).checkpoints(store(seed));
        let ledger = Ledger::unsteady(seed, COMMIT_FAULTS);
        let (checked, report) =
            simulate_into(&ledger, simulation).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        tally.commits += u64::from(COMMIT_FAULTS - ledger.faults_left());
        if let Err(wrong) = checked {
            panic!("seed {seed}: {wrong}; {report:?}");
        }
        tally.add(&report);
    }
    println!("{count} seeds from {first}: {tally:?}");
    if count > 100 {
        assert!(tally.deaths > count / 2 && tally.thaws > count / 20 && tally.faults > count);
        assert!(tally.cancels > count / 10 && tally.stops > count / 8 && tally.failures > count);
        assert!(tally.checkpoints > count && tally.commits > count / 2);
    }
    tally
}

/// Runs many seeds over stores in memory.
fn run_all(first: u64, default: u64, barriers: Barriers, trouble: Trouble) -> Tally {
    let savepoints = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&savepoints);
    let mut tally = run_in(
        first,
        default,
        barriers,
        |_| trouble,
        move |_| {
            let store = MemoryCheckpoints::new();
            kept.borrow_mut().push(store.clone());
            move || Arc::new(store.clone()) as Arc<dyn CheckpointStore>
        },
    );
    let savepoints = savepoints.borrow();
    let count = savepoints.len() as u64;
    tally.savepoints = savepoints.iter().map(|s| s.savepoints().len() as u64).sum();
    println!("{} savepoints", tally.savepoints);
    assert!(count <= 100 || tally.savepoints > count / 4);
    tally
}

#[test]
fn k_759_every_run_ends_with_the_right_answer_whatever_its_settings() {
    let tally = run_all(400_000, 1_000, Barriers::Aligned, Trouble::some());
    assert!(tally.failed > 0 || std::env::var_os("HOLDFAST_SEED").is_some());
}

#[test]
fn k_759_every_aligned_run_ends_with_the_right_answer() {
    run_all(0, 200, Barriers::Aligned, trouble());
}

#[test]
fn k_759_every_unaligned_run_ends_with_the_right_answer() {
    run_all(100_000, 200, Barriers::Unaligned, trouble());
}

#[test]
fn k_759_every_run_that_turns_unaligned_after_a_timeout_ends_with_the_right_answer() {
    run_all(200_000, 200, Barriers::Timeout(3), trouble());
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 3..20 {
        let run = || {
            let ledger = Ledger::unsteady(seed, COMMIT_FAULTS);
            let report = simulation(seed, settings_of(Barriers::Timeout(2)), Trouble::some())
                .run(|parallelism| job(parallelism, &ledger))
                .unwrap();
            (report, ledger.records())
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Counts the seeds whose answer is wrong.
fn caught(make: impl Fn(u64) -> Simulation) -> usize {
    let wrong = |seed: &u64| simulate(make(*seed)).is_ok_and(|(checked, _)| checked.is_err());
    let caught = (0..60).filter(wrong).count();
    println!("{caught} of 60 seeds end with a wrong answer");
    caught
}

#[test]
fn with_alignment_off_the_simulation_notices() {
    let control = |seed| {
        let settings = ExecutionSettings {
            mode: CheckpointMode::AtLeastOnce,
            ..settings_of(Barriers::Aligned)
        };
        simulation(seed, settings, trouble())
    };
    assert!(caught(control) > 0);
}

#[test]
fn with_fencing_off_the_simulation_notices() {
    let control = |seed| {
        let trouble = Trouble {
            thaws: 3,
            ..trouble()
        };
        let store = MemoryCheckpoints::unfenced();
        simulation(seed, settings_of(Barriers::Aligned), trouble)
            .checkpoints(move || Arc::new(store.clone()))
    };
    assert!(caught(control) > 0);
}

#[test]
fn with_carry_over_off_the_simulation_notices() {
    let control = |seed| {
        let trouble = trouble();
        simulation(seed, settings_of(Barriers::Aligned), trouble)
            .failpoints(Failpoints::new(|point| point == Failpoint::CarryOver))
    };
    assert!(caught(control) > 0);
}

#[test]
fn with_records_in_flight_dropped_the_simulation_notices() {
    let control = |seed| {
        simulation(seed, settings_of(Barriers::Unaligned), trouble())
            .failpoints(Failpoints::new(|point| point == Failpoint::InFlight))
    };
    assert!(caught(control) > 0);
}

/// Makes the stores of a job's attempts, in one folder; what is longer than `threshold` bytes is an object of its own.
fn in_folder(root: StoreRoot, seed: u64, threshold: i64) -> impl Fn() -> Arc<dyn CheckpointStore> {
    let attempts = AtomicU64::new(0);
    move || {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        let store = FolderCheckpoints::new(
            root.folder("checkpoints"),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(seed * 1_000 + attempt),
            StreamOptions::new(threshold, 64).unwrap(),
        );
        Arc::new(store.savepoints(root.folder("savepoints")))
    }
}

#[test]
fn k_759_every_run_whose_state_is_read_from_objects_ends_with_the_right_answer() {
    let trouble = |seed| {
        let mut trouble = Trouble::some();
        // Each restore reads many objects.
        trouble.store.read = [0, 3, 10][(seed % 3) as usize];
        trouble
    };
    let folders = |seed| {
        let root = StoreRoot::memory(&MemoryStore::new(), "all");
        in_folder(root, seed, 0)
    };
    let tally = run_in(500_000, 150, Barriers::Aligned, trouble, folders);
    assert!(tally.failed > 0 || std::env::var_os("HOLDFAST_SEED").is_some());
}

/// Every operator emits something at the end of its input; the job always has the same parallelism.
fn run_to_the_end(first: u64, barriers: Barriers) {
    let lines: Vec<String> = lines().split_off(200);
    for seed in seeds(first, 150) {
        let store = MemoryCheckpoints::new();
        let simulation = simulation(seed, settings_of(barriers), trouble())
            .checkpoints(move || Arc::new(store.clone()));
        let ledger = Ledger::unsteady(seed, COMMIT_FAULTS);
        let report = simulation.run(|_| {
            let job = Job::new("ends").parallelism(2);
            ending(&job, "one", (&lines, 3), Ends::new(tail), &ledger);
            job
        });
        let report = report.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if let Err(wrong) = ends::check(&ledger.records(), &lines, 2) {
            panic!("seed {seed}: {wrong}; {report:?}");
        }
    }
}

#[test]
fn every_operator_learns_of_the_end_once_in_an_aligned_run() {
    run_to_the_end(600_000, Barriers::Aligned);
}

#[test]
fn every_operator_learns_of_the_end_once_in_an_unaligned_run() {
    run_to_the_end(700_000, Barriers::Unaligned);
}

/// Checkpoints that go on top of one another, with objects of their own in a folder.
#[cfg(feature = "fs")]
mod on_change_streams {
    use std::sync::Mutex;

    use backend_fs::{BackgroundBases, ChangeStreams, FsConfig};
    use checkpoint_storage::{StoredCheckpoint, verify};
    use futures_util::FutureExt;
    use state_api::{BackendContext, BackendFactory, KeyedBackend};

    use super::*;

    /// The backend, with bases that are due at the second stream of changes, and what becomes of them.
    #[derive(Default)]
    struct ManyBases(Arc<Mutex<Vec<BackgroundBases>>>);

    impl BackendFactory for ManyBases {
        fn name(&self) -> &str {
            "fs"
        }

        fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
            let config = FsConfig {
                change_ratio: 1e-6,
                max_streams: 4,
                ..FsConfig::default()
            };
            let strategy = ChangeStreams::new(config, cx);
            self.0.lock().unwrap().push(strategy.background_bases());
            Ok(KeyedBackend::Live(Box::new(strategy)))
        }
    }

    /// What a run leaves: its objects, and what became of its bases.
    struct Left {
        root: StoreRoot,
        bases: Arc<Mutex<Vec<BackgroundBases>>>,
    }

    /// Several checkpoints are in flight at a time, and writing fails twice as often as elsewhere.
    fn simulation(seed: u64, threshold: i64) -> (Simulation, Left) {
        let backend = ManyBases::default();
        let bases = Arc::clone(&backend.0);
        let settings = settings_of(Barriers::Aligned);
        let settings = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                max_concurrent: 3,
                ..settings.checkpointing
            },
            ..settings
        };
        let root = StoreRoot::memory(&MemoryStore::new(), "all");
        let mut trouble = trouble();
        // Another parallelism starts with bases anew.
        trouble.max_parallelism = 2;
        trouble.store.write = 20;
        let simulation = Simulation::new(seed, Arc::new(backend), settings)
            .trouble(trouble)
            .checkpoints(in_folder(root.clone(), seed, threshold));
        (telling(simulation), Left { root, bases })
    }

    /// Reads every object of the last checkpoint that is there; returns their number.
    fn verified(root: &StoreRoot) -> u64 {
        let folders = root.list("checkpoints").now_or_never().unwrap().unwrap();
        let read = |name: &str| {
            let folder = root.folder("checkpoints");
            let read = StoredCheckpoint::read(&folder, name).now_or_never();
            read.unwrap().ok()
        };
        let stored = folders.iter().filter_map(|entry| read(&entry.name));
        let Some(last) = stored.max_by_key(|stored| stored.metadata.checkpoint) else {
            return 0;
        };
        let report = verify(&last, []).now_or_never().unwrap().unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        report.objects as u64
    }

    /// Few words that come again and again, and many that come once: most of the counts stay as they are.
    fn lines() -> Vec<String> {
        (0..900).map(|i| format!("w{} x{i} y{i}", i % 7)).collect()
    }

    fn simulate(simulation: Simulation) -> Result<SimulationReport> {
        let ledger = Ledger::new();
        let report = simulation.run(|parallelism| job_of(lines(), parallelism, &ledger))?;
        if let Err(wrong) = check_of(&lines(), &ledger.records()) {
            panic!("{wrong}; {report:?}");
        }
        Ok(report)
    }

    #[test]
    fn every_run_ends_with_the_right_answer_and_a_checkpoint_that_is_whole() {
        let (mut deaths, mut faults, mut objects, mut written, mut failed) = (0, 0, 0, 0, 0);
        let seeds = seeds(300_000, 30);
        let count = seeds.end - seeds.start;
        for seed in seeds {
            // All objects, or some of each.
            let threshold = [0, 400][(seed % 2) as usize];
            let (simulation, left) = simulation(seed, threshold);
            println!("seed {seed}");
            let report = simulate(simulation).unwrap();
            objects += verified(&left.root);
            for bases in left.bases.lock().unwrap().iter() {
                written += bases.count();
                failed += bases.failures();
            }
            deaths += u64::from(report.deaths);
            faults += report.faults;
        }
        println!(
            "{count} seeds: {deaths} deaths, {faults} faults, {objects} objects, {written} bases written, {failed} not"
        );
        if count >= 30 {
            assert!(deaths > count && faults > count && objects > count);
            assert!(written > count / 3, "{written} bases");
        }
    }
}
