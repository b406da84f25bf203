use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use opendal::{Operator, Writer};
use state_api::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use xxhash_rust::xxh3::Xxh3;

use super::{Lease, ObjectStore, ObjectWriter, StoreEntry, delete_each};
#[cfg(feature = "http")]
use super::{OpenUpload, Uploads};
use crate::remote::secrets::{ForeignError, Secrets};

/// Bytes that are read at a time to compare an object with what was written.
const COMPARE_LEN: u64 = 8 << 20;

/// A store over any service of opendal.
///
/// With a runtime, calls run on it and may be awaited anywhere; without one they run where they are awaited,
/// which suits services that do no I/O.
#[derive(Clone, Debug)]
pub struct OpendalStore {
    operator: Operator,
    runtime: Option<Handle>,
    parts: Option<Parts>,
    in_bucket: bool,
    /// Objects that one request deletes.
    deletions: usize,
    secrets: Secrets,
    #[cfg(feature = "http")]
    uploads: Option<std::sync::Arc<dyn Uploads>>,
}

/// How a long object is uploaded.
#[derive(Clone, Copy, Debug)]
struct Parts {
    len: usize,
    concurrent: usize,
}

impl OpendalStore {
    /// Creates a store over an operator.
    #[must_use]
    pub fn new(operator: Operator, runtime: Option<Handle>) -> Self {
        Self {
            operator,
            runtime,
            parts: None,
            in_bucket: false,
            deletions: 1,
            secrets: Secrets::default(),
            #[cfg(feature = "http")]
            uploads: None,
        }
    }

    /// Sets the length in bytes of the parts that a long object is uploaded in, and how many of one object at a time.
    #[must_use]
    pub fn with_parts(self, len: usize, concurrent: usize) -> Self {
        Self {
            parts: Some(Parts { len, concurrent }),
            ..self
        }
    }

    #[cfg(feature = "http")]
    pub(crate) fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Says that names are all there is to folders, so that a listing which finds nothing to list misses the bucket itself.
    #[cfg(feature = "http")]
    pub(crate) fn in_bucket(self) -> Self {
        Self {
            in_bucket: true,
            ..self
        }
    }

    /// Deletes as many objects by one request.
    #[cfg(feature = "http")]
    pub(crate) fn with_deletions(self, deletions: usize) -> Self {
        Self { deletions, ..self }
    }

    /// Sets what finds uploads in parts that never ended.
    #[cfg(feature = "http")]
    pub(crate) fn with_uploads(self, uploads: Option<std::sync::Arc<dyn Uploads>>) -> Self {
        Self { uploads, ..self }
    }

    /// Returns the operator.
    #[must_use]
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Deletes objects by one request.
    fn delete_batch(&self, paths: Vec<String>) -> BoxFuture<'static, Result<()>> {
        self.run(move |operator, failure| {
            async move {
                let first = paths.first().cloned().unwrap_or_default();
                let deleted = async {
                    let mut deleter = operator.deleter().await?;
                    deleter.delete_iter(paths).await?;
                    deleter.close().await
                };
                deleted
                    .await
                    .map_err(|e| failure.of("delete objects", &first, e))
            }
            .boxed()
        })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Operator, Failure) -> BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'static, Result<T>> {
        let failure = Failure(self.secrets.clone());
        on_runtime(self.runtime.clone(), work(self.operator.clone(), failure))
    }
}

/// Runs a future on a runtime, if there is one, to its end even if nobody waits any more.
pub(crate) fn on_runtime<T: Send + 'static>(
    runtime: Option<Handle>,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    let Some(runtime) = runtime else {
        return work.boxed();
    };
    async move {
        runtime.spawn(work).await.unwrap_or_else(|e| {
            Err(if e.is_panic() {
                Error::bug("storage work panicked").caused_by(e)
            } else {
                Error::cancelled("the runtime was shut down").caused_by(e)
            })
        })
    }
    .boxed()
}

/// Turns errors of opendal into ours; the cause stays attached as text, without secrets.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Secrets);

