use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select};
use state_api::{
    CheckpointStream, Error, FrozenTables, KeyGroupsHandle, KeyedHandle, PersistContext, Result,
    Scope, Snapshot, StateHandle,
};

use super::pipe::{ChunkWriter, MEMORY_LIMIT, Piece, pipe};
use super::source::{Encoded, GroupSource, TablesSource, encode_all};

/// Writes frozen live tables as one stream in the canonical layout; no handle if all groups are empty.
///
/// The tables are encoded on a CPU thread and let go as soon as they are encoded, however slow the store is: bytes wait in
/// memory up to 8 MiB, then in a file in [`PersistContext::spill_dir`].
///
/// `format` is the word in the handle: [`CANONICAL`](super::CANONICAL), or a backend's own for streams of this layout.
///
/// # Errors
/// `Cancelled` after the context's token is set, those of the tables and of the storage. Nothing is left behind.
pub async fn persist_groups(
    tables: Box<dyn FrozenTables>,
    format: &str,
    cx: PersistContext,
) -> Result<Vec<KeyedHandle>> {
    persist_source(Box::new(TablesSource(tables)), format, cx).await
}

/// The async part of a full snapshot of live tables.
pub struct FrozenTablesSnapshot {
    tables: Box<dyn FrozenTables>,
    format: Arc<str>,
}

impl FrozenTablesSnapshot {
    /// Creates the async part out of frozen tables and the word for the handle.
    #[must_use]
    pub fn new(tables: Box<dyn FrozenTables>, format: impl Into<Arc<str>>) -> Self {
        Self {
            tables,
            format: format.into(),
        }
    }
}

impl Snapshot<Vec<KeyedHandle>> for FrozenTablesSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move { persist_groups(self.tables, &self.format, cx).await })
    }
}

pub(super) async fn persist_source(
    mut source: Box<dyn GroupSource>,
    format: &str,
    cx: PersistContext,
) -> Result<Vec<KeyedHandle>> {
    let cancel = cx.cancel.clone();
    let encode = move |writer: &mut ChunkWriter<Encoded>| encode_all(&mut *source, writer, &cancel);
    let has_groups = |encoded: &Encoded| encoded.offsets.total_len() > 0;
    let Some((encoded, bytes)) = upload(&cx, Scope::Exclusive, encode, has_groups).await? else {
        return Ok(Vec::new());
    };
    Ok(vec![KeyedHandle::KeyGroups(KeyGroupsHandle {
        format: format.into(),
        offsets: encoded.offsets,
        bytes,
        states: encoded.states,
    })])
}

/// Where an object goes and what it is for; by its scope alone, one of the checkpoint at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Who may refer to it.
    pub scope: Scope,
    /// Bytes that may be left in the handle.
    pub inline_at_most: u64,
    /// Whether it is for the handles of later checkpoints.
    pub is_for_later: bool,
}

impl From<Scope> for Placement {
    fn from(scope: Scope) -> Self {
        Self {
            scope,
            inline_at_most: u64::MAX,
            is_for_later: false,
        }
    }
}

impl Placement {
    fn create(self, cx: &PersistContext) -> Box<dyn CheckpointStream> {
        let mut stream = cx.storage.create(cx.checkpoint, self.scope);
        stream.inline_at_most(self.inline_at_most);
        if self.is_for_later {
            stream.for_later();
        }
        stream
    }
}

/// Runs an encoder on a CPU thread and writes what it sends to one object: the async part of a snapshot in any format.
///
/// The encoder never waits for the store, so that frozen state is let go once it is encoded: what it owns is dropped before its
/// last chunk is uploaded. `keep` looks at what the encoder returns; the object is thrown away unless it says otherwise, and
/// then there is no handle.
///
/// # Errors
/// `Cancelled` after the context's token is set or when the executor dropped the work; those of the encoder and of the
/// storage. Nothing is left behind.
pub async fn upload<T: Send + 'static>(
    cx: &PersistContext,
    placement: impl Into<Placement>,
    encode: impl FnOnce(&mut ChunkWriter<T>) -> Result<T> + Send + 'static,
    keep: impl FnOnce(&T) -> bool,
) -> Result<Option<(T, StateHandle)>> {
    cx.cancel.check()?;
    let placement: Placement = placement.into();
    let (mut writer, mut reader) = pipe(cx.spill_dir.clone(), MEMORY_LIMIT);
    cx.executor.spawn_cpu(Box::new(move || {
        // `encode` is consumed, so what it holds is gone when the end is reported.
        let result = encode(&mut writer);
        writer.end(result);
    }));
    let work = pin!(async {
        let mut stream = placement.create(cx);
        let encoded = loop {
            match reader.next(cx).await {
                Ok(Piece::Chunk(chunk)) => {
                    if let Err(error) = stream.write(chunk.clone()).await {
                        stream.abort().await;
                        return Err(error);
                    }
                    reader.give_back(chunk);
                }
                Ok(Piece::End(encoded)) => break encoded,
                Err(error) => {
                    stream.abort().await;
                    return Err(error);
                }
            }
        };
        if !keep(&encoded) {
            stream.abort().await;
            return Ok(None);
        }
        let bytes = stream.finish().await?;
        Ok(Some((
            encoded,
            bytes.unwrap_or_else(|| StateHandle::Inline(Bytes::new())),
        )))
    });
    // A store that hangs must not keep a cancelled snapshot alive: dropping the stream removes its object.
    match select(work, pin!(cx.cancel.cancelled())).await {
        Either::Left((result, _)) => result,
        Either::Right(((), _)) => Err(Error::cancelled("the snapshot was aborted")),
    }
}
