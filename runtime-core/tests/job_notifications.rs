//! Who is told that a checkpoint is complete or given up, and what follows when telling fails.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use backend_hashmap::HashMapSnapshots;
use futures_util::future::LocalBoxFuture;
use job_support::{
    Count, Items, Ledger, expected, lines, parts, settings, totals, with_memory, words,
};
use managed_state::keyed::At;
use managed_state::operator::OperatorStates;
use managed_state::raw::RawStreams;
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobParts, KeyedOperator, Operator, Out, States,
};
use state_api::{
    BackendContext, BackendFactory, CheckpointId, Error, FrozenTables, KeyedBackend, KeyedHandle,
    LiveSnapshots, LoadTables, RestoreContext, Result, Snapshot, SnapshotRequest,
};

/// Which hook was called, of which checkpoint and operator.
type Call = (&'static str, u64, &'static str);

/// Which calls were made, and which shall fail once.
#[derive(Clone, Default)]
struct Told {
    calls: Arc<Mutex<Vec<Call>>>,
    fails: Arc<Mutex<Vec<(&'static str, &'static str)>>>,
}

impl Told {
    fn note(&self, call: &'static str, id: CheckpointId, uid: &'static str) -> Result<()> {
        self.calls.lock().unwrap().push((call, id.0, uid));
        self.fail(call, uid)
    }

    fn fail(&self, call: &'static str, uid: &'static str) -> Result<()> {
        let mut fails = self.fails.lock().unwrap();
        match fails.iter().position(|fail| *fail == (call, uid)) {
            Some(at) => {
                fails.remove(at);
                Err(Error::user(format!("{call} of {uid} fails")))
            }
            None => Ok(()),
        }
    }

    fn fails(self, call: &'static str, uid: &'static str) -> Self {
        self.fails.lock().unwrap().push((call, uid));
        self
    }

    /// How often each operator was told of a checkpoint.
    fn of(&self, call: &str, id: u64) -> BTreeMap<&'static str, usize> {
        let mut times = BTreeMap::new();
        for (_, _, uid) in self
            .calls
            .lock()
            .unwrap()
            .iter()
            .filter(|(made, of, _)| *made == call && *of == id)
        {
            *times.entry(*uid).or_default() += 1;
        }
        times
    }

    /// The first checkpoint of which anybody was told this.
    fn first(&self, call: &str) -> u64 {
        let calls = self.calls.lock().unwrap();
        let mut of = calls.iter().filter(|(made, ..)| *made == call);
        of.next().expect("somebody was told").1
    }
}

#[derive(Clone)]
struct Plain {
    uid: &'static str,
    told: Told,
}

impl Operator for Plain {
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

    fn snapshot(&mut self, _: &mut OperatorStates, _: &mut RawStreams) -> Result<()> {
        self.told.fail("snapshot", self.uid)
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.note("completed", checkpoint, self.uid)
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.note("aborted", checkpoint, self.uid)
    }
}

/// Counts words, and is told.
#[derive(Clone)]
struct ToldCount {
    count: Count,
    told: Told,
}

impl KeyedOperator for ToldCount {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.count.open(states)
    }

    fn process(
        &mut self,
        word: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, (String, u64)>,
    ) -> Result<()> {
        self.count.process(word, at, out)
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.note("completed", checkpoint, "count")
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.note("aborted", checkpoint, "count")
    }
}

/// Keeps state in memory, and is told.
struct ToldBackend(Told);

impl BackendFactory for ToldBackend {
    fn name(&self) -> &str {
        "told"
    }

    fn create(&self, _: &BackendContext) -> Result<KeyedBackend> {
        let snapshots = ToldSnapshots(self.0.clone());
        Ok(KeyedBackend::Live(Box::new(snapshots)))
    }
}

struct ToldSnapshots(Told);

impl LiveSnapshots for ToldSnapshots {
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        HashMapSnapshots.snapshot(request, tables)
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { HashMapSnapshots.restore(handles, cx, tables).await })
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.0.note("completed", checkpoint, "backend")
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.0.note("aborted", checkpoint, "backend")
    }
}

/// Three operators chained to the source, and a keyed one behind an exchange.
fn job(lines: &[String], parallelism: u32, told: &Told, ledger: &Ledger<(String, u64)>) -> Job {
    let plain = |uid| Plain {
        uid,
        told: told.clone(),
    };
    let job = Job::new("wordcount").parallelism(parallelism);
    job.source("lines", Items::new(lines.to_vec(), 4))
        .operator("first", plain("first"))
        .operator("second", plain("second"))
        .operator("third", plain("third"))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process(
            "count",
            ToldCount {
                count: Count::default(),
                told: told.clone(),
            },
        )
        .sink_exactly_once("out", ledger.clone());
    job
}

