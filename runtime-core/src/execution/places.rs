use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use state_api::{CheckpointId, CheckpointStorage};

use crate::streams_through::StreamsThrough;

/// Where the savepoints go that are being taken: each has a folder of its own, which all subtasks write to.
///
/// A barrier carries no storage, so subtasks look here.
#[derive(Default)]
pub(crate) struct Places {
    by_id: Mutex<BTreeMap<CheckpointId, Place>>,
}

struct Place {
    storage: Arc<dyn CheckpointStorage>,
    returned: oneshot::Receiver<()>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Place>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the place of a savepoint.
    pub(crate) fn add(&self, id: CheckpointId, storage: Arc<dyn CheckpointStorage>) {
        let (sender, returned) = oneshot::channel::<()>();
        // It goes with the last of those who write to the storage.
        let lent = StreamsThrough::new(storage, move |stream| {
            let _ = &sender;
            stream
        });
        let storage = Arc::new(lent);
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
        Some(Arc::clone(&place.storage))
    }
}
