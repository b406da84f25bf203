use state_api::NamedHandle;

use crate::format::chain_bytes;

/// Objects that a restore reads one after the other, at most.
const LONGEST: usize = 16;

/// The objects of a confirmed checkpoint, and where in the store's log of changes it was cut.
#[derive(Clone, Debug)]
pub(super) struct Chain<P> {
    /// Where the store's log of changes stood: what is after it is not in the objects.
    pub(super) position: P,
    /// One with all pairs, then those with what changed since, in order.
    pub(super) files: Vec<NamedHandle>,
}

impl<P> Chain<P> {
    /// Returns whether another object of changes goes on top rather than one with all pairs, given how many keys changed and how many
    /// there are.
    ///
    /// It is not if every other key changed, if the changes outweigh what they are changes of, or if a restore would read too
    /// many objects.
    pub(super) fn carries_more(&self, changed: u64, entries: u64) -> bool {
        let (full, changes) = chain_bytes(&self.files);
        self.files.len() < LONGEST && changes <= full && changed <= entries / 2
    }
}
