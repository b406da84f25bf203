use state_api::compat::migrate;
use state_api::{
    BatchEntry, ByteStore, Column, Page, Result, StateKind, StateMeta, StateType, WriteBatch,
};

use super::state::put_stamped;
use crate::format::{
    Chunk, ChunkCheck, Elements, ListHead, StoredList, chunk_number, put_chunk_number, put_element,
    split_timestamp,
};

/// Entries rewritten at once.
const PAGE: usize = 128;

/// Rewrites the values of a restored column for a state of another value type or codec, or with time-to-live added or removed.
///
/// All values are converted once before the first one is written, so an entry that can't be read leaves the column as it was.
/// Values that had no timestamp get `now_ms`, in milliseconds. Whether the types may change is for the caller to check.
///
/// # Errors
/// `Corrupt` or `Incompatible` when a value can't become one of the new type, with the state named; those of the store.
pub fn migrate_column<T: StateType>(
    store: &mut dyn ByteStore,
    column: Column,
    old: &StateMeta,
    new: &StateMeta,
    now_ms: i64,
) -> Result<()> {
    let conversion = Conversion { old, new, now_ms };
    let naming = |e: state_api::Error| e.with("state", &new.name);
    conversion
        .each_page::<T>(store, column, |_, _| Ok(()))
        .map_err(naming)?;
    conversion
        .each_page::<T>(store, column, |store, batch| store.write(batch))
        .map_err(naming)
}

struct Conversion<'a> {
    old: &'a StateMeta,
    new: &'a StateMeta,
    now_ms: i64,
}

impl Conversion<'_> {
    fn each_page<T: StateType>(
        &self,
        store: &mut dyn ByteStore,
        column: Column,
        mut write: impl FnMut(&mut dyn ByteStore, WriteBatch) -> Result<()>,
    ) -> Result<()> {
        let (mut page, mut next) = (Page::default(), Vec::new());
        let mut lists = Lists::default();
        loop {
            store.scan(column, &next, None, PAGE, &mut page)?;
            let full = page.entries.len() == PAGE;
            if let Some((last, _)) = page.entries.last() {
                next.clone_from(last);
                next.push(0);
            }
            let mut batch = WriteBatch::default();
            for (key, stored) in page.entries.drain(..) {
                if self.old.kind == StateKind::List {
                    lists.entry::<T>(self, column, key, &stored, &mut batch)?;
                    continue;
                }
                let mut converted = Vec::with_capacity(stored.len());
                self.convert::<T>(&stored, &mut converted)?;
                batch.entries.push(BatchEntry::Put(column, key, converted));
            }
            if !full {
                lists.close(self, column, &mut batch)?;
            }
            write(store, batch)?;
            if !full {
                return Ok(());
            }
        }
    }

    fn convert<T: StateType>(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (stamp, body) = if self.old.ttl_ms.is_some() {
            split_timestamp(stored)?
        } else {
            (0, stored)
        };
        put_stamped(
            self.new.value.codec,
            self.stamp(stamp),
            &self.decode::<T>(body)?,
            out,
        );
        Ok(())
    }

    fn convert_element<T: StateType>(
        &self,
        stamp: i64,
        element: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let element = self.decode::<T>(element)?;
        put_element(self.new.value.codec, self.stamp(stamp), &element, out);
        Ok(())
    }

    /// Returns the timestamp that takes the place of an old one; `None` without time-to-live.
    fn stamp(&self, old: i64) -> Option<i64> {
        let timed = self.old.ttl_ms.is_some();
        let stamp = if timed { old } else { self.now_ms };
        self.new.ttl_ms.is_some().then_some(stamp)
    }

    fn decode<T: StateType>(&self, bytes: &[u8]) -> Result<T> {
        if self.old.value == self.new.value {
            self.new.value.codec.decode_all(bytes)
        } else {
            migrate(&self.old.value, bytes)
        }
    }
}

/// Converts lists entry by entry, chunk for chunk. Numbers that chunks are missing of are closed up, so a list that has lost expired
/// ones needs no time-to-live any more.
#[derive(Default)]
struct Lists {
    open: Option<OpenList>,
}

/// A list in chunks whose head was seen.
struct OpenList {
    key: Vec<u8>,
    check: ChunkCheck,
    /// The head as it will be.
    head: ListHead,
    /// Converted elements from behind the chunks.
    tail: Vec<u8>,
}

impl Lists {
    fn entry<T: StateType>(
        &mut self,
        conversion: &Conversion<'_>,
        column: Column,
        key: Vec<u8>,
        stored: &[u8],
        batch: &mut WriteBatch,
    ) -> Result<()> {
        let timed = conversion.old.ttl_ms.is_some();
        let stored = StoredList::read(stored, timed)?;
        let tail = match stored {
            StoredList::Chunk(chunk) => {
                return self.chunk::<T>(conversion, column, key, &chunk, batch);
            }
            StoredList::Whole(elements) | StoredList::Head(_, elements) => elements,
        };
        self.close(conversion, column, batch)?;
        let mut converted = Vec::with_capacity(tail.len());
        let mut elements = Elements::new(tail, timed);
        while let Some((stamp, element)) = elements.next()? {
            conversion.convert_element::<T>(stamp, element, &mut converted)?;
        }
        match stored {
            StoredList::Head(head, _) => {
                self.open = Some(OpenList {
                    key,
                    check: ChunkCheck::new(head, timed),
                    head: ListHead::starting_at(head.first),
                    tail: converted,
                });
            }
            _ => batch.entries.push(BatchEntry::Put(column, key, converted)),
        }
        Ok(())
    }

    fn chunk<T: StateType>(
        &mut self,
        conversion: &Conversion<'_>,
        column: Column,
        key: Vec<u8>,
        chunk: &Chunk<'_>,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        let timed = conversion.old.ttl_ms.is_some();
        let open = self.open.as_mut().and_then(|open| {
            let number = chunk_number(&open.key, &key)?;
            open.check.expects(number).then_some((open, number))
        });
        batch.entries.push(BatchEntry::Delete(column, key));
        let Some((open, number)) = open else {
            // It is of no list.
            return Ok(());
        };
        let (mut converted, mut count, mut latest_ms) = (Vec::new(), 0, i64::MIN);
        Chunk::put_front(0, &mut converted);
        let mut elements = Elements::new(open.check.chunk(number, chunk)?, timed);
        while let Some((stamp, element)) = elements.next()? {
            open.check.element();
            conversion.convert_element::<T>(stamp, element, &mut converted)?;
            count += 1;
            latest_ms = latest_ms.max(conversion.stamp(stamp).unwrap_or(i64::MIN));
        }
        if count > 0 {
            let mut key = open.key.clone();
            put_chunk_number(open.head.next, &mut key);
            open.head.add_chunk(count, latest_ms)?;
            batch.entries.push(BatchEntry::Put(column, key, converted));
        }
        Ok(())
    }

    /// Writes the head of the list whose chunks came last.
    fn close(
        &mut self,
        conversion: &Conversion<'_>,
        column: Column,
        batch: &mut WriteBatch,
    ) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        open.check.finish()?;
        let mut value = Vec::with_capacity(open.tail.len() + 32);
        if open.head.has_chunks() {
            open.head.put(conversion.new.ttl_ms.is_some(), &mut value);
        }
        value.extend_from_slice(&open.tail);
        batch.entries.push(if value.is_empty() {
            BatchEntry::Delete(column, open.key)
        } else {
            BatchEntry::Put(column, open.key, value)
        });
        Ok(())
    }
}
