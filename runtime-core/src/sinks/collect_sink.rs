use std::sync::{Arc, Mutex, PoisonError};

use state_api::Result;

use crate::Record;
use crate::sink::{Sink, SinkContext, SinkWriter};

/// Records that a writer gathers before it takes the lock.
const BATCH: usize = 1024;

/// Collects records in a list that is shared with the program, for tests and small results.
///
/// Records are visible when they are flushed. After a failure they may be there twice; see
/// [`TransactionalCollect`](super::TransactionalCollect).
#[derive(Debug)]
pub struct CollectSink<T> {
    records: Arc<Mutex<Vec<T>>>,
}

impl<T: Clone> CollectSink<T> {
    /// Creates a sink with an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self {
            records: Arc::default(),
        }
    }

    /// Returns a copy of what was collected so far, in the order in which it arrived.
    #[must_use]
    pub fn records(&self) -> Vec<T> {
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<T: Clone> Default for CollectSink<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for CollectSink<T> {
    /// Returns a second handle on the same list.
    fn clone(&self) -> Self {
        Self {
            records: Arc::clone(&self.records),
        }
    }
}

impl<T: Record> Sink for CollectSink<T> {
    type In = T;
    type Writer = CollectWriter<T>;

    fn writer(&self, _: &SinkContext) -> Result<CollectWriter<T>> {
        Ok(CollectWriter {
            batch: Vec::new(),
            records: Arc::clone(&self.records),
        })
    }
}

/// Collects the records of one subtask.
#[derive(Debug)]
pub struct CollectWriter<T> {
    batch: Vec<T>,
    records: Arc<Mutex<Vec<T>>>,
}

impl<T: 'static> SinkWriter for CollectWriter<T> {
    type In = T;

    fn write(&mut self, record: T, _: Option<i64>) -> Result<()> {
        self.batch.push(record);
        if self.batch.len() >= BATCH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.records
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .append(&mut self.batch);
        }
        Ok(())
    }
}
