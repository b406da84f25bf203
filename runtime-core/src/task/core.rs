use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

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
    /// Each goes with its upload: a savepoint's goes on when later checkpoints complete, and nobody tells of its end.
    uploads: BTreeMap<u64, Weak<CancelToken>>,
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

    /// Takes note that the async part of a snapshot starts; returns the token that cancels it, to be held until it has ended.
    pub fn upload_started(&mut self, id: CheckpointId) -> Arc<CancelToken> {
        let token = Arc::new(CancelToken::new());
        self.uploads.retain(|_, token| token.strong_count() > 0);
        self.uploads.insert(id.0, Arc::downgrade(&token));
        token
    }

    /// Returns the number of async parts that go on and were not given up.
    #[must_use]
    pub fn uploads(&self) -> usize {
        let tokens = self.uploads.values();
        tokens.filter(|token| token.strong_count() > 0).count()
    }

    /// Takes note that a checkpoint is complete; returns whether the operators shall be told.
    ///
    /// The same or an older one, delivered again, is no news.
    pub fn complete(&mut self, id: CheckpointId) -> bool {
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
        if let Some(token) = self.uploads.remove(&id.0).and_then(|t| t.upgrade()) {
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
        let tokens = std::mem::take(&mut self.uploads).into_values();
        tokens
            .filter_map(|token| token.upgrade())
            .for_each(|token| token.cancel());
    }
}

impl Drop for TaskCore {
    fn drop(&mut self) {
        self.close();
    }
}
