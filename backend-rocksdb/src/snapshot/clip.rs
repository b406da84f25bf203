use std::collections::BTreeSet;
use std::sync::Arc;

use rocksdb::{BottommostLevelCompaction, CompactOptions, WriteOptions};
use state_api::Result;

use super::frozen::Frozen;
use super::layout::{Bounds, Layout};
use crate::database::{ColumnCell, Database};
use crate::error::failed;

/// Removes what lies beyond the bounds: deletes it, and rewrites the files that reach across, so that afterwards each file lies
/// whole within them. Returns the bytes of new files.
///
/// # Errors
/// Those of the disk.
pub(crate) fn clip(
    database: &Arc<Database>,
    columns: &[Arc<ColumnCell>],
    before: &Layout,
    crossing: &BTreeSet<String>,
    bounds: &Bounds,
) -> Result<u64> {
    let db = database.db();
    let mut write = WriteOptions::default();
    write.disable_wal(true);
    let mut compact = CompactOptions::default();
    compact.set_exclusive_manual_compaction(false);
    compact.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    for cell in columns
        .iter()
        .filter(|cell| crossing.contains(cell.state()))
    {
        let files = || {
            let column = before.columns.iter().find(|c| c.state == cell.state());
            column.into_iter().flat_map(|column| &column.files)
        };
        let delete = |start: &[u8], end: &[u8]| {
            db.delete_range_cf_opt(cell.handle(), start, end, &write)
                .map_err(|e| failed("delete range", database.path(), e).with("state", cell.state()))
        };
        let (start, end) = (bounds.start.as_slice(), bounds.end.as_deref());
        let starts_before = files().any(|file| file.first_key() < start);
        let last = files().map(|file| file.last_key().0).max();
        let past_last = end
            .and_then(|end| last.filter(|last| *last >= end))
            .map(|last| {
                let mut past = last.to_vec();
                past.push(0);
                past
            });
        if starts_before {
            delete(&[], start)?;
        }
        if let (Some(end), Some(past)) = (end, &past_last) {
            delete(end, past)?;
        }
        // Whatever has such keys is merged with what lies below it, down to the last level, where deleted keys end.
        if starts_before {
            db.compact_range_cf_opt(cell.handle(), None::<&[u8]>, Some(start), &compact);
        }
        if past_last.is_some() {
            db.compact_range_cf_opt(cell.handle(), end, None::<&[u8]>, &compact);
        }
    }
    let after = Frozen::cut_and_wait(database, columns, before.prefix_len)?.layout()?;
    let old: BTreeSet<u64> = before.files().map(|file| file.number).collect();
    for file in after.files().filter(|file| !file.is_within(bounds)) {
        // What is in it is deleted; it can only not stand beside the files of others.
        tracing::warn!(file = file.name(), path = %database.path().display(), "a file still reaches beyond its key groups");
    }
    let new = after.files().filter(|file| !old.contains(&file.number));
    Ok(new.map(|file| file.size).sum())
}
