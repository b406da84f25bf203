use std::path::{Path, PathBuf};

use state_api::{Error, ErrorKind, Result, Root};
use tokio::runtime::Handle;

use crate::layout::checkpoint_of_folder;
use crate::metadata::{CheckpointMetadata, METADATA_NAME, OwnRoot, checked};
use crate::names::ObjectNames;
use crate::options::StreamOptions;
use crate::remote::StoreAccess;
use crate::root::{Location, StoreRoot, split_url};
use crate::storage::ObjectCheckpointStorage;

/// A checkpoint that was found and read.
#[derive(Clone, Debug)]
pub struct StoredCheckpoint {
    /// What it says about itself.
    pub metadata: CheckpointMetadata,
    /// The folder that its own objects' paths start from.
    pub own: StoreRoot,
    /// The folder of the metadata.
    pub folder: StoreRoot,
    /// Length of the metadata in bytes.
    pub metadata_len: u64,
    /// Newer checkpoints that can't be read, where the newest one of a job was asked for: nobody should go on from an older one
    /// without knowing.
    pub passed_over: Vec<PassedOver>,
}

/// A checkpoint whose metadata can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Name of its folder in the job folder.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl StoredCheckpoint {
    /// Reads the checkpoint in a folder below another one; an empty path is that folder itself.
    ///
    /// # Errors
    /// `NotFound` when the folder has no metadata; `Corrupt` or `Unsupported`, naming the folder, when the metadata can't be read.
    pub async fn read(above: &StoreRoot, folder: &str) -> Result<Self> {
        let place = if folder.is_empty() {
            above.clone()
        } else {
            above.folder(folder)
        };
        let named = |e: Error| e.with("checkpoint", place.url());
        let bytes = match place.read_all(METADATA_NAME).await {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(named(Error::not_found(
                    "the folder is no complete checkpoint: it has no _metadata",
                )));
            }
            Err(e) => return Err(named(e)),
        };
        if let Some(by) = abandoned_by(&bytes) {
            return Err(named(Error::not_found(format!(
                "the checkpoint was never completed: attempt {by} gave it up"
            ))));
        }
        let metadata = checked(above.signer(), &bytes)
            .and_then(CheckpointMetadata::decode)
            .map_err(named)?;
        let named_after = checkpoint_of_folder(folder).filter(|id| *id != metadata.checkpoint);
        if named_after.is_some() && metadata.own_root == OwnRoot::Parent {
            let error = format!("the folder holds checkpoint {}", metadata.checkpoint);
            return Err(named(Error::corrupt(error)));
        }
        let own = match metadata.own_root {
            OwnRoot::Folder => place.clone(),
            OwnRoot::Parent if folder.is_empty() => {
                return Err(named(Error::invalid(
                    "the checkpoint shares objects with others: open it from its job folder",
                )));
            }
            OwnRoot::Parent => above.clone(),
        };
        Ok(Self {
            metadata,
            own,
            folder: place,
            metadata_len: bytes.len() as u64,
            passed_over: Vec::new(),
        })
    }

    /// Finds a checkpoint by URL or local path: of its metadata, of its folder, or of a job folder with `/latest` behind it.
    ///
    /// A slash at the end makes no difference.
    ///
    /// # Errors
    /// `InvalidArgument` when the pointer is empty; `NotFound` when there is nothing, or no metadata; those of [`StoredCheckpoint::read`].
    pub async fn find(pointer: &str, access: impl Into<StoreAccess>) -> Result<Self> {
        let (above, folder) = open_pointer(pointer, &access.into()).await?;
        if folder == "latest" {
            return latest(&above).await;
        }
        match Self::read(&above, &folder).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Err(explain(e, &above, &folder).await),
            other => other,
        }
    }

    /// Tells whether the checkpoint was deleted since it was read, as a job does when a newer one completes.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    pub async fn was_deleted(&self) -> Result<bool> {
        Ok(self.folder.len(METADATA_NAME).await?.is_none())
    }

    /// Returns a storage that reads the checkpoint's objects; other roots must be allowed by name.
    #[must_use]
    pub fn storage(&self, roots: impl IntoIterator<Item = StoreRoot>) -> ObjectCheckpointStorage {
        let names = ObjectNames::new(self.metadata.attempt, crate::UuidSource::machine());
        let layout = crate::Layout::SelfContained;
        ObjectCheckpointStorage::with_layout(
            self.own.clone(),
            layout,
            names,
            StreamOptions::default(),
        )
        .with_roots(roots)
    }

    /// Makes the checkpoint usable in another job's folder: its own objects are named by the URL of their folder,
    /// which is returned as a root to allow.
    #[must_use]
    pub fn into_foreign(mut self) -> (CheckpointMetadata, StoreRoot) {
        self.metadata.rebase(self.own.url());
        (self.metadata, self.own)
    }

    /// Returns the URLs of other folders that the checkpoint's objects lie in.
    pub fn foreign_roots(&self) -> impl Iterator<Item = &str> + '_ {
        let mut roots: Vec<&str> = self
            .metadata
            .objects()
            .filter_map(|used| match &used.object.root {
                Root::Own => None,
                Root::Url(url) => Some(url.as_ref()),
            })
            .collect();
        roots.sort_unstable();
        roots.dedup();
        roots.into_iter()
    }
}

