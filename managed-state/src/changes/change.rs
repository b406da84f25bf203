use state_api::wire::{get_bytes, get_varint, put_varint};
use state_api::{Error, Result};

use crate::format::GroupWriter;

const PUT: u8 = 0;
const REMOVED: u8 = 1;
const CLEARED: u8 = 2;
const LIST_EDIT: u8 = 3;

/// What became of one key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange<'a> {
    /// The entry has this value now.
    Put(&'a [u8]),
    /// The entry is gone.
    Removed,
    /// The entries whose keys begin with this one are gone: those of a map, or all of the section if it is empty. What follows in
    /// the same stream came later.
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

impl<'a> EntryChange<'a> {
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

/// Applies the edits of a list, oldest first, to its value. Each byte is read and copied once, however many edits there are.
///
/// # Errors
/// `Corrupt` when the list has not the number of elements that an edit says it had.
pub(super) fn apply_edits<'e, 'a: 'e>(
    list: &[u8],
    edits: impl Iterator<Item = &'e ListEdit<'a>> + Clone,
) -> Result<Vec<u8>> {
    // All that was taken off is taken off the front of what was ever in the list: an edit takes off only what is there by then.
    let (mut count, mut dropped) = (elements(list)?, 0);
    for edit in edits.clone() {
        if count != edit.before || edit.dropped > count {
            return Err(Error::corrupt(format!(
                "a change is of a list with {} elements, it has {count}",
                edit.before
            )));
        }
        count = count - edit.dropped + elements(edit.appended)?;
        dropped += edit.dropped;
    }
    let appended = edits.map(|edit| edit.appended);
    let mut left = Vec::new();
    let mut rest = std::iter::once(list).chain(appended);
    for mut bytes in rest.by_ref() {
        while dropped > 0 && !bytes.is_empty() {
            get_bytes(&mut bytes)?;
            dropped -= 1;
        }
        if dropped == 0 {
            left.push(bytes);
            break;
        }
    }
    left.extend(rest);
    Ok(left.concat())
}

/// Counts the elements of a list's value.
fn elements(mut list: &[u8]) -> Result<u64> {
    let mut count = 0;
    while !list.is_empty() {
        get_bytes(&mut list)?;
        count += 1;
    }
    Ok(count)
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

/// Writes that all entries of a map are gone, or of the section; `composite` is what their keys begin with.
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
        let apply = |before, dropped, list: &[u8]| {
            let edit = ListEdit {
                before,
                dropped,
                appended: b"\x01d",
            };
            apply_edits(list, [edit].iter())
        };
        assert_eq!(apply(3, 0, list).unwrap(), b"\x01a\x00\x02bc\x01d");
        assert_eq!(apply(3, 2, list).unwrap(), b"\x02bc\x01d");
        assert_eq!(apply(3, 3, list).unwrap(), b"\x01d");
        assert_eq!(apply(0, 0, b"").unwrap(), b"\x01d");
        for (before, dropped) in [(2, 0), (4, 1), (3, 4)] {
            let error = apply(before, dropped, list).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        assert!(apply(3, 0, &list[..5]).is_err());
    }

    #[test]
    fn many_edits_give_what_they_give_one_after_the_other() {
        // Lists of elements of 0, 1 and 2 bytes; edits that drop what came with the base, with edits before, and all.
        let element = |n: u64| [vec![(n % 3) as u8], vec![b'x'; (n % 3) as usize]].concat();
        let list = |from: u64, to: u64| (from..to).flat_map(element).collect::<Vec<_>>();
        for drops in [
            [0, 0, 0, 0],
            [1, 2, 0, 3],
            [4, 0, 2, 1],
            [4, 3, 3, 3],
            [0, 7, 0, 6],
        ] {
            let (mut from, mut to) = (0, 4);
            let (mut appended, mut edits) = (Vec::new(), Vec::new());
            for dropped in drops {
                edits.push((to - from, dropped));
                appended.push(list(to, to + 3));
                (from, to) = (from + dropped, to + 3);
            }
            let edits: Vec<_> = edits
                .iter()
                .zip(&appended)
                .map(|((before, dropped), appended)| ListEdit {
                    before: *before,
                    dropped: *dropped,
                    appended,
                })
                .collect();
            let edited = apply_edits(&list(0, 4), edits.iter()).unwrap();
            assert_eq!(edited, list(from, to), "{drops:?}");
            let error = apply_edits(&list(0, 4), edits.iter().skip(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{drops:?}");
        }
    }

    #[test]
    fn a_long_list_is_copied_once_however_many_edits_there_are() {
        let list = b"\x07element".repeat(100_000);
        let edits: Vec<_> = (0..1_000)
            .map(|n| ListEdit {
                before: 100_000 + n,
                dropped: 0,
                appended: b"\x01e",
            })
            .collect();
        // Walked and copied for each edit, these would be a hundred million elements and 800 MB.
        let edited = apply_edits(&list, edits.iter()).unwrap();
        assert_eq!(edited.len(), list.len() + 2_000);
        assert_eq!(edited.capacity(), edited.len());
    }

    #[test]
    fn only_the_four_changes_are_read() {
        assert_eq!(
            EntryChange::read(b"\x00ab").unwrap(),
            EntryChange::Put(b"ab")
        );
        assert_eq!(EntryChange::read(b"\x00").unwrap(), EntryChange::Put(b""));
        assert_eq!(EntryChange::read(b"\x01").unwrap(), EntryChange::Removed);
        assert_eq!(EntryChange::read(b"\x02").unwrap(), EntryChange::Cleared);
        let edit = ListEdit {
            before: 3,
            dropped: 1,
            appended: b"x",
        };
        assert_eq!(
            EntryChange::read(b"\x03\x03\x01x").unwrap(),
            EntryChange::ListEdit(edit)
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
            assert_eq!(
                EntryChange::read(bad).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
    }
}
