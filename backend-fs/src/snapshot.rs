use std::sync::Arc;

use futures_util::future::BoxFuture;
use managed_state::changes::{StreamSource, write_stream};
use managed_state::format::ChainHandle;
use state_api::{
    Bases, IncrementalHandle, KeyedHandle, PersistContext, Result, Snapshot, StateMeta,
};

use crate::chain::Chain;
use crate::rewrite::{Draft, Rewrite, WrittenBase};

/// The async part: one object, in a handle with those that it goes on top of.
pub(crate) struct StreamSnapshot {
    pub(crate) source: StreamSource,
    /// The handle, but for what is still to be written; it has the states for the case that nothing is.
    pub(crate) handle: IncrementalHandle,
    /// Where a checkpoint is offered to later ones; savepoints are not.
    pub(crate) offer: Option<Offer>,
    /// The base that is written once the checkpoint is.
    pub(crate) draft: Option<Draft>,
}

/// What later checkpoints learn of this one.
pub(crate) struct Offer {
    pub(crate) bases: Bases<Chain>,
    pub(crate) rewrite: Rewrite,
    /// Without the object that is still to be written.
    pub(crate) chain: Chain,
    /// Held from the cut on: a base that was written in the background, which no complete checkpoint had then.
    pub(crate) new_base: Option<Arc<WrittenBase>>,
}

impl Snapshot<Vec<KeyedHandle>> for StreamSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(self.write(cx))
    }
}

impl StreamSnapshot {
    async fn write(self: Box<Self>, cx: PersistContext) -> Result<Vec<KeyedHandle>> {
        let Self {
            source,
            handle,
            offer,
            draft,
        } = *self;
        let mut chain_handle = ChainHandle::new(handle, offer.is_none());
        let name = match &source {
            StreamSource::Base(_) => format!("base-{}", cx.checkpoint),
            StreamSource::Changes(_) => format!("changes-{}", cx.checkpoint),
        };
        let placement = chain_handle.placement();
        if let Some(written) = write_stream(&cx, placement, source).await? {
            chain_handle.handle_mut().states = written.states;
            chain_handle.push(name, written.bytes);
        }
        if let Some(offer) = offer {
            let Offer {
                bases,
                rewrite,
                mut chain,
                new_base,
            } = offer;
            chain.files.clone_from(&chain_handle.handle().shared);
            chain.states = metas(chain_handle.handle());
            if let Some(base) = &new_base {
                rewrite.offered(cx.checkpoint, base);
            }
            bases.written(cx.checkpoint, chain);
        }
        if let Some(draft) = draft {
            draft.start(&cx);
        }
        Ok(chain_handle.into_handles())
    }
}

pub(crate) fn metas(handle: &IncrementalHandle) -> Vec<StateMeta> {
    let states = handle.states.iter();
    states.map(|state| state.meta.clone()).collect()
}