/// Returns the newest complete checkpoint of a job folder: of the highest attempt that completed one, the highest id.
pub(crate) async fn latest(job: &StoreRoot) -> Result<StoredCheckpoint> {
    let (mut complete, mut damaged) = (None, Vec::new());
    for listed in list_checkpoints(job).await? {
        match listed.state {
            CheckpointState::Complete(checkpoint) if complete.is_none() => {
                complete = Some(*checkpoint);
            }
            CheckpointState::Damaged(error) => damaged.push((listed.name, error)),
            _ => {}
        }
    }
    if let Some(mut newest) = complete {
        let id = newest.metadata.checkpoint;
        newest.passed_over = damaged
            .into_iter()
            .filter(|(name, _)| checkpoint_of_folder(name).is_some_and(|other| other > id))
            .map(|(name, error)| PassedOver {
                name,
                why: error.to_string(),
            })
            .collect();
        for PassedOver { name, why } in &newest.passed_over {
            tracing::warn!(job = job.url(), checkpoint = %name, %why, "a damaged checkpoint is passed over");
        }
        return Ok(newest);
    }
    // Whoever took damaged ones for an empty folder would begin anew, and lose what is in them.
    let error = match damaged.len() {
        0 => Error::not_found("the job folder has no complete checkpoint"),
        n => Error::corrupt(format!(
            "the job folder has no checkpoint that can be read; {n} damaged, left alone"
        )),
    };
    let error = error.with("folder", job.url());
    Err(match damaged.into_iter().next() {
        Some((_, why)) => error.caused_by(why),
        None => error,
    })
}

/// A checkpoint's folder, as a listing shows it.
#[derive(Debug)]
pub struct ListedCheckpoint {
    /// Name of the folder in the job folder.
    pub name: String,
    /// What is in it.
    pub state: CheckpointState,
}

/// What a checkpoint's folder holds.
#[derive(Debug)]
pub enum CheckpointState {
    /// A checkpoint whose metadata is whole; its objects were not looked at.
    Complete(Box<StoredCheckpoint>),
    /// Objects without metadata: a checkpoint that is being written, or never was completed.
    Incomplete,
    /// A later attempt made sure that the checkpoint is never completed.
    Abandoned,
    /// Metadata that can't be read, with the reason.
    Damaged(Error),
}

/// Lists the checkpoints of a job folder: complete ones first, the newest of the highest attempt on top, then the others.
///
/// # Errors
/// `Retryable` when the store fails.
pub async fn list_checkpoints(job: &StoreRoot) -> Result<Vec<ListedCheckpoint>> {
    let mut listed = Vec::new();
    for entry in job.list("").await? {
        let Some(id) = checkpoint_of_folder(&entry.name) else {
            continue;
        };
        let mut read = StoredCheckpoint::read(job, &entry.name).await;
        if !entry.is_folder && read.is_err() {
            if job.len(&entry.name).await.is_ok_and(|len| len.is_some()) {
                // A file that happens to have such a name.
                continue;
            }
            // A link to a folder on another disk that isn't there now, say: what it refers to is not nobody's.
            read = Err(Error::corrupt(
                "what has the name of a checkpoint's folder is a link that can't be entered",
            )
            .with("checkpoint", job.folder(&entry.name).url()));
        }
        let mut marked = false;
        if matches!(&read, Err(e) if e.kind() == ErrorKind::NotFound) {
            // Completed or given up, it may have been just now: what is there says which, not that something is.
            match job
                .read_all(&format!("{}/{METADATA_NAME}", entry.name))
                .await
            {
                Ok(bytes) if abandoned_by(&bytes).is_some() => marked = true,
                Ok(_) => read = StoredCheckpoint::read(job, &entry.name).await,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e.with("checkpoint", &entry.name)),
            }
        }
        let state = match read {
            Ok(found) if found.metadata.checkpoint != id => CheckpointState::Damaged(
                Error::corrupt(format!(
                    "the folder holds checkpoint {}",
                    found.metadata.checkpoint
                ))
                .with("checkpoint", found.folder.url()),
            ),
            Ok(found) if found.metadata.own_root == OwnRoot::Folder => CheckpointState::Damaged(
                Error::invalid(
                    "a self-contained checkpoint, a copy or a savepoint, lies among those of the job: move it out of the job's folder",
                )
                .with("checkpoint", found.folder.url()),
            ),
            Ok(found) => CheckpointState::Complete(Box::new(found)),
            Err(e) => match e.kind() {
                ErrorKind::NotFound if marked => CheckpointState::Abandoned,
                ErrorKind::NotFound => CheckpointState::Incomplete,
                ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::InvalidArgument => {
                    CheckpointState::Damaged(e)
                }
                _ => return Err(e),
            },
        };
        listed.push((
            id,
            ListedCheckpoint {
                name: entry.name,
                state,
            },
        ));
    }
    listed.sort_by_key(|(id, listed)| {
        let attempt = match &listed.state {
            CheckpointState::Complete(found) => Some(found.metadata.attempt),
            _ => None,
        };
        std::cmp::Reverse((attempt, *id))
    });
    Ok(listed.into_iter().map(|(_, listed)| listed).collect())
}

