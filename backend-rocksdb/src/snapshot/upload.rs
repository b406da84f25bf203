use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::{StreamExt, iter};
use state_api::{
    Bases, CheckpointStorage, Error, IncrementalHandle, KeyGroupRange, KeyedHandle, NamedHandle,
    ObjectHandle, PersistContext, Result, Scope, Snapshot, StateHandle, StateSummary,
};

use super::download::naming;
use super::frozen::Frozen;
use super::layout::{FileLayout, Layout, file_name};
use super::{FORMAT, LAYOUT, Objects};
use crate::error::folder_failed;
use crate::folder::InstanceFolder;

/// Bytes of a file that are read at once.
const PIECE: u64 = 1 << 20;

/// A frozen database on its way to the store: the files that are not there yet, and a layout that says which there are.
pub(crate) struct FileSnapshot {
    pub(crate) frozen: Frozen,
    /// Files that need not be written.
    pub(crate) base: Arc<Objects>,
    /// Who may refer to the files.
    pub(crate) scope: Scope,
    /// Learns what was written, if others may build upon it.
    pub(crate) bases: Option<Bases<Objects>>,
    pub(crate) backend_id: Arc<str>,
    pub(crate) range: KeyGroupRange,
    pub(crate) states: Vec<StateSummary>,
    /// Where to keep files that the database may remove meanwhile.
    pub(crate) links: PathBuf,
    /// Files that are written at once.
    pub(crate) transfers: usize,
}

impl Snapshot<Vec<KeyedHandle>> for FileSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move {
            let work = pin!(self.write(&cx));
            match select(work, pin!(cx.cancel.cancelled())).await {
                Either::Left((result, _)) => result,
                // Dropping the work removes links and objects.
                Either::Right(((), _)) => Err(Error::cancelled("the snapshot was aborted")),
            }
        })
    }
}

impl FileSnapshot {
    async fn write(self: Box<Self>, cx: &PersistContext) -> Result<Vec<KeyedHandle>> {
        cx.cancel.check()?;
        let Self {
            frozen,
            base,
            scope,
            bases,
            backend_id,
            range,
            states,
            links,
            transfers,
        } = *self;
        let known = Arc::clone(&base);
        let mut frozen = frozen;
        let flushed = frozen.flushed().await;
        // Once they are linked, the database may remove files again.
        let (layout, links) = cx
            .on_cpu(move || {
                if let Err(error) = flushed {
                    frozen.flush_again(&error)?;
                }
                let layout = frozen.layout()?;
                let links = Links::create(links, frozen.database().folder())?;
                for file in missing(&layout, &known) {
                    frozen.link(file.number, &links.path)?;
                }
                Ok((layout, links))
            })
            .await?;
        let mut written = Written::new(&cx.storage);
        let uploads: Vec<_> = missing(&layout, &base)
            .map(|file| (file.number, file.size, links.path.join(file.name())))
            .map(|(number, size, path)| async move {
                Ok((number, upload(cx, scope, path, size).await?))
            })
            .collect();
        let mut uploads = iter(uploads).buffer_unordered(transfers);
        let mut objects = Objects::new();
        let mut new_bytes = 0;
        while let Some(uploaded) = uploads.next().await {
            let (number, handle): (u64, StateHandle) = uploaded?;
            new_bytes += handle.len();
            written.note(&handle);
            objects.insert(number, handle);
        }
        drop(uploads);
        drop(links);
        for file in layout.files() {
            if let Some(handle) = base.get(&file.number) {
                objects.insert(file.number, handle.clone());
            }
        }
        let mut handles = Vec::new();
        if !objects.is_empty() {
            let bytes = Bytes::from(layout.encode());
            let layout = write_whole(cx, bytes).await?;
            new_bytes += layout.len();
            written.note(&layout);
            let mut private = vec![NamedHandle {
                name: LAYOUT.into(),
                bytes: layout,
            }];
            let mut shared = Vec::new();
            let files = objects.iter().map(|(number, handle)| NamedHandle {
                name: file_name(*number).into(),
                bytes: handle.clone(),
            });
            match scope {
                Scope::Shared => shared.extend(files),
                _ => private.extend(files),
            }
            handles.push(KeyedHandle::Incremental(IncrementalHandle {
                format: FORMAT.into(),
                backend_id,
                checkpoint: cx.checkpoint,
                range,
                private,
                shared,
                new_bytes,
                states,
            }));
        }
        written.keep();
        if let Some(bases) = bases {
            bases.written(cx.checkpoint, objects);
        }
        Ok(handles)
    }
}