impl Failure {
    pub(crate) fn of(&self, doing: &'static str, path: &str, error: opendal::Error) -> Error {
        use opendal::ErrorKind as Theirs;
        let (kind, hint) = match error.kind() {
            _ if is_missing_bucket(&error) => return self.no_bucket(doing, path, &error),
            Theirs::NotFound => (ErrorKind::NotFound, ""),
            Theirs::AlreadyExists | Theirs::ConditionNotMatch => (ErrorKind::AlreadyExists, ""),
            Theirs::ConfigInvalid => (ErrorKind::Config, ""),
            Theirs::PermissionDenied => (ErrorKind::Config, ": access is denied"),
            Theirs::Unsupported => (ErrorKind::Unsupported, ""),
            _ if is_unauthorised(&error) => (ErrorKind::Config, ": the credentials are refused"),
            _ => (ErrorKind::Retryable, ""),
        };
        Error::new(kind, format!("could not {doing}{hint}"))
            .with("object", path)
            .caused_by(ForeignError::new(&error, &self.0))
    }

    fn no_bucket(&self, doing: &'static str, path: &str, error: &opendal::Error) -> Error {
        Error::config(format!("could not {doing}: there is no such bucket"))
            .with("object", path)
            .caused_by(ForeignError::new(error, &self.0))
    }
}

/// Services report a missing bucket as they please, most as they do a missing object.
fn is_missing_bucket(error: &opendal::Error) -> bool {
    use opendal::ErrorKind::{ConfigInvalid, NotFound};
    if !matches!(error.kind(), NotFound | ConfigInvalid) {
        return false;
    }
    let text = error.to_string();
    [
        "NoSuchBucket",
        "ContainerNotFound",
        "The specified bucket does not exist",
    ]
    .iter()
    .any(|words| text.contains(words))
}

/// An object is missing, in a bucket that is there.
fn is_missing_object(error: &opendal::Error) -> bool {
    error.kind() == opendal::ErrorKind::NotFound && !is_missing_bucket(error)
}

/// A request without valid credentials, which no service of opendal tells from other failures.
fn is_unauthorised(error: &opendal::Error) -> bool {
    error.kind() == opendal::ErrorKind::Unexpected && error.to_string().contains("status: 401")
}