const ABANDONED: &str = "holdfast: never completed, given up by attempt ";

/// Returns what is published in place of metadata so that a checkpoint is never completed.
pub(crate) fn abandonment(by: state_api::Attempt) -> String {
    format!("{ABANDONED}{by}\n")
}

fn abandoned_by(bytes: &[u8]) -> Option<u64> {
    crate::layout::parse_number(
        std::str::from_utf8(bytes)
            .ok()?
            .strip_prefix(ABANDONED)?
            .strip_suffix('\n')?,
    )
}

/// Returns the folder above the checkpoint's and the checkpoint's name in it.
async fn open_pointer(pointer: &str, access: &StoreAccess) -> Result<(StoreRoot, String)> {
    let runtime = access.runtime();
    match split_url(pointer)? {
        Location::Local(path) => {
            let path = PathBuf::from(path);
            let latest = path.file_name().is_some_and(|name| name == "latest") && !path.exists();
            let start = if latest {
                path.parent().unwrap_or(&path).to_owned()
            } else {
                path
            };
            let found = canonical(&start, runtime).await?;
            if latest {
                return Ok((access.local(found)?, "latest".to_owned()));
            }
            let folder = if found.is_file() {
                found.parent().unwrap_or(&found)
            } else {
                &found
            };
            let name = folder
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            Ok((access.local(folder.parent().unwrap_or(folder))?, name))
        }
        Location::Remote(_) => {
            let trimmed = pointer.trim_end_matches('/');
            let trimmed = trimmed
                .strip_suffix(&format!("/{METADATA_NAME}"))
                .unwrap_or(trimmed);
            match trimmed.rsplit_once('/') {
                Some((above, name)) if !above.ends_with('/') => {
                    Ok((StoreRoot::open(above, access)?, name.to_owned()))
                }
                _ => Ok((StoreRoot::open(trimmed, access)?, String::new())),
            }
        }
    }
}

pub(crate) async fn canonical(path: &Path, runtime: &Handle) -> Result<PathBuf> {
    let asked = path.to_owned();
    let found = runtime
        .spawn_blocking(move || std::fs::canonicalize(asked))
        .await;
    found
        .unwrap_or_else(|e| Err(std::io::Error::other(e)))
        .map_err(|e| {
            let kind = match e.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                    ErrorKind::NotFound
                }
                std::io::ErrorKind::PermissionDenied => ErrorKind::Config,
                _ => ErrorKind::Retryable,
            };
            Error::new(kind, "there is no checkpoint under this path")
                .with("path", path.display())
                .caused_by(e)
        })
}

/// Adds what the caller may have meant to an error about a folder without metadata.
async fn explain(error: Error, above: &StoreRoot, folder: &str) -> Error {
    let Ok(entries) = above.list(folder).await else {
        return error;
    };
    let checkpoints: Vec<_> = entries
        .iter()
        .filter(|e| e.is_folder && checkpoint_of_folder(&e.name).is_some())
        .map(|e| e.name.as_str())
        .collect();
    if checkpoints.is_empty() {
        return error;
    }
    error.with(
        "hint",
        format!(
            "it looks like a job folder: add /latest or one of {}",
            checkpoints.join(", ")
        ),
    )
}
