use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rocksdb::{
    GetIntoBufferResult, ReadOptions, WaitForCompactOptions, WriteBatch as NativeBatch,
    WriteOptions,
};
use state_api::{
    BatchEntry, ByteStore, ByteView, Column, Error, ErrorKind, NativeSnapshots, ObjectCacheBudget,
    Page, Result, StateMeta, ValueFilter, WriteBatch, unknown_column,
};

use crate::compactor::Compactor;
use crate::config::RocksDbConfig;
use crate::database::{ColumnCell, Database, Db};
use crate::error::failed;
use crate::gauges::Gauges;
use crate::key_access::KeyAccess;
use crate::memory::SharedMemory;
use crate::pages::{self, RawIter};
use crate::snapshot::{Native, RestoreStats};
use crate::view::RocksDbView;

/// Keys that a deleted range may have to be deleted one by one.
///
/// Each range that is deleted as such stays in the way of reads until it is compacted away, even one without a single key.
const SINGLY_DELETED: usize = 64;
/// Capacity up to which a buffer is filled by RocksDB itself: all of it has to be zeroed first.
const SMALL_VALUE: usize = 1 << 10;
/// Room made for a value in an empty buffer.
const LEAST_BUFFER: usize = 64;
/// Entries of write buffers that are sorted to be read in order; more are written to a file.
pub(crate) const SORTED_AT_ONCE: u64 = 16 << 10;
/// Entries that may be sorted in all, one time after the other, before write buffers are written to a file: what takes as long as two
/// or three files. So whoever goes through a state page by page does not sort the same for each page.
const SORTED_IN_ALL: u64 = 4 * SORTED_AT_ONCE;
/// Time between two looks at a database that takes no writes for the moment.
const PATIENCE: Duration = Duration::from_millis(1);
/// Writes between two reports of the gauges.
const REPORT_EVERY: u32 = 1 << 16;

/// An ordered byte store in RocksDB: a database of its own, a column family for each state.
///
/// Writes go past RocksDB's log, because what is durable is in snapshots. An error from a flush or a write is answered by asking
/// RocksDB to resume, and by trying once more: a disk that was full and no longer is costs nothing.
pub struct RocksDbStore {
    // Fields that refer to the database are dropped before it.
    columns: Vec<Arc<ColumnCell>>,
    database: Arc<Database>,
    read: ReadOptions,
    /// Fails where RocksDB would wait.
    write: WriteOptions,
    /// Waits.
    patient: WriteOptions,
    /// Errors of flushes and compactions that have been dealt with.
    errors: Cell<u64>,
    /// What went wrong, once something did.
    poison: RefCell<Option<String>>,
    poisoned: Cell<bool>,
    gauges: Gauges,
    /// Writes since the last report of the gauges.
    unreported: Cell<u32>,
    native: Native,
}

impl RocksDbStore {
    pub(crate) fn new(database: Arc<Database>, gauges: Gauges, native: Native) -> Result<Self> {
        let mut patient = WriteOptions::default();
        patient.disable_wal(true);
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        write.set_no_slowdown(true);
        let mut store = Self {
            columns: Vec::new(),
            database,
            read: ReadOptions::default(),
            write,
            patient,
            errors: Cell::new(0),
            poison: RefCell::default(),
            poisoned: Cell::new(false),
            gauges,
            unreported: Cell::new(0),
            native,
        };
        for state in store.database.states() {
            store.open_column(&state)?;
        }
        Ok(store)
    }

    /// Returns the local folder of the store, which is removed with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.database.folder().path()
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &RocksDbConfig {
        self.database.tuning().config()
    }

