use std::marker::PhantomData;

use state_api::access::{MapAccess, SortedMapAccess};
use state_api::{
    BatchEntry, OrderedKey, Page, Result, StateKey, StateType, WriteBatch, prefix_end,
};

use super::state::{Found, Located, put_stamped};
use super::value::{look, take_up};
use crate::format::split_timestamp;

/// Entries read at once while going through a map.
const PAGE: usize = 128;
/// Bytes of a page up to which its vectors are kept for the next one.
const KEPT_PAGE: usize = 64 << 10;

/// How map keys are encoded.
pub trait MapKeys<MK>: 'static {
    /// Appends a map key.
    fn put(key: &MK, out: &mut Vec<u8>);

    /// Reads a map key that takes up all of the bytes.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a map key.
    fn get(bytes: &[u8]) -> Result<MK>;
}

/// Map keys in their compact encoding, in no order of meaning.
#[derive(Clone, Copy, Debug)]
pub struct CompactKeys;

impl<MK: StateKey> MapKeys<MK> for CompactKeys {
    #[inline]
    fn put(key: &MK, out: &mut Vec<u8>) {
        key.encode(out);
    }

    #[inline]
    fn get(mut bytes: &[u8]) -> Result<MK> {
        let key = MK::decode(&mut bytes)?;
        state_api::wire::expect_end(bytes)?;
        Ok(key)
    }
}

/// Map keys in their ordered encoding: stored entries are in the order of the keys.
#[derive(Clone, Copy, Debug)]
pub struct OrderedKeys;

impl<MK: OrderedKey> MapKeys<MK> for OrderedKeys {
    #[inline]
    fn put(key: &MK, out: &mut Vec<u8>) {
        key.encode_ordered(out);
    }

    #[inline]
    fn get(mut bytes: &[u8]) -> Result<MK> {
        let key = MK::decode_ordered(&mut bytes)?;
        state_api::wire::expect_end(bytes)?;
        Ok(key)
    }
}

/// A map state of one key and namespace in a byte store.
pub type ByteMap<'a, MK, MV> = ByteEntries<'a, MK, MV, CompactKeys>;

/// A sorted map state of one key and namespace in a byte store.
pub type ByteSortedMap<'a, MK, MV> = ByteEntries<'a, MK, MV, OrderedKeys>;

type EntryTypes<MK, MV, C> = PhantomData<fn() -> (MK, MV, C)>;

/// A map state of one key and namespace in a byte store: each map entry is an entry of the store.
pub struct ByteEntries<'a, MK, MV, C> {
    at: Located<'a>,
    types: EntryTypes<MK, MV, C>,
}

/// What becomes of an entry that was visited.
enum Verdict {
    Keep,
    Remove,
    /// The value buffer holds what takes its place.
    Replace,
}

impl<'a, MK: StateKey, MV: StateType, C: MapKeys<MK>> ByteEntries<'a, MK, MV, C> {
    /// Creates the view.
    #[inline]
    #[must_use]
    pub fn new(at: Located<'a>) -> Self {
        Self {
            at,
            types: PhantomData,
        }
    }

    #[inline]
    fn locate(&mut self, key: &MK) {
        self.at.truncate();
        C::put(key, &mut self.at.state.key);
    }

    /// Returns the stored key of a map key.
    fn stored_key(&self, key: &MK) -> Vec<u8> {
        let mut stored = self.at.composite().to_vec();
        C::put(key, &mut stored);
        stored
    }

