use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use opendal::Operator;
use state_api::{Error, ErrorKind, Result};
use tokio::runtime::Handle;

use crate::metadata::{
    CheckpointMetadata, METADATA_NAME, MetadataEncoder, MetadataSigner, file_of,
};
use crate::names::UuidSource;
use crate::publish::{ConditionalPublish, Content, LocalPublish, MemoryPublish, Publish};
use crate::remote::{self, Patience, Requests, StoreAccess};
use crate::sealed::{IndexCache, Sealing, WholeReader, is_sealed};
use crate::store::{
    EntropyPath, EntropyPublish, EntropyStore, Held, Lease, LocalStore, MemoryStore, ObjectStore,
    ObjectWriter, OpenUpload, OpendalStore, StoreEntry, check_marker,
};

/// A folder of a store: its objects, how one publishes there, and its URL.
#[derive(Clone)]
pub struct StoreRoot {
    objects: Arc<dyn ObjectStore>,
    publish: Arc<dyn Publish>,
    prefix: Arc<str>,
    url: Arc<str>,
    requests: Option<Requests>,
    patience: Option<Arc<Patience>>,
    sealing: Arc<Sealing>,
    sealed: Arc<IndexCache>,
    signer: Option<Arc<dyn MetadataSigner>>,
}

impl StoreRoot {
    /// Creates the root folder of a store out of its parts.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, publish: Arc<dyn Publish>, url: &str) -> Self {
        Self {
            objects,
            publish,
            prefix: "".into(),
            url: url.trim_end_matches('/').into(),
            requests: None,
            patience: None,
            sealing: Arc::default(),
            sealed: Arc::default(),
            signer: None,
        }
    }

    /// Sets how new objects are compressed and encrypted, and with which key encrypted ones are read.
    #[must_use]
    pub fn with_sealing(self, sealing: Sealing) -> Self {
        Self {
            sealing: Arc::new(sealing),
            ..self
        }
    }

    /// Returns how new objects are compressed and encrypted.
    #[must_use]
    pub fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    /// Sets what metadata is signed with, and checked with: metadata without a valid signature is refused then.
    #[must_use]
    pub fn with_signer(self, signer: Arc<dyn MetadataSigner>) -> Self {
        Self {
            signer: Some(signer),
            ..self
        }
    }

    pub(crate) fn signer(&self) -> Option<&dyn MetadataSigner> {
        self.signer.as_deref()
    }

    /// Returns the length of an object that must be there as its handle has it, or `None` if there is no such object.
    pub(crate) async fn plain_len(&self, path: &str) -> Result<Option<u64>> {
        let found = |found: &Result<Option<u64>>| !matches!(found, Ok(None));
        if is_sealed(path) {
            return self.insist(|| self.sealed.len(self, path), found).await;
        }
        self.insist(|| self.len(path), found).await
    }

    /// As [`StoreRoot::plain_len`], asked of the store and not of what is remembered.
    pub(crate) async fn fresh_len(&self, path: &str) -> Result<Option<u64>> {
        if !is_sealed(path) {
            return self.plain_len(path).await;
        }
        match self.open_sealed(path).await {
            Ok(reader) => Ok(Some(reader.plain_len())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Starts to read a sealed object that must be there.
    pub(crate) async fn open_sealed(&self, path: &str) -> Result<WholeReader> {
        self.insist(|| WholeReader::open(self, path), is_there)
            .await
    }

    /// Reads a part of an object that must be there as its handle has it.
    pub(crate) async fn read_plain(
        &self,
        path: &str,
        range: Range<u64>,
        plain_len: u64,
    ) -> Result<Bytes> {
        if is_sealed(path) {
            let read = || self.sealed.read(self, path, range.clone(), plain_len);
            return self.insist(read, is_there).await;
        }
        let read = || self.read(path, range.clone());
        self.insist(read, is_there).await
    }

    /// Asks for what must be there until it is found, or the store has said often enough that it isn't.
    async fn insist<T, F: Future<Output = Result<T>>>(
        &self,
        ask: impl Fn() -> F,
        found: impl Fn(&Result<T>) -> bool,
    ) -> Result<T> {
        let mut looks = 1;
        loop {
            let answer = ask().await;
            match &self.patience {
                Some(patience) if !found(&answer) && patience.waits(looks).await => looks += 1,
                _ => return answer,
            }
        }
    }

    /// Sets how the store is asked again for objects that must be there.
    #[cfg(feature = "http")]
    pub(crate) fn with_patience(self, patience: Patience) -> Self {
        Self {
            patience: Some(Arc::new(patience)),
            ..self
        }
    }

    /// Sets where the requests to the store are counted.
    #[must_use]
    pub fn with_requests(self, requests: Requests) -> Self {
        Self {
            requests: Some(requests),
            ..self
        }
    }

    /// Returns where the requests to the store are counted; `None` for a store that makes none.
    #[must_use]
    pub fn requests(&self) -> Option<&Requests> {
        self.requests.as_ref()
    }

    /// Opens a local folder, which need not exist yet.
    ///
    /// # Errors
    /// `Config` when the path is relative and the current folder is gone.
    pub fn local(folder: impl AsRef<Path>, runtime: Handle) -> Result<Self> {
        let store = LocalStore::new(folder, runtime)?;
        let publish = LocalPublish::new(store.clone(), UuidSource::machine());
        let url = format!("file://{}", store.root().to_string_lossy());
        Ok(Self::new(Arc::new(store), Arc::new(publish), &url))
    }

    /// Opens a store in memory; the name becomes part of its URL.
    #[must_use]
    pub fn memory(store: &MemoryStore, name: &str) -> Self {
        let publish = MemoryPublish::new(store.clone());
        Self::new(
            Arc::new(store.clone()),
            Arc::new(publish),
            &format!("memory://{name}"),
        )
    }

    /// Opens a store of any service of opendal that can write on condition.
    ///
    /// # Errors
    /// `Unsupported` when the service can't create an object atomically on condition that it does not exist.
    pub fn operator(operator: Operator, url: &str, runtime: Option<Handle>) -> Result<Self> {
        let publish = ConditionalPublish::new(operator.clone(), runtime.clone())?;
        Ok(Self::new(
            Arc::new(OpendalStore::new(operator, runtime)),
            Arc::new(publish),
            url,
        ))
    }

    /// Returns a folder below this one whose objects of snapshots are spread over paths that begin differently.
    ///
    /// The path holds a marker, as a segment or a part of one: in its place stand one or two hexadecimal digits that follow
    /// from an object's name, and nothing for metadata and all else. Listings take sixteen times as many requests for each digit.
    ///
    /// # Errors
    /// `Config` when the marker is not in the path, or is none.
    pub fn with_entropy(&self, path: &str, marker: &str, digits: usize) -> Result<Self> {
        check_marker(marker)?;
        let inside = self.join(path);
        let Some(place) = EntropyPath::new(&inside, marker, digits) else {
            return Err(Error::config("the marker for entropy is not in the path")
                .with("path", path)
                .with("marker", marker));
        };
        let objects = EntropyStore {
            inner: Arc::clone(&self.objects),
            path: place.clone(),
        };
        let publish = EntropyPublish {
            inner: Arc::clone(&self.publish),
            path: place,
        };
        Ok(Self {
            objects: Arc::new(objects),
            publish: Arc::new(publish),
            prefix: "".into(),
            url: format!("{}/{path}", self.url).into(),
            ..self.clone()
        })
    }

    /// Opens a folder by URL or local path: `file:` and plain paths locally, other schemes by what is compiled in.
    ///
    /// `docs/storage.md` lists the schemes, their features and their options. Nothing is sent to the store yet.
    ///
    /// # Errors
    /// `Config` when the URL is malformed, when its scheme is unknown, or when it is not compiled in, with the feature that
    /// would; `Unsupported` when the service can't publish.
    pub fn open(url: &str, access: impl Into<StoreAccess>) -> Result<Self> {
        let access = access.into();
        match split_url(url)? {
            Location::Local(path) => access.local(path),
            Location::Remote(scheme) => {
                remote::open(&scheme, url, &access).map(|root| access.protection().of(root))
            }
        }
    }

    /// Returns a folder below this one.
    #[must_use]
    pub fn folder(&self, path: &str) -> Self {
        Self {
            prefix: self.join(path).into(),
            url: format!("{}/{path}", self.url).into(),
            ..self.clone()
        }
    }

    /// Returns the URL, without a slash at its end and without credentials.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns how one publishes here, in a few words.
    #[must_use]
    pub fn publish_method(&self) -> &'static str {
        self.publish.method()
    }

    fn join(&self, path: &str) -> String {
        match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (_, true) => self.prefix.to_string(),
            _ => format!("{}/{path}", self.prefix),
        }
    }

    /// Publishes an object; see [`Publish::publish`].
    ///
    /// # Errors
    /// As there.
    pub fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.publish.publish(&self.join(path), bytes)
    }

    /// Publishes metadata in this folder, signed if there is something to sign it with.
    ///
    /// # Errors
    /// `InvalidArgument` when the metadata breaks a rule; those of [`Publish::publish`].
    pub async fn publish_metadata(&self, metadata: &CheckpointMetadata) -> Result<()> {
        match self.signer() {
            // Metadata that is signed is made as a whole; it may be large, so other metadata is made part by part.
            Some(signer) => {
                let file = file_of(Some(signer), metadata)?;
                self.publish(METADATA_NAME, file).await
            }
            None => {
                let mut content = MetadataEncoder::new(metadata)?;
                self.publish_parts(METADATA_NAME, &mut content).await
            }
        }
    }

    /// Publishes an object out of parts; see [`Publish::publish_parts`].
    ///
    /// # Errors
    /// As there.
    pub async fn publish_parts(&self, path: &str, content: &mut dyn Content) -> Result<()> {
        self.publish.publish_parts(&self.join(path), content).await
    }

    /// Starts an object; see [`ObjectStore::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        self.objects.create(&self.join(path), lease)
    }

    /// Reads a part of an object; see [`ObjectStore::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.objects.read(&self.join(path), range)
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// `NotFound`; `Retryable` when the store fails.
    pub async fn read_all(&self, path: &str) -> Result<Bytes> {
        self.read(path, 0..u64::MAX).await
    }

    /// Returns the length of an object; see [`ObjectStore::len`].
    ///
    /// # Errors
    /// As there.
    pub fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        self.objects.len(&self.join(path))
    }

    /// Returns what lies directly in a folder; see [`ObjectStore::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        self.objects.list(&self.join(folder))
    }

    /// Deletes an object; see [`ObjectStore::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        self.objects.delete(&self.join(path))
    }

    /// Removes a folder if it is empty; see [`ObjectStore::remove_folder`].
    ///
    /// # Errors
    /// As there.
    pub fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        self.objects.remove_folder(&self.join(folder))
    }

    /// Holds an object for as long as the lease lives; see [`ObjectStore::hold`].
    ///
    /// # Errors
    /// As there.
    pub fn hold(&self, path: &str) -> BoxFuture<'_, Result<Option<Lease>>> {
        self.objects.hold(&self.join(path))
    }

    /// Looks whether somebody holds an object; see [`ObjectStore::held`].
    ///
    /// # Errors
    /// As there.
    pub fn held(&self, path: &str) -> BoxFuture<'_, Result<Held>> {
        self.objects.held(&self.join(path))
    }

    /// Makes deletions in a folder durable; see [`ObjectStore::sync_folder`].
    ///
    /// # Errors
    /// As there.
    pub fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        self.objects.sync_folder(&self.join(folder))
    }

    /// Returns the uploads below this folder that never ended, by paths in it; see [`ObjectStore::open_uploads`].
    ///
    /// # Errors
    /// As there.
    pub async fn open_uploads(&self) -> Result<Option<Vec<OpenUpload>>> {
        let Some(found) = self.objects.open_uploads(&self.prefix).await? else {
            return Ok(None);
        };
        let below = |upload: OpenUpload| {
            let path = upload.path.strip_prefix(&*self.prefix)?;
            let path = match self.prefix.is_empty() {
                true => path,
                false => path.strip_prefix('/')?,
            };
            Some(OpenUpload {
                path: path.to_owned(),
                id: upload.id,
            })
        };
        Ok(Some(found.into_iter().filter_map(below).collect()))
    }

    /// Frees the parts of an upload below this folder; see [`ObjectStore::give_up_upload`].
    ///
    /// # Errors
    /// As there.
    pub async fn give_up_upload(&self, upload: &OpenUpload) -> Result<()> {
        let upload = OpenUpload {
            path: self.join(&upload.path),
            id: upload.id.clone(),
        };
        self.objects.give_up_upload(&upload).await
    }
}

