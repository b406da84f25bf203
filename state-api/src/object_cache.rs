use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The memory that the object caches of a process may take together, in bytes.
///
/// The caches of all subtasks draw from it in steps and give back what they don't need. A subtask may take more than its
/// even part while nobody else asks for it; once somebody does, it gives the excess back.
///
/// All methods may be called from any thread.
#[derive(Debug)]
pub struct ObjectCacheBudget {
    capacity: AtomicUsize,
    drawn: AtomicUsize,
    members: AtomicUsize,
    wanted: AtomicBool,
}

impl ObjectCacheBudget {
    /// Creates a budget of so many bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicUsize::new(capacity),
            drawn: AtomicUsize::new(0),
            members: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
        })
    }

    /// Returns the bytes that all caches may take together.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity. Caches that have drawn more give it back as they are used.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
        if self.drawn() > bytes {
            self.want();
        }
    }

    /// Returns the bytes that caches have drawn.
    #[must_use]
    pub fn drawn(&self) -> usize {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Returns by how many bytes caches draw and give back.
    #[must_use]
    pub fn step(&self) -> usize {
        (self.capacity() / 64).clamp(256, 1 << 20)
    }

    /// Returns the even part of each member in bytes.
    #[must_use]
    pub fn even_part(&self) -> usize {
        self.capacity() / self.members.load(Ordering::Relaxed).max(1)
    }

    /// Takes bytes out of the budget, if they are there; says whether it did.
    #[must_use]
    pub fn draw(&self, bytes: usize) -> bool {
        let capacity = self.capacity();
        self.drawn
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |drawn| {
                drawn.checked_add(bytes).filter(|sum| *sum <= capacity)
            })
            .is_ok()
    }

    /// Puts drawn bytes back.
    pub fn give_back(&self, bytes: usize) {
        self.drawn.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a cache as one that shares the budget.
    pub fn join(&self) {
        self.members.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a cache no longer.
    pub fn leave(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks those who have more than their even part to give back.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Says whether somebody asked since the last [`satisfy`](Self::satisfy).
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Notes that somebody gave back.
    pub fn satisfy(&self) {
        if self.drawn() <= self.capacity() {
            self.wanted.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_drawn_than_there_is() {
        let budget = ObjectCacheBudget::new(1_000);
        assert!(budget.draw(600));
        assert!(!budget.draw(401));
        assert!(budget.draw(400));
        assert_eq!(budget.drawn(), 1_000);
        budget.give_back(500);
        assert!(budget.draw(500));
        assert!(!budget.draw(usize::MAX));
    }

    #[test]
    fn a_smaller_capacity_asks_for_what_is_over() {
        let budget = ObjectCacheBudget::new(1_000);
        budget.join();
        budget.join();
        assert_eq!(budget.even_part(), 500);
        assert!(budget.draw(1_000));
        budget.set_capacity(600);
        assert!(budget.is_wanted());
        budget.give_back(200);
        budget.satisfy();
        assert!(budget.is_wanted());
        budget.give_back(200);
        budget.satisfy();
        assert!(!budget.is_wanted());
    }
}
