use std::ops::Deref;

use super::history::{History, Mark};
use crate::live::Epoch;

/// A nested collection with the heap bytes that its parts own, kept up to date so that nobody has to walk it, and with what
/// changed in it between snapshots, if the table remembers changes.
#[derive(Clone, Debug)]
pub(crate) struct Measured<C, D> {
    inner: C,
    parts: usize,
    history: History<D>,
}

impl<C: Default, D> Default for Measured<C, D> {
    fn default() -> Self {
        Self {
            inner: C::default(),
            parts: 0,
            history: History::default(),
        }
    }
}

impl<C: Default, D: Mark<C>> Measured<C, D> {
    /// Creates an empty collection that takes the place of whatever was there.
    #[inline]
    pub(crate) fn anew(epoch: Option<Epoch>) -> Self {
        let mut new = Self::default();
        if let Some(epoch) = epoch {
            new.history.mark(epoch, D::whole);
        }
        new
    }
}

impl<C, D: Mark<C>> Measured<C, D> {
    /// Returns where a change is noted that is about to be made, if the table remembers changes.
    #[inline]
    pub(crate) fn noted(&mut self, epoch: Option<Epoch>) -> Option<&mut D> {
        let inner = &self.inner;
        Some(self.history.mark(epoch?, || D::start(inner)))
    }

    /// Returns the marks from the cut of a snapshot on, oldest first.
    pub(crate) fn marks_since(&self, cut: u64) -> impl Iterator<Item = &D> + Clone {
        self.history.since(cut)
    }

    /// Bytes that the history takes.
    #[inline]
    pub(crate) fn history_bytes(&self) -> usize {
        self.history.bytes::<C>()
    }
}

impl<C, D> Measured<C, D> {
    /// Changes the collection; `edit` returns how the heap bytes of the parts changed.
    #[inline]
    pub(crate) fn edit<R>(&mut self, edit: impl FnOnce(&mut C) -> (R, isize)) -> R {
        let (result, delta) = edit(&mut self.inner);
        self.parts = self.parts.saturating_add_signed(delta);
        result
    }

    /// Heap bytes that the parts own, the collection's own memory not included.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }
}

impl<C, D> Deref for Measured<C, D> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        &self.inner
    }
}

/// The heap bytes of a part, as a change.
#[inline]
pub(crate) fn heap_of<T: state_api::StateType>(part: &T) -> isize {
    if T::HAS_HEAP {
        part.heap_size().cast_signed()
    } else {
        0
    }
}
