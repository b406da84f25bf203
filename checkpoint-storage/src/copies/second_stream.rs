use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join};
use state_api::{CheckpointId, CheckpointStream, Error, ObjectHandle, Result, StateHandle};

use super::LocalCopies;
use super::copy_file::{Part, copy_name, place, remove};

/// Bytes that wait in memory: what ends up inline makes no file.
const WAITING: usize = 64 << 10;

/// Writes an object and, beside it, a copy on local disk. Only the object counts: whatever goes wrong with the copy, there is none.
pub(super) struct CopyingStream {
    primary: Box<dyn CheckpointStream>,
    second: Second,
    copies: LocalCopies,
    of: Of,
}

/// What a copy is kept for.
#[derive(Clone)]
pub(super) struct Of {
    /// The checkpoint beside which the object is written.
    pub(super) checkpoint: CheckpointId,
    /// The folder of the subtask that writes it.
    pub(super) task: Arc<str>,
    /// Whether the object is for the handles of later checkpoints.
    pub(super) is_for_later: bool,
}

/// The copy so far.
enum Second {
    Waiting(Vec<u8>),
    Writing(Part),
    /// A file that has all bytes already.
    File(PathBuf),
    /// There is none, or it is somewhere else at the moment.
    Gone,
}

impl CopyingStream {
    pub(super) fn new(
        primary: Box<dyn CheckpointStream>,
        copies: LocalCopies,
        checkpoint: CheckpointId,
        task: Arc<str>,
    ) -> Self {
        Self {
            primary,
            second: Second::Waiting(Vec::new()),
            copies,
            of: Of {
                checkpoint,
                task,
                is_for_later: false,
            },
        }
    }
}

/// Appends to a copy.
async fn append(second: Second, bytes: Bytes, copies: &LocalCopies, of: &Of) -> Result<Second> {
    let part = match second {
        Second::Waiting(mut waiting) if waiting.len() + bytes.len() <= WAITING => {
            waiting.extend_from_slice(&bytes);
            return Ok(Second::Waiting(waiting));
        }
        Second::Waiting(waiting) => {
            let Some(folder) = copies.folder_of(of) else {
                return Ok(Second::Gone);
            };
            let name = copies.part_name();
            copies
                .executor()
                .on_cpu(move || Part::create(&folder, &name)?.append(&waiting))
                .await?
        }
        Second::Writing(part) => part,
        Second::File(_) | Second::Gone => return Ok(second),
    };
    let written = copies.executor().on_cpu(move || part.append(&bytes));
    written.await.map(Second::Writing)
}

/// Gives a copy its name, if it is as long as the object.
async fn complete(
    second: Second,
    object: &ObjectHandle,
    copies: &LocalCopies,
    of: &Of,
) -> Result<()> {
    let Some(folder) = copies.folder_of(of) else {
        return Ok(());
    };
    let (name, part_name) = (copy_name(object), copies.part_name());
    let wanted = object.len;
    let path = copies
        .executor()
        .on_cpu(move || {
            let (path, len) = match second {
                Second::Waiting(waiting) => Part::create(&folder, &part_name)?
                    .append(&waiting)?
                    .finish(&name)?,
                Second::Writing(part) => part.finish(&name)?,
                Second::File(file) => place(&file, &folder, &name)?,
                Second::Gone => return Err(Error::bug("a copy was given up unsaid")),
            };
            if len == wanted {
                return Ok(path);
            }
            remove(vec![path]);
            Err(Error::corrupt(format!(
                "a local copy has {len} bytes and its object {wanted}"
            )))
        })
        .await
        .map_err(|e| e.with("object", object))?;
    copies.add_of(of, object, path);
    Ok(())
}

impl CheckpointStream for CopyingStream {
    fn written_from(&mut self, file: &Path) {
        self.second = Second::File(file.to_owned());
        self.primary.written_from(file);
    }

    fn inline_at_most(&mut self, bytes: u64) {
        self.primary.inline_at_most(bytes);
    }

    fn for_later(&mut self) {
        self.of.is_for_later = true;
        self.primary.for_later();
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let Self {
            primary,
            second,
            copies,
            of,
        } = self;
        let of: &Of = of;
        let copies: &LocalCopies = copies;
        let copied = match std::mem::replace(second, Second::Gone) {
            stays @ (Second::File(_) | Second::Gone) => {
                *second = stays;
                return primary.write(bytes);
            }
            so_far => append(so_far, bytes.clone(), copies, of),
        };
        let written = primary.write(bytes);
        async move {
            let (written, copied) = join(written, copied).await;
            // Without an object there is nothing to copy.
            written?;
            match copied {
                Ok(copied) => *second = copied,
                Err(error) => copies.not_kept(of.checkpoint, error),
            }
            Ok(())
        }
        .boxed()
    }

    fn position(&self) -> u64 {
        self.primary.position()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        self.primary.flush()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        async move {
            let Self {
                primary,
                second,
                copies,
                of,
            } = *self;
            let handle = primary.finish().await?;
            if let Some(StateHandle::Object(object)) = &handle
                && !matches!(second, Second::Gone)
                && let Err(error) = complete(second, object, &copies, &of).await
            {
                copies.not_kept(of.checkpoint, error);
            }
            Ok(handle)
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        let Self {
            primary, second, ..
        } = *self;
        drop(second);
        primary.abort()
    }
}
