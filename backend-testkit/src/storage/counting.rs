use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, ObjectHandle, ObjectReader, Result, Scope,
    StateHandle,
};

/// What a [`CountingStorage`] has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCounts {
    /// Streams that were opened.
    pub created: u64,
    /// Streams that are open still.
    pub open: u64,
    /// Streams that were finished and gave a handle or nothing.
    pub finished: u64,
    /// Streams that were aborted.
    pub aborted: u64,
    /// Streams that were neither finished nor aborted, but dropped.
    pub dropped: u64,
    /// Bytes handed over for writing.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Reads of a part of an object.
    pub range_reads: u64,
    /// Objects opened for reading from start to end.
    pub opens: u64,
    /// Readers that are open still.
    pub open_readers: u64,
}

#[derive(Debug, Default)]
struct Counters {
    created: AtomicU64,
    open: AtomicU64,
    finished: AtomicU64,
    aborted: AtomicU64,
    dropped: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
    range_reads: AtomicU64,
    opens: AtomicU64,
    open_readers: AtomicU64,
    objects: Mutex<Vec<ObjectHandle>>,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::SeqCst);
}

/// Counts what goes through another storage: streams left open, bytes, objects. Clones share the counts.
#[derive(Clone)]
pub struct CountingStorage {
    inner: Arc<dyn CheckpointStorage>,
    counters: Arc<Counters>,
}

impl CountingStorage {
    /// Wraps a storage.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStorage>) -> Self {
        Self {
            inner,
            counters: Arc::default(),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> StorageCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let c = &*self.counters;
        StorageCounts {
            created: read(&c.created),
            open: read(&c.open),
            finished: read(&c.finished),
            aborted: read(&c.aborted),
            dropped: read(&c.dropped),
            bytes_written: read(&c.bytes_written),
            bytes_read: read(&c.bytes_read),
            range_reads: read(&c.range_reads),
            opens: read(&c.opens),
            open_readers: read(&c.open_readers),
        }
    }

    /// Returns the objects that finished streams have made, in order.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectHandle> {
        self.counters
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl CheckpointStorage for CountingStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        add(&self.counters.created, 1);
        add(&self.counters.open, 1);
        Box::new(CountingStream {
            inner: Some(self.inner.create(checkpoint, scope)),
            counters: Arc::clone(&self.counters),
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        add(&self.counters.range_reads, 1);
        Box::pin(async move {
            let bytes = self.inner.read_range(object, range).await?;
            add(&self.counters.bytes_read, bytes.len() as u64);
            Ok(bytes)
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        Box::pin(async move {
            let inner = self.inner.open(object).await?;
            add(&self.counters.opens, 1);
            add(&self.counters.open_readers, 1);
            Ok(Box::new(CountingReader {
                inner,
                counters: Arc::clone(&self.counters),
            }) as Box<dyn ObjectReader>)
        })
    }

    fn discard(&self, object: &ObjectHandle) {
        self.inner.discard(object);
    }
}

struct CountingReader {
    inner: Box<dyn ObjectReader>,
    counters: Arc<Counters>,
}

impl ObjectReader for CountingReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            let chunk = self.inner.next().await?;
            add(
                &self.counters.bytes_read,
                chunk.as_ref().map_or(0, |chunk| chunk.len() as u64),
            );
            Ok(chunk)
        })
    }
}

impl Drop for CountingReader {
    fn drop(&mut self) {
        self.counters.open_readers.fetch_sub(1, Ordering::SeqCst);
    }
}

struct CountingStream {
    /// Absent once it is finished or aborted.
    inner: Option<Box<dyn CheckpointStream>>,
    counters: Arc<Counters>,
}

impl CheckpointStream for CountingStream {
    fn inline_at_most(&mut self, bytes: u64) {
        if let Some(inner) = &mut self.inner {
            inner.inline_at_most(bytes);
        }
    }

    fn for_later(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.for_later();
        }
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        add(&self.counters.bytes_written, bytes.len() as u64);
        match &mut self.inner {
            Some(inner) => inner.write(bytes),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn position(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.position())
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        match &mut self.inner {
            Some(inner) => inner.flush(),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        let inner = self.inner.take();
        Box::pin(async move {
            let handle = match inner {
                Some(inner) => inner.finish().await?,
                None => None,
            };
            add(&self.counters.finished, 1);
            if let Some(object) = handle.as_ref().and_then(StateHandle::object) {
                self.counters
                    .objects
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(object.clone());
            }
            Ok(handle)
        })
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        let inner = self.inner.take();
        add(&self.counters.aborted, 1);
        Box::pin(async move {
            if let Some(inner) = inner {
                inner.abort().await;
            }
            drop(self);
        })
    }
}

impl Drop for CountingStream {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::SeqCst);
        if self.inner.is_some() {
            add(&self.counters.dropped, 1);
        }
    }
}
