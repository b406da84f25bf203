use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;
use rocksdb::event_listener::{
    DBBackgroundErrorReason, EventListener, FlushJobInfo, MutableStatus,
};

use crate::database::MARKS;

/// What became of memory that is written to a file: `Err` has RocksDB's words.
pub(crate) type Flushed = oneshot::Receiver<Result<(), String>>;

/// Knows which marks have been flushed, and so everything that was written before them: all columns are flushed in one step.
#[derive(Clone, Default)]
pub(crate) struct Flushes {
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The greatest number of a change in a file of marks.
    flushed: u64,
    /// How often RocksDB said that a flush or compaction failed.
    failures: u64,
    /// What it said the last time.
    failure: String,
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), String>>>,
}

impl Flushes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often something failed, to be asked before a mark is written.
    pub(crate) fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Returns what resolves when the mark with this number of a change is in a file, or can't be brought there: also for a
    /// failure since there were so many of them, after which RocksDB does nothing more and would say nothing more.
    pub(crate) fn of(&self, sequence: u64, failures: u64) -> Flushed {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        // The receiver is here.
        if sequence <= state.flushed {
            drop(sender.send(Ok(())));
        } else if state.failures != failures {
            drop(sender.send(Err(state.failure.clone())));
        } else {
            state.waiting.insert(sequence, sender);
        }
        receiver
    }

    fn reached(&self, sequence: u64) {
        let mut state = self.lock();
        state.flushed = state.flushed.max(sequence);
        let later = state.waiting.split_off(&(sequence + 1));
        for (_, waiting) in std::mem::replace(&mut state.waiting, later) {
            // One that is gone was cancelled.
            drop(waiting.send(Ok(())));
        }
    }

    fn failed(&self, error: &str) {
        let mut state = self.lock();
        state.failures += 1;
        error.clone_into(&mut state.failure);
        for (_, waiting) in std::mem::take(&mut state.waiting) {
            drop(waiting.send(Err(error.to_owned())));
        }
    }
}

impl EventListener for Flushes {
    fn on_flush_completed(&self, flush: &FlushJobInfo) {
        if flush.cf_name().is_some_and(|name| name == MARKS.as_bytes()) {
            self.reached(flush.largest_seqno());
        }
    }

    fn on_background_error(&self, _: DBBackgroundErrorReason, status: MutableStatus) {
        if let Err(error) = status.result() {
            self.failed(error.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_flushed_with_any_later_one_and_a_failure_reaches_all_that_wait() {
        let flushes = Flushes::default();
        let (mut first, mut second) = (flushes.of(3, 0), flushes.of(7, 0));
        flushes.reached(5);
        assert_eq!(first.try_recv(), Ok(Some(Ok(()))));
        assert_eq!(second.try_recv(), Ok(None));
        assert_eq!(flushes.of(5, 0).try_recv(), Ok(Some(Ok(()))));
        flushes.failed("no room");
        assert_eq!(second.try_recv(), Ok(Some(Err("no room".to_owned()))));
        // The next one is another matter.
        let mut third = flushes.of(9, flushes.failures());
        assert_eq!(third.try_recv(), Ok(None));
        // For one that was written before the failure it is over.
        let too_late = flushes.of(8, 0).try_recv();
        assert_eq!(too_late, Ok(Some(Err("no room".to_owned()))));
        flushes.reached(9);
        assert_eq!(third.try_recv(), Ok(Some(Ok(()))));
    }
}
