//! Lists that stand in chunks, whatever their elements are.
use std::ops::Range;

use state_api::{BatchEntry, Error, Page, Result, WriteBatch};

use super::packer::Packer;
use super::state::Located;
use crate::format::{
    Chunk, ChunkCheck, Elements, ListHead, StoredList, chunk_number, missing_chunk,
    put_chunk_number,
};

/// Chunks read from the store at once.
const PAGE: usize = 16;
/// Up to so many chunks are deleted one by one; a deleted range costs a store more than a few keys do.
const FEW: u64 = 32;
/// Bytes of a buffer up to which it is kept for the next access.
const KEPT: usize = 64 << 10;

/// How a list stands that was read. Its value is in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Nothing,
    Whole,
    Chunked(ChunkedList),
}

/// A list in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkedList {
    pub(super) head: ListHead,
    /// Where in the value the elements behind the chunks begin.
    pub(super) tail_at: usize,
}

/// Where a list begins if an element is its last one that goes: a chunk, or what is behind the chunks if its number is `next`, and
/// bytes of elements in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    chunk: u64,
    skipped: u64,
}

impl Located<'_> {
    fn timed(&self) -> bool {
        self.ttl().is_some()
    }

    /// Reads a list.
    pub(super) fn read_list(&mut self) -> Result<Shape> {
        if !self.read_raw()? {
            self.state.value.clear();
            return Ok(Shape::Nothing);
        }
        let value = &self.state.value;
        match StoredList::read(value, self.timed()).map_err(|e| self.naming(e))? {
            StoredList::Whole(_) => Ok(Shape::Whole),
            StoredList::Head(head, tail) => {
                let tail_at = value.len() - tail.len();
                self.state.has_chunks = true;
                Ok(Shape::Chunked(ChunkedList { head, tail_at }))
            }
            StoredList::Chunk(_) => {
                Err(self.naming(Error::corrupt("a chunk stands in the place of a list")))
            }
        }
    }

    /// Reads a list and cuts what is longer than so many bytes into chunks: of a list that has none yet, or what was appended
    /// behind them.
    pub(super) fn cut_list(&mut self, whole: usize, tail: usize) -> Result<Shape> {
        let shape = self.read_list()?;
        let (list, most) = match shape {
            Shape::Nothing => return Ok(shape),
            Shape::Whole => (
                ChunkedList {
                    head: ListHead::starting_at(0),
                    tail_at: 0,
                },
                whole,
            ),
            Shape::Chunked(list) => (list, tail),
        };
        if self.state.value.len() - list.tail_at <= most {
            return Ok(shape);
        }
        let value = std::mem::take(&mut self.state.value);
        let mut packer = Packer::behind(self, list.head);
        let timed = self.timed();
        let mut elements = Elements::new(value.get(list.tail_at..).unwrap_or_default(), timed);
        while let Some((stamp, element)) = elements.next().map_err(|e| self.naming(e))? {
            packer.put(self.store, timed.then_some(stamp), element)?;
        }
        drop(value);
        self.put_packed(packer)
    }

    /// Stores what was packed as the list.
    pub(super) fn put_packed(&mut self, packer: Packer) -> Result<Shape> {
        let (head, tail) = packer.finish(self.store)?;
        self.state.value = tail;
        self.put_list(&head, 0)
    }

    /// Stores a head in front of the elements that begin at `tail_at` in the buffer. Without chunks the elements are the whole
    /// list, and without any there is none.
    pub(super) fn put_list(&mut self, head: &ListHead, tail_at: usize) -> Result<Shape> {
        let mut front = Vec::new();
        if head.has_chunks() {
            head.put(self.timed(), &mut front);
        }
        let list = ChunkedList {
            head: *head,
            tail_at: front.len(),
        };
        self.state.value.splice(..tail_at, front);
        if self.state.value.is_empty() {
            self.delete()?;
            return Ok(Shape::Nothing);
        }
        self.put()?;
        if list.tail_at == 0 {
            return Ok(Shape::Whole);
        }
        self.state.has_chunks = true;
        Ok(Shape::Chunked(list))
    }

    /// Reads the first chunk of a list into its buffer. Of a state with time-to-live chunks may be gone: then the head moves on;
    /// returns false if none is left.
    pub(super) fn read_first_chunk(&mut self, head: &mut ListHead) -> Result<bool> {
        let key = self.chunk_key(head.first);
        let mut chunk = std::mem::take(&mut self.state.chunk);
        let found = self.store.get(self.column(), &key, &mut chunk);
        self.state.chunk = chunk;
        if found? {
            return Ok(true);
        }
        if !self.timed() {
            return Err(self.naming(missing_chunk(head.first)));
        }
        let (end, mut page) = (self.chunk_key(head.next), Page::default());
        self.store
            .scan(self.column(), &key, Some(&end), 1, &mut page)?;
        head.skipped = 0;
        let Some((key, chunk)) = page.entries.pop() else {
            head.first = head.next;
            return Ok(false);
        };
        head.first = self.number_of(&key)?;
        self.state.chunk = chunk;
        Ok(true)
    }

    /// Lets go of a buffer that a long element has blown up.
    pub(super) fn trim_chunk(&mut self) {
        if self.state.chunk.capacity() > KEPT {
            self.state.chunk = Vec::new();
        }
    }

    fn number_of(&self, stored_key: &[u8]) -> Result<u64> {
        chunk_number(self.composite(), stored_key).ok_or_else(|| {
            self.naming(Error::corrupt(
                "the key of a chunk of a list makes no sense",
            ))
        })
    }

    fn chunk_key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.composite_len() + crate::format::NUMBER_LEN);
        key.extend_from_slice(self.composite());
        put_chunk_number(number, &mut key);
        key
    }

    /// Calls `f` for each element of a list, in order, with its place, timestamp and bytes. Chunks are read in pages. `f` may write
    /// chunks of other numbers.
    pub(super) fn walk_list(
        &mut self,
        list: &ChunkedList,
        mut f: impl FnMut(&mut Self, Place, i64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let timed = self.timed();
        let mut check = ChunkCheck::new(list.head, timed);
        let mut next = self.chunk_key(list.head.first);
        let end = self.chunk_key(list.head.next);
        let mut page = std::mem::take(&mut self.state.page);
        loop {
            self.store
                .scan(self.column(), &next, Some(&end), PAGE, &mut page)?;
            for (key, stored) in &page.entries {
                let number = self.number_of(key)?;
                let chunk = Chunk::of(stored).map_err(|e| self.naming(e))?;
                let bytes = check.chunk(number, &chunk);
                let mut elements = Elements::new(bytes.map_err(|e| self.naming(e))?, timed);
                while let Some((stamp, element)) = elements.next().map_err(|e| self.naming(e))? {
                    check.element();
                    let rest = elements.rest().len();
                    let place = if rest > 0 {
                        Place {
                            chunk: number,
                            skipped: chunk.place_before(rest).map_err(|e| self.naming(e))?,
                        }
                    } else {
                        Place {
                            chunk: number + 1,
                            skipped: 0,
                        }
                    };
                    f(self, place, stamp, element)?;
                }
            }
            if page.entries.len() < PAGE {
                break;
            }
            if let Some((last, _)) = page.entries.last() {
                next.clone_from(last);
                next.push(0);
            }
        }
        let held = |(key, value): &(Vec<u8>, Vec<u8>)| key.capacity() + value.capacity();
        if page.entries.iter().map(held).sum::<usize>() > KEPT * 2 {
            page.entries.clear();
        }
        self.state.page = page;
        check.finish().map_err(|e| self.naming(e))?;

        let value = std::mem::take(&mut self.state.value);
        let tail = value.get(list.tail_at..).unwrap_or_default();
        let mut elements = Elements::new(tail, timed);
        while let Some((stamp, element)) = elements.next().map_err(|e| self.naming(e))? {
            let place = Place {
                chunk: list.head.next,
                skipped: (tail.len() - elements.rest().len()) as u64,
            };
            f(self, place, stamp, element)?;
        }
        self.state.value = value;
        Ok(())
    }

    /// Takes those elements out of a list for which `keep` returns false, and gives the others a new timestamp if there is one;
    /// returns how many are left.
    ///
    /// What goes from the front costs its chunks' deletion. Whatever else is changed makes all chunks be written anew, under new
    /// numbers: until the new head is there, the list is as it was.
    pub(super) fn sweep_list(
        &mut self,
        list: &ChunkedList,
        restamp: Option<i64>,
        mut keep: impl FnMut(&Self, i64, &[u8]) -> Result<bool>,
    ) -> Result<u64> {
        let mut verdicts = Verdicts::default();
        let (mut front, mut from_front) = (None, 0);
        self.walk_list(list, |at, place, stamp, element| {
            let kept = keep(at, stamp, element)?;
            if !kept && verdicts.kept == 0 {
                (front, from_front) = (Some(place), from_front + 1);
            }
            verdicts.push(kept);
            Ok(())
        })?;
        let kept = verdicts.kept;
        let is_front_only = kept + from_front == verdicts.len;
        if verdicts.len == 0 {
            // The chunks are gone because all in them was expired.
            let empty = ListHead::starting_at(list.head.next);
            return self.put_list(&empty, list.tail_at).map(|_| 0);
        }
        match (restamp, front) {
            (None, None) if is_front_only => {}
            (None, Some(front)) if is_front_only => self.move_front(list, front, from_front)?,
            _ => self.rewrite_list(list, restamp, &verdicts)?,
        }
        Ok(kept)
    }

    fn move_front(&mut self, list: &ChunkedList, front: Place, gone: u64) -> Result<()> {
        let (mut head, mut tail_at) = (list.head, list.tail_at);
        head.first = front.chunk;
        if head.has_chunks() {
            head.skipped = front.skipped;
            // The walk has counted them.
            head.elements = head.elements.saturating_sub(gone);
        } else {
            tail_at += front.skipped as usize;
        }
        self.put_list(&head, tail_at)?;
        self.delete_chunks(list.head.first..front.chunk)
    }

    fn rewrite_list(
        &mut self,
        list: &ChunkedList,
        restamp: Option<i64>,
        verdicts: &Verdicts,
    ) -> Result<()> {
        let timed = self.timed();
        let mut packer = Packer::behind(self, ListHead::starting_at(list.head.next));
        let mut position = 0;
        self.walk_list(list, |at, _, stamp, element| {
            let kept = verdicts.get(position);
            position += 1;
            if !kept {
                return Ok(());
            }
            let stamp = timed.then_some(restamp.unwrap_or(stamp));
            packer.put(at.store, stamp, element)
        })?;
        self.put_packed(packer)?;
        self.delete_chunks(list.head.first..list.head.next)
    }

    /// Removes chunks of a list.
    pub(super) fn delete_chunks(&mut self, numbers: Range<u64>) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let column = self.column();
        if numbers.end - numbers.start > FEW {
            let (start, end) = (self.chunk_key(numbers.start), self.chunk_key(numbers.end));
            return self.store.delete_range(column, &start, Some(&end));
        }
        let delete = |number| BatchEntry::Delete(column, self.chunk_key(number));
        let entries = numbers.map(delete).collect();
        self.store.write(WriteBatch { entries })
    }

    /// Removes a list if it stands in chunks; returns whether it does.
    pub(super) fn delete_if_chunked(&mut self) -> Result<bool> {
        if !self.state.has_chunks || !self.read_raw()? {
            return Ok(false);
        }
        let stored = StoredList::read(&self.state.value, self.timed());
        // Bytes that make no sense may have chunks, too.
        if matches!(stored, Ok(StoredList::Whole(_))) {
            return Ok(false);
        }
        self.delete_all()?;
        Ok(true)
    }
}

/// Which elements of a list stay, by position.
#[derive(Default)]
struct Verdicts {
    bits: Vec<u64>,
    len: u64,
    kept: u64,
}

impl Verdicts {
    fn push(&mut self, keep: bool) {
        let bit = self.len % 64;
        if bit == 0 {
            self.bits.push(0);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u64::from(keep) << bit;
        }
        self.len += 1;
        self.kept += u64::from(keep);
    }

    fn get(&self, position: u64) -> bool {
        let word = self.bits.get((position / 64) as usize);
        word.is_some_and(|word| word >> (position % 64) & 1 == 1)
    }
}
