use std::collections::{BTreeMap, BTreeSet};

use checkpoint_storage::{CheckpointMetadata, Ownership, SharedRegistry};
use state_api::{CheckpointId, KeyedHandle, ObjectHandle, OperatorSnapshot, Result};

/// The shared objects of a job's checkpoints: who uses them, and what can go with a subsumed checkpoint.
///
/// Pure: it is told what was acknowledged, what began, ended and was subsumed, and says what to delete.
#[derive(Debug, Default)]
pub(super) struct SharedObjects {
    registry: SharedRegistry,
    /// The oldest retained checkpoint when a pending one began: it may refer to what that one uses.
    floors: BTreeMap<CheckpointId, CheckpointId>,
    /// Their objects are tracked by nobody.
    savepoints: BTreeSet<CheckpointId>,
    /// Subsumed, and to be deleted as soon as none of their objects is in use.
    leaving: BTreeSet<CheckpointId>,
}

/// What can go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Checkpoints to delete.
    pub(super) checkpoints: BTreeSet<CheckpointId>,
    /// Shared objects to delete after them.
    pub(super) objects: Vec<ObjectHandle>,
    /// Claimed checkpoints that were subsumed and stay for now.
    pub(super) stay: BTreeSet<CheckpointId>,
}

impl SharedObjects {
    /// Takes note of a checkpoint that the job starts from or has retained.
    pub(super) fn restored(
        &mut self,
        metadata: &CheckpointMetadata,
        ownership: Ownership,
    ) -> Result<()> {
        self.registry.register_checkpoint(metadata, ownership)
    }

    /// Takes note that a checkpoint begins; `lowest` is the oldest retained one.
    pub(super) fn began(
        &mut self,
        id: CheckpointId,
        savepoint: bool,
        lowest: Option<CheckpointId>,
    ) {
        if savepoint {
            // It refers to nothing but its own.
            self.savepoints.insert(id);
            return;
        }
        // With none complete it may build upon the first that is, whichever that will be.
        self.floors.insert(id, lowest.unwrap_or(CheckpointId(0)));
    }

    /// Takes note that a checkpoint has ended.
    pub(super) fn ended(&mut self, id: CheckpointId) {
        self.floors.remove(&id);
    }

