use futures_util::future::BoxFuture;
use state_api::{
    Bases, IncrementalHandle, KeyedHandle, NamedHandle, PersistContext, Result, Scope, Snapshot,
};

use super::chain::Chain;
use super::pairs::PairWriter;
use crate::format::upload;

/// The async part: one object, in a handle with those that it builds upon.
pub(super) struct PairsSnapshot<P, W> {
    /// The handle, but for what is still to be written.
    pub(super) handle: IncrementalHandle,
    /// The position of what it builds upon; `None` if all pairs are written.
    pub(super) since: Option<P>,
    pub(super) write: W,
    /// Where a checkpoint is offered to later ones; savepoints are not.
    pub(super) offer: Option<(Bases<Chain<P>>, P)>,
}

impl<P, W> Snapshot<Vec<KeyedHandle>> for PairsSnapshot<P, W>
where
    P: Send + Sync + 'static,
    W: FnOnce(&mut PairWriter<'_>, Option<P>) -> Result<()> + Send + 'static,
{
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        let Self {
            mut handle,
            since,
            write,
            offer,
        } = *self;
        Box::pin(async move {
            let (scope, files) = match &offer {
                Some(_) => (Scope::Shared, &mut handle.shared),
                None => (Scope::Exclusive, &mut handle.private),
            };
            let what = if since.is_some() { "changes" } else { "full" };
            let cancel = cx.cancel.clone();
            let encode = move |chunks: &mut _| {
                let mut pairs = PairWriter::new(chunks, cancel);
                write(&mut pairs, since)?;
                pairs.finish()
            };
            if let Some((_, bytes)) = upload(&cx, scope, encode, |records| *records > 0).await? {
                handle.new_bytes = bytes.len();
                files.push(NamedHandle {
                    name: format!("{what}-{}", cx.checkpoint).into(),
                    bytes,
                });
            }
            let is_empty = files.is_empty();
            if let Some((bases, position)) = offer {
                let files = handle.shared.clone();
                bases.written(cx.checkpoint, Chain { position, files });
            }
            Ok(if is_empty {
                Vec::new()
            } else {
                vec![KeyedHandle::Incremental(handle)]
            })
        })
    }
}
