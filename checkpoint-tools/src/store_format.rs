use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use managed_state::format::{CanonicalColumn, canonical_snapshot, restore_store};
use state_api::{
    BackendContext, BackendFactory, Error, Executor, KeyGroupsHandle, KeyedBackend, KeyedHandle,
    PersistContext, RestoreContext, Result,
};

use crate::formats::{Conversion, NativeFormat, NativePart};

/// The native format of a byte store: the part is restored into an empty store of the backend, in a local folder, and read out
/// of it in the canonical format.
#[derive(Clone)]
pub struct StoreFormat {
    word: String,
    factory: Arc<dyn BackendFactory>,
    options: BTreeMap<String, String>,
}

impl StoreFormat {
    /// Creates the reader of a format, by its word in handles, out of the backend that wrote it.
    #[must_use]
    pub fn new(word: &str, factory: impl BackendFactory + 'static) -> Self {
        Self {
            word: word.to_owned(),
            factory: Arc::new(factory),
            options: BTreeMap::new(),
        }
    }

    /// Sets an option of the backend, by its name under the backend's prefix.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.insert(name.to_owned(), value.to_owned());
        self
    }

    async fn convert(&self, part: NativePart<'_>, cx: &Conversion) -> Result<Vec<KeyGroupsHandle>> {
        let context = BackendContext {
            job: part.job.clone(),
            operator: part.operator.clone(),
            subtask: part.subtask,
            max_parallelism: part.max_parallelism,
            range: part.range,
            local_dir: cx.local_dir.clone(),
            clock: Arc::clone(&cx.clock),
            options: self.options.clone(),
        };
        let KeyedBackend::Bytes(mut store) = self.factory.create(&context)? else {
            return Err(Error::bug(
                "a backend of live objects has no byte store to restore into",
            ));
        };
        let executor: Arc<dyn Executor> = Arc::new(cx.executor.clone());
        let restoring = RestoreContext {
            storage: Arc::clone(&cx.from),
            executor: Arc::clone(&executor),
        };
        let prefix_len = part.max_parallelism.prefix_len();
        let states = restore_store(
            part.handles,
            part.range,
            prefix_len,
            &mut *store,
            &restoring,
        )
        .await?;
        let columns = states
            .into_iter()
            .map(|(column, meta)| CanonicalColumn::new(column, meta))
            .collect();
        let snapshot = canonical_snapshot(store.view()?, columns, part.range, prefix_len);
        let mut persisting = PersistContext::new(cx.checkpoint, Arc::clone(&cx.to), executor);
        persisting.spill_dir = Some(cx.local_dir.join("spill"));
        let handles = snapshot.persist(persisting).await?;
        let canonical = handles.into_iter().filter_map(|handle| match handle {
            KeyedHandle::KeyGroups(groups) => Some(groups),
            KeyedHandle::Incremental(_) => None,
        });
        Ok(canonical.collect())
    }
}

impl NativeFormat for StoreFormat {
    fn format(&self) -> &str {
        &self.word
    }

    fn to_canonical<'a>(
        &'a self,
        part: NativePart<'a>,
        cx: &'a Conversion,
    ) -> LocalBoxFuture<'a, Result<Vec<KeyGroupsHandle>>> {
        Box::pin(self.convert(part, cx))
    }
}

impl fmt::Debug for StoreFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFormat")
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}
