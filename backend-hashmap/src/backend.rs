use futures_util::future::LocalBoxFuture;
use managed_state::format::{CANONICAL, FrozenTablesSnapshot, load_tables};
use state_api::{
    BackendContext, BackendFactory, FrozenTables, KeyedBackend, KeyedHandle, LiveSnapshots,
    LoadTables, RestoreContext, Result, Snapshot, SnapshotRequest,
};

use crate::{HashMapConfig, NAME};

/// Makes backends that keep state in memory and write all of it to each checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashMapBackend;

impl BackendFactory for HashMapBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        HashMapConfig::parse(&cx.options)?;
        Ok(KeyedBackend::Live(Box::new(HashMapSnapshots)))
    }
}

/// The strategy: every snapshot is a full one in the canonical format, so checkpoint and savepoint are the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashMapSnapshots;

impl LiveSnapshots for HashMapSnapshots {
    fn snapshot(
        &mut self,
        _request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        Ok(Box::new(FrozenTablesSnapshot::new(tables, CANONICAL)))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(load_tables(handles, CANONICAL, cx, tables))
    }
}
