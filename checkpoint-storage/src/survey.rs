//! What lies under a path that somebody names: a checkpoint, a job's folder, a folder of jobs and savepoints.
use std::path::PathBuf;

use state_api::{Error, ErrorKind, Result};

use crate::checkpoint::{
    CheckpointState, ListedCheckpoint, StoredCheckpoint, canonical, list_checkpoints,
};
use crate::layout::{ATTEMPTS, SHARED, TASK_OWNED, checkpoint_of_folder};
use crate::metadata::METADATA_NAME;
use crate::remote::StoreAccess;
use crate::root::{Location, StoreRoot, split_url};
use crate::store::StoreEntry;

/// A folder that holds checkpoints.
#[derive(Debug)]
pub struct CheckpointFolder {
    /// The folder.
    pub root: StoreRoot,
    /// Whether it is the folder of a job; else it holds savepoints.
    pub is_job: bool,
    /// What is in it: a job's checkpoints, the newest first, then savepoints by name.
    pub checkpoints: Vec<ListedCheckpoint>,
}

/// What [`survey`] found below a folder.
#[derive(Debug)]
pub struct Survey {
    /// The folder.
    pub root: StoreRoot,
    /// Folders with checkpoints in them, in the order of their URLs, the folder itself last.
    pub folders: Vec<CheckpointFolder>,
    /// Folders that could not be looked into, with the reason.
    pub unread: Vec<(String, Error)>,
}

/// What lies under a path.
#[derive(Debug)]
pub enum Place {
    /// A checkpoint, or a savepoint.
    Checkpoint(Box<StoredCheckpoint>),
    /// A folder: of a job, of several, of savepoints, or of none of these.
    Folder(StoreRoot),
}

impl Place {
    /// Looks what lies under a URL or local path; one that ends in `/latest` is the newest checkpoint of a job.
    ///
    /// # Errors
    /// `NotFound` when there is nothing; those of [`StoredCheckpoint::find`].
    pub async fn find(pointer: &str, access: impl Into<StoreAccess>) -> Result<Self> {
        let access = access.into();
        let trimmed = match pointer.trim_end_matches('/') {
            "" => pointer,
            trimmed => trimmed,
        };
        let names_one = trimmed.ends_with(&format!("/{METADATA_NAME}"))
            || trimmed == METADATA_NAME
            || (trimmed.ends_with("/latest") && !trimmed.contains("://latest"));
        if !names_one {
            let root = open_folder(trimmed, &access).await?;
            let entries = root.list("").await?;
            let has_metadata = |entry: &StoreEntry| !entry.is_folder && entry.name == METADATA_NAME;
            if !entries.iter().any(has_metadata) {
                return match entries.is_empty() && !root.url().starts_with("file:") {
                    // A store of objects knows no empty folder.
                    true => {
                        Err(Error::not_found("there is nothing under this URL")
                            .with("url", root.url()))
                    }
                    false => Ok(Self::Folder(root)),
                };
            }
        }
        let found = StoredCheckpoint::find(pointer, &access).await?;
        Ok(Self::Checkpoint(Box::new(found)))
    }
}

/// Opens a folder that must be there.
async fn open_folder(pointer: &str, access: &StoreAccess) -> Result<StoreRoot> {
    let Location::Local(path) = split_url(pointer)? else {
        return StoreRoot::open(pointer, access);
    };
    let runtime = access.runtime();
    let found = canonical(&PathBuf::from(&path), runtime).await?;
    if !found.is_dir() {
        return Err(Error::config("this is a file, not a folder of checkpoints").with("path", path));
    }
    access.local(found)
}

/// Returns whether a folder with such entries is a job's.
pub(crate) fn is_job(entries: &[StoreEntry]) -> bool {
    let mut folders = entries.iter().filter(|entry| entry.is_folder);
    folders.any(|entry| {
        [ATTEMPTS, SHARED, TASK_OWNED].contains(&entry.name.as_str())
            || checkpoint_of_folder(&entry.name).is_some()
    })
}

/// Finds the checkpoints and savepoints of a folder: it may be a job's, hold the folders of jobs, or hold savepoints.
///
/// # Errors
/// `Retryable` when the store fails.
pub async fn survey(root: &StoreRoot) -> Result<Survey> {
    let entries = root.list("").await?;
    let here_is_a_job = is_job(&entries);
    let mut found = Survey {
        root: root.clone(),
        folders: Vec::new(),
        unread: Vec::new(),
    };
    if !here_is_a_job {
        for entry in entries.iter().filter(|entry| entry.is_folder) {
            let folder = root.folder(&entry.name);
            match folder.list("").await {
                Ok(inside) if is_job(&inside) => found.folders.push(CheckpointFolder {
                    checkpoints: list_checkpoints(&folder).await?,
                    root: folder,
                    is_job: true,
                }),
                Ok(_) => {}
                Err(e) => found.unread.push((folder.url().to_owned(), e)),
            }
        }
    }
    found.folders.sort_by(|a, b| a.root.url().cmp(b.root.url()));
    let mut checkpoints = match here_is_a_job {
        true => list_checkpoints(root).await?,
        false => Vec::new(),
    };
    checkpoints.extend(savepoints_in(root, &entries, &mut found.unread).await);
    if here_is_a_job || !checkpoints.is_empty() {
        found.folders.push(CheckpointFolder {
            root: root.clone(),
            is_job: here_is_a_job,
            checkpoints,
        });
    }
    Ok(found)
}

/// Reads what lies in folders of other names than those of checkpoints: savepoints, however they are called now, by name.
async fn savepoints_in(
    root: &StoreRoot,
    entries: &[StoreEntry],
    unread: &mut Vec<(String, Error)>,
) -> Vec<ListedCheckpoint> {
    let other = |entry: &&StoreEntry| {
        entry.is_folder
            && ![ATTEMPTS, SHARED, TASK_OWNED].contains(&entry.name.as_str())
            && checkpoint_of_folder(&entry.name).is_none()
    };
    let mut found = Vec::new();
    for entry in entries.iter().filter(other) {
        let state = match StoredCheckpoint::read(root, &entry.name).await {
            Ok(found) => CheckpointState::Complete(Box::new(found)),
            Err(error) => match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Unsupported => CheckpointState::Damaged(error),
                // Nothing of ours.
                ErrorKind::NotFound | ErrorKind::InvalidArgument => continue,
                _ => {
                    let url = root.folder(&entry.name).url().to_owned();
                    if !unread.iter().any(|(known, _)| *known == url) {
                        unread.push((url, error));
                    }
                    continue;
                }
            },
        };
        found.push(ListedCheckpoint {
            name: entry.name.clone(),
            state,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}
