use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use managed_state::changes::{StreamSource, restore_changes};
use managed_state::format::{CANONICAL, FrozenTablesSnapshot, load_tables};
use state_api::{
    BackendContext, BackendFactory, Bases, CheckpointId, EntryCount, Error, FrozenChanges,
    FrozenTables, IncrementalHandle, KeyGroupRange, KeyedBackend, KeyedHandle, LiveSnapshots,
    LoadTables, RestoreContext, Result, Snapshot, SnapshotKind, SnapshotRequest, StateSummary,
};

use crate::background::BackgroundBases;
use crate::chain::Chain;
use crate::rewrite::{Rewrite, WrittenBase};
use crate::snapshot::{Offer, StreamSnapshot, metas};
use crate::{FORMAT, FsConfig, NAME};

/// Bytes of a chain that a restore reads, and puts together, before it loads them.
const READ_AT_ONCE: u64 = 128 << 20;

/// Makes backends that keep state in memory and write what changed to each checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsBackend;

impl BackendFactory for FsBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        let config = FsConfig::parse(&cx.options)?;
        Ok(KeyedBackend::Live(Box::new(ChangeStreams::new(config, cx))))
    }
}

/// The strategy: bases and change streams, shared by the checkpoints of a subtask.
pub struct ChangeStreams {
    config: FsConfig,
    format: Arc<str>,
    backend_id: Arc<str>,
    range: KeyGroupRange,
    bases: Bases<Chain>,
    rewrite: Rewrite,
    /// Checkpoints that were cut and may become the first to build upon.
    pending: BTreeSet<CheckpointId>,
    /// The cut of the last snapshot, a savepoint's too.
    latest: Option<CheckpointId>,
}

impl ChangeStreams {
    /// Creates the strategy of one subtask.
    #[must_use]
    pub fn new(config: FsConfig, cx: &BackendContext) -> Self {
        let backend_id: Arc<str> = format!("{}-{}", cx.operator, cx.subtask.index).into();
        Self {
            config,
            format: FORMAT.into(),
            rewrite: Rewrite::new(BackgroundBases::of(Arc::clone(&backend_id))),
            backend_id,
            range: cx.range,
            bases: Bases::new(),
            pending: BTreeSet::new(),
            latest: None,
        }
    }

    /// Returns what becomes of the bases that are written in the background, to be looked at later.
    #[must_use]
    pub fn background_bases(&self) -> BackgroundBases {
        self.rewrite.reported().clone()
    }

    /// Returns what a checkpoint goes on top of; `None` if it must hold everything.
    fn build_upon(&self, tables: &mut dyn FrozenTables) -> Option<Upon> {
        let mut upon = |chain: Arc<Chain>| {
            let changes = tables.changes(chain.cut)?;
            chain.carries(&changes.states()).then_some((chain, changes))
        };
        if let Some(new_base) = self.rewrite.written() {
            if let Some((chain, changes)) = upon(Arc::clone(&new_base.chain)) {
                return pays(&*changes).then_some(Upon {
                    chain,
                    changes,
                    new_base: Some(new_base),
                });
            }
            // Written of states that are others by now.
            self.rewrite.discard();
        }
        let base = self.bases.to_build_upon()?;
        // Bases fail in the background, or take for ever: now it is for the checkpoint to fail, or to wait.
        if base.is_overlong(&self.config) {
            return None;
        }
        let (chain, changes) = upon(base)?;
        pays(&*changes).then_some(Upon {
            chain,
            changes,
            new_base: None,
        })
    }

    fn handle(&self, checkpoint: CheckpointId, states: Vec<StateSummary>) -> IncrementalHandle {
        IncrementalHandle {
            format: Arc::clone(&self.format),
            backend_id: Arc::clone(&self.backend_id),
            checkpoint,
            range: self.range,
            private: Vec::new(),
            shared: Vec::new(),
            new_bytes: 0,
            states,
        }
    }

    fn checkpoint(
        &self,
        request: &SnapshotRequest,
        mut tables: Box<dyn FrozenTables>,
    ) -> StreamSnapshot {
        let upon = match request.kind {
            SnapshotKind::Checkpoint => self.build_upon(&mut *tables),
            _ => None,
        };
        let checkpoint = request.checkpoint;
        match &upon {
            Some(_) => self.bases.cut(checkpoint),
            None => self.bases.cut_whole(checkpoint),
        }
        let mut chain = Chain {
            cut: checkpoint,
            files: Vec::new(),
            states: Vec::new(),
            base_cut: checkpoint,
            base_ms: Some(request.now_ms),
        };
        let Some(upon) = upon else {
            // Whatever is written in the background stays until this one is complete.
            return StreamSnapshot {
                handle: self.handle(checkpoint, tables.states()),
                source: StreamSource::Base(tables),
                offer: Some(self.offer(chain, None)),
                draft: None,
            };
        };
        let mut handle = self.handle(checkpoint, upon.changes.states());
        handle.shared.clone_from(&upon.chain.files);
        let is_new = upon.new_base.is_some();
        if is_new {
            let files = upon.chain.files.iter();
            handle.new_bytes = files.map(|file| file.bytes.len()).sum();
        }
        let is_due = upon.chain.is_outweighed(&self.config, request.now_ms) && !is_new;
        let draft = match is_due {
            true => self.rewrite.begin(
                tables,
                Chain {
                    states: metas(&handle),
                    ..chain.clone()
                },
            ),
            false => None,
        };
        chain.base_cut = upon.chain.base_cut;
        chain.base_ms = upon.chain.base_ms.or(chain.base_ms);
        StreamSnapshot {
            handle,
            source: StreamSource::Changes(upon.changes),
            offer: Some(self.offer(chain, upon.new_base)),
            draft,
        }
    }

