//! What is asked before anything is called unreferenced: checkpoints and claims.
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use state_api::{Attempt, CheckpointId, Error, JobId, Result, Root};
use tokio::sync::Mutex;

use super::collect::GcOptions;
use super::inventory::Inventory;
use crate::checkpoint::{CheckpointState, StoredCheckpoint, list_checkpoints};
use crate::claim::{CLAIM_NAME, ClaimRecord};
use crate::layout::{checkpoint_folder, checkpoint_of_folder};
use crate::liveness::Liveness;
use crate::metadata::METADATA_NAME;
use crate::root::StoreRoot;

/// A complete checkpoint whose references were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsultedCheckpoint {
    /// URL of its folder.
    pub folder: String,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// Number of objects in the job folder that it refers to, those of its own included.
    pub objects: usize,
}

/// A claim on a checkpoint of the job by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsultedClaim {
    /// URL of the folder of the claimed checkpoint.
    pub folder: String,
    /// The job that has claimed it.
    pub job: JobId,
    /// URL of that job's folder.
    pub claimer: String,
    /// Whether the claimed checkpoint is still complete; else it is up to the claimer to delete the rest.
    pub complete: bool,
}

/// What was consulted, and what it says.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Checkpoints of the job, and of jobs that refer to its objects.
    pub checkpoints: Vec<ConsultedCheckpoint>,
    /// Claims of other jobs.
    pub claims: Vec<ConsultedClaim>,
    /// Why it can't be said what is referred to.
    pub gaps: Vec<Error>,
    /// Paths in the job folder that are referred to.
    pub(super) referred: HashSet<String>,
    /// Checkpoints without metadata of their own: whether they were given up already.
    pub(super) unfinished: BTreeMap<CheckpointId, bool>,
    /// Checkpoints whose metadata can't be read.
    pub(super) damaged: BTreeSet<CheckpointId>,
    /// Checkpoints that another job has claimed.
    pub(super) claimed: BTreeSet<CheckpointId>,
    /// The job, if a checkpoint tells.
    pub(super) job: Option<JobId>,
}

