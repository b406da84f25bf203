//! The protocol against a broker in memory that has what librdkafka's mock lacks: transactions whose records are invisible until
//! they are committed, aborts, and fencing. Every crash point and every interleaving of two writers ends with each record once.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use state_api::{CheckpointId, Error, ErrorKind, Result, StateType};

use super::kafka_protocol::{Broker, KafkaTransaction, Protocol, Session};
use super::kafka_records::KafkaRecord;
use crate::sink::CommitOutcome;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// It never reached the broker.
    Lost,
    /// It took effect, and the answer was lost.
    Unanswered,
}

#[derive(Clone, Debug, Default)]
struct Open {
    records: Vec<u64>,
    mark: Option<u64>,
}

#[derive(Debug, Default)]
struct Lineage {
    epoch: u64,
    open: Option<Open>,
    /// Committed and not visible yet: the broker finishes it before anybody takes the lineage over.
    decided: Option<Open>,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    visible: Vec<u64>,
    marks: BTreeMap<String, u64>,
    lineages: BTreeMap<String, Lineage>,
    /// A broker that lets everybody write, to show that the tests would see it.
    no_fencing: bool,
}

impl Cluster {
    fn finish(&mut self, name: &str) {
        let lineage = self.lineages.entry(name.to_owned()).or_default();
        if let Some(decided) = lineage.decided.take() {
            self.visible.extend(decided.records);
            if let Some(mark) = decided.mark {
                self.marks.insert(name.to_owned(), mark);
            }
        }
    }

    fn lineage(&mut self, name: &str, epoch: u64) -> Result<&mut Lineage> {
        let no_fencing = self.no_fencing;
        let lineage = self.lineages.entry(name.to_owned()).or_default();
        if lineage.epoch != epoch && !no_fencing {
            return Err(Error::new(ErrorKind::Fenced, "another producer took over"));
        }
        Ok(lineage)
    }

    /// What consumers of committed records see in the end.
    pub(super) fn seen(&mut self) -> Vec<u64> {
        let names: Vec<String> = self.lineages.keys().cloned().collect();
        names.iter().for_each(|name| self.finish(name));
        let mut seen = self.visible.clone();
        seen.sort_unstable();
        seen
    }
}

#[derive(Clone)]
pub(super) struct Model {
    cluster: Arc<Mutex<Cluster>>,
    fate: Arc<dyn Fn() -> Fate + Send + Sync>,
}

impl Model {
    pub(super) fn new(
        cluster: &Arc<Mutex<Cluster>>,
        fate: impl Fn() -> Fate + Send + Sync + 'static,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            fate: Arc::new(fate),
        }
    }

    fn request<T>(&self, effect: impl FnOnce(&mut Cluster, Fate) -> Result<T>) -> Result<T> {
        let lost = || Err(Error::retryable("no answer"));
        let fate = (self.fate)();
        if fate == Fate::Lost {
            return lost();
        }
        let answer = effect(&mut self.cluster.lock().unwrap(), fate);
        if fate == Fate::Unanswered {
            return lost();
        }
        answer
    }
}

pub(super) struct ModelSession {
    model: Model,
    name: String,
    epoch: u64,
}

impl Broker for Model {
    type Session = ModelSession;

    fn take_over(&self, name: &str) -> Result<ModelSession> {
        let epoch = self.request(|cluster, _| {
            cluster.finish(name);
            let lineage = cluster.lineages.entry(name.to_owned()).or_default();
            lineage.open = None;
            lineage.epoch += 1;
            Ok(lineage.epoch)
        })?;
        Ok(ModelSession {
            model: self.clone(),
            name: name.to_owned(),
            epoch,
        })
    }
}

impl Session for ModelSession {
    fn mark(&mut self) -> Result<Option<u64>> {
        self.model.request(|cluster, _| {
            // Stable marks: what is decided is waited for.
            cluster.finish(&self.name);
            Ok(cluster.marks.get(&self.name).copied())
        })
    }

    fn begin(&mut self) -> Result<()> {
        self.model.request(|cluster, _| {
            cluster.lineage(&self.name, self.epoch)?.open = Some(Open::default());
            Ok(())
        })
    }

    fn produce(&mut self, record: KafkaRecord) -> Result<()> {
        let bytes = record.payload.unwrap().try_into().unwrap();
        self.model.request(|cluster, _| {
            let lineage = cluster.lineage(&self.name, self.epoch)?;
            let open = lineage.open.get_or_insert_default();
            open.records.push(u64::from_le_bytes(bytes));
            Ok(())
        })
    }

