use std::io;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CodecKind, OperatorStateHandle, OperatorStateMode, OperatorStatePart, PersistContext, Result,
    Scope, Snapshot, StateHandle, StateKind, StateMeta, TypeMeta,
};

use super::RAW;
use super::block::BlockWriter;
use crate::format::{ChunkWriter, RAW_MAGIC, header, upload};

/// Takes bytes in partitions, which are dealt out evenly on restore.
#[derive(Debug)]
pub struct RawOperatorOutput {
    blocks: BlockWriter,
    partitions: Vec<(u64, u64)>,
}

impl RawOperatorOutput {
    pub(super) fn new() -> Self {
        Self {
            blocks: BlockWriter::new(&header(RAW_MAGIC)),
            partitions: Vec::new(),
        }
    }

    /// Starts a partition: what is written from now on belongs to it.
    ///
    /// # Errors
    /// `Poisoned` after [`close`](Self::close).
    pub fn start_partition(&mut self) -> Result<()> {
        let ended = self.blocks.begin(PARTITION)?;
        self.note(ended);
        Ok(())
    }

    fn note(&mut self, ended: Option<(u64, u64, u64)>) {
        self.partitions
            .extend(ended.map(|(_, offset, len)| (offset, len)));
    }

    /// Ends writing early. What was written stays in the snapshot.
    pub fn close(&mut self) {
        self.blocks.close();
    }

    /// Ends the stream; `None` if no partition was started.
    pub(super) fn finish(mut self) -> Option<Box<dyn Snapshot<OperatorStateHandle>>> {
        let ended = self.blocks.end();
        self.note(ended);
        if self.partitions.is_empty() {
            return None;
        }
        Some(Box::new(RawOperatorSnapshot {
            bytes: self.blocks.into_bytes(),
            partitions: self.partitions,
        }))
    }
}

/// Partitions move between subtasks, so they have no number of their own.
pub(super) const PARTITION: u64 = u64::MAX;

impl io::Write for RawOperatorOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blocks.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct RawOperatorSnapshot {
    bytes: Vec<u8>,
    partitions: Vec<(u64, u64)>,
}

impl Snapshot<OperatorStateHandle> for RawOperatorSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<OperatorStateHandle>> {
        Box::pin(async move {
            let Self { bytes, partitions } = *self;
            let send = move |writer: &mut ChunkWriter<()>| writer.send(bytes);
            let written = upload(&cx, Scope::Exclusive, send, |()| true).await?;
            let bytes = written.map_or(StateHandle::Inline(Bytes::new()), |((), bytes)| bytes);
            let part = OperatorStatePart {
                meta: meta(),
                mode: OperatorStateMode::Split,
                elements: partitions,
            };
            Ok(OperatorStateHandle {
                states: vec![part],
                bytes,
            })
        })
    }
}

/// Describes the partitions: bytes of which only the operator knows the meaning.
fn meta() -> StateMeta {
    StateMeta {
        name: RAW.into(),
        kind: StateKind::OperatorList,
        key: TypeMeta::of::<()>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key: None,
        value: TypeMeta {
            codec: CodecKind::Compact,
            schema: state_api::Schema::Opaque {
                codec: RAW.into(),
                version: 1,
            },
        },
        ttl_ms: None,
    }
}
