use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use managed_state::operator::{OperatorListState, OperatorStates};
use managed_state::raw::{RawStreams, restore_raw_operator};
use state_api::{CheckpointId, Error, KeyGroupRange, OperatorUid, Result, SnapshotRequest};

use super::chained::Stage;
use super::declared::Declared;
use super::environment::Environment;
use super::input_end::ToldOfEnd;
use super::link::Link;
use crate::channel::Barrier;
use crate::execution::{Failpoint, Failpoints};
use crate::operator::{Operator, Out};
use crate::record::NO_TIMESTAMP;
use crate::sink::{CommitOutcome, Sink, SinkContext, SinkWriter, TwoPhaseSink, TwoPhaseWriter};
use crate::task::{Hardening, NO_CHECKPOINT, OperatorParts, PendingCommits, SubtaskSnapshot};

const PENDING: &str = "pending-transactions";
const OPEN: &str = "open-transactions";

fn sink_context(env: &Environment, uid: &OperatorUid) -> SinkContext {
    SinkContext {
        job: env.job.clone(),
        uid: uid.clone(),
        subtask: env.subtask,
        attempt: env.attempt,
        run: env.run,
        restored: env.restored(uid).map(|(id, _)| id),
        clock: Arc::clone(&env.clock),
    }
}

fn not_open<T>() -> Result<T> {
    Err(Error::bug("a sink is used before it is opened"))
}

fn event_time(time: i64) -> Option<i64> {
    (time != NO_TIMESTAMP).then_some(time)
}

/// Says what came of a commit, if it is worth a word.
fn report(uid: &OperatorUid, outcome: &CommitOutcome) {
    match outcome {
        CommitOutcome::Committed => {}
        CommitOutcome::AlreadyCommitted => {
            tracing::debug!(sink = %uid, "a transaction was committed before");
        }
        CommitOutcome::RetryLater(reason) => {
            tracing::warn!(sink = %uid, %reason, "a transaction can't be committed now and is tried again");
        }
        CommitOutcome::Gone(reason) => {
            tracing::warn!(sink = %uid, %reason, "a transaction is gone, which was accepted: its records are lost");
            metrics::counter!("holdfast_sink_transactions_gone_total").increment(1);
        }
    }
}

/// A sink without transactions at the end of a chain.
pub(crate) struct SinkStage<S: Sink> {
    sink: Arc<S>,
    uid: OperatorUid,
    writer: Option<S::Writer>,
    told: ToldOfEnd,
}

impl<S: Sink> SinkStage<S> {
    pub(crate) fn new(sink: Arc<S>, uid: OperatorUid) -> Self {
        Self {
            sink,
            uid,
            writer: None,
            told: ToldOfEnd::default(),
        }
    }
}

impl<S: Sink> Stage for SinkStage<S> {
    type In = S::In;
    type Out = ();

    fn uid(&self) -> Option<&OperatorUid> {
        Some(&self.uid)
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        let made = self
            .sink
            .writer(&sink_context(env, &self.uid))
            .map(|writer| self.writer = Some(writer));
        Box::pin(std::future::ready(made))
    }

    #[inline]
    fn process(&mut self, value: S::In, time: i64, _next: &mut dyn Link<()>) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write(value, event_time(time)),
            None => not_open(),
        }
    }

    fn flush(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), SinkWriter::flush)
    }

    fn prepare_barrier(&mut self, _barrier: &Barrier, _next: &mut dyn Link<()>) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), SinkWriter::flush)
    }

    fn snapshot(&mut self, _request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let parts = OperatorParts {
            input_end: self.told.get(),
            ..OperatorParts::default()
        };
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    fn finish(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        // A writer of this run, which knows nothing of those before it.
        self.told.finish();
        self.writer.as_mut().map_or(Ok(()), SinkWriter::finish)
    }
}

/// A sink with transactions at the end of a chain.
pub(crate) struct TwoPhaseStage<S: TwoPhaseSink> {
    sink: Arc<S>,
    uid: OperatorUid,
    writer: Option<S::Writer>,
    pending: PendingCommits<S::Transaction>,
    /// Of pending transactions that may not survive a crash yet.
    hardening: Vec<Arc<Hardening>>,
    states: OperatorStates,
    ended: OperatorListState<S::Transaction>,
    open: OperatorListState<S::Transaction>,
    told: ToldOfEnd,
    /// The checkpoint that the job ends with, while it is the newest that was cut.
    last: Option<CheckpointId>,
    failpoints: Failpoints,
}

