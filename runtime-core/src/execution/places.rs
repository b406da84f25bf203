use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
};

/// Where the savepoints go that are being taken: each has a folder of its own, which all subtasks write to.
///
/// A barrier carries no storage, so subtasks look here.
#[derive(Default)]
pub(crate) struct Places {
    by_id: Mutex<BTreeMap<CheckpointId, Place>>,
}

struct Place {
    storage: Arc<Lent>,
    returned: oneshot::Receiver<()>,
}

/// A storage that tells when the last of those who write to it has let go of it.
struct Lent {
    storage: Arc<dyn CheckpointStorage>,
    _returned: oneshot::Sender<()>,
}

impl CheckpointStorage for Lent {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        self.storage.create(checkpoint, scope)
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.storage.read_range(object, range)
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        self.storage.open(object)
    }

    fn discard(&self, object: &ObjectHandle) {
        self.storage.discard(object);
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Place>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the place of a savepoint.
    pub(crate) fn add(&self, id: CheckpointId, storage: Arc<dyn CheckpointStorage>) {
        let (sender, returned) = oneshot::channel();
        let storage = Arc::new(Lent {
            storage,
            _returned: sender,
        });
        self.lock().insert(id, Place { storage, returned });
    }

    /// Forgets the place of a savepoint that has ended; what is returned resolves when nobody writes there any more.
    pub(crate) fn remove(&self, id: CheckpointId) -> Option<oneshot::Receiver<()>> {
        let place = self.lock().remove(&id);
        place.map(|place| place.returned)
    }

    /// Returns the place of a savepoint that has not ended.
    pub(crate) fn of(&self, id: CheckpointId) -> Option<Arc<dyn CheckpointStorage>> {
        let places = self.lock();
        let place = places.get(&id)?;
        Some(Arc::clone(&place.storage) as Arc<dyn CheckpointStorage>)
    }
}
