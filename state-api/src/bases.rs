use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::CheckpointId;

/// What increments may build upon: what the last checkpoint that was *reported complete* has written, and nothing else.
///
/// `T` is what a backend must know of a checkpoint to build on it: its objects, a position in a log of changes. A backend
/// hands on what it learns; late and repeated notices, and notices about checkpoints that it did not take, change nothing.
/// Savepoints are never built upon: they are not told to it at all. Clones share what they know, so that the async part of a
/// snapshot reports through one.
pub struct Bases<T> {
    shared: Arc<Mutex<Known<T>>>,
}

struct Known<T> {
    base: Option<Arc<T>>,
    /// The checkpoint that the base is of; `None` for what was restored, which is older than all.
    completed: Option<CheckpointId>,
    pending: BTreeMap<CheckpointId, Pending<T>>,
    /// Those of the pending ones that build on nothing.
    whole: BTreeSet<CheckpointId>,
}

/// What becomes of a checkpoint that was cut.
enum Pending<T> {
    Writing,
    Written(Arc<T>),
    /// Reported complete while a task still had to note what was written.
    CompletedEarly,
}

impl<T> Bases<T> {
    /// Starts without anything to build upon.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_from(None)
    }

    /// Starts from what was restored.
    #[must_use]
    pub fn restored(base: T) -> Self {
        Self::starting_from(Some(Arc::new(base)))
    }

    fn starting_from(base: Option<Arc<T>>) -> Self {
        let known = Known {
            base,
            completed: None,
            pending: BTreeMap::new(),
            whole: BTreeSet::new(),
        };
        Self {
            shared: Arc::new(Mutex::new(known)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the last checkpoint that was reported complete has written.
    #[must_use]
    pub fn base(&self) -> Option<Arc<T>> {
        self.lock().base.clone()
    }

    /// Returns what a checkpoint that is cut now may build upon: the base, unless a checkpoint that builds on nothing is on its
    /// way. Once that one is complete nobody needs the base, and its objects may be deleted before the notice is here.
    #[must_use]
    pub fn to_build_upon(&self) -> Option<Arc<T>> {
        let known = self.lock();
        known.base.clone().filter(|_| known.whole.is_empty())
    }

    /// Learns that a checkpoint was cut: its async part is on its way.
    pub fn cut(&self, checkpoint: CheckpointId) {
        self.lock().pending.insert(checkpoint, Pending::Writing);
    }

    /// Learns that a checkpoint was cut that builds on nothing.
    pub fn cut_whole(&self, checkpoint: CheckpointId) {
        self.cut(checkpoint);
        self.lock().whole.insert(checkpoint);
    }

    /// Learns that all of a checkpoint is written; one that was given up meanwhile stays forgotten.
    pub fn written(&self, checkpoint: CheckpointId, written: T) {
        let mut known = self.lock();
        let Some(pending) = known.pending.get_mut(&checkpoint) else {
            return;
        };
        let completed = matches!(pending, Pending::CompletedEarly);
        *pending = Pending::Written(Arc::new(written));
        if completed {
            known.completed(checkpoint);
        }
    }

    /// Learns that a checkpoint is complete.
    pub fn completed(&self, checkpoint: CheckpointId) {
        self.lock().completed(checkpoint);
    }

    /// Learns that a checkpoint will never complete.
    pub fn aborted(&self, checkpoint: CheckpointId) {
        let mut known = self.lock();
        known.pending.remove(&checkpoint);
        known.whole.remove(&checkpoint);
    }
}

impl<T> Known<T> {
    fn completed(&mut self, checkpoint: CheckpointId) {
        match self.pending.get_mut(&checkpoint) {
            Some(Pending::Written(written)) => {
                self.base = Some(Arc::clone(written));
                self.completed = Some(checkpoint);
                // Older ones can't become a base any more.
                self.pending = self.pending.split_off(&checkpoint);
                self.pending.remove(&checkpoint);
                self.whole.retain(|whole| *whole > checkpoint);
            }
            Some(pending) => *pending = Pending::CompletedEarly,
            None => {}
        }
    }
}

impl<T> Clone for Bases<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> Default for Bases<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Bases<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.lock();
        f.debug_struct("Bases")
            .field("completed", &known.completed)
            .field("pending", &known.pending.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(bases: &Bases<u64>) -> Option<u64> {
        bases.base().map(|base| *base)
    }

    fn write(bases: &Bases<u64>, checkpoint: u64) {
        bases.cut(CheckpointId(checkpoint));
        bases.written(CheckpointId(checkpoint), checkpoint);
    }

    #[test]
    fn k_242_what_is_written_is_no_base_before_it_is_complete() {
        let bases = Bases::new();
        write(&bases, 1);
        assert_eq!(base(&bases), None);
        bases.completed(CheckpointId(1));
        assert_eq!(base(&bases), Some(1));
        let bases = Bases::restored(100);
        write(&bases, 1);
        assert_eq!(base(&bases), Some(100));
    }

    #[test]
    fn k_243_late_and_repeated_notices_do_not_move_the_base_back() {
        let bases = Bases::new();
        for checkpoint in 1..=3 {
            write(&bases, checkpoint);
        }
        for (completed, expected) in [(2, 2), (1, 2), (2, 2), (3, 3), (3, 3), (1, 3)] {
            bases.completed(CheckpointId(completed));
            assert_eq!(base(&bases), Some(expected), "after {completed}");
        }
    }

    #[test]
    fn k_244_a_notice_about_a_checkpoint_that_is_not_tracked_changes_nothing() {
        let bases = Bases::new();
        write(&bases, 1);
        bases.completed(CheckpointId(1));
        bases.completed(CheckpointId(7));
        bases.written(CheckpointId(7), 7);
        assert_eq!(base(&bases), Some(1));
    }

    #[test]
    fn k_245_an_aborted_checkpoint_is_never_a_base() {
        let bases = Bases::new();
        write(&bases, 1);
        bases.completed(CheckpointId(1));
        write(&bases, 2);
        bases.aborted(CheckpointId(2));
        bases.completed(CheckpointId(2));
        bases.cut(CheckpointId(3));
        bases.aborted(CheckpointId(3));
        bases.written(CheckpointId(3), 3);
        bases.completed(CheckpointId(3));
        assert_eq!(base(&bases), Some(1));
    }

    #[test]
    fn nothing_is_built_upon_while_a_checkpoint_is_on_its_way_that_replaces_all_there_is() {
        let upon = |bases: &Bases<u64>| bases.to_build_upon().map(|base| *base);
        let bases = Bases::restored(100);
        write(&bases, 1);
        assert_eq!(upon(&bases), Some(100));
        bases.cut_whole(CheckpointId(2));
        assert_eq!((upon(&bases), base(&bases)), (None, Some(100)));
        bases.written(CheckpointId(2), 2);
        assert_eq!(upon(&bases), None);
        bases.completed(CheckpointId(1));
        assert_eq!((upon(&bases), base(&bases)), (None, Some(1)));
        bases.aborted(CheckpointId(2));
        assert_eq!(upon(&bases), Some(1));
        bases.cut_whole(CheckpointId(3));
        bases.completed(CheckpointId(3));
        assert_eq!(upon(&bases), None);
        bases.written(CheckpointId(3), 3);
        assert_eq!(upon(&bases), Some(3));
        // One whose end nobody told is over when a later one is complete.
        bases.cut_whole(CheckpointId(4));
        write(&bases, 5);
        bases.completed(CheckpointId(5));
        assert_eq!(upon(&bases), Some(5));
    }

    #[test]
    fn a_checkpoint_that_completes_before_its_task_has_noted_it_becomes_the_base_then() {
        let bases = Bases::new();
        bases.cut(CheckpointId(1));
        bases.completed(CheckpointId(1));
        assert_eq!(base(&bases), None);
        bases.written(CheckpointId(1), 1);
        assert_eq!(base(&bases), Some(1));
    }
}
