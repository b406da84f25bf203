use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use managed_state::changes::{StreamSource, write_stream};
use state_api::{
    CancelToken, CheckpointId, CheckpointStorage, FrozenTables, NamedHandle, PersistContext, Scope,
    StateHandle,
};

use crate::chain::Chain;

/// The base that is written in the background, until a complete checkpoint has it.
///
/// Until the handles of a checkpoint have it, it is nobody's but ours to remove. From then on it is the coordinator's. Should that
/// checkpoint be given up, the base is left alone: it may be gone by then.
#[derive(Clone, Default)]
pub(crate) struct Rewrite {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    state: State,
    /// Stops what is being written.
    cancel: CancelToken,
    /// The subtask is gone: what comes out is not wanted.
    is_closed: bool,
    /// Bases that could not be written.
    failures: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    /// Out of what was frozen at this cut.
    Writing(CheckpointId),
    Written {
        chain: Arc<Chain>,
        /// The checkpoints whose handles have it.
        offered_in: Vec<CheckpointId>,
        storage: Arc<dyn CheckpointStorage>,
    },
}

/// Frozen tables of which the next base is to be made. Dropped, it gives the claim to write it back.
pub(crate) struct Draft {
    tables: Box<dyn FrozenTables>,
    claim: Claim,
}

/// The right to write a base, given back unless the base is written.
struct Claim {
    rewrite: Rewrite,
    storage: Option<Arc<dyn CheckpointStorage>>,
    chain: Chain,
    is_written: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut shared = self.rewrite.lock();
        shared.state = State::Nothing;
        let Some(storage) = self.storage.take() else {
            return;
        };
        if !self.is_written {
            shared.failures += 1;
        } else if shared.is_closed {
            remove(&self.chain, &*storage);
        } else if !self.chain.files.is_empty() {
            shared.state = State::Written {
                chain: Arc::new(self.chain.clone()),
                offered_in: Vec::new(),
                storage,
            };
        }
    }
}

impl Rewrite {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the base, to be built upon, if it is written.
    pub(crate) fn written(&self) -> Option<Arc<Chain>> {
        match &self.lock().state {
            State::Written { chain, .. } => Some(Arc::clone(chain)),
            State::Nothing | State::Writing(_) => None,
        }
    }

    /// Returns the cut that the base is of, whether it is written or not.
    pub(crate) fn cut(&self) -> Option<CheckpointId> {
        match &self.lock().state {
            State::Nothing => None,
            State::Writing(cut) => Some(*cut),
            State::Written { chain, .. } => Some(chain.cut),
        }
    }

    /// Claims that a base is written out of frozen tables, unless one is; the changes since its cut are kept from now on.
    ///
    /// The chain has no objects yet.
    pub(crate) fn begin(&self, tables: Box<dyn FrozenTables>, chain: Chain) -> Option<Draft> {
        let mut shared = self.lock();
        if !matches!(shared.state, State::Nothing) || shared.is_closed {
            return None;
        }
        shared.state = State::Writing(chain.cut);
        Some(Draft {
            tables,
            claim: Claim {
                rewrite: self.clone(),
                storage: None,
                chain,
                is_written: false,
            },
        })
    }

    /// Learns that the handles of a checkpoint have the base: from now on it is not ours to remove.
    pub(crate) fn offered(&self, checkpoint: CheckpointId, base: &NamedHandle) {
        if let State::Written {
            chain, offered_in, ..
        } = &mut self.lock().state
            && chain.files.first() == Some(base)
        {
            offered_in.push(checkpoint);
        }
    }

    /// Learns what is built upon: if it is this base, it is a base as any other.
    pub(crate) fn built_upon(&self, chain: &Chain) {
        let mut shared = self.lock();
        if let State::Written { chain: ours, .. } = &shared.state
            && ours.files.first() == chain.files.first()
        {
            shared.state = State::Nothing;
        }
    }

    /// Learns that a checkpoint will never complete.
    pub(crate) fn aborted(&self, checkpoint: CheckpointId) {
        let mut shared = self.lock();
        if let State::Written { offered_in, .. } = &shared.state
            && offered_in.contains(&checkpoint)
        {
            shared.state = State::Nothing;
        }
    }

    /// Lets go of a base that is of no use.
    pub(crate) fn discard(&self) {
        let mut shared = self.lock();
        if let State::Written {
            chain,
            offered_in,
            storage,
        } = &shared.state
        {
            if offered_in.is_empty() {
                remove(chain, &**storage);
            }
            shared.state = State::Nothing;
        }
    }

    /// Stops what is being written, and removes what nobody else knows of.
    pub(crate) fn close(&self) {
        let mut shared = self.lock();
        shared.is_closed = true;
        shared.cancel.cancel();
        drop(shared);
        self.discard();
    }

    /// Returns the number of bases that could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.lock().failures
    }
}

fn remove(chain: &Chain, storage: &dyn CheckpointStorage) {
    let objects = chain.files.iter().filter_map(|file| file.bytes.object());
    objects.for_each(|object| storage.discard(object));
}

impl Draft {
    /// Writes the base, beside everything else.
    pub(crate) fn start(self, cx: &PersistContext) {
        let Self { tables, mut claim } = self;
        let own = PersistContext {
            cancel: claim.rewrite.lock().cancel.clone(),
            ..cx.clone()
        };
        claim.storage = Some(Arc::clone(&cx.storage));
        cx.executor.spawn_io(Box::pin(async move {
            let source = StreamSource::Base(tables);
            // A failure harms nobody: the changes stay on top of the old base, and a later checkpoint tries again.
            if let Ok(written) = write_stream(&own, Scope::Shared, source).await {
                claim.written(written.map(|base| base.bytes));
            }
        }));
    }
}

impl Claim {
    fn written(mut self, base: Option<StateHandle>) {
        let cut = self.chain.cut;
        let named = |bytes| NamedHandle {
            name: format!("base-{cut}").into(),
            bytes,
        };
        self.chain.files = base.into_iter().map(named).collect();
        self.is_written = true;
    }
}
