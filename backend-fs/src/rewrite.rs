use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use managed_state::changes::{StreamSource, write_stream};
use managed_state::format::{MAX_CHAIN_INLINE, Placement};
use state_api::{
    CancelToken, CheckpointId, CheckpointStorage, Error, FrozenTables, NamedHandle, PersistContext,
    Result, Scope, StateHandle,
};

use crate::background::BackgroundBases;
use crate::chain::Chain;

/// The base that is written in the background, until a complete checkpoint has it.
///
/// Until the handles of a checkpoint have it, it is nobody's but ours to remove. From then on it is the coordinator's. Should that
/// checkpoint be given up, the base is left alone: it may be gone by then.
#[derive(Clone)]
pub(crate) struct Rewrite {
    shared: Arc<Mutex<Shared>>,
    reported: BackgroundBases,
}

/// Checkpoints at most between two tries to write a base that fails.
const MAX_WAIT: u64 = 32;

#[derive(Default)]
struct Shared {
    state: State,
    /// Stops what is being written.
    cancel: CancelToken,
    /// The subtask is gone: what comes out is not wanted.
    is_closed: bool,
    /// Bases that were begun.
    begun: u64,
    /// How many failed since the last one that was written, and the cut of the last of these.
    failures: u32,
    failed: Option<CheckpointId>,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Writing {
        /// What is written was frozen then.
        cut: CheckpointId,
        /// How many had been begun before it.
        number: u64,
    },
    Written {
        base: Arc<WrittenBase>,
        /// The checkpoints whose handles have it.
        offered_in: Vec<CheckpointId>,
    },
}

/// A base that was written in the background. Whoever goes on top of it holds it; if all let go before a checkpoint's handles
/// have it, it is removed.
pub(crate) struct WrittenBase {
    pub(crate) chain: Arc<Chain>,
    storage: Arc<dyn CheckpointStorage>,
    is_offered: AtomicBool,
}

impl Drop for WrittenBase {
    fn drop(&mut self) {
        if !*self.is_offered.get_mut() {
            let objects = self.chain.files.iter();
            objects
                .filter_map(|file| file.bytes.object())
                .for_each(|object| self.storage.discard(object));
        }
    }
}

/// Frozen tables of which the next base is to be made. Dropped, it gives the claim to write it back.
pub(crate) struct Draft {
    tables: Box<dyn FrozenTables>,
    claim: Claim,
}

/// The right to write a base, given back unless the base is written.
struct Claim {
    rewrite: Rewrite,
    chain: Chain,
    number: u64,
    outcome: Outcome,
}

enum Outcome {
    /// Its checkpoint is not written yet.
    NotBegun,
    /// Cancelled, or dropped with the executor.
    Unfinished,
    Failed(Error),
    /// `None` for a base without entries.
    Written(Option<WrittenBase>),
}

