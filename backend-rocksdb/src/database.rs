use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{
    BottommostLevelCompaction, BoundColumnFamily, ColumnFamilyDescriptor, CompactOptions,
    DBCompressionType, DBWithThreadMode, MultiThreaded, Options, WriteOptions,
};
use self_cell::self_cell;
use state_api::{Error, Result};

use crate::compactions::Compactions;
use crate::error::{failed, not_opened};
use crate::flushes::Flushes;
use crate::folder::InstanceFolder;
use crate::key_access::KeyAccess;
use crate::log_folder::LogFolder;
use crate::memory::HashedColumn;
use crate::process_end::wait_for_databases;
use crate::tuning::Tuning;

/// A database whose columns can be opened while others hold it.
pub(crate) type Db = DBWithThreadMode<MultiThreaded>;

/// An open database in the folder of a subtask. It is closed, and its folder removed, when the store and all views are gone.
pub(crate) struct Database {
    db: Db,
    path: PathBuf,
    tuning: Tuning,
    options: Options,
    flushes: Flushes,
    compactions: Compactions,
    /// After the database, which writes its log there.
    _log: Option<LogFolder>,
    /// RocksDB refers to some of what options hold for as long as the column is open.
    column_options: Mutex<Vec<Options>>,
    /// The columns whose write buffers find keys by hash.
    hashed: Mutex<BTreeMap<String, (KeyAccess, HashedColumn)>>,
    /// After the database: it is removed when nothing in it is open any more.
    folder: Arc<InstanceFolder>,
}

impl Database {
    /// Opens the database at a path in the folder of a subtask, with all columns that it has, as those of states whose keys are read
    /// in the way that `access` says; creates it if there is none.
    ///
    /// # Errors
    /// `Config` when the folder or an option can't be used.
    pub(crate) fn open(
        folder: Arc<InstanceFolder>,
        path: PathBuf,
        tuning: Tuning,
        access: impl Fn(&str) -> KeyAccess,
    ) -> Result<Arc<Self>> {
        let log = tuning.log_folder(&path);
        let mut options = tuning.of_database(log.as_ref());
        let flushes = Flushes::default();
        options.add_event_listener(flushes.clone());
        let compactions = Compactions::default();
        options.add_event_listener(compactions.clone());
        let mut columns = vec![ColumnFamilyDescriptor::new(MARKS, of_marks())];
        let mut hashed = BTreeMap::new();
        if path.join("CURRENT").exists() {
            let names =
                Db::list_cf(&options, &path).map_err(|e| failed("list columns", &path, e))?;
            for name in names {
                if let Some(state) = state_of(&name) {
                    let access = access(&state);
                    let (options, column) = tuning.of_column(&state, access);
                    columns.push(ColumnFamilyDescriptor::new(name, options));
                    hashed.extend(column.map(|column| (state, (access, column))));
                }
            }
        }
        // The database keeps what these refer to.
        let db = Db::open_cf_descriptors(&options, &path, columns);
        let db = db.map_err(|e| not_opened(&path, e))?;
        wait_for_databases();
        Ok(Arc::new(Self {
            db,
            path,
            tuning,
            options,
            flushes,
            compactions,
            _log: log,
            column_options: Mutex::default(),
            hashed: Mutex::new(hashed),
            folder,
        }))
    }

    pub(crate) fn db(&self) -> &Db {
        &self.db
    }

    /// Returns where the database is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the subtask, in which the database is.
    pub(crate) fn folder(&self) -> &Arc<InstanceFolder> {
        &self.folder
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Returns the options that the database was opened with.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Writes all of memory to files and compacts them, column by column.
    ///
    /// # Errors
    /// Those of the disk, with the state.
    pub(crate) fn compact(&self) -> Result<(), (String, rocksdb::Error)> {
        let mut options = CompactOptions::default();
        // The filter is to see values that lie in the last level, too.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        let _turn = self.compactions.asked();
        for state in self.states() {
            let Some(handle) = self.db.cf_handle(&column_of(&state)) else {
                continue;
            };
            if let Err(error) = self.db.flush_cf(&handle) {
                return Err((state, error));
            }
            let all = None::<&[u8]>;
            self.db.compact_range_cf_opt(&handle, all, all, &options);
        }
        Ok(())
    }

    /// Writes a mark, and returns the number of this change: all changes so far have lesser ones, all that follow greater ones.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn mark(&self) -> Result<u64> {
        let marks = self
            .db
            .cf_handle(MARKS)
            .ok_or_else(|| Error::bug("the database has no column of marks"))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let put = || self.db.put_cf_opt(&marks, b"mark", b"", &write);
        // After a failure that is over RocksDB wants to be told.
        put()
            .or_else(|error| self.db.resume().and_then(|()| put()).map_err(|_| error))
            .map_err(|e| failed("put", &self.path, e))?;
        Ok(self.db.latest_sequence_number())
    }

    /// Returns what knows which marks are in files.
    pub(crate) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Returns what counts the bytes of compactions, and lets those take turns that are asked for.
    pub(crate) fn compactions(&self) -> &Compactions {
        &self.compactions
    }

