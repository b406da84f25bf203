use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, ErrorKind, Result};

use super::{Lease, ObjectStore, ObjectWriter, StoreEntry};

/// A store in memory: for tests, simulations and jobs that keep their checkpoints in the coordinator.
///
/// Every future is ready at its first poll and needs no runtime. Clones share their objects.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the paths of all objects in order, unfinished ones included.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the bytes of an object.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Bytes> {
        self.lock().get(path).cloned()
    }

    /// Puts an object in place, or replaces it: for tests that damage what is stored.
    pub fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.lock().insert(path.to_owned(), bytes.into());
    }

    /// Removes an object, and returns whether it was there.
    pub fn remove(&self, path: &str) -> bool {
        self.lock().remove(path).is_some()
    }

    /// Creates a whole object unless the path is taken.
    pub(crate) fn create_whole(&self, path: &str, bytes: Bytes) -> Result<()> {
        match self.lock().entry(path.to_owned()) {
            std::collections::btree_map::Entry::Occupied(_) => Err(taken(path)),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(bytes);
                Ok(())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        // A panic between two map operations leaves the map whole.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn taken(path: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, "the object exists already").with("object", path)
}

impl ObjectStore for MemoryStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        async move {
            self.create_whole(&path, Bytes::new())?;
            let writer = MemoryWriter {
                store: self.clone(),
                path,
                buffer: Vec::new(),
                _lease: lease,
            };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        }
        .boxed()
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        async move {
            let missing = || Error::not_found("there is no such object").with("object", &path);
            let bytes = self.get(&path).ok_or_else(missing)?;
            let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let start = bound(range.start);
            Ok(bytes.slice(start..bound(range.end).max(start)))
        }
        .boxed()
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        async move { Ok(self.get(&path).map(|bytes| bytes.len() as u64)) }.boxed()
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        async move {
            let objects = self.lock();
            let below = objects
                .range(prefix.clone()..)
                .map_while(|(path, body)| Some((path.strip_prefix(&prefix)?, body.len())));
            let mut entries: Vec<_> = below
                .map(|(rest, len)| match rest.split_once('/') {
                    Some((name, _)) => StoreEntry {
                        name: name.to_owned(),
                        is_folder: true,
                        len: None,
                    },
                    None => StoreEntry {
                        name: rest.to_owned(),
                        is_folder: false,
                        len: Some(len as u64),
                    },
                })
                .collect();
            entries.sort();
            entries.dedup();
            Ok(entries)
        }
        .boxed()
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move {
            self.remove(&path);
            Ok(())
        }
        .boxed()
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let prefix = format!("{folder}/");
        async move {
            let objects = self.lock();
            let next = objects.range(prefix.clone()..).next();
            Ok(!next.is_some_and(|(path, _)| path.starts_with(&prefix)))
        }
        .boxed()
    }

    fn sync_folder(&self, _folder: &str) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
}

struct MemoryWriter {
    store: MemoryStore,
    path: String,
    buffer: Vec<u8>,
    _lease: Lease,
}

impl ObjectWriter for MemoryWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            self.buffer.extend_from_slice(&bytes);
            Ok(())
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self {
                store,
                path,
                buffer,
                ..
            } = *self;
            store.put(&path, buffer);
            Ok(())
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.store.remove(&self.path);
            Ok(())
        }
        .boxed()
    }
}
