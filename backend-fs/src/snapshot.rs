use futures_util::future::BoxFuture;
use managed_state::changes::{StreamSource, write_stream};
use state_api::{
    Bases, IncrementalHandle, KeyedHandle, NamedHandle, PersistContext, Result, Scope, Snapshot,
    StateMeta,
};

use crate::chain::Chain;
use crate::rewrite::{Draft, Rewrite};

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
            mut handle,
            offer,
            draft,
        } = *self;
        let (scope, files) = match &offer {
            Some(_) => (Scope::Shared, &mut handle.shared),
            None => (Scope::Exclusive, &mut handle.private),
        };
        let name = match &source {
            StreamSource::Base(_) => format!("base-{}", cx.checkpoint),
            StreamSource::Changes(_) => format!("changes-{}", cx.checkpoint),
        };
        if let Some(written) = write_stream(&cx, scope, source).await? {
            handle.new_bytes += written.bytes.len();
            handle.states = written.states;
            files.push(NamedHandle {
                name: name.into(),
                bytes: written.bytes,
            });
        }
        let is_empty = files.is_empty();
        if let Some(offer) = offer {
            let Offer {
                bases,
                rewrite,
                mut chain,
            } = offer;
            chain.files.clone_from(&handle.shared);
            chain.states = metas(&handle);
            if let Some(base) = chain.files.first() {
                rewrite.offered(cx.checkpoint, base);
            }
            bases.written(cx.checkpoint, chain);
        }
        if let Some(draft) = draft {
            draft.start(&cx);
        }
        Ok(match is_empty {
            true => Vec::new(),
            false => vec![KeyedHandle::Incremental(handle)],
        })
    }
}

pub(crate) fn metas(handle: &IncrementalHandle) -> Vec<StateMeta> {
    let states = handle.states.iter();
    states.map(|state| state.meta.clone()).collect()
}
