use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ObjectHandle, ObjectReader, RelPath,
    Result, Scope, Subtask,
};

use super::LocalCopies;
use super::copy_file::{copy_name, failed, link_or_copy, place, read_on, verified};
use super::local_copies::task_folder;

/// Bytes of a copy that are read at once.
const CHUNK: u64 = 4 << 20;

/// Where the bytes of a restore came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Bytes out of local copies.
    pub from_copies: u64,
    /// Bytes out of the store.
    pub from_store: u64,
    /// Objects of which there were bytes out of local copies.
    pub objects_from_copies: u64,
    /// Objects of which there were bytes out of the store.
    pub objects_from_store: u64,
}

impl ReadBytes {
    /// Adds the bytes of another restore.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            from_copies: self.from_copies + other.from_copies,
            from_store: self.from_store + other.from_store,
            objects_from_copies: self.objects_from_copies + other.objects_from_copies,
            objects_from_store: self.objects_from_store + other.objects_from_store,
        }
    }

    /// Returns what was read since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            from_copies: self.from_copies - earlier.from_copies,
            from_store: self.from_store - earlier.from_store,
            objects_from_copies: self.objects_from_copies - earlier.objects_from_copies,
            objects_from_store: self.objects_from_store - earlier.objects_from_store,
        }
    }
}

/// What a subtask is restored from: local copies where there are some that match, the store for the rest. Counts what it reads.
pub struct RestoringStorage {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn CheckpointStorage>,
    copies: Option<LocalCopies>,
    checkpoint: CheckpointId,
    task: String,
    /// Names of copies that were read through and found right.
    right: Mutex<BTreeSet<String>>,
    of_copies: Mutex<ReadOf>,
    of_store: Mutex<ReadOf>,
}

/// What was read out of one source.
#[derive(Default)]
struct ReadOf {
    bytes: u64,
    objects: BTreeSet<RelPath>,
}

impl ReadOf {
    fn add(this: &Mutex<Self>, object: &ObjectHandle, bytes: u64) {
        let mut this = this.lock().unwrap_or_else(PoisonError::into_inner);
        this.bytes += bytes;
        if !this.objects.contains(&object.path) {
            this.objects.insert(object.path.clone());
        }
    }

    /// Returns bytes and objects.
    fn total(this: &Mutex<Self>) -> (u64, u64) {
        let this = this.lock().unwrap_or_else(PoisonError::into_inner);
        (this.bytes, this.objects.len() as u64)
    }
}

impl RestoringStorage {
    /// Creates the storage of a subtask that is restored from a checkpoint.
    #[must_use]
    pub fn new(
        inner: Arc<dyn CheckpointStorage>,
        copies: Option<LocalCopies>,
        checkpoint: CheckpointId,
        operator: &str,
        subtask: Subtask,
    ) -> Self {
        let shared = Shared {
            inner,
            copies,
            checkpoint,
            task: task_folder(operator, subtask),
            right: Mutex::default(),
            of_copies: Mutex::default(),
            of_store: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns how much was read so far, and from where.
    #[must_use]
    pub fn read(&self) -> ReadBytes {
        let (from_copies, objects_from_copies) = ReadOf::total(&self.shared.of_copies);
        let (from_store, objects_from_store) = ReadOf::total(&self.shared.of_store);
        ReadBytes {
            from_copies,
            from_store,
            objects_from_copies,
            objects_from_store,
        }
    }
}

impl Shared {
    fn of_copy(&self, object: &ObjectHandle, bytes: u64) {
        ReadOf::add(&self.of_copies, object, bytes);
    }

    fn of_store(&self, object: &ObjectHandle, bytes: u64) {
        ReadOf::add(&self.of_store, object, bytes);
    }

    fn is_right(&self, name: &str) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.contains(name)
    }

    /// Opens the copy of an object at its start, read through before its first use; `None` if there is none that is right.
    async fn open_copy(&self, object: &ObjectHandle) -> Option<(LocalCopies, PathBuf, File)> {
        let copies = self.copies.as_ref()?;
        let path = copies.find(object)?;
        let name = copy_name(object);
        let (known, of, at) = (self.is_right(&name), object.clone(), path.clone());
        let opened = copies.executor().on_cpu(move || {
            if known {
                File::open(&at).map_err(|e| failed("open it", &at, e))
            } else {
                verified(&at, &of)
            }
        });
        match opened.await {
            Ok(file) => {
                let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
                right.insert(name);
                drop(right);
                Some((copies.clone(), path, file))
            }
            Err(error) => {
                copies.discard(object, error);
                None
            }
        }
    }

    async fn range_of_copy(&self, object: &ObjectHandle, range: &Range<u64>) -> Option<Bytes> {
        if range.start > range.end || range.end > object.len {
            // The store has words for that.
            return None;
        }
        let (copies, path, file) = self.open_copy(object).await?;
        let Range { start, end } = *range;
        let read = copies.executor().on_cpu(move || {
            use std::io::{Seek, SeekFrom};
            let mut file = file;
            file.seek(SeekFrom::Start(start))
                .map_err(|e| failed("read it", &path, e))?;
            read_on(file, &path, end - start)
        });
        match read.await {
            Ok((_, bytes)) => {
                self.of_copy(object, bytes.len() as u64);
                Some(bytes)
            }
            Err(error) => {
                copies.discard(object, error);
                None
            }
        }
    }
}

impl CheckpointStorage for RestoringStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        self.shared.inner.create(checkpoint, scope)
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            if let Some(bytes) = self.shared.range_of_copy(object, &range).await {
                return Ok(bytes);
            }
            let bytes = self.shared.inner.read_range(object, range).await?;
            self.shared.of_store(object, bytes.len() as u64);
            Ok(bytes)
        }
        .boxed()
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        async move {
            let from = match self.shared.open_copy(object).await {
                Some((copies, path, file)) => Source::Copy { copies, path, file },
                None => Source::Store(self.shared.inner.open(object).await?),
            };
            Ok(Box::new(Reader {
                shared: Arc::clone(&self.shared),
                object: object.clone(),
                position: 0,
                from: Some(from),
            }) as Box<dyn ObjectReader>)
        }
        .boxed()
    }

    fn discard(&self, object: &ObjectHandle) {
        self.shared.inner.discard(object);
    }

    fn link_copy<'a>(&'a self, object: &'a ObjectHandle, to: &'a Path) -> BoxFuture<'a, bool> {
        async move {
            let Some(copies) = &self.shared.copies else {
                return false;
            };
            let Some(from) = copies.find(object) else {
                return false;
            };
            let (of, to) = (object.clone(), to.to_owned());
            let linked = copies.executor().on_cpu(move || {
                link_or_copy(&from, &to).map_err(|e| failed("link it", &from, e))?;
                // What is checked is what will be used, whatever becomes of the copy.
                verified(&to, &of).map(drop).inspect_err(|_| {
                    drop(fs::remove_file(&to));
                })
            });
            match linked.await {
                Ok(()) => {
                    self.shared.of_copy(object, object.len);
                    true
                }
                Err(error) => {
                    copies.discard(object, error);
                    false
                }
            }
        }
        .boxed()
    }

    fn keep_copy<'a>(&'a self, object: &'a ObjectHandle, file: &'a Path) -> BoxFuture<'a, ()> {
        async move {
            let Some(copies) = self.shared.copies.as_ref().filter(|copies| copies.keeps()) else {
                return;
            };
            let checkpoint = self.shared.checkpoint;
            if copies.has(checkpoint, object) {
                return;
            }
            let Some(folder) = copies.folder(checkpoint, &self.shared.task) else {
                return;
            };
            let (from, name) = (file.to_owned(), copy_name(object));
            let placed = copies
                .executor()
                .on_cpu(move || place(&from, &folder, &name));
            match placed.await {
                Ok((path, _)) => copies.add(checkpoint, object, path),
                Err(error) => copies.not_kept(checkpoint, error),
            }
        }
        .boxed()
    }
}

