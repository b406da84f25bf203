use std::marker::PhantomData;

use state_api::access::ListAccess;
use state_api::{Error, Result, StateType};

use super::long_list::{ChunkedList, Shape};
use super::state::{ByteState, Located};
use crate::format::{Chunk, Elements, put_element, put_encoded_element};

/// A list state of one key and namespace in a byte store: one stored value, to which elements are merged.
///
/// A value that has become long is cut into chunks with keys of their own by the first access that takes something from the list or
/// counts it; so these cost what they touch, however long the list is.
pub struct ByteList<'a, T> {
    at: Located<'a>,
    types: PhantomData<fn() -> T>,
}

impl<'a, T: StateType> ByteList<'a, T> {
    /// Creates the view.
    #[inline]
    #[must_use]
    pub fn new(at: Located<'a>) -> Self {
        Self {
            at,
            types: PhantomData,
        }
    }

    /// Encodes elements into the value buffer, with the time of now.
    fn encode(&mut self, elements: &[T]) {
        let (codec, stamp) = (self.at.codec(), self.at.stamp());
        self.at.state.value.clear();
        for element in elements {
            put_element(codec, stamp, element, &mut self.at.state.value);
        }
    }

    fn merge(&mut self) -> Result<()> {
        let ByteState { key, value, .. } = &*self.at.state;
        self.at.store.merge(self.at.state.column(), key, value)
    }

