use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hdfs_native::file::FileWriter;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use state_api::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use crate::names::UuidSource;
use crate::publish::{LocalPublish, Publish};
use crate::remote::StoreAccess;
use crate::remote::secrets::{ForeignError, Secrets};
use crate::remote::services::Place;
use crate::root::StoreRoot;
use crate::store::{Lease, ObjectStore, ObjectWriter, StoreEntry, on_runtime};

/// Opens a folder of HDFS.
///
/// It speaks to the client itself: opendal's service over the same client overwrites what it writes and what it renames to, and
/// deletes folders with all that is in them.
pub(super) fn open_hdfs(
    fields: BTreeMap<String, String>,
    place: &Place,
    access: &StoreAccess,
) -> Result<StoreRoot> {
    let scheme = place.url.split(':').next().unwrap_or("hdfs");
    let name_node = match place.authority.as_str() {
        "" => fields.get("name_node").cloned(),
        authority => Some(format!("{scheme}://{authority}")),
    };
    let mut builder = ClientBuilder::new().with_io_runtime(access.runtime().clone());
    if let Some(url) = name_node {
        builder = builder.with_url(url);
    }
    let client = builder.build().map_err(|e| {
        Error::config("the client of HDFS can't be set up: without a name node in the URL it is taken from hdfs.name-node or Hadoop's own configuration")
            .caused_by(ForeignError::new(&e, &Secrets::default()))
    })?;
    let store = HdfsStore(Arc::new(Inner {
        client,
        root: place.path.trim_end_matches('/').to_owned(),
        runtime: access.runtime().clone(),
        timeout: access.options().policy().timeout,
    }));
    let publish = HdfsPublish {
        store: store.clone(),
        names: UuidSource::machine(),
    };
    Ok(
        StoreRoot::new(Arc::new(store), Arc::new(publish), &place.url)
            .with_requests(crate::Requests::default()),
    )
}

/// A store in a folder of HDFS; a finished object is synced on its data nodes.
#[derive(Clone)]
struct HdfsStore(Arc<Inner>);

struct Inner {
    client: Client,
    root: String,
    runtime: Handle,
    timeout: Duration,
}

impl Inner {
    fn path(&self, path: &str) -> String {
        match (self.root.is_empty(), path.is_empty()) {
            (true, true) => "/".to_owned(),
            (_, true) => self.root.clone(),
            _ => format!("{}/{path}", self.root),
        }
    }

    /// Bounds the time of a call.
    async fn within<T>(
        &self,
        doing: &'static str,
        path: &str,
        call: impl Future<Output = hdfs_native::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(outcome) => outcome.map_err(|e| failure(doing, path, &e)),
            Err(_) => Err(
                Error::retryable(format!("could not {doing} within {:?}", self.timeout))
                    .with("object", path),
            ),
        }
    }

    async fn remove(&self, path: &str) -> Result<()> {
        match self
            .within(
                "delete an object",
                path,
                self.client.delete(&self.path(path), false),
            )
            .await
        {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            // The name node answers whether there was anything to delete.
            _ => Ok(()),
        }
    }
}

impl HdfsStore {
    fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Inner>) -> F,
    ) -> BoxFuture<'static, Result<T>> {
        on_runtime(Some(self.0.runtime.clone()), work(Arc::clone(&self.0)))
    }
}

impl fmt::Debug for HdfsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HdfsStore({})", self.0.root)
    }
}

fn failure(doing: &'static str, path: &str, error: &HdfsError) -> Error {
    let kind = match error {
        HdfsError::FileNotFound(_) | HdfsError::BlocksNotFound(_) => ErrorKind::NotFound,
        HdfsError::AlreadyExists(_) => ErrorKind::AlreadyExists,
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => of_class(class),
        HdfsError::InvalidPath(_)
        | HdfsError::InvalidArgument(_)
        | HdfsError::UrlParseError(_)
        | HdfsError::SASLError(_)
        | HdfsError::GSSAPIError(..)
        | HdfsError::NoSASLMechanism => ErrorKind::Config,
        HdfsError::UnsupportedFeature(_) | HdfsError::UnsupportedErasureCodingPolicy(_) => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Retryable,
    };
    Error::new(kind, format!("could not {doing}"))
        .with("object", path)
        .caused_by(ForeignError::new(error, &Secrets::default()))
}

/// Tells what an exception of the name node means.
fn of_class(class: &str) -> ErrorKind {
    match class.rsplit('.').next().unwrap_or(class) {
        "FileNotFoundException" => ErrorKind::NotFound,
        "FileAlreadyExistsException" => ErrorKind::AlreadyExists,
        "AccessControlException" | "InvalidPathException" => ErrorKind::Config,
        _ => ErrorKind::Retryable,
    }
}

