use std::sync::Arc;

use futures_core::future::LocalBoxFuture;

use crate::{
    CheckpointId, Error, KeyGroupRange, KeyedHandle, ObjectCacheBudget, RestoreContext,
    RestoreTimes, Result, Snapshot, SnapshotKind, SnapshotRequest, StateMeta,
};

/// A named part of a byte store with keys of its own, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(pub u32);

/// One change in a [`WriteBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchEntry {
    /// Sets a key.
    Put(Column, Vec<u8>, Vec<u8>),
    /// Appends to the value of a key.
    Merge(Column, Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Column, Vec<u8>),
}

impl BatchEntry {
    /// Returns the column that is changed.
    #[must_use]
    pub fn column(&self) -> Column {
        let (Self::Put(column, ..) | Self::Merge(column, ..) | Self::Delete(column, ..)) = self;
        *column
    }
}

/// Changes that are applied together, in order.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// The changes.
    pub entries: Vec<BatchEntry>,
}

/// Key-value pairs in ascending key order, owned by the reader.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The pairs.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What becomes of a stored value that a [`ValueFilter`] was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// It stays as it is.
    Keep,
    /// It goes, with its key.
    Drop,
    /// This takes its place.
    Replace(Vec<u8>),
}

/// Says which values of a column are of no use any more, such as expired ones.
///
/// # Contract
/// Implemented by `managed-state`; called by stores that rewrite values anyway, such as when they compact, on any thread and on
/// several at once. It must not panic, whatever the bytes: a value that it can't read stays. Asked again about the same value at
/// a later time it may say something else; nobody relies on its being asked at all.
pub trait ValueFilter: Send + Sync {
    /// Says what becomes of a value at a wall-clock time in milliseconds.
    fn filter(&self, value: &[u8], now_ms: i64) -> Filtered;
}

/// An ordered store of bytes: the representation of keyed state as *encoded bytes*.
///
/// # Contract
/// Implemented by backends; called by `managed-state` on the task's thread only, so it needs no lock and may be `!Send`.
/// Keys are compared as unsigned bytes. Nothing is durable on return: durability comes from snapshots.
/// After an error other than `InvalidArgument` the store is poisoned and says so on each further call.
///
/// Five functions must be written; the others have defaults in terms of these, to be replaced where the store does better.
///
/// The rules are functions of `backend-testkit`, module `store_rules`, run by `byte_store_conformance!`:
/// - Columns are apart and known by name (`columns_are_apart_and_known_by_name`); one that was not opened is refused and
///   nothing changes (`an_unknown_column_is_refused`).
/// - Reads see the last write (`the_last_put_wins`); merging appends to it (`merging_appends`).
/// - Ranges include their start and exclude their end, and are empty if they end before they start
///   (`ranges_include_their_start_and_exclude_their_end`, `the_last_pair_of_a_range_is_the_greatest`).
/// - Scans are in order, and full pages but for the last (`scans_come_in_order_page_by_page`); a page stays as it was read
///   (`a_page_stays_while_its_range_is_written`).
/// - A batch is applied in order, all of it or nothing (`a_batch_is_applied_in_order`).
pub trait ByteStore {
    /// Opens a column, creating it if there is none of that name.
    ///
    /// # Errors
    /// Those of the store.
    fn open_column(&mut self, name: &str) -> Result<Column>;

    /// Opens the column of a state, named as the state. The default leaves it to [`open_column`](Self::open_column); a store may
    /// choose by kind and types of the state how it keeps what is in memory. No two descriptions of a state lead to different columns.
    ///
    /// # Errors
    /// Those of the store.
    fn open_state_column(&mut self, meta: &StateMeta) -> Result<Column> {
        self.open_column(&meta.name)
    }

    /// Returns the names of all columns, restored ones included.
    fn column_names(&self) -> Vec<String>;