    /// Returns the states that have a column, by name.
    pub(crate) fn states(&self) -> Vec<String> {
        let mut states: Vec<_> = self
            .db
            .cf_names()
            .iter()
            .filter_map(|name| state_of(name))
            .collect();
        states.sort();
        states
    }

    fn hashed(&self) -> MutexGuard<'_, BTreeMap<String, (KeyAccess, HashedColumn)>> {
        self.hashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the column of a state, creating it if there is none, for keys that are read in such a way.
    pub(crate) fn column(
        self: &Arc<Self>,
        state: &str,
        access: KeyAccess,
    ) -> Result<Arc<ColumnCell>> {
        let name = column_of(state);
        if self.db.cf_handle(&name).is_none() {
            let (options, column) = self.tuning.of_column(state, access);
            self.db
                .create_cf(&name, &options)
                .map_err(|e| failed("create column", &self.path, e).with("state", state))?;
            self.column_options
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(options);
            if let Some(column) = column {
                self.hashed().insert(state.to_owned(), (access, column));
            }
        }
        let owner = ColumnOwner {
            database: Arc::clone(self),
            state: state.to_owned(),
            access: self
                .hashed()
                .get(state)
                .map_or(KeyAccess::Ordered, |(access, _)| *access),
            sorted: AtomicU64::new(0),
        };
        ColumnCell::try_new(owner, |owner| {
            owner.database.db.cf_handle(&name).ok_or_else(|| {
                Error::bug("a column is gone that was there before").with("state", state)
            })
        })
        .map(Arc::new)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What a handle of a column is bound to.
pub(crate) struct ColumnOwner {
    database: Arc<Database>,
    state: String,
    access: KeyAccess,
    /// Entries of write buffers that were sorted since they were written to a file for that.
    sorted: AtomicU64,
}

type Handle<'a> = Arc<BoundColumnFamily<'a>>;

self_cell! {
    /// A column with its handle, found by name once. The database stays open as long as it is held.
    pub(crate) struct ColumnCell {
        owner: ColumnOwner,
        #[covariant]
        dependent: Handle,
    }
}

impl ColumnCell {
    /// Returns the state whose column it is.
    pub(crate) fn state(&self) -> &str {
        &self.borrow_owner().state
    }

    /// Returns how many entries are in write buffers.
    pub(crate) fn buffered(&self) -> u64 {
        let entries = |property: &std::ffi::CStr| {
            let db = self.borrow_owner().database.db();
            let entries = db.property_int_value_cf(self.handle(), property);
            entries.ok().flatten().unwrap_or(0)
        };
        entries(c"rocksdb.num-entries-active-mem-table")
            + entries(c"rocksdb.num-entries-imm-mem-tables")
    }

    /// Writes write buffers to files, so that they need not be sorted to be read in order.
    pub(crate) fn write_out(&self) {
        let db = self.borrow_owner().database.db();
        // Where that fails they are sorted all the same; whoever writes next hears of it.
        if let Err(error) = db.flush_cf(self.handle()) {
            tracing::debug!(%error, state = self.state(), "write buffers can't be written before they are read in order");
        }
    }

    /// Returns how write buffers find keys.
    pub(crate) fn access(&self) -> KeyAccess {
        self.borrow_owner().access
    }

    /// Returns how many entries of write buffers were sorted to be read in order.
    pub(crate) fn sorted(&self) -> u64 {
        self.borrow_owner().sorted.load(Relaxed)
    }

    /// Notes how many that are now; one thread does.
    pub(crate) fn set_sorted(&self, entries: u64) {
        self.borrow_owner().sorted.store(entries, Relaxed);
    }

    /// Returns the handle to give to RocksDB.
    #[inline]
    pub(crate) fn handle(&self) -> &Arc<BoundColumnFamily<'_>> {
        self.borrow_dependent()
    }
}

/// RocksDB's own column, which has no state: what is flushed together with a mark in it belongs to one cut.
pub(crate) const MARKS: &str = "default";

/// Returns the options of the column of marks, in which there is next to nothing.
fn of_marks() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(64 << 10);
    options.set_compression_type(DBCompressionType::None);
    options
}

/// What the names of the columns of states start with: RocksDB has a column `default` of its own.
const STATE: &str = "state.";

/// Returns the name of the column of a state; RocksDB's names can't hold a zero.
pub(crate) fn column_of(state: &str) -> String {
    let escaped = state.replace('%', "%25").replace('\0', "%00");
    format!("{STATE}{escaped}")
}

/// Returns the state of a column; `None` for RocksDB's own.
pub(crate) fn state_of(column: &str) -> Option<String> {
    let escaped = column.strip_prefix(STATE)?;
    Some(escaped.replace("%00", "\0").replace("%25", "%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_state_is_one_of_a_column_and_comes_back() {
        for state in ["count", "default", "", "a%00b", "a\0b", "%25", "straße"] {
            let column = column_of(state);
            assert!(!column.contains('\0') && column != "default");
            assert_eq!(state_of(&column).as_deref(), Some(state));
        }
        assert_eq!(state_of("default"), None);
    }
}
