use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::LocalBoxFuture;

use crate::{
    CheckpointId, CheckpointStorage, Executor, KeyGroup, KeyGroupRange, KeyedHandle, Result,
    Snapshot, SnapshotRequest, StateMeta, StateSummary,
};

/// Live tables at the moment of a cut; encoded key group by key group on another thread.
///
/// # Contract
/// Implemented by `managed-state`; used by live strategies. Later writes to the tables never reach it
/// (`rules::isolation::a_snapshot_never_sees_a_later_write` in `backend-testkit`). Dropping it lets go of everything it holds
/// (`rules::isolation::checkpoints_leave_no_memory_behind`).
pub trait FrozenTables: Send {
    /// Returns the key groups covered.
    fn range(&self) -> KeyGroupRange;

    /// Appends the canonical bytes of one key group, checksum included, and lets go of the group; appends nothing if the group is empty.
    ///
    /// Each group can be encoded once.
    ///
    /// # Errors
    /// `LimitExceeded` when the tables had to let go of the frozen layers; `InvalidArgument` for a group outside the range or encoded before.
    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()>;

    /// Returns the states with the entries encoded so far.
    fn states(&self) -> Vec<StateSummary>;

    /// Returns the changes since the cut of an earlier checkpoint, 0 for what was restored; `None` unless all tables know them.
    ///
    /// They share what is frozen with these tables, and are to be encoded before a group of these is. They may be asked for
    /// since several cuts, to choose; of all results one may be encoded, which lets go of what the others share.
    fn changes(&mut self, since: CheckpointId) -> Option<Box<dyn FrozenChanges>>;
}

/// The changes between two cuts.
///
/// # Contract
/// As [`FrozenTables`]. Applied to what was there at the first cut they give what was there at the second
/// (`model::run` in `backend-testkit`, with checkpoints on the way).
pub trait FrozenChanges: Send {
    /// Returns the key groups covered.
    fn range(&self) -> KeyGroupRange;

    /// Returns the states with all entries that they had at the second cut; the number is an estimate where it would take a
    /// walk.
    fn states(&self) -> Vec<StateSummary>;

    /// Returns the number of keys whose whole value changed; one that changed several times may count as often.
    fn changed(&self) -> u64;

    /// Appends the changes of one key group, checksum included, in the layout of change streams; appends nothing if there are
    /// none.
    ///
    /// # Errors
    /// As [`FrozenTables::encode_group`].
    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()>;
}

/// Empty live tables that take restored state.
///
/// # Contract
/// Implemented by `managed-state`; used by live strategies on the task's thread during restore only.
pub trait LoadTables {
    /// Returns the key groups to be filled; others are skipped.
    fn range(&self) -> KeyGroupRange;

    /// Declares the states of the handle that the next groups come from.
    ///
    /// # Errors
    /// `Incompatible` when one contradicts a state of the same name that is there already.
    fn begin(&mut self, states: &[StateMeta]) -> Result<()>;

    /// Adds the entries of one key group out of its canonical bytes.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not what [`FrozenTables::encode_group`] wrote for this group.
    fn load_group(&mut self, group: KeyGroup, bytes: Bytes) -> Result<()>;
}

/// What a restore may use.
#[derive(Clone)]
pub struct RestoreContext {
    /// Where bytes come from.
    pub storage: Arc<dyn CheckpointStorage>,
    /// Threads to work on.
    pub executor: Arc<dyn Executor>,
}

/// Makes live tables durable: the strategy behind a backend of *live objects*.
///
/// # Contract
/// Implemented by backends; called on the task's thread, per snapshot and per key group, never per entry. It must not keep state of its own about entries.
/// Increments build on the last checkpoint that was *reported complete*. Savepoints never become a base.
///
/// The rules are functions of `backend-testkit`, module `rules`, run by `conformance!` with `LiveBackend`; beside those of
/// `snapshot` and `isolation`:
/// - The cut leaves the work to the async part (`isolation::the_cut_leaves_the_work_to_the_async_part`).
/// - Damaged or missing bytes are `Corrupt`, never state (`faults::damaged_bytes_are_never_restored_as_state`,
///   `faults::a_damaged_or_missing_object_is_named`).
/// - A canonical savepoint is written and read as by every other backend (`canonical::a_job_moves_to_another_backend_and_back`).
pub trait LiveSnapshots {
    /// Turns frozen tables into the async part of a snapshot.
    ///
    /// # Errors
    /// Any: the checkpoint is declined, the tables go on.
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>>;

    /// Fills empty tables with the key groups of their range.
    ///
    /// # Errors
    /// `Corrupt` when bytes are missing or damaged; `Incompatible` for a format that is not this strategy's; those of the storage.
    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>>;

    /// Returns whether the tables shall record what changes.
    fn captures_changes(&self) -> bool {
        false
    }

    /// Returns the checkpoint since whose cut changes are still needed, the oldest of those that later ones may go on top of; 0 for
    /// what was restored, `None` if none are.
    ///
    /// Asked for after each notice: the tables forget what changed before it.
    fn needs_changes_since(&self) -> Option<CheckpointId> {
        None
    }

    /// Learns that a checkpoint is complete.
    ///
    /// # Errors
    /// Any: the task fails.
    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let _ = checkpoint;
        Ok(())
    }

    /// Learns that a checkpoint will never complete.
    ///
    /// # Errors
    /// Any: the task fails.
    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let _ = checkpoint;
        Ok(())
    }
}