    /// Goes through the stored entries from `start` to `end`, a page at a time; what becomes of the entries of a page is
    /// written in one batch.
    ///
    /// `f` gets the map key, the stored value and the buffer for what takes its place.
    fn visit(
        &mut self,
        start: Vec<u8>,
        end: Option<&[u8]>,
        mut f: impl FnMut(&Located<'_>, &[u8], &[u8], &mut Vec<u8>) -> Result<Verdict>,
    ) -> Result<()> {
        let mut next = start;
        let mut page = std::mem::take(&mut self.at.state.page);
        let column = self.at.column();
        loop {
            self.at.store.scan(column, &next, end, PAGE, &mut page)?;
            let full = page.entries.len() == PAGE;
            if let Some((last, _)) = page.entries.last().filter(|_| full) {
                next.clone_from(last);
                next.push(0);
            }
            let mut batch = WriteBatch::default();
            let mut outcome = Ok(());
            let mut replacement = Vec::new();
            // The page keeps its vectors, to be filled again.
            for (key, value) in &mut page.entries {
                let map_key = key.get(self.at.composite_len()..).unwrap_or_default();
                match f(&self.at, map_key, value, &mut replacement) {
                    Ok(Verdict::Keep) => {}
                    Ok(Verdict::Remove) => {
                        let key = std::mem::take(key);
                        batch.entries.push(BatchEntry::Delete(column, key));
                    }
                    Ok(Verdict::Replace) => {
                        batch.entries.push(BatchEntry::Put(
                            column,
                            std::mem::take(key),
                            std::mem::take(&mut replacement),
                        ));
                    }
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            // What was decided before an error holds.
            if !batch.entries.is_empty() {
                self.at.store.write(batch)?;
            }
            outcome?;
            if !full {
                break;
            }
        }
        let held = |(key, value): &(Vec<u8>, Vec<u8>)| key.capacity() + value.capacity();
        if page.entries.iter().map(held).sum::<usize>() > KEPT_PAGE {
            page.entries.clear();
        }
        self.at.state.page = page;
        Ok(())
    }

    fn for_each_between(
        &mut self,
        start: Vec<u8>,
        end: Option<&[u8]>,
        mut f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()> {
        let now = self.at.stamp();
        self.visit(start, end, |at, map_key, stored, replacement| {
            let (expired, body) = look_at(at, stored, now)?;
            if expired && !at.returns_expired() {
                return Ok(Verdict::Remove);
            }
            let key = C::get(map_key).map_err(|e| at.naming(e))?;
            let value: MV = at.codec().decode_all(body).map_err(|e| at.naming(e))?;
            f(&key, &value)?;
            if expired {
                return Ok(Verdict::Remove);
            }
            match now.filter(|_| at.renews_on_read()) {
                Some(now) => {
                    replacement.extend_from_slice(&now.to_le_bytes());
                    replacement.extend_from_slice(body);
                    Ok(Verdict::Replace)
                }
                None => Ok(Verdict::Keep),
            }
        })
    }

    /// Returns the pair of an entry unless it is expired.
    fn live_pair(&self, key: &[u8], stored: &[u8]) -> Result<Option<(MK, MV)>> {
        let (expired, body) = look_at(&self.at, stored, self.at.stamp())?;
        if expired {
            return Ok(None);
        }
        let map_key = C::get(key.get(self.at.composite_len()..).unwrap_or_default())
            .map_err(|e| self.at.naming(e))?;
        let value = self
            .at
            .codec()
            .decode_all(body)
            .map_err(|e| self.at.naming(e))?;
        Ok(Some((map_key, value)))
    }
}

/// Splits a stored value into whether it is expired and what is behind its timestamp.
fn look_at<'v>(at: &Located<'_>, stored: &'v [u8], now: Option<i64>) -> Result<(bool, &'v [u8])> {
    match (at.ttl(), now) {
        (Some(ttl), Some(now)) => {
            let (stamp, body) = split_timestamp(stored).map_err(|e| at.naming(e))?;
            Ok((ttl.is_expired(stamp, now), body))
        }
        _ => Ok((false, stored)),
    }
}

impl<MK: StateKey, MV: StateType, C: MapKeys<MK>> MapAccess<MK, MV> for ByteEntries<'_, MK, MV, C> {
    #[inline]
    fn with<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R> {
        self.locate(key);
        let value = look(&mut self.at)?;
        Ok(f(value.as_ref()))
    }

    #[inline]
    fn put(&mut self, key: MK, value: MV) -> Result<()> {
        self.locate(&key);
        self.at.write(&value)
    }

    fn put_all(&mut self, entries: Vec<(MK, MV)>) -> Result<()> {
        let (column, codec, stamp) = (self.at.column(), self.at.codec(), self.at.stamp());
        let put = |(key, value): (MK, MV)| {
            let mut stored = Vec::new();
            put_stamped(codec, stamp, &value, &mut stored);
            BatchEntry::Put(column, self.stored_key(&key), stored)
        };
        let entries: Vec<_> = entries.into_iter().map(put).collect();
        if entries.is_empty() {
            Ok(())
        } else {
            self.at.store.write(WriteBatch { entries })
        }
    }

    #[inline]
    fn modify<R>(&mut self, key: &MK, f: impl FnOnce(&mut Option<MV>) -> R) -> Result<R> {
        self.locate(key);
        let (mut value, stored) = take_up(&mut self.at)?;
        let result = f(&mut value);
        match value {
            Some(value) => self.at.write(&value)?,
            None if stored => self.at.delete()?,
            None => {}
        }
        Ok(result)
    }

    fn remove(&mut self, key: &MK) -> Result<bool> {
        self.locate(key);
        let found = self.at.read()?;
        if found != Found::Nothing {
            self.at.delete()?;
        }
        Ok(found == Found::Live)
    }

    fn for_each(&mut self, f: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> {
        let start = self.at.composite().to_vec();
        let end = prefix_end(&start);
        self.for_each_between(start, end.as_deref(), f)
    }

    fn retain(&mut self, mut f: impl FnMut(&MK, &mut MV) -> bool) -> Result<()> {
        let start = self.at.composite().to_vec();
        let end = prefix_end(&start);
        let now = self.at.stamp();
        self.visit(start, end.as_deref(), |at, map_key, stored, replacement| {
            let (expired, body) = look_at(at, stored, now)?;
            if expired {
                return Ok(Verdict::Remove);
            }
            let key = C::get(map_key).map_err(|e| at.naming(e))?;
            let mut value: MV = at.codec().decode_all(body).map_err(|e| at.naming(e))?;
            if !f(&key, &mut value) {
                return Ok(Verdict::Remove);
            }
            replacement.clear();
            put_stamped(at.codec(), now, &value, replacement);
            Ok(if replacement == stored {
                Verdict::Keep
            } else {
                Verdict::Replace
            })
        })
    }

    fn is_empty(&mut self) -> Result<bool> {
        self.at.truncate();
        let end = prefix_end(self.at.composite());
        let mut page = Page::default();
        self.at.store.scan(
            self.at.column(),
            &self.at.state.key,
            end.as_deref(),
            1,
            &mut page,
        )?;
        Ok(page.entries.is_empty())
    }

    fn clear(&mut self) -> Result<()> {
        self.at.delete_all()
    }
}

impl<MK: OrderedKey, MV: StateType> SortedMapAccess<MK, MV> for ByteSortedMap<'_, MK, MV> {
    fn range(
        &mut self,
        from: Option<&MK>,
        to: Option<&MK>,
        f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()> {
        match self.bounds(from, to) {
            Some((start, end)) => self.for_each_between(start, end.as_deref(), f),
            None => Ok(()),
        }
    }

    fn first(&mut self) -> Result<Option<(MK, MV)>> {
        let Some((start, end)) = self.bounds(None, None) else {
            return Ok(None);
        };
        let mut page = Page::default();
        let mut next = start;
        loop {
            self.at
                .store
                .scan(self.at.column(), &next, end.as_deref(), 1, &mut page)?;
            let Some((key, stored)) = page.entries.pop() else {
                return Ok(None);
            };
            if let Some(pair) = self.live_pair(&key, &stored)? {
                return Ok(Some(pair));
            }
            self.at.store.delete(self.at.column(), &key)?;
            next = key;
        }
    }

    fn last(&mut self) -> Result<Option<(MK, MV)>> {
        let Some((start, mut end)) = self.bounds(None, None) else {
            return Ok(None);
        };
        let mut page = Page::default();
        loop {
            self.at
                .store
                .scan_last(self.at.column(), &start, end.as_deref(), &mut page)?;
            let Some((key, stored)) = page.entries.pop() else {
                return Ok(None);
            };
            if let Some(pair) = self.live_pair(&key, &stored)? {
                return Ok(Some(pair));
            }
            self.at.store.delete(self.at.column(), &key)?;
            end = Some(key);
        }
    }

    fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) -> Result<()> {
        match self.bounds(from, to) {
            Some((start, end)) => {
                self.at
                    .store
                    .delete_range(self.at.column(), &start, end.as_deref())
            }
            None => Ok(()),
        }
    }
}

impl<MK: OrderedKey, MV: StateType> ByteSortedMap<'_, MK, MV> {
    /// Returns the stored keys between which a range lies; `None` if it is empty.
    fn bounds(&self, from: Option<&MK>, to: Option<&MK>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            return None;
        }
        let bound = |key: &MK| self.stored_key(key);
        let start = from.map_or_else(|| self.at.composite().to_vec(), bound);
        let end = to.map_or_else(|| prefix_end(self.at.composite()), |to| Some(bound(to)));
        Some((start, end))
    }
}
