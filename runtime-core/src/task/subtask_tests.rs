//! The checkpoint procedure of one subtask, step by step, over a chain that writes down what it is told.
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use checkpoint_storage::MemoryCheckpointStorage;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture, pending, ready};
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Error, Executor, JobId, ManualClock, MaxParallelism,
    OperatorStateHandle, OperatorUid, PersistContext, Result, Snapshot, SnapshotRequest,
};

use super::{
    Command, Hardening, Mailbox, OperatorParts, Progress, Reporter, SnapshotWork, Subtask,
    SubtaskSnapshot, TaskReport,
};
use crate::alignment::{AlignmentReport, GiveUp};
use crate::chain::environment::Environment;
use crate::chain::fan_out::FanOut;
use crate::chain::gate::{Cut, Gate};
use crate::chain::in_flight::{RecordCodec, SharedCodec};
use crate::chain::link::{Control, Head, Link, Turn};
use crate::chain::plain_head::PlainHead;
use crate::chain::port::Port;
use crate::channel::{Barrier, BarrierMode, BatchWriter, Signal, channel};
use crate::config::CheckpointMode;
use crate::coordinator::{FailureReason, TaskId};
use crate::execution::Failpoints;
use crate::record::{Emit, Timed};

#[path = "subtask_inputs_tests.rs"]
mod inputs;

/// What happened, in order.
type Log = Rc<RefCell<Vec<String>>>;

/// A link at the end of a chain that writes down what it is told, under a name.
struct Noting {
    name: &'static str,
    log: Log,
    /// The calls that fail, such as `snapshot` of all links or `left snapshot`.
    fails: Rc<RefCell<Vec<&'static str>>>,
    /// The number of frozen states that are there.
    alive: Arc<AtomicUsize>,
}

impl Noting {
    fn note(&self, call: &'static str, id: Option<CheckpointId>) -> Result<()> {
        let id = id.map_or(String::new(), |id| format!(" {id}"));
        self.log
            .borrow_mut()
            .push(format!("{} {call}{id}", self.name));
        if self.fails(call) {
            return Err(Error::user(format!("{} {call} fails", self.name)));
        }
        Ok(())
    }

    fn fails(&self, call: &str) -> bool {
        let own = format!("{} {call}", self.name);
        let fails = self.fails.borrow();
        fails.iter().any(|fails| [call, &own].contains(fails))
    }

    fn parts(&self) -> OperatorParts {
        let mut parts = OperatorParts {
            operator: Some(Box::new(Frozen::new(&self.alive))),
            ..OperatorParts::default()
        };
        if self.fails("harden") {
            let work = Box::new(|| Err(Error::user("the disk is full")));
            parts.harden.push(Arc::new(Hardening::new(work)));
        }
        if self.fails("work") {
            // Unlike `panic!` it writes nothing to the terminal.
            let work = async { resume_unwind(Box::new("out of paper")) };
            parts.work.push(SnapshotWork::future(work));
        }
        parts
    }
}

/// Frozen state without content.
struct Frozen(Arc<AtomicUsize>);

impl Frozen {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(alive))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Snapshot<Option<OperatorStateHandle>> for Frozen {
    fn persist(
        self: Box<Self>,
        _: PersistContext,
    ) -> BoxFuture<'static, Result<Option<OperatorStateHandle>>> {
        Box::pin(ready(Ok(None)))
    }
}

impl Emit<()> for Noting {
    fn emit(&mut self, (): (), _time: i64) -> Result<()> {
        Ok(())
    }
}

impl Control for Noting {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.note("prepare", Some(barrier.id))
    }

    fn emit_barrier(&mut self, barrier: Option<&Barrier>, id: CheckpointId) {
        let what = if barrier.is_some() {
            "barrier"
        } else {
            "cancel"
        };
        drop(self.note(what, Some(id)));
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.note("snapshot", Some(request.checkpoint))?;
        set.add(OperatorUid::new(self.name)?, self.parts());
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.note("completed", Some(id))
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.note("aborted", Some(id))
    }

    fn finish(&mut self) -> Result<()> {
        self.note("finish", None)
    }
}

/// The start of a chain: it writes down what it is told, and passes it on to two links.
struct Scripted {
    own: Noting,
    next: FanOut<()>,
    turns: Rc<RefCell<Vec<Turn>>>,
    /// What the engine says while a turn goes on.
    meanwhile: Rc<RefCell<Vec<Command>>>,
    mailbox: Arc<Mailbox>,
}