impl fmt::Debug for StoreRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreRoot({})", self.url)
    }
}

/// Returns whether an object was there, be it whole or not.
fn is_there<T>(answer: &Result<T>) -> bool {
    !matches!(answer, Err(e) if e.kind() == ErrorKind::NotFound)
}

/// Where a URL points.
pub(crate) enum Location {
    /// A local path.
    Local(String),
    /// Another scheme.
    Remote(String),
}

/// Splits a URL or local path into its kind.
pub(crate) fn split_url(url: &str) -> Result<Location> {
    if url.trim().is_empty() {
        return Err(Error::invalid("the path is empty"));
    }
    if url.contains('\0') {
        return Err(Error::invalid("the path holds a zero byte"));
    }
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Ok(Location::Local(url.to_owned()));
    };
    if !scheme.eq_ignore_ascii_case("file") {
        return match rest.strip_prefix("//") {
            Some(rest) if !rest.is_empty() => Ok(Location::Remote(scheme.to_ascii_lowercase())),
            _ => Err(Error::config("a URL reads scheme://place").with("url", scheme_of(url))),
        };
    }
    // file:/a, file:///a and file://localhost/a name the same folder.
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err(Error::config(
            "a file URL needs an absolute path, such as file:///data/checkpoints",
        )
        .with("url", url));
    }
    Ok(Location::Local(path.to_owned()))
}

