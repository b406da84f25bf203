use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use futures_core::future::LocalBoxFuture;
use state_api::{
    Bases, ByteStore, CheckpointId, Column, EntryCount, Error, KeyGroupRange, KeyedHandle,
    NativeSnapshots, ObjectHandle, RestoreContext, RestoreTimes, Result, Scope, Snapshot,
    SnapshotKind, SnapshotRequest, StateMeta, StateSummary,
};
use uuid::Uuid;

use super::clip::Rewriting;
use super::frozen::Frozen;
use super::laps::{Laps, Part};
use super::restore::{Place, RestoreStats};
use super::upload::FileSnapshot;
use super::{FORMAT, Objects};
use crate::store::RocksDbStore;

/// What a store keeps for its snapshots.
pub(crate) struct Native {
    /// The key groups of the subtask.
    range: KeyGroupRange,
    prefix_len: usize,
    backend_id: Arc<str>,
    bases: Bases<Objects>,
    /// Folders made so far; each has a number of its own.
    folders: u64,
    restored: Option<RestoreStats>,
    /// Files that a restore left to be written anew.
    rewriting: Option<Rewriting>,
}

impl RocksDbStore {
    /// Returns a path for a folder of its own in the folder of the subtask.
    fn new_folder(&mut self, what: &str) -> PathBuf {
        let native = self.native_state_mut();
        native.folders += 1;
        let name = format!("{what}-{}", native.folders);
        self.folder().join(name)
    }
}

impl Native {
    pub(crate) fn new(range: KeyGroupRange, prefix_len: usize) -> Self {
        Self {
            range,
            prefix_len,
            backend_id: new_id(),
            bases: Bases::new(),
            folders: 0,
            restored: None,
            rewriting: None,
        }
    }

    /// Returns the bytes of a key group in front of keys.
    pub(crate) fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    /// Returns what the restore has done, if there was one.
    pub(crate) fn restored(&self) -> Option<RestoreStats> {
        let rewritten = self.rewriting.as_ref().map_or(0, Rewriting::bytes);
        self.restored.map(|stats| RestoreStats {
            rewritten_bytes: stats.rewritten_bytes + rewritten,
            ..stats
        })
    }

    /// Waits until no file reaches beyond the key groups because of a restore.
    pub(crate) fn wait_for_rewriting(&mut self) {
        if let Some(rewriting) = &mut self.rewriting {
            rewriting.wait();
        }
    }
}

fn new_id() -> Arc<str> {
    Uuid::new_v4().simple().to_string().into()
}

impl NativeSnapshots for RocksDbStore {
    fn format(&self) -> &str {
        FORMAT
    }

    fn takes(&self, kind: SnapshotKind) -> bool {
        match kind {
            SnapshotKind::CanonicalSavepoint => false,
            SnapshotKind::NativeSavepoint => true,
            SnapshotKind::Checkpoint | SnapshotKind::FullCheckpoint => self.config().incremental,
        }
    }

    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        states: &[(Column, StateMeta)],
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        if request.kind == SnapshotKind::CanonicalSavepoint {
            return Err(Error::unsupported(
                "files are not in the canonical format: it is written out of a view",
            ));
        }
        self.check_usable()?;
        self.report();
        let frozen = Frozen::cut(
            self.database(),
            self.column_cells(),
            self.native_state().prefix_len,
        )?;
        let summary = |(column, meta): &(Column, StateMeta)| StateSummary {
            meta: meta.clone(),
            entries: EntryCount::Estimate(self.estimated_keys(*column)),
        };
        let states = states.iter().map(summary).collect();
        let links = self.new_folder("cut");
        let transfers = self.config().transfers.max(1);
        let native = self.native_state();
        let base = match request.kind {
            SnapshotKind::Checkpoint => native.bases.to_build_upon(),
            _ => None,
        };
        let tracked = !request.kind.is_savepoint();
        let scope = match tracked {
            true => Scope::Shared,
            false => Scope::Exclusive,
        };
        match &base {
            Some(_) => native.bases.cut(request.checkpoint),
            None if tracked => native.bases.cut_whole(request.checkpoint),
            None => {}
        }
        Ok(Box::new(FileSnapshot {
            frozen,
            base: base.unwrap_or_default(),
            scope,
            bases: tracked.then(|| native.bases.clone()),
            backend_id: Arc::clone(&native.backend_id),
            range: native.range,
            states,
            links,
            transfers,
        }))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        range: KeyGroupRange,
        cx: &'a RestoreContext,
    ) -> LocalBoxFuture<'a, Result<Vec<(Column, StateMeta)>>> {
        Box::pin(async move {
            let mut laps = Laps::start(self.database().tuning().clock());
            let path = self.new_folder("db");
            let folder = Arc::clone(self.database().folder());
            let place = Place {
                folder: &folder,
                tuning: self.database().tuning(),
                prefix_len: self.native_state().prefix_len,
                transfers: self.config().transfers.max(1),
                compacts: self.config().compact_after_rescale,
            };
            let restored = place.restore(path, handles, range, &mut laps, cx).await?;
            let empty = self.replace_database(restored.database, restored.columns);
            if let Err(error) = fs::remove_dir_all(&empty) {
                tracing::warn!(path = %empty.display(), %error, "the folder of an empty database can't be removed");
            }
            let native = self.native_state_mut();
            // The objects of a savepoint are its own, and go with it: nothing is built upon them.
            let shared: HashSet<&ObjectHandle> = handles
                .iter()
                .filter_map(|handle| match handle {
                    KeyedHandle::Incremental(handle) => Some(&handle.shared),
                    KeyedHandle::KeyGroups(_) => None,
                })
                .flatten()
                .filter_map(|file| file.bytes.object())
                .collect();
            let mut objects = restored.objects;
            objects.retain(|_, handle| handle.object().is_none_or(|it| shared.contains(it)));
            native.bases = Bases::restored(objects);
            native.rewriting = restored.rewriting;
            if let [KeyedHandle::Incremental(handle)] = handles
                && handle.range == range
            {
                native.backend_id = Arc::clone(&handle.backend_id);
            }
            let states = restored.states.into_iter();
            let columns = states
                .map(|meta| Ok((self.open_column(&meta.name)?, meta)))
                .collect::<Result<_>>()?;
            laps.end(Part::Open);
            let stats = RestoreStats {
                times: laps.times(),
                ..restored.stats
            };
            tracing::debug!(?stats, path = %self.database().path().display(), "restored a database out of files");
            self.native_state_mut().restored = Some(stats);
            self.report();
            Ok(columns)
        })
    }

    fn restore_times(&self) -> RestoreTimes {
        let restored = self.native_state().restored();
        restored.map_or_else(RestoreTimes::default, |stats| stats.times)
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.native_state().bases.completed(checkpoint);
        Ok(())
    }

    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.native_state().bases.aborted(checkpoint);
        Ok(())
    }
}