    /// Writes all of memory to files and compacts them, column by column: what is deleted, overwritten or expired goes from the disk.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn compact(&mut self) -> Result<()> {
        self.database.compact().map_err(|(state, error)| {
            let error = failed("flush", self.database.path(), error);
            self.poison(error.with("state", state))
        })
    }

    /// Returns what compacts the database from another thread.
    #[must_use]
    pub fn compactor(&self) -> Compactor {
        Compactor::new(&self.database)
    }

    /// Waits until nothing is to be flushed or compacted any more.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn wait_for_compactions(&mut self) -> Result<()> {
        let db = self.database.db();
        db.wait_for_compact(&WaitForCompactOptions::default())
            .map_err(|error| self.broken("wait for compactions", None, error))
    }

    /// Returns the bytes of all files of a state; 0 if there is no such state.
    #[must_use]
    pub fn file_bytes(&self, state: &str) -> u64 {
        let column = self.columns.iter().find(|cell| cell.state() == state);
        column.map_or(0, |cell| {
            let db = self.database.db();
            db.get_column_family_metadata_cf(cell.handle()).size
        })
    }

    /// Returns what the restore out of files has done, if the store began with one. The same is reported as gauges
    /// `holdfast_rocksdb_restored_…`.
    #[must_use]
    pub fn restored(&self) -> Option<RestoreStats> {
        self.native.restored()
    }

    /// Waits until a restore at another parallelism has also written the files anew that reached beyond the key groups; until
    /// then what lies beyond is only marked as deleted. Everything works meanwhile; to be measured and tested one may wait.
    pub fn wait_for_rewriting(&mut self) {
        self.native.wait_for_rewriting();
    }

    fn open(&mut self, name: &str, access: KeyAccess) -> Result<Column> {
        if self.poisoned.get() {
            return Err(self.unusable());
        }
        let known = self.columns.iter().position(|cell| cell.state() == name);
        let position = match known {
            Some(position) => position,
            None => {
                let cell =
                    self.database
                        .column(name, access)
                        .map_err(|error| match error.kind() {
                            ErrorKind::InvalidArgument => error,
                            _ => self.poison(error),
                        })?;
                self.columns.push(cell);
                self.columns.len() - 1
            }
        };
        u32::try_from(position)
            .map(Column)
            .map_err(|_| Error::limit("a store has too many columns"))
    }

    /// Returns an iterator over a range that is read forwards. Reading one in order whose keys write buffers find by hash takes sorting
    /// each of them, every time; so a large one is written to a file first, and one that was sorted often.
    fn iterate(&self, cell: &ColumnCell, start: &[u8], end: Option<&[u8]>) -> RawIter<'_> {
        let access = cell.access();
        let options = if access.is_together(start, end) {
            pages::together(end)
        } else {
            if access.is_hashed() {
                Self::order(cell);
            }
            pages::ending(end)
        };
        let db = self.database.db();
        db.raw_iterator_cf_opt(cell.handle(), options)
    }

    /// Writes the write buffers of a column to files if it would take long to sort them.
    fn order(cell: &ColumnCell) {
        let entries = cell.buffered();
        let in_all = cell.sorted() + entries;
        if entries <= SORTED_AT_ONCE && in_all <= SORTED_IN_ALL {
            cell.set_sorted(in_all);
            return;
        }
        cell.set_sorted(0);
        cell.write_out();
    }

    /// Returns the memory budget that the store draws on, if it shares one.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<SharedMemory>> {
        self.database.tuning().memory()
    }

    /// Returns the column of a number, or why nothing can be done with it.
    #[inline]
    fn column(&self, column: Column) -> Result<&Arc<ColumnCell>> {
        if self.poisoned.get() {
            return Err(self.unusable());
        }
        self.columns
            .get(column.0 as usize)
            .ok_or_else(|| unknown_column(column))
    }

    #[cold]
    fn unusable(&self) -> Error {
        let cause = self.poison.borrow().clone().unwrap_or_default();
        Error::poisoned("an earlier failure left the local database unusable")
            .with("path", self.database.path().display())
            .with("cause", cause)
    }

    /// Takes note of an error: from here on every call fails.
    #[cold]
    fn poison(&self, error: Error) -> Error {
        self.poisoned.set(true);
        *self.poison.borrow_mut() = Some(error.to_string());
        error
    }

    #[cold]
    fn broken(
        &self,
        operation: &'static str,
        column: Option<&ColumnCell>,
        error: rocksdb::Error,
    ) -> Error {
        let error = failed(operation, self.database.path(), error);
        self.poison(match column {
            Some(column) => error.with("state", column.state()),
            None => error,
        })
    }

    #[cold]
    fn unread(&self, value: &mut Vec<u8>, cell: &ColumnCell, error: rocksdb::Error) -> Error {
        value.clear();
        self.broken("get", Some(cell), error)
    }

    /// Writes; after an error once more, if RocksDB can resume its work.
    #[inline]
    fn written(
        &self,
        operation: &'static str,
        write: impl Fn(&Db, &WriteOptions) -> Result<(), rocksdb::Error>,
    ) -> Result<()> {
        let unreported = self.unreported.get() + 1;
        self.unreported.set(unreported);
        if unreported >= REPORT_EVERY {
            self.report();
        }
        match write(self.database.db(), &self.write) {
            Ok(()) => Ok(()),
            Err(error) => self.rewritten(operation, error, write),
        }
    }

    /// Writes what could not be written at once: RocksDB has to wait, or an error has stopped its work.
    ///
    /// It would wait for ever where the disk is full, so that waiting is up to the store, which looks for errors meanwhile.
    #[cold]
    fn rewritten(
        &self,
        operation: &'static str,
        mut error: rocksdb::Error,
        write: impl Fn(&Db, &WriteOptions) -> Result<(), rocksdb::Error>,
    ) -> Result<()> {
        let db = self.database.db();
        let mut resumed = false;
        loop {
            let waits = error.kind() == rocksdb::ErrorKind::Incomplete;
            let errors = self.figure("rocksdb.background-errors");
            if !waits || errors > self.errors.get() {
                // A write that failed has not been applied.
                if resumed && !waits {
                    return Err(self.broken(operation, None, error));
                }
                if let Err(error) = db.resume() {
                    return Err(self.broken(operation, None, error));
                }
                tracing::warn!(%error, operation, path = %self.database.path().display(), "a local database resumed its work");
                self.errors.set(errors);
                resumed = true;
            }
            let options = if waits && self.figure("rocksdb.is-write-stopped") > 0 {
                std::thread::sleep(PATIENCE);
                &self.write
            } else {
                &self.patient
            };
            match write(db, options) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
    }

    fn figure(&self, property: &str) -> u64 {
        let figure = self.database.db().property_int_value(property);
        figure.ok().flatten().unwrap_or_default()
    }

    #[cold]
    pub(crate) fn report(&self) {
        self.unreported.set(0);
        self.gauges
            .report(self.database.db(), self.database.options(), &self.columns);
        if let Some(restored) = self.restored() {
            self.gauges.report_restore(&restored);
        }
    }

    /// Finds the end of a range that goes on to the last key; `None` if there is no key in it.
    fn end_after_last(&self, column: Column, start: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut last = Page::default();
        self.scan_last(column, start, None, &mut last)?;
        Ok(last.entries.pop().map(|(mut key, _)| {
            key.push(0);
            key
        }))
    }
}