impl Evidence {
    /// Reads every checkpoint and claim that could refer to objects in a job folder.
    ///
    /// # Errors
    /// `Retryable` when the store fails; what can't be read for good is a gap.
    pub(super) async fn of(
        root: &StoreRoot,
        inventory: &Inventory,
        options: &GcOptions<'_>,
    ) -> Result<Self> {
        let mut evidence = Self::default();
        let mut claimers: BTreeSet<String> = BTreeSet::new();
        for listed in list_checkpoints(root).await? {
            let Some(id) = checkpoint_of_folder(&listed.name) else {
                continue;
            };
            let complete = match listed.state {
                CheckpointState::Complete(found) => {
                    evidence
                        .job
                        .get_or_insert_with(|| found.metadata.job.clone());
                    evidence.consult(root, &found);
                    true
                }
                CheckpointState::Incomplete => {
                    evidence.unfinished.insert(id, false);
                    false
                }
                CheckpointState::Abandoned => {
                    evidence.unfinished.insert(id, true);
                    false
                }
                CheckpointState::Damaged(error) => {
                    evidence.gaps.push(error);
                    evidence.damaged.insert(id);
                    true
                }
            };
            let folder = root.folder(&checkpoint_folder(id));
            let was_seen = |name: &str| inventory.has(&format!("{}/{name}", listed.name));
            if evidence.unfinished.get(&id) == Some(&false) && was_seen(METADATA_NAME) {
                evidence.gaps.push(unsteady(&folder, METADATA_NAME));
            }
            match ClaimRecord::read(&folder).await {
                Ok(None) if was_seen(CLAIM_NAME) => {
                    evidence.gaps.push(unsteady(&folder, CLAIM_NAME));
                }
                Ok(None) => {}
                Ok(Some(record)) if record.folder == root.url() => {}
                Ok(Some(record)) => {
                    evidence.claimed.insert(id);
                    claimers.insert(record.folder.clone());
                    evidence.claims.push(ConsultedClaim {
                        folder: folder.url().to_owned(),
                        job: record.job,
                        claimer: record.folder,
                        complete,
                    });
                }
                Err(error) if error.kind() == state_api::ErrorKind::Corrupt => {
                    evidence.claimed.insert(id);
                    evidence.gaps.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        for other in options.others {
            if other.url() == root.url() {
                continue;
            }
            for found in options.seen.of(other).await?.iter() {
                if found.foreign_roots().any(|url| is_same(url, root)) {
                    evidence.consult(root, found);
                }
            }
        }
        for url in claimers {
            let mut gaps = Vec::new();
            match (options.opener)(&url) {
                Ok(claimer) => {
                    evidence.consult_other(root, &claimer, &mut gaps).await?;
                    match Liveness::of(&claimer).await? {
                        // A claimer leaves its number before its claim.
                        Liveness::NeverRan => gaps.push(Error::config(
                            "there is no trace of the job that has claimed it: its folder was moved, or lies on another machine; \
                             if that job is over for good, delete _claimed by hand",
                        )),
                        liveness if !liveness.is_over() => gaps.push(Error::retryable(
                            "the job that has claimed it may be deleting it, or reading it",
                        )),
                        _ => {}
                    }
                }
                Err(error) => gaps.push(error),
            }
            // Where the claimed checkpoint is still there, it says itself what must stay.
            let mut of_it = evidence.claims.iter().filter(|claim| claim.claimer == url);
            if of_it.any(|claim| !claim.complete) {
                let named = |error: Error| error.with("claimed by", &url);
                evidence.gaps.extend(gaps.into_iter().map(named));
            }
        }
        Ok(evidence)
    }

    /// Returns whether something refers to an object in the folder of a checkpoint.
    pub(super) fn refers_into(&self, id: CheckpointId) -> bool {
        let prefix = format!("{}/", checkpoint_folder(id));
        self.referred.iter().any(|path| path.starts_with(&prefix))
    }

    /// Counts what the checkpoints of a job that has claimed one of this job's refer to, as they are now.
    async fn consult_other(
        &mut self,
        root: &StoreRoot,
        other: &StoreRoot,
        gaps: &mut Vec<Error>,
    ) -> Result<()> {
        for listed in list_checkpoints(other).await? {
            match listed.state {
                CheckpointState::Complete(found) => {
                    if found.foreign_roots().any(|url| is_same(url, root)) {
                        self.consult(root, &found);
                    }
                }
                CheckpointState::Damaged(error) => gaps.push(error),
                CheckpointState::Incomplete | CheckpointState::Abandoned => {}
            }
        }
        Ok(())
    }

    fn consult(&mut self, root: &StoreRoot, found: &StoredCheckpoint) {
        let mut objects = HashSet::new();
        for used in found.metadata.objects() {
            let url = match &used.object.root {
                Root::Own => found.own.url(),
                Root::Url(url) => url,
            };
            if let Some(below) = below(url, root) {
                objects.insert(format!("{below}{}", used.object.path));
            }
        }
        if self
            .checkpoints
            .iter()
            .any(|known| known.folder == found.folder.url())
        {
            return;
        }
        self.checkpoints.push(ConsultedCheckpoint {
            folder: found.folder.url().to_owned(),
            checkpoint: found.metadata.checkpoint,
            attempt: found.metadata.attempt,
            objects: objects.len(),
        });
        self.referred.extend(objects);
    }
}

/// The checkpoints of other jobs that refer to objects outside their own folders, as they were when first asked.
///
/// A job refers to objects of another after it has claimed a checkpoint there, and only to what that one or its own last
/// checkpoint refers to. Claims are asked anew each time, and their jobs too, so what was seen once leaves nothing out.
#[derive(Debug, Default)]
pub struct OtherJobs {
    seen: Mutex<BTreeMap<String, Arc<Vec<StoredCheckpoint>>>>,
}

impl OtherJobs {
    async fn of(&self, job: &StoreRoot) -> Result<Arc<Vec<StoredCheckpoint>>> {
        let mut seen = self.seen.lock().await;
        if let Some(known) = seen.get(job.url()) {
            return Ok(Arc::clone(known));
        }
        let listed = list_checkpoints(job).await?.into_iter();
        let referring = listed.filter_map(|listed| match listed.state {
            CheckpointState::Complete(found) => {
                let refers = found.foreign_roots().next().is_some();
                refers.then_some(*found)
            }
            _ => None,
        });
        let referring = Arc::new(referring.collect());
        seen.insert(job.url().to_owned(), Arc::clone(&referring));
        Ok(referring)
    }
}

/// The error about an object that was listed and can't be read a moment later.
fn unsteady(folder: &StoreRoot, name: &str) -> Error {
    Error::retryable("an object was listed, and a moment later it was not there: run it again")
        .with("object", format!("{}/{name}", folder.url()))
}

/// Returns how paths in a folder begin in the job folder that it is, or that it lies in; `None` for one that lies elsewhere.
fn below(url: &str, root: &StoreRoot) -> Option<String> {
    let rest = url.trim_end_matches('/').strip_prefix(root.url())?;
    match rest.strip_prefix('/') {
        Some(inner) => Some(format!("{inner}/")),
        None => rest.is_empty().then(String::new),
    }
}

fn is_same(url: &str, root: &StoreRoot) -> bool {
    url.trim_end_matches('/') == root.url()
}