    fn offer(&self, chain: Chain, new_base: Option<Arc<WrittenBase>>) -> Offer {
        Offer {
            bases: self.bases.clone(),
            rewrite: self.rewrite.clone(),
            chain,
            new_base,
        }
    }
}

/// What a checkpoint goes on top of.
struct Upon {
    chain: Arc<Chain>,
    /// What changed since its cut.
    changes: Box<dyn FrozenChanges>,
    /// Its base, if that was written in the background and is in no complete checkpoint.
    new_base: Option<Arc<WrittenBase>>,
}

/// Returns whether changes are less than everything.
fn pays(changes: &dyn FrozenChanges) -> bool {
    let entries = changes
        .states()
        .iter()
        .map(|state| match state.entries {
            EntryCount::Exact(entries) | EntryCount::Estimate(entries) => entries,
        })
        .sum();
    changes.changed() == 0 || changes.changed() < entries
}

impl LiveSnapshots for ChangeStreams {
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        self.latest = Some(request.checkpoint);
        if !request.kind.is_savepoint() {
            self.pending.insert(request.checkpoint);
        }
        Ok(match request.kind {
            SnapshotKind::CanonicalSavepoint => {
                Box::new(FrozenTablesSnapshot::new(tables, CANONICAL))
            }
            SnapshotKind::NativeSavepoint => Box::new(StreamSnapshot {
                handle: self.handle(request.checkpoint, tables.states()),
                source: StreamSource::Base(tables),
                offer: None,
                draft: None,
            }),
            SnapshotKind::Checkpoint | SnapshotKind::FullCheckpoint => {
                Box::new(self.checkpoint(request, tables))
            }
        })
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for handle in handles {
                match handle {
                    KeyedHandle::Incremental(chain) if *chain.format == *FORMAT => {
                        load_chain(chain, cx, tables).await?;
                    }
                    KeyedHandle::Incremental(other) => {
                        return Err(Error::incompatible(format!(
                            "keyed state is in the format {:?}, not in {FORMAT:?}; to change the backend, convert the checkpoint to the canonical format or take a canonical savepoint",
                            other.format
                        )));
                    }
                    KeyedHandle::KeyGroups(_) => {
                        load_tables(std::slice::from_ref(handle), CANONICAL, cx, tables).await?;
                    }
                }
            }
            self.bases = match handles {
                // A savepoint's objects are its own.
                [KeyedHandle::Incremental(one)]
                    if one.range == self.range && one.private.is_empty() =>
                {
                    Bases::restored(Chain {
                        cut: CheckpointId(0),
                        files: one.shared.clone(),
                        states: metas(one),
                        base_cut: CheckpointId(0),
                        base_ms: None,
                    })
                }
                _ => Bases::new(),
            };
            Ok(())
        })
    }

    fn captures_changes(&self) -> bool {
        true
    }

    fn needs_changes_since(&self) -> Option<CheckpointId> {
        let confirmed = self.bases.base().map(|chain| chain.cut);
        // Changes since the cut of a base that is being written are needed once it is.
        let rewritten = self.rewrite.cut();
        match confirmed {
            Some(cut) => Some(rewritten.map_or(cut, |other| other.min(cut))),
            // The first to build upon will be one of those that are pending, or a later one.
            None => self.pending.first().copied().or(self.latest),
        }
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.bases.completed(checkpoint);
        self.pending.retain(|pending| *pending > checkpoint);
        if let Some(chain) = self.bases.base() {
            self.rewrite.built_upon(&chain);
        }
        Ok(())
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.bases.aborted(checkpoint);
        self.pending.remove(&checkpoint);
        self.rewrite.aborted(checkpoint);
        Ok(())
    }
}

impl Drop for ChangeStreams {
    fn drop(&mut self) {
        self.rewrite.close();
    }
}

impl fmt::Debug for ChangeStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeStreams")
            .field("backend_id", &self.backend_id)
            .field("bases", &self.bases)
            .finish_non_exhaustive()
    }
}

async fn load_chain(
    chain: &IncrementalHandle,
    cx: &RestoreContext,
    tables: &mut dyn LoadTables,
) -> Result<()> {
    tables.begin(&metas(chain))?;
    let range = tables.range();
    restore_changes(chain, range, READ_AT_ONCE, cx, &mut |group, block| {
        tables.load_group(group, block)
    })
    .await
}
