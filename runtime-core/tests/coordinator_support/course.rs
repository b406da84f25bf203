use std::collections::{BTreeMap, BTreeSet};

use runtime_core::coordinator::{CheckpointKind, TaskId};
use state_api::{Digest, ObjectHandle, RelPath, Root};

use super::{Rng, TASKS};

/// What the world knows of one checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) kind: Option<CheckpointKind>,
    /// It was there when the job started, and belongs to somebody else.
    pub(crate) lent: bool,
    /// It refers to nothing older.
    pub(crate) full: bool,
    /// Tasks that take part, once it is triggered.
    pub(crate) triggered: Option<BTreeSet<TaskId>>,
    /// The first number that each task sent.
    pub(crate) sent: BTreeMap<TaskId, u64>,
    pub(crate) in_metadata: BTreeSet<u64>,
    /// The shared objects of each task, as they were at its barrier.
    pub(crate) shared: BTreeMap<TaskId, BTreeSet<u64>>,
    pub(crate) published_action: bool,
    pub(crate) publish_outstanding: bool,
    /// The truth about the store.
    pub(crate) metadata_exists: bool,
    pub(crate) completed: bool,
    pub(crate) aborted: bool,
    pub(crate) told_complete: bool,
    pub(crate) told_abort: bool,
}

impl Course {
    pub(crate) fn ended(&self) -> bool {
        self.completed || self.aborted
    }

    /// Returns the shared objects of each task whose ack the metadata holds.
    pub(crate) fn acked(&self) -> BTreeMap<TaskId, BTreeSet<u64>> {
        let acked = self
            .sent
            .iter()
            .filter(|(_, state)| self.in_metadata.contains(state));
        acked
            .filter_map(|(task, _)| Some((*task, self.shared.get(task)?.clone())))
            .collect()
    }

    /// Returns the shared objects that the metadata names.
    pub(crate) fn refers_to(&self) -> BTreeSet<u64> {
        self.acked().into_values().flatten().collect()
    }
}

pub(crate) fn object(number: u64) -> ObjectHandle {
    ObjectHandle {
        root: Root::Own,
        path: RelPath::new(&format!("shared/{number}")).unwrap(),
        len: number,
        digest: Digest([0; 32]),
    }
}

/// Makes up shared objects of each task.
pub(crate) fn some_objects(rng: &mut Rng, next_token: &mut u64) -> BTreeMap<TaskId, BTreeSet<u64>> {
    let mut objects = |_| {
        let from = *next_token + 1;
        *next_token += 1 + rng.below(3);
        (from..=*next_token).collect()
    };
    TASKS
        .into_iter()
        .map(|task| (task, objects(task)))
        .collect()
}

/// A checkpoint that is there when the job starts.
pub(crate) fn found_course(rng: &mut Rng, next_token: &mut u64) -> Course {
    let shared = some_objects(rng, next_token);
    let mut state = |task| {
        *next_token += 1;
        (task, *next_token)
    };
    let sent: BTreeMap<_, _> = TASKS.into_iter().map(&mut state).collect();
    Course {
        kind: Some(CheckpointKind::Checkpoint),
        lent: rng.one_in(5),
        in_metadata: sent.values().copied().collect(),
        sent,
        shared,
        metadata_exists: true,
        completed: true,
        ..Course::default()
    }
}
