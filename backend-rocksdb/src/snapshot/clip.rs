use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rocksdb::{BottommostLevelCompaction, CompactOptions, WriteOptions};
use state_api::Result;

use super::layout::{Bounds, Layout};
use crate::database::{ColumnCell, Database};
use crate::error::failed;

/// What is in files and lies beyond the key groups of a database: deleted, so that nobody sees it, and to be left out when the
/// files are written anew.
pub(crate) struct Beyond {
    database: Arc<Database>,
    columns: Vec<Crossing>,
    bounds: Bounds,
}

/// A column with files that reach beyond the bounds.
struct Crossing {
    cell: Arc<ColumnCell>,
    starts_before: bool,
    ends_after: bool,
}

impl Beyond {
    /// Deletes what lies beyond the bounds.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn delete(
        database: &Arc<Database>,
        columns: &[Arc<ColumnCell>],
        layout: &Layout,
        crossing: &BTreeSet<String>,
        bounds: &Bounds,
    ) -> Result<Self> {
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let mut beyond = Vec::new();
        for cell in columns
            .iter()
            .filter(|cell| crossing.contains(cell.state()))
        {
            let files = || {
                let column = layout.columns.iter().find(|c| c.state == cell.state());
                column.into_iter().flat_map(|column| &column.files)
            };
            let delete = |start: &[u8], end: &[u8]| {
                let db = database.db();
                db.delete_range_cf_opt(cell.handle(), start, end, &write)
                    .map_err(|e| failed("delete range", database.path(), e))
                    .map_err(|e| e.with("state", cell.state()))
            };
            let (start, end) = (bounds.start.as_slice(), bounds.end.as_deref());
            let starts_before = files().any(|file| file.first_key() < start);
            let last = files().map(|file| file.last_key().0).max();
            let past_last = end
                .and_then(|end| last.filter(|last| *last >= end))
                .map(|last| [last, &[0]].concat());
            if starts_before {
                delete(&[], start)?;
            }
            if let (Some(end), Some(past)) = (end, &past_last) {
                delete(end, past)?;
            }
            beyond.push(Crossing {
                cell: Arc::clone(cell),
                starts_before,
                ends_after: past_last.is_some(),
            });
        }
        Ok(Self {
            database: Arc::clone(database),
            columns: beyond,
            bounds: bounds.clone(),
        })
    }

    /// Writes the files that reach across anew, so that afterwards each lies whole within the bounds, and returns the bytes that
    /// were written. It stops early when manual compactions are disabled.
    pub(crate) fn rewrite(&self) -> u64 {
        let mut compact = CompactOptions::default();
        compact.set_exclusive_manual_compaction(false);
        compact.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        let db = self.database.db();
        let (start, end) = (self.bounds.start.as_slice(), self.bounds.end.as_deref());
        let compactions = self.database.compactions();
        let _turn = compactions.rewriting();
        // Whatever has such keys is merged with what lies below it, down to the last level, where deleted keys end.
        for column in &self.columns {
            let handle = column.cell.handle();
            if column.starts_before {
                db.compact_range_cf_opt(handle, None::<&[u8]>, Some(start), &compact);
            }
            if column.ends_after {
                db.compact_range_cf_opt(handle, end, None::<&[u8]>, &compact);
            }
        }
        compactions.rewritten()
    }

    /// Lets a thread of its own write the files anew while the database is used.
    pub(crate) fn rewrite_meanwhile(self) -> Rewriting {
        let database = Arc::clone(&self.database);
        let work = move || {
            let bytes = self.rewrite();
            tracing::info!(bytes, path = %self.database.path().display(), "wrote the files that reached beyond the key groups anew");
        };
        let thread = Builder::new().name("rocksdb-clip".to_owned()).spawn(work);
        if let Err(error) = &thread {
            tracing::warn!(%error, path = %database.path().display(), "no thread to write files anew: they still reach beyond the key groups");
        }
        Rewriting {
            database,
            thread: thread.ok(),
        }
    }
}

/// Files that are being written anew; given up when dropped.
pub(crate) struct Rewriting {
    database: Arc<Database>,
    thread: Option<JoinHandle<()>>,
}

impl Rewriting {
    /// Returns the bytes that were written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.database.compactions().rewritten()
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!(path = %self.database.path().display(), "the thread that writes files anew panicked");
        }
    }
}

impl Drop for Rewriting {
    fn drop(&mut self) {
        if self
            .thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            self.database.db().disable_manual_compaction();
        }
        self.wait();
    }
}

#[cfg(test)]
#[path = "clip_tests.rs"]
mod tests;
