use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use state_api::{
    CancelToken, CheckpointId, Error, ErrorKind, PersistContext, Result, SnapshotRequest,
    StateHandle,
};

use super::counted_stream::CountedStream;
use super::snapshot::{FailedSnapshot, persist_all};
use super::{
    ActivityPhase, Begin, CheckpointAck, Command, Mailbox, Reporter, SnapshotReport,
    SubtaskSnapshot, TaskCore, TaskReport,
};
use crate::alignment::{AlignmentReport, GiveUp};
use crate::chain::environment::Environment;
use crate::chain::gate::{Cut, Gate};
use crate::chain::link::{Head, Turn, earliest};
use crate::channel::Barrier;
use crate::coordinator::{FailureReason, TaskId};
use crate::execution::Failpoint;
use crate::streams_through::StreamsThrough;

/// Nanoseconds after which what an operator emitted goes on at the latest, though its batch is not full: Flink's
/// `execution.buffer-timeout.interval`.
const FLUSH_INTERVAL_NS: u64 = 100_000_000;

/// Stands for a checkpoint at the end of a job that makes none.
pub(crate) const NO_CHECKPOINT: CheckpointId = CheckpointId(u64::MAX);

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done; step again.
    Worked,
    /// Nothing to do until the subtask's signal rings or the clock reaches `wake_at_ms`.
    Waiting {
        /// Wall-clock time in milliseconds.
        wake_at_ms: Option<i64>,
    },
    /// The subtask has ended; it has said how.
    Done,
}

/// A chain on its way to its first record, or at work.
enum Phase {
    Opening(LocalBoxFuture<'static, Result<Box<dyn Head>>>),
    Running(Box<dyn Head>),
    Done,
}

/// One subtask of a job: a value that is stepped, never a thread that blocks.
///
/// Each step takes in commands, then processes some records, or waits for nothing. In production a thread loops around it
/// and sleeps on its signal; a driver steps all subtasks of a job on one thread.
pub struct Subtask {
    id: TaskId,
    /// The operators of the chain, for messages.
    name: Arc<str>,
    phase: Phase,
    core: TaskCore,
    mailbox: Arc<Mailbox>,
    reporter: Arc<dyn Reporter>,
    env: Environment,
    /// Everything is processed; only checkpoints are left.
    input_ended: bool,
    /// The snapshot is taken of a checkpoint that the job ends with: nothing is processed until its outcome is known.
    held: Option<CheckpointId>,
    flushed: bool,
    /// When the oldest step began whose output may not have gone on; while `flushed` is not set.
    unflushed_since_ns: u64,
}

impl Subtask {
    /// Creates a subtask whose chain is made by `opening`.
    pub(crate) fn new(
        id: TaskId,
        name: Arc<str>,
        opening: LocalBoxFuture<'static, Result<Box<dyn Head>>>,
        mailbox: Arc<Mailbox>,
        reporter: Arc<dyn Reporter>,
        env: Environment,
    ) -> Self {
        Self {
            id,
            name,
            phase: Phase::Opening(opening),
            core: TaskCore::new(),
            mailbox,
            reporter,
            env,
            input_ended: false,
            held: None,
            flushed: true,
            unflushed_since_ns: 0,
        }
    }

    /// Returns which subtask it is.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Does a bounded piece of work (about `budget` records) and never blocks.
    ///
    /// An error or a panic of an operator ends the subtask and is reported as its failure.
    pub fn step(&mut self, budget: usize) -> Progress {
        let result = match catch_unwind(AssertUnwindSafe(|| self.try_step(budget))) {
            Ok(result) => result,
            Err(panic) => {
                Err(Error::panicked("an operator", panic.as_ref()).with("operator", &self.name))
            }
        };
        match result {
            Ok(progress) => progress,
            Err(error) => {
                self.end(TaskReport::Failed(error.with(
                    "subtask",
                    format_args!("{} {}", self.name, self.env.subtask),
                )));
                Progress::Done
            }
        }
    }

    fn end(&mut self, report: TaskReport) {
        self.core.close();
        // Dropped under protection: what a panic left behind may panic again.
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        drop(catch_unwind(AssertUnwindSafe(move || drop(phase))));
        self.reporter.report(self.id, report);
    }

