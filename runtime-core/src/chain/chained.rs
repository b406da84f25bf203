use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, OperatorUid, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::link::{Control, Link, at_operator, earliest, first_error};
use crate::channel::Barrier;
use crate::record::{Emit, Record, SplitEvent};
use crate::task::SubtaskSnapshot;

/// One operator of a chain, without what is behind it; hooks that it leaves out do nothing.
pub(crate) trait Stage: 'static {
    type In: Record;
    type Out: Record;

    fn uid(&self) -> Option<&OperatorUid> {
        None
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        let _ = env;
        Box::pin(std::future::ready(Ok(())))
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        let _ = (env, declared);
    }

    fn process(&mut self, value: Self::In, time: i64, next: &mut dyn Link<Self::Out>)
    -> Result<()>;

    fn split(&mut self, event: SplitEvent, next: &mut dyn Link<Self::Out>) -> Result<()> {
        next.split(event)
    }

    fn watermark(&mut self, time: i64, next: &mut dyn Link<Self::Out>) -> Result<()> {
        next.watermark(time)
    }

    fn idle(&mut self, next: &mut dyn Link<Self::Out>) -> Result<()> {
        next.idle()
    }

    fn flush(&mut self, next: &mut dyn Link<Self::Out>) -> Result<()> {
        let _ = next;
        Ok(())
    }

    fn tick(&mut self, next: &mut dyn Link<Self::Out>) -> Result<Option<i64>> {
        let _ = next;
        Ok(None)
    }

    fn prepare_barrier(&mut self, barrier: &Barrier, next: &mut dyn Link<Self::Out>) -> Result<()> {
        let _ = (barrier, next);
        Ok(())
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        let _ = (request, set);
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let _ = id;
        Ok(())
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        let _ = id;
        Ok(())
    }

    fn finish(&mut self, next: &mut dyn Link<Self::Out>) -> Result<()> {
        let _ = next;
        Ok(())
    }
}

/// A stage and what is chained behind it.
pub(crate) struct Chained<S: Stage> {
    stage: S,
    next: Box<dyn Link<S::Out>>,
}

impl<S: Stage> Chained<S> {
    pub(crate) fn new(stage: S, next: Box<dyn Link<S::Out>>) -> Self {
        Self { stage, next }
    }

    /// Calls a hook of the stage and names the operator in its error.
    #[inline]
    fn hook(&mut self, f: impl FnOnce(&mut S, &mut dyn Link<S::Out>) -> Result<()>) -> Result<()> {
        match f(&mut self.stage, self.next.as_mut()) {
            Ok(()) => Ok(()),
            Err(error) => Err(at_operator(error, self.stage.uid())),
        }
    }
}

impl<S: Stage> Emit<S::In> for Chained<S> {
    #[inline]
    fn emit(&mut self, value: S::In, time: i64) -> Result<()> {
        self.hook(|stage, next| stage.process(value, time, next))
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        self.hook(|stage, next| stage.split(event, next))
    }
}

impl<S: Stage> Control for Chained<S> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.next.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.next.open(env).await?;
            let result = self.stage.open(env).await;
            result.map_err(|error| at_operator(error, self.stage.uid()))
        })
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        self.next.declare(env, declared);
        self.stage.declare(env, declared);
    }

    fn watermark(&mut self, time: i64) -> Result<()> {
        self.hook(|stage, next| stage.watermark(time, next))
    }

    fn idle(&mut self) -> Result<()> {
        self.hook(|stage, next| stage.idle(next))
    }

    fn flush(&mut self) -> Result<()> {
        self.hook(|stage, next| stage.flush(next))?;
        self.next.flush()
    }

    fn tick(&mut self) -> Result<Option<i64>> {
        let mut own = None;
        self.hook(|stage, next| stage.tick(next).map(|at_ms| own = at_ms))?;
        Ok(earliest(own, self.next.tick()?))
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.hook(|stage, next| stage.prepare_barrier(barrier, next))?;
        self.next.prepare_barrier(barrier)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next.snapshot(request, set)?;
        self.hook(|stage, _| stage.snapshot(request, set))
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let behind = self.next.completed(id);
        first_error(behind, self.hook(|stage, _| stage.completed(id)))
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        let behind = self.next.aborted(id);
        first_error(behind, self.hook(|stage, _| stage.aborted(id)))
    }

    fn finish(&mut self) -> Result<()> {
        self.hook(|stage, next| stage.finish(next))?;
        self.next.finish()
    }
}

/// What is behind a sink: nothing.
pub(crate) struct End;

impl Emit<()> for End {
    fn emit(&mut self, (): (), _time: i64) -> Result<()> {
        Ok(())
    }
}

impl Control for End {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }
}
