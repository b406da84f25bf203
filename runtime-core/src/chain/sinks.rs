use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Error, OperatorUid, Result, SnapshotRequest};

use super::chained::Stage;
use super::element_lists::ListStates;
use super::environment::Environment;
use super::link::Link;
use crate::channel::Barrier;
use crate::execution::{Failpoint, Failpoints};
use crate::operator::{Operator, Out};
use crate::record::NO_TIMESTAMP;
use crate::sink::{Sink, SinkContext, SinkWriter, TwoPhaseSink, TwoPhaseWriter};
use crate::task::{OperatorParts, PendingCommits, SubtaskSnapshot};

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

/// A sink without transactions at the end of a chain.
pub(crate) struct SinkStage<S: Sink> {
    sink: Arc<S>,
    uid: OperatorUid,
    writer: Option<S::Writer>,
}

impl<S: Sink> SinkStage<S> {
    pub(crate) fn new(sink: Arc<S>, uid: OperatorUid) -> Self {
        Self {
            sink,
            uid,
            writer: None,
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
        set.add(self.uid.clone(), OperatorParts::default());
        Ok(())
    }

    fn finish(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), SinkWriter::finish)
    }
}

/// A sink with transactions at the end of a chain.
pub(crate) struct TwoPhaseStage<S: TwoPhaseSink> {
    sink: Arc<S>,
    uid: OperatorUid,
    writer: Option<S::Writer>,
    pending: PendingCommits<S::Transaction>,
    finished: bool,
    failpoints: Failpoints,
}

impl<S: TwoPhaseSink> TwoPhaseStage<S> {
    pub(crate) fn new(sink: Arc<S>, uid: OperatorUid, failpoints: Failpoints) -> Self {
        Self {
            sink,
            uid,
            writer: None,
            pending: PendingCommits::new(),
            finished: false,
            failpoints,
        }
    }
}

impl<S: TwoPhaseSink> Stage for TwoPhaseStage<S> {
    type In = S::In;
    type Out = ();

    fn uid(&self) -> Option<&OperatorUid> {
        Some(&self.uid)
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let writer = self
                .writer
                .insert(self.sink.writer(&sink_context(env, &self.uid))?);
            if let Some((_, snapshot)) = env.restored(&self.uid) {
                let lists =
                    ListStates::read(&snapshot.managed_operator, env.restore_storage.as_ref())
                        .await?;
                for transaction in lists.get::<S::Transaction>(PENDING)? {
                    writer.recover_and_commit(&transaction)?;
                }
                for transaction in lists.get::<S::Transaction>(OPEN)? {
                    writer.recover_and_abort(&transaction)?;
                }
            }
            writer.recovered()
        })
    }

    #[inline]
    fn process(&mut self, value: S::In, time: i64, _next: &mut dyn Link<()>) -> Result<()> {
        match &mut self.writer {
            Some(_) if self.finished => Err(Error::bug(
                "a record reached a sink after the end of its input",
            )),
            Some(writer) => writer.write(value, event_time(time)),
            None => not_open(),
        }
    }

    fn flush(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.writer.as_mut().map_or(Ok(()), TwoPhaseWriter::flush)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return not_open();
        };
        let mut parts = OperatorParts::default();
        if let Some(ended) = writer.pre_commit(request.checkpoint)? {
            self.pending.add(request.checkpoint, ended.transaction);
            parts.harden.extend(ended.harden);
        }
        let mut lists = ListStates::new();
        lists.put(PENDING, self.pending.iter());
        lists.put(OPEN, writer.open_transaction().iter());
        parts.operator.push(lists.into_snapshot());
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return not_open();
        };
        if self.pending.is_empty() {
            return Ok(());
        }
        self.failpoints.reach(Failpoint::Commit);
        self.pending
            .commit_up_to(id, |transaction| writer.commit(transaction))
            .map(drop)
    }

    fn finish(&mut self, _next: &mut dyn Link<()>) -> Result<()> {
        self.finished = true;
        self.writer.as_mut().map_or(Ok(()), TwoPhaseWriter::flush)
    }
}

/// A user's operator over the state of its subtask.
pub(crate) struct OperatorStage<O: Operator> {
    operator: O,
    uid: OperatorUid,
    watermark: i64,
}

impl<O: Operator> OperatorStage<O> {
    pub(crate) fn new(operator: O, uid: OperatorUid) -> Self {
        Self {
            operator,
            uid,
            watermark: i64::MIN,
        }
    }
}

impl<O: Operator> Stage for OperatorStage<O> {
    type In = O::In;
    type Out = O::Out;

    fn uid(&self) -> Option<&OperatorUid> {
        Some(&self.uid)
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some((_, snapshot)) = env.restored(&self.uid) else {
                return Ok(());
            };
            let lists =
                ListStates::read(&snapshot.managed_operator, env.restore_storage.as_ref()).await?;
            self.operator.restore(&lists)
        })
    }

    #[inline]
    fn process(&mut self, value: O::In, time: i64, next: &mut dyn Link<O::Out>) -> Result<()> {
        self.operator
            .process(value, &mut Out::new(next, time, self.watermark))
    }

    fn watermark(&mut self, time: i64, next: &mut dyn Link<O::Out>) -> Result<()> {
        self.watermark = time;
        self.operator
            .on_watermark(time, &mut Out::new(next, NO_TIMESTAMP, time))?;
        next.watermark(time)
    }

    fn prepare_barrier(&mut self, barrier: &Barrier, next: &mut dyn Link<O::Out>) -> Result<()> {
        self.operator.prepare_barrier(
            barrier.id,
            &mut Out::new(next, NO_TIMESTAMP, self.watermark),
        )
    }

    fn snapshot(&mut self, _request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let mut lists = ListStates::new();
        self.operator.snapshot(&mut lists)?;
        let parts = OperatorParts {
            operator: vec![lists.into_snapshot()],
            ..OperatorParts::default()
        };
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
        self.operator
            .finish(&mut Out::new(next, NO_TIMESTAMP, self.watermark))
    }
}
