use std::collections::BTreeMap;

use state_api::{CheckpointId, Error, Result};

use crate::sink::{COMMIT_TRIES, CommitOutcome};

/// The transactions that a sink has ended and not yet committed, by the checkpoint that ended them.
///
/// A transaction whose checkpoint was given up stays in: it is part of every later checkpoint, and the first one that
/// completes commits it.
#[derive(Debug)]
pub struct PendingCommits<T> {
    by_checkpoint: BTreeMap<CheckpointId, Vec<Pending<T>>>,
}

#[derive(Debug)]
struct Pending<T> {
    transaction: T,
    tries: u32,
}

impl<T> Default for PendingCommits<T> {
    fn default() -> Self {
        Self {
            by_checkpoint: BTreeMap::new(),
        }
    }
}

impl<T> PendingCommits<T> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a transaction that was ended for a checkpoint.
    pub fn add(&mut self, id: CheckpointId, transaction: T) {
        let pending = Pending {
            transaction,
            tries: 0,
        };
        self.by_checkpoint.entry(id).or_default().push(pending);
    }

    /// Iterates over the transactions in the order in which they were ended.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_checkpoint
            .values()
            .flatten()
            .map(|pending| &pending.transaction)
    }

    /// Returns the number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_checkpoint.values().map(Vec::len).sum()
    }

    /// Returns whether a checkpoint up to `id` has any.
    #[must_use]
    pub fn any_up_to(&self, id: CheckpointId) -> bool {
        self.by_checkpoint.range(..=id).next().is_some()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_checkpoint.is_empty()
    }

    /// Commits every transaction of checkpoints up to `id`, in order.
    ///
    /// All are tried; those that failed or are to be retried stay in. Returns how many are out of the way.
    ///
    /// # Errors
    /// The first error of `commit`, with the number of others; one to be retried counts as failed at its last try.
    pub fn commit_up_to(
        &mut self,
        id: CheckpointId,
        mut commit: impl FnMut(&T) -> Result<CommitOutcome>,
    ) -> Result<usize> {
        let mut committed = 0;
        let mut first: Option<Error> = None;
        let mut more = 0;
        let mut due = std::mem::take(&mut self.by_checkpoint);
        if let Some(after) = id.0.checked_add(1) {
            self.by_checkpoint = due.split_off(&CheckpointId(after));
        }
        for (checkpoint, transactions) in due {
            for mut pending in transactions {
                pending.tries += 1;
                let failed = match commit(&pending.transaction) {
                    Ok(CommitOutcome::RetryLater(reason)) => {
                        (pending.tries >= COMMIT_TRIES).then(|| reason.with("tries", pending.tries))
                    }
                    Ok(_) => {
                        committed += 1;
                        continue;
                    }
                    Err(error) => Some(error),
                };
                self.by_checkpoint
                    .entry(checkpoint)
                    .or_default()
                    .push(pending);
                if let Some(error) = failed {
                    more += usize::from(first.is_some());
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            None => Ok(committed),
            Some(error) if more == 0 => Err(error.with("checkpoint", id)),
            Some(error) => Err(error.with("checkpoint", id).with("more failures", more)),
        }
    }
}
