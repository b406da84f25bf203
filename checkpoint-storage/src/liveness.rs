//! Whether an attempt of a job still runs: asked before its job folder is taken from it.
use state_api::{Attempt, ErrorKind, Result};

use crate::job_store::{JobStore, last_attempt};
use crate::layout::ATTEMPTS;
use crate::root::StoreRoot;
use crate::store::Held;

/// What follows the number of an attempt that has ended.
pub(crate) const ENDED: &str = "-ended";

/// Whether the last attempt of a job still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The folder has seen no attempt.
    NeverRan,
    /// It has said that it ended.
    Ended(Attempt),
    /// No process holds its number: it has ended, whether or not it could say so.
    Gone(Attempt),
    /// A process holds its number.
    Runs(Attempt),
    /// The store can't tell, and the attempt has not said that it ended: it runs, or was killed.
    Unknown(Attempt),
}

impl Liveness {
    /// Looks whether the last attempt of the job whose folder this is still runs.
    ///
    /// # Errors
    /// `Retryable` when the store fails.
    pub async fn of(job: &StoreRoot) -> Result<Self> {
        let Some(last) = last_attempt(job).await? else {
            return Ok(Self::NeverRan);
        };
        let path = format!("{ATTEMPTS}/{last}");
        if job.len(&format!("{path}{ENDED}")).await?.is_some() {
            return Ok(Self::Ended(last));
        }
        Ok(match job.held(&path).await? {
            Held::BySomebody => Self::Runs(last),
            Held::ByNobody => Self::Gone(last),
            Held::Unknown => Self::Unknown(last),
        })
    }

    /// Returns whether the folder can be taken without stopping a job that runs.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::NeverRan | Self::Ended(_) | Self::Gone(_))
    }

    /// Returns the last attempt.
    #[must_use]
    pub fn attempt(self) -> Option<Attempt> {
        match self {
            Self::NeverRan => None,
            Self::Ended(last) | Self::Gone(last) | Self::Runs(last) | Self::Unknown(last) => {
                Some(last)
            }
        }
    }
}

impl JobStore {
    /// Notes that this attempt has ended and touches nothing more: whoever cleans up need not ask whether it still runs.
    ///
    /// # Errors
    /// `Fenced` when a higher attempt has begun, to which the folder belongs; `Retryable` when the store fails.
    pub async fn end(&self) -> Result<()> {
        self.check_fenced().await?;
        let path = format!("{ATTEMPTS}/{}{ENDED}", self.attempt);
        match self.root.publish(&path, "holdfast: ended\n".into()).await {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }
}