/// The files of a layout that are not in a base.
fn missing<'a>(layout: &'a Layout, base: &'a Objects) -> impl Iterator<Item = &'a FileLayout> {
    layout
        .files()
        .filter(|file| !base.contains_key(&file.number))
}

/// A folder of second names, removed when dropped.
struct Links {
    path: PathBuf,
    /// The store may be gone before the snapshot is written.
    _folder: Arc<InstanceFolder>,
}

impl Links {
    fn create(path: PathBuf, folder: &Arc<InstanceFolder>) -> Result<Self> {
        fs::create_dir_all(&path).map_err(|e| folder_failed("create folder", &path, e))?;
        Ok(Self {
            path,
            _folder: Arc::clone(folder),
        })
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the files of a snapshot can't be removed");
        }
    }
}

/// The objects of a snapshot, which are discarded unless it is finished.
struct Written {
    storage: Arc<dyn CheckpointStorage>,
    objects: Vec<ObjectHandle>,
}

impl Written {
    fn new(storage: &Arc<dyn CheckpointStorage>) -> Self {
        Self {
            storage: Arc::clone(storage),
            objects: Vec::new(),
        }
    }

    fn note(&mut self, handle: &StateHandle) {
        self.objects.extend(handle.object().cloned());
    }

    /// The objects belong to whoever gets the handle.
    fn keep(mut self) {
        self.objects.clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for object in &self.objects {
            self.storage.discard(object);
        }
    }
}

/// Writes a local file to an object, and checks that the object is what was read: from here on its digest is the truth.
async fn upload(
    cx: &PersistContext,
    scope: Scope,
    path: PathBuf,
    size: u64,
) -> Result<StateHandle> {
    let mut stream = cx.storage.create(cx.checkpoint, scope);
    stream.written_from(&path);
    let copied = async {
        let mut local = cx.on_cpu(move || Local::open(path)).await?;
        let mut left = size;
        while left > 0 {
            let len = left.min(PIECE);
            let bytes;
            (local, bytes) = cx.on_cpu(move || local.read(len)).await?;
            left -= len;
            stream.write(bytes).await?;
        }
        Ok(local)
    }
    .await;
    let local = match copied {
        Ok(local) => local,
        Err(error) => {
            stream.abort().await;
            return Err(error);
        }
    };
    let Some(handle) = stream.finish().await? else {
        return Err(Error::bug("the file is empty").with("path", local.path.display()));
    };
    if local.is(&handle) {
        return Ok(handle);
    }
    if let Some(object) = handle.object() {
        cx.storage.discard(object);
    }
    let error = Error::corrupt("an object is not what was written to it");
    Err(naming(error.with("path", local.path.display()), &handle))
}

/// A local file that is read from start to end.
struct Local {
    path: PathBuf,
    file: File,
    digest: blake3::Hasher,
}

impl Local {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|e| folder_failed("open file", &path, e))?;
        Ok(Self {
            path,
            file,
            digest: blake3::Hasher::new(),
        })
    }

    fn read(mut self, len: u64) -> Result<(Self, Bytes)> {
        // Not more than a piece.
        let mut bytes = vec![0; len as usize];
        self.file
            .read_exact(&mut bytes)
            .map_err(|e| folder_failed("read file", &self.path, e))?;
        self.digest.update(&bytes);
        Ok((self, bytes.into()))
    }

    /// Returns whether a handle points at the bytes that were read.
    fn is(&self, handle: &StateHandle) -> bool {
        let read = self.digest.finalize();
        let written = match handle {
            StateHandle::Inline(bytes) => *blake3::hash(bytes).as_bytes(),
            StateHandle::Object(object) => object.digest.0,
        };
        handle.len() == self.digest.count() && written == *read.as_bytes()
    }
}

/// Writes bytes to an object of this checkpoint, or keeps them in the handle if they are few.
async fn write_whole(cx: &PersistContext, bytes: Bytes) -> Result<StateHandle> {
    let mut stream = cx.storage.create(cx.checkpoint, Scope::Exclusive);
    if let Err(error) = stream.write(bytes).await {
        stream.abort().await;
        return Err(error);
    }
    let handle = stream.finish().await?;
    handle.ok_or_else(|| Error::bug("the layout is empty"))
}
