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

use crate::chain::Chain;
use crate::rewrite::Rewrite;
use crate::snapshot::{Offer, StreamSnapshot, metas};
use crate::{FORMAT, FsConfig, NAME};

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
        Self {
            config,
            format: FORMAT.into(),
            backend_id: format!("{}-{}", cx.operator, cx.subtask.index).into(),
            range: cx.range,
            bases: Bases::new(),
            rewrite: Rewrite::default(),
            pending: BTreeSet::new(),
            latest: None,
        }
    }

    /// Returns the number of bases that could not be written in the background. Each was tried again later.
    #[must_use]
    pub fn failed_bases(&self) -> u64 {
        self.rewrite.failures()
    }

    /// Returns what a checkpoint goes on top of, with the changes since then; `None` if it must hold everything.
    fn build_upon(
        &self,
        tables: &mut dyn FrozenTables,
    ) -> Option<(Arc<Chain>, Box<dyn FrozenChanges>)> {
        let mut upon = |chain: Arc<Chain>| {
            let changes = tables.changes(chain.cut)?;
            chain.carries(&changes.states()).then_some((chain, changes))
        };
        let rewritten = self.rewrite.written().and_then(&mut upon);
        if rewritten.is_none() {
            // Written of states that are others by now.
            self.rewrite.discard();
        }
        let (chain, changes) = rewritten.or_else(|| upon(self.bases.base()?))?;
        pays(&*changes).then_some((chain, changes))
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
        self.bases.cut(checkpoint);
        let mut chain = Chain {
            cut: checkpoint,
            files: Vec::new(),
            states: Vec::new(),
            base_ms: Some(request.now_ms),
        };
        let Some((upon, changes)) = upon else {
            // A base that was written meanwhile is older than this one.
            self.rewrite.discard();
            return StreamSnapshot {
                handle: self.handle(checkpoint, tables.states()),
                source: StreamSource::Base(tables),
                offer: Some(self.offer(chain)),
                draft: None,
            };
        };
        let mut handle = self.handle(checkpoint, changes.states());
        handle.shared.clone_from(&upon.files);
        let is_new = self
            .rewrite
            .written()
            .is_some_and(|base| Arc::ptr_eq(&base, &upon));
        if is_new {
            handle.new_bytes = upon.files.iter().map(|file| file.bytes.len()).sum();
        }
        let is_due = upon.is_outweighed(&self.config, request.now_ms) && !is_new;
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
        chain.base_ms = upon.base_ms.or(chain.base_ms);
        StreamSnapshot {
            handle,
            source: StreamSource::Changes(changes),
            offer: Some(self.offer(chain)),
            draft,
        }
    }

    fn offer(&self, chain: Chain) -> Offer {
        Offer {
            bases: self.bases.clone(),
            rewrite: self.rewrite.clone(),
            chain,
        }
    }
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

    fn builds_on(&self) -> Option<CheckpointId> {
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
    restore_changes(chain, range, cx, &mut |group, block| {
        tables.load_group(group, block)
    })
    .await
}