impl ObjectStore for OpendalStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        let runtime = self.runtime.clone();
        let parts = self.parts;
        self.run(move |operator, failure| {
            async move {
                // Without the condition, the random name alone keeps writers apart.
                let exclusive = operator.info().capability().write_with_if_not_exists;
                let mut opened = operator.writer_with(&path).if_not_exists(exclusive);
                if let Some(parts) = parts {
                    opened = opened.chunk(parts.len).concurrent(parts.concurrent);
                }
                let writer = opened
                    .await
                    .map_err(|e| failure.of("create an object", &path, e))?;
                let upload = Upload {
                    writer: Some(writer),
                    lease,
                    // Without parts there is nothing to abort.
                    runtime: parts.and(runtime.clone()),
                    written: Xxh3::new(),
                    len: 0,
                };
                Ok(Box::new(OpendalWriter {
                    operator,
                    runtime,
                    path,
                    failure,
                    // What is uploaded in parts appears when it is closed.
                    exclusive: exclusive && parts.is_some(),
                    open: Some(upload),
                }) as Box<dyn ObjectWriter>)
            }
            .boxed()
        })
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        self.run(move |operator, failure| {
            async move {
                let fail = |e| failure.of("read an object", &path, e);
                if range == (0..u64::MAX) {
                    return Ok(operator.read(&path).await.map_err(fail)?.to_bytes());
                }
                match operator.read_with(&path).range(range.clone()).await {
                    Ok(read) => Ok(read.to_bytes()),
                    Err(e) if e.kind() == opendal::ErrorKind::NotFound => Err(fail(e)),
                    Err(e) => {
                        // Services differ in what they do about a range that ends behind the object.
                        let len = operator.stat(&path).await.map_err(fail)?.content_length();
                        if range.end <= len {
                            return Err(fail(e));
                        }
                        let part = range.start.min(len)..len;
                        if part.is_empty() {
                            return Ok(Bytes::new());
                        }
                        Ok(operator
                            .read_with(&path)
                            .range(part)
                            .await
                            .map_err(fail)?
                            .to_bytes())
                    }
                }
            }
            .boxed()
        })
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        self.run(move |operator, failure| {
            async move {
                match operator.stat(&path).await {
                    Ok(found) if found.is_file() => Ok(Some(found.content_length())),
                    Ok(_) => Ok(None),
                    Err(e) if is_missing_object(&e) => Ok(None),
                    Err(e) => Err(failure.of("look at an object", &path, e)),
                }
            }
            .boxed()
        })
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let path = format!("{folder}/");
        let in_bucket = self.in_bucket;
        self.run(move |operator, failure| {
            async move {
                let found = match operator.list(&path).await {
                    Ok(found) => found,
                    Err(e) if e.kind() == opendal::ErrorKind::NotFound && in_bucket => {
                        return Err(failure.no_bucket("list a folder", &path, &e));
                    }
                    Err(e) if is_missing_object(&e) => return Ok(Vec::new()),
                    Err(e) => return Err(failure.of("list a folder", &path, e)),
                };
                let own = path.trim_matches('/');
                let mut entries: Vec<_> = found
                    .iter()
                    .filter(|entry| entry.path().trim_matches('/') != own)
                    .map(|entry| StoreEntry {
                        name: entry.name().trim_end_matches('/').to_owned(),
                        is_folder: entry.path().ends_with('/'),
                        // Nothing is said as 0.
                        len: Some(entry.metadata().content_length()).filter(|len| *len > 0),
                    })
                    .collect();
                entries.sort();
                entries.dedup();
                Ok(entries)
            }
            .boxed()
        })
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        self.run(move |operator, failure| {
            async move {
                operator
                    .delete(&path)
                    .await
                    .map_err(|e| failure.of("delete an object", &path, e))
            }
            .boxed()
        })
    }

    fn delete_all<'a>(
        &'a self,
        paths: &'a [String],
        at_once: usize,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        if self.deletions <= 1 {
            return delete_each(self, paths, at_once);
        }
        async move {
            let mut outcomes = Vec::with_capacity(paths.len());
            for batch in paths.chunks(self.deletions) {
                if batch.len() > 1 {
                    match self.delete_batch(batch.to_vec()).await {
                        Ok(()) => {
                            outcomes.extend(batch.iter().map(|_| Ok(())));
                            continue;
                        }
                        // Which of them are left it does not say.
                        Err(error) => {
                            tracing::debug!(%error, "objects are deleted one by one");
                        }
                    }
                }
                outcomes.extend(delete_each(self, batch, at_once).await);
            }
            outcomes
        }
        .boxed()
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let folder = folder.to_owned();
        async move {
            if !self.list(&folder).await?.is_empty() {
                return Ok(false);
            }
            // Where folders are objects of their own, this removes the marker; elsewhere it does nothing.
            self.delete(&format!("{folder}/")).await?;
            Ok(true)
        }
        .boxed()
    }

    fn sync_folder(&self, _folder: &str) -> BoxFuture<'_, Result<()>> {
        // Services answer a delete when it is done.
        async { Ok(()) }.boxed()
    }

    #[cfg(feature = "http")]
    fn open_uploads(&self, folder: &str) -> BoxFuture<'_, Result<Option<Vec<OpenUpload>>>> {
        let Some(uploads) = &self.uploads else {
            return async { Ok(None) }.boxed();
        };
        let found = on_runtime(self.runtime.clone(), uploads.open_below(folder));
        async move { Ok(Some(found.await?)) }.boxed()
    }

    #[cfg(feature = "http")]
    fn give_up_upload(&self, upload: &OpenUpload) -> BoxFuture<'_, Result<()>> {
        match &self.uploads {
            Some(uploads) => on_runtime(self.runtime.clone(), uploads.give_up(upload)),
            None => async { Err(Error::unsupported("the store can't give up uploads")) }.boxed(),
        }
    }
}

