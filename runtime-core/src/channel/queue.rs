use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Element, Signal};

/// The number of records that a channel holds before it counts as full.
pub const QUEUE_RECORDS: usize = 8 * super::BATCH_RECORDS;

/// The number of processed batches that are kept: one to fill while another one is processed, and one between.
const MAX_SPENT: usize = 3;

struct Queue<T> {
    elements: VecDeque<Element<T>>,
    records: usize,
    /// Batches that were processed, empty: the sender fills them again.
    spent: Vec<Vec<T>>,
    /// The sender was refused and wants to be told of room.
    refused: bool,
    sender_gone: bool,
    receiver_gone: bool,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Number of queued elements, plus one when the sender is gone: what a receiver may look at without the lock.
    news: AtomicUsize,
    capacity: usize,
    to_sender: Arc<Signal>,
    to_receiver: Arc<Signal>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a channel that holds about `capacity` records, with the signal of either side's subtask.
#[must_use]
pub fn channel<T>(
    capacity: usize,
    to_sender: Arc<Signal>,
    to_receiver: Arc<Signal>,
) -> (Sender<T>, Receiver<T>) {
    let queue = Queue {
        elements: VecDeque::new(),
        records: 0,
        spent: Vec::new(),
        refused: false,
        sender_gone: false,
        receiver_gone: false,
    };
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        news: AtomicUsize::new(0),
        capacity: capacity.max(1),
        to_sender,
        to_receiver,
    });
    (
        Sender {
            shared: Arc::clone(&shared),
        },
        Receiver { shared },
    )
}

/// The end of a channel that elements are put in.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Puts an element at the end; gives a batch back if the channel is full.
    ///
    /// Elements without records always find room: there are few of them, and a watermark replaces the one queued right before it.
    /// What is sent to a receiver that is gone is dropped.
    ///
    /// # Errors
    /// The element itself, when there is no room; the signal is rung when there is.
    pub fn send(&self, element: Element<T>) -> Result<(), Element<T>> {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return Ok(());
        }
        let records = element.records();
        if records > 0 && queue.records >= self.shared.capacity {
            queue.refused = true;
            return Err(element);
        }
        match (queue.elements.back_mut(), &element) {
            (Some(Element::Watermark(last)), Element::Watermark(time)) => *last = *time,
            _ => queue.elements.push_back(element),
        }
        queue.records += records;
        self.shared
            .news
            .store(queue.elements.len(), Ordering::Release);
        drop(queue);
        self.shared.to_receiver.ring();
        Ok(())
    }

    /// Returns the memory of a batch that the receiver is done with, or none.
    #[must_use]
    pub fn recycled(&self) -> Vec<T> {
        self.shared.lock().spent.pop().unwrap_or_default()
    }

    /// Puts an element before all that is queued; it always finds room.
    pub fn send_first(&self, element: Element<T>) {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return;
        }
        queue.records += element.records();
        queue.elements.push_front(element);
        self.shared
            .news
            .store(queue.elements.len(), Ordering::Release);
        drop(queue);
        self.shared.to_receiver.ring();
    }

    /// Lets `f` see what is queued, oldest first.
    pub fn view<R>(&self, f: impl FnOnce(&VecDeque<Element<T>>) -> R) -> R {
        f(&self.shared.lock().elements)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.sender_gone = true;
        self.shared
            .news
            .store(queue.elements.len() + 1, Ordering::Release);
        drop(queue);
        self.shared.to_receiver.ring();
    }
}

/// What a receiver finds.
#[derive(Debug, PartialEq)]
pub enum Received<T> {
    /// The oldest element.
    Element(Element<T>),
    /// Nothing for now.
    Empty,
    /// Nothing ever again: the sender is gone.
    Closed,
}

/// The end of a channel that elements are taken from.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// Takes the oldest element.
    #[must_use]
    pub fn receive(&self) -> Received<T> {
        if self.shared.news.load(Ordering::Acquire) == 0 {
            return Received::Empty;
        }
        let mut queue = self.shared.lock();
        let Some(element) = queue.elements.pop_front() else {
            return if queue.sender_gone {
                Received::Closed
            } else {
                Received::Empty
            };
        };
        queue.records -= element.records();
        let news = queue.elements.len() + usize::from(queue.sender_gone);
        self.shared.news.store(news, Ordering::Release);
        // Half empty before the sender is woken: else the two threads hand over single batches.
        let wake = queue.refused && queue.records <= self.shared.capacity / 2;
        if wake {
            queue.refused = false;
        }
        drop(queue);
        if wake {
            self.shared.to_sender.ring();
        }
        Received::Element(element)
    }

    /// Lets `f` see what is queued, oldest first.
    pub fn view<R>(&self, f: impl FnOnce(&VecDeque<Element<T>>) -> R) -> R {
        f(&self.shared.lock().elements)
    }
}

impl<T> Receiver<T> {
    /// Hands the memory of a batch back to the sender; what is in it is dropped.
    pub fn recycle(&self, mut batch: Vec<T>) {
        batch.clear();
        let mut queue = self.shared.lock();
        if queue.spent.len() < MAX_SPENT && !queue.sender_gone {
            queue.spent.push(batch);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.receiver_gone = true;
        queue.records = 0;
        let dropped = (
            std::mem::take(&mut queue.elements),
            std::mem::take(&mut queue.spent),
        );
        drop(queue);
        drop(dropped);
        self.shared.to_sender.ring();
    }
}
