use state_api::{ByteStore, CodecKind, Column, Result, StateType};

use super::cell::Cell;
use crate::bytes::put_stamped;

/// How values are stored behind the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    pub(crate) codec: CodecKind,
    /// Whether a timestamp stands before each value.
    pub(crate) timed: bool,
}

/// Takes a changed entry: its key, and the stored value, or `None` if the entry is removed.
pub(crate) type Changed<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// Counts of entries, of dirty ones among them, and of the bytes they are charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) entries: usize,
    pub(crate) dirty: usize,
    pub(crate) bytes: usize,
}

impl Tally {
    pub(crate) fn subtract(&mut self, other: Self) {
        self.entries = self.entries.saturating_sub(other.entries);
        self.dirty = self.dirty.saturating_sub(other.dirty);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }

    /// Returns about how many bytes are dirty.
    pub(crate) fn dirty_bytes(self) -> usize {
        match self.entries {
            0 => 0,
            entries => self.bytes / entries * self.dirty.min(entries),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.dirty += other.dirty;
        self.bytes += other.bytes;
    }
}

/// What the cache keeps for one key and namespace.
pub(crate) trait Kept: Clone + Send + Sync + 'static {
    /// Returns whether it was used since the last call.
    fn take_used(&self) -> bool;

    fn tally(&self) -> Tally;

    /// Whether it is given up in parts.
    fn is_large(&self) -> bool {
        false
    }

    /// Calls `f` for each dirty entry. `key` holds group prefix, key and namespace, and does again afterwards.
    fn each_dirty(&self, how: Encoding, key: &mut Vec<u8>, f: &mut Changed<'_>);

    fn mark_clean(&mut self);

    /// Gives some entries of a large one up, those that are dirty by way of `f`; returns which.
    fn trim(&mut self, how: Encoding, key: &mut Vec<u8>, f: &mut Changed<'_>) -> Tally {
        let _ = (how, key, f);
        Tally::default()
    }

    /// Returns by how many the pairs of key and namespace become more or fewer when this one's dirty entries are stored.
    fn difference(&self, key: &mut Vec<u8>, store: &dyn ByteStore, column: Column) -> Result<i64>;
}

/// Calls `f` with the stored form of a cell.
pub(super) fn put_cell<T: StateType>(
    cell: &Cell<T>,
    how: Encoding,
    key: &[u8],
    f: &mut Changed<'_>,
) {
    match cell.value() {
        None => f(key, None),
        Some(value) => {
            let mut stored = Vec::new();
            put_stamped(
                how.codec,
                how.timed.then(|| cell.stamp()),
                value,
                &mut stored,
            );
            f(key, Some(&stored));
        }
    }
}

impl<T: StateType> Kept for Cell<T> {
    fn take_used(&self) -> bool {
        Cell::take_used(self)
    }

    fn tally(&self) -> Tally {
        Tally {
            entries: 1,
            dirty: usize::from(self.is_dirty()),
            bytes: self.charge() as usize,
        }
    }

    fn each_dirty(&self, how: Encoding, key: &mut Vec<u8>, f: &mut Changed<'_>) {
        if self.is_dirty() {
            put_cell(self, how, key, f);
        }
    }

    fn mark_clean(&mut self) {
        self.set_dirty(false);
    }

    fn difference(&self, key: &mut Vec<u8>, store: &dyn ByteStore, column: Column) -> Result<i64> {
        if !self.is_dirty() {
            return Ok(0);
        }
        let stored = store.get(column, key, &mut Vec::new())?;
        Ok(i64::from(self.value().is_some()) - i64::from(stored))
    }
}
