use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Digest, Error, ObjectHandle, ObjectReader,
    RelPath, Result, Root, Scope, StateHandle,
};

/// The size of the chunks in which objects are read; odd, so that what is read lies across them.
const CHUNK: usize = 1009;

/// Objects in a map, under numbered names: the same calls give the same names. Clones share the objects.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
    inline_below: usize,
}

#[derive(Debug, Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Bytes>>,
    created: AtomicU64,
}

impl MemoryStorage {
    /// Creates a storage without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of bytes below which they stay in the handle; 0 makes an object of everything.
    #[must_use]
    pub fn inline_below(mut self, bytes: usize) -> Self {
        self.inline_below = bytes;
        self
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.shared
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of all objects.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the bytes of an object.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Bytes> {
        self.lock().get(name).cloned()
    }

    /// Removes an object; returns whether it was there.
    #[must_use]
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// Changes the bytes of an object behind its handle's back; returns whether there is one of that name.
    #[must_use]
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut objects = self.lock();
        let Some(object) = objects.get_mut(name) else {
            return false;
        };
        let mut bytes = object.to_vec();
        change(&mut bytes);
        *object = bytes.into();
        true
    }

    fn find(&self, object: &ObjectHandle) -> Result<Bytes> {
        self.object(object.path.as_str())
            .ok_or_else(|| Error::corrupt("the object is missing").with("object", object))
    }
}

impl CheckpointStorage for MemoryStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        let folder = match scope {
            Scope::Exclusive => format!("chk-{checkpoint}"),
            Scope::Shared => "shared".to_owned(),
            Scope::TaskOwned => "taskowned".to_owned(),
        };
        Box::new(MemoryStream {
            storage: self.clone(),
            folder,
            inline_at_most: u64::MAX,
            bytes: Vec::new(),
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            let bytes = self.find(object)?;
            let too_short = || {
                Error::corrupt("the object is shorter than its handle says").with("object", object)
            };
            let start = usize::try_from(range.start).map_err(|_| too_short())?;
            let end = usize::try_from(range.end).map_err(|_| too_short())?;
            if start > end || end > bytes.len() {
                return Err(too_short());
            }
            Ok(bytes.slice(start..end))
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        Box::pin(async move {
            let bytes = self.find(object)?;
            let whole = bytes.len() as u64 == object.len && digest(&bytes) == object.digest;
            Ok(Box::new(MemoryReader {
                rest: bytes,
                whole,
                object: object.clone(),
            }) as Box<dyn ObjectReader>)
        })
    }

    fn discard(&self, object: &ObjectHandle) {
        self.lock().remove(object.path.as_str());
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

struct MemoryReader {
    rest: Bytes,
    whole: bool,
    object: ObjectHandle,
}

impl ObjectReader for MemoryReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            if !self.rest.is_empty() {
                let size = self.rest.len().min(CHUNK);
                return Ok(Some(self.rest.split_to(size)));
            }
            if self.whole {
                return Ok(None);
            }
            Err(Error::corrupt("length or digest differ from the handle")
                .with("object", &self.object))
        })
    }
}

struct MemoryStream {
    storage: MemoryStorage,
    folder: String,
    inline_at_most: u64,
    bytes: Vec<u8>,
}

impl CheckpointStream for MemoryStream {
    fn inline_at_most(&mut self, bytes: u64) {
        self.inline_at_most = bytes;
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.bytes.extend_from_slice(&bytes);
        Box::pin(std::future::ready(Ok(())))
    }

    fn position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        Box::pin(async move {
            if self.bytes.is_empty() {
                return Ok(None);
            }
            let bytes = Bytes::from(self.bytes);
            let may_stay = bytes.len() as u64 <= self.inline_at_most;
            if bytes.len() < self.storage.inline_below && may_stay {
                return Ok(Some(StateHandle::Inline(bytes)));
            }
            let number = self.storage.shared.created.fetch_add(1, Ordering::SeqCst);
            let name = format!("{}/{number:06}", self.folder);
            let object = ObjectHandle {
                root: Root::Own,
                path: RelPath::new(&name)?,
                len: bytes.len() as u64,
                digest: digest(&bytes),
            };
            self.storage.lock().insert(name, bytes);
            Ok(Some(StateHandle::Object(object)))
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