    /// Replaces `value` by the value of a key; returns whether there is one. `value` is empty otherwise.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let (mut end, mut page) = (key.to_vec(), Page::default());
        end.push(0);
        self.scan(column, key, Some(&end), 1, &mut page)?;
        let found = page.entries.pop();
        value.clear();
        value.extend_from_slice(found.as_ref().map_or(&[], |(_, value)| value));
        Ok(found.is_some())
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Those of the store.
    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        let entries = vec![BatchEntry::Put(column, key.to_vec(), value.to_vec())];
        self.write(WriteBatch { entries })
    }

    /// Appends bytes to the value of a key, which is empty if there is none.
    ///
    /// # Errors
    /// Those of the store.
    fn merge(&mut self, column: Column, key: &[u8], operand: &[u8]) -> Result<()> {
        let mut value = Vec::new();
        self.get(column, key, &mut value)?;
        value.extend_from_slice(operand);
        self.put(column, key, &value)
    }

    /// Removes a key, if there.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        let entries = vec![BatchEntry::Delete(column, key.to_vec())];
        self.write(WriteBatch { entries })
    }

    /// Removes all keys from `start` (included) to `end` (excluded; `None` is past the last key).
    ///
    /// # Errors
    /// Those of the store.
    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        const PAGE: usize = 1024;
        let mut page = Page::default();
        loop {
            self.scan(column, start, end, PAGE, &mut page)?;
            let full = page.entries.len() == PAGE;
            let delete = |(key, _)| BatchEntry::Delete(column, key);
            let entries = page.entries.drain(..).map(delete).collect();
            self.write(WriteBatch { entries })?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Applies changes in order; all or none of them.
    ///
    /// # Errors
    /// Those of the store.
    fn write(&mut self, batch: WriteBatch) -> Result<()>;

    /// Returns whether [`prefetch`](Self::prefetch) does something; where it does not, no keys are encoded for it.
    fn prefetches(&self) -> bool {
        false
    }

    /// Says that these keys will be read soon.
    fn prefetch(&mut self, column: Column, keys: &[&[u8]]) {
        let _ = (column, keys);
    }

    /// Replaces `page` by up to `limit` pairs from `start` (included) to `end` (excluded); fewer only at the end of the range.
    ///
    /// The page is the caller's: it stays right while the scanned range is written.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()>;

    /// Replaces `page` by the last pair from `start` (included) to `end` (excluded), or by none. The default reads the range through.
    ///
    /// # Errors
    /// Those of the store.
    fn scan_last(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<()> {
        const PAGE: usize = 128;
        let mut next = start.to_vec();
        let mut last = None;
        loop {
            self.scan(column, &next, end, PAGE, page)?;
            let full = page.entries.len() == PAGE;
            last = page.entries.pop().or(last);
            match &last {
                Some((key, _)) if full => {
                    next.clone_from(key);
                    next.push(0);
                }
                _ => break,
            }
        }
        page.entries.clear();
        page.entries.extend(last);
        Ok(())
    }

    /// Sets what says which values of a column may be dropped or replaced whenever the store rewrites them; `None` for nothing. The
    /// default does nothing.
    ///
    /// What the filter drops may still be read until it is; frozen views may lose it, too.
    ///
    /// # Errors
    /// Those of the store.
    fn filter_values(
        &mut self,
        column: Column,
        filter: Option<Arc<dyn ValueFilter>>,
    ) -> Result<()> {
        let _ = (column, filter);
        Ok(())
    }

    /// Freezes the store as it is now, for reading on another thread. Must not copy the state.
    ///
    /// # Errors
    /// Those of the store.
    fn view(&mut self) -> Result<Box<dyn ByteView>>;

    /// Returns the store's own snapshots; without them, snapshots are taken in the canonical format from a [`view`](Self::view).
    fn native(&mut self) -> Option<&mut dyn NativeSnapshots> {
        None
    }

    /// Returns the memory for a cache of live objects in front of the store, out of one budget for all memory that the store
    /// has; `None` leaves it to the configuration.
    fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        None
    }
}

/// A frozen byte store. Dropping it lets go of what it holds.
///
/// # Contract
/// Implemented by backends; read on a CPU thread while the store is written on the task's thread. No write after the freezing
/// reaches it, and it may outlive the store (`store_rules::a_view_never_sees_a_later_write` in `backend-testkit`).
pub trait ByteView: Send {
    /// As [`ByteStore::scan`], at the moment of freezing.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()>;
}

/// Snapshots in a byte store's own format, such as uploads of changed files.
///
/// A store that knows which keys changed finds the rest in `managed-state`, module `increments`.
///
/// # Contract
/// Implemented by byte stores that have a faster way than the canonical format. `snapshot` runs on the task's thread and must not grow with the state.
/// Increments build on the last checkpoint that was *reported complete*, never on one that was merely taken
/// (`rules::snapshot::a_later_checkpoint_does_not_need_an_aborted_one` in `backend-testkit`). Savepoints never become a base
/// (`rules::snapshot::a_savepoint_stands_alone`). Whoever drives the store tells it of a completion before it asks for the snapshot of
/// any checkpoint that began afterwards: objects that only older checkpoints use may be gone by then.
pub trait NativeSnapshots {
    /// Returns the word under which this format stands in handles.
    fn format(&self) -> &str;

    /// Returns whether snapshots of a kind are taken in this format: all but canonical savepoints unless the store is set otherwise.
    /// What is not is taken in the canonical format from a [`view`](ByteStore::view).
    fn takes(&self, kind: SnapshotKind) -> bool {
        kind != SnapshotKind::CanonicalSavepoint
    }

    /// Freezes the state and returns the async part.
    ///
    /// # Errors
    /// Those of the store; `Unsupported` for canonical savepoints, which the caller takes from a view. The store goes on.
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        states: &[(Column, StateMeta)],
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>>;

    /// Fills an empty store with the key groups of `range` out of handles in this format; returns the states restored, by column.
    ///
    /// # Errors
    /// `Corrupt` when bytes are missing or damaged, and those of the storage.
    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        range: KeyGroupRange,
        cx: &'a RestoreContext,
    ) -> LocalBoxFuture<'a, Result<Vec<(Column, StateMeta)>>>;

    /// Returns what the time of the last [`restore`](Self::restore) went to. The default is nothing: the caller takes the time in
    /// which it waits for the storage as that of fetching, and the rest as that of reading entries.
    fn restore_times(&self) -> RestoreTimes {
        RestoreTimes::default()
    }

    /// Learns that a checkpoint is complete: it may be built upon.
    ///
    /// # Errors
    /// Those of the store.
    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()>;

    /// Learns that a checkpoint will never complete.
    ///
    /// # Errors
    /// Those of the store.
    fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()>;
}

/// Returns the smallest key that is greater than every key with this prefix; `None` if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns the error for a column number that the store did not hand out.
#[must_use]
pub fn unknown_column(column: Column) -> Error {
    Error::invalid("no such column").with("column", column.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_skips_trailing_ff_bytes() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 0xFF, 0xFF]), Some(vec![2]));
        assert_eq!(prefix_end(&[0xFF]), None);
        assert_eq!(prefix_end(&[]), None);
    }
}
