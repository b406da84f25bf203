use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Barrier, BarrierMode, Element, Sender};

/// The number of records in a full batch.
pub const BATCH_RECORDS: usize = 1024;

/// Gathers records into batches for one channel and keeps what the channel has no room for.
///
/// A record is always taken; the owner looks at the `congested` flag, which all writers of a subtask share, and stops
/// taking in more until [`pump`](BatchWriter::pump) has handed the backlog over.
pub struct BatchWriter<T> {
    sender: Sender<T>,
    batch: Vec<T>,
    backlog: VecDeque<Element<T>>,
    /// A barrier pushed the backlog into the full channel: nothing more before it has room.
    overfull: bool,
    congested: Rc<Cell<bool>>,
}

impl<T> BatchWriter<T> {
    /// Creates a writer that sets `congested` when its channel is full.
    #[must_use]
    pub fn new(sender: Sender<T>, congested: Rc<Cell<bool>>) -> Self {
        Self {
            sender,
            batch: Vec::new(),
            backlog: VecDeque::new(),
            overfull: false,
            congested,
        }
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, record: T) {
        if self.batch.capacity() == 0 {
            self.begin();
        }
        self.batch.push(record);
        if self.batch.len() >= BATCH_RECORDS {
            self.flush();
        }
    }

    /// Begins a batch, in memory that held one before if there is some.
    #[cold]
    fn begin(&mut self) {
        self.batch = self.sender.recycled();
        self.batch.reserve_exact(BATCH_RECORDS);
    }

    /// Sends the records gathered so far.
    pub fn flush(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.send(Element::Batch(batch));
        }
    }

    /// Sends the records gathered so far, and an element behind them.
    pub fn push_element(&mut self, element: Element<T>) {
        self.flush();
        self.send(element);
    }

    /// Sends a barrier the way it passes records: behind all that was pushed, or before.
    pub fn push_barrier(&mut self, barrier: Barrier) {
        if barrier.mode == BarrierMode::Aligned {
            return self.push_element(Element::Barrier(barrier));
        }
        if !self.sender.overtakes() {
            return self.push_element(Element::Barrier(barrier.force_aligned()));
        }
        self.flush();
        self.overfull |= !self.backlog.is_empty();
        self.sender.send_past(self.backlog.drain(..), barrier);
    }

    fn send(&mut self, element: Element<T>) {
        if self.backlog.is_empty() {
            match self.sender.send(element) {
                Ok(()) => return,
                Err(refused) => self.backlog.push_back(refused),
            }
        } else {
            self.backlog.push_back(element);
        }
        self.congested.set(true);
    }

    /// Hands the backlog over as far as there is room; returns whether it is empty now.
    pub fn pump(&mut self) -> bool {
        while let Some(element) = self.backlog.pop_front() {
            if let Err(refused) = self.sender.send(element) {
                self.backlog.push_front(refused);
                return false;
            }
        }
        self.overfull = self.overfull && !self.sender.has_room();
        !self.overfull
    }

    /// Returns whether everything that was pushed is in the channel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.backlog.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Received, Signal, channel};
    use super::*;

    #[test]
    fn the_memory_of_a_batch_that_was_processed_holds_a_later_one() {
        let (sender, receiver) = channel(4 * BATCH_RECORDS, Signal::new(), Signal::new());
        let mut writer = BatchWriter::new(sender, Rc::default());
        let mut next = || {
            writer.push(7_u64);
            writer.flush();
            match receiver.receive() {
                Received::Element(Element::Batch(batch)) => batch,
                other => panic!("no batch but {other:?}"),
            }
        };
        let first = next();
        let place = first.as_ptr();
        receiver.recycle(first);
        let second = next();
        assert_eq!((second.as_slice(), second.as_ptr()), (&[7][..], place));
        let third = next();
        assert_ne!(third.as_ptr(), place);
    }
}