fn tolerant() -> ExecutionSettings {
    let settings = settings(10);
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            tolerable_failures: 10,
            ..settings.checkpointing.clone()
        },
        ..settings
    }
}

/// Collects the text of the errors that runs failed with, causes and context included.
fn with_errors(parts: JobParts) -> (JobParts, Arc<Mutex<Vec<String>>>) {
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let ours = Arc::clone(&errors);
    let events = move |event: &JobEvent| {
        if let JobEvent::RunFailed { error, .. } = event {
            ours.lock().unwrap().push(format!("{error:?} {error}"));
        }
    };
    let events = Arc::new(events);
    (JobParts { events, ..parts }, errors)
}

#[test]
fn k_595_k_765_every_operator_and_backend_of_every_subtask_hears_of_completion_and_abort() {
    for seed in 0..6 {
        let (lines, ledger) = (lines(400), Ledger::new());
        let told = Told::default().fails("snapshot", "second");
        let (mut parts, _) = with_memory(parts());
        parts.backend = Arc::new(ToldBackend(told.clone()));
        let outcome = Driver::new(seed)
            .run(&job(&lines, 2, &told, &ledger), &tolerant(), parts)
            .unwrap();
        assert_eq!((outcome.restarts, outcome.aborted), (0, 1), "seed {seed}");
        let all = ["backend", "count", "first", "second", "third"].map(|uid| (uid, 2));
        let (aborted, completed) = (told.first("aborted"), told.first("completed"));
        assert_eq!(told.of("aborted", aborted), all.into(), "seed {seed}");
        assert!(told.of("completed", aborted).is_empty());
        assert_eq!(told.of("completed", completed), all.into(), "seed {seed}");
        assert!(told.of("aborted", completed).is_empty());
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn k_611_after_a_completion_hook_that_fails_the_other_operators_are_told_and_the_first_error_counts()
 {
    let (lines, ledger) = (lines(400), Ledger::new());
    let told = Told::default()
        .fails("completed", "first")
        .fails("completed", "second");
    let (parts, errors) = with_errors(with_memory(parts()).0);
    let outcome = Driver::new(2)
        .run(&job(&lines, 1, &told, &ledger), &settings(10), parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    let of_chain = told.of("completed", told.first("completed"));
    for uid in ["first", "second", "third"] {
        assert_eq!(of_chain.get(uid), Some(&1), "{uid}");
    }
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 1);
    // Operators are told tail first.
    let (first, second) = (
        errors[0].find("completed of second fails").unwrap(),
        errors[0].find("completed of first fails").unwrap(),
    );
    assert!(first < second, "{}", errors[0]);
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn k_611_after_an_abort_hook_that_fails_the_other_operators_are_told_and_the_first_error_counts() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let told = Told::default()
        .fails("snapshot", "third")
        .fails("aborted", "first")
        .fails("aborted", "third");
    let (parts, errors) = with_errors(with_memory(parts()).0);
    let outcome = Driver::new(3)
        .run(&job(&lines, 1, &told, &ledger), &tolerant(), parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    let of_chain = told.of("aborted", told.first("aborted"));
    for uid in ["first", "second", "third"] {
        assert_eq!(of_chain.get(uid), Some(&1), "{uid}");
    }
    let errors = errors.lock().unwrap();
    assert!(
        errors[0].contains("aborted of third fails"),
        "{}",
        errors[0]
    );
    assert!(
        errors[0].contains("aborted of first fails"),
        "{}",
        errors[0]
    );
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

/// The hooks of a run that was cut off tell nobody of the run before.
#[test]
fn a_restart_tells_nobody_of_checkpoints_of_the_run_before() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let told = Told::default();
    let failed = AtomicBool::new(false);
    let job = Job::new("wordcount");
    job.source("lines", Items::new(lines.clone(), 4))
        .operator(
            "first",
            Plain {
                uid: "first",
                told: told.clone(),
            },
        )
        .try_map(move |line| {
            if line.starts_with("w5 w2") && !failed.swap(true, Ordering::Relaxed) {
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process(
            "count",
            ToldCount {
                count: Count::default(),
                told: told.clone(),
            },
        )
        .sink_exactly_once("out", ledger.clone());
    let (parts, _) = with_memory(parts());
    let outcome = Driver::new(5)
        .budget(2)
        .run(&job, &settings(10), parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    let calls = told.calls.lock().unwrap();
    let mut completed: Vec<_> = calls
        .iter()
        .filter(|(call, ..)| *call == "completed")
        .collect();
    let all = completed.len();
    completed.sort();
    completed.dedup();
    assert_eq!(completed.len(), all, "nobody is told twice");
    assert_eq!(totals(&ledger.records()), expected(&lines));
}
