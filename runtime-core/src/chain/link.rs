use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Error, OperatorUid, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::gate::{Cut, Gate};
use super::in_flight::RecordsInFlight;
use crate::channel::Barrier;
use crate::record::Emit;
use crate::task::SubtaskSnapshot;

/// Everything but records that goes down a chain.
///
/// # Contract
/// Implemented by links. A call that is not implemented is passed on to what is behind; one that is must pass it on itself.
/// Order of a checkpoint: `prepare_barrier` head to tail, `emit_barrier`,
/// then `snapshot` tail to head. After an error of any call but `snapshot` the subtask fails.
pub(crate) trait Control {
    /// Returns what is chained behind; none at the end of a chain.
    fn next(&mut self) -> Option<&mut dyn Control>;

    /// Initialises state, fresh or restored, tail first.
    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        match self.next() {
            Some(next) => next.open(env),
            None => Box::pin(async { Ok(()) }),
        }
    }

    /// Says which states would be registered by [`open`](Self::open), without inputs, outputs or anything restored; a
    /// chain that was asked is not opened.
    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        if let Some(next) = self.next() {
            next.declare(env, declared);
        }
    }

    /// Advances event time: no record with a smaller time follows.
    fn watermark(&mut self, time: i64) -> Result<()> {
        self.next().map_or(Ok(()), |next| next.watermark(time))
    }

    /// Takes note that nothing comes for a while.
    fn idle(&mut self) -> Result<()> {
        self.next().map_or(Ok(()), Control::idle)
    }

    /// Passes on what is buffered.
    fn flush(&mut self) -> Result<()> {
        self.next().map_or(Ok(()), Control::flush)
    }

    /// Lets operators look at the clock while there is nothing to read; returns when they want to look again, in
    /// milliseconds of wall-clock time.
    fn tick(&mut self) -> Result<Option<i64>> {
        self.next().map_or(Ok(None), Control::tick)
    }

    /// Hands backlogs to channels that have room again; returns whether none is left.
    fn pump(&mut self) -> bool {
        self.next().is_none_or(Control::pump)
    }

    /// Lets operators emit what must be before the barrier; meant to be light.
    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        self.next()
            .map_or(Ok(()), |next| next.prepare_barrier(barrier))
    }

    /// Sends the barrier, or a cancel marker in its place, to all outputs.
    fn emit_barrier(&mut self, barrier: Option<&Barrier>, id: CheckpointId) {
        if let Some(next) = self.next() {
            next.emit_barrier(barrier, id);
        }
    }

    /// Freezes the state of all operators.
    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next()
            .map_or(Ok(()), |next| next.snapshot(request, set))
    }

    /// Tells all operators, tail first, that a checkpoint is complete.
    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.next().map_or(Ok(()), |next| next.completed(id))
    }

    /// Tells all operators, tail first, that a checkpoint is given up.
    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.next().map_or(Ok(()), |next| next.aborted(id))
    }

    /// Tells all operators, head first, that no more records come.
    fn finish(&mut self) -> Result<()> {
        self.next().map_or(Ok(()), Control::finish)
    }

    /// Does work that was put off; returns whether more is left.
    fn maintain(&mut self) -> bool {
        self.next().is_some_and(Control::maintain)
    }
}

/// An operator, a sink or an output, with all that is chained behind it.
pub(crate) trait Link<T>: Emit<T> + Control {}

impl<T, L: Emit<T> + Control> Link<T> for L {}

/// How a head went on.
pub(crate) enum Turn {
    /// It did something; there may be more.
    Worked,
    /// There is nothing to do until the signal rings or the clock reaches a time.
    Waiting { wake_at_ms: Option<i64> },
    /// An output has no room.
    Congested,
    /// The inputs are at a cut, or a checkpoint is given up.
    Cut(Cut),
    /// All input is processed and the end of event time is passed on.
    InputEnded,
}

/// What stands at the start of a subtask's chain.
pub(crate) trait Head: Control {
    /// Processes up to about `budget` records; never waits.
    fn turn(&mut self, budget: usize) -> Result<Turn>;

    /// Returns what makes the barriers of several channels one cut; `None` for a source.
    fn gate(&mut self) -> Option<&mut Gate> {
        None
    }

    /// Takes note that the coordinator gave a checkpoint up.
    fn give_up(&mut self, id: CheckpointId) {
        if let Some(gate) = self.gate() {
            gate.give_up(id);
        }
    }

    /// Makes records in flight part of a checkpoint that was triggered unaligned, right after the snapshot.
    fn record_in_flight(&mut self, id: CheckpointId) -> Option<RecordsInFlight> {
        let _ = id;
        None
    }

    /// Returns whether barriers begin here.
    fn is_source(&self) -> bool {
        false
    }

    /// Ends the input here and passes on the end of event time; for sources.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }

    /// Describes the positions that were restored, for people.
    fn restored_positions(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Names the operator in an error that it or its state returned.
#[cold]
pub(crate) fn at_operator(error: Error, uid: Option<&OperatorUid>) -> Error {
    match uid {
        Some(uid) if error.context("operator").is_none() => error.with("operator", uid),
        _ => error,
    }
}

/// Returns the earlier of two times.
pub(crate) fn earliest(first: Option<i64>, second: Option<i64>) -> Option<i64> {
    first.into_iter().chain(second).min()
}

/// Keeps the first of two results' errors.
pub(crate) fn first_error(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (Err(first), Err(second)) => Err(first.with("also failed", second)),
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(()),
    }
}
