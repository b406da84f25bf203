use managed_state::keyed::{At, DueTimer, KeyedStates};
use managed_state::operator::OperatorStates;
use managed_state::raw::{RawKeyedInput, RawStreams};
use state_api::{CheckpointId, Result, StateKey};

use super::{Out, States};
use crate::record::Record;
use crate::task::SnapshotWork;

/// What the broadcast side of an operator may change: the broadcast states, and the keyed states of all keys.
///
/// Whatever it does must depend on the broadcast records and the states alone: every subtask sees the same broadcast records, in
/// the same order if one subtask sends them, and must come to the same broadcast states.
pub struct BroadcastSide<'a, K> {
    /// The broadcast states.
    pub broadcast: &'a mut OperatorStates,
    /// The keyed states: [`KeyedStates::for_each_key`] applies a change to all keys of the subtask.
    pub keyed: &'a mut KeyedStates<K>,
}

/// An operator over keyed state that reads what a second stream has broadcast.
///
/// Event time advances with both inputs: a timer fires when both have reached it. So an operator that waits for a timer sees every
/// broadcast record of the time before, and a broadcast input that has ended holds nothing back.
///
/// # Contract
/// As [`KeyedOperator`](super::KeyedOperator). The keyed side sees the broadcast states and can't write them.
pub trait BroadcastOperator: Clone + Send + Sync + 'static {
    /// What state is keyed by.
    type Key: StateKey;
    /// What comes in by key.
    type In: Record;
    /// What every subtask gets.
    type Broadcast: Record;
    /// What goes out.
    type Out: Record;

    /// Takes back the bytes that [`snapshot_raw`](Self::snapshot_raw) wrote for the key groups of this subtask; after a
    /// restore only, before `open`.
    ///
    /// # Errors
    /// Any: the job fails.
    fn restore_raw(&mut self, raw: RawKeyedInput) -> Result<()> {
        let _ = raw;
        Ok(())
    }

    /// Writes what it holds outside of its states, per key group.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot_raw(&mut self, raw: &mut RawStreams) -> Result<()> {
        let _ = raw;
        Ok(())
    }

    /// Registers the states of both sides.
    ///
    /// # Errors
    /// Those of registration.
    fn open(
        &mut self,
        states: &mut States<'_, Self::Key>,
        broadcast: &mut OperatorStates,
    ) -> Result<()>;

    /// Processes a record of the keyed side.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process(
        &mut self,
        record: Self::In,
        at: &mut At<'_, Self::Key>,
        broadcast: &OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    /// Processes a broadcast record.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process_broadcast(
        &mut self,
        record: Self::Broadcast,
        side: &mut BroadcastSide<'_, Self::Key>,
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
        broadcast: &OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (due, at, broadcast, out);
        Ok(())
    }

    /// Learns of a new watermark of both inputs, in milliseconds, after the timers that it made due.
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_watermark(
        &mut self,
        watermark: i64,
        broadcast: &mut OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (watermark, broadcast, out);
        Ok(())
    }

    /// Emits what must be before the barrier of a checkpoint, such as a batch held back; meant to be light.
    ///
    /// # Errors
    /// Any: the job fails.
    fn prepare_barrier(
        &mut self,
        checkpoint: CheckpointId,
        broadcast: &mut OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (checkpoint, broadcast, out);
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

    /// Learns that no more records come on either side; all event timers have fired.
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
