use std::collections::HashSet;
use std::io;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    Error, GroupExtent, KeyGroup, KeyGroupOffsets, KeyGroupRange, KeyGroupsHandle, PersistContext,
    Result, Scope, Snapshot,
};

use super::RAW;
use super::block::BlockWriter;
use crate::format::{ChunkWriter, RAW_MAGIC, header, upload};

/// Takes bytes per key group.
///
/// Start each group at most once, then write its bytes through [`io::Write`]. Groups that are not started have no bytes.
#[derive(Debug)]
pub struct RawKeyedOutput {
    blocks: BlockWriter,
    offsets: KeyGroupOffsets,
    started: HashSet<KeyGroup>,
}

impl RawKeyedOutput {
    pub(super) fn new(range: KeyGroupRange) -> Self {
        Self {
            blocks: BlockWriter::new(&header(RAW_MAGIC)),
            offsets: KeyGroupOffsets::new(range),
            started: HashSet::new(),
        }
    }

    /// Returns the key groups that can be started.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        self.offsets.range()
    }

    /// Starts a key group: what is written from now on belongs to it.
    ///
    /// # Errors
    /// `InvalidArgument` when the group is outside the range or was started before; `Poisoned` after [`close`](Self::close).
    pub fn start_group(&mut self, group: KeyGroup) -> Result<()> {
        if !self.range().contains(group) {
            return Err(Error::invalid("the key group is not one of this subtask")
                .with("key group", group)
                .with("range", self.range()));
        }
        if self.started.contains(&group) {
            return Err(Error::invalid("the key group was started before").with("key group", group));
        }
        let ended = self.blocks.begin(group.0.into())?;
        self.started.insert(group);
        self.note(ended)
    }

    fn note(&mut self, ended: Option<(u64, u64, u64)>) -> Result<()> {
        let Some((number, offset, len)) = ended else {
            return Ok(());
        };
        let group = u16::try_from(number).map_err(|_| Error::bug("a key group exceeds 16 bits"))?;
        self.offsets
            .set(KeyGroup(group), GroupExtent { offset, len })
    }

    /// Ends writing early. What was written stays in the snapshot.
    pub fn close(&mut self) {
        self.blocks.close();
    }

    /// Ends the stream; `None` if no group was started.
    pub(super) fn finish(mut self) -> Result<Option<Box<dyn Snapshot<KeyGroupsHandle>>>> {
        let ended = self.blocks.end();
        self.note(ended)?;
        if self.started.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(RawKeyedSnapshot {
            bytes: self.blocks.into_bytes(),
            offsets: self.offsets,
        })))
    }
}

impl io::Write for RawKeyedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blocks.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct RawKeyedSnapshot {
    bytes: Vec<u8>,
    offsets: KeyGroupOffsets,
}

impl Snapshot<KeyGroupsHandle> for RawKeyedSnapshot {
    fn persist(self: Box<Self>, cx: PersistContext) -> BoxFuture<'static, Result<KeyGroupsHandle>> {
        Box::pin(async move {
            let Self { bytes, offsets } = *self;
            let send = move |writer: &mut ChunkWriter<()>| writer.send(bytes);
            let written = upload(&cx, Scope::Exclusive, send, |()| true).await?;
            let bytes = written.map_or(
                state_api::StateHandle::Inline(Bytes::new()),
                |((), bytes)| bytes,
            );
            Ok(KeyGroupsHandle {
                format: RAW.into(),
                offsets,
                bytes,
                states: Vec::new(),
            })
        })
    }
}
