use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use state_api::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

use crate::UuidSource;
use crate::publish::{Content, Publish, check_len};
use crate::store::{LocalFolder, LocalStore};
use crate::store::{io_error, parent, sync_folder};

/// Parts of an object that are ready while another one is being written.
const PARTS_AHEAD: usize = 2;

/// Publishes on a local file system: a synced temporary file in the same folder, then a hard link, which fails if the name is taken.
#[derive(Clone, Debug)]
pub struct LocalPublish {
    store: LocalStore,
    names: UuidSource,
}

impl LocalPublish {
    /// The ending of temporary files.
    pub const TEMPORARY: &'static str = ".tmp";

    /// Creates the publisher of a store.
    #[must_use]
    pub fn new(store: LocalStore, names: UuidSource) -> Self {
        Self { store, names }
    }
}

impl Publish for LocalPublish {
    fn method(&self) -> &'static str {
        "temporary file and hard link"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.publish_filled(path, move |write| write(&bytes))
    }

    fn publish_parts<'a>(
        &'a self,
        path: &'a str,
        content: &'a mut dyn Content,
    ) -> BoxFuture<'a, Result<()>> {
        let len = content.len();
        let (full, mut parts) = mpsc::channel::<Vec<u8>>(PARTS_AHEAD);
        let (emptied, mut empty) = mpsc::channel(2 * PARTS_AHEAD);
        let written = self.publish_filled(path, move |write| {
            let mut written = 0;
            while let Some(mut part) = parts.blocking_recv() {
                write(&part)?;
                written += part.len() as u64;
                part.clear();
                // What finds no room is not used again.
                drop(emptied.try_send(part));
            }
            // Nobody hears of it when the content failed, or nobody waits any more.
            check_len(len, written)
        });
        let given = async move {
            loop {
                let mut part = empty.try_recv().unwrap_or_default();
                content.next_part(&mut part)?;
                // Whoever does not take it has failed, and says why.
                if part.is_empty() || full.send(part).await.is_err() {
                    return Ok(());
                }
            }
        };
        async move {
            let (written, given) = join(written, given).await;
            given.and(written)
        }
        .boxed()
    }
}

impl LocalPublish {
    /// Publishes a file that is filled through a function, away from the caller's thread.
    fn publish_filled(
        &self,
        path: &str,
        fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + Send + 'static,
    ) -> BoxFuture<'static, Result<()>> {
        let path = path.to_owned();
        let unique = self.names.next();
        self.store.blocking(move |folder| {
            let target = folder.resolve(&path)?;
            let name = target.file_name().unwrap_or_default().to_string_lossy();
            let temporary =
                target.with_file_name(format!(".{name}.{unique}{}", LocalPublish::TEMPORARY));
            let published = write_synced(folder, &temporary, fill)
                .and_then(|()| link_new(&temporary, &target, &path));
            // Left behind after a crash only: it is not a checkpoint, and whoever sweeps the folder removes it.
            if let Err(e) = std::fs::remove_file(&temporary)
                && e.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %temporary.display(), error = %e, "a temporary file is left");
            }
            published?;
            sync_folder(parent(&target))
        })
    }
}

fn write_synced(
    folder: &LocalFolder,
    file: &Path,
    fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut opened = folder.create_new(file)?;
    fill(&mut |bytes| {
        opened
            .write_all(bytes)
            .map_err(|e| io_error("write a file", file, e))
    })?;
    opened
        .sync_all()
        .map_err(|e| io_error("sync a file", file, e))
}

fn link_new(temporary: &Path, target: &Path, path: &str) -> Result<()> {
    std::fs::hard_link(temporary, target).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::new(ErrorKind::AlreadyExists, "the object exists already").with("object", path)
        }
        io::ErrorKind::Unsupported => {
            Error::unsupported("the file system has no hard links, which publishing needs")
                .with("object", path)
                .caused_by(e)
        }
        _ => io_error("link a file into place", target, e),
    })
}