/// Two characters at least: a single letter is a drive.
fn is_scheme(scheme: &str) -> bool {
    scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Returns what of a URL that is refused can be shown: behind the scheme there may be a secret.
pub(crate) fn scheme_of(url: &str) -> String {
    match url.split_once(':') {
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}:…"),
        _ => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_every_spelling_of_a_file_url_are_local() {
        for url in [
            "/a/b",
            "file:/a/b",
            "file:///a/b",
            "FILE:///a/b",
            "file://localhost/a/b",
        ] {
            match split_url(url).unwrap() {
                Location::Local(path) => assert_eq!(path, "/a/b", "{url}"),
                Location::Remote(_) => panic!("{url} is local"),
            }
        }
        assert!(matches!(split_url("a:b/c"), Ok(Location::Local(_))));
        assert!(
            matches!(split_url("S3://bucket/a"), Ok(Location::Remote(scheme)) if scheme == "s3")
        );
    }

    #[test]
    fn k_479_an_empty_or_malformed_url_is_refused() {
        for url in ["", "  ", "a\0b"] {
            assert_eq!(
                split_url(url).err().unwrap().kind(),
                ErrorKind::InvalidArgument,
                "{url:?}"
            );
        }
        for url in [
            "file:",
            "file:a",
            "file://host/a",
            "s3:",
            "s3://",
            "s3:bucket",
            "s3:/AKIA:hidden@b/x",
        ] {
            let error = split_url(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config, "{url:?}");
            assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
        }
    }
}
