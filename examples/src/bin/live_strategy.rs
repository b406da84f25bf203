//! How do I write a snapshot strategy over live tables? This one writes full snapshots and counts them.
use futures_util::future::LocalBoxFuture;
use managed_state::format::{CANONICAL, FrozenTablesSnapshot, load_tables};
use state_api::{
    BackendContext, BackendFactory, CheckpointId, FrozenTables, KeyedBackend, KeyedHandle, LiveSnapshots, LoadTables,
    RestoreContext, Result, Snapshot, SnapshotKind, SnapshotRequest,
};

/// The word under which this strategy's snapshots stand in handles.
const FORMAT: &str = "counted";

#[derive(Default)]
struct Counted {
    taken: u64,
    completed: u64,
}

impl LiveSnapshots for Counted {
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        self.taken += 1;
        let canonical = request.kind == SnapshotKind::CanonicalSavepoint;
        Ok(Box::new(FrozenTablesSnapshot::new(tables, if canonical { CANONICAL } else { FORMAT })))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(load_tables(handles, FORMAT, cx, tables))
    }

    fn checkpoint_completed(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        self.completed += 1;
        Ok(())
    }
}

struct CountedBackend;

impl BackendFactory for CountedBackend {
    fn name(&self) -> &str {
        FORMAT
    }

    fn create(&self, _cx: &BackendContext) -> Result<KeyedBackend> {
        Ok(KeyedBackend::Live(Box::new(Counted::default())))
    }
}

fn main() {
    backend_testkit::Suite::run(&(std::sync::Arc::new(CountedBackend) as _));
    println!("the strategy keeps {} rules", backend_testkit::Suite::rules().len());
}