impl Head for Scripted {
    fn turn(&mut self, _: usize) -> Result<Turn> {
        for command in self.meanwhile.take() {
            self.mailbox.send(command);
        }
        let turn = self.turns.borrow_mut().pop();
        Ok(turn.unwrap_or(Turn::Waiting { wake_at_ms: None }))
    }

    fn give_up(&mut self, id: CheckpointId) {
        drop(self.own.note("give up", Some(id)));
    }

    fn is_source(&self) -> bool {
        true
    }
}

impl Control for Scripted {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(&mut self.next)
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.own.prepare_barrier(barrier)?;
        self.next.prepare_barrier(barrier)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next.snapshot(request, set)?;
        self.own.snapshot(request, set)
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.next.completed(id)?;
        self.own.completed(id)
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.next.aborted(id)?;
        self.own.aborted(id)
    }

    fn finish(&mut self) -> Result<()> {
        self.own.finish()?;
        self.next.finish()
    }
}

/// Keeps async parts until it is told to run them.
#[derive(Default)]
struct Later(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Later {
    /// Runs what waits; returns how many there were.
    fn run(&self) -> usize {
        let futures = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let count = futures.len();
        for future in futures {
            future.now_or_never().expect("nothing in it waits");
        }
        count
    }
}

impl Later {
    /// Runs what does not wait for something else.
    fn run_ready(&self) {
        let mut futures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        futures.retain_mut(|future| future.now_or_never().is_none());
    }
}

impl Executor for Later {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(future);
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// Keeps what a subtask reports, as short texts, and the last detail of why it declined.
#[derive(Default)]
struct Reports(Mutex<Vec<String>>, Mutex<String>);

impl Reporter for Reports {
    fn report(&self, _: TaskId, report: TaskReport) {
        if let TaskReport::Decline { detail, .. } = &report {
            let mut last = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            last.clone_from(detail);
        }
        let text = match report {
            TaskReport::Running { .. } => "running".to_owned(),
            TaskReport::Ack { id, .. } => format!("ack {id}"),
            TaskReport::Decline { id, reason, .. } => format!("decline {id} {reason:?}"),
            TaskReport::InputEnded => "input ended".to_owned(),
            TaskReport::Ended => "ended".to_owned(),
            TaskReport::Failed(error) => format!("failed: {error}"),
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
    }
}

struct Bench {
    subtask: Subtask,
    mailbox: Arc<Mailbox>,
    reports: Arc<Reports>,
    later: Arc<Later>,
    log: Log,
    fails: Rc<RefCell<Vec<&'static str>>>,
    alive: Arc<AtomicUsize>,
    turns: Rc<RefCell<Vec<Turn>>>,
    meanwhile: Rc<RefCell<Vec<Command>>>,
}

impl Bench {
    /// A subtask whose chain is open, or one that never gets that far.
    fn new(opens: bool) -> Self {
        let (log, fails) = (Log::default(), Rc::default());
        let alive = Arc::default();
        let noting = |name| Noting {
            name,
            log: Rc::clone(&log),
            fails: Rc::clone(&fails),
            alive: Arc::clone(&alive),
        };
        let links: Vec<Box<dyn Link<()>>> =
            vec![Box::new(noting("left")), Box::new(noting("right"))];
        let (turns, meanwhile) = (Rc::default(), Rc::default());
        let signal = Signal::new();
        let mailbox = Mailbox::new(Arc::clone(&signal));
        let head: Box<dyn Head> = Box::new(Scripted {
            own: noting("head"),
            next: FanOut::new(links, Vec::new()),
            turns: Rc::clone(&turns),
            meanwhile: Rc::clone(&meanwhile),
            mailbox: Arc::clone(&mailbox),
        });
        let (reports, later) = (Arc::new(Reports::default()), Arc::new(Later::default()));
        let opening: LocalBoxFuture<'static, Result<Box<dyn Head>>> = if opens {
            Box::pin(ready(Ok(head)))
        } else {
            Box::pin(async move {
                let _head = head;
                pending().await
            })
        };
        let subtask = Subtask::new(
            TaskId::new(0, 0),
            "chain".into(),
            opening,
            Arc::clone(&mailbox),
            Arc::clone(&reports) as Arc<dyn Reporter>,
            environment(signal, Arc::clone(&later) as Arc<dyn Executor>),
        );
        let mut bench = Self {
            subtask,
            mailbox,
            reports,
            later,
            log,
            fails,
            alive,
            turns,
            meanwhile,
        };
        bench.settle();
        bench
    }

    fn settle(&mut self) {
        while self.subtask.step(16) == Progress::Worked {}
    }

    fn tell(&mut self, command: Command) {
        self.mailbox.send(command);
        self.settle();
    }

    fn trigger(&mut self, id: u64) {
        self.tell(Command::Trigger(Barrier::new(CheckpointId(id), 0)));
    }

    fn turn(&mut self, turn: Turn) {
        self.turns.borrow_mut().push(turn);
        self.settle();
    }

    fn take_log(&self) -> Vec<String> {
        self.log.take()
    }

    /// Returns the number of frozen states that are there.
    fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    fn take_reports(&self) -> Vec<String> {
        std::mem::take(
            &mut *self
                .reports
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

pub(crate) fn environment(signal: Arc<Signal>, executor: Arc<dyn Executor>) -> Environment {
    let storage: Arc<dyn CheckpointStorage> = Arc::new(MemoryCheckpointStorage::new(1 << 20));
    Environment {
        job: JobId::new("job").expect("a name"),
        attempt: Attempt(1),
        run: 0,
        subtask: state_api::Subtask {
            index: 0,
            parallelism: 1,
        },
        uids: Arc::new([]),
        plan: Arc::new([]),
        max_parallelism: MaxParallelism::new(128).expect("a number"),
        mode: CheckpointMode::ExactlyOnce,
        clock: Arc::new(ManualClock::at(0)),
        signal,
        congested: Rc::new(Cell::new(false)),
        storage: Arc::clone(&storage),
        places: Arc::default(),
        restore_storage: Arc::new(checkpoint_storage::RestoringStorage::new(
            storage,
            None,
            CheckpointId(0),
            "job",
            state_api::Subtask {
                index: 0,
                parallelism: 1,
            },
        )),
        copies: None,
        executor,
        backend: Arc::new(backend_hashmap::HashMapBackend),
        backend_options: Arc::new(BTreeMap::new()),
        local_dir: std::env::temp_dir(),
        memory_limit: None,
        object_cache: None,
        seed: 0,
        restored: None,
        failpoints: Failpoints::none(),
    }
}

#[test]
fn k_591_hooks_come_before_the_barrier_and_the_barrier_before_the_snapshots_and_the_ack_last() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.take_reports(), ["running"]);
    bench.trigger(7);
    assert_eq!(
        bench.take_log(),
        [
            "head prepare 7",
            "left prepare 7",
            "right prepare 7",
            "left barrier 7",
            "right barrier 7",
            "left snapshot 7",
            "right snapshot 7",
            "head snapshot 7",
        ]
    );
    assert!(
        bench.take_reports().is_empty(),
        "the async part is not done"
    );
    assert_eq!(bench.later.run(), 1);
    assert_eq!(bench.take_reports(), ["ack 7"]);
}

#[test]
fn what_completed_before_a_barrier_set_out_is_told_before_its_cut() {
    let mut bench = Bench::new(true);
    bench.take_reports();
    // It comes while the turn goes on that meets the barrier, behind a word about something else.
    *bench.meanwhile.borrow_mut() = vec![
        Command::Aborted(CheckpointId(5)),
        Command::Completed(CheckpointId(6)),
    ];
    bench.turn(Turn::Cut(Cut::Snapshot {
        barrier: Barrier::new(CheckpointId(7), 0),
        report: AlignmentReport::default(),
        unaligned: false,
    }));
    let log = bench.take_log();
    let place = |word: &str| log.iter().position(|entry| entry == word);
    assert!(
        place("head completed 6") < place("head prepare 7"),
        "{log:?}"
    );
    assert!(place("head completed 6").is_some() && place("head aborted 5").is_some());
}

#[test]
fn k_596_a_subtask_that_has_ended_tells_its_operators_nothing() {
    let mut bench = Bench::new(true);
    bench.trigger(1);
    bench.tell(Command::Stop);
    assert_eq!(bench.take_reports(), ["running", "ended"]);
    bench.take_log();
    bench.tell(Command::Completed(CheckpointId(1)));
    bench.tell(Command::Aborted(CheckpointId(2)));
    assert!(bench.take_log().is_empty());
    // Its uploads are cancelled, and nobody waits for an answer.
    assert_eq!(bench.later.run(), 1);
    assert!(bench.take_reports().is_empty());
}

#[test]
fn k_601_an_abort_after_the_async_part_has_nothing_to_cancel_and_is_passed_on() {
    let mut bench = Bench::new(true);
    bench.trigger(3);
    bench.later.run();
    assert_eq!(bench.take_reports(), ["running", "ack 3"]);
    bench.take_log();
    bench.tell(Command::Aborted(CheckpointId(3)));
    assert_eq!(
        bench.take_log(),
        [
            "head give up 3",
            "left aborted 3",
            "right aborted 3",
            "head aborted 3"
        ]
    );
    bench.trigger(4);
    bench.later.run();
    assert_eq!(bench.take_reports(), ["ack 4"]);
}

#[test]
fn k_613_a_subtask_that_is_not_open_yet_or_has_ended_declines_and_does_not_fail() {
    let mut bench = Bench::new(false);
    bench.trigger(1);
    let declined = format!("decline 1 {:?}", FailureReason::DeclinedNotReady);
    assert_eq!(bench.take_reports(), [declined.as_str()]);
    let mut bench = Bench::new(true);
    bench.tell(Command::Stop);
    bench.trigger(1);
    assert_eq!(bench.subtask.step(16), Progress::Done);
    assert_eq!(bench.take_reports(), ["running", "ended", &declined]);
    assert!(bench.take_log().is_empty(), "no operator is asked");
}

#[test]
fn k_614_a_completion_that_comes_while_state_is_restored_reaches_no_operator() {
    let mut bench = Bench::new(false);
    bench.tell(Command::Completed(CheckpointId(1)));
    bench.tell(Command::Aborted(CheckpointId(2)));
    assert!(bench.take_log().is_empty() && bench.take_reports().is_empty());
    // Nor is it news that would be kept for later: the next one after the start is told.
    let mut bench = Bench::new(true);
    bench.tell(Command::Completed(CheckpointId(1)));
    assert_eq!(
        bench.take_log(),
        ["left completed 1", "right completed 1", "head completed 1"]
    );
}

#[test]
fn after_a_snapshot_that_fails_those_behind_need_not_wait_and_the_next_one_works() {
    let mut bench = Bench::new(true);
    bench.fails.borrow_mut().push("snapshot");
    bench.trigger(1);
    assert_eq!(
        bench.take_log()[3..],
        [
            "left barrier 1",
            "right barrier 1",
            "left snapshot 1",
            "left cancel 1",
            "right cancel 1"
        ]
    );
    let sync_part = format!("decline 1 {:?}", FailureReason::SyncPart);
    assert_eq!(bench.take_reports(), ["running".to_owned(), sync_part]);
    assert_eq!(bench.later.run(), 0, "nothing is written");
    bench.fails.borrow_mut().clear();
    bench.trigger(2);
    bench.later.run();
    assert_eq!(bench.take_reports(), ["ack 2"]);
}

#[test]
fn k_606_a_snapshot_that_fails_lets_go_of_what_the_operators_before_have_frozen() {
    let mut bench = Bench::new(true);
    bench.fails.borrow_mut().push("right snapshot");
    bench.trigger(1);
    let log = bench.take_log();
    assert!(log.contains(&"left snapshot 1".to_owned()), "{log:?}");
    assert!(!log.contains(&"head snapshot 1".to_owned()), "{log:?}");
    assert_eq!(bench.alive(), 0);
    assert_eq!(bench.take_reports(), ["running", "decline 1 SyncPart"]);
    assert_eq!(bench.later.run(), 0, "nothing is written");
    bench.fails.borrow_mut().clear();
    bench.trigger(2);
    assert_eq!(bench.alive(), 3);
    assert_eq!(bench.later.run(), 1);
    assert_eq!(bench.take_reports(), ["ack 2"]);
    assert_eq!(bench.alive(), 0);
}

#[test]
fn k_607_an_async_part_that_fails_or_panics_declines_and_the_next_one_works() {
    for (fails, detail) in [
        ("right harden", "the disk is full"),
        ("right work", "panicked: out of paper"),
    ] {
        let mut bench = Bench::new(true);
        bench.fails.borrow_mut().push(fails);
        bench.trigger(1);
        assert_eq!((bench.alive(), bench.later.run()), (3, 1));
        assert_eq!(bench.take_reports(), ["running", "decline 1 AsyncPart"]);
        let said = bench.reports.1.lock().unwrap().clone();
        assert!(said.contains(detail), "{said}");
        assert_eq!(bench.alive(), 0, "what was frozen is let go");
        bench.fails.borrow_mut().clear();
        bench.trigger(2);
        bench.later.run();
        assert_eq!(bench.take_reports(), ["ack 2"]);
    }
}

#[test]
fn k_600_an_abort_during_the_async_part_cancels_it_and_nothing_is_acknowledged() {
    let mut bench = Bench::new(true);
    bench.trigger(3);
    bench.take_reports();
    bench.tell(Command::Aborted(CheckpointId(3)));
    assert_eq!(bench.later.run(), 1);
    assert!(bench.take_reports().is_empty());
    assert_eq!(bench.alive(), 0);
    bench.trigger(4);
    bench.later.run();
    assert_eq!(bench.take_reports(), ["ack 4"]);
}

#[test]
fn k_524_a_checkpoint_that_is_given_up_sends_one_cancel_marker_to_each_output() {
    let give_up = |id, why| {
        Turn::Cut(Cut::GiveUp {
            id: CheckpointId(id),
            why,
        })
    };
    let mut bench = Bench::new(true);
    bench.take_reports();
    bench.turn(give_up(5, GiveUp::CancelMarker));
    // Again, by another way: the marker is out already.
    bench.turn(give_up(5, GiveUp::InputEnded));
    assert_eq!(bench.take_log(), ["left cancel 5", "right cancel 5"]);
    let declined = format!("decline 5 {:?}", FailureReason::DeclinedCancelMarker);
    assert_eq!(bench.take_reports(), [declined]);
    // An abort that overtakes the barrier: the marker goes out where the barrier would have.
    bench.tell(Command::Aborted(CheckpointId(6)));
    bench.take_log();
    bench.turn(Turn::Cut(Cut::Snapshot {
        barrier: Barrier::new(CheckpointId(6), 0),
        report: AlignmentReport::default(),
        unaligned: false,
    }));
    assert_eq!(bench.take_log(), ["left cancel 6", "right cancel 6"]);
    assert!(bench.take_reports().is_empty(), "the coordinator knows");
}

/// The barrier of a checkpoint that the job ends with.
fn last(id: u64, drain: bool) -> Command {
    Command::Trigger(Barrier {
        last: true,
        drain,
        ..Barrier::new(CheckpointId(id), 0)
    })
}

#[test]
fn k_629_behind_the_last_barrier_nothing_is_processed_until_its_outcome_is_known() {
    let mut bench = Bench::new(true);
    bench.take_reports();
    bench.tell(last(3, false));
    bench.later.run();
    bench.turn(Turn::Worked);
    assert_eq!(bench.turns.borrow().len(), 1, "a turn was taken");
    // What others do with other checkpoints changes nothing.
    bench.tell(Command::Completed(CheckpointId(2)));
    bench.tell(Command::Aborted(CheckpointId(1)));
    assert_eq!(bench.turns.borrow().len(), 1, "a turn was taken");
    bench.trigger(4);
    assert_eq!(bench.take_reports(), ["ack 3", "decline 4 DeclinedClosing"]);
    bench.tell(Command::Aborted(CheckpointId(3)));
    assert!(bench.turns.borrow().is_empty(), "it goes on");
    bench.tell(last(5, false));
    bench.later.run();
    bench.take_log();
    bench.turn(Turn::Worked);
    bench.tell(Command::Completed(CheckpointId(5)));
    assert_eq!(
        bench.take_log(),
        ["left completed 5", "right completed 5", "head completed 5"]
    );
    bench.tell(Command::Finish);
    assert_eq!(bench.turns.borrow().len(), 1, "a turn was taken");
    assert_eq!(bench.take_reports(), ["ack 5", "ended"]);
}

#[test]
fn k_629_to_drain_a_source_ends_its_input_before_the_barrier_and_once() {
    let mut bench = Bench::new(true);
    bench.tell(last(3, true));
    let log = bench.take_log();
    assert_eq!(
        log[..4],
        [
            "head finish",
            "left finish",
            "right finish",
            "head prepare 3"
        ]
    );
    bench.tell(Command::Aborted(CheckpointId(3)));
    bench.take_log();
    bench.tell(last(4, true));
    assert_eq!(bench.take_log()[0], "head prepare 4");
}

#[test]
fn k_627_a_stop_after_the_end_of_the_input_takes_the_snapshot_at_once() {
    let mut bench = Bench::new(true);
    bench.turn(Turn::InputEnded);
    bench.take_log();
    bench.tell(last(1, true));
    bench.later.run();
    assert_eq!(bench.take_log()[0], "head prepare 1");
    assert_eq!(bench.take_reports(), ["running", "input ended", "ack 1"]);
}
