//! Finding and deleting objects that nothing refers to.
//!
//! Three things make a deletion safe. The collector takes the job's next attempt, so that no lower one completes or deletes
//! anything that it begins from now on. It publishes a mark in place of the metadata of every checkpoint that was begun and
//! not completed, so that what a lower attempt began before can't be completed either: a checkpoint leaves something in its
//! folder before its attempt looks for a higher one for the last time. And it deletes only what no complete checkpoint
//! refers to, of the job itself or of one that has claimed a checkpoint of it. Age plays no part. Uploads in parts that never
//! ended go by the attempt in the name of their object: to give up one of a lower attempt touches no object, and who would
//! have completed it is fenced.
mod collect;
mod evidence;
mod inventory;
mod judge;

pub(crate) use inventory::attempt_of_path;

pub use collect::{GcOptions, RootOpener, collect_garbage};
pub use evidence::{ConsultedCheckpoint, ConsultedClaim, Evidence, OtherJobs};
pub use judge::{Fate, GcReport, Unreferenced, Why};

use std::collections::{BTreeMap, HashSet};

use state_api::{Result, Root};

use crate::checkpoint::StoredCheckpoint;
use crate::metadata::{METADATA_NAME, OwnRoot};
use crate::root::StoreRoot;
use crate::store::StoreEntry;
use crate::survey::is_job;

/// What a folder of jobs holds beside the jobs that nobody may need: it is for a person to judge, and is never deleted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBeside {
    /// URL of the folder.
    pub folder: String,
    /// What is in it.
    pub objects: Vec<String>,
    /// What it is, and why it stays.
    pub reason: &'static str,
}

/// Finds what interrupted work left in a folder of jobs and savepoints, beside the jobs' own folders.
///
/// # Errors
/// `Retryable` when the store fails.
pub async fn left_beside(root: &StoreRoot) -> Result<Vec<LeftBeside>> {
    let mut left = Vec::new();
    let mut uploads = uploads_by_folder(root).await;
    let entries = root.list("").await?;
    for entry in entries.iter().filter(|entry| entry.is_folder) {
        let folder = root.folder(&entry.name);
        let Ok(inside) = folder.list("").await else {
            // Somebody else's; whoever lists the folders tells that it can't be looked into.
            continue;
        };
        if is_job(&inside) {
            // What never ended there goes by the job's attempts.
            uploads.remove(&entry.name);
            continue;
        }
        if inside.is_empty() {
            continue;
        }
        let complete = inside.iter().any(|entry| entry.name == METADATA_NAME);
        let (objects, reason) = if complete {
            let objects = unused_in_savepoint(root, &entry.name, inside).await?;
            (
                objects,
                "in the folder of a savepoint that does not refer to it",
            )
        } else if inventory::is_savepoint_name(&entry.name) {
            let objects = inside.into_iter().map(|entry| entry.name).collect();
            (
                objects,
                "an unfinished savepoint: nothing in it says which job writes it, or wrote it",
            )
        } else if entry.name.starts_with("probe-") {
            let objects = inside.into_iter().map(|entry| entry.name).collect();
            (
                objects,
                "left by a job that tested the store when it started, or tests it now",
            )
        } else {
            continue;
        };
        if !objects.is_empty() {
            left.push(LeftBeside {
                folder: folder.url().to_owned(),
                objects,
                reason,
            });
        }
    }
    for (name, objects) in uploads {
        left.push(LeftBeside {
            folder: match name.is_empty() {
                true => root.url().to_owned(),
                false => root.folder(&name).url().to_owned(),
            },
            objects,
            reason: "uploads in parts that never ended: nothing says who writes them, or wrote them",
        });
    }
    Ok(left)
}

/// Returns the paths of uploads that never ended, by the folder in the root that they are in; those in the root itself are under
/// an empty name.
async fn uploads_by_folder(root: &StoreRoot) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    match root.open_uploads().await {
        Ok(uploads) => {
            for upload in uploads.into_iter().flatten() {
                let (folder, path) = upload.path.split_once('/').unwrap_or(("", &upload.path));
                let folder = found.entry(folder.to_owned()).or_default();
                folder.push(path.to_owned());
            }
        }
        Err(error) => tracing::debug!(folder = root.url(), %error, "uploads can't be listed"),
    }
    found
}

/// Returns the objects in the folder of a savepoint, or a copy, that it does not refer to.
async fn unused_in_savepoint(
    root: &StoreRoot,
    name: &str,
    inside: Vec<StoreEntry>,
) -> Result<Vec<String>> {
    let found = match StoredCheckpoint::read(root, name).await {
        Ok(found) if found.metadata.own_root == OwnRoot::Folder => found,
        // What can't be read may need everything.
        _ => return Ok(Vec::new()),
    };
    let used: HashSet<&str> = found
        .metadata
        .objects()
        .filter(|used| used.object.root == Root::Own)
        .map(|used| used.object.path.as_str())
        .collect();
    let unused = inside.into_iter().filter(|entry| {
        !entry.is_folder && inventory::is_ours(&entry.name) && !used.contains(entry.name.as_str())
    });
    Ok(unused.map(|entry| entry.name).collect())
}
