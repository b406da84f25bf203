use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::sink::SinkContext;

/// Finds out which writer of a run is the last one to have recovered: only then is it known what no writer will commit.
///
/// Writers in other processes are not seen. Then nobody is the last one, and leftovers stay where they are.
#[derive(Debug, Default)]
pub(super) struct AllRecovered {
    arrived: Mutex<Arrived>,
}

#[derive(Debug, Default)]
struct Arrived {
    /// Attempt and run.
    run: (u64, u32),
    subtasks: BTreeSet<u32>,
}

impl AllRecovered {
    /// Notes that a writer has recovered; returns whether all writers of its run have.
    pub(super) fn arrive(&self, cx: &SinkContext) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let run = (cx.attempt.0, cx.run);
        if arrived.run != run {
            *arrived = Arrived {
                run,
                subtasks: BTreeSet::new(),
            };
        }
        arrived.subtasks.insert(cx.subtask.index);
        arrived.subtasks.len() == cx.subtask.parallelism as usize
    }
}
