use std::sync::Arc;

use futures_util::future::{BoxFuture, LocalBoxFuture};
use managed_state::format::{CANONICAL, CanonicalColumn, canonical_snapshot, restore_into_store};
use state_api::{
    BackendContext, ByteStore, ByteView, CheckpointId, Column, Error, KeyGroupRange, KeyedHandle,
    NativeSnapshots, ObjectCacheBudget, Page, PersistContext, RestoreContext, Result, Snapshot,
    SnapshotKind, SnapshotRequest, StateMeta, WriteBatch,
};

use crate::reference_store::ReferenceStore;

/// The word for the snapshots of a [`NativeStore`].
const FORMAT: &str = "native-reference";

/// A [`ReferenceStore`] with snapshots in a format that nobody else reads: what a store with native snapshots looks like from
/// outside.
#[derive(Clone, Debug)]
pub struct NativeStore {
    store: ReferenceStore,
    range: KeyGroupRange,
    prefix_len: usize,
    /// Completed and aborted checkpoints that it was told of.
    told: Vec<(CheckpointId, bool)>,
}

impl NativeStore {
    /// Makes an empty store for a subtask, with a cache of live objects out of `budget` if there is one.
    #[must_use]
    pub fn new(cx: &BackendContext, budget: Option<Arc<ObjectCacheBudget>>) -> Self {
        let store = ReferenceStore::new();
        Self {
            store: match budget {
                Some(budget) => store.with_object_cache(budget),
                None => store,
            },
            range: cx.range,
            prefix_len: cx.max_parallelism.prefix_len(),
            told: Vec::new(),
        }
    }

    /// Returns the checkpoints that the store was told of, and whether each is complete.
    #[must_use]
    pub fn told(&self) -> &[(CheckpointId, bool)] {
        &self.told
    }
}

impl ByteStore for NativeStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.store.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.store.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get(column, key, value)
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        self.store.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(&self.store, column, start, end, limit, page)
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.store.view()
    }

    fn native(&mut self) -> Option<&mut dyn NativeSnapshots> {
        Some(self)
    }

    fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        self.store.object_cache()
    }
}

/// Gives handles another word for their format.
fn renamed(handles: Vec<KeyedHandle>, format: &str) -> Vec<KeyedHandle> {
    let rename = |handle| match handle {
        KeyedHandle::KeyGroups(mut groups) => {
            groups.format = format.into();
            KeyedHandle::KeyGroups(groups)
        }
        other => other,
    };
    handles.into_iter().map(rename).collect()
}

struct Renamed(Box<dyn Snapshot<Vec<KeyedHandle>>>);

impl Snapshot<Vec<KeyedHandle>> for Renamed {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move { Ok(renamed(self.0.persist(cx).await?, FORMAT)) })
    }
}

impl NativeSnapshots for NativeStore {
    fn format(&self) -> &str {
        FORMAT
    }

    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        states: &[(Column, StateMeta)],
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        if request.kind == SnapshotKind::CanonicalSavepoint {
            return Err(Error::unsupported(
                "a canonical savepoint is taken from a view",
            ));
        }
        let columns = states
            .iter()
            .map(|(column, meta)| CanonicalColumn::new(*column, meta.clone()));
        Ok(Box::new(Renamed(canonical_snapshot(
            self.store.view()?,
            columns.collect(),
            self.range,
            self.prefix_len,
        ))))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        range: KeyGroupRange,
        cx: &'a RestoreContext,
    ) -> LocalBoxFuture<'a, Result<Vec<(Column, StateMeta)>>> {
        Box::pin(async move {
            let handles = renamed(handles.to_vec(), CANONICAL);
            let (store, storage) = (&mut self.store, &*cx.storage);
            restore_into_store(&handles, range, self.prefix_len, store, storage).await
        })
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.push((checkpoint, true));
        Ok(())
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.told.push((checkpoint, false));
        Ok(())
    }
}
