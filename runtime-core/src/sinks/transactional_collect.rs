use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{CheckpointId, Error, Result, StateType};

use super::all_recovered::AllRecovered;
use crate::Record;
use crate::sink::{CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter};

/// Collects records in a list that is shared with the program, each record once: they are visible when their checkpoint is complete.
///
/// Transactions live in memory. They outlive restarts of the job within the process, not the process.
#[derive(Debug)]
pub struct TransactionalCollect<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    contents: Mutex<Contents<T>>,
    recovered: AllRecovered,
}

#[derive(Debug)]
struct Contents<T> {
    visible: Vec<T>,
    /// Ended transactions; `None` when it is committed.
    ended: BTreeMap<CollectedTransaction, Option<Vec<T>>>,
}

/// Names a transaction of a [`TransactionalCollect`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, StateType)]
pub struct CollectedTransaction {
    /// Attempt of the job.
    pub attempt: u64,
    /// Run within the attempt.
    pub run: u32,
    /// Subtask that wrote it.
    pub subtask: u32,
    /// Number within the run of the subtask, from 0.
    pub sequence: u64,
}

impl<T: Clone> TransactionalCollect<T> {
    /// Creates a sink with an empty list.
    #[must_use]
    pub fn new() -> Self {
        let contents = Mutex::new(Contents {
            visible: Vec::new(),
            ended: BTreeMap::new(),
        });
        Self {
            shared: Arc::new(Shared {
                contents,
                recovered: AllRecovered::default(),
            }),
        }
    }

    /// Returns a copy of what is visible, in the order in which it was committed.
    #[must_use]
    pub fn records(&self) -> Vec<T> {
        self.shared.contents().visible.clone()
    }

    /// Returns how many transactions are ended and not committed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared
            .contents()
            .ended
            .values()
            .filter(|records| records.is_some())
            .count()
    }
}

impl<T: Clone> Default for TransactionalCollect<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for TransactionalCollect<T> {
    /// Returns a second handle on the same list.
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Shared<T> {
    fn contents(&self) -> MutexGuard<'_, Contents<T>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Record> TwoPhaseSink for TransactionalCollect<T> {
    type In = T;
    type Transaction = CollectedTransaction;
    type Writer = TransactionalCollectWriter<T>;

    fn writer(&self, cx: &SinkContext) -> Result<TransactionalCollectWriter<T>> {
        Ok(TransactionalCollectWriter {
            shared: Arc::clone(&self.shared),
            cx: cx.clone(),
            open: Vec::new(),
            sequence: 0,
        })
    }
}

/// Collects the records of one subtask.
#[derive(Debug)]
pub struct TransactionalCollectWriter<T> {
    shared: Arc<Shared<T>>,
    cx: SinkContext,
    open: Vec<T>,
    sequence: u64,
}

impl<T: 'static> TwoPhaseWriter for TransactionalCollectWriter<T> {
    type In = T;
    type Transaction = CollectedTransaction;

    fn write(&mut self, record: T, _: Option<i64>) -> Result<()> {
        self.open.push(record);
        Ok(())
    }

    fn pre_commit(
        &mut self,
        _: CheckpointId,
    ) -> Result<Option<PreCommitted<CollectedTransaction>>> {
        if self.open.is_empty() {
            return Ok(None);
        }
        let transaction = CollectedTransaction {
            attempt: self.cx.attempt.0,
            run: self.cx.run,
            subtask: self.cx.subtask.index,
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.shared
            .contents()
            .ended
            .insert(transaction.clone(), Some(std::mem::take(&mut self.open)));
        Ok(Some(PreCommitted {
            transaction,
            harden: None,
        }))
    }

    fn commit(&mut self, transaction: &CollectedTransaction) -> Result<CommitOutcome> {
        let mut contents = self.shared.contents();
        let Some(records) = contents.ended.get_mut(transaction) else {
            return Err(
                Error::corrupt("a transaction that a checkpoint names is not in memory")
                    .with("sink", &self.cx.uid)
                    .with("transaction", transaction.to_value()),
            );
        };
        // Repeating a commit finds nothing left to do.
        let Some(records) = records.take() else {
            return Ok(CommitOutcome::AlreadyCommitted);
        };
        contents.visible.extend(records);
        Ok(CommitOutcome::Committed)
    }

    fn recover_and_abort(&mut self, _: &CollectedTransaction) -> Result<()> {
        // An open transaction ended with its writer.
        Ok(())
    }

    fn recovered(&mut self) -> Result<()> {
        if self.shared.recovered.arrive(&self.cx) {
            let run = (self.cx.attempt.0, self.cx.run);
            // What no checkpoint named is nobody's now; committed ones stay known, so that a commit may be repeated.
            self.shared.contents().ended.retain(|transaction, records| {
                records.is_none() || (transaction.attempt, transaction.run) >= run
            });
        }
        Ok(())
    }
}
