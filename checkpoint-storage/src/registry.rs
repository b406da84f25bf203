use std::collections::BTreeSet;

use state_api::{CheckpointId, Error, ObjectHandle, Result};

use crate::metadata::CheckpointMetadata;
use crate::registered::RegisteredObjects;

/// Knows which checkpoints use which shared objects, and so when an object can go.
///
/// A pure structure, owned by the coordinator: it is told what was acknowledged and what is retained, and says what to
/// delete. Objects are told apart by name alone, which is never used twice; length and digest must agree.
#[derive(Debug, Default)]
pub struct SharedRegistry {
    objects: RegisteredObjects,
    /// Objects first seen in a checkpoint up to this one belong to somebody else.
    not_owned: Option<CheckpointId>,
    /// Claimed checkpoints that go as a whole.
    held: BTreeSet<CheckpointId>,
    closed: bool,
}

/// Whether an object was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It was not.
    New,
    /// It was.
    Known,
}

/// What [`SharedRegistry::unregister_unused`] found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Objects to delete, in the order of their paths.
    pub objects: Vec<ObjectHandle>,
    /// Held checkpoints of which an object is still in use; they must stay as a whole.
    pub still_used: BTreeSet<CheckpointId>,
}

/// Who owns the objects of a checkpoint that a job starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The job: it is one of its own checkpoints.
    Own,
    /// The job from now on; the checkpoint stays as a whole until none of its objects is in use.
    Claimed,
    /// Somebody else: nothing of it is ever deleted.
    NotClaimed,
}

impl SharedRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rebuilds the registry from the retained checkpoints, in whatever order they come.
    ///
    /// # Errors
    /// As [`SharedRegistry::register`].
    pub fn rebuild<'a>(retained: impl IntoIterator<Item = &'a CheckpointMetadata>) -> Result<Self> {
        let mut retained: Vec<_> = retained.into_iter().collect();
        retained.sort_by_key(|metadata| metadata.checkpoint);
        let mut registry = Self::new();
        for metadata in retained {
            registry.register_checkpoint(metadata, Ownership::Own)?;
        }
        Ok(registry)
    }

    /// Notes that a checkpoint uses an object; to be called when the acknowledgement arrives, a late or declined one too.
    ///
    /// # Errors
    /// `Bug` when the name is known with another length or digest, `Poisoned` after [`SharedRegistry::close`].
    pub fn register(
        &mut self,
        checkpoint: CheckpointId,
        object: &ObjectHandle,
    ) -> Result<Registration> {
        if self.closed {
            return Err(
                Error::poisoned("the registry of shared objects is closed").with("object", object)
            );
        }
        Ok(match self.objects.add(checkpoint, object)? {
            true => Registration::New,
            false => Registration::Known,
        })
    }

    /// Notes all shared objects of a checkpoint; those of one that is not claimed, and all before it, are never deleted.
    ///
    /// Savepoints of the job itself take no part.
    ///
    /// # Errors
    /// As [`SharedRegistry::register`].
    pub fn register_checkpoint(
        &mut self,
        metadata: &CheckpointMetadata,
        ownership: Ownership,
    ) -> Result<()> {
        if metadata.kind.is_savepoint() && ownership == Ownership::Own {
            return Ok(());
        }
        match ownership {
            Ownership::Own => {}
            Ownership::Claimed => {
                self.held.insert(metadata.checkpoint);
            }
            Ownership::NotClaimed => self.not_owned = self.not_owned.max(Some(metadata.checkpoint)),
        }
        metadata
            .shared_objects()
            .try_for_each(|object| self.register(metadata.checkpoint, object).map(drop))
    }

    /// Forgets the objects that no checkpoint from `lowest` on uses, and returns those to delete; what a held checkpoint brought
    /// in stays until nothing of that is in use.
    ///
    /// Deleting may fail or be repeated: the registry does not look back.
    pub fn unregister_unused(&mut self, lowest: CheckpointId) -> Unused {
        let mut unused = Unused::default();
        let (not_owned, held) = (self.not_owned, &mut self.held);
        if !held.is_empty() {
            self.objects.retain(|known| {
                if known.last_used >= lowest && held.contains(&known.created) {
                    unused.still_used.insert(known.created);
                }
                true
            });
        }
        self.objects.retain(|known| {
            // A claimed checkpoint stays as a whole: it looks complete, so it is.
            if known.last_used >= lowest || unused.still_used.contains(&known.created) {
                return true;
            }
            if Some(known.created) > not_owned {
                unused.objects.push(known.handle.clone());
            }
            false
        });
        held.retain(|checkpoint| unused.still_used.contains(checkpoint) || *checkpoint >= lowest);
        unused
            .objects
            .sort_unstable_by(|a, b| (&a.root, &a.path).cmp(&(&b.root, &b.path)));
        unused
    }

    /// Returns the checkpoint that brought an object in and the last one that used it.
    #[must_use]
    pub fn uses(&self, object: &ObjectHandle) -> Option<(CheckpointId, CheckpointId)> {
        let known = self.objects.get(object)?;
        Some((known.created, known.last_used))
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether no object is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// Refuses further objects: the job has ended.
    pub fn close(&mut self) {
        self.closed = true;
    }
}
