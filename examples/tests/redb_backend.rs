//! The backend over redb under the contract of all backends, and what its increments cost and share.
use std::sync::Arc;
use std::time::Duration;

use backend_testkit::{Checkpoint, Job, MemoryStorage, Mode, Setup, fails};
use examples::redb_backend::{NAME, RedbBackend};
use managed_state::keyed::{At, KeyedStates, ValueState};
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::sinks::TransactionalCollect;
use runtime_core::sources::Generator;
use runtime_core::testing::{Simulation, Trouble};
use runtime_core::{ExecutionSettings, KeyedOperator, Out, States};
use state_api::access::ValueAccess;
use state_api::*;

backend_testkit::conformance!(RedbBackend);
backend_testkit::byte_store_conformance!(store);

fn context(options: &[(&str, &str)]) -> BackendContext {
    let max_parallelism = MaxParallelism::new(16).unwrap();
    let subtask = Subtask { index: 0, parallelism: 1 };
    BackendContext {
        job: JobId::new("job").unwrap(),
        operator: OperatorUid::new("operator").unwrap(),
        subtask,
        max_parallelism,
        range: max_parallelism.range_of(subtask).unwrap(),
        local_dir: std::env::temp_dir(),
        clock: Arc::new(ManualClock::at(0)),
        options: options.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
    }
}

fn store() -> Box<dyn ByteStore> {
    match RedbBackend.create(&context(&[])) {
        Ok(KeyedBackend::Bytes(store)) => store,
        other => panic!("{other:?}"),
    }
}

type Counts = Job<u32, ValueState<u64>>;

fn counts(states: &mut KeyedStates<u32>) -> Result<ValueState<u64>> {
    states.value("count")
}

fn setup() -> Setup {
    Setup::new(Arc::new(RedbBackend), Mode::Direct).unwrap()
}

fn fill(job: &mut Counts, keys: impl IntoIterator<Item = u32>, value: u64) {
    for key in keys {
        job.at(&key, |at, state| at.value(state).set(value));
    }
}

fn read(job: &mut Counts, keys: std::ops::Range<u32>) -> Vec<Option<u64>> {
    keys.map(|key| job.at(&key, |at, state| at.value(state).get())).collect()
}

fn incremental(handle: &KeyedHandle) -> &IncrementalHandle {
    match handle {
        KeyedHandle::Incremental(handle) => handle,
        other => panic!("{other:?}"),
    }
}

fn new_bytes(checkpoint: &Checkpoint) -> u64 {
    checkpoint.all().map(|handle| incremental(handle).new_bytes).sum()
}

/// Names of the objects that checkpoints may share, by subtask.
fn shared(checkpoint: &Checkpoint) -> Vec<Vec<String>> {
    let names = |handle: &IncrementalHandle| handle.shared.iter().map(|file| file.name.to_string()).collect();
    checkpoint.all().map(|handle| names(incremental(handle))).collect()
}

fn stored(storage: &MemoryStorage) -> u64 {
    storage.names().iter().map(|name| storage.object(name).unwrap().len() as u64).sum()
}

#[test]
fn a_checkpoint_after_one_percent_of_the_keys_changed_writes_less_than_five_percent_of_the_bytes() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..20_000, 1);
    let full = new_bytes(&job.snapshot(SnapshotKind::Checkpoint));
    assert_eq!(stored(&setup.memory), full);
    fill(&mut job, (0..20_000).step_by(100), 2);
    let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
    let changes = new_bytes(&checkpoint);
    assert_eq!(stored(&setup.memory), full + changes);
    assert!(changes * 20 <= full, "{changes} of {full} bytes");
    assert!(changes * 20_000 >= full * 100, "200 keys in {changes} of {full} bytes");
    for parallelism in [3, 2] {
        job.revert_to(&checkpoint, parallelism);
        let values = read(&mut job, 0..20_000);
        let is_right = |(key, value): (usize, &Option<u64>)| *value == Some(if key % 100 == 0 { 2 } else { 1 });
        assert!(values.iter().enumerate().all(is_right), "parallelism {parallelism}");
    }
}

