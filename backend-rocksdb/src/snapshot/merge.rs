//! How the files of one or more frozen databases become one database: decided here, done elsewhere.
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use state_api::{Error, KeyGroupRange, Result, StateHandle};

use super::layout::{Bounds, ColumnLayout, FileLayout, Layout};

/// Where the bytes of a file come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From a snapshot.
    Stored(StateHandle),
    /// From a file of ours.
    Local(PathBuf),
}

/// A frozen database.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The key groups that count in it.
    pub(crate) range: KeyGroupRange,
    pub(crate) layout: Layout,
    /// Where its files are, by number.
    pub(crate) origins: BTreeMap<u64, Origin>,
}

impl Source {
    /// Returns whether a file holds more than the key groups of its range, so that it can't stand beside those of other sources.
    pub(crate) fn reaches_beyond_its_range(&self) -> bool {
        let bounds = Bounds::of(self.range, self.layout.prefix_len);
        self.layout.files().any(|file| !file.is_within(&bounds))
    }
}

/// A database to be put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its files, under their numbers in it.
    pub(crate) layout: Layout,
    /// Where they come from.
    pub(crate) origins: BTreeMap<u64, Origin>,
    /// States in whose columns are files with key groups beyond the bounds.
    pub(crate) crossing: BTreeSet<String>,
    /// Files that are not needed.
    pub(crate) skipped_files: u64,
    /// Bytes of files that are not needed.
    pub(crate) skipped_bytes: u64,
}

/// Plans a database with all key groups within the bounds that are in the sources. Files keep level and number where they can.
///
/// The numbers of changes of different sources have nothing to do with each other. They need not: RocksDB compares those of the
/// same key only, deleted ranges count between the least and the greatest key of their file, and no file of a source reaches
/// beyond its range. Changes that come later get greater numbers than all of them.
///
/// # Errors
/// `Corrupt` when a source lacks a file, or when sources overlap.
pub(crate) fn merge(sources: &[Source], bounds: &Bounds) -> Result<Plan> {
    let mut plan = Plan::default();
    let mut columns: BTreeMap<&str, Vec<FileLayout>> = BTreeMap::new();
    // RocksDB's own files may have the first numbers.
    let mut next = 2 + sources
        .iter()
        .flat_map(|source| source.layout.files())
        .map(|file| file.number)
        .max()
        .unwrap_or(0);
    for source in sources {
        plan.layout.prefix_len = source.layout.prefix_len;
        plan.layout.last_sequence = plan.layout.last_sequence.max(source.layout.last_sequence);
        for column in &source.layout.columns {
            let files = columns.entry(&column.state).or_default();
            let mut taken: Vec<&FileLayout> = Vec::new();
            for file in &column.files {
                if file.intersects(bounds) {
                    taken.push(file);
                } else {
                    plan.skipped_files += 1;
                    plan.skipped_bytes += file.size;
                }
            }
            // From the oldest changes of a key to the newest: the deepest level first, and in level 0 as they were written.
            taken.sort_by(|a, b| (b.level, a.epoch).cmp(&(a.level, b.epoch)));
            let mut epoch = files.last().map_or(0, |file| file.epoch);
            let mut level = None;
            for file in taken {
                if file.level == 0 || level != Some(file.level) {
                    epoch += 1;
                }
                level = Some(file.level);
                let origin = source.origins.get(&file.number).ok_or_else(|| {
                    Error::corrupt("the snapshot lacks a file of its layout")
                        .with("file", file.name())
                })?;
                let mut number = file.number;
                if number < 2 || plan.origins.contains_key(&number) {
                    number = next;
                    next += 1;
                }
                plan.origins.insert(number, origin.clone());
                if !file.is_within(bounds) {
                    plan.crossing.insert(column.state.clone());
                }
                files.push(FileLayout {
                    number,
                    epoch,
                    ..file.clone()
                });
            }
        }
    }
    plan.layout.columns = columns
        .into_iter()
        .map(|(state, files)| ColumnLayout {
            state: state.to_owned(),
            files,
        })
        .collect();
    for column in &plan.layout.columns {
        check_levels(column)?;
    }
    plan.layout.check()?;
    Ok(plan)
}

/// Checks that the files of each level but the first follow each other.
fn check_levels(column: &ColumnLayout) -> Result<()> {
    let mut levels: BTreeMap<u64, Vec<&FileLayout>> = BTreeMap::new();
    for file in column.files.iter().filter(|file| file.level > 0) {
        levels.entry(file.level).or_default().push(file);
    }
    for files in levels.values_mut() {
        // Of files that start with the same key, as two parts of a deleted range may, one ends with it.
        files.sort_by(|a, b| (a.first_key(), a.last_key().0).cmp(&(b.first_key(), b.last_key().0)));
        for pair in files.windows(2) {
            if let [before, after] = pair
                && before.last_key().0 > after.first_key()
            {
                return Err(Error::corrupt("files of one level overlap")
                    .with("state", &column.state)
                    .with("file", before.name())
                    .with("and", after.name()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
