use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{CheckpointId, StateHandle};

/// The objects that hold files of the local database, by number of the file.
///
/// A number is never given to another file of the same database, so that the same number means the same bytes.
pub(crate) type Objects = BTreeMap<u64, StateHandle>;

/// What becomes of a checkpoint that was cut.
enum Pending {
    /// Nobody knows its objects yet.
    Writing,
    /// All of it is written; it is not known to be complete.
    Written(Arc<Objects>),
    /// It was reported complete while a task still had to note what was written.
    CompletedEarly,
}

/// Which objects later checkpoints may build upon: those of the last checkpoint that was reported complete, and no others.
#[derive(Default)]
pub(crate) struct Bases {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    base: Arc<Objects>,
    /// The checkpoint that the base is of; `None` for what was restored, which is older than all.
    completed: Option<CheckpointId>,
    pending: BTreeMap<CheckpointId, Pending>,
}

impl Bases {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a checkpoint may build upon now.
    pub(crate) fn base(&self) -> Arc<Objects> {
        Arc::clone(&self.lock().base)
    }

    /// Starts from restored files.
    pub(crate) fn restored(&self, objects: Objects) {
        *self.lock() = State {
            base: Arc::new(objects),
            ..State::default()
        };
    }

    /// Learns that a checkpoint was cut.
    pub(crate) fn cut(&self, checkpoint: CheckpointId) {
        self.lock().pending.insert(checkpoint, Pending::Writing);
    }

    /// Learns that a checkpoint is written; one that was given up meanwhile is forgotten.
    pub(crate) fn written(&self, checkpoint: CheckpointId, objects: Objects) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(pending) = state.pending.get_mut(&checkpoint) else {
            return;
        };
        let was_completed = matches!(pending, Pending::CompletedEarly);
        *pending = Pending::Written(Arc::new(objects));
        if was_completed {
            state.completed(checkpoint);
        }
    }

    /// Learns that a checkpoint is complete. One that is not tracked, such as a savepoint, changes nothing.
    pub(crate) fn completed(&self, checkpoint: CheckpointId) {
        self.lock().completed(checkpoint);
    }

    /// Learns that a checkpoint will never complete.
    pub(crate) fn aborted(&self, checkpoint: CheckpointId) {
        self.lock().pending.remove(&checkpoint);
    }
}

impl State {
    fn completed(&mut self, checkpoint: CheckpointId) {
        match self.pending.get_mut(&checkpoint) {
            Some(Pending::Written(objects)) => {
                let is_newest = self.completed.is_none_or(|last| last < checkpoint);
                if is_newest {
                    self.base = Arc::clone(objects);
                    self.completed = Some(checkpoint);
                    // Older ones can't become a base any more.
                    self.pending = self.pending.split_off(&checkpoint);
                }
                self.pending.remove(&checkpoint);
            }
            Some(pending) => *pending = Pending::CompletedEarly,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(number: u64) -> Objects {
        Objects::from([(number, StateHandle::Inline(vec![number as u8].into()))])
    }

    fn base(bases: &Bases) -> Vec<u64> {
        bases.base().keys().copied().collect()
    }

    fn write(bases: &Bases, checkpoint: u64) {
        bases.cut(CheckpointId(checkpoint));
        bases.written(CheckpointId(checkpoint), objects(checkpoint));
    }

    #[test]
    fn k_242_what_is_written_is_no_base_before_it_is_complete() {
        let bases = Bases::default();
        bases.restored(objects(100));
        write(&bases, 1);
        assert_eq!(base(&bases), [100]);
        bases.completed(CheckpointId(1));
        assert_eq!(base(&bases), [1]);
    }

    #[test]
    fn k_243_late_and_repeated_notices_do_not_move_the_base_back() {
        let bases = Bases::default();
        for checkpoint in 1..=3 {
            write(&bases, checkpoint);
        }
        for (completed, expected) in [(2, 2), (1, 2), (2, 2), (3, 3), (3, 3), (1, 3)] {
            bases.completed(CheckpointId(completed));
            assert_eq!(base(&bases), [expected], "after {completed}");
        }
    }

    #[test]
    fn k_244_a_notice_about_a_checkpoint_that_is_not_tracked_changes_nothing() {
        let bases = Bases::default();
        write(&bases, 1);
        bases.completed(CheckpointId(1));
        bases.completed(CheckpointId(7));
        assert_eq!(base(&bases), [1]);
        write(&bases, 8);
        bases.completed(CheckpointId(8));
        assert_eq!(base(&bases), [8]);
    }

    #[test]
    fn k_245_an_aborted_checkpoint_is_never_a_base() {
        let bases = Bases::default();
        write(&bases, 1);
        bases.completed(CheckpointId(1));
        write(&bases, 2);
        bases.aborted(CheckpointId(2));
        bases.completed(CheckpointId(2));
        assert_eq!(base(&bases), [1]);
        // Aborted while it was being written.
        bases.cut(CheckpointId(3));
        bases.aborted(CheckpointId(3));
        bases.written(CheckpointId(3), objects(3));
        bases.completed(CheckpointId(3));
        assert_eq!(base(&bases), [1]);
    }
}
