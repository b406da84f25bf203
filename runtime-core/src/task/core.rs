use std::collections::{BTreeMap, BTreeSet};

use state_api::{CancelToken, CheckpointId};

/// The number of given up checkpoints that are remembered.
const MAX_ABORTED: usize = 256;

/// How a task treats a checkpoint whose cut it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is older than one that was begun: do nothing.
    Ignore,
    /// It was given up before the cut was reached: pass a cancel marker on instead of a snapshot.
    Cancelled,
    /// Take the snapshot.
    Go,
}

/// What a task remembers about checkpoints.
///
/// Pure: it is told what happened and says what follows.
#[derive(Debug, Default)]
pub struct TaskCore {
    /// The newest checkpoint begun or passed over.
    last: u64,
    completed: u64,
    /// Given up ones that are newer than `last`.
    aborted: BTreeSet<u64>,
    uploads: BTreeMap<u64, CancelToken>,
}

impl TaskCore {
    /// Creates the memory of a task that has seen no checkpoint.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note that the cut of a checkpoint is reached.
    pub fn begin(&mut self, id: CheckpointId) -> Begin {
        if id.0 <= self.last {
            return Begin::Ignore;
        }
        self.last = id.0;
        let cancelled = self.aborted.remove(&id.0);
        self.aborted = self.aborted.split_off(&id.0);
        if cancelled {
            Begin::Cancelled
        } else {
            Begin::Go
        }
    }

    /// Takes note that the async part of a snapshot starts; returns the token that cancels it.
    pub fn upload_started(&mut self, id: CheckpointId) -> CancelToken {
        let token = CancelToken::new();
        self.uploads.insert(id.0, token.clone());
        token
    }

    /// Returns the number of async parts that were started and neither completed nor given up.
    #[must_use]
    pub fn uploads(&self) -> usize {
        self.uploads.len()
    }

    /// Takes note that a checkpoint is complete; returns whether the operators shall be told.
    ///
    /// The same or an older one, delivered again, is no news.
    pub fn complete(&mut self, id: CheckpointId) -> bool {
        self.uploads = self.uploads.split_off(&(id.0 + 1));
        if id.0 <= self.completed {
            return false;
        }
        self.completed = id.0;
        true
    }

    /// Takes note that a checkpoint is given up; cancels its upload if one is in flight.
    ///
    /// If its cut has not been reached, that is remembered (of at most 256 checkpoints, the newest).
    pub fn abort(&mut self, id: CheckpointId) {
        if let Some(token) = self.uploads.remove(&id.0) {
            token.cancel();
        }
        if id.0 > self.last {
            self.aborted.insert(id.0);
            if self.aborted.len() > MAX_ABORTED {
                self.aborted.pop_first();
            }
        }
    }

    /// Returns the number of given up checkpoints that are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.aborted.len()
    }

    /// Cancels every upload: the task ends.
    pub fn close(&mut self) {
        for token in std::mem::take(&mut self.uploads).into_values() {
            token.cancel();
        }
    }
}

impl Drop for TaskCore {
    fn drop(&mut self) {
        self.close();
    }
}
