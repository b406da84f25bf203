//! Records of jobs that were stopped with a savepoint: their output is committed up to it, so an older checkpoint must not be
//! taken for the place to go on from.
use bytes::Bytes;
use state_api::{Attempt, CheckpointId, Error, ErrorKind, Result};

use crate::checkpoint;
use crate::job_store::JobStore;
use crate::root::StoreRoot;

const PREFIX: &str = "stopped-";
const START: &str = "holdfast: stopped with the savepoint ";

/// Says that a job was stopped with a savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRecord {
    /// The attempt that was stopped.
    pub attempt: Attempt,
    /// The savepoint.
    pub savepoint: CheckpointId,
    /// Where it is.
    pub location: String,
}

impl StopRecord {
    /// Reads from the folder of a job how it was stopped last, if nothing was completed after that.
    ///
    /// # Errors
    /// `Corrupt` when the record can't be read; `Retryable` when the store fails.
    pub async fn find(job: &StoreRoot) -> Result<Option<Self>> {
        let entries = job.list("").await?;
        let names = entries.iter().map(|entry| entry.name.as_str());
        let last = names
            .filter_map(|name| Some((numbers(name)?, name)))
            .max_by_key(|((attempt, savepoint), _)| (attempt.0, savepoint.0));
        let Some(((attempt, savepoint), name)) = last else {
            return Ok(None);
        };
        match checkpoint::latest(job).await {
            Ok(newest) => {
                let newest = newest.metadata;
                if (newest.attempt.0, newest.checkpoint.0) > (attempt.0, savepoint.0) {
                    return Ok(None);
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let bytes = job.read_all(name).await?;
        let record = Self::parse(name, &bytes).ok_or_else(|| {
            Error::corrupt("the record of how the job was stopped can't be read")
                .with("object", name)
        })?;
        Ok(Some(record))
    }

    fn name(&self) -> String {
        name(self.attempt, self.savepoint)
    }

    fn parse(name: &str, bytes: &[u8]) -> Option<Self> {
        let (attempt, savepoint) = numbers(name)?;
        let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        Some(Self {
            attempt,
            savepoint,
            location: line.strip_prefix(START)?.to_owned(),
        })
    }
}

/// Returns whether an object of this name in a job folder says how the job was stopped.
pub(crate) fn is_stop_record(name: &str) -> bool {
    numbers(name)
        .is_some_and(|(attempt, savepoint)| name == format!("{PREFIX}{attempt}-{savepoint}"))
}

fn name(attempt: Attempt, savepoint: CheckpointId) -> String {
    format!("{PREFIX}{}-{}", attempt.0, savepoint.0)
}

fn numbers(name: &str) -> Option<(Attempt, CheckpointId)> {
    let (attempt, savepoint) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((
        Attempt(attempt.parse().ok()?),
        CheckpointId(savepoint.parse().ok()?),
    ))
}

impl JobStore {
    /// Notes that the job ends with a savepoint; before anything is committed for it.
    ///
    /// # Errors
    /// `Fenced`; `Retryable` when the store fails.
    pub async fn note_stop(&self, savepoint: CheckpointId, location: &str) -> Result<()> {
        self.check_fenced().await?;
        let record = StopRecord {
            attempt: self.attempt(),
            savepoint,
            location: location.to_owned(),
        };
        let bytes = Bytes::from(format!("{START}{location}\n"));
        match self.root().publish(&record.name(), bytes).await {
            // Written by a try that did not hear of its success.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|e| e.with("job", self.job())),
        }
    }

    /// Takes back that the job ends with a savepoint of this attempt, which is to be deleted: nothing was committed for it. Fine if it was
    /// not noted.
    ///
    /// # Errors
    /// `Fenced`; `Retryable` when the store fails.
    pub async fn retract_stop(&self, savepoint: CheckpointId) -> Result<()> {
        self.check_fenced().await?;
        let deleted = async {
            self.root().delete(&name(self.attempt(), savepoint)).await?;
            // The savepoint may lie on another disk, and must not go first.
            self.root().sync_folder("").await
        };
        deleted.await.map_err(|e: Error| e.with("job", self.job()))
    }

    /// Returns how the job was stopped last, if nothing was completed after that.
    ///
    /// # Errors
    /// As [`StopRecord::find`].
    pub async fn stopped(&self) -> Result<Option<StopRecord>> {
        StopRecord::find(self.root()).await
    }
}