impl ObjectStore for HdfsStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        let store = self.clone();
        self.run(move |inner| async move {
            let full = inner.path(&path);
            let created = inner
                .client
                .create(&full, WriteOptions::default().overwrite(false));
            let file = inner.within("create an object", &path, created).await?;
            Ok(Box::new(HdfsWriter {
                store,
                path,
                open: Some((file, lease)),
            }) as Box<dyn ObjectWriter>)
        })
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        self.run(move |inner| async move {
            let doing = "read an object";
            let file = inner
                .within(doing, &path, inner.client.read(&inner.path(&path)))
                .await?;
            let len = file.file_length() as u64;
            let part = range.start.min(len)..range.end.min(len);
            if part.is_empty() {
                return Ok(Bytes::new());
            }
            // Below the length of a file that was just opened.
            let (start, count) = (part.start as usize, (part.end - part.start) as usize);
            inner
                .within(doing, &path, file.read_range(start, count))
                .await
        })
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        self.run(move |inner| async move {
            let full = inner.path(&path);
            let asked = inner.client.get_file_info(&full);
            match inner.within("look at an object", &path, asked).await {
                Ok(found) if found.isdir => Ok(None),
                Ok(found) => Ok(Some(found.length as u64)),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(e),
            }
        })
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let folder = folder.to_owned();
        self.run(move |inner| async move {
            let full = inner.path(&folder);
            let asked = inner.client.list_status(&full, false);
            let found = match inner.within("list a folder", &folder, asked).await {
                Ok(found) => found,
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                Err(e) => return Err(e),
            };
            let mut entries: Vec<_> = found
                .iter()
                .map(|status| StoreEntry {
                    name: status
                        .path
                        .rsplit('/')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                    is_folder: status.isdir,
                    len: None,
                })
                .collect();
            entries.sort();
            Ok(entries)
        })
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        self.run(move |inner| async move { inner.remove(&path).await })
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let folder = folder.to_owned();
        self.run(move |inner| async move {
            let full = inner.path(&folder);
            let asked = inner.client.delete(&full, false);
            match inner.within("remove a folder", &folder, asked).await {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(true),
                // A folder that is not empty is refused by an exception of its own.
                Err(e)
                    if e.to_string().contains("NotEmpty")
                        || e.to_string().contains("non empty") =>
                {
                    Ok(false)
                }
                Err(e) => Err(e),
            }
        })
    }

    fn sync_folder(&self, _folder: &str) -> BoxFuture<'_, Result<()>> {
        // The name node answers a delete when it is in its log.
        async { Ok(()) }.boxed()
    }
}

struct HdfsWriter {
    store: HdfsStore,
    path: String,
    /// Gone while an operation runs, and for good if it failed or nobody waited for it.
    open: Option<(FileWriter, Lease)>,
}

impl HdfsWriter {
    fn take(&mut self) -> Result<(FileWriter, Lease)> {
        let gone =
            || Error::poisoned("an earlier write of this object failed").with("object", &self.path);
        self.open.take().ok_or_else(gone)
    }
}

/// Writes a file's last bytes to the disks of its data nodes, and closes it.
async fn close(inner: &Inner, path: &str, file: &mut FileWriter) -> Result<()> {
    let doing = "complete an object";
    inner.within(doing, path, file.hsync()).await?;
    inner.within(doing, path, file.close()).await
}

impl ObjectWriter for HdfsWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            let (mut file, lease) = self.take()?;
            let path = self.path.clone();
            let written = self.store.run(move |inner| async move {
                inner
                    .within("write an object", &path, file.write_bytes(bytes))
                    .await?;
                Ok((file, lease))
            });
            self.open = Some(written.await?);
            Ok(())
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let (mut file, lease) = self.take()?;
            let path = self.path.clone();
            let done = self.store.run(move |inner| async move {
                let closed = close(&inner, &path, &mut file).await;
                drop(lease);
                closed
            });
            done.await
        }
        .boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let open = self.open.take();
        let path = self.path.clone();
        self.store.run(move |inner| async move {
            let deleted = inner.remove(&path).await;
            drop(open);
            deleted
        })
    }
}

/// Publishes on HDFS: a synced temporary file in the same folder, then a rename that the name node refuses if the name is taken.
///
/// Creating the file under its own name without overwriting would be exclusive too, but readers would see it grow.
#[derive(Clone, Debug)]
struct HdfsPublish {
    store: HdfsStore,
    names: UuidSource,
}

impl Publish for HdfsPublish {
    fn method(&self) -> &'static str {
        "temporary file and rename without overwriting"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let slash = if folder.is_empty() { "" } else { "/" };
        let temporary = format!(
            "{folder}{slash}.{name}.{}{}",
            self.names.next(),
            LocalPublish::TEMPORARY
        );
        self.store.run(move |inner| async move {
            let outcome = put_in_place(&inner, &temporary, &path, bytes).await;
            if outcome.is_err()
                && let Err(e) = inner.remove(&temporary).await
            {
                tracing::debug!(object = temporary, error = %e, "a temporary file is left");
            }
            outcome
        })
    }
}

async fn put_in_place(inner: &Inner, temporary: &str, path: &str, bytes: Bytes) -> Result<()> {
    let (from, to) = (inner.path(temporary), inner.path(path));
    let created = inner
        .client
        .create(&from, WriteOptions::default().overwrite(false));
    let mut file = inner
        .within("create a temporary file", temporary, created)
        .await?;
    inner
        .within("write a temporary file", temporary, file.write_bytes(bytes))
        .await?;
    close(inner, temporary, &mut file).await?;
    let renamed = inner.client.rename(&from, &to, false);
    inner
        .within("rename a file into place", path, renamed)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_name_node_throws_is_told_apart() {
        for (class, kind) in [
            ("java.io.FileNotFoundException", ErrorKind::NotFound),
            (
                "org.apache.hadoop.fs.FileAlreadyExistsException",
                ErrorKind::AlreadyExists,
            ),
            (
                "org.apache.hadoop.security.AccessControlException",
                ErrorKind::Config,
            ),
            (
                "org.apache.hadoop.ipc.StandbyException",
                ErrorKind::Retryable,
            ),
        ] {
            let error = HdfsError::RPCError(class.into(), "at 10.0.0.1".into());
            assert_eq!(failure("rename", "a", &error).kind(), kind, "{class}");
        }
    }
}