/// An upload under way.
struct Upload {
    /// Gone when it is closed or aborted.
    writer: Option<Writer>,
    lease: Lease,
    runtime: Option<Handle>,
    /// Of all bytes so far, to tell whether an upload of uncertain outcome is whole.
    written: Xxh3,
    len: u64,
}

impl Upload {
    /// Frees the parts of an upload that will never complete; the object itself is removed by its owner.
    async fn abort(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // Not every service can abort; where that is so, deleting the path covers it.
            if let Err(e) = writer.abort().await {
                tracing::debug!(error = %e.kind(), "the parts of an upload that was given up may be left");
            }
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(mut writer), Some(runtime)) = (self.writer.take(), &self.runtime) {
            let lease = self.lease.clone();
            drop(runtime.spawn(async move {
                drop(writer.abort().await);
                drop(lease);
            }));
        }
    }
}

struct OpendalWriter {
    operator: Operator,
    runtime: Option<Handle>,
    path: String,
    failure: Failure,
    /// Whether nothing is under the path before the upload is closed.
    exclusive: bool,
    /// Gone while an operation runs, and for good if it failed or nobody waited for it.
    open: Option<Upload>,
}

impl OpendalWriter {
    fn take(&mut self) -> Result<Upload> {
        let gone =
            || Error::poisoned("an earlier write of this object failed").with("object", &self.path);
        self.open.take().ok_or_else(gone)
    }
}

/// Tells whether an object is exactly what an upload was to make of it.
///
/// Completing an upload may fail after it was done, and a second try then finds the name taken or the upload gone.
async fn is_whole(operator: &Operator, path: &str, upload: &Upload) -> bool {
    match operator.stat(path).await {
        Ok(found) if found.content_length() == upload.len => {}
        _ => return false,
    }
    let mut stored = Xxh3::new();
    let mut at = 0;
    while at < upload.len {
        let end = (at + COMPARE_LEN).min(upload.len);
        let Ok(part) = operator.read_with(path).range(at..end).await else {
            return false;
        };
        if part.len() as u64 != end - at {
            return false;
        }
        part.for_each(|bytes| stored.update(&bytes));
        at = end;
    }
    stored.digest128() == upload.written.digest128()
}

impl ObjectWriter for OpendalWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut upload = self.take()?;
            let path = self.path.clone();
            let failure = self.failure.clone();
            let work = async move {
                let Some(writer) = &mut upload.writer else {
                    return Err(Error::bug("an upload goes on after its end"));
                };
                upload.written.update(&bytes);
                upload.len += bytes.len() as u64;
                if let Err(e) = writer.write(bytes).await {
                    upload.abort().await;
                    return Err(failure.of("write an object", &path, e));
                }
                Ok(upload)
            };
            self.open = Some(on_runtime(self.runtime.clone(), work).await?);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let mut upload = self.take()?;
            let Self {
                operator,
                runtime,
                path,
                failure,
                ..
            } = *self;
            let work = async move {
                let Some(writer) = &mut upload.writer else {
                    return Err(Error::bug("an upload ends twice"));
                };
                let Err(e) = writer.close().await else {
                    drop(upload.writer.take());
                    return Ok(());
                };
                if is_whole(&operator, &path, &upload).await {
                    tracing::debug!(object = path, error = %e.kind(), "an upload was complete although its end failed");
                    drop(upload.writer.take());
                    return Ok(());
                }
                upload.abort().await;
                Err(failure.of("complete an object", &path, e))
            };
            on_runtime(runtime, work).await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let Self {
            operator,
            runtime,
            path,
            failure,
            exclusive,
            open,
        } = *self;
        on_runtime(runtime, async move {
            let upload = match open {
                Some(mut upload) => {
                    upload.abort().await;
                    Some(upload)
                }
                None => None,
            };
            // What is there now was completed by somebody else, where writers exclude each other.
            let deleted = match exclusive {
                true => Ok(()),
                false => operator.delete(&path).await,
            };
            drop(upload);
            deleted.map_err(|e| failure.of("delete an object", &path, e))
        })
    }
}
