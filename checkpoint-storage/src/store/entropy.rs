use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use state_api::{Error, Result};

use super::{Held, Lease, ObjectStore, ObjectWriter, OpenUpload, StoreEntry};
use crate::digest::digest_of;
use crate::layout::ATTEMPTS;
use crate::names::attempt_of_name;
use crate::publish::{Content, Publish};

/// Listings at a time.
const LISTINGS: usize = 16;

/// A path with a place for entropy: for the objects of snapshots it holds hexadecimal digits that follow from the object's
/// name, which is random; for everything else nothing.
///
/// A store that spreads its load by how paths begin is kept from serving a job in one place
/// (Flink's `EntropyInjector`; there the digits differ with each use, and handles hold whole paths).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntropyPath {
    before: String,
    after: String,
    digits: usize,
}

impl EntropyPath {
    /// Most digits: each makes listings sixteen times as many.
    pub(crate) const MOST_DIGITS: usize = 2;

    /// Takes a path apart at a marker; `None` where the marker is not in it.
    pub(crate) fn new(path: &str, marker: &str, digits: usize) -> Option<Self> {
        let (before, after) = path.split_once(marker).filter(|_| !marker.is_empty())?;
        Some(Self {
            before: before.to_owned(),
            after: after.to_owned(),
            digits: digits.clamp(1, Self::MOST_DIGITS),
        })
    }

    /// Returns the path with something in place of the marker.
    fn with(&self, entropy: &str) -> String {
        let path = format!("{}{entropy}{}", self.before, self.after);
        let segments: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        segments.join("/")
    }

    fn join(&self, entropy: &str, path: &str) -> String {
        match (self.with(entropy), path) {
            (folder, "") => folder,
            (folder, path) if folder.is_empty() => path.to_owned(),
            (folder, path) => format!("{folder}/{path}"),
        }
    }

    /// Returns where an object lies.
    pub(crate) fn of(&self, path: &str) -> String {
        let name = path.rsplit('/').next().unwrap_or_default();
        match attempt_of_name(name) {
            Some(_) => self.join(&self.entropy_of(name), path),
            None => self.join("", path),
        }
    }

    fn entropy_of(&self, name: &str) -> String {
        let mut digits = digest_of(name.as_bytes()).to_string();
        digits.truncate(self.digits);
        digits
    }

    /// Returns every folder in which what lies in a folder may be.
    fn folders(&self, folder: &str) -> Vec<String> {
        let mut folders = vec![self.join("", folder)];
        // There are none of snapshots with the numbers of attempts, which are listed often.
        if folder.rsplit('/').next() != Some(ATTEMPTS) {
            let width = self.digits;
            let all = 0..16_u32.pow(width as u32);
            folders.extend(all.map(|n| self.join(&format!("{n:0width$x}"), folder)));
        }
        folders
    }
}

/// A store whose objects of snapshots are spread over paths that begin differently.
#[derive(Clone)]
pub(crate) struct EntropyStore {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) path: EntropyPath,
}

