use state_api::wire::{get_bytes, get_varint, put_varint};
use state_api::{Error, Result};

use crate::format::GroupWriter;

const PUT: u8 = 0;
const REMOVED: u8 = 1;
const CLEARED: u8 = 2;
const LIST_EDIT: u8 = 3;

/// What became of one key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The entry has this value now.
    Put(&'a [u8]),
    /// The entry is gone.
    Removed,
    /// The entries of a map are gone, all whose keys begin with this one. What follows in the same stream came later.
    Cleared,
    /// A list lost its first elements, and others were appended.
    ListEdit(ListEdit<'a>),
}

/// How a list changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListEdit<'a> {
    /// The number of elements that the list had before.
    pub before: u64,
    /// The number of elements that were taken off its front.
    pub dropped: u64,
    /// The elements that were appended, as they stand in a list's value.
    pub appended: &'a [u8],
}

impl<'a> Change<'a> {
    /// Reads a change out of the value of an entry.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a change.
    pub fn read(value: &'a [u8]) -> Result<Self> {
        let bad = || Error::corrupt("the bytes are not a change of an entry");
        let (kind, mut rest) = value.split_first().ok_or_else(bad)?;
        match (*kind, rest) {
            (PUT, value) => Ok(Self::Put(value)),
            (REMOVED, []) => Ok(Self::Removed),
            (CLEARED, []) => Ok(Self::Cleared),
            (LIST_EDIT, _) => {
                let (before, dropped) = (get_varint(&mut rest)?, get_varint(&mut rest)?);
                if dropped > before {
                    return Err(Error::corrupt("a list lost more elements than it had"));
                }
                Ok(Self::ListEdit(ListEdit {
                    before,
                    dropped,
                    appended: rest,
                }))
            }
            _ => Err(bad()),
        }
    }
}

impl ListEdit<'_> {
    /// Applies the edit to the value of a list.
    ///
    /// # Errors
    /// `Corrupt` when the list has not the number of elements that it was said to have.
    pub(super) fn apply(&self, list: &[u8]) -> Result<Vec<u8>> {
        let (mut rest, mut count, mut kept) = (list, 0, list);
        while !rest.is_empty() {
            get_bytes(&mut rest)?;
            count += 1;
            if count == self.dropped {
                kept = rest;
            }
        }
        if count != self.before {
            return Err(Error::corrupt(format!(
                "a change is of a list with {} elements, it has {count}",
                self.before
            )));
        }
        Ok([kept, self.appended].concat())
    }
}

/// Writes an entry that has a value now.
#[inline]
pub(crate) fn put_upsert(
    out: &mut GroupWriter<'_>,
    key: impl FnOnce(&mut Vec<u8>),
    value: impl FnOnce(&mut Vec<u8>),
) {
    out.entry_with(key, |out| {
        out.push(PUT);
        value(out);
    });
}

/// Writes an entry that is gone.
#[inline]
pub(crate) fn put_removed(out: &mut GroupWriter<'_>, key: impl FnOnce(&mut Vec<u8>)) {
    out.entry_with(key, |out| out.push(REMOVED));
}

/// Writes that all entries of a map are gone; `composite` is what their keys begin with.
#[inline]
pub(crate) fn put_cleared(out: &mut GroupWriter<'_>, composite: impl FnOnce(&mut Vec<u8>)) {
    out.entry_with(composite, |out| out.push(CLEARED));
}

/// Writes what was taken off a list and appended to it.
#[inline]
pub(crate) fn put_list_edit(
    out: &mut GroupWriter<'_>,
    key: impl FnOnce(&mut Vec<u8>),
    (before, dropped): (u64, u64),
    appended: impl FnOnce(&mut Vec<u8>),
) {
    out.entry_with(key, |out| {
        out.push(LIST_EDIT);
        put_varint(out, before);
        put_varint(out, dropped);
        appended(out);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    #[test]
    fn a_list_edit_fits_one_length_only() {
        let list = b"\x01a\x00\x02bc";
        let edit = |before, dropped| ListEdit {
            before,
            dropped,
            appended: b"\x01d",
        };
        assert_eq!(edit(3, 0).apply(list).unwrap(), b"\x01a\x00\x02bc\x01d");
        assert_eq!(edit(3, 2).apply(list).unwrap(), b"\x02bc\x01d");
        assert_eq!(edit(3, 3).apply(list).unwrap(), b"\x01d");
        assert_eq!(edit(0, 0).apply(b"").unwrap(), b"\x01d");
        for wrong in [edit(2, 0), edit(4, 1)] {
            assert_eq!(wrong.apply(list).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert!(edit(3, 0).apply(&list[..5]).is_err());
    }

    #[test]
    fn only_the_four_changes_are_read() {
        assert_eq!(Change::read(b"\x00ab").unwrap(), Change::Put(b"ab"));
        assert_eq!(Change::read(b"\x00").unwrap(), Change::Put(b""));
        assert_eq!(Change::read(b"\x01").unwrap(), Change::Removed);
        assert_eq!(Change::read(b"\x02").unwrap(), Change::Cleared);
        let edit = ListEdit {
            before: 3,
            dropped: 1,
            appended: b"x",
        };
        assert_eq!(
            Change::read(b"\x03\x03\x01x").unwrap(),
            Change::ListEdit(edit)
        );
        for bad in [
            &b""[..],
            b"\x01x",
            b"\x02x",
            b"\x03",
            b"\x03\x01",
            b"\x03\x01\x02",
            b"\x04",
        ] {
            assert_eq!(Change::read(bad).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
