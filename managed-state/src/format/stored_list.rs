//! How a list stands in a byte store: whole, or in chunks with a head. The bytes are in `docs/formats/lists.md`.
use state_api::wire::{get_varint, put_varint, take_array};
use state_api::{Error, Result};

/// What neither a list nor a chunk begins with: a length is never longer than it needs to be.
const HEAD: [u8; 2] = [0x80, 0x00];
const CHUNK: [u8; 2] = [0x80, 0x01];

/// Length of the number behind the key of a list that makes the key of a chunk.
pub(crate) const NUMBER_LEN: usize = 8;

/// A stored value of a list state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredList<'a> {
    /// All elements of a list.
    Whole(&'a [u8]),
    /// What is to be known of the chunks, and the elements behind them.
    Head(ListHead, &'a [u8]),
    Chunk(Chunk<'a>),
}

impl<'a> StoredList<'a> {
    /// Tells what a stored value is; `timed` if the state has a time-to-live.
    ///
    /// # Errors
    /// `Corrupt` when a head or the front of a chunk makes no sense. Elements are not looked at.
    #[inline]
    pub(crate) fn read(stored: &'a [u8], timed: bool) -> Result<Self> {
        match stored {
            [0x80, 0x00, rest @ ..] => ListHead::read(rest, timed),
            [0x80, 0x01, rest @ ..] => Chunk::read(rest).map(Self::Chunk),
            _ => Ok(Self::Whole(stored)),
        }
    }
}

/// What stands in front of the elements that were appended behind the chunks of a list.
///
/// Chunks are numbered without gaps, but for those that a state with time-to-live lost because all in them was expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListHead {
    /// Number of the first chunk.
    pub(crate) first: u64,
    /// Number of the chunk that will be written next.
    pub(crate) next: u64,
    /// Bytes of elements at the front of the first chunk that are not part of the list any more.
    pub(crate) skipped: u64,
    /// Elements in the chunks, skipped ones not counted. Of a state with time-to-live it says nothing.
    pub(crate) elements: u64,
    /// When the youngest element in the chunks was last renewed; only with time-to-live.
    pub(crate) latest_ms: i64,
}

impl ListHead {
    /// Stands for no chunks, of which the first will have this number.
    pub(crate) fn starting_at(number: u64) -> Self {
        Self {
            first: number,
            next: number,
            skipped: 0,
            elements: 0,
            latest_ms: i64::MIN,
        }
    }

    pub(crate) fn has_chunks(&self) -> bool {
        self.first < self.next
    }

    /// Counts a chunk that is written under the number `next`.
    pub(crate) fn add_chunk(&mut self, elements: u64, latest_ms: i64) -> Result<()> {
        let counted = self
            .next
            .checked_add(1)
            .zip(self.elements.checked_add(elements));
        (self.next, self.elements) =
            counted.ok_or_else(|| Error::corrupt("a list has more than can be counted"))?;
        self.latest_ms = self.latest_ms.max(latest_ms);
        Ok(())
    }

    /// Appends the head; the elements behind the chunks follow.
    pub(crate) fn put(&self, timed: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&HEAD);
        put_varint(out, self.first);
        put_varint(out, self.next);
        put_varint(out, self.skipped);
        if timed {
            out.extend_from_slice(&self.latest_ms.to_le_bytes());
        } else {
            put_varint(out, self.elements);
        }
    }

    fn read(mut input: &[u8], timed: bool) -> Result<StoredList<'_>> {
        let mut head = Self::starting_at(get_varint(&mut input)?);
        head.next = get_varint(&mut input)?;
        head.skipped = get_varint(&mut input)?;
        if timed {
            head.latest_ms = i64::from_le_bytes(take_array(&mut input)?);
        } else {
            head.elements = get_varint(&mut input)?;
        }
        let is_sound = head.has_chunks() && (timed || head.elements > 0);
        if is_sound {
            Ok(StoredList::Head(head, input))
        } else {
            Err(Error::corrupt("the head of a list has no chunks"))
        }
    }
}

/// Elements of a list that stand under a key of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// Bytes of elements that were taken off the front since the chunk was written, because they were expired.
    pub(crate) dropped: u64,
    pub(crate) elements: &'a [u8],
}

impl<'a> Chunk<'a> {
    fn read(mut input: &'a [u8]) -> Result<Self> {
        let dropped = get_varint(&mut input)?;
        Ok(Self {
            dropped,
            elements: input,
        })
    }