    fn try_step(&mut self, budget: usize) -> Result<Progress> {
        // Whoever calls from now on is heard in the next step.
        self.env.signal.take_call();
        while let Some(command) = self.mailbox.take() {
            if self.obey(command)? {
                return Ok(Progress::Done);
            }
        }
        let head = match &mut self.phase {
            Phase::Done => return Ok(Progress::Done),
            Phase::Opening(opening) => {
                let waker = self.env.signal.waker();
                match opening.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Pending => return Ok(Progress::Waiting { wake_at_ms: None }),
                    Poll::Ready(head) => {
                        let head = head?;
                        let positions = head.restored_positions();
                        self.phase = Phase::Running(head);
                        let read = self.env.restore_storage.read();
                        self.reporter
                            .report(self.id, TaskReport::Running { positions, read });
                        return Ok(Progress::Worked);
                    }
                }
            }
            Phase::Running(head) => head,
        };
        if self.held.is_some() {
            // The barrier itself may still wait for room in a channel.
            head.pump();
            return Ok(if head.maintain() {
                Progress::Worked
            } else {
                Progress::Waiting { wake_at_ms: None }
            });
        }
        // Also after the end of the input: barriers still come.
        let turn = head.turn(budget)?;
        if let Some(bytes) = head.gate().and_then(|gate| gate.bytes_so_far()) {
            self.mailbox.show_aligning(bytes);
        }
        if let Some((id, phase)) = head.gate().and_then(Gate::take_news) {
            self.mailbox.show(id, phase, self.env.clock.now_ms());
        }
        match turn {
            Turn::Worked => {
                // A subtask that is never idle has work that was put off, too.
                head.maintain();
                let now_ns = self.env.clock.monotonic_ns();
                if self.flushed {
                    self.flushed = false;
                    self.unflushed_since_ns = now_ns;
                } else if now_ns.saturating_sub(self.unflushed_since_ns) >= FLUSH_INTERVAL_NS {
                    self.flushed = true;
                    head.flush()?;
                }
                Ok(Progress::Worked)
            }
            Turn::Waiting { wake_at_ms } => {
                if !self.flushed {
                    self.flushed = true;
                    head.flush()?;
                    return Ok(Progress::Worked);
                }
                let wake_at_ms = earliest(wake_at_ms, head.tick()?);
                Ok(if head.maintain() {
                    Progress::Worked
                } else {
                    let overtaking = head.gate().and_then(|gate| gate.deadline_ms());
                    Progress::Waiting {
                        wake_at_ms: earliest(wake_at_ms, overtaking),
                    }
                })
            }
            Turn::Congested => {
                head.maintain();
                let wake_at_ms = head.gate().and_then(|gate| gate.deadline_ms());
                Ok(Progress::Waiting { wake_at_ms })
            }
            Turn::Cut(Cut::Snapshot {
                barrier,
                report,
                unaligned,
            }) => {
                // What completed before the barrier set out is told before the cut, even if it came after this turn began:
                // of an older checkpoint, which backends would build upon otherwise, objects may be gone.
                while let Some(completed) = self.mailbox.take_completed() {
                    self.complete(completed)?;
                }
                self.checkpoint(barrier, report, unaligned)?;
                Ok(Progress::Worked)
            }
            Turn::Cut(Cut::GiveUp { id, why }) => {
                self.pass_cancel_on(id, why);
                Ok(Progress::Worked)
            }
            Turn::InputEnded if self.input_ended => Ok(Progress::Worked),
            Turn::InputEnded => {
                head.finish()?;
                self.input_ended = true;
                self.reporter.report(self.id, TaskReport::InputEnded);
                Ok(Progress::Worked)
            }
        }
    }

