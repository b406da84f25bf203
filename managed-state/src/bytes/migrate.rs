use state_api::compat::migrate;
use state_api::{
    BatchEntry, ByteStore, Column, Page, Result, StateKind, StateMeta, StateType, WriteBatch,
};

use super::state::put_stamped;
use crate::format::{Elements, put_element, split_timestamp};

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
        loop {
            store.scan(column, &next, None, PAGE, &mut page)?;
            let full = page.entries.len() == PAGE;
            if let Some((last, _)) = page.entries.last() {
                next.clone_from(last);
                next.push(0);
            }
            let mut batch = WriteBatch::default();
            for (key, stored) in page.entries.drain(..) {
                let mut converted = Vec::with_capacity(stored.len());
                self.convert::<T>(&stored, &mut converted)?;
                batch.entries.push(BatchEntry::Put(column, key, converted));
            }
            write(store, batch)?;
            if !full {
                return Ok(());
            }
        }
    }

    fn convert<T: StateType>(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let timed = self.old.ttl_ms.is_some();
        let stamp_of = |stamp: i64| {
            self.new
                .ttl_ms
                .is_some()
                .then_some(if timed { stamp } else { self.now_ms })
        };
        if self.old.kind == StateKind::List {
            let mut elements = Elements::new(stored, timed);
            while let Some((stamp, element)) = elements.next()? {
                put_element(
                    self.new.value.codec,
                    stamp_of(stamp),
                    &self.decode::<T>(element)?,
                    out,
                );
            }
            return Ok(());
        }
        let (stamp, body) = if timed {
            split_timestamp(stored)?
        } else {
            (0, stored)
        };
        put_stamped(
            self.new.value.codec,
            stamp_of(stamp),
            &self.decode::<T>(body)?,
            out,
        );
        Ok(())
    }

    fn decode<T: StateType>(&self, bytes: &[u8]) -> Result<T> {
        if self.old.value == self.new.value {
            self.new.value.codec.decode_all(bytes)
        } else {
            migrate(&self.old.value, bytes)
        }
    }
}