/// What the store's snapshots need of it.
impl RocksDbStore {
    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(crate) fn column_cells(&self) -> &[Arc<ColumnCell>] {
        &self.columns
    }

    pub(crate) fn native_state(&self) -> &Native {
        &self.native
    }

    pub(crate) fn native_state_mut(&mut self) -> &mut Native {
        &mut self.native
    }

    /// Returns an error if an earlier one left the store unusable.
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.poisoned.get() {
            return Err(self.unusable());
        }
        Ok(())
    }

    /// Returns about how many keys a column has.
    pub(crate) fn estimated_keys(&self, column: Column) -> u64 {
        let Some(cell) = self.columns.get(column.0 as usize) else {
            return 0;
        };
        let keys = self
            .database
            .db()
            .property_int_value_cf(cell.handle(), c"rocksdb.estimate-num-keys");
        keys.ok().flatten().unwrap_or(0)
    }

    /// Puts a restored database in place of the empty one, and returns where that was.
    pub(crate) fn replace_database(
        &mut self,
        database: Arc<Database>,
        columns: Vec<Arc<ColumnCell>>,
    ) -> PathBuf {
        let empty = self.database.path().to_owned();
        self.columns = columns;
        self.database = database;
        empty
    }
}

#[cfg(test)]
impl RocksDbStore {
    pub(crate) fn handle(&self, column: Column) -> &Arc<rocksdb::BoundColumnFamily<'_>> {
        self.cell(column).handle()
    }

    pub(crate) fn cell(&self, column: Column) -> &ColumnCell {
        &self.columns[column.0 as usize]
    }

    /// Writes the write buffers of a column to a file.
    pub(crate) fn flush(&self, column: Column) -> Result<(), rocksdb::Error> {
        self.database.db().flush_cf(self.handle(column))
    }
}