#[test]
fn a_checkpoint_without_changes_writes_nothing() {
    let mut job = setup().start(counts);
    fill(&mut job, 0..100, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    let second = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!((new_bytes(&second), shared(&second)), (0, shared(&first)));
}

#[test]
fn removed_keys_are_gone_after_a_restore() {
    let mut job = setup().start(counts);
    fill(&mut job, 0..100, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    for key in 10..20 {
        job.at(&key, |at, state| at.value(state).clear());
    }
    let second = job.snapshot(SnapshotKind::Checkpoint);
    assert!(shared(&second).iter().all(|names| names.len() == 2));
    job.revert_to(&second, 3);
    assert_eq!(job.entries("count"), 90);
    assert_eq!(read(&mut job, 9..21), [vec![Some(1)], vec![None; 10], vec![Some(1)]].concat());
}

#[test]
fn changes_of_a_declined_checkpoint_are_in_the_next_one() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..100, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    let declined = job.cut(SnapshotKind::Checkpoint).unwrap();
    let id = declined.id;
    declined.persist(&setup).unwrap();
    job.aborted(id).unwrap();
    // Late news about it changes nothing.
    job.completed(id).unwrap();
    fill(&mut job, 5..15, 3);
    let next = job.snapshot(SnapshotKind::Checkpoint);
    assert!(shared(&next).iter().flatten().all(|name| !name.ends_with(&format!("-{id}"))));
    job.revert_to(&next, 2);
    assert_eq!(read(&mut job, 0..16), [vec![Some(2); 5], vec![Some(3); 10], vec![Some(1)]].concat());
}

#[test]
fn a_long_chain_and_a_full_checkpoint_start_anew() {
    let mut job = setup().start_at(1, counts).unwrap();
    fill(&mut job, 0..1000, 0);
    let lens: Vec<usize> = (1..40)
        .map(|round| {
            fill(&mut job, 0..5, round);
            shared(&job.snapshot(SnapshotKind::Checkpoint))[0].len()
        })
        .collect();
    let expected: Vec<usize> = (1..=16).cycle().take(39).collect();
    assert_eq!(lens, expected);
    let full = shared(&job.snapshot(SnapshotKind::FullCheckpoint));
    assert_eq!(full.concat().len(), 1);
    fill(&mut job, 0..5, 41);
    assert_eq!(shared(&job.snapshot(SnapshotKind::Checkpoint))[0][0], full[0][0]);
    fill(&mut job, 0..501, 42);
    assert_eq!(shared(&job.snapshot(SnapshotKind::Checkpoint))[0].len(), 1);
}

#[test]
fn checkpoints_that_never_complete_cost_no_more_than_full_ones() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..100, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    for round in 2..30 {
        fill(&mut job, 0..20, round);
        let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
        let id = cut.id;
        let written = cut.persist(&setup).unwrap();
        assert!(new_bytes(&written) < 3_000, "{}", new_bytes(&written));
        job.aborted(id).unwrap();
    }
    let last = job.snapshot(SnapshotKind::Checkpoint);
    job.revert_to(&last, 3);
    assert_eq!(read(&mut job, 19..21), [Some(29), Some(1)]);
}

#[test]
fn a_restored_job_goes_on_from_its_checkpoint_unless_the_key_groups_are_others() {
    let setup = setup();
    let mut job = setup.start(counts);
    fill(&mut job, 0..100, 1);
    let before = job.snapshot(SnapshotKind::Checkpoint);
    let savepoint = job.snapshot(SnapshotKind::NativeSavepoint);
    for (from, parallelism, objects) in [(&before, 2, 2), (&before, 3, 1), (&savepoint, 2, 1)] {
        job.revert_to(from, parallelism);
        fill(&mut job, 0..10, 2);
        let next = job.snapshot(SnapshotKind::Checkpoint);
        assert!(shared(&next).iter().all(|names| names.len() == objects), "{:?}", shared(&next));
        job.revert_to(&next, 2);
        assert_eq!(read(&mut job, 0..100), [vec![Some(2); 10], vec![Some(1); 90]].concat());
    }
}

/// Numbers what it sees of each key.
#[derive(Clone, Default)]
struct Numbered(ValueState<u64>);

impl KeyedOperator for Numbered {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);

    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.0 = states.value("next")?;
        Ok(())
    }

    fn process(&mut self, _: u64, at: &mut At<'_, u64>, out: &mut Out<'_, (u64, u64)>) -> Result<()> {
        let number = at.value(self.0).update(|n| std::mem::replace(n, *n + 1))?;
        out.emit((*at.key(), number))
    }
}

#[test]
fn a_job_comes_through_crashes_rescaling_and_a_failing_store_with_the_right_answer() {
    let mut settings = ExecutionSettings::new("numbered").unwrap();
    settings.checkpointing.interval = Some(Duration::from_millis(10));
    settings.checkpointing.tolerable_failures = CoordinatorConfig::UNLIMITED;
    for seed in 0..25 {
        let output = TransactionalCollect::new();
        let simulation = Simulation::new(seed, Arc::new(RedbBackend), settings.clone()).trouble(Trouble::some());
        let report = simulation.run(|parallelism| {
            let job = runtime_core::Job::new("numbered").parallelism(parallelism);
            let records = job.source("records", Generator::new(|n| n).take(400).splits(2));
            let numbered = records.key_by(|n| n % 7).process("numbered", Numbered::default());
            numbered.sink_exactly_once("out", output.clone());
            job
        });
        let mut numbers = output.records();
        numbers.sort_unstable();
        let expected = (0..7).flat_map(|key| (0..(406 - key) / 7).map(move |n| (key, n)));
        assert!(numbers.into_iter().eq(expected), "seed {seed}: {report:?}");
    }
}

#[test]
fn an_unknown_option_or_a_bad_value_is_refused() {
    assert_eq!(RedbBackend.name(), NAME);
    assert!(RedbBackend.create(&context(&[("cache-size", "1048576")])).is_ok());
    for (name, text) in [("cache-size", "much"), ("cache", "1")] {
        let error = fails(ErrorKind::Config, RedbBackend.create(&context(&[(name, text)])));
        assert!(error.message().contains("cache-size"), "{error}");
    }
    let missing = BackendContext { local_dir: "/nowhere/at/all".into(), ..context(&[]) };
    let error = fails(ErrorKind::Retryable, RedbBackend.create(&missing));
    assert_eq!(error.context("folder"), Some("/nowhere/at/all"));
}

#[test]
fn the_backend_with_its_program_has_less_than_400_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let files = ["bin/redb.rs", "redb_backend/mod.rs", "redb_backend/store.rs", "redb_backend/increments.rs"];
    let lines = |file: &&str| std::fs::read_to_string(format!("{folder}/{file}")).unwrap().lines().count();
    let total: usize = files.iter().map(lines).sum();
    assert!(total < 400, "{total} lines");
    assert_eq!(std::fs::read_dir(format!("{folder}/redb_backend")).unwrap().count(), files.len() - 1);
}