    /// Takes note of what a subtask wrote, for a checkpoint that has ended too.
    ///
    /// # Errors
    /// `Bug` when two different objects have one name.
    pub(super) fn acked<'a>(
        &mut self,
        id: CheckpointId,
        snapshots: impl IntoIterator<Item = &'a OperatorSnapshot>,
    ) -> Result<()> {
        if self.savepoints.contains(&id) {
            return Ok(());
        }
        for handle in snapshots.into_iter().flat_map(|s| &s.managed_keyed) {
            if let KeyedHandle::Incremental(files) = handle {
                let objects = files.shared.iter().filter_map(|file| file.bytes.object());
                for object in objects {
                    self.registry.register(id, object)?;
                }
            }
        }
        Ok(())
    }

    /// Takes note of a subsumed checkpoint that is to be deleted.
    pub(super) fn subsumed(&mut self, id: CheckpointId) {
        self.leaving.insert(id);
    }

    /// Says what can go when `lowest` is the oldest retained checkpoint; `None` when nothing is retained.
    pub(super) fn release(&mut self, lowest: Option<CheckpointId>) -> Released {
        let lowest = lowest.unwrap_or(CheckpointId(u64::MAX));
        let floor = self
            .floors
            .values()
            .copied()
            .fold(lowest, CheckpointId::min);
        let unused = self.registry.unregister_unused(floor);
        let (stay, checkpoints) = std::mem::take(&mut self.leaving)
            .into_iter()
            .partition(|id| unused.still_used.contains(id));
        self.leaving.clone_from(&stay);
        Released {
            checkpoints,
            objects: unused.objects,
            stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use checkpoint_storage::CheckpointMetadata;
    use state_api::{
        Attempt, Digest, IncrementalHandle, JobId, KeyGroup, KeyGroupRange, NamedHandle, RelPath,
        Root, SnapshotKind, StateHandle,
    };

    use super::*;

    fn object(name: &str) -> ObjectHandle {
        ObjectHandle {
            root: Root::Own,
            path: RelPath::new(&format!("shared/{name}")).unwrap(),
            len: 1,
            digest: Digest([0; 32]),
        }
    }

    fn snapshot(id: u64, names: &[&str]) -> OperatorSnapshot {
        let shared = names.iter().map(|name| NamedHandle {
            name: (*name).into(),
            bytes: StateHandle::Object(object(name)),
        });
        OperatorSnapshot {
            managed_keyed: vec![KeyedHandle::Incremental(IncrementalHandle {
                format: "test".into(),
                backend_id: "one".into(),
                checkpoint: CheckpointId(id),
                range: KeyGroupRange::new(KeyGroup(0), KeyGroup(7)),
                private: Vec::new(),
                shared: shared.collect(),
                new_bytes: 0,
                states: Vec::new(),
            })],
            ..OperatorSnapshot::default()
        }
    }

    fn acked(objects: &mut SharedObjects, id: u64, names: &[&str]) {
        objects
            .acked(CheckpointId(id), [&snapshot(id, names)])
            .unwrap();
    }

    fn names(released: &Released) -> Vec<&str> {
        let paths = released.objects.iter().map(|o| o.path.as_str());
        paths.map(|path| &path["shared/".len()..]).collect()
    }

    #[test]
    fn k_279_what_aborted_and_late_acks_wrote_goes_when_a_later_checkpoint_completes() {
        let mut objects = SharedObjects::default();
        acked(&mut objects, 1, &["a"]);
        objects.ended(CheckpointId(1));
        acked(&mut objects, 1, &["late"]);
        assert_eq!(objects.release(Some(CheckpointId(1))), Released::default());
        acked(&mut objects, 2, &["a"]);
        assert_eq!(names(&objects.release(Some(CheckpointId(2)))), ["late"]);
        assert_eq!(names(&objects.release(None)), ["a"]);
    }

    #[test]
    fn what_a_pending_checkpoint_may_build_upon_stays_until_it_ends() {
        let mut objects = SharedObjects::default();
        acked(&mut objects, 5, &["base"]);
        objects.began(CheckpointId(6), false, Some(CheckpointId(5)));
        objects.began(CheckpointId(7), false, Some(CheckpointId(5)));
        acked(&mut objects, 6, &["own"]);
        objects.ended(CheckpointId(6));
        objects.subsumed(CheckpointId(5));
        // 7 was cut before its tasks knew of 6, and its ack is still to come.
        let released = objects.release(Some(CheckpointId(6)));
        assert_eq!(names(&released), [""; 0]);
        assert_eq!(released.checkpoints, [CheckpointId(5)].into());
        acked(&mut objects, 7, &["base"]);
        objects.ended(CheckpointId(7));
        assert_eq!(names(&objects.release(Some(CheckpointId(7)))), ["own"]);
    }

    #[test]
    fn one_that_began_before_anything_was_complete_may_build_upon_the_first_that_is() {
        let mut objects = SharedObjects::default();
        for id in 1..=3 {
            objects.began(CheckpointId(id), false, None);
        }
        acked(&mut objects, 1, &["a"]);
        // Cut before the first was complete, and so made of nothing of it.
        acked(&mut objects, 2, &["b"]);
        objects.ended(CheckpointId(1));
        assert_eq!(objects.release(Some(CheckpointId(1))), Released::default());
        objects.ended(CheckpointId(2));
        let released = objects.release(Some(CheckpointId(2)));
        assert_eq!(
            names(&released),
            [""; 0],
            "the third is cut, and its acks are on their way"
        );
        acked(&mut objects, 3, &["a", "c"]);
        objects.ended(CheckpointId(3));
        assert_eq!(names(&objects.release(Some(CheckpointId(3)))), ["b"]);
    }

    #[test]
    fn the_objects_of_savepoints_are_tracked_by_nobody() {
        let mut objects = SharedObjects::default();
        objects.began(CheckpointId(1), true, None);
        acked(&mut objects, 1, &["mine"]);
        objects.ended(CheckpointId(1));
        assert_eq!(objects.release(None), Released::default());
    }

    #[test]
    fn k_282_a_claimed_checkpoint_leaves_once_nothing_of_it_is_in_use() {
        let mut objects = SharedObjects::default();
        let mut claimed = CheckpointMetadata::new(
            CheckpointId(1),
            JobId::new("first").unwrap(),
            Attempt(1),
            SnapshotKind::NativeSavepoint,
            0,
        );
        let mut count = checkpoint_storage::OperatorMetadata::new(
            state_api::OperatorUid::new("count").unwrap(),
            1,
            state_api::MaxParallelism::new(8).unwrap(),
            state_api::HashId::default(),
        );
        count
            .subtasks
            .push(checkpoint_storage::SubtaskMetadata::new(
                0,
                snapshot(1, &["old"]),
            ));
        claimed.operators.push(count);
        objects.restored(&claimed, Ownership::Claimed).unwrap();
        acked(&mut objects, 2, &["old"]);
        objects.subsumed(CheckpointId(1));
        let released = objects.release(Some(CheckpointId(2)));
        assert_eq!(released.stay, [CheckpointId(1)].into());
        acked(&mut objects, 3, &["new"]);
        let released = objects.release(Some(CheckpointId(3)));
        assert_eq!(names(&released), ["old"]);
        assert_eq!(released.checkpoints, [CheckpointId(1)].into());
    }

    /// A job whose subtasks build each checkpoint upon the last one that they know to be complete.
    #[derive(Default)]
    struct Walk {
        objects: SharedObjects,
        /// What each begun checkpoint refers to, once it is cut.
        pending: BTreeMap<CheckpointId, Option<BTreeSet<u64>>>,
        retained: BTreeMap<CheckpointId, BTreeSet<u64>>,
        known: BTreeSet<u64>,
        deleted: BTreeSet<u64>,
        written: u64,
        next: u64,
    }

    impl Walk {
        fn begin(&mut self) {
            self.next += 1;
            let id = CheckpointId(self.next);
            let lowest = self.retained.keys().next().copied();
            self.objects.began(id, false, lowest);
            self.pending.insert(id, None);
        }

        /// Subtasks may cut at any time after that, knowing at least what was complete when it began. One checkpoint in four
        /// is a full one: it refers to nothing older.
        fn cut(&mut self, id: CheckpointId, draw: u64) {
            if self.pending[&id].is_some() {
                return;
            }
            let mut uses = self.known.clone();
            let full = draw.is_multiple_of(4);
            uses.retain(|object| !full && (draw >> (object % 40)) & 3 != 0);
            self.written += 1;
            uses.insert(self.written);
            self.pending.insert(id, Some(uses));
        }

        fn ack(&mut self, id: CheckpointId, draw: u64) {
            self.cut(id, draw);
            let uses = self.pending[&id].as_ref().unwrap();
            assert!(
                uses.is_disjoint(&self.deleted),
                "{id} refers to what is gone"
            );
            let names: Vec<_> = uses.iter().map(ToString::to_string).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            acked(&mut self.objects, id.0, &names);
        }

        fn complete(&mut self, id: CheckpointId, retained: usize) {
            let uses = self.pending.remove(&id).unwrap().unwrap();
            self.objects.ended(id);
            let older: Vec<_> = self.pending.range(..id).map(|(id, _)| *id).collect();
            older.into_iter().for_each(|id| self.abort(id));
            // Subtasks hear of it before the next cut; what was cut before builds upon an older one.
            self.known.clone_from(&uses);
            self.retained.insert(id, uses);
            while self.retained.len() > retained {
                let (old, _) = self.retained.pop_first().unwrap();
                self.objects.subsumed(old);
            }
            let released = self.objects.release(self.retained.keys().next().copied());
            for name in names(&released) {
                assert!(
                    self.deleted.insert(name.parse().unwrap()),
                    "{name} goes once"
                );
            }
            for (id, uses) in &self.retained {
                assert!(uses.is_disjoint(&self.deleted), "{id} lost an object");
            }
        }

        fn abort(&mut self, id: CheckpointId) {
            self.pending.remove(&id);
            self.objects.ended(id);
        }
    }

    #[test]
    fn whatever_the_order_and_whichever_are_full_nothing_that_is_in_use_is_deleted() {
        for seed in 0..2000 {
            let mut random = crate::random::Random::new(seed);
            let retained = 1 + (random.next() % 3) as usize;
            let mut walk = Walk::default();
            for _ in 0..80 {
                let draw = random.next();
                let ids: Vec<_> = walk.pending.keys().copied().collect();
                let chosen = ids.get((draw >> 8) as usize % ids.len().max(1)).copied();
                match (draw % 7, chosen) {
                    (0 | 1, _) if ids.len() < 4 => walk.begin(),
                    (2, Some(id)) => walk.cut(id, random.next()),
                    (3 | 4, Some(id)) => walk.ack(id, random.next()),
                    (5, Some(id)) => {
                        walk.ack(id, random.next());
                        walk.complete(id, retained);
                    }
                    (6, Some(id)) => walk.abort(id),
                    _ => {}
                }
            }
        }
    }
}
