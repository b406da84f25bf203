use state_api::{CheckpointId, Result};

use super::Out;
use crate::chain::element_lists::ListStates;
use crate::record::Record;

/// An operator over the state of its subtask, not bound to a key: lists that are dealt out again at a restore.
///
/// # Contract
/// Implemented by users; each subtask has a clone of its own, called on the subtask's thread. Before the first record
/// `restore` gets what `snapshot` stored, dealt out anew. An error fails the job, except in `snapshot`.
pub trait Operator: Clone + Send + Sync + 'static {
    /// What comes in.
    type In: Record;
    /// What goes out.
    type Out: Record;

    /// Takes back the lists of a checkpoint; not called at a fresh start.
    ///
    /// # Errors
    /// Those of [`ListStates::get`]; any: the job fails.
    fn restore(&mut self, states: &ListStates) -> Result<()> {
        let _ = states;
        Ok(())
    }

    /// Stores what must survive, by name.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot(&mut self, states: &mut ListStates) -> Result<()> {
        let _ = states;
        Ok(())
    }

    /// Processes a record.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process(&mut self, record: Self::In, out: &mut Out<'_, Self::Out>) -> Result<()>;

    /// Learns of a new watermark, in milliseconds.
    ///
    /// # Errors
    /// Any: the job fails.
    fn on_watermark(&mut self, watermark: i64, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = (watermark, out);
        Ok(())
    }

    /// Emits what must be before the barrier of a checkpoint; meant to be light.
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
    /// # Errors
    /// Any: the job fails.
    fn finish(&mut self, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let _ = out;
        Ok(())
    }
}
