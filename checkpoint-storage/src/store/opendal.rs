use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use opendal::{Operator, Writer};
use state_api::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use super::{Lease, ObjectStore, ObjectWriter, StoreEntry};

/// A store over any service of opendal.
///
/// With a runtime, calls run on it and may be awaited anywhere; without one they run where they are awaited,
/// which suits services that do no I/O.
#[derive(Clone, Debug)]
pub struct OpendalStore {
    operator: Operator,
    runtime: Option<Handle>,
}

impl OpendalStore {
    /// Creates a store over an operator.
    #[must_use]
    pub fn new(operator: Operator, runtime: Option<Handle>) -> Self {
        Self { operator, runtime }
    }

    /// Returns the operator.
    #[must_use]
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Operator) -> BoxFuture<'static, Result<T>>,
    ) -> BoxFuture<'static, Result<T>> {
        on_runtime(self.runtime.clone(), work(self.operator.clone()))
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

/// Turns an error of opendal into ours; the cause stays attached as text.
pub(crate) fn map_error(doing: &'static str, path: &str, error: opendal::Error) -> Error {
    use opendal::ErrorKind as Theirs;
    let kind = match error.kind() {
        Theirs::NotFound => ErrorKind::NotFound,
        Theirs::AlreadyExists | Theirs::ConditionNotMatch => ErrorKind::AlreadyExists,
        Theirs::ConfigInvalid | Theirs::PermissionDenied => ErrorKind::Config,
        Theirs::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Retryable,
    };
    Error::new(kind, format!("could not {doing}"))
        .with("object", path)
        .caused_by(error)
}

impl ObjectStore for OpendalStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        let runtime = self.runtime.clone();
        self.run(move |operator| {
            async move {
                // Without the condition, the random name alone keeps writers apart.
                let exclusive = operator.info().capability().write_with_if_not_exists;
                let opened = operator.writer_with(&path).if_not_exists(exclusive).await;
                let writer = opened.map_err(|e| map_error("create an object", &path, e))?;
                let open = Some((writer, lease));
                Ok(Box::new(OpendalWriter {
                    operator,
                    runtime,
                    path,
                    open,
                }) as Box<dyn ObjectWriter>)
            }
            .boxed()
        })
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        self.run(move |operator| {
            async move {
                let fail = |e| map_error("read an object", &path, e);
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
        self.run(move |operator| {
            async move {
                match operator.stat(&path).await {
                    Ok(found) if found.is_file() => Ok(Some(found.content_length())),
                    Ok(_) => Ok(None),
                    Err(e) if e.kind() == opendal::ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(map_error("look at an object", &path, e)),
                }
            }
            .boxed()
        })
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let path = format!("{folder}/");
        self.run(move |operator| {
            async move {
                let found = match operator.list(&path).await {
                    Ok(found) => found,
                    Err(e) if e.kind() == opendal::ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(e) => return Err(map_error("list a folder", &path, e)),
                };
                let own = path.trim_matches('/');
                let mut entries: Vec<_> = found
                    .iter()
                    .filter(|entry| entry.path().trim_matches('/') != own)
                    .map(|entry| StoreEntry {
                        name: entry.name().trim_end_matches('/').to_owned(),
                        is_folder: entry.path().ends_with('/'),
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
        self.run(move |operator| {
            async move {
                operator
                    .delete(&path)
                    .await
                    .map_err(|e| map_error("delete an object", &path, e))
            }
            .boxed()
        })
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
}

struct OpendalWriter {
    operator: Operator,
    runtime: Option<Handle>,
    path: String,
    /// Gone while an operation runs, and for good if it failed or nobody waited for it.
    open: Option<(Writer, Lease)>,
}

impl OpendalWriter {
    fn take(&mut self) -> Result<(Writer, Lease)> {
        let gone =
            || Error::poisoned("an earlier write of this object failed").with("object", &self.path);
        self.open.take().ok_or_else(gone)
    }
}

impl ObjectWriter for OpendalWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let (mut writer, lease) = self.take()?;
            let path = self.path.clone();
            let work = async move {
                match writer.write(bytes).await {
                    Ok(()) => Ok((writer, lease)),
                    Err(e) => {
                        // Frees the parts of an upload that will never complete; the object is removed by its owner.
                        drop(writer.abort().await);
                        Err(map_error("write an object", &path, e))
                    }
                }
            };
            self.open = Some(on_runtime(self.runtime.clone(), work).await?);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let (mut writer, lease) = self.take()?;
            let path = self.path.clone();
            let work = async move {
                let closed = writer.close().await;
                if closed.is_err() {
                    drop(writer.abort().await);
                }
                drop(lease);
                closed
                    .map(drop)
                    .map_err(|e| map_error("complete an object", &path, e))
            };
            on_runtime(self.runtime.clone(), work).await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let Self {
            operator,
            runtime,
            path,
            open,
        } = *self;
        on_runtime(runtime, async move {
            let lease = match open {
                Some((mut writer, lease)) => {
                    // Not every service can abort; deleting the path covers those that can't.
                    drop(writer.abort().await);
                    Some(lease)
                }
                None => None,
            };
            let deleted = operator.delete(&path).await;
            drop(lease);
            deleted.map_err(|e| map_error("delete an object", &path, e))
        })
    }
}
