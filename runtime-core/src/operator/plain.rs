use managed_state::operator::OperatorStates;
use managed_state::raw::{RawOperatorInput, RawStreams};
use state_api::{CheckpointId, Result};

use super::Out;
use crate::record::Record;
use crate::task::SnapshotWork;

/// An operator over the state of its subtask, not bound to a key: lists and maps that are dealt out again at a restore.
///
/// # Contract
/// Implemented by users; each subtask has a clone of its own, called on the subtask's thread. `restore_raw` comes first, after
/// a restore only, then `open`, then records. An error fails the job, except in `snapshot`.
pub trait Operator: Clone + Send + Sync + 'static {
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Takes back the partitions that [`snapshot`](Self::snapshot) wrote, dealt out anew.
    ///
    /// # Errors
    /// Any: the job fails.
    fn restore_raw(&mut self, raw: RawOperatorInput) -> Result<()> {
        let _ = raw;
        Ok(())
    }

    /// Registers the states, which say whether they were restored, and reads what is in them.
    ///
    /// # Errors
    /// Those of registration; any: the job fails.
    fn open(&mut self, states: &mut OperatorStates) -> Result<()> {
        let _ = states;
        Ok(())
    }

    /// Processes a record.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process(
        &mut self,
        record: Self::In,
        states: &mut OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    /// Writes what it holds outside of its states into them, or as raw bytes.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot(&mut self, states: &mut OperatorStates, raw: &mut RawStreams) -> Result<()> {
        let _ = (states, raw);
        Ok(())
    }

    /// Learns of a new watermark, in milliseconds.
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_watermark(
        &mut self,
        watermark: i64,
        states: &mut OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (watermark, states, out);
        Ok(())
    }

    /// Emits what must be before the barrier of a checkpoint; meant to be light.
    ///
    /// # Errors
    /// Any: the job fails.
    fn prepare_barrier(
        &mut self,
        checkpoint: CheckpointId,
        states: &mut OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let _ = (checkpoint, states, out);
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

    /// Learns that no more records come.
    ///
    /// It learns that, and of the watermark at the end of time, once: not again after a restore from a checkpoint that was taken
    /// later, as what it emitted is part of that. Only when records come all the same, since the job was given more of them,
    /// or when the parallelism is another and not all subtasks had learned it, it does again. So what is
    /// emitted from a state is best taken out of it.
    ///
    /// # Errors
    /// Any: the job fails.
    fn finish(&mut self, states: &mut OperatorStates, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = (states, out);
        Ok(())
    }
}