    fn set_mark(&mut self, sequence: u64) -> Result<()> {
        self.model.request(|cluster, _| {
            let lineage = cluster.lineage(&self.name, self.epoch)?;
            lineage.open.get_or_insert_default().mark = Some(sequence);
            Ok(())
        })
    }

    fn commit(&mut self) -> Result<()> {
        self.model.request(|cluster, fate| {
            let lineage = cluster.lineage(&self.name, self.epoch)?;
            lineage.decided = lineage.open.take();
            if fate == Fate::Answered {
                cluster.finish(&self.name);
            }
            Ok(())
        })
    }
}

pub(super) fn record(n: u64) -> KafkaRecord {
    KafkaRecord::new(n.to_le_bytes())
}

const RECORDS: u64 = 10;

/// A completed checkpoint.
#[derive(Clone, Default)]
struct Saved {
    id: u64,
    position: u64,
    transactions: Vec<KafkaTransaction>,
}

/// What survives a process.
#[derive(Default)]
struct World {
    cluster: Arc<Mutex<Cluster>>,
    saved: Saved,
    attempt: u64,
}

struct Task {
    protocol: Protocol<Model>,
    pending: Vec<(u64, KafkaTransaction)>,
}

impl Task {
    /// What the runtime does when a checkpoint is complete.
    fn complete(&mut self, id: u64) {
        let protocol = &mut self.protocol;
        self.pending.retain(|(of, transaction)| {
            *of > id
                || matches!(
                    protocol.commit(transaction).unwrap(),
                    CommitOutcome::RetryLater(_)
                )
        });
    }
}

impl World {
    /// Runs a process from the last completed checkpoint on; returns whether it came to its end. The `at`-th request of
    /// the process meets a fate; `dies` says that the process never learns it.
    fn run(&mut self, parallelism: usize, at: usize, fate: Fate, dies: bool) -> bool {
        self.attempt += 1;
        let requests = Arc::new(AtomicUsize::new(0));
        let dead = Arc::new(AtomicBool::new(false));
        let (counted, died) = (Arc::clone(&requests), Arc::clone(&dead));
        let model = Model::new(&self.cluster, move || {
            if died.load(Ordering::Relaxed) {
                return Fate::Lost;
            }
            if counted.fetch_add(1, Ordering::Relaxed) != at {
                return Fate::Answered;
            }
            died.store(dies, Ordering::Relaxed);
            fate
        });
        let mut tasks: Vec<Task> = (0..parallelism)
            .map(|index| Task {
                protocol: Protocol::new(
                    model.clone(),
                    format!("job.out.{}.{index}", self.attempt),
                    1 << 20,
                ),
                pending: Vec::new(),
            })
            .collect();
        let died = || dead.load(Ordering::Relaxed);
        // Dealt out anew, to other subtasks each time.
        let Saved {
            id,
            position,
            transactions,
        } = self.saved.clone();
        for (n, transaction) in transactions.into_iter().enumerate() {
            let task = &mut tasks[(n + self.attempt as usize) % parallelism];
            if let CommitOutcome::RetryLater(_) = task.protocol.commit(&transaction).unwrap() {
                task.pending.push((id, transaction));
            }
            if died() {
                return false;
            }
        }
        let mut id = id;
        for n in position..RECORDS {
            tasks[n as usize % parallelism]
                .protocol
                .add(&record(n))
                .unwrap();
            if n % 2 == 0 && n + 1 < RECORDS {
                continue;
            }
            id += 1;
            for task in &mut tasks {
                let ended = task.protocol.end(CheckpointId(id));
                task.pending.extend(ended.map(|ended| (id, ended)));
            }
            if id % 3 == 0 && n + 1 < RECORDS {
                continue; // Given up: its transactions go with the next one.
            }
            let all = tasks.iter().flat_map(|task| &task.pending);
            self.saved = Saved {
                id,
                position: n + 1,
                transactions: all.map(|(_, transaction)| transaction.clone()).collect(),
            };
            for task in &mut tasks {
                task.complete(id);
                if died() {
                    return false;
                }
            }
        }
        // Behind the last checkpoint the runtime tries again at once.
        tasks.iter_mut().for_each(|task| task.complete(id));
        tasks.iter().all(|task| task.pending.is_empty())
    }

    #[track_caller]
    fn assert_each_once(&self, about: &str) {
        let seen = self.cluster.lock().unwrap().seen();
        assert_eq!(seen, (0..RECORDS).collect::<Vec<_>>(), "{about}");
    }
}

