use managed_state::keyed::{At, DueTimer};
use managed_state::raw::{RawKeyedInput, RawStreams};
use state_api::{CheckpointId, Result, StateKey};

use super::{Out, States};
use crate::record::Record;
use crate::task::SnapshotWork;

/// An operator over keyed state.
///
/// # Contract
/// Implemented by users; each subtask has a clone of its own, called on the subtask's thread. `open` comes first, after
/// state was restored; then records and timers one at a time; at a checkpoint `prepare_barrier`, before the barrier goes on.
/// Fields other than tokens and settings are lost at a failure. An error fails the job, which restarts from a checkpoint.
pub trait KeyedOperator: Clone + Send + Sync + 'static {
    /// What state is keyed by.
    type Key: StateKey;
    /// What comes in.
    type In: Record;
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

    /// Registers the states; [`States`] says whether they were restored.
    ///
    /// # Errors
    /// Those of registration.
    fn open(&mut self, states: &mut States<'_, Self::Key>) -> Result<()>;

    /// Processes a record.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process(
        &mut self,
        record: Self::In,
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

    /// Learns of a new watermark, in milliseconds, after the timers that it made due.
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_watermark(&mut self, watermark: i64, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = (watermark, out);
        Ok(())
    }

    /// Emits what must be before the barrier of a checkpoint, such as a batch held back; meant to be light, since the
    /// whole job waits for it.
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

    /// Learns that no more records come; all event timers have fired.
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