impl<S: TwoPhaseSink> TwoPhaseStage<S> {
    pub(crate) fn new(sink: Arc<S>, uid: OperatorUid, failpoints: Failpoints) -> Self {
        Self {
            sink,
            uid,
            writer: None,
            pending: PendingCommits::new(),
            hardening: Vec::new(),
            states: OperatorStates::new(),
            ended: OperatorListState::default(),
            open: OperatorListState::default(),
            told: ToldOfEnd::default(),
            last: None,
            failpoints,
        }
    }

    /// Fails when a pending transaction never will survive a crash: no checkpoint can complete then that names it.
    fn check_hardening(&self) -> Result<()> {
        self.hardening.iter().try_for_each(|due| due.check())
    }

    /// Tells whether no other commit follows the one of a checkpoint.
    fn is_last(&self, id: CheckpointId) -> bool {
        id == NO_CHECKPOINT || self.last == Some(id)
    }
}

impl<S: TwoPhaseSink> Stage for TwoPhaseStage<S> {
    type In = S::In;
    type Out = ();

    fn uid(&self) -> Option<&OperatorUid> {
        Some(&self.uid)
    }

    fn declare(&mut self, _env: &Environment, declared: &mut Declared) {
        let mut states = OperatorStates::new();
        let registered = states.list::<S::Transaction>(PENDING);
        let registered = registered.and_then(|_| states.list::<S::Transaction>(OPEN));
        declared.operator(&self.uid, registered.map(drop), &states);
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.states = OperatorStates::of_subtask(env.subtask.index);
            let writer = self
                .writer
                .insert(self.sink.writer(&sink_context(env, &self.uid))?);
            let restored = env.restored(&self.uid);
            if let Some((_, snapshot)) = restored {
                self.states
                    .restore(&snapshot.managed_operator, &env.restore_context())
                    .await?;
            }
            self.ended = self.states.list(PENDING)?;
            self.open = self.states.list(OPEN)?;
            for transaction in self.states.elements(self.ended)?.iter() {
                let outcome = writer.recover_and_commit(transaction)?;
                report(&self.uid, &outcome);
                if let CommitOutcome::RetryLater(_) = outcome {
                    let id = restored.map_or(CheckpointId(0), |(id, _)| id);
                    self.pending.add(id, transaction.clone());
                }
            }
            for transaction in self.states.elements(self.open)?.iter() {
                writer.recover_and_abort(transaction)?;
            }
            writer.recovered()
        })
    }

    #[inline]
    fn process(&mut self, value: S::In, time: i64, _next: &mut dyn Link<()>) -> Result<()> {
        match &mut self.writer {
            Some(_) if self.told.is_finished() => Err(Error::bug(
                "a record reached a sink after the end of its input",
            )),
            Some(writer) => writer.write(value, event_time(time)),
            None => not_open(),
        }
    }

    fn flush(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), TwoPhaseWriter::flush)
    }

    fn prepare_barrier(&mut self, barrier: &Barrier, _next: &mut dyn Link<()>) -> Result<()> {
        self.last = barrier.last.then_some(barrier.id);
        self.check_hardening()
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return not_open();
        };
        if !self.pending.is_empty() && self.failpoints.reach(Failpoint::CarryOver) {
            self.pending = PendingCommits::new();
        }
        let mut parts = OperatorParts::default();
        if let Some(ended) = writer.pre_commit(request.checkpoint)? {
            self.pending.add(request.checkpoint, ended.transaction);
            let due = ended.harden.map(|work| Arc::new(Hardening::new(work)));
            self.hardening.extend(due);
        }
        // Also what was ended for earlier checkpoints, which may have been given up before they came to it.
        self.hardening.retain(|due| !due.is_done());
        parts.harden.clone_from(&self.hardening);
        self.states
            .elements_mut(self.ended)?
            .replace(self.pending.iter().cloned());
        self.states
            .elements_mut(self.open)?
            .replace(writer.open_transaction());
        parts.operator = Some(self.states.snapshot(request)?);
        parts.input_end = self.told.get();
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let is_last = self.is_last(id);
        let Some(writer) = &mut self.writer else {
            return not_open();
        };
        if self.pending.is_empty() {
            return Ok(());
        }
        self.failpoints.reach(Failpoint::Commit);
        loop {
            self.pending.commit_up_to(id, |transaction| {
                let outcome = writer.commit(transaction)?;
                report(&self.uid, &outcome);
                Ok(outcome)
            })?;
            // Behind the last checkpoint there is none to retry with, whether or not the input has ended; the number of tries
            // is bounded.
            if !(is_last && self.pending.any_up_to(id)) {
                return Ok(());
            }
        }
    }

    fn aborted(&mut self, _id: CheckpointId) -> Result<()> {
        self.check_hardening()
    }

    fn finish(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.told.finish();
        self.writer.as_mut().map_or(Ok(()), TwoPhaseWriter::flush)
    }
}

