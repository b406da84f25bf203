//! State as ordered bytes: a table per column, written in one transaction that stays open from snapshot to snapshot.
use std::sync::Arc;

use managed_state::increments::Increments;
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction, backends::FileBackend,
};
use state_api::{
    BackendContext, BatchEntry, ByteStore, ByteView, Column, Error, NativeSnapshots, Page, Result, WriteBatch,
    unknown_column,
};

use super::{NAME, increments::CHANGED};

pub(super) type Bytes = &'static [u8];

/// The table of a column; what its name starts with makes it no other table's.
type Pairs<'n> = TableDefinition<'n, Bytes, Bytes>;
const COLUMN: &str = "column ";

/// A database in a file without a name: nothing is left behind, however the process ends.
pub(super) struct Redb {
    /// `None` after a failure: what was half done is gone with it.
    writes: Option<WriteTransaction>,
    db: Arc<Database>,
}

impl Redb {
    fn create(cx: &BackendContext, cache_bytes: usize) -> Result<Self, redb::Error> {
        let file = FileBackend::new(tempfile::tempfile_in(&cx.local_dir)?)?;
        let db = redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(file)?;
        let writes = begin(&db)?;
        writes.open_table(CHANGED)?;
        Ok(Self { writes: Some(writes), db: Arc::new(db) })
    }

    pub(super) fn writes(&self) -> Result<&WriteTransaction> {
        self.writes.as_ref().ok_or_else(failed_before)
    }

    /// Commits, without a sync since it is snapshots that make state durable, and reads what was committed.
    fn commit(&mut self) -> Result<ReadTransaction> {
        let writes = self.writes.take().ok_or_else(failed_before)?;
        writes.commit().map_err(failed)?;
        let read = self.db.begin_read().map_err(failed)?;
        self.writes = Some(begin(&self.db).map_err(failed)?);
        Ok(read)
    }
}

fn failed_before() -> Error {
    Error::poisoned("the redb database failed before")
}

fn begin(db: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut writes = db.begin_write()?;
    writes.set_durability(Durability::None)?;
    Ok(writes)
}

/// Says what the caller should do about an error of redb.
pub(super) fn failed(error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let said = match &error {
        redb::Error::PreviousIo => failed_before(),
        redb::Error::ValueTooLarge(_) => Error::limit("redb takes no value of this size"),
        redb::Error::Corrupted(_) => Error::corrupt("the local redb database is damaged"),
        _ => Error::retryable("the local redb database failed"),
    };
    said.caused_by(error)
}

pub(super) struct RedbStore {
    pub(super) redb: Redb,
    /// Names of the tables by column number.
    pub(super) tables: Vec<String>,
    /// Cuts so far; before the first one nobody will ask what changed.
    pub(super) cuts: u64,
    pub(super) increments: Increments<u64>,
    pub(super) prefix_len: usize,
}

impl RedbStore {
    pub(super) fn create(cx: &BackendContext, cache_bytes: usize) -> Result<Self> {
        let redb = Redb::create(cx, cache_bytes).map_err(|e| failed(e).with("folder", cx.local_dir.display()))?;
        let prefix_len = cx.max_parallelism.prefix_len();
        Ok(Self { redb, tables: Vec::new(), cuts: 0, increments: Increments::new(NAME, cx), prefix_len })
    }

    pub(super) fn freeze(&mut self) -> Result<(ReadTransaction, Frozen)> {
        let (read, db) = (self.redb.commit()?, Arc::clone(&self.redb.db));
        let tables = self.tables.iter().map(|name| read.open_table(Pairs::new(name)));
        let tables = tables.collect::<Result<_, _>>().map_err(failed)?;
        Ok((read, Frozen { tables, _db: db }))
    }

    fn pairs(&self, column: Column) -> Result<Pairs<'_>> {
        self.tables.get(column.0 as usize).map(|name| Pairs::new(name)).ok_or_else(|| unknown_column(column))
    }

    fn apply(&self, entry: &BatchEntry) -> Result<()> {
        let (column, writes) = (entry.column(), self.redb.writes()?);
        let (BatchEntry::Put(_, key, _) | BatchEntry::Merge(_, key, _) | BatchEntry::Delete(_, key)) = entry;
        let table = self.pairs(column)?;
        let apply = || {
            let (mut table, key) = (writes.open_table(table)?, key.as_slice());
            match entry {
                BatchEntry::Put(.., value) => drop(table.insert(key, value.as_slice())?),
                BatchEntry::Merge(.., more) => {
                    let old = table.get(key)?.map_or_else(Vec::new, |old| old.value().to_vec());
                    table.insert(key, [&old, more.as_slice()].concat().as_slice())?;
                }
                BatchEntry::Delete(..) => drop(table.remove(key)?),
            }
            if self.cuts > 0 {
                writes.open_table(CHANGED)?.insert((self.cuts, column.0, key), ())?;
            }
            Ok::<_, redb::Error>(())
        };
        apply().map_err(failed)
    }
}

impl ByteStore for RedbStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        let table = format!("{COLUMN}{name}");
        let at = self.tables.iter().position(|known| *known == table).unwrap_or(self.tables.len());
        if at == self.tables.len() {
            self.redb.writes()?.open_table(Pairs::new(&table)).map_err(failed)?;
            self.tables.push(table);
        }
        u32::try_from(at).map(Column).map_err(|_| Error::limit("more columns than can be numbered"))
    }

    fn column_names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table[COLUMN.len()..].to_owned()).collect()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let table = self.redb.writes()?.open_table(self.pairs(column)?).map_err(failed)?;
        let found = table.get(key).map_err(failed)?;
        value.extend_from_slice(found.as_ref().map_or(&[], |found| found.value()));
        Ok(found.is_some())
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        batch.entries.iter().try_for_each(|entry| self.pairs(entry.column()).map(drop))?;
        let applied = batch.entries.iter().try_for_each(|entry| self.apply(entry));
        applied.inspect_err(|_| self.redb.writes = None)
    }

    fn scan(&self, c: Column, start: &[u8], end: Option<&[u8]>, limit: usize, page: &mut Page) -> Result<()> {
        let table = self.redb.writes()?.open_table(self.pairs(c)?).map_err(failed)?;
        fill(&table, start, end, limit, page).map_err(failed)
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        Ok(Box::new(self.freeze()?.1))
    }

    fn native(&mut self) -> Option<&mut dyn NativeSnapshots> {
        Some(self)
    }
}

/// The tables as they were, by column number; they hold their transaction, but would be closed with the store's database.
pub(super) struct Frozen {
    tables: Vec<ReadOnlyTable<Bytes, Bytes>>,
    _db: Arc<Database>,
}

impl Frozen {
    pub(super) fn table(&self, column: Column) -> Result<&ReadOnlyTable<Bytes, Bytes>> {
        self.tables.get(column.0 as usize).ok_or_else(|| unknown_column(column))
    }
}

impl ByteView for Frozen {
    fn scan(&self, c: Column, start: &[u8], end: Option<&[u8]>, limit: usize, page: &mut Page) -> Result<()> {
        fill(self.table(c)?, start, end, limit, page).map_err(failed)
    }
}

fn fill(
    table: &impl ReadableTable<Bytes, Bytes>,
    start: &[u8],
    end: Option<&[u8]>,
    limit: usize,
    page: &mut Page,
) -> Result<(), redb::StorageError> {
    page.entries.clear();
    let range = end.map_or_else(|| table.range(start..), |end| table.range(start..end));
    for pair in range?.take(limit) {
        let (key, value) = pair?;
        page.entries.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok(())
}