enum Source {
    Copy {
        copies: LocalCopies,
        path: PathBuf,
        file: File,
    },
    Store(Box<dyn ObjectReader>),
}

/// Reads an object out of a copy that was found right, or out of the store; out of the store from there on if reading the copy fails.
struct Reader {
    shared: Arc<Shared>,
    object: ObjectHandle,
    position: u64,
    /// Gone while an operation runs, and for good if nobody waited for it.
    from: Option<Source>,
}

impl Reader {
    async fn read(&mut self, most: u64) -> Result<Option<Bytes>> {
        let Some(from) = self.from.take() else {
            return Err(Error::poisoned("an earlier read was cancelled or failed")
                .with("object", &self.object));
        };
        let mut reader = match from {
            Source::Copy { copies, path, file } => {
                let len = most.clamp(1, CHUNK).min(self.object.len - self.position);
                if len == 0 {
                    self.from = Some(Source::Copy { copies, path, file });
                    return Ok(None);
                }
                let at = path.clone();
                let read = copies.executor().on_cpu(move || read_on(file, &at, len));
                match read.await {
                    Ok((file, bytes)) => {
                        self.position += len;
                        self.shared.of_copy(&self.object, len);
                        self.from = Some(Source::Copy { copies, path, file });
                        return Ok(Some(bytes));
                    }
                    Err(error) => {
                        copies.discard(&self.object, error);
                        return self.go_on_in_store().await;
                    }
                }
            }
            Source::Store(reader) => reader,
        };
        let bytes = reader.next_piece(most).await?;
        if let Some(bytes) = &bytes {
            self.shared.of_store(&self.object, bytes.len() as u64);
        }
        self.from = Some(Source::Store(reader));
        Ok(bytes)
    }

    /// Reads what was handed out already over again, so that the digest is checked over all of it.
    async fn go_on_in_store(&mut self) -> Result<Option<Bytes>> {
        let mut reader = self.shared.inner.open(&self.object).await?;
        let mut skip = self.position;
        loop {
            let Some(mut bytes) = reader.next_piece(CHUNK).await? else {
                break Err(Error::corrupt("an object ends early").with("object", &self.object));
            };
            self.shared.of_store(&self.object, bytes.len() as u64);
            let len = bytes.len() as u64;
            if len <= skip {
                skip -= len;
                continue;
            }
            drop(bytes.split_to(usize::try_from(skip).unwrap_or(0)));
            self.from = Some(Source::Store(reader));
            break Ok(Some(bytes));
        }
    }
}

impl ObjectReader for Reader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.read(CHUNK).boxed()
    }

    fn next_piece(&mut self, bytes: u64) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.read(bytes).boxed()
    }
}