    /// Reads a stored value that must be a chunk.
    pub(crate) fn of(stored: &'a [u8]) -> Result<Self> {
        match stored.strip_prefix(&CHUNK) {
            Some(rest) => Self::read(rest),
            None => Err(Error::corrupt("a chunk of a list is something else")),
        }
    }

    /// Appends what stands in front of the elements.
    pub(crate) fn put_front(dropped: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&CHUNK);
        put_varint(out, dropped);
    }

    /// Returns the elements that are left when so many bytes, counted from when the chunk was written, are skipped.
    pub(crate) fn behind(&self, skipped: u64) -> Result<&'a [u8]> {
        usize::try_from(skipped.saturating_sub(self.dropped))
            .ok()
            .and_then(|at| self.elements.get(at..))
            .ok_or_else(|| Error::corrupt("the head of a list skips more than its first chunk"))
    }

    /// Returns where elements stand of which so many bytes are left behind them, counted from when the chunk was written.
    pub(crate) fn place_before(&self, rest: usize) -> Result<u64> {
        let at = self.elements.len().saturating_sub(rest) as u64;
        at.checked_add(self.dropped)
            .ok_or_else(|| Error::corrupt("a chunk of a list has lost more than can be counted"))
    }
}

/// Returns the number of a chunk of the list with this key; `None` if the stored key is not of one.
pub(crate) fn chunk_number(list: &[u8], stored_key: &[u8]) -> Option<u64> {
    let number = stored_key.strip_prefix(list)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// Appends the number that makes a chunk's key of the key of its list.
pub(crate) fn put_chunk_number(number: u64, key: &mut Vec<u8>) {
    key.extend_from_slice(&number.to_be_bytes());
}

/// Checks chunk by chunk, in order, that a list has the chunks and elements that its head tells of.
#[derive(Clone, Debug)]
pub(crate) struct ChunkCheck {
    head: ListHead,
    timed: bool,
    /// The number that comes next.
    number: u64,
    elements: u64,
}

impl ChunkCheck {
    pub(crate) fn new(head: ListHead, timed: bool) -> Self {
        Self {
            head,
            timed,
            number: head.first,
            elements: 0,
        }
    }

    /// Takes the next chunk; returns those of its elements that are part of the list.
    pub(crate) fn chunk<'a>(&mut self, number: u64, chunk: &Chunk<'a>) -> Result<&'a [u8]> {
        let in_turn = if self.timed {
            (self.number..self.head.next).contains(&number)
        } else {
            number == self.number && number < self.head.next
        };
        if !in_turn {
            return Err(missing_chunk(self.number));
        }
        // Less than `next`, so it does not overflow.
        self.number = number + 1;
        if number == self.head.first {
            chunk.behind(self.head.skipped)
        } else {
            Ok(chunk.elements)
        }
    }

    /// Counts an element of the chunk.
    #[inline]
    pub(crate) fn element(&mut self) {
        self.elements += 1;
    }

    /// Says whether this may be a chunk of the list that was not there yet.
    pub(crate) fn expects(&self, number: u64) -> bool {
        (self.number..self.head.next).contains(&number)
    }

    /// Checks that nothing is missing.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.timed {
            return Ok(());
        }
        if self.number != self.head.next {
            return Err(missing_chunk(self.number));
        }
        if self.elements != self.head.elements {
            return Err(
                Error::corrupt("a list has not as many elements as its head says")
                    .with("elements", self.elements)
                    .with("in the head", self.head.elements),
            );
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn missing_chunk(number: u64) -> Error {
    Error::corrupt("a chunk of a list is missing").with("chunk", number)
}

#[cfg(test)]
mod tests {
    use state_api::ErrorKind;

    use super::*;
    use crate::format::Elements;

    fn head() -> ListHead {
        ListHead {
            first: 3,
            next: 300,
            skipped: 17,
            elements: 70_000,
            latest_ms: -2,
        }
    }

    fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn the_layout_of_head_and_chunk_never_changes() {
        let mut plain = Vec::new();
        head().put(false, &mut plain);
        assert_eq!(plain, b"\x80\x00\x03\xac\x02\x11\xf0\xa2\x04");
        let mut timed = Vec::new();
        head().put(true, &mut timed);
        assert_eq!(
            timed,
            b"\x80\x00\x03\xac\x02\x11\xfe\xff\xff\xff\xff\xff\xff\xff"
        );
        let mut chunk = Vec::new();
        Chunk::put_front(200, &mut chunk);
        assert_eq!(chunk, b"\x80\x01\xc8\x01");
        let mut key = b"key".to_vec();
        put_chunk_number(258, &mut key);
        assert_eq!(key, b"key\0\0\0\0\0\0\x01\x02");
        assert_eq!(chunk_number(b"key", &key), Some(258));
        assert_eq!(chunk_number(b"ke", &key), None);
        assert_eq!(chunk_number(&key, &key), None);
    }

    #[test]
    fn what_is_written_comes_back_and_is_never_a_list() {
        for timed in [false, true] {
            let mut stored = Vec::new();
            head().put(timed, &mut stored);
            let len = stored.len();
            stored.extend_from_slice(b"\x01a");
            let mut expected = head();
            if timed {
                expected.elements = 0;
            } else {
                expected.latest_ms = i64::MIN;
            }
            let read = StoredList::read(&stored, timed).unwrap();
            assert_eq!(read, StoredList::Head(expected, b"\x01a"));
            assert!(Elements::new(&stored, timed).next().is_err());
            for cut in 2..len {
                assert_eq!(
                    kind(StoredList::read(&stored[..cut], timed)),
                    ErrorKind::Corrupt
                );
            }
            let mut chunk = Vec::new();
            Chunk::put_front(0, &mut chunk);
            chunk.extend_from_slice(b"\x01a");
            let elements = &b"\x01a"[..];
            let dropped = 0;
            let expected = Chunk { dropped, elements };
            let read = StoredList::read(&chunk, timed).unwrap();
            assert_eq!(read, StoredList::Chunk(expected));
            assert!(Elements::new(&chunk, timed).next().is_err());
        }
        for list in [&b""[..], b"\x00", b"\x01a", b"\x80\x02"] {
            assert_eq!(
                StoredList::read(list, false).unwrap(),
                StoredList::Whole(list)
            );
        }
    }

    #[test]
    fn a_head_that_makes_no_sense_is_corrupt() {
        for (first, next, elements) in [(3, 3, 1), (4, 3, 1), (0, 1, 0)] {
            let mut stored = Vec::new();
            let head = ListHead {
                first,
                next,
                elements,
                ..head()
            };
            head.put(false, &mut stored);
            assert_eq!(kind(StoredList::read(&stored, false)), ErrorKind::Corrupt);
        }
        let mut full = ListHead::starting_at(u64::MAX);
        assert_eq!(kind(full.add_chunk(1, 0)), ErrorKind::Corrupt);
    }

    #[test]
    fn a_check_finds_chunks_and_elements_that_are_missing() {
        let head = ListHead {
            first: 5,
            next: 7,
            skipped: 2,
            elements: 2,
            latest_ms: 0,
        };
        let chunk = Chunk {
            dropped: 0,
            elements: b"\x01a\x01b",
        };
        let mut check = ChunkCheck::new(head, false);
        assert_eq!(check.chunk(5, &chunk).unwrap(), b"\x01b");
        check.element();
        assert_eq!(kind(check.clone().finish()), ErrorKind::Corrupt);
        for number in [4, 5, 7, u64::MAX] {
            assert_eq!(
                kind(check.clone().chunk(number, &chunk)),
                ErrorKind::Corrupt
            );
        }
        assert_eq!(check.chunk(6, &chunk).unwrap(), b"\x01a\x01b");
        assert_eq!(kind(check.clone().finish()), ErrorKind::Corrupt);
        check.element();
        check.finish().unwrap();

        let mut timed = ChunkCheck::new(head, true);
        assert_eq!(timed.chunk(6, &chunk).unwrap(), b"\x01a\x01b");
        timed.finish().unwrap();
    }

    #[test]
    fn places_in_a_chunk_outlive_what_is_taken_off_its_front() {
        let all = Chunk {
            dropped: 0,
            elements: b"\x01a\x01b\x01c",
        };
        let later = Chunk {
            dropped: 4,
            elements: b"\x01c",
        };
        assert_eq!(all.place_before(2).unwrap(), 4);
        assert_eq!(later.place_before(2).unwrap(), 4);
        assert_eq!(later.behind(2).unwrap(), b"\x01c");
        assert_eq!(later.behind(6).unwrap(), b"");
        assert_eq!(kind(later.behind(7)), ErrorKind::Corrupt);
        assert_eq!(kind(all.behind(u64::MAX)), ErrorKind::Corrupt);
    }
}
