use std::fmt;
use std::sync::Arc;

use state_api::{
    BackendContext, Bases, CheckpointId, EntryCount, Error, IncrementalHandle, KeyGroupRange,
    KeyedHandle, Result, Snapshot, SnapshotKind, SnapshotRequest, StateKind, StateMeta,
    StateSummary,
};

use super::chain::Chain;
use super::pairs::PairWriter;
use super::snapshot::PairsSnapshot;

/// The increments of one byte store: what may be built upon, and the handles.
///
/// `P` is a position in the store's log of changes, which must reach back to the last confirmed checkpoint:
/// [`completed`](Self::completed) says how far that is. All functions are for the task's thread.
pub struct Increments<P> {
    format: Arc<str>,
    backend_id: Arc<str>,
    range: KeyGroupRange,
    bases: Bases<Chain<P>>,
}

impl<P: Send + Sync + Clone + 'static> Increments<P> {
    /// Starts without anything to build upon; `format` is the backend's word in handles.
    #[must_use]
    pub fn new(format: &str, cx: &BackendContext) -> Self {
        Self {
            format: format.into(),
            backend_id: format!("{}-{}", cx.operator, cx.subtask.index).into(),
            range: cx.range,
            bases: Bases::new(),
        }
    }

    /// Returns the async part of a snapshot. `position` is where the store's log of changes stands at the cut, `changed` how many
    /// keys are in it, `states` are the states with their numbers of keys in the store.
    ///
    /// `write` is called on a CPU thread with the position since which it writes what changed, or without one: then it writes
    /// all pairs. It does so column by column, out of what the store looked like at the cut.
    ///
    /// # Errors
    /// `Unsupported` for a canonical savepoint, which is taken from a view.
    pub fn snapshot(
        &self,
        request: &SnapshotRequest,
        position: P,
        changed: u64,
        states: Vec<(StateMeta, u64)>,
        write: impl FnOnce(&mut PairWriter<'_>, Option<P>) -> Result<()> + Send + 'static,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        let base = match request.kind {
            SnapshotKind::Checkpoint => self.bases.to_build_upon(),
            SnapshotKind::FullCheckpoint | SnapshotKind::NativeSavepoint => None,
            SnapshotKind::CanonicalSavepoint => {
                return Err(Error::unsupported(
                    "a canonical savepoint is taken from a view",
                ));
            }
        };
        let entries = states.iter().map(|(_, entries)| entries).sum();
        let base = base.filter(|base| base.carries_more(changed, entries));
        let summary = |(meta, entries): (StateMeta, u64)| StateSummary {
            entries: match meta.kind {
                // A long list has several keys.
                StateKind::List => EntryCount::Estimate(entries),
                _ => EntryCount::Exact(entries),
            },
            meta,
        };
        let handle = IncrementalHandle {
            format: Arc::clone(&self.format),
            backend_id: Arc::clone(&self.backend_id),
            checkpoint: request.checkpoint,
            range: self.range,
            private: Vec::new(),
            shared: base
                .as_ref()
                .map_or_else(Vec::new, |base| base.files.clone()),
            new_bytes: 0,
            states: states.into_iter().map(summary).collect(),
        };
        let offer = (!request.kind.is_savepoint()).then(|| {
            match &base {
                Some(_) => self.bases.cut(request.checkpoint),
                None => self.bases.cut_whole(request.checkpoint),
            }
            (self.bases.clone(), position)
        });
        Ok(Box::new(PairsSnapshot {
            handle,
            since: base.map(|base| base.position.clone()),
            write,
            offer,
        }))
    }

    /// Learns what was restored: if it is one checkpoint of just these key groups, the next one builds on it. `position` is
    /// where the log of changes starts.
    pub fn restored(&mut self, handles: &[KeyedHandle], position: P) {
        self.bases = match handles {
            // A savepoint's files are its own.
            [KeyedHandle::Incremental(one)]
                if one.range == self.range && one.private.is_empty() =>
            {
                Bases::restored(Chain {
                    position,
                    files: one.shared.clone(),
                })
            }
            _ => Bases::new(),
        };
    }

    /// Gives up what there is to build upon: the next checkpoint writes all pairs. For a store whose log grew too long.
    pub fn forget(&mut self) {
        self.bases = Bases::new();
    }

    /// Learns that a checkpoint is complete; returns the position before which the log of changes is of no use any more.
    pub fn completed(&self, checkpoint: CheckpointId) -> Option<P> {
        self.bases.completed(checkpoint);
        self.bases.base().map(|base| base.position.clone())
    }

    /// Learns that a checkpoint will never complete. Its changes stay in the log, for the next one.
    pub fn aborted(&self, checkpoint: CheckpointId) {
        self.bases.aborted(checkpoint);
    }
}

impl<P> fmt::Debug for Increments<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Increments")
            .field("format", &self.format)
            .field("bases", &self.bases)
            .finish_non_exhaustive()
    }
}
