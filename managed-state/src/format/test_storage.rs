//! In-memory storage, an executor of threads and a reference byte store for the unit tests of this crate.
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    BatchEntry, ByteStore, ByteView, CancelToken, CheckpointId, CheckpointStorage,
    CheckpointStream, Column, Digest, Error, Executor, ObjectHandle, ObjectReader, Page,
    PersistContext, RelPath, Result, Root, Scope, StateHandle, WriteBatch, unknown_column,
};
use xxhash_rust::xxh3::xxh3_128;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

pub(crate) struct Threads;

impl Executor for Threads {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        std::thread::spawn(move || block_on(future));
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        std::thread::spawn(work);
    }
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&xxh3_128(bytes).to_le_bytes());
    Digest(digest)
}

/// Objects in a map. Writes wait while the gate is shut.
#[derive(Default)]
pub(crate) struct MemoryStorage {
    pub(crate) objects: Mutex<BTreeMap<String, Bytes>>,
    pub(crate) live_streams: AtomicUsize,
    pub(crate) range_reads: AtomicUsize,
    pub(crate) gate: Gate,
    pub(crate) fail_writes: AtomicBool,
    pub(crate) inline_below: AtomicUsize,
    next: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        self.wakers.lock().unwrap().drain(..).for_each(Waker::wake);
    }

    /// Returns whether something hangs here.
    pub(crate) fn holds_something(&self) -> bool {
        !self.wakers.lock().unwrap().is_empty()
    }

    async fn pass(&self) {
        std::future::poll_fn(|cx| {
            let mut wakers = self.wakers.lock().unwrap();
            if !self.shut.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[derive(Clone, Default)]
pub(crate) struct Storage(pub(crate) Arc<MemoryStorage>);

impl Storage {
    pub(crate) fn context(&self) -> PersistContext {
        PersistContext {
            checkpoint: CheckpointId(1),
            storage: Arc::new(self.clone()),
            cancel: CancelToken::new(),
            executor: Arc::new(Threads),
            spill_dir: None,
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut objects = self.0.objects.lock().unwrap();
        let object = objects.values_mut().next().unwrap();
        let mut bytes = object.to_vec();
        change(&mut bytes);
        *object = bytes.into();
    }

    fn get(&self, object: &ObjectHandle) -> Result<Bytes> {
        let objects = self.0.objects.lock().unwrap();
        objects
            .get(object.path.as_str())
            .cloned()
            .ok_or_else(|| Error::corrupt("the object is missing").with("object", object))
    }
}

impl CheckpointStorage for Storage {
    fn create(&self, _checkpoint: CheckpointId, _scope: Scope) -> Box<dyn CheckpointStream> {
        self.0.live_streams.fetch_add(1, Ordering::SeqCst);
        Box::new(Stream {
            storage: self.clone(),
            bytes: Vec::new(),
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.0.range_reads.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let bytes = self.get(object)?;
            if range.end > bytes.len() as u64 {
                return Err(Error::corrupt("the object is too short").with("object", object));
            }
            Ok(bytes.slice(range.start as usize..range.end as usize))
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        Box::pin(async move {
            let bytes = self.get(object)?;
            let right = bytes.len() as u64 == object.len && digest(&bytes) == object.digest;
            Ok(Box::new(Reader {
                rest: bytes,
                right,
                object: object.clone(),
            }) as Box<dyn ObjectReader>)
        })
    }
}

struct Reader {
    rest: Bytes,
    right: bool,
    object: ObjectHandle,
}

impl ObjectReader for Reader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            if self.rest.is_empty() {
                return if self.right {
                    Ok(None)
                } else {
                    Err(Error::corrupt("the digest is wrong").with("object", &self.object))
                };
            }
            // An odd size, so that blocks lie across chunks.
            let size = self.rest.len().min(1009);
            Ok(Some(self.rest.split_to(size)))
        })
    }
}

struct Stream {
    storage: Storage,
    bytes: Vec<u8>,
}

impl CheckpointStream for Stream {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.storage.0.gate.pass().await;
            if self.storage.0.fail_writes.load(Ordering::SeqCst) {
                return Err(Error::retryable("the store is full"));
            }
            self.bytes.extend_from_slice(&bytes);
            Ok(())
        })
    }

    fn position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        Box::pin(async move {
            let bytes = Bytes::from(std::mem::take(&mut self.bytes));
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() < self.storage.0.inline_below.load(Ordering::SeqCst) {
                return Ok(Some(StateHandle::Inline(bytes)));
            }
            let path = format!(
                "chk-1/object-{}",
                self.storage.0.next.fetch_add(1, Ordering::SeqCst)
            );
            let handle = ObjectHandle {
                root: Root::Own,
                path: RelPath::new(&path)?,
                len: bytes.len() as u64,
                digest: digest(&bytes),
            };
            self.storage.0.objects.lock().unwrap().insert(path, bytes);
            Ok(Some(StateHandle::Object(handle)))
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.storage.0.live_streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A byte store over a map. Freezing copies, which the tests can afford.
#[derive(Clone, Default)]
pub(crate) struct MapStore {
    names: Vec<String>,
    columns: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(crate) fail_deletes: bool,
}

impl MapStore {
    pub(crate) fn column(&self, column: Column) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.columns[column.0 as usize]
    }

    fn column_mut(&mut self, column: Column) -> Result<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
        self.columns
            .get_mut(column.0 as usize)
            .ok_or_else(|| unknown_column(column))
    }
}

impl ByteStore for MapStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        let position = self
            .names
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.columns.push(BTreeMap::new());
                self.names.len() - 1
            });
        Ok(Column(position as u32))
    }

    fn column_names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self
            .columns
            .get(column.0 as usize)
            .ok_or_else(|| unknown_column(column))?
            .get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        self.column_mut(column)?
            .insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        if self.fail_deletes {
            return Err(Error::retryable("the store refuses to delete"));
        }
        self.column_mut(column)?.remove(key);
        Ok(())
    }

    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        if self.fail_deletes {
            return Err(Error::retryable("the store refuses to delete"));
        }
        self.column_mut(column)?
            .retain(|key, _| &key[..] < start || end.is_some_and(|end| &key[..] >= end));
        Ok(())
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        for entry in batch.entries {
            match entry {
                BatchEntry::Put(column, key, value) => self.put(column, &key, &value)?,
                BatchEntry::Merge(column, key, operand) => self.merge(column, &key, &operand)?,
                BatchEntry::Delete(column, key) => self.delete(column, &key)?,
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        page.entries.clear();
        let entries = self
            .columns
            .get(column.0 as usize)
            .ok_or_else(|| unknown_column(column))?;
        let pairs = entries
            .range(start.to_vec()..)
            .take_while(|(key, _)| end.is_none_or(|end| &key[..] < end));
        page.entries.extend(
            pairs
                .take(limit)
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        Ok(())
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        Ok(Box::new(self.clone()))
    }
}

impl ByteView for MapStore {
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(self, column, start, end, limit, page)
    }
}
