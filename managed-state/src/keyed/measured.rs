use std::ops::Deref;

/// A nested collection with the heap bytes that its parts own, kept up to date so that nobody has to walk it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured<C> {
    inner: C,
    parts: usize,
}

impl<C> Measured<C> {
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

impl<C> Deref for Measured<C> {
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
