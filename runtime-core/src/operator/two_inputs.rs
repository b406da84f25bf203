use managed_state::keyed::{At, DueTimer};
use managed_state::raw::{RawKeyedInput, RawStreams};
use state_api::{CheckpointId, Result, StateKey};

use super::{KeyedOperator, Out, States};
use crate::record::Record;
use crate::task::SnapshotWork;

/// An operator over keyed state with two inputs that have keys of one type: both reach the same states and timers.
///
/// Event time advances with both inputs: a timer fires when both have reached it.
///
/// # Contract
/// As [`KeyedOperator`]. Records of the two inputs come in any order to each other.
pub trait TwoInputOperator: Clone + Send + Sync + 'static {
    /// What state is keyed by.
    type Key: StateKey;
    /// What comes in on the stream that is connected to another one.
    type First: Record;
    /// What comes in on the other one.
    type Second: Record;
    /// What goes out.
    type Out: Record;

    /// As [`KeyedOperator::restore_raw`].
    ///
    /// # Errors
    /// Any: the job fails.
    fn restore_raw(&mut self, raw: RawKeyedInput) -> Result<()> {
        let _ = raw;
        Ok(())
    }

    /// As [`KeyedOperator::snapshot_raw`].
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot_raw(&mut self, raw: &mut RawStreams) -> Result<()> {
        let _ = raw;
        Ok(())
    }

    /// Registers the states that both inputs share.
    ///
    /// # Errors
    /// Those of registration.
    fn open(&mut self, states: &mut States<'_, Self::Key>) -> Result<()>;

    /// Processes a record of the first input.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process_first(
        &mut self,
        record: Self::First,
        at: &mut At<'_, Self::Key>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    /// Processes a record of the second input.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process_second(
        &mut self,
        record: Self::Second,
        at: &mut At<'_, Self::Key>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    /// Acts upon a timer that is due: [`DueTimer::is_of`] tells which.
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_timer(
        &mut self,
        due: &DueTimer<Self::Key>,
        at: &mut At<'_, Self::Key>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (due, at, out);
        Ok(())
    }

    /// As [`KeyedOperator::on_watermark`].
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_watermark(&mut self, watermark: i64, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = (watermark, out);
        Ok(())
    }

    /// As [`KeyedOperator::prepare_barrier`].
    ///
    /// # Errors
    /// Any: the job fails.
    fn prepare_barrier(
        &mut self,
        checkpoint: CheckpointId,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (checkpoint, out);
        Ok(())
    }

    /// Hands work to the async part of the snapshot of a checkpoint, such as flushing a buffer to another system: the
    /// checkpoint completes only after it succeeded. Called at every snapshot, not in a job without checkpoints: what must
    /// go out at the end goes out in `finish`.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot_work(&mut self, checkpoint: CheckpointId) -> Result<Option<SnapshotWork>> {
        let _ = checkpoint;
        Ok(None)
    }

    /// Learns that a checkpoint is complete.
    ///
    /// # Errors
    /// Any: the job fails.
    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let _ = checkpoint;
        Ok(())
    }

    /// Learns that a checkpoint is given up.
    ///
    /// # Errors
    /// Any: the job fails.
    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let _ = checkpoint;
        Ok(())
    }

    /// Learns that no more records come on either input; all event timers have fired.
    ///
    /// It learns that, and of the watermark at the end of time, once: not again after a restore from a checkpoint that was taken
    /// later, as what it emitted is part of that. Only when records come all the same, since the job was given more of them,
    /// or when the parallelism is another and not all subtasks had learned it, it does again.
    ///
    /// # Errors
    /// Any: the job fails.
    fn finish(&mut self, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = out;
        Ok(())
    }
}

/// A record of one of two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side<A, B> {
    /// One of the stream that is connected to another one.
    First(A),
    /// One of the other stream.
    Second(B),
}

/// Lets an operator with two inputs run as one whose input has records of two kinds: they share one port, and so one valve
/// and one gate.
#[derive(Clone, Debug)]
pub struct TwoInputs<O>(pub O);

impl<O: TwoInputOperator> KeyedOperator for TwoInputs<O> {
    type Key = O::Key;
    type In = Side<O::First, O::Second>;
    type Out = O::Out;

    fn restore_raw(&mut self, raw: RawKeyedInput) -> Result<()> {
        self.0.restore_raw(raw)
    }

    fn snapshot_raw(&mut self, raw: &mut RawStreams) -> Result<()> {
        self.0.snapshot_raw(raw)
    }

    fn open(&mut self, states: &mut States<'_, O::Key>) -> Result<()> {
        self.0.open(states)
    }

    #[inline]
    fn process(
        &mut self,
        record: Self::In,
        at: &mut At<'_, O::Key>,
        out: &mut Out<'_, O::Out>,
    ) -> Result<()> {
        match record {
            Side::First(record) => self.0.process_first(record, at, out),
            Side::Second(record) => self.0.process_second(record, at, out),
        }
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<O::Key>,
        at: &mut At<'_, O::Key>,
        out: &mut Out<'_, O::Out>,
    ) -> Result<()> {
        self.0.on_timer(due, at, out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Out<'_, O::Out>) -> Result<()> {
        self.0.on_watermark(watermark, out)
    }

    fn prepare_barrier(&mut self, id: CheckpointId, out: &mut Out<'_, O::Out>) -> Result<()> {
        self.0.prepare_barrier(id, out)
    }

    fn snapshot_work(&mut self, id: CheckpointId) -> Result<Option<SnapshotWork>> {
        self.0.snapshot_work(id)
    }

    fn checkpoint_completed(&mut self, id: CheckpointId) -> Result<()> {
        self.0.checkpoint_completed(id)
    }

    fn checkpoint_aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.0.checkpoint_aborted(id)
    }

    fn finish(&mut self, out: &mut Out<'_, O::Out>) -> Result<()> {
        self.0.finish(out)
    }
}
