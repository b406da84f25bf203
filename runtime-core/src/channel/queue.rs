use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::CheckpointId;

use super::{Barrier, BarrierMode, Element, Signal};

/// The number of records that a channel holds before it counts as full.
pub const QUEUE_RECORDS: usize = 8 * super::BATCH_RECORDS;

/// The number of processed batches that are kept: one to fill while another one is processed, and one between.
const MAX_SPENT: usize = 3;

/// What a channel brings beside its queue. Elements are numbered from 0 in the order in which they are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// A barrier that overtook the elements before number `cut`; those from `cut` on come after it.
    Barrier {
        /// The barrier.
        barrier: Barrier,
        /// The number of the first element behind it.
        cut: u64,
    },
    /// A barrier that overtakes after a timeout has been queued; see [`Receiver::pull_barrier`].
    Announced(Barrier),
}

struct Queue<T> {
    elements: VecDeque<Element<T>>,
    /// The number of the first element.
    taken: u64,
    urgent: VecDeque<Urgent>,
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
    /// Number of urgent messages, likewise.
    urgent: AtomicUsize,
    capacity: usize,
    /// Whether barriers may overtake.
    overtakes: AtomicBool,
    to_sender: Arc<Signal>,
    to_receiver: Arc<Signal>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_urgent(&self, queue: &mut Queue<T>, urgent: Urgent) {
        queue.urgent.push_back(urgent);
        self.urgent.store(queue.urgent.len(), Ordering::Release);
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
        taken: 0,
        urgent: VecDeque::new(),
        records: 0,
        spent: Vec::new(),
        refused: false,
        sender_gone: false,
        receiver_gone: false,
    };
    let shared = Arc::new(Shared {
        queue: Mutex::new(queue),
        news: AtomicUsize::new(0),
        urgent: AtomicUsize::new(0),
        capacity: capacity.max(1),
        overtakes: AtomicBool::new(false),
        to_sender,
        to_receiver,
    });
    (
        Sender {
            shared: Arc::clone(&shared),
        },
        Receiver {
            shared,
            taken: Cell::new(0),
        },
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

    /// Returns whether barriers may overtake what is queued here: its receiver makes records in flight part of a checkpoint.
    #[must_use]
    pub fn overtakes(&self) -> bool {
        self.shared.overtakes.load(Ordering::Relaxed)
    }

    /// Queues what was kept back, whether there is room or not, and lets a barrier pass it and all that was queued before.
    ///
    /// A barrier with a timeout is queued behind them instead, and announced.
    pub fn send_past(&self, kept_back: impl IntoIterator<Item = Element<T>>, barrier: Barrier) {
        let mut queue = self.shared.lock();
        if queue.receiver_gone {
            return;
        }
        for element in kept_back {
            queue.records += element.records();
            queue.elements.push_back(element);
        }
        let cut = queue.taken + queue.elements.len() as u64;
        if matches!(barrier.mode, BarrierMode::AlignedWithTimeout(_)) {
            queue.elements.push_back(Element::Barrier(barrier));
            self.shared
                .put_urgent(&mut queue, Urgent::Announced(barrier));
        } else {
            self.shared
                .put_urgent(&mut queue, Urgent::Barrier { barrier, cut });
        }
        self.shared
            .news
            .store(queue.elements.len(), Ordering::Release);
        drop(queue);
        self.shared.to_receiver.call();
    }

    /// Returns whether there is room for a batch; if not, the signal is rung when there is.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let mut queue = self.shared.lock();
        let full = queue.records >= self.shared.capacity && !queue.receiver_gone;
        queue.refused |= full;
        !full
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
    /// The number of elements taken, as it was when the last one was.
    taken: Cell<u64>,
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
        queue.taken += 1;
        self.taken.set(queue.taken);
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

    /// Returns the number of elements taken so far; the one taken last has this number less one.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Lets barriers overtake what is queued, because the receiver will make it part of their checkpoint.
    pub fn let_overtake(&self) {
        self.shared.overtakes.store(true, Ordering::Relaxed);
    }

    /// Takes the oldest of what does not wait in line.
    #[must_use]
    pub fn receive_urgent(&self) -> Option<Urgent> {
        if self.shared.urgent.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.shared.lock();
        let urgent = queue.urgent.pop_front();
        self.shared
            .urgent
            .store(queue.urgent.len(), Ordering::Release);
        urgent
    }

    /// Takes the queued barrier of a checkpoint out of the line, as if it had overtaken what is before it.
    ///
    /// Later elements are numbered as if it had never been in line.
    #[must_use]
    pub fn pull_barrier(&self, id: CheckpointId) -> Option<(Barrier, u64)> {
        let mut queue = self.shared.lock();
        let position = position_of(&queue.elements, id)?;
        let Some(Element::Barrier(barrier)) = queue.elements.remove(position) else {
            return None;
        };
        let news = queue.elements.len() + usize::from(queue.sender_gone);
        self.shared.news.store(news, Ordering::Release);
        Some((barrier, queue.taken + position as u64))
    }

    /// Shows `f` the queued records from element `from` on that were sent before the barrier of a checkpoint: all there are
    /// if that has not come. Returns the number of the first element that `f` was not asked about.
    ///
    /// `cut` is the number of the first element behind the barrier, if it was taken.
    pub fn read_before(
        &self,
        id: CheckpointId,
        from: u64,
        cut: Option<u64>,
        mut f: impl FnMut(&[T]),
    ) -> u64 {
        let queue = self.shared.lock();
        let passed = queue.urgent.iter().find_map(|urgent| match urgent {
            Urgent::Barrier { barrier, cut } if barrier.id == id => Some(*cut),
            _ => None,
        });
        let in_line = || position_of(&queue.elements, id).map(|at| queue.taken + at as u64);
        let end = queue.taken + queue.elements.len() as u64;
        let cut = cut.or(passed).or_else(in_line).unwrap_or(end).min(end);
        let numbered = (queue.taken..).zip(&queue.elements);
        for (_, element) in numbered.filter(|(number, _)| (from..cut).contains(number)) {
            if let Element::Batch(records) = element {
                f(records);
            }
        }
        cut.max(from)
    }
}

/// Returns where the barrier of a checkpoint is in line.
fn position_of<T>(elements: &VecDeque<Element<T>>, id: CheckpointId) -> Option<usize> {
    elements
        .iter()
        .position(|element| matches!(element, Element::Barrier(barrier) if barrier.id == id))
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
