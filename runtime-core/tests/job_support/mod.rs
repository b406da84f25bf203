//! What the tests of whole jobs share: a source over a list, sinks that collect, and a word count.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "each test file uses a part of it"
)]
pub mod ends;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backend_testkit::fuzz::Random;
use futures_util::FutureExt;
use managed_state::keyed::{At, ValueState};
use managed_state::operator::OperatorStates;
use managed_state::raw::RawStreams;
use runtime_core::coordinator::{CoordinatorConfig, Retention};
use runtime_core::execution::{JobControl, Reply};
use runtime_core::restart::{FixedDelay, RestartStrategy};
use runtime_core::sink::{CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter};
use runtime_core::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobParts, KeyedOperator, MemoryCheckpoints, Operator, Out,
    Record, States,
};
use state_api::access::ValueAccess;
use state_api::{CheckpointId, Clock, Error, ManualClock, Result};

/// Reads a list; split `(from, to)` is a range of indexes.
#[derive(Clone)]
pub struct Items<T> {
    items: Arc<Vec<T>>,
    splits: u64,
}

impl<T> Items<T> {
    pub fn new(items: Vec<T>, splits: u64) -> Self {
        Self {
            items: Arc::new(items),
            splits,
        }
    }
}

impl<T: Record + Sync> Source for Items<T> {
    type Out = T;
    type Split = (u64, u64);
    type Reader = ItemsReader<T>;

    fn enumerate(&self, _parallelism: u32) -> Result<Vec<(u64, u64)>> {
        let len = self.items.len() as u64;
        let per = len.div_ceil(self.splits).max(1);
        Ok((0..self.splits)
            .map(|i| ((i * per).min(len), ((i + 1) * per).min(len)))
            .filter(|(a, b)| a < b)
            .collect())
    }

    fn reader(&self, _cx: &SourceContext, splits: Vec<(u64, u64)>) -> Result<ItemsReader<T>> {
        Ok(ItemsReader {
            items: Arc::clone(&self.items),
            splits,
            started: false,
        })
    }
}

pub struct ItemsReader<T> {
    items: Arc<Vec<T>>,
    splits: Vec<(u64, u64)>,
    started: bool,
}

impl<T: Record + Sync> SourceReader for ItemsReader<T> {
    type Out = T;
    type Split = (u64, u64);

    fn poll(&mut self, out: &mut SourceOutput<'_, T>) -> Result<SourceStatus> {
        if !self.started {
            self.started = true;
            for (_, end) in &self.splits {
                out.start_split(*end)?;
            }
        }
        while let Some((next, end)) = self.splits.first_mut() {
            out.select_split(*end)?;
            while next < end {
                if out.is_full() {
                    return Ok(SourceStatus::More);
                }
                *next += 1;
                out.emit(self.items[*next as usize - 1].clone())?;
            }
            out.finish_split(*end)?;
            self.splits.remove(0);
        }
        Ok(SourceStatus::Finished)
    }

    fn snapshot(&mut self) -> Result<Vec<(u64, u64)>> {
        Ok(self.splits.clone())
    }
}

/// What a transactional sink has made visible, and what it has only prepared.
pub struct Ledger<T> {
    inner: Arc<Mutex<LedgerInner<T>>>,
}

impl<T> Clone for Ledger<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct LedgerInner<T> {
    next: u64,
    prepared: BTreeMap<u64, Vec<T>>,
    committed: BTreeMap<u64, Vec<T>>,
    /// Commits that go wrong are drawn from here, as long as there are some left.
    faults: Random,
    faults_left: u32,
}

/// What goes wrong with a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitFault {
    Fails,
    IsPutOff,
    FailsAfterwards,
}

impl<T> LedgerInner<T> {
    fn draw_fault(&mut self) -> Option<CommitFault> {
        if self.faults_left == 0 || !self.faults.number().is_multiple_of(6) {
            return None;
        }
        self.faults_left -= 1;
        let all = [
            CommitFault::Fails,
            CommitFault::IsPutOff,
            CommitFault::FailsAfterwards,
        ];
        Some(all[(self.faults.number() % 3) as usize])
    }
}

impl<T: Clone> Ledger<T> {
    pub fn new() -> Self {
        Self::unsteady(0, 0)
    }

