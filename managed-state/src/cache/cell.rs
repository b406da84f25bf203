use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something was read or written since the clock's hand came past.
///
/// A read must not copy what a snapshot holds, so this is the one thing that changes through a shared reference; snapshots
/// don't look at it.
#[derive(Debug)]
pub(crate) struct Used(AtomicBool);

impl Used {
    pub(crate) const fn yes() -> Self {
        Self(AtomicBool::new(true))
    }

    #[inline]
    pub(crate) fn mark(&self) {
        // Most are marked already; not writing keeps the line shared.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Clone for Used {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// What the cache knows of one stored value: that it is there and what it is, or that there is none.
///
/// A dirty one is newer than what the store holds. `charge` is what it was counted with in bytes. The fields stand in each
/// variant, because in a struct beside an `Option` they would take eight bytes more.
#[derive(Clone, Debug)]
pub(crate) enum Cell<T> {
    Present {
        dirty: bool,
        used: Used,
        charge: u32,
        stamp_ms: i64,
        value: T,
    },
    Absent {
        dirty: bool,
        used: Used,
        charge: u32,
    },
}

impl<T> Cell<T> {
    pub(crate) fn new(found: Option<(T, i64)>, dirty: bool) -> Self {
        let (used, charge) = (Used::yes(), 0);
        match found {
            Some((value, stamp_ms)) => Self::Present {
                dirty,
                used,
                charge,
                stamp_ms,
                value,
            },
            None => Self::Absent {
                dirty,
                used,
                charge,
            },
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Self::Present { value, .. } => Some(value),
            Self::Absent { .. } => None,
        }
    }

    #[inline]
    pub(crate) fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Present { value, .. } => Some(value),
            Self::Absent { .. } => None,
        }
    }

    pub(crate) fn into_value(self) -> Option<T> {
        match self {
            Self::Present { value, .. } => Some(value),
            Self::Absent { .. } => None,
        }
    }

    /// Time of the last renewal; 0 without a timestamp.
    pub(crate) fn stamp(&self) -> i64 {
        match self {
            Self::Present { stamp_ms, .. } => *stamp_ms,
            Self::Absent { .. } => 0,
        }
    }

    #[inline]
    pub(crate) fn renew(&mut self, now_ms: i64) {
        if let Self::Present { stamp_ms, .. } = self {
            *stamp_ms = now_ms;
        }
    }

    /// Sets the value, or notes that there is none; returns the old one.
    #[inline]
    pub(crate) fn set(&mut self, found: Option<T>, now_ms: i64) -> Option<T> {
        if let (
            Self::Present {
                value, stamp_ms, ..
            },
            Some(_),
        ) = (&mut *self, &found)
        {
            *stamp_ms = now_ms;
            return found.map(|new| std::mem::replace(value, new));
        }
        let new = Self::new(found.map(|value| (value, now_ms)), self.is_dirty());
        let charge = self.charge();
        let old = std::mem::replace(self, new);
        self.set_charge(charge);
        match old {
            Self::Present { value, .. } => Some(value),
            Self::Absent { .. } => None,
        }
    }

    #[inline]
    fn used(&self) -> &Used {
        match self {
            Self::Present { used, .. } | Self::Absent { used, .. } => used,
        }
    }

    #[inline]
    pub(crate) fn mark_used(&self) {
        self.used().mark();
    }

    pub(crate) fn take_used(&self) -> bool {
        self.used().take()
    }

    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        match self {
            Self::Present { dirty, .. } | Self::Absent { dirty, .. } => *dirty,
        }
    }

    /// Returns whether the mark was another one before.
    #[inline]
    pub(crate) fn set_dirty(&mut self, now: bool) -> bool {
        match self {
            Self::Present { dirty, .. } | Self::Absent { dirty, .. } => {
                std::mem::replace(dirty, now) != now
            }
        }
    }

    pub(crate) fn charge(&self) -> u32 {
        match self {
            Self::Present { charge, .. } | Self::Absent { charge, .. } => *charge,
        }
    }

    pub(crate) fn set_charge(&mut self, bytes: u32) {
        match self {
            Self::Present { charge, .. } | Self::Absent { charge, .. } => *charge = bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_a_number_takes_24_bytes() {
        assert_eq!(size_of::<Cell<u64>>(), 24);
    }

    #[test]
    fn what_is_set_keeps_its_marks() {
        let mut cell = Cell::new(Some((1u64, 5)), false);
        cell.set_charge(77);
        assert!(cell.take_used() && !cell.take_used());
        assert_eq!(cell.set(None, 9), Some(1));
        assert_eq!(
            (cell.value(), cell.charge(), cell.is_dirty()),
            (None, 77, false)
        );
        assert!(cell.set_dirty(true) && !cell.set_dirty(true));
        assert_eq!(cell.set(Some(3), 10), None);
        assert_eq!(
            (cell.value(), cell.stamp(), cell.is_dirty()),
            (Some(&3), 10, true)
        );
    }
}
