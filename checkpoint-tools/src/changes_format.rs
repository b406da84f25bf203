use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use managed_state::changes::restore_changes;
use managed_state::format::{CanonicalWriter, GroupReader};
use state_api::{
    Error, Executor, IncrementalHandle, KeyGroup, KeyGroupRange, KeyGroupsHandle, KeyedHandle,
    RestoreContext, Result, Scope, StateHandle,
};

use crate::formats::{Conversion, NativeFormat, NativePart};

/// Bytes of objects that are put together at once, unless a key group has more.
const BATCH: u64 = 16 << 20;

/// Bases and change streams (`docs/formats/change-streams.md`), put together some key groups at a time.
#[derive(Clone, Debug)]
pub struct ChangesFormat {
    word: String,
}

impl ChangesFormat {
    /// Creates the reader of a format, by its word in handles: `changes` for the backend `fs`.
    #[must_use]
    pub fn new(word: &str) -> Self {
        Self {
            word: word.to_owned(),
        }
    }

    async fn convert(&self, part: NativePart<'_>, cx: &Conversion) -> Result<Vec<KeyGroupsHandle>> {
        let mut written = Vec::new();
        for handle in part.handles {
            match handle {
                KeyedHandle::Incremental(chain) => {
                    written.extend(self.chain(chain, part.range, cx).await?);
                }
                // The backend writes either a chain or canonical streams, never both for one subtask.
                KeyedHandle::KeyGroups(_) => {
                    return Err(Error::incompatible(
                        "parts of the snapshot are in different formats",
                    ));
                }
            }
        }
        Ok(written)
    }

    async fn chain(
        &self,
        chain: &IncrementalHandle,
        range: KeyGroupRange,
        cx: &Conversion,
    ) -> Result<Option<KeyGroupsHandle>> {
        let range = chain.range.intersect(range);
        let executor: Arc<dyn Executor> = Arc::new(cx.executor.clone());
        let restoring = RestoreContext {
            storage: Arc::clone(&cx.from),
            executor,
        };
        let metas = chain.states.iter().map(|state| state.meta.clone());
        let stream = cx.to.create(cx.checkpoint, Scope::Exclusive);
        let mut writer = CanonicalWriter::new(stream, range, metas);
        let files = chain.private.iter().chain(&chain.shared);
        let bytes: u64 = files.map(|file| StateHandle::len(&file.bytes)).sum();
        let groups = chain.range.len().max(1) as u64;
        let at_once = (BATCH * groups / bytes.max(1)).clamp(1, groups) as usize;
        let all: Vec<KeyGroup> = range.iter().collect();
        // Blocks are written in the order of their key groups, so a batch is handed on as a whole.
        for batch in all.chunks(at_once) {
            let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
                continue;
            };
            let mut blocks: Vec<(KeyGroup, Bytes)> = Vec::new();
            let load = &mut |group, block| {
                blocks.push((group, block));
                Ok(())
            };
            let batch = KeyGroupRange::new(*first, *last);
            restore_changes(chain, batch, BATCH, &restoring, load).await?;
            blocks.sort_by_key(|(group, _)| *group);
            for (group, block) in blocks {
                let mut reader = GroupReader::open(group, chain.states.len(), &block)?;
                while let Some(section) = reader.next()? {
                    writer.count(section.column, section.entries);
                }
                writer.block(group, block).await?;
            }
        }
        writer.finish().await
    }
}

impl NativeFormat for ChangesFormat {
    fn format(&self) -> &str {
        &self.word
    }

    fn to_canonical<'a>(
        &'a self,
        part: NativePart<'a>,
        cx: &'a Conversion,
    ) -> LocalBoxFuture<'a, Result<Vec<KeyGroupsHandle>>> {
        Box::pin(self.convert(part, cx))
    }
}