const NEVER: usize = usize::MAX;

#[test]
fn k_717_k_727_a_crash_at_any_request_and_a_restore_at_any_parallelism_write_each_record_once() {
    let mut crashes = 0;
    for (before, after) in [(1, 1), (1, 2), (2, 1), (2, 3), (3, 2)] {
        for fate in [Fate::Lost, Fate::Unanswered] {
            for at in 0.. {
                let mut world = World::default();
                if world.run(before, at, fate, true) {
                    break;
                }
                crashes += 1;
                assert!(world.run(after, NEVER, fate, true));
                world.assert_each_once(&format!("{before} to {after}, {fate:?} at {at}"));
            }
        }
    }
    assert!(crashes > 200, "only {crashes} crashes");
}

#[test]
fn k_717_k_728_a_second_crash_during_the_recovery_changes_nothing() {
    for fates in [
        [Fate::Lost, Fate::Unanswered],
        [Fate::Unanswered, Fate::Lost],
        [Fate::Unanswered, Fate::Unanswered],
    ] {
        for first in 0.. {
            let mut done = false;
            for second in 0.. {
                let mut world = World::default();
                if world.run(2, first, fates[0], true) {
                    done = true;
                    break;
                }
                let finished = world.run(1, second, fates[1], true);
                assert!(finished || world.run(3, NEVER, fates[1], true));
                world.assert_each_once(&format!("{fates:?} at {first} and {second}"));
                if finished {
                    break;
                }
            }
            if done {
                break;
            }
        }
    }
}

#[test]
fn k_725_a_request_that_fails_is_tried_again_without_a_restart() {
    for parallelism in [1, 2] {
        for fate in [Fate::Lost, Fate::Unanswered] {
            for at in 0..80 {
                let mut world = World::default();
                assert!(world.run(parallelism, at, fate, false), "{fate:?} at {at}");
                world.assert_each_once(&format!("{fate:?} at {at}"));
            }
        }
    }
}

#[test]
fn k_728_a_transaction_that_was_written_is_skipped_whoever_commits_it() {
    let cluster = Arc::default();
    let writer =
        |name: &str| Protocol::new(Model::new(&cluster, || Fate::Answered), name.into(), 99);
    let mut first = writer("first");
    first.add(&record(7)).unwrap();
    // The id with which a job without checkpoints ends.
    let transaction = first.end(CheckpointId(u64::MAX)).unwrap();
    let committed = first.commit(&transaction).unwrap();
    assert!(matches!(committed, CommitOutcome::Committed));
    for name in ["second", "third"] {
        let again = writer(name).commit(&transaction).unwrap();
        assert!(matches!(again, CommitOutcome::AlreadyCommitted), "{name}");
    }
    assert_eq!(cluster.lock().unwrap().seen(), [7]);
}

#[test]
fn transactions_that_wait_together_have_marks_of_their_own() {
    let cluster = Arc::default();
    let writer =
        |name: &str| Protocol::new(Model::new(&cluster, || Fate::Answered), name.into(), 999);
    let mut first = writer("first");
    let mut end = |n| {
        first.add(&record(n)).unwrap();
        first.end(CheckpointId(n)).unwrap()
    };
    let (older, newer) = (end(1), end(2));
    assert_ne!(older.lineage, newer.lineage);
    // Dealt out to two subtasks, of which the second is faster.
    writer("second").commit(&newer).unwrap();
    let outcome = writer("third").commit(&older).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed));
    assert_eq!(cluster.lock().unwrap().seen(), [1, 2]);
    // With one mark for both the older one would be lost.
    let shared = KafkaTransaction {
        lineage: newer.lineage,
        ..older
    };
    let outcome = writer("fourth").commit(&shared).unwrap();
    assert!(matches!(outcome, CommitOutcome::AlreadyCommitted));
    // A slot is used again once its transaction is committed, so there are few transactional ids.
    let lineages = cluster.lock().unwrap().lineages.len();
    assert_eq!(lineages, 2);
}

#[test]
fn past_the_limit_a_record_is_refused_and_what_was_there_is_kept() {
    let cluster = Arc::default();
    let mut writer = Protocol::new(Model::new(&cluster, || Fate::Answered), "w".into(), 70);
    writer.add(&record(1)).unwrap();
    let ended = writer.end(CheckpointId(1)).unwrap();
    writer.add(&record(2)).unwrap();
    let error = writer.add(&record(3)).unwrap_err();
    assert_eq!(
        (error.kind(), error.context("limit")),
        (ErrorKind::LimitExceeded, Some("70"))
    );
    writer.commit(&ended).unwrap();
    writer.add(&record(3)).unwrap();
    let ended = writer.end(CheckpointId(2)).unwrap();
    assert_eq!(ended.count, 2);
    writer.commit(&ended).unwrap();
    assert_eq!(cluster.lock().unwrap().seen(), [1, 2, 3]);
}

