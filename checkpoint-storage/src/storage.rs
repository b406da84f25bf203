use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, ObjectReader,
    Result, Root, Scope,
};

use crate::layout::Layout;
use crate::names::{ObjectNames, UuidSource};
use crate::options::StreamOptions;
use crate::reader::{DigestReader, check_len, read_part};
use crate::reaper::Reaper;
use crate::root::StoreRoot;
use crate::stream::ObjectStream;

/// Snapshots as objects in a store: a folder of a local disk, a bucket, memory.
///
/// Creating one creates nothing in the store. Clones share the list of objects to be removed.
#[derive(Clone)]
pub struct ObjectCheckpointStorage {
    shared: Arc<Shared>,
    roots: Arc<[StoreRoot]>,
}

/// What the streams of a storage share.
pub(crate) struct Shared {
    pub(crate) own: StoreRoot,
    pub(crate) layout: Layout,
    pub(crate) names: ObjectNames,
    pub(crate) options: StreamOptions,
    pub(crate) reaper: Arc<Reaper>,
}

/// What [`ObjectCheckpointStorage::reap`] did.
#[derive(Debug, Default)]
pub struct ReapReport {
    /// Number of objects that are gone now.
    pub removed: usize,
    /// Objects that could not be removed; they stay on the list.
    pub failed: Vec<(String, Error)>,
}

impl ObjectCheckpointStorage {
    /// Creates the storage of one attempt; new objects go into `own`, laid out as a job folder.
    #[must_use]
    pub fn new(
        own: StoreRoot,
        attempt: Attempt,
        names: UuidSource,
        options: StreamOptions,
    ) -> Self {
        Self::with_layout(own, Layout::Job, ObjectNames::new(attempt, names), options)
    }

    /// Creates a storage with a layout.
    #[must_use]
    pub fn with_layout(
        own: StoreRoot,
        layout: Layout,
        names: ObjectNames,
        options: StreamOptions,
    ) -> Self {
        let reaper = Arc::default();
        // What is inline in metadata is not encrypted.
        let options = if own.sealing().cipher.is_some() {
            options.without_inline()
        } else {
            options
        };
        Self {
            shared: Arc::new(Shared {
                own,
                layout,
                names,
                options,
                reaper,
            }),
            roots: Arc::new([]),
        }
    }

    /// Allows reading from other roots as well; an object in any other root is refused.
    #[must_use]
    pub fn with_roots(self, roots: impl IntoIterator<Item = StoreRoot>) -> Self {
        let roots = self.roots.iter().cloned().chain(roots).collect();
        Self { roots, ..self }
    }

    /// Returns the folder that new objects go into.
    #[must_use]
    pub fn own_root(&self) -> &StoreRoot {
        &self.shared.own
    }

    /// Returns the number of objects on the list of those to be removed.
    #[must_use]
    pub fn unwanted(&self) -> usize {
        self.shared.reaper.unwanted()
    }

    /// Returns the number of objects that are being written, or left by a stream whose last operation may still run.
    #[must_use]
    pub fn open_objects(&self) -> usize {
        self.shared.reaper.open()
    }

    /// Removes what dropped streams left; to be called now and then, and at the end.
    ///
    /// What can't be removed stays on the list, and so does the rest if the call is dropped.
    pub async fn reap(&self) -> ReapReport {
        let mut report = ReapReport::default();
        let mut taken = self.shared.reaper.take();
        while let Some(path) = taken.current() {
            match self.shared.own.delete(path).await {
                Ok(()) => {
                    taken.remove();
                    report.removed += 1;
                }
                Err(e) => {
                    report.failed.push((path.to_owned(), e));
                    taken.put_off();
                }
            }
        }
        report
    }

    /// Waits until no object is being written, then removes what is left.
    pub async fn drain(&self) -> ReapReport {
        self.shared.reaper.idle().await;
        self.reap().await
    }

    /// Returns the root that an object lies in.
    ///
    /// # Errors
    /// `Config` when the root is not one of those allowed.
    pub fn resolve(&self, object: &ObjectHandle) -> Result<&StoreRoot> {
        let Root::Url(url) = &object.root else {
            return Ok(&self.shared.own);
        };
        let url = url.trim_end_matches('/');
        let own = &self.shared.own;
        std::iter::once(own).chain(self.roots.iter()).find(|root| root.url() == url).ok_or_else(|| {
            Error::config("the checkpoint refers to a folder that neither the command line nor the configuration names")
                .with("root", url)
                .with("object", object)
        })
    }
}

impl CheckpointStorage for ObjectCheckpointStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        Box::new(ObjectStream::new(
            Arc::clone(&self.shared),
            checkpoint,
            scope,
        ))
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        async move { read_part(self.resolve(object)?, object, range).await }.boxed()
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        async move {
            let root = self.resolve(object)?;
            check_len(root, object).await?;
            Ok(Box::new(DigestReader::new(root.clone(), object.clone())) as Box<dyn ObjectReader>)
        }
        .boxed()
    }

    fn discard(&self, object: &ObjectHandle) {
        // Objects of other roots are not this attempt's to remove.
        if object.root == Root::Own {
            self.shared.reaper.add(object.path.to_string());
        }
    }
}

impl fmt::Debug for ObjectCheckpointStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCheckpointStorage")
            .field("own", &self.shared.own)
            .field("roots", &self.roots)
            .field("layout", &self.shared.layout)
            .finish_non_exhaustive()
    }
}
