use futures_util::future::BoxFuture;
use state_api::{
    CancelToken, OperatorStateHandle, OperatorStatePart, PersistContext, Result, Scope, Snapshot,
};

use super::part::{ElementWriter, FrozenPart};
use crate::format::{ChunkWriter, OPERATOR_MAGIC, header, upload};

/// The async part of a snapshot of operator state.
pub(super) struct OperatorStateSnapshot {
    pub(super) parts: Vec<Box<dyn FrozenPart>>,
}

impl Snapshot<Option<OperatorStateHandle>> for OperatorStateSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Option<OperatorStateHandle>>> {
        Box::pin(async move {
            if self.parts.is_empty() {
                return Ok(None);
            }
            let cancel = cx.cancel.clone();
            let encode =
                move |writer: &mut ChunkWriter<_>| encode_parts(&self.parts, &cancel, writer);
            let written = upload(&cx, Scope::Exclusive, encode, |_| true).await?;
            Ok(written.map(|(states, bytes)| OperatorStateHandle { states, bytes }))
        })
    }
}

fn encode_parts(
    parts: &[Box<dyn FrozenPart>],
    cancel: &CancelToken,
    writer: &mut ChunkWriter<Vec<OperatorStatePart>>,
) -> Result<Vec<OperatorStatePart>> {
    let mut out = ElementWriter::new(&header(OPERATOR_MAGIC), writer);
    let mut states = Vec::with_capacity(parts.len());
    for part in parts {
        cancel.check()?;
        part.encode(&mut out)?;
        states.push(OperatorStatePart {
            meta: part.meta().clone(),
            mode: part.mode(),
            elements: out.take_extents(),
        });
    }
    out.flush()?;
    Ok(states)
}