    /// Returns whether the subtask has ended.
    fn obey(&mut self, command: Command) -> Result<bool> {
        match command {
            Command::Stop | Command::Finish => {
                self.end(TaskReport::Ended);
                return Ok(true);
            }
            Command::CommitAndFinish => {
                if let Phase::Running(head) = &mut self.phase {
                    commit_without_checkpoint(head.as_mut(), &self.env)?;
                }
                self.end(TaskReport::Ended);
                return Ok(true);
            }
            Command::Trigger(barrier) => match &mut self.phase {
                Phase::Running(_) if self.held.is_some() => self.decline(
                    barrier.id,
                    FailureReason::DeclinedClosing,
                    "the subtask waits for the checkpoint that the job ends with".into(),
                ),
                Phase::Running(head) if head.is_source() => {
                    if barrier.drain && !self.input_ended {
                        head.drain()?;
                        head.finish()?;
                        self.input_ended = true;
                    }
                    let waited = self.env.clock.now_ms().saturating_sub(barrier.timestamp_ms);
                    let start_delay_ms = u64::try_from(waited).unwrap_or(0);
                    self.checkpoint(
                        barrier,
                        AlignmentReport {
                            start_delay_ms,
                            ..AlignmentReport::default()
                        },
                        false,
                    )?;
                }
                _ => self.decline(
                    barrier.id,
                    FailureReason::DeclinedNotReady,
                    "the subtask is not running".into(),
                ),
            },
            Command::Completed(id) => self.complete(id)?,
            Command::Aborted(id) => {
                self.core.abort(id);
                self.held = self.held.filter(|held| *held != id);
                if let Phase::Running(head) = &mut self.phase {
                    head.give_up(id);
                    head.aborted(id)?;
                }
            }
        }
        Ok(false)
    }

    fn complete(&mut self, id: CheckpointId) -> Result<()> {
        // A subtask that is not running yet has no operators to tell.
        if let Phase::Running(head) = &mut self.phase
            && self.core.complete(id)
        {
            head.completed(id)?;
        }
        Ok(())
    }

    /// Takes the snapshot: hooks, barrier downstream, sync part, and the async part on its way.
    fn checkpoint(
        &mut self,
        barrier: Barrier,
        alignment: AlignmentReport,
        unaligned: bool,
    ) -> Result<()> {
        let Phase::Running(head) = &mut self.phase else {
            return Ok(());
        };
        match self.core.begin(barrier.id) {
            Begin::Ignore => return Ok(()),
            Begin::Cancelled => {
                head.emit_barrier(None, barrier.id);
                return Ok(());
            }
            Begin::Go => {}
        }
        let clock = Arc::clone(&self.env.clock);
        let started = clock.monotonic_ns();
        let show = |phase| self.mailbox.show(barrier.id, phase, clock.now_ms());
        show(ActivityPhase::SyncPart);
        head.prepare_barrier(&barrier)?;
        // Downstream need not wait for our snapshot.
        head.emit_barrier(Some(&barrier), barrier.id);
        self.env.failpoints.reach(Failpoint::Sync);
        let request = SnapshotRequest {
            checkpoint: barrier.id,
            kind: barrier.kind,
            now_ms: clock.now_ms(),
        };
        let mut set = SubtaskSnapshot::new();
        if let Err(error) = head.snapshot(&request, &mut set) {
            // What was frozen is let go with the set. The barrier is out already: the marker behind it spares those
            // who still align a wait for nothing.
            head.emit_barrier(None, barrier.id);
            show(ActivityPhase::Reported);
            self.decline(barrier.id, FailureReason::SyncPart, error.to_string());
            return Ok(());
        }
        if unaligned && let Some(records) = head.record_in_flight(barrier.id) {
            set.add_in_flight(records);
        }
        show(match head.gate().and_then(|gate| gate.awaited()) {
            Some((id, missing)) if id == barrier.id => ActivityPhase::RecordingInFlight { missing },
            _ => ActivityPhase::AsyncPart,
        });
        let ended = clock.monotonic_ns();
        let report = SnapshotReport {
            alignment,
            sync_ns: ended.saturating_sub(started),
            async_ns: 0,
        };
        self.held = barrier.last.then_some(barrier.id);
        self.upload(&barrier, set, report, ended);
        Ok(())
    }