#[test]
fn damaged_transactions_are_refused_and_write_nothing() {
    let cluster = Arc::default();
    let mut writer = Protocol::new(Model::new(&cluster, || Fate::Answered), "w".into(), 99);
    writer.add(&record(1)).unwrap();
    let good = writer.end(CheckpointId(1)).unwrap();
    let cut = KafkaTransaction {
        records: good.records.slice(..9),
        ..good.clone()
    };
    let more = KafkaTransaction { count: 2, ..good };
    for damaged in [cut, more] {
        assert_eq!(
            writer.commit(&damaged).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
    assert_eq!(cluster.lock().unwrap().seen(), [0_u64; 0]);
}

/// Transactions are stored by their schema: it must not change by accident.
#[test]
fn the_schema_is_as_old_checkpoints_have_it() {
    assert_eq!(
        KafkaTransaction::schema().to_string(),
        "struct KafkaTransaction{lineage:string,sequence:u64,count:u64,records:bytes}"
    );
}

/// Lets two threads make one request each in the order of a schedule; a turn ends when its thread asks for the next.
struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
    schedule: u32,
}

#[derive(Default)]
struct Turn {
    number: usize,
    holder: Option<usize>,
    done: [bool; 2],
}

impl Turns {
    fn is_next(&self, turn: &Turn, me: usize) -> bool {
        let scheduled = (self.schedule >> turn.number.min(31) & 1) as usize;
        let next = if turn.done[scheduled] {
            1 - scheduled
        } else {
            scheduled
        };
        turn.holder.is_none() && next == me
    }

    fn release(&self, turn: &mut Turn, me: usize) {
        if turn.holder == Some(me) {
            turn.holder = None;
            turn.number += 1;
        }
        self.changed.notify_all();
    }

    fn take(&self, me: usize) {
        let mut turn = self.state.lock().unwrap();
        self.release(&mut turn, me);
        while !self.is_next(&turn, me) {
            turn = self.changed.wait(turn).unwrap();
        }
        turn.holder = Some(me);
    }

    fn done(&self, me: usize) {
        let mut turn = self.state.lock().unwrap();
        turn.done[me] = true;
        self.release(&mut turn, me);
    }
}

/// Two processes commit the same transaction, one request each in the order of a schedule; returns what is visible.
fn race(schedule: u32, no_fencing: bool) -> Vec<u64> {
    let cluster = Arc::new(Mutex::new(Cluster {
        no_fencing,
        ..Cluster::default()
    }));
    let turns = Arc::new(Turns {
        state: Mutex::default(),
        changed: Condvar::new(),
        schedule,
    });
    let writer = |me: usize| {
        let turns = Arc::clone(&turns);
        let model = Model::new(&cluster, move || {
            turns.take(me);
            Fate::Answered
        });
        Protocol::new(model, format!("writer {me}"), 99)
    };
    // The stopped process is the one that ended the transaction; its successor has it from the checkpoint.
    let mut zombie = writer(0);
    zombie.add(&record(7)).unwrap();
    let transaction = zombie.end(CheckpointId(1)).unwrap();
    let successor = writer(1);
    std::thread::scope(|scope| {
        for (me, mut writer) in [(0, zombie), (1, successor)] {
            let (turns, transaction) = (&turns, &transaction);
            scope.spawn(move || {
                let tries = (0..4).find(|_| {
                    !matches!(writer.commit(transaction), Ok(CommitOutcome::RetryLater(_)))
                });
                turns.done(me);
                tries
            });
        }
    });
    cluster.lock().unwrap().seen()
}

#[test]
fn a_stopped_process_that_wakes_up_at_any_request_of_its_successor_adds_nothing() {
    // Six requests each without a conflict: every order of the first twelve.
    for schedule in 0..1 << 12 {
        assert_eq!(race(schedule, false), [7], "schedule {schedule:#b}");
    }
}

#[test]
fn without_fencing_the_same_races_are_seen_to_write_twice() {
    let wrong = (0..1 << 12).find(|schedule| race(*schedule, true) != [7]);
    assert!(wrong.is_some());
}
