use std::marker::PhantomData;

use state_api::access::ListAccess;
use state_api::{Result, StateType};

use super::state::{ByteState, Located};
use crate::format::{Elements, put_element, put_encoded_element};

/// A list state of one key and namespace in a byte store: one stored value, to which elements are merged.
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

    /// Calls `f` for each element of a stored list.
    fn each(&self, stored: &[u8], mut f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        let mut elements = Elements::new(stored, self.at.ttl().is_some());
        while let Some((_, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            let element: T = self
                .at
                .codec()
                .decode_all(bytes)
                .map_err(|e| self.at.naming(e))?;
            f(&element)?;
        }
        Ok(())
    }

    /// Reads the list and removes its expired elements; returns it as it was if they may be seen once more.
    fn load(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.at.read_raw()? {
            self.at.state.value.clear();
            return Ok(None);
        }
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
        self.encode(&elements);
        self.store()
    }

    fn for_each(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        if let Some(last_look) = self.load()? {
            return self.each(&last_look, f);
        }
        self.renew()?;
        let stored = std::mem::take(&mut self.at.state.value);
        let result = self.each(&stored, f);
        // The buffer keeps its capacity.
        self.at.state.value = stored;
        result
    }

    fn retain(&mut self, mut f: impl FnMut(&T) -> bool) -> Result<()> {
        self.load()?;
        let stored = std::mem::take(&mut self.at.state.value);
        let timed = self.at.ttl().is_some();
        let mut elements = Elements::new(&stored, timed);
        while let Some((stamp, bytes)) = elements.next().map_err(|e| self.at.naming(e))? {
            let element: T = self
                .at
                .codec()
                .decode_all(bytes)
                .map_err(|e| self.at.naming(e))?;
            if f(&element) {
                put_encoded_element(timed.then_some(stamp), bytes, &mut self.at.state.value);
            }
        }
        if self.at.state.value.len() == stored.len() {
            Ok(())
        } else {
            self.store()
        }
    }

    fn pop_front(&mut self) -> Result<Option<T>> {
        self.load()?;
        let mut elements = Elements::new(&self.at.state.value, self.at.ttl().is_some());
        let Some((_, bytes)) = elements.next().map_err(|e| self.at.naming(e))? else {
            return Ok(None);
        };
        let element = self
            .at
            .codec()
            .decode_all(bytes)
            .map_err(|e| self.at.naming(e))?;
        let left = elements.rest().len();
        let popped = self.at.state.value.len() - left;
        self.at.state.value.drain(..popped);
        self.store()?;
        Ok(Some(element))
    }

    fn len(&mut self) -> Result<usize> {
        self.load()?;
        let mut elements = Elements::new(&self.at.state.value, self.at.ttl().is_some());
        let mut len = 0;
        while elements.next().map_err(|e| self.at.naming(e))?.is_some() {
            len += 1;
        }
        Ok(len)
    }

    fn clear(&mut self) -> Result<()> {
        self.at.delete()
    }
}