impl ByteStore for RocksDbStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.open(name, KeyAccess::Ordered)
    }

    fn open_state_column(&mut self, meta: &StateMeta) -> Result<Column> {
        let access = KeyAccess::of(meta, self.native.prefix_len());
        self.open(&meta.name, access)
    }

    fn column_names(&self) -> Vec<String> {
        self.columns
            .iter()
            .map(|cell| cell.state().to_owned())
            .collect()
    }

    #[inline]
    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let cell = self.column(column)?;
        let db = self.database.db();
        if value.capacity() <= SMALL_VALUE {
            // Straight into the caller's buffer, without an object of RocksDB's that holds the value meanwhile.
            value.resize(value.capacity().max(LEAST_BUFFER), 0);
            match db.get_into_buffer_cf_opt(cell.handle(), key, value, &self.read) {
                Ok(GetIntoBufferResult::Found(len)) => {
                    value.truncate(len);
                    return Ok(true);
                }
                Ok(GetIntoBufferResult::NotFound) => {
                    value.clear();
                    return Ok(false);
                }
                Ok(GetIntoBufferResult::BufferTooSmall(_)) => {}
                Err(error) => return Err(self.unread(value, cell, error)),
            }
        }
        value.clear();
        match db.get_pinned_cf_opt(cell.handle(), key, &self.read) {
            Ok(Some(found)) => {
                value.extend_from_slice(&found);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(self.unread(value, cell, error)),
        }
    }

    #[inline]
    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        let cell = self.column(column)?;
        self.written("put", |db, options| {
            db.put_cf_opt(cell.handle(), key, value, options)
        })
    }

    #[inline]
    fn merge(&mut self, column: Column, key: &[u8], operand: &[u8]) -> Result<()> {
        let cell = self.column(column)?;
        self.written("merge", |db, options| {
            db.merge_cf_opt(cell.handle(), key, operand, options)
        })
    }

    #[inline]
    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        let cell = self.column(column)?;
        self.written("delete", |db, options| {
            db.delete_cf_opt(cell.handle(), key, options)
        })
    }

    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        let cell = self.column(column)?;
        if pages::is_empty_range(start, end) {
            return Ok(());
        }
        let mut few = NativeBatch::default();
        let is_small = {
            let mut iter = self.iterate(cell, start, end);
            iter.seek(start);
            let mut keys = 0;
            while let Some(key) = iter.key()
                && keys < SINGLY_DELETED
            {
                few.delete_cf(cell.handle(), key);
                keys += 1;
                iter.next();
            }
            let is_small = !iter.valid();
            if is_small {
                iter.status()
                    .map_err(|error| self.broken("delete range", Some(cell), error))?;
            }
            is_small
        };
        if is_small {
            if few.is_empty() {
                return Ok(());
            }
            return self.written("delete range", |db, options| db.write_opt(&few, options));
        }
        let past_last = match end {
            Some(_) => None,
            None => self.end_after_last(column, start)?,
        };
        let Some(end) = end.or(past_last.as_deref()) else {
            return Ok(());
        };
        self.written("delete range", |db, options| {
            db.delete_range_cf_opt(cell.handle(), start, end, options)
        })
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        let mut native = NativeBatch::default();
        for entry in &batch.entries {
            let cell = self.column(entry.column())?;
            match entry {
                BatchEntry::Put(_, key, value) => native.put_cf(cell.handle(), key, value),
                BatchEntry::Merge(_, key, operand) => native.merge_cf(cell.handle(), key, operand),
                BatchEntry::Delete(_, key) => native.delete_cf(cell.handle(), key),
            }
        }
        if batch.entries.is_empty() {
            return Ok(());
        }
        self.written("write batch", |db, options| db.write_opt(&native, options))
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        let cell = self.column(column)?;
        if pages::is_empty_range(start, end) || limit == 0 {
            page.entries.clear();
            return Ok(());
        }
        let mut iter = self.iterate(cell, start, end);
        iter.seek(start);
        pages::fill(&mut iter, None, limit, page)
            .map_err(|error| self.broken("scan", Some(cell), error))
    }

    fn scan_last(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<()> {
        let cell = self.column(column)?;
        page.entries.clear();
        if pages::is_empty_range(start, end) {
            return Ok(());
        }
        if cell.access().is_hashed() {
            Self::order(cell);
        }
        let options = pages::bounded(start, end);
        let mut iter = self
            .database
            .db()
            .raw_iterator_cf_opt(cell.handle(), options);
        // Past the bound: RocksDB seeks for the last key before it.
        iter.seek_to_last();
        match iter.item() {
            Some((key, value)) => page.entries.push((key.to_vec(), value.to_vec())),
            None => iter
                .status()
                .map_err(|error| self.broken("scan for the last", Some(cell), error))?,
        }
        Ok(())
    }

    fn filter_values(
        &mut self,
        column: Column,
        filter: Option<Arc<dyn ValueFilter>>,
    ) -> Result<()> {
        let cell = self.column(column)?;
        let tuning = self.database.tuning();
        let age = match (&filter, tuning.config().periodic_compaction) {
            (Some(_), Some(age)) => age.as_secs().max(1).to_string(),
            _ => "0".to_owned(),
        };
        let filters = filter.is_some();
        if !tuning.expiry().set(cell.state(), filter) && !filters {
            return Ok(());
        }
        let periodic = [("periodic_compaction_seconds", age.as_str())];
        self.database
            .db()
            .set_options_cf(cell.handle(), &periodic)
            .map_err(|error| self.broken("set options", Some(cell), error))
    }

    fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        self.memory().and_then(|memory| memory.objects().cloned())
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        if self.poisoned.get() {
            return Err(self.unusable());
        }
        self.report();
        Ok(Box::new(RocksDbView::new(&self.database, &self.columns)))
    }

    fn native(&mut self) -> Option<&mut dyn NativeSnapshots> {
        Some(self)
    }
}

impl fmt::Debug for RocksDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksDbStore")
            .field("path", &self.database.path())
            .field("columns", &self.column_names())
            .finish_non_exhaustive()
    }
}
