use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::Result;

use crate::publish::Publish;
use crate::store::MemoryStore;

/// Publishes in a store in memory.
#[derive(Clone, Debug)]
pub struct MemoryPublish {
    store: MemoryStore,
}

impl MemoryPublish {
    /// Creates the publisher of a store.
    #[must_use]
    pub fn new(store: MemoryStore) -> Self {
        Self { store }
    }
}

impl Publish for MemoryPublish {
    fn method(&self) -> &'static str {
        "map in memory"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move { self.store.create_whole(&path, bytes) }.boxed()
    }
}