/// A user's operator over the state of its subtask.
pub(crate) struct OperatorStage<O: Operator> {
    operator: O,
    uid: OperatorUid,
    states: OperatorStates,
    watermark: i64,
    told: ToldOfEnd,
}

impl<O: Operator> OperatorStage<O> {
    pub(crate) fn new(operator: O, uid: OperatorUid) -> Self {
        Self {
            operator,
            uid,
            states: OperatorStates::new(),
            watermark: i64::MIN,
            told: ToldOfEnd::default(),
        }
    }
}

impl<O: Operator> Stage for OperatorStage<O> {
    type In = O::In;
    type Out = O::Out;

    fn uid(&self) -> Option<&OperatorUid> {
        Some(&self.uid)
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        let opened = env
            .restore_nothing(&self.uid, &mut self.states)
            .and_then(|()| self.operator.open(&mut self.states));
        declared.operator(&self.uid, opened, &self.states);
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.states = OperatorStates::of_subtask(env.subtask.index);
            self.told = env.told_of_end(&self.uid);
            if let Some((_, snapshot)) = env.restored(&self.uid) {
                self.states
                    .restore(&snapshot.managed_operator, &env.restore_context())
                    .await?;
                let raw =
                    restore_raw_operator(&snapshot.raw_operator, env.restore_storage.as_ref())
                        .await?;
                self.operator.restore_raw(raw)?;
            }
            self.operator.open(&mut self.states)
        })
    }

    #[inline]
    fn process(&mut self, value: O::In, time: i64, next: &mut dyn Link<O::Out>) -> Result<()> {
        self.told.record();
        self.operator.process(
            value,
            &mut self.states,
            &mut Out::new(next, time, self.watermark),
        )
    }

    fn watermark(&mut self, time: i64, next: &mut dyn Link<O::Out>) -> Result<()> {
        self.watermark = time;
        if self.told.watermark(time) {
            self.operator.on_watermark(
                time,
                &mut self.states,
                &mut Out::new(next, NO_TIMESTAMP, time),
            )?;
        }
        next.watermark(time)
    }

    fn prepare_barrier(&mut self, barrier: &Barrier, next: &mut dyn Link<O::Out>) -> Result<()> {
        let out = &mut Out::new(next, NO_TIMESTAMP, self.watermark);
        self.operator
            .prepare_barrier(barrier.id, &mut self.states, out)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let mut raw = RawStreams::new(KeyGroupRange::EMPTY);
        self.operator.snapshot(&mut self.states, &mut raw)?;
        let work = self.operator.snapshot_work(request.checkpoint)?;
        let operator = Some(self.states.snapshot(request)?);
        let mut parts = OperatorParts {
            operator,
            work: work.into_iter().collect(),
            input_end: self.told.get(),
            ..OperatorParts::default()
        };
        parts.add_raw(raw)?;
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.operator.checkpoint_completed(id)
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.operator.checkpoint_aborted(id)
    }

    fn finish(&mut self, next: &mut dyn Link<O::Out>) -> Result<()> {
        if !self.told.finish() {
            return Ok(());
        }
        let out = &mut Out::new(next, NO_TIMESTAMP, self.watermark);
        self.operator.finish(&mut self.states, out)
    }
}

#[cfg(test)]
#[path = "sinks_tests.rs"]
mod tests;