    fn upload(
        &mut self,
        barrier: &Barrier,
        set: SubtaskSnapshot,
        mut report: SnapshotReport,
        started_ns: u64,
    ) {
        let id = barrier.id;
        let Some(storage) = self.env.storage_for(barrier) else {
            // Given up before the cut was reached: the word of it is on its way, and nobody waits for an answer.
            return;
        };
        let cancel = self.core.upload_started(id);
        let written = self.mailbox.count_written();
        let counted = StreamsThrough::new(storage, move |inner| {
            let written = Arc::clone(&written);
            Box::new(CountedStream { inner, written })
        });
        let cx = PersistContext {
            checkpoint: id,
            storage: Arc::new(counted),
            cancel: CancelToken::clone(&cancel),
            executor: Arc::clone(&self.env.executor),
            spill_dir: Some(self.env.local_dir.clone()),
        };
        let (task, reporter, clock) = (
            self.id,
            Arc::clone(&self.reporter),
            Arc::clone(&self.env.clock),
        );
        let (failpoints, mailbox) = (self.env.failpoints.clone(), Arc::clone(&self.mailbox));
        // Savepoints go elsewhere and have no copies.
        let copies = self.env.copies.clone();
        let copies = copies.filter(|_| !barrier.kind.is_savepoint());
        let writing = self.reporter.writing();
        let input_ends = set.input_ends();
        let asked = CancelToken::clone(&cancel);
        self.env.executor.spawn_io(Box::pin(async move {
            let _until_the_end = (cancel, writing);
            failpoints.reach(Failpoint::Async);
            // Foreign code may panic here too, and would leave the checkpoint without an answer.
            let outcome = AssertUnwindSafe(persist_all(set, cx)).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|panic| {
                let error = Error::panicked("the async part of a snapshot", panic.as_ref());
                Err(FailedSnapshot::without_orphans(error))
            });
            if let Err(failed) = &outcome
                && asked.is_cancelled()
                && failed.orphans.is_empty()
            {
                // Those who cancelled it wait for no answer.
                return;
            }
            if let (Some(copies), Ok((operators, _))) = (&copies, &outcome) {
                let parts = operators.iter().flat_map(|(_, snapshot)| snapshot.parts());
                copies.acked(id, parts.filter_map(StateHandle::object));
            }
            report.async_ns = clock.monotonic_ns().saturating_sub(started_ns);
            mailbox.show(id, ActivityPhase::Reported, clock.now_ms());
            reporter.report(
                task,
                match outcome {
                    Ok((operators, alignment)) => {
                        report.alignment = alignment.unwrap_or(report.alignment);
                        TaskReport::Ack {
                            id,
                            ack: CheckpointAck {
                                input_ends,
                                ..CheckpointAck::new(operators, report)
                            },
                        }
                    }
                    Err(failed) => TaskReport::Decline {
                        id,
                        reason: FailureReason::AsyncPart,
                        detail: failed.error.to_string(),
                        orphans: CheckpointAck::new(failed.orphans, report),
                    },
                },
            );
        }));
    }

    /// Gives up a checkpoint that cannot be cut here; those behind must not wait for its barrier.
    fn pass_cancel_on(&mut self, id: CheckpointId, why: GiveUp) {
        let Phase::Running(head) = &mut self.phase else {
            return;
        };
        if self.core.begin(id) == Begin::Ignore {
            return;
        }
        head.emit_barrier(None, id);
        let (reason, text) = match why {
            GiveUp::Subsumed => (
                FailureReason::DeclinedSubsumed,
                "a newer barrier came first",
            ),
            GiveUp::CancelMarker => (FailureReason::DeclinedCancelMarker, "a cancel marker came"),
            GiveUp::InputEnded => (FailureReason::DeclinedInputEnded, "an input channel ended"),
            GiveUp::Aborted => return,
        };
        self.decline(id, reason, text.into());
    }

    fn decline(&self, id: CheckpointId, reason: FailureReason, detail: String) {
        let orphans = CheckpointAck::default();
        self.reporter.report(
            self.id,
            TaskReport::Decline {
                id,
                reason,
                detail,
                orphans,
            },
        );
    }
}

/// Ends the transactions of sinks and commits them, for a job without checkpoints.
fn commit_without_checkpoint(head: &mut dyn Head, env: &Environment) -> Result<()> {
    let request = SnapshotRequest {
        checkpoint: NO_CHECKPOINT,
        kind: state_api::SnapshotKind::Checkpoint,
        now_ms: env.clock.now_ms(),
    };
    let mut set = SubtaskSnapshot::new();
    let result = head.snapshot(&request, &mut set);
    for due in set.take_harden() {
        due.run_here()?;
    }
    match result {
        // Keyed state that declines a snapshot is no reason to lose output.
        Err(error) if error.kind() != ErrorKind::LimitExceeded => Err(error),
        _ => head.completed(NO_CHECKPOINT),
    }
}