impl Drop for Claim {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::NotBegun);
        let mut shared = self.rewrite.lock();
        let is_wanted = !shared.is_closed
            && matches!(shared.state, State::Writing { number, .. } if number == self.number);
        if is_wanted {
            shared.state = State::Nothing;
        }
        let cut = self.chain.cut;
        match outcome {
            Outcome::Written(Some(base)) if is_wanted => {
                shared.failures = 0;
                shared.state = State::Written {
                    base: Arc::new(base),
                    offered_in: Vec::new(),
                };
                drop(shared);
                self.rewrite.reported.written();
            }
            // What is not wanted is removed as the outcome is dropped, when nothing is locked any more.
            unwanted => {
                if is_wanted && matches!(unwanted, Outcome::Failed(_)) {
                    shared.failures = shared.failures.saturating_add(1);
                    shared.failed = Some(cut);
                }
                drop(shared);
                match unwanted {
                    Outcome::Failed(error) if is_wanted => {
                        self.rewrite.reported.failed(cut, error);
                    }
                    Outcome::Unfinished if is_wanted => {
                        let error = Error::cancelled("the executor dropped the work");
                        self.rewrite.reported.failed(cut, error);
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Shared {
    /// Says whether it is too early for another try.
    fn waits(&self, cut: CheckpointId) -> bool {
        let Some((before, failed)) = self.failures.checked_sub(1).zip(self.failed) else {
            return false;
        };
        let wait = 1_u64.checked_shl(before).unwrap_or(MAX_WAIT).min(MAX_WAIT);
        cut.0 < failed.0.saturating_add(wait)
    }
}

impl Rewrite {
    /// Creates one that nothing is written for; what becomes of bases is reported.
    pub(crate) fn new(reported: BackgroundBases) -> Self {
        Self {
            shared: Arc::default(),
            reported,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reported(&self) -> &BackgroundBases {
        &self.reported
    }

    /// Returns the base, to be built upon, if it is written.
    pub(crate) fn written(&self) -> Option<Arc<WrittenBase>> {
        match &self.lock().state {
            State::Written { base, .. } => Some(Arc::clone(base)),
            State::Nothing | State::Writing { .. } => None,
        }
    }

    /// Returns the cut that the base is of, whether it is written or not.
    pub(crate) fn cut(&self) -> Option<CheckpointId> {
        match &self.lock().state {
            State::Nothing => None,
            State::Writing { cut, .. } => Some(*cut),
            State::Written { base, .. } => Some(base.chain.cut),
        }
    }

    /// Claims that a base is written out of frozen tables, unless one is, or the last tries failed and it is not yet time for another:
    /// after 1, 2, 4 … checkpoints, so that a store that takes no base is not busy with nothing else. The changes since its cut are
    /// kept from now on.
    ///
    /// The chain has no objects yet.
    pub(crate) fn begin(&self, tables: Box<dyn FrozenTables>, chain: Chain) -> Option<Draft> {
        let mut shared = self.lock();
        if !matches!(shared.state, State::Nothing) || shared.is_closed || shared.waits(chain.cut) {
            return None;
        }
        let number = shared.begun;
        shared.begun += 1;
        shared.cancel = CancelToken::new();
        shared.state = State::Writing {
            cut: chain.cut,
            number,
        };
        Some(Draft {
            tables,
            claim: Claim {
                rewrite: self.clone(),
                chain,
                number,
                outcome: Outcome::NotBegun,
            },
        })
    }

    /// Learns that the handles of a checkpoint have the base: from now on it is not ours to remove.
    pub(crate) fn offered(&self, checkpoint: CheckpointId, upon: &Arc<WrittenBase>) {
        upon.is_offered.store(true, Ordering::SeqCst);
        if let State::Written { base, offered_in } = &mut self.lock().state
            && Arc::ptr_eq(base, upon)
        {
            offered_in.push(checkpoint);
        }
    }

    /// Learns what is built upon: if it is this base, it is a base as any other; if it is a newer one, this one is of no use.
    pub(crate) fn built_upon(&self, chain: &Chain) {
        let ours = match &self.lock().state {
            State::Written { base, .. } => base.chain.files.first() == chain.files.first(),
            State::Nothing | State::Writing { .. } => false,
        };
        if ours || self.cut().is_some_and(|cut| chain.base_cut > cut) {
            self.discard();
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

    /// Lets go of a base: it goes, unless a checkpoint has it or is about to.
    pub(crate) fn discard(&self) {
        let mut shared = self.lock();
        shared.cancel.cancel();
        let state = std::mem::take(&mut shared.state);
        drop(shared);
        drop(state);
    }

    /// Stops what is being written, and lets go of what is.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.discard();
    }
}

impl Draft {
    /// Writes the base, beside everything else.
    pub(crate) fn start(self, cx: &PersistContext) {
        let Self { tables, mut claim } = self;
        claim.outcome = Outcome::Unfinished;
        let own = PersistContext {
            cancel: claim.rewrite.lock().cancel.clone(),
            ..cx.clone()
        };
        cx.executor.spawn_io(Box::pin(async move {
            let source = StreamSource::Base(tables);
            // A failure harms nobody: the changes stay on top of the old base, and a later checkpoint tries again.
            let placement = Placement {
                scope: Scope::Shared,
                inline_at_most: MAX_CHAIN_INLINE,
                is_for_later: true,
            };
            let written = write_stream(&own, placement, source).await;
            claim.ended(written.map(|base| base.map(|base| base.bytes)), &own);
        }));
    }
}

impl Claim {
    fn ended(mut self, base: Result<Option<StateHandle>>, cx: &PersistContext) {
        let cut = self.chain.cut;
        self.outcome = match base {
            Err(error) => Outcome::Failed(error),
            Ok(base) => Outcome::Written(base.map(|bytes| {
                let name = format!("base-{cut}").into();
                WrittenBase {
                    chain: Arc::new(Chain {
                        files: vec![NamedHandle { name, bytes }],
                        ..self.chain.clone()
                    }),
                    storage: Arc::clone(&cx.storage),
                    is_offered: AtomicBool::new(false),
                }
            })),
        };
    }
}