    /// Some commits go wrong: one fails, or is to be tried again later, or is made and fails all the same.
    pub fn unsteady(seed: u64, faults: u32) -> Self {
        let inner = LedgerInner {
            next: 1,
            prepared: BTreeMap::new(),
            committed: BTreeMap::new(),
            faults: Random::new(seed),
            faults_left: faults,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// How many commits may still go wrong.
    pub fn faults_left(&self) -> u32 {
        self.inner.lock().unwrap().faults_left
    }

    /// How many transactions have ended and are not visible.
    pub fn prepared(&self) -> usize {
        self.inner.lock().unwrap().prepared.len()
    }

    /// The visible records in the order of their transactions.
    pub fn records(&self) -> Vec<T> {
        self.inner
            .lock()
            .unwrap()
            .committed
            .values()
            .flatten()
            .cloned()
            .collect()
    }
}

impl<T: Record> TwoPhaseSink for Ledger<T> {
    type In = T;
    type Transaction = u64;
    type Writer = LedgerWriter<T>;

    fn writer(&self, _cx: &SinkContext) -> Result<LedgerWriter<T>> {
        Ok(LedgerWriter {
            ledger: self.clone(),
            open: Vec::new(),
        })
    }
}

pub struct LedgerWriter<T> {
    ledger: Ledger<T>,
    open: Vec<T>,
}

impl<T: Record> TwoPhaseWriter for LedgerWriter<T> {
    type In = T;
    type Transaction = u64;

    fn write(&mut self, record: T, _time_ms: Option<i64>) -> Result<()> {
        self.open.push(record);
        Ok(())
    }

    fn pre_commit(&mut self, _checkpoint: CheckpointId) -> Result<Option<PreCommitted<u64>>> {
        if self.open.is_empty() {
            return Ok(None);
        }
        let mut inner = self.ledger.inner.lock().unwrap();
        let transaction = inner.next;
        inner.next += 1;
        let records = std::mem::take(&mut self.open);
        inner.prepared.insert(transaction, records);
        Ok(Some(PreCommitted {
            transaction,
            harden: None,
        }))
    }

    fn commit(&mut self, transaction: &u64) -> Result<CommitOutcome> {
        let mut inner = self.ledger.inner.lock().unwrap();
        let fault = inner.draw_fault();
        match fault {
            Some(CommitFault::Fails) => return Err(Error::user("a commit fails")),
            Some(CommitFault::IsPutOff) => {
                let busy = Error::retryable("the ledger is busy");
                return Ok(CommitOutcome::RetryLater(busy));
            }
            Some(CommitFault::FailsAfterwards) | None => {}
        }
        if let Some(records) = inner.prepared.remove(transaction) {
            inner.committed.insert(*transaction, records);
        }
        assert!(
            inner.committed.contains_key(transaction),
            "transaction {transaction} is gone"
        );
        match fault {
            Some(_) => Err(Error::user("a commit is made, and its answer is lost")),
            None => Ok(CommitOutcome::Committed),
        }
    }

    fn recover_and_abort(&mut self, _transaction: &u64) -> Result<()> {
        Ok(())
    }
}

/// Counts per key and emits each new count.
#[derive(Clone, Default)]
pub struct Count {
    count: ValueState<u64>,
}

impl KeyedOperator for Count {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.count = states.value("count")?;
        Ok(())
    }

    fn process(
        &mut self,
        word: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, (String, u64)>,
    ) -> Result<()> {
        let count = at.value(self.count).update(|n| {
            *n += 1;
            *n
        })?;
        out.emit((word, count))
    }
}

pub fn lines(n: usize) -> Vec<String> {
    (0..n)
        .map(|i| format!("w{} w{} w{}", i % 7, i % 11, i % 13))
        .collect()
}

/// The greatest count per word; every count up to it must be there once.
pub fn totals(records: &[(String, u64)]) -> BTreeMap<String, u64> {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (word, count) in records {
        seen.entry(word.clone()).or_default().push(*count);
    }
    seen.into_iter()
        .map(|(word, mut counts)| {
            counts.sort_unstable();
            assert_eq!(
                counts,
                (1..=counts.len() as u64).collect::<Vec<_>>(),
                "counts of {word}"
            );
            (word, counts.len() as u64)
        })
        .collect()
}

pub fn expected(lines: &[String]) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::new();
    for word in lines.iter().flat_map(|line| line.split(' ')) {
        *totals.entry(word.to_owned()).or_default() += 1;
    }
    totals
}

pub fn words(line: String) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

pub fn settings(interval_ms: u64) -> ExecutionSettings {
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            interval: Some(Duration::from_millis(interval_ms)),
            retention: Retention::Always,
            ..CoordinatorConfig::default()
        },
        restart: RestartStrategy::FixedDelay(FixedDelay {
            attempts: 1000,
            delay: Duration::from_millis(1),
        }),
        ..ExecutionSettings::new("wordcount").unwrap()
    }
}

pub fn parts() -> JobParts {
    JobParts::new(
        Arc::new(backend_hashmap::HashMapBackend),
        Arc::new(ManualClock::default()) as Arc<dyn Clock>,
    )
}

pub fn with_memory(parts: JobParts) -> (JobParts, MemoryCheckpoints) {
    let store = MemoryCheckpoints::new();
    (parts.checkpoints(Arc::new(store.clone())), store)
}

/// The word count over a list of lines.
pub fn wordcount(lines: &[String], parallelism: u32, ledger: &Ledger<(String, u64)>) -> Job {
    let job = Job::new("wordcount").parallelism(parallelism);
    job.source("lines", Items::new(lines.to_vec(), 4))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}

/// Calls `ask` at each event, with the control of the job that the driver runs next.
pub fn asking(
    driver: &Driver,
    parts: JobParts,
    ask: impl Fn(&JobControl, &JobEvent) + Send + Sync + 'static,
) -> JobParts {
    let control = driver.control();
    JobParts {
        events: Arc::new(move |event: &JobEvent| ask(&control, event)),
        ..parts
    }
}

pub fn now<T>(reply: Reply<T>) -> Result<T, Error> {
    reply.now_or_never().expect("the job has ended")
}

pub fn without_interval() -> ExecutionSettings {
    let settings = settings(10);
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            interval: None,
            ..settings.checkpointing
        },
        ..settings
    }
}

/// Passes records on, and does what it is told at each snapshot and completion.
#[derive(Clone)]
pub struct Hooked {
    pub snapshot: Arc<dyn Fn() -> Result<()> + Send + Sync>,
    pub completed: Arc<dyn Fn(CheckpointId) -> Result<()> + Send + Sync>,
}

impl Hooked {
    pub fn new() -> Self {
        Self {
            snapshot: Arc::new(|| Ok(())),
            completed: Arc::new(|_| Ok(())),
        }
    }
}

impl Operator for Hooked {
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
        (self.snapshot)()
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        (self.completed)(checkpoint)
    }
}

/// The word count with a hooked operator in front, at parallelism 2.
pub fn hooked(lines: &[String], ledger: &Ledger<(String, u64)>, hook: Hooked) -> Job {
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.to_vec(), 4))
        .operator("hooked", hook)
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}
