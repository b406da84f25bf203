use std::sync::Arc;

use checkpoint_storage::{
    CheckpointState, JobStore, ListedCheckpoint, PassedOver, ProbeOptions, StopRecord, StoreAccess,
    StoreRoot, StoredCheckpoint, StreamOptions, UuidSource, list_checkpoints, probe,
};
use runtime_core::config::{StorageLocation, StorageSettings};
use runtime_core::coordinator::Retention;
use runtime_core::execution::FolderCheckpoints;
use runtime_core::{CheckpointStore, MemoryCheckpoints, RestoreFrom};
use state_api::{CheckpointId, Error, ErrorKind, Result};
use tokio::runtime::Handle;

use super::settings::Settings;
use crate::terminal::say;

/// Where the checkpoints of a run go, before it starts.
pub(crate) struct Checkpoints {
    place: Place,
    access: StoreAccess,
    interval: Option<std::time::Duration>,
    retention: Retention,
}

enum Place {
    Nowhere,
    Memory,
    Folder {
        checkpoints: Box<StoreRoot>,
        job: Box<StoreRoot>,
        /// Whether there is a folder for savepoints whose request names none.
        savepoints: bool,
        store: Arc<FolderCheckpoints>,
    },
}

/// What was found where the checkpoints go.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Whether the newest checkpoint was asked for, and there is none.
    pub(crate) starts_empty: bool,
    /// What the job starts from.
    pub(crate) start: Option<StoredCheckpoint>,
    /// What a person should know.
    pub(crate) note: Option<String>,
}

impl Checkpoints {
    /// Opens the place that the settings name.
    ///
    /// # Errors
    /// `Config` when there is no such kind of place.
    pub(crate) fn of(settings: &Settings, io: &Handle) -> Result<Self> {
        let checkpointing = &settings.execution.checkpointing;
        let access = StoreAccess::new(io.clone())
            .with_options(settings.stores.clone())
            .with_protection(settings.protection.clone());
        let place = match &settings.storage {
            None => Place::Nowhere,
            Some(storage) => match &storage.location {
                StorageLocation::Memory => Place::Memory,
                StorageLocation::Folder(folder) => {
                    let checkpoints = StoreRoot::open(folder, &access)?;
                    let id = &settings.execution.job_id;
                    let job = JobStore::job_folder(&checkpoints, id, storage.create_subdir);
                    let store = FolderCheckpoints::new(
                        job.clone(),
                        id.clone(),
                        UuidSource::machine(),
                        options(storage)?,
                    );
                    let mut store = store.runtime(&access);
                    if let Some(folder) = &storage.savepoint_dir {
                        store = store.savepoints(StoreRoot::open(folder, &access)?);
                    }
                    let store = Arc::new(store);
                    Place::Folder {
                        checkpoints: Box::new(checkpoints),
                        job: Box::new(job),
                        savepoints: storage.savepoint_dir.is_some(),
                        store,
                    }
                }
            },
        };
        Ok(Self {
            place,
            access,
            interval: checkpointing.interval,
            retention: checkpointing.retention,
        })
    }

    /// Says whether checkpoints are taken, where they go and how long they stay.
    pub(crate) fn announcement(&self) -> String {
        let place = match &self.place {
            Place::Nowhere => return "checkpoints: off; --checkpoints DIR turns them on".into(),
            Place::Memory => "in memory".into(),
            Place::Folder { job, .. } => format!("in {}", shown(job.url())),
        };
        let Some(interval) = self.interval else {
            return format!(
                "checkpoints: {place}, none until the job ends; --interval TIME takes them regularly"
            );
        };
        let kept = match (&self.place, self.retention) {
            (Place::Memory, _) => "gone when the process ends",
            (_, Retention::Always) => {
                "the last one is kept at finish, failure and Ctrl-C (--retain)"
            }
            (_, Retention::RetainOnCancellation) => {
                "the last one is kept at failure and Ctrl-C, and deleted at finish (--retain)"
            }
            (_, Retention::DeleteOnCancellation) => {
                "the last one is kept at failure, and deleted at finish and Ctrl-C (--retain)"
            }
            (_, Retention::Never) => "deleted when the job ends (--retain)",
        };
        format!("checkpoints: every {interval:?} {place}; {kept}")
    }

