//! Increments: keys that change are noted in a table, cut by cut; a checkpoint writes what has become of them since its base.
use futures_util::future::LocalBoxFuture;
use managed_state::increments::{PairWriter, restore_pairs};
use redb::{ReadableTable, ReadableTableMetadata, TableDefinition};
use state_api::{
    CheckpointId, Column, KeyGroupRange, KeyedHandle, NativeSnapshots, RestoreContext, Result, Snapshot,
    SnapshotRequest, StateMeta,
};

use super::NAME;
use super::store::{Bytes, RedbStore, failed};

/// The log of changes: number of the last cut before the change, column, key.
pub(super) const CHANGED: TableDefinition<'static, (u64, u32, Bytes), ()> = TableDefinition::new("changed");

impl RedbStore {
    /// Shortens the log. Snapshots that are being written have it as it was.
    fn forget_before(&self, cut: u64) -> Result<()> {
        let mut changed = self.redb.writes()?.open_table(CHANGED).map_err(failed)?;
        changed.retain_in::<(u64, u32, &[u8]), _>(..(cut, 0, &[][..]), |_, ()| false).map_err(failed)
    }
}

impl NativeSnapshots for RedbStore {
    fn format(&self) -> &str {
        NAME
    }

    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        states: &[(Column, StateMeta)],
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        let (read, frozen) = self.freeze()?;
        let log = read.open_table(CHANGED).map_err(failed)?;
        let counted = |(column, meta): &(Column, StateMeta)| {
            let entries = frozen.table(*column)?.len().map_err(failed)?;
            Ok((meta.clone(), entries))
        };
        let counted = states.iter().map(counted).collect::<Result<Vec<_>>>()?;
        let changed = log.len().map_err(failed)?;
        if changed > counted.iter().map(|(_, entries)| entries).sum() {
            // Checkpoint after checkpoint came to nothing: a full one is cheaper by now.
            self.increments.forget();
            self.forget_before(u64::MAX)?;
        }

        let (last, columns) = (self.cuts, states.to_vec());
        self.cuts += 1;
        let write = move |pairs: &mut PairWriter<'_>, since: Option<u64>| {
            for (column, meta) in columns {
                pairs.column(&meta.name)?;
                let table = frozen.table(column)?;
                let Some(since) = since else {
                    for pair in table.iter().map_err(failed)? {
                        let (key, value) = pair.map_err(failed)?;
                        pairs.put(key.value(), value.value())?;
                    }
                    continue;
                };
                for cut in since..=last {
                    let of_column = (cut, column.0, &[][..])..(cut, column.0 + 1, &[][..]);
                    for change in log.range::<(u64, u32, &[u8])>(of_column).map_err(failed)? {
                        let (change, _) = change.map_err(failed)?;
                        let (_, _, key) = change.value();
                        match table.get(key).map_err(failed)? {
                            Some(value) => pairs.put(key, value.value())?,
                            None => pairs.removed(key)?,
                        }
                    }
                }
            }
            Ok(())
        };
        self.increments.snapshot(request, self.cuts, changed, counted, write)
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        range: KeyGroupRange,
        cx: &'a RestoreContext,
    ) -> LocalBoxFuture<'a, Result<Vec<(Column, StateMeta)>>> {
        Box::pin(async move {
            let states = restore_pairs(handles, range, self.prefix_len, self, cx).await?;
            self.cuts = 1;
            self.increments.restored(handles, self.cuts);
            Ok(states)
        })
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let position = self.increments.completed(checkpoint);
        position.map_or(Ok(()), |position| self.forget_before(position))
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.increments.aborted(checkpoint);
        Ok(())
    }
}