impl ObjectStore for EntropyStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        self.inner.create(&self.path.of(path), lease)
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.inner.read(&self.path.of(path), range)
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        self.inner.len(&self.path.of(path))
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let folders = self.path.folders(folder);
        async move {
            let lists: Vec<_> = folders
                .iter()
                .map(|folder| self.inner.list(folder))
                .collect();
            let mut lists = stream::iter(lists).buffer_unordered(LISTINGS);
            let mut entries = Vec::new();
            while let Some(listed) = lists.next().await {
                entries.extend(listed?);
            }
            entries.sort();
            entries.dedup();
            Ok(entries)
        }
        .boxed()
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(&self.path.of(path))
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let folder = folder.to_owned();
        async move {
            if !self.list(&folder).await?.is_empty() {
                return Ok(false);
            }
            let mut gone = true;
            for folder in self.path.folders(&folder) {
                gone &= self.inner.remove_folder(&folder).await?;
            }
            Ok(gone)
        }
        .boxed()
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        let folders = self.path.folders(folder);
        async move {
            for folder in folders {
                self.inner.sync_folder(&folder).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn open_uploads(&self, folder: &str) -> BoxFuture<'_, Result<Option<Vec<OpenUpload>>>> {
        let folders = self.path.folders(folder);
        let logical = folder.to_owned();
        async move {
            let mut all = Vec::new();
            for physical in folders {
                let Some(found) = self.inner.open_uploads(&physical).await? else {
                    return Ok(None);
                };
                all.extend(found.into_iter().filter_map(|upload| {
                    let below = upload.path.strip_prefix(&physical)?.trim_start_matches('/');
                    let path = match logical.is_empty() {
                        true => below.to_owned(),
                        false => format!("{logical}/{below}"),
                    };
                    // Below the bucket itself there are others' too.
                    (self.path.of(&path) == upload.path).then_some(OpenUpload {
                        path,
                        id: upload.id,
                    })
                }));
            }
            all.sort();
            all.dedup();
            Ok(Some(all))
        }
        .boxed()
    }

    fn give_up_upload(&self, upload: &OpenUpload) -> BoxFuture<'_, Result<()>> {
        let path = self.path.of(&upload.path);
        let upload = OpenUpload {
            path,
            id: upload.id.clone(),
        };
        async move { self.inner.give_up_upload(&upload).await }.boxed()
    }

    fn hold(&self, path: &str) -> BoxFuture<'_, Result<Option<Lease>>> {
        self.inner.hold(&self.path.of(path))
    }

    fn held(&self, path: &str) -> BoxFuture<'_, Result<Held>> {
        self.inner.held(&self.path.of(path))
    }
}

impl fmt::Debug for EntropyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntropyStore({:?})", self.inner)
    }
}

/// Publishes in an [`EntropyStore`].
pub(crate) struct EntropyPublish {
    pub(crate) inner: Arc<dyn Publish>,
    pub(crate) path: EntropyPath,
}

impl Publish for EntropyPublish {
    fn method(&self) -> &'static str {
        self.inner.method()
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.inner.publish(&self.path.of(path), bytes)
    }

    fn publish_parts<'a>(
        &'a self,
        path: &'a str,
        content: &'a mut dyn Content,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let path = self.path.of(path);
            self.inner.publish_parts(&path, content).await
        }
        .boxed()
    }
}

impl fmt::Debug for EntropyPublish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntropyPublish({:?})", self.inner)
    }
}

/// Checks a marker.
///
/// # Errors
/// `Config` for one that is empty, or holds what a path segment can't.
pub(crate) fn check_marker(marker: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match marker.is_empty() || !marker.chars().all(fine) || marker.chars().all(|c| c == '.') {
        true => Err(Error::config(
            "a marker for entropy has letters, digits, _, - and . only",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "7-67e55044-10b1-426f-9247-bb680e5fe0c8";

    #[test]
    fn k_496_entropy_is_in_the_place_of_the_marker_for_snapshots_and_nothing_is_for_the_rest() {
        let path = |path: &str| EntropyPath::new(path, "_key_", 2);
        let digits = path("/_key_").unwrap().entropy_of(NAME);
        assert_eq!(digits.len(), 2);
        for (of, snapshot, rest) in [
            ("/_key_/ck", format!("{digits}/ck"), "ck"),
            ("/ck/_key_", format!("ck/{digits}"), "ck"),
            ("/a-_key_-b/ck", format!("a-{digits}-b/ck"), "a--b/ck"),
            ("/_key_", digits.clone(), ""),
        ] {
            let path = path(of).unwrap();
            assert_eq!(
                path.of(&format!("chk-1/{NAME}")),
                format!("{snapshot}/chk-1/{NAME}")
            );
            let slash = if rest.is_empty() { "" } else { "/" };
            assert_eq!(
                path.of("chk-1/_metadata"),
                format!("{rest}{slash}chk-1/_metadata")
            );
            assert_eq!(path.folders("shared").len(), 257);
            assert!(
                path.folders("shared")
                    .contains(&format!("{snapshot}/shared"))
            );
            assert_eq!(path.folders("job/attempts").len(), 1);
        }
        // Without the marker in it, a path is what it is.
        assert_eq!(path("/ck"), None);
        assert!(check_marker("_key_").is_ok() && check_marker("a/b").is_err());
        assert!(check_marker("").is_err() && check_marker("..").is_err());
    }
}
