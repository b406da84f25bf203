//! Encoded bytes on their way from a CPU thread to the store: bounded in memory, then in a local file.
//!
//! The encoder never waits for the store, so frozen state is let go once it is encoded, not once it is uploaded.
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use futures_util::future::poll_fn;
use state_api::{Error, PersistContext, Result};

/// Encoded bytes that may wait in memory.
pub(crate) const MEMORY_LIMIT: usize = 8 << 20;

/// Buffers that were written and wait to be filled again: memory that the process has already costs less than new one.
const SPARE_BUFFERS: usize = 8;

/// The largest buffer that is kept from one snapshot to the next.
const SPARE_CAPACITY: usize = 2 << 20;

/// Chunks up to this size are copied out of a buffer that is larger by far.
const SMALL_CHUNK: usize = 64 << 10;

/// Buffers of snapshots that are over, for the next one of any subtask: one every second would else have the system hand out, and
/// clear, the same memory every second.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<Vec<u8>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds buffers to those that are kept, the smaller ones of too many not.
fn keep(kept: &mut Vec<Vec<u8>>, buffers: impl IntoIterator<Item = Vec<u8>>) {
    let buffers = buffers.into_iter();
    kept.extend(buffers.filter(|buffer| buffer.capacity() <= SPARE_CAPACITY));
    if kept.len() > SPARE_BUFFERS {
        kept.sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.capacity()));
        kept.truncate(SPARE_BUFFERS);
    }
}

/// The most that is read from the spill file at once.
const READ_SIZE: u64 = 1 << 20;

/// What the reader gets next.
pub(crate) enum Piece<T> {
    Chunk(Bytes),
    End(T),
}

/// Creates the two ends; `T` is what the encoder reports when all is encoded.
pub(crate) fn pipe<T>(
    spill_dir: Option<PathBuf>,
    memory_limit: usize,
) -> (ChunkWriter<T>, ChunkReader<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue::default()),
    });
    let writer = ChunkWriter {
        shared: Arc::clone(&shared),
        spill_dir,
        spill: None,
        memory_limit,
        ended: false,
    };
    (
        writer,
        ChunkReader {
            shared,
            spill: None,
        },
    )
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Queue<T> {
    /// Older than everything unread in the file: nothing enters memory while the file has unread bytes.
    memory: VecDeque<Bytes>,
    memory_bytes: usize,
    /// Empty, with room.
    spare: Vec<Vec<u8>>,
    spilled: u64,
    unspilled: u64,
    spill: Option<Arc<SpillFile>>,
    end: Option<Result<T>>,
    reader_gone: bool,
    waker: Option<Waker>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            memory: VecDeque::new(),
            memory_bytes: 0,
            spare: Vec::new(),
            spilled: 0,
            unspilled: 0,
            spill: None,
            end: None,
            reader_gone: false,
            waker: None,
        }
    }
}

impl<T> Queue<T> {
    fn keep_spare(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && !self.reader_gone {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// A file that goes with its last user.
struct SpillFile {
    path: PathBuf,
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // A file that is left behind lies in the process's local folder, which is cleaned as a whole.
        drop(std::fs::remove_file(&self.path));
    }
}

fn spill_error(path: &Path, error: std::io::Error) -> Error {
    Error::retryable("the spill file of a snapshot failed")
        .with("file", path.display())
        .caused_by(error)
}

impl SpillFile {
    fn create(dir: &Path) -> Result<(Arc<Self>, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        std::fs::create_dir_all(dir).map_err(|e| spill_error(dir, e))?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("snapshot-{}-{number}.spill", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok((Arc::new(Self { path }), file)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(spill_error(&path, e)),
            }
        }
    }
}

/// Takes encoded bytes on a CPU thread, for an upload that goes on beside: in memory while they are few, then in a local file.
pub struct ChunkWriter<T> {
    shared: Arc<Shared<T>>,
    spill_dir: Option<PathBuf>,
    spill: Option<(Arc<SpillFile>, File)>,
    memory_limit: usize,
    ended: bool,
}

impl<T> ChunkWriter<T> {
    /// Returns an empty buffer: one that was written, here or for an earlier snapshot, or a new one with room for so many bytes.
    #[must_use]
    pub fn buffer(&self, capacity: usize) -> Vec<u8> {
        let spare = self.shared.lock().spare.pop();
        spare
            .or_else(|| kept().pop())
            .unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Hands over a chunk, without waiting for the store.
    ///
    /// # Errors
    /// `Cancelled` when nobody reads any more, `Retryable` when the spill file fails.
    pub fn send(&mut self, mut chunk: Vec<u8>) -> Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        {
            let mut queue = self.shared.lock();
            if chunk.len() <= SMALL_CHUNK && chunk.capacity() > 2 * chunk.len() {
                // It may end up in metadata, with all the room that its buffer has.
                let exact = chunk.as_slice().to_vec();
                queue.keep_spare(std::mem::replace(&mut chunk, exact));
            }
            if queue.reader_gone {
                return Err(Error::cancelled("nobody takes the encoded bytes any more"));
            }
            let fits = queue.unspilled == queue.spilled
                && queue.memory_bytes + chunk.len() <= self.memory_limit;
            if fits || self.spill_dir.is_none() {
                queue.memory_bytes += chunk.len();
                queue.memory.push_back(chunk.into());
                wake(queue);
                return Ok(());
            }
        }
        self.spill(&chunk)?;
        self.shared.lock().keep_spare(chunk);
        Ok(())
    }

    fn spill(&mut self, chunk: &[u8]) -> Result<()> {
        if self.spill.is_none()
            && let Some(dir) = &self.spill_dir
        {
            let (spill, file) = SpillFile::create(dir)?;
            self.shared.lock().spill = Some(Arc::clone(&spill));
            self.spill = Some((spill, file));
        }
        if let Some((spill, file)) = &mut self.spill {
            file.write_all(chunk)
                .map_err(|e| spill_error(&spill.path, e))?;
            let mut queue = self.shared.lock();
            queue.spilled += chunk.len() as u64;
            wake(queue);
        }
        Ok(())
    }

    /// Says that all is encoded, or that encoding failed.
    pub(crate) fn end(mut self, result: Result<T>) {
        self.ended = true;
        let mut queue = self.shared.lock();
        queue.end = Some(result);
        wake(queue);
    }
}

fn wake<T>(mut queue: MutexGuard<'_, Queue<T>>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> std::fmt::Debug for ChunkWriter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkWriter").finish_non_exhaustive()
    }
}

impl<T> Drop for ChunkWriter<T> {
    fn drop(&mut self) {
        if !self.ended {
            let mut queue = self.shared.lock();
            queue.end = Some(Err(if std::thread::panicking() {
                Error::user("the encoder of a snapshot panicked")
            } else {
                Error::cancelled("the encoder of a snapshot was dropped")
            }));
            wake(queue);
        }
    }
}

/// The uploader's end.
pub(crate) struct ChunkReader<T> {
    shared: Arc<Shared<T>>,
    spill: Option<File>,
}

enum Next<T> {
    Piece(Piece<T>),
    Spilled(u64, Arc<SpillFile>),
}

impl<T> ChunkReader<T> {
    /// Takes back a chunk that was written, if nobody else holds it.
    pub(crate) fn give_back(&self, mut chunk: Bytes) {
        if chunk.is_unique() {
            // Without this its bytes would be copied, to themselves.
            chunk.truncate(0);
            self.shared.lock().keep_spare(chunk.into());
        }
    }