    /// Calls `f` for each element of a list that stands whole.
    fn each(&self, stored: &[u8], mut f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        let mut elements = Elements::new(stored, self.at.ttl().is_some());
        while let Some((_, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            f(&decode(&self.at, bytes)?)?;
        }
        Ok(())
    }

    /// Removes the expired elements of a list that was read whole; returns it as it was if they may be seen once more.
    fn expire(&mut self) -> Result<Option<Vec<u8>>> {
        let (Some(ttl), Some(now)) = (self.at.ttl(), self.at.stamp()) else {
            return Ok(None);
        };
        let mut kept = Vec::new();
        let mut expired = false;
        let mut elements = Elements::new(&self.at.state.value, true);
        while let Some((stamp, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            if ttl.is_expired(stamp, now) {
                expired = true;
            } else {
                put_encoded_element(Some(stamp), bytes, &mut kept);
            }
        }
        if !expired {
            return Ok(None);
        }
        let was = std::mem::replace(&mut self.at.state.value, kept);
        self.store()?;
        Ok(ttl.returns_expired().then_some(was))
    }

    /// Stores the list in the buffer, or removes it if it is empty.
    fn store(&mut self) -> Result<()> {
        if self.at.state.value.is_empty() {
            self.at.delete()
        } else {
            self.at.put()
        }
    }

    fn renew(&mut self) -> Result<()> {
        let Some(now) = self
            .at
            .stamp()
            .filter(|_| self.at.renews_on_read() && !self.at.state.value.is_empty())
        else {
            return Ok(());
        };
        let was = std::mem::take(&mut self.at.state.value);
        let mut elements = Elements::new(&was, true);
        while let Some((_, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            put_encoded_element(Some(now), bytes, &mut self.at.state.value);
        }
        self.at.put()
    }

    fn for_each_whole(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        if let Some(last_look) = self.expire()? {
            return self.each(&last_look, f);
        }
        self.renew()?;
        self.each_read(f)
    }

    /// Calls `f` for each element of the list in the buffer.
    fn each_read(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        let stored = std::mem::take(&mut self.at.state.value);
        let result = self.each(&stored, f);
        // The buffer keeps its capacity.
        self.at.state.value = stored;
        result
    }

    fn retain_whole(&mut self, mut f: impl FnMut(&T) -> bool) -> Result<()> {
        self.expire()?;
        let stored = std::mem::take(&mut self.at.state.value);
        let timed = self.at.ttl().is_some();
        let mut elements = Elements::new(&stored, timed);
        while let Some((stamp, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            if f(&decode(&self.at, bytes)?) {
                put_encoded_element(timed.then_some(stamp), bytes, &mut self.at.state.value);
            }
        }
        if self.at.state.value.len() == stored.len() {
            Ok(())
        } else {
            self.store()
        }
    }

    fn pop_front_whole(&mut self) -> Result<Option<T>> {
        self.expire()?;
        let mut elements = Elements::new(&self.at.state.value, self.at.ttl().is_some());
        let Some((_, bytes)) = elements.next().map_err(|e| self.at.naming(e))? else {
            return Ok(None);
        };
        let element = decode(&self.at, bytes)?;
        let left = elements.rest().len();
        let popped = self.at.state.value.len() - left;
        self.at.state.value.drain(..popped);
        self.store()?;
        Ok(Some(element))
    }

    /// Counts the elements in the buffer that begin at `tail_at`.
    fn count(&self, tail_at: usize) -> Result<u64> {
        let tail = self.at.state.value.get(tail_at..).unwrap_or_default();
        let mut elements = Elements::new(tail, self.at.ttl().is_some());
        let mut len = 0;
        while elements.next().map_err(|e| self.at.naming(e))?.is_some() {
            len += 1;
        }
        Ok(len)
    }

    fn for_each_chunked(
        &mut self,
        list: &ChunkedList,
        mut f: impl FnMut(&T) -> Result<()>,
    ) -> Result<()> {
        let (Some(ttl), Some(now)) = (self.at.ttl(), self.at.stamp()) else {
            return self
                .at
                .walk_list(list, |at, _, _, bytes| f(&decode(at, bytes)?));
        };
        if ttl.returns_expired() {
            let mut expired = false;
            self.at.walk_list(list, |_, _, stamp, _| {
                expired |= ttl.is_expired(stamp, now);
                Ok(())
            })?;
            if expired {
                let result = self
                    .at
                    .walk_list(list, |at, _, _, bytes| f(&decode(at, bytes)?));
                // What was read before the visitor stopped is in the buffer no more.
                let Shape::Chunked(list) = self.at.read_list()? else {
                    return result;
                };
                self.at
                    .sweep_list(&list, None, |_, stamp, _| Ok(!ttl.is_expired(stamp, now)))?;
                return result;
            }
        }
        if !self.at.renews_on_read() {
            let visit = |at: &Located<'_>, stamp, bytes: &[u8]| {
                if ttl.is_expired(stamp, now) {
                    return Ok(false);
                }
                f(&decode(at, bytes)?).map(|()| true)
            };
            return self.at.sweep_list(list, None, visit).map(drop);
        }
        self.at.sweep_list(list, Some(now), |_, stamp, _| {
            Ok(!ttl.is_expired(stamp, now))
        })?;
        match self.at.read_list()? {
            Shape::Nothing => Ok(()),
            Shape::Whole => self.each_read(f),
            Shape::Chunked(list) => self
                .at
                .walk_list(&list, |at, _, _, bytes| f(&decode(at, bytes)?)),
        }
    }

    fn pop_front_chunked(&mut self, list: &ChunkedList) -> Result<Option<T>> {
        let now = self.at.stamp();
        let mut head = list.head;
        let mut popped = None;
        while popped.is_none() && head.has_chunks() {
            if !self.at.read_first_chunk(&mut head)? {
                break;
            }
            let chunk = Chunk::of(&self.at.state.chunk).map_err(|e| self.at.naming(e))?;
            let left = chunk.behind(head.skipped).map_err(|e| self.at.naming(e))?;
            let mut elements = Elements::new(left, now.is_some());
            while let Some((stamp, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
                let times = self.at.ttl().zip(now);
                if !times.is_some_and(|(ttl, now)| ttl.is_expired(stamp, now)) {
                    popped = Some(decode(&self.at, bytes)?);
                    break;
                }
            }
            match elements.rest().len() {
                0 => (head.first, head.skipped) = (head.first + 1, 0),
                rest => {
                    let place = chunk.place_before(rest);
                    head.skipped = place.map_err(|e| self.at.naming(e))?;
                }
            }
            if now.is_none() {
                let counted = head.elements.checked_sub(1).filter(|_| popped.is_some());
                let counted = counted.filter(|left| (*left > 0) == head.has_chunks());
                head.elements = counted.ok_or_else(|| {
                    let wrong = "a list has not as many elements as its head says";
                    self.at.naming(Error::corrupt(wrong))
                })?;
            }
        }
        self.at.trim_chunk();
        let shape = self.at.put_list(&head, list.tail_at)?;
        self.at.delete_chunks(list.head.first..head.first)?;
        match (popped, shape) {
            // All in the chunks was expired.
            (None, Shape::Whole) => self.pop_front_whole(),
            (popped, _) => Ok(popped),
        }
    }
}

fn decode<T: StateType>(at: &Located<'_>, bytes: &[u8]) -> Result<T> {
    at.codec().decode_all(bytes).map_err(|e| at.naming(e))
}

impl<T: StateType> ListAccess<T> for ByteList<'_, T> {
    #[inline]
    fn push(&mut self, element: T) -> Result<()> {
        self.encode(std::slice::from_ref(&element));
        self.merge()
    }

    fn extend(&mut self, elements: Vec<T>) -> Result<()> {
        if elements.is_empty() {
            return Ok(());
        }
        self.encode(&elements);
        self.merge()
    }

    fn replace(&mut self, elements: Vec<T>) -> Result<()> {
        self.at.delete_if_chunked()?;
        self.encode(&elements);
        self.store()
    }

    fn for_each(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        let most = self.at.limits().scan;
        match self.at.cut_list(most, most)? {
            Shape::Nothing => Ok(()),
            Shape::Whole => self.for_each_whole(f),
            Shape::Chunked(list) => self.for_each_chunked(&list, f),
        }
    }

    fn retain(&mut self, mut f: impl FnMut(&T) -> bool) -> Result<()> {
        let most = self.at.limits().chunk;
        match self.at.cut_list(most, most)? {
            Shape::Nothing => Ok(()),
            Shape::Whole => self.retain_whole(f),
            Shape::Chunked(list) => {
                let times = self.at.ttl().zip(self.at.stamp());
                let keep = |at: &Located<'_>, stamp, bytes: &[u8]| {
                    let expired = times.is_some_and(|(ttl, now)| ttl.is_expired(stamp, now));
                    Ok(!expired && f(&decode(at, bytes)?))
                };
                self.at.sweep_list(&list, None, keep).map(drop)
            }
        }
    }

    fn pop_front(&mut self) -> Result<Option<T>> {
        let limits = self.at.limits();
        match self.at.cut_list(limits.chunk, limits.tail)? {
            Shape::Nothing => Ok(None),
            Shape::Whole => self.pop_front_whole(),
            Shape::Chunked(list) => self.pop_front_chunked(&list),
        }
    }

    fn len(&mut self) -> Result<usize> {
        let most = self.at.limits().chunk;
        let len = match self.at.cut_list(most, most)? {
            Shape::Nothing => 0,
            Shape::Whole => {
                self.expire()?;
                self.count(0)?
            }
            Shape::Chunked(list) => match self.at.ttl().zip(self.at.stamp()) {
                None => list.head.elements.saturating_add(self.count(list.tail_at)?),
                Some((ttl, now)) => self
                    .at
                    .sweep_list(&list, None, |_, stamp, _| Ok(!ttl.is_expired(stamp, now)))?,
            },
        };
        usize::try_from(len).map_err(|_| {
            self.at
                .naming(Error::corrupt("a list has more than can be counted"))
        })
    }

    fn is_empty(&mut self) -> Result<bool> {
        if self.at.ttl().is_some() {
            return Ok(self.len()? == 0);
        }
        Ok(match self.at.read_list()? {
            Shape::Nothing => true,
            Shape::Whole => self.at.state.value.is_empty(),
            Shape::Chunked(_) => false,
        })
    }

    fn clear(&mut self) -> Result<()> {
        if self.at.delete_if_chunked()? {
            return Ok(());
        }
        self.at.delete()
    }
}