    /// Returns why a savepoint can't be taken, if that is certain; `target` is the folder that is asked for.
    pub(crate) fn refuses_savepoint(&self, target: Option<&str>) -> Option<&'static str> {
        match &self.place {
            Place::Nowhere | Place::Memory => Some(
                "the job takes no savepoints, since it runs without a folder of checkpoints (--checkpoints DIR)",
            ),
            Place::Folder {
                savepoints: false, ..
            } if target.is_none() => Some(
                "a savepoint needs a folder: name one with --target DIR, or set execution.checkpointing.savepoint-dir where the job is started",
            ),
            Place::Folder { .. } => None,
        }
    }

    /// Says in a few words where checkpoints go, for whoever asks the running job.
    pub(crate) fn in_words(&self) -> String {
        let announced = self.announcement();
        let told = announced
            .strip_prefix("checkpoints: ")
            .unwrap_or(&announced);
        told.split("; ").next().unwrap_or(told).to_owned()
    }

    /// Tells whether what is written outlives the process, unless it is deleted at the end.
    pub(crate) fn outlive(&self) -> bool {
        matches!(self.place, Place::Folder { .. })
    }

    /// Says why a last checkpoint would be of no use.
    pub(crate) fn why_nothing_is_kept(&self) -> &'static str {
        match &self.place {
            Place::Nowhere => "checkpoints are off (--checkpoints DIR turns them on)",
            Place::Memory => "checkpoints are in memory",
            Place::Folder { .. } => "checkpoints are deleted when the job is stopped (--retain)",
        }
    }

    /// Finds the checkpoint that a job would start from.
    ///
    /// # Errors
    /// When there is none at the path that is named, or it is damaged.
    pub(crate) async fn start_of(&self, restore: &RestoreFrom) -> Result<Option<StoredCheckpoint>> {
        let latest = match (restore, &self.place) {
            (RestoreFrom::Path(path), _) => return found_at(path, &self.access).await.map(Some),
            (RestoreFrom::Latest, Place::Folder { job, .. }) => {
                check_not_stopped(job).await?;
                format!("{}/latest", job.url())
            }
            _ => return Ok(None),
        };
        match StoredCheckpoint::find(&latest, &self.access).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks at what is there, and whether checkpoints can be written.
    ///
    /// # Errors
    /// Those of the store; when what the job is to start from is not there, or damaged.
    pub(crate) async fn look(&self, restore: &RestoreFrom) -> Result<Found> {
        let start = match restore {
            RestoreFrom::Path(_) => self.start_of(restore).await?,
            RestoreFrom::Latest | RestoreFrom::Nothing => None,
        };
        let Place::Folder {
            checkpoints, job, ..
        } = &self.place
        else {
            return Ok(Found {
                start,
                ..Found::default()
            });
        };
        let how = ProbeOptions::of(checkpoints);
        probe(checkpoints, &UuidSource::machine(), how)
            .await
            .map_err(|cause| {
                let kind = match cause.kind() {
                    ErrorKind::Unsupported => ErrorKind::Unsupported,
                    _ => ErrorKind::Config,
                };
                Error::new(
                    kind,
                    format!("checkpoints can't be written: {}", innermost(&cause)),
                )
                .with("folder", shown(checkpoints.url()))
            })?;
        let path = shown(job.url());
        match restore {
            RestoreFrom::Path(_) => Ok(Found {
                start,
                ..Found::default()
            }),
            RestoreFrom::Latest => Ok(match self.start_of(restore).await? {
                None => Found {
                    starts_empty: true,
                    note: Some(format!(
                        "{path} has no checkpoint yet: starting from the beginning"
                    )),
                    start: None,
                },
                start => Found {
                    start,
                    ..Found::default()
                },
            }),
            RestoreFrom::Nothing => Ok(Found {
                note: beside(&list_checkpoints(job).await?, &path),
                ..Found::default()
            }),
        }
    }

    /// Returns what the runtime keeps checkpoints in.
    pub(crate) fn store(&self) -> Option<Arc<dyn CheckpointStore>> {
        match &self.place {
            Place::Nowhere => None,
            Place::Memory => Some(Arc::new(MemoryCheckpoints::new())),
            Place::Folder { store, .. } => Some(Arc::<FolderCheckpoints>::clone(store)),
        }
    }

    /// Returns the path of a checkpoint, if it outlives the process.
    pub(crate) fn path_of(&self, id: CheckpointId) -> Option<String> {
        match &self.place {
            Place::Folder { job, .. } => Some(shown(&format!("{}/chk-{id}", job.url()))),
            Place::Nowhere | Place::Memory => None,
        }
    }
}