    /// Waits for the next chunk, or for the end.
    ///
    /// # Errors
    /// Those of the encoder, and of the spill file.
    pub(crate) async fn next(&mut self, cx: &PersistContext) -> Result<Piece<T>> {
        let next = poll_fn(|task| {
            let mut queue = self.shared.lock();
            if let Some(chunk) = queue.memory.pop_front() {
                queue.memory_bytes -= chunk.len();
                return Poll::Ready(Ok(Next::Piece(Piece::Chunk(chunk))));
            }
            let unread = queue.spilled - queue.unspilled;
            if unread > 0
                && let Some(spill) = &queue.spill
            {
                return Poll::Ready(Ok(Next::Spilled(unread.min(READ_SIZE), Arc::clone(spill))));
            }
            match queue.end.take() {
                Some(end) => Poll::Ready(end.map(|end| Next::Piece(Piece::End(end)))),
                None => {
                    queue.waker = Some(task.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await?;
        match next {
            Next::Piece(piece) => Ok(piece),
            Next::Spilled(len, spill) => self.read_spilled(cx, len, spill).await.map(Piece::Chunk),
        }
    }

    async fn read_spilled(
        &mut self,
        cx: &PersistContext,
        len: u64,
        spill: Arc<SpillFile>,
    ) -> Result<Bytes> {
        let open = self.spill.take();
        let read = move || {
            let failed = |e| spill_error(&spill.path, e);
            let mut file = open
                .map_or_else(|| File::open(&spill.path), Ok)
                .map_err(failed)?;
            let mut bytes = Vec::new();
            let read = Read::by_ref(&mut file)
                .take(len)
                .read_to_end(&mut bytes)
                .map_err(failed)?;
            if (read as u64) < len {
                return Err(Error::retryable(
                    "the spill file of a snapshot is shorter than what was written",
                )
                .with("file", spill.path.display()));
            }
            Ok((file, Bytes::from(bytes)))
        };
        let (file, bytes) = cx.on_cpu(read).await?;
        self.spill = Some(file);
        self.shared.lock().unspilled += len;
        Ok(bytes)
    }
}

impl<T> Drop for ChunkReader<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.reader_gone = true;
        // Let go now: the encoder may hold its end for a while.
        queue.memory.clear();
        queue.spill = None;
        let spare = std::mem::take(&mut queue.spare);
        drop(queue);
        keep(&mut kept(), spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_chunk_does_not_hold_a_large_buffer() {
        let (mut writer, reader) = pipe::<()>(None, MEMORY_LIMIT);
        let mut buffer = Vec::with_capacity(SPARE_CAPACITY);
        buffer.extend_from_slice(b"a few bytes");
        writer.send(buffer).unwrap();
        let chunk = reader.shared.lock().memory.pop_front().unwrap();
        assert_eq!(&chunk[..], b"a few bytes");
        assert!(Vec::from(chunk).capacity() < 2 * SMALL_CHUNK);
        // The buffer itself is there for the next chunk, and for a later snapshot.
        assert_eq!(writer.buffer(0).capacity(), SPARE_CAPACITY);
    }

    #[test]
    fn as_many_buffers_are_kept_as_one_snapshot_needs_the_largest_first() {
        let sizes = (1..=2 * SPARE_BUFFERS).map(|i| i * 1024);
        let mut kept = Vec::new();
        let buffers = sizes.chain([SPARE_CAPACITY + 1]).map(Vec::with_capacity);
        keep(&mut kept, buffers);
        let kept: Vec<usize> = kept.iter().map(Vec::capacity).collect();
        assert_eq!(kept.len(), SPARE_BUFFERS);
        assert!(kept.iter().all(|capacity| *capacity > SPARE_BUFFERS * 1024));
        assert!(!kept.contains(&(SPARE_CAPACITY + 1)));
    }
}
