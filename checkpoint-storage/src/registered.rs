use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use state_api::{CheckpointId, Error, ObjectHandle, Result};

use crate::slots::Slots;

/// No place.
const NOWHERE: usize = usize::MAX;

/// What is known of one object.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) handle: ObjectHandle,
    pub(crate) created: CheckpointId,
    pub(crate) last_used: CheckpointId,
    /// The place of the object that was registered after it the last time.
    next: usize,
}

/// Objects found by name, each at a place of its own.
///
/// Subtasks name their objects in nearly the same order again and again. So objects lie in the order in which they first
/// came, and each remembers the one that followed it: hardly any has to be looked up, and a million of them are compared
/// in the order in which they lie in memory.
#[derive(Debug, Default)]
pub(crate) struct RegisteredObjects {
    objects: Slots<Registered>,
    by_name: HashTable<Place>,
    hasher: RandomState,
    /// The place of the object that was registered last.
    last: usize,
}

/// Where an object is, with the hash of its name: growing does not touch the names.
#[derive(Debug)]
struct Place {
    hash: u64,
    index: usize,
}

impl RegisteredObjects {
    /// Notes that a checkpoint uses an object, and returns whether it is new.
    ///
    /// # Errors
    /// `Bug` when the name is known with another length or digest.
    pub(crate) fn add(&mut self, checkpoint: CheckpointId, object: &ObjectHandle) -> Result<bool> {
        let before = self.len();
        let index = match self.expected(object) {
            Some(index) => index,
            None => self.find_or_insert(checkpoint, object)?,
        };
        if let Some(last) = self.objects.get_mut(self.last) {
            last.next = index;
        }
        self.last = index;
        if let Some(known) = self.objects.get_mut(index) {
            known.last_used = known.last_used.max(checkpoint);
            known.created = known.created.min(checkpoint);
        }
        Ok(self.len() > before)
    }

    /// Finds an object if it comes where it came the last time.
    fn expected(&self, object: &ObjectHandle) -> Option<usize> {
        let index = self.objects.get(self.last)?.next;
        let expected = self.objects.get(index)?;
        (expected.handle == *object).then_some(index)
    }

    fn find_or_insert(&mut self, checkpoint: CheckpointId, object: &ObjectHandle) -> Result<usize> {
        let hash = hash(&self.hasher, object);
        let slot = self.by_name.entry(
            hash,
            |place| place.hash == hash && is_named(self.objects.get(place.index), object),
            |place| place.hash,
        );
        let slot = match slot {
            Entry::Occupied(place) => {
                let index = place.get().index;
                let known = self.objects.get(index);
                if known.is_some_and(|known| known.handle != *object) {
                    return Err(Error::bug("two different objects were given one name")
                        .with("object", object));
                }
                return Ok(index);
            }
            Entry::Vacant(slot) => slot,
        };
        let index = self.objects.insert(Registered {
            handle: object.clone(),
            created: checkpoint,
            last_used: checkpoint,
            next: NOWHERE,
        });
        slot.insert(Place { hash, index });
        Ok(index)
    }

    /// Finds an object by its name.
    pub(crate) fn get(&self, object: &ObjectHandle) -> Option<&Registered> {
        let hash = hash(&self.hasher, object);
        let place = self.by_name.find(hash, |place| {
            is_named(self.objects.get(place.index), object)
        })?;
        self.objects.get(place.index)
    }

    /// Forgets the objects that a condition does not hold for.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Registered) -> bool) {
        let Self {
            objects,
            by_name,
            hasher,
            ..
        } = self;
        objects.retain(keep, |index, gone| {
            let hash = hash(hasher, &gone.handle);
            if let Ok(place) = by_name.find_entry(hash, |place| place.index == index) {
                place.remove();
            }
        });
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

fn hash(hasher: &RandomState, object: &ObjectHandle) -> u64 {
    hasher.hash_one((&object.root, &object.path))
}

fn is_named(known: Option<&Registered>, object: &ObjectHandle) -> bool {
    known.is_some_and(|known| known.handle.path == object.path && known.handle.root == object.root)
}