/// Says what there is of earlier runs, of which one from the beginning makes no use.
fn beside(listed: &[ListedCheckpoint], path: &str) -> Option<String> {
    let newest = listed
        .iter()
        .find(|listed| matches!(listed.state, CheckpointState::Complete(_)));
    if let Some(newest) = newest {
        return Some(format!(
            "starting from the beginning; {path} has {} of an earlier run, from which --from latest goes on",
            newest.name
        ));
    }
    let damaged = listed
        .iter()
        .filter(|listed| matches!(listed.state, CheckpointState::Damaged(_)))
        .count();
    (damaged > 0).then(|| {
        format!(
            "starting from the beginning; of the checkpoints of an earlier run in {path} none can be read (holdfast verify {path})"
        )
    })
}

/// Returns what the operating system said: the rest names files of the probe.
fn innermost(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    match cause.downcast_ref::<Error>() {
        Some(error) => error.message().to_owned(),
        None => cause.to_string(),
    }
}

/// Writes a local URL as the path that people know.
pub(crate) fn shown(url: &str) -> String {
    url.strip_prefix("file://").unwrap_or(url).to_owned()
}

/// Checks that the latest checkpoint of a job is where it was left.
///
/// # Errors
/// `Config`, naming the savepoint that the job was stopped with.
async fn check_not_stopped(job: &StoreRoot) -> Result<()> {
    match StopRecord::find(job).await? {
        None => Ok(()),
        Some(stopped) => Err(Error::config(format!(
            "the job was stopped with a savepoint, and its rows are committed up to there: go on with --from {}",
            shown(&stopped.location)
        ))),
    }
}

/// Finds a checkpoint by path, and says which newer ones are passed over; the folder of a job stands for its latest one.
///
/// # Errors
/// `NotFound`, `Corrupt`.
pub(crate) async fn find(path: &str, access: impl Into<StoreAccess>) -> Result<StoredCheckpoint> {
    let found = found_at(path, &access.into()).await?;
    say_passed_over(&found);
    Ok(found)
}

/// Says which newer checkpoints than the one that was found can't be read.
pub(super) fn say_passed_over(found: &StoredCheckpoint) {
    let id = found.metadata.checkpoint;
    for PassedOver { name, why } in &found.passed_over {
        say(&format!(
            "warning: {name} is newer and can't be read, so checkpoint {id} is taken: {why}"
        ));
    }
}

async fn found_at(path: &str, access: &StoreAccess) -> Result<StoredCheckpoint> {
    match StoredCheckpoint::find(path, access).await {
        Err(error)
            if error.kind() == ErrorKind::NotFound
                && !path.trim_end_matches('/').ends_with("/latest") =>
        {
            let latest = format!("{}/latest", path.trim_end_matches('/'));
            match StoredCheckpoint::find(&latest, access).await {
                Err(other) if other.kind() == ErrorKind::NotFound => Err(error),
                found => found,
            }
        }
        found => found,
    }
}

fn options(storage: &StorageSettings) -> Result<StreamOptions> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    StreamOptions::new(
        signed(storage.inline_threshold),
        signed(storage.write_buffer_bytes),
    )
}
