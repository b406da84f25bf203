use futures_util::future::BoxFuture;
use state_api::{Bases, IncrementalHandle, KeyedHandle, PersistContext, Result, Snapshot};

use super::chain::Chain;
use super::pairs::PairWriter;
use crate::format::{ChainHandle, upload};

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
            handle,
            since,
            write,
            offer,
        } = *self;
        Box::pin(async move {
            let mut chain = ChainHandle::new(handle, offer.is_none());
            let what = if since.is_some() { "changes" } else { "full" };
            let cancel = cx.cancel.clone();
            let encode = move |chunks: &mut _| {
                let mut pairs = PairWriter::new(chunks, cancel);
                write(&mut pairs, since)?;
                pairs.finish()
            };
            let written = upload(&cx, chain.placement(), encode, |records| *records > 0);
            if let Some((_, bytes)) = written.await? {
                chain.push(format!("{what}-{}", cx.checkpoint), bytes);
            }
            if let Some((bases, position)) = offer {
                let files = chain.handle().shared.clone();
                bases.written(cx.checkpoint, Chain { position, files });
            }
            Ok(chain.into_handles())
        })
    }
}
