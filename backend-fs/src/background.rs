use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{CheckpointId, Error};

/// What became of the bases that a subtask has written in the background. Clones see the same.
///
/// A base that can't be written is tried again with a later checkpoint. Each failure is a warning, and counted in
/// `holdfast_fs_failed_bases_total`; written ones are counted in `holdfast_fs_bases_total`.
#[derive(Clone, Default)]
pub struct BackgroundBases {
    shared: Arc<Mutex<Counts>>,
    /// Names the subtask.
    subtask: Arc<str>,
}

#[derive(Default)]
struct Counts {
    written: u64,
    failed: u64,
    last_error: Option<Arc<Error>>,
}

impl BackgroundBases {
    pub(crate) fn of(subtask: Arc<str>) -> Self {
        Self {
            shared: Arc::default(),
            subtask,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bases that were written and could be built upon.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().written
    }

    /// Returns the number of bases that could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.lock().failed
    }

    /// Returns why the last base was not written; `None` if it was.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<Error>> {
        self.lock().last_error.clone()
    }

    pub(crate) fn written(&self) {
        metrics::counter!("holdfast_fs_bases_total").increment(1);
        let mut counts = self.lock();
        counts.written += 1;
        counts.last_error = None;
    }

    pub(crate) fn failed(&self, cut: CheckpointId, error: Error) {
        metrics::counter!("holdfast_fs_failed_bases_total").increment(1);
        let mut counts = self.lock();
        counts.failed += 1;
        let failures = counts.failed;
        tracing::warn!(subtask = &*self.subtask, checkpoint = cut.0, failures, %error, "a base can't be written: checkpoints go on top of the old one, and a later one tries again");
        counts.last_error = Some(Arc::new(error));
    }
}

impl fmt::Debug for BackgroundBases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.lock();
        f.debug_struct("BackgroundBases")
            .field("subtask", &self.subtask)
            .field("written", &counts.written)
            .field("failed", &counts.failed)
            .field("last_error", &counts.last_error)
            .finish()
    }
}
