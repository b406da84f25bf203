//! Objects that go into a new checkpoint as they are: several at a time, no more than asked for, and each one checked.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, Lease, METADATA_NAME, MemoryPublish, MemoryStore, ObjectStore,
    ObjectWriter, StoreEntry, StoreRoot, StoredCheckpoint, verify,
};
use checkpoint_tools::{CheckpointSource, Edit, NewCheckpoint, Toolbox, convert};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Attempt, ErrorKind, Result};
use support::{Shop, runtime};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

/// A store in memory whose objects are completed when so many are being written at once.
#[derive(Clone, Debug)]
struct Together {
    inner: MemoryStore,
    barrier: Arc<Barrier>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Together {
    fn new(at_once: usize) -> Self {
        Self {
            inner: MemoryStore::default(),
            barrier: Arc::new(Barrier::new(at_once)),
            open: Arc::default(),
            most: Arc::default(),
        }
    }

    fn root(&self) -> StoreRoot {
        let publish = MemoryPublish::new(self.inner.clone());
        StoreRoot::new(Arc::new(self.clone()), Arc::new(publish), "memory://new")
    }
}

impl ObjectStore for Together {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        async move {
            let inner = self.inner.create(&path, lease).await?;
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(open, Ordering::SeqCst);
            let store = self.clone();
            Ok(Box::new(Writer { inner, store }) as Box<dyn ObjectWriter>)
        }
        .boxed()
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.inner.read(path, range)
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        self.inner.len(path)
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        self.inner.list(folder)
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(path)
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        self.inner.remove_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.sync_folder(folder)
    }
}

struct Writer {
    inner: Box<dyn ObjectWriter>,
    store: Together,
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.inner.write(bytes)
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self { inner, store } = *self;
            store.barrier.wait().await;
            store.open.fetch_sub(1, Ordering::SeqCst);
            inner.finish().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.inner.abort()
    }
}

/// A checkpoint with eight objects that are too long to be inline, and some that are not.
fn write(folder: &Path, io: &Runtime) {
    let shop = Shop {
        parallelism: 8,
        max_parallelism: 64,
        customers: 4000,
        ..Shop::default()
    };
    shop.write(folder, io);
}

fn open(folder: &Path, io: &Runtime, concurrency: Option<usize>) -> CheckpointSource {
    let found = StoredCheckpoint::find(folder.to_str().unwrap(), io.handle());
    let mut toolbox = Toolbox::new(io.handle().clone(), folder.join("scratch"));
    if let Some(concurrency) = concurrency {
        toolbox.concurrency = concurrency;
    }
    CheckpointSource::new(io.block_on(found).unwrap(), [], toolbox)
}

/// What the objects of a checkpoint hold, operator by operator, wherever they lie.
fn digests(metadata: &CheckpointMetadata) -> Vec<(String, Option<u32>, u64)> {
    let mut parts: Vec<_> = metadata
        .objects()
        .filter(|used| used.object.len > 20 << 10)
        .map(|used| {
            let text = format!("{} {}", used.operator, used.object.digest);
            (text, used.subtask, used.object.len)
        })
        .collect();
    parts.sort();
    parts
}

#[test]
fn objects_are_copied_several_at_a_time_and_no_more_than_asked_for() {
    let (folder, io) = (tempfile::tempdir().unwrap(), runtime());
    write(folder.path(), &io);
    for (asked, at_once) in [(None, 4), (Some(1), 1), (Some(8), 8)] {
        for edits in [true, false] {
            let source = open(folder.path(), &io, asked);
            let store = Together::new(at_once);
            let work = async {
                let target = NewCheckpoint::begin(store.root(), Attempt(3)).await?;
                match edits {
                    true => {
                        let editing = Edit::new().rename("feed", "fed").begin(&source)?;
                        Ok(editing.finish(target).await?.0)
                    }
                    false => convert(&source, target).await,
                }
            };
            // Copied one after the other, the first would wait for others for ever.
            let done =
                io.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await });
            let metadata: CheckpointMetadata = done.expect("copies come together").unwrap();
            assert_eq!(store.most.load(Ordering::SeqCst), at_once);
            assert_eq!(digests(&metadata).len(), 8);
            assert_eq!(digests(&metadata), digests(source.metadata()));
            let found = io
                .block_on(StoredCheckpoint::read(&store.root(), ""))
                .unwrap();
            let report = io.block_on(verify(&found, [])).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
            assert_eq!(found.metadata, metadata);
        }
    }
}

#[test]
fn a_damaged_object_that_is_copied_is_named_with_operator_and_subtask_and_there_is_no_checkpoint() {
    let (folder, io) = (tempfile::tempdir().unwrap(), runtime());
    write(folder.path(), &io);
    let source = open(folder.path(), &io, None);
    let used = source.metadata().objects();
    let used = used.filter(|used| used.operator.as_str() == "orders");
    let damaged = used.last().unwrap();
    let file = folder.path().join(damaged.object.path.as_str());
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let store = MemoryStore::default();
    let root = StoreRoot::memory(&store, "memory://new");
    let target = io
        .block_on(NewCheckpoint::begin(root.clone(), Attempt(3)))
        .unwrap();
    let editing = Edit::new()
        .rename("orders", "sales")
        .begin(&source)
        .unwrap();
    let error = io.block_on(editing.finish(target)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.context("operator"), Some("orders"), "{error}");
    assert_eq!(
        error.context("subtask").map(|n| n.to_string()),
        damaged.subtask.map(|n| n.to_string()),
        "{error}"
    );
    assert!(
        error.to_string().contains(damaged.object.path.as_str()),
        "{error}"
    );
    assert_eq!(io.block_on(root.len(METADATA_NAME)).unwrap(), None);
}
