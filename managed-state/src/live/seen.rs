use std::iter;

use super::tables::{Place, Tables};

/// The time between two snapshots of a table that remembers changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) u64);

/// What is known of a key that changes, since the last snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// It was noted before.
    Known,
    /// It was not noted before.
    New,
    /// It may have been noted before.
    Unsure,
}

/// Which entries of a key group changed since the last snapshot: a bit for each bucket, which hardly any change has to fetch
/// from memory, where a set of keys would be another table of random accesses.
///
/// A bit says that the key of the entry in that bucket is noted. It may be missing for one that is, and then the key is noted
/// twice; a bit too many would lose a change, so all bits go as soon as entries may have moved.
#[derive(Debug)]
pub(crate) struct Seen {
    bits: Vec<u64>,
    interval: Interval,
    moves: u32,
    /// Bits of this interval were forgotten.
    forgot: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self::new()
    }
}

impl Seen {
    pub(crate) const fn new() -> Self {
        Self {
            bits: Vec::new(),
            interval: Interval(u64::MAX),
            moves: 0,
            forgot: false,
        }
    }

    /// Marks the entry at a place and says whether its key is noted already. What that allocates is added to `bytes`.
    #[inline]
    pub(crate) fn mark<E>(
        &mut self,
        place: Place,
        tables: &Tables<E>,
        interval: Interval,
        bytes: &mut usize,
    ) -> Note {
        if self.interval != interval || self.moves != tables.moves() {
            self.forget(interval, tables.moves());
        }
        let new = if self.forgot { Note::Unsure } else { Note::New };
        let Some(number) = Tables::<E>::number(place) else {
            self.forgot = true;
            return Note::Unsure;
        };
        let (word, bit) = (number / 64, 1 << (number % 64));
        if word >= self.bits.len() {
            self.make_room(word, bytes);
        }
        let found = self.bits[word];
        self.bits[word] = found | bit;
        if found & bit == 0 { new } else { Note::Known }
    }

    /// Says what is known of the key of the entry at a place.
    #[inline]
    pub(crate) fn note_of<E>(&self, place: Place, moves: u32, interval: Interval) -> Note {
        if self.interval != interval {
            return Note::New;
        }
        let number = Tables::<E>::number(place);
        let word = number.and_then(|number| Some(self.bits.get(number / 64)? >> (number % 64)));
        if self.moves == moves && word.is_some_and(|word| word & 1 != 0) {
            return Note::Known;
        }
        match self.forgot || self.moves != moves || number.is_none() {
            true => Note::Unsure,
            false => Note::New,
        }
    }

    /// Returns what is marked in an interval; `None` if marks of it were forgotten.
    pub(crate) fn marked<'a, E>(
        &'a self,
        tables: &'a Tables<E>,
        interval: Interval,
    ) -> Option<Marked<'a, E>> {
        let bits = match self.interval == interval {
            false => &[],
            true if self.forgot || self.moves != tables.moves() => return None,
            true => &*self.bits,
        };
        Some(Marked { bits, tables })
    }

    /// Takes the mark away that an entry which was in the same place may have left.
    #[inline]
    pub(crate) fn unmark<E>(&mut self, place: Place) {
        let number = Tables::<E>::number(place);
        if let Some((number, word)) =
            number.and_then(|number| Some((number, self.bits.get_mut(number / 64)?)))
        {
            *word &= !(1 << (number % 64));
        }
    }

    /// Takes back a mark of this interval: the entry came from where its own was forgotten.
    pub(crate) fn doubt<E>(&mut self, place: Place) {
        self.unmark::<E>(place);
        self.forgot = true;
    }

    #[cold]
    fn forget(&mut self, interval: Interval, moves: u32) {
        self.forgot = self.interval == interval;
        self.bits.fill(0);
        (self.interval, self.moves) = (interval, moves);
    }

    #[cold]
    fn make_room(&mut self, word: usize, bytes: &mut usize) {
        *bytes -= self.bytes();
        self.bits.resize((word + 1).next_power_of_two().max(4), 0);
        *bytes += self.bytes();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bits.capacity() * size_of::<u64>()
    }
}

/// The entries of a key group that are marked.
pub(crate) struct Marked<'a, E> {
    bits: &'a [u64],
    tables: &'a Tables<E>,
}

impl<'a, E> Marked<'a, E> {
    /// Returns the number of words that the marks are in.
    pub(crate) fn words(&self) -> usize {
        self.bits.len()
    }

    /// Returns the number of marks.
    pub(crate) fn len(&self) -> usize {
        self.bits
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Yields the entries in the order of their places.
    pub(crate) fn entries(self) -> impl Iterator<Item = &'a E> {
        let Self { bits, tables } = self;
        let numbers = bits.iter().enumerate().flat_map(|(word, bits)| {
            let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
            let words = iter::successors(Some(*bits).filter(|bits| *bits != 0), rest);
            words.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        });
        numbers.filter_map(|number| tables.at(Tables::<E>::numbered(number)))
    }
}
