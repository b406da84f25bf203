//! Checkpoints of others that the job has claimed: what of them may be deleted, and when.
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, CheckpointState, DeleteReport, JobStore, StoreRoot, StoredCheckpoint,
    list_checkpoints,
};
use state_api::{CheckpointId, ErrorKind, ObjectHandle, Result, Root};

use super::{FolderCheckpoints, Opened};

impl FolderCheckpoints {
    /// Opens the folders that checkpoints of this job refer to and in which it has a claim from an earlier run, and finds what it
    /// claimed there. Others stay closed: whoever can write a checkpoint must not choose what is read.
    pub(super) async fn claimed_before(
        &self,
        store: &JobStore,
        retained: &BTreeMap<CheckpointId, Arc<CheckpointMetadata>>,
    ) -> Result<(Vec<StoreRoot>, Vec<StoredCheckpoint>)> {
        let objects = retained.values().flat_map(|metadata| metadata.objects());
        let urls: BTreeSet<String> = objects
            .filter_map(|used| match &used.object.root {
                Root::Own => None,
                Root::Url(url) => Some(url.trim_end_matches('/').to_owned()),
            })
            .collect();
        let (mut roots, mut claimed) = (Vec::new(), Vec::new());
        for url in urls {
            let root = match self.open_root(&url) {
                Ok(Some(root)) => root,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%error, "a folder that checkpoints of this job refer to can't be opened");
                    continue;
                }
            };
            let names = store.claimed_in(&root).await?;
            for name in names.iter().filter(|name| !name.is_empty()) {
                match StoredCheckpoint::read(&root, name).await {
                    Ok(found) => claimed.push(found),
                    // Its deletion was begun.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => {
                        tracing::warn!(%error, "a checkpoint that this job has claimed can't be read, and stays");
                    }
                }
            }
            if !names.is_empty() {
                roots.push(root);
            }
        }
        Ok((roots, claimed))
    }

    /// Deletes a checkpoint that this job has claimed, but for what its own and its owner's others use.
    pub(super) async fn discard_claimed(
        &self,
        opened: &Opened,
        found: &StoredCheckpoint,
        used: &[&CheckpointMetadata],
    ) -> Result<DeleteReport> {
        let Some(others) = self.others_in(opened, &found.own).await? else {
            return Ok(DeleteReport::default());
        };
        let others = used.iter().copied().chain(&others);
        opened.store.discard_claimed(found, others).await
    }

    /// Deletes what an earlier run has claimed once nothing in its folder is used any more.
    pub(super) async fn discard_claimed_before(
        &self,
        opened: &Opened,
        used: &[&CheckpointMetadata],
    ) -> Result<()> {
        for found in &opened.claimed_before {
            if is_used(&found.own, used) {
                continue;
            }
            let report = self.discard_claimed(opened, found, used).await?;
            report.into_result()?;
            if let Some(opened) = &mut *self.lock() {
                let url = found.folder.url();
                opened
                    .claimed_before
                    .retain(|claimed| claimed.folder.url() != url);
            }
        }
        Ok(())
    }

    /// Returns the complete checkpoints of this job but for one that it was told to start from and to own.
    pub(super) async fn beside_own(
        &self,
        but: CheckpointId,
    ) -> Result<Vec<Arc<CheckpointMetadata>>> {
        let mut beside = Vec::new();
        for listed in list_checkpoints(&self.folder).await? {
            match listed.state {
                CheckpointState::Complete(found) if found.metadata.checkpoint != but => {
                    beside.push(Arc::new(found.metadata));
                }
                CheckpointState::Damaged(error) => {
                    tracing::warn!(checkpoint = listed.name, %error, "a damaged checkpoint is no reason to keep objects");
                }
                _ => {}
            }
        }
        Ok(beside)
    }

    /// Returns the complete checkpoints in a claimed folder that are its owner's still, as of now: an owner that runs on makes more.
    ///
    /// `None` when there is one that can't be read here: its owner may be able to, so nothing there is known to be unused.
    async fn others_in(
        &self,
        opened: &Opened,
        root: &StoreRoot,
    ) -> Result<Option<Vec<CheckpointMetadata>>> {
        let ours = opened.claimed.values().chain(&opened.claimed_before);
        let ours: HashSet<_> = ours.map(|found| found.folder.url()).collect();
        let mut others = Vec::new();
        for listed in list_checkpoints(root).await? {
            match listed.state {
                CheckpointState::Complete(found) if !ours.contains(found.folder.url()) => {
                    let mut metadata = found.metadata;
                    metadata.rebase(root.url());
                    others.push(metadata);
                }
                CheckpointState::Damaged(error) => {
                    tracing::warn!(folder = root.url(), checkpoint = listed.name, %error, "objects beside a checkpoint that can't be read stay");
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(Some(others))
    }

    /// Returns which of some objects no complete checkpoint of somebody else uses, nor one of this job that it does not know of.
    pub(super) async fn not_lent(
        &self,
        opened: &Opened,
        mut objects: Vec<ObjectHandle>,
    ) -> Result<Vec<ObjectHandle>> {
        let roots: BTreeMap<_, _> = (opened.claimed.values().map(|found| &found.own))
            .chain(&opened.claimed_roots)
            .map(|root| (root.url(), root))
            .collect();
        let mut others = Vec::new();
        for (url, root) in roots {
            let there = Root::Url(url.into());
            if !objects.iter().any(|object| object.root == there) {
                continue;
            }
            match self.others_in(opened, root).await? {
                Some(found) => others.extend(found),
                None => objects.retain(|object| object.root != there),
            }
        }
        let known = opened.lent.iter().chain(&opened.beside).map(AsRef::as_ref);
        let lent: HashSet<_> = known
            .chain(&others)
            .flat_map(CheckpointMetadata::objects)
            .map(|used| used.object)
            .collect();
        objects.retain(|object| !lent.contains(object));
        Ok(objects)
    }
}

/// Returns whether checkpoints refer to objects in a folder of another job.
fn is_used(folder: &StoreRoot, by: &[&CheckpointMetadata]) -> bool {
    let root = Root::Url(folder.url().into());
    let mut objects = by.iter().flat_map(|metadata| metadata.objects());
    objects.any(|used| used.object.root == root)
}
