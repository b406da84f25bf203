//! RocksDB's own list of a database's files, its *manifest*: read to learn which files a frozen database consists of, written to
//! make a database of files that are there.
//!
//! What is not in the files themselves, and what no call of RocksDB tells or takes, is there alone: where a deleted range that
//! spans several files ends in each of them, and in which order files of level 0 follow each other. The format is RocksDB's
//! promise to its own older and newer versions (`db/version_edit.h`); what is not known here is refused, not skipped.
use std::collections::BTreeMap;

use state_api::wire::{get_bytes, get_str, get_varint, put_bytes, put_varint};
use state_api::{Error, Result};

use super::layout::{ColumnLayout, FileLayout, Layout};
use super::record_log;
use crate::database::{column_of, state_of};

const COMPARATOR: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const COMPACT_CURSOR: u64 = 5;
const DELETED_FILE: u64 = 6;
const PREVIOUS_LOG_NUMBER: u64 = 9;
const LEAST_LOG_NUMBER: u64 = 10;
const NEW_FILE: u64 = 103;
const COLUMN: u64 = 200;
const COLUMN_ADDED: u64 = 201;
const COLUMN_DROPPED: u64 = 202;
const GREATEST_COLUMN: u64 = 203;
const IN_GROUP: u64 = 300;
/// The id of RocksDB's own column, in which there are marks alone.
const MARKS: u64 = 0;
/// From here on tags come with their length, and may be left out.
const SKIPPABLE: u64 = 1 << 13;
/// All but these, which no version of today writes: blob files and logs.
const WITHOUT_LENGTH: std::ops::RangeInclusive<u64> = SKIPPABLE + 2..=SKIPPABLE + 5;

const FIELDS_END: u64 = 1;
const FIELD_LEAST_LOG: u64 = 3;
const FIELD_OLDEST_BLOB: u64 = 4;
const FIELD_EPOCH: u64 = 13;
/// Fields from here on must be understood.
const FIELD_NEEDED: u64 = 1 << 6;

const BYTEWISE: &str = "leveldb.BytewiseComparator";

#[derive(Default)]
struct Column {
    name: String,
    files: BTreeMap<u64, FileLayout>,
}

/// Reads a manifest.
///
/// # Errors
/// `Corrupt` when it is damaged, `Unsupported` when something is in it that a snapshot can't carry, such as blob files.
pub(super) fn read(manifest: &[u8], prefix_len: usize) -> Result<Layout> {
    let mut reading = Reading::default();
    for record in record_log::records(manifest)? {
        reading.apply(&record)?;
    }
    reading.layout(prefix_len)
}

/// Reads a manifest up to, and with, the first edit past `from` bytes that brings a mark into a file; `None` if none does.
///
/// Whatever was in memory when the mark was written is in files after this edit, and nothing that was written later is.
///
/// # Errors
/// As [`read`]; `Retryable` when later changes are in the files all the same.
pub(super) fn read_to_mark(
    manifest: &[u8],
    from: usize,
    mark: u64,
    prefix_len: usize,
) -> Result<Option<Layout>> {
    let mut reading = Reading::default();
    let before = record_log::records(&manifest[..from.min(manifest.len())])?.len();
    for (at, record) in record_log::records(manifest)?.into_iter().enumerate() {
        reading.marked = None;
        reading.apply(&record)?;
        if at < before || reading.marked.is_none_or(|newest| newest < mark) {
            continue;
        }
        let layout = reading.layout(prefix_len)?;
        let later = layout.files().find(|file| file.largest_sequence > mark);
        return match later {
            None => Ok(Some(layout)),
            Some(file) => Err(Error::retryable(
                "what was written after the cut is in a file with what was written before; the next one works",
            )
            .with("file", file.name())),
        };
    }
    Ok(None)
}

#[derive(Default)]
struct Reading {
    columns: BTreeMap<u64, Column>,
    last_sequence: u64,
    /// Edits that count together, and how many are missing.
    group: Vec<Edit>,
    /// The greatest number of a mark that the last edits brought into a file.
    marked: Option<u64>,
}

/// One record.
#[derive(Default)]
struct Edit {
    column: u64,
    added: Option<String>,
    dropped: bool,
    last_sequence: Option<u64>,
    deleted_files: Vec<u64>,
    new_files: Vec<FileLayout>,
    left_in_group: Option<u64>,
}

impl Reading {
    fn apply(&mut self, record: &[u8]) -> Result<()> {
        let edit = Edit::read(record)?;
        match edit.left_in_group {
            // What of a group is there when the manifest ends does not count.
            Some(left) => {
                self.group.push(edit);
                if left == 0 {
                    for edit in std::mem::take(&mut self.group) {
                        self.change(edit)?;
                    }
                }
                Ok(())
            }
            None => self.change(edit),
        }
    }

    fn change(&mut self, edit: Edit) -> Result<()> {
        if let Some(last) = edit.last_sequence {
            self.last_sequence = self.last_sequence.max(last);
        }
        if edit.dropped {
            self.columns.remove(&edit.column);
            return Ok(());
        }
        let column = self.columns.entry(edit.column).or_default();
        if let Some(name) = edit.added {
            column.name = name;
        }
        for number in edit.deleted_files {
            if column.files.remove(&number).is_none() {
                return Err(
                    Error::corrupt("the manifest deletes a file that is not there")
                        .with("file", number),
                );
            }
        }
        for file in edit.new_files {
            if edit.column == MARKS {
                self.marked = self.marked.max(Some(file.largest_sequence));
            }
            self.last_sequence = self.last_sequence.max(file.largest_sequence);
            column.files.insert(file.number, file);
        }
        Ok(())
    }

    fn layout(self, prefix_len: usize) -> Result<Layout> {
        let mut layout = Layout {
            prefix_len,
            last_sequence: self.last_sequence,
            columns: Vec::new(),
        };
        for (id, column) in self.columns {
            if id == MARKS {
                continue;
            }
            let files: Vec<FileLayout> = column.files.into_values().collect();
            match state_of(&column.name) {
                Some(state) => layout.columns.push(ColumnLayout { state, files }),
                None => {
                    return Err(
                        Error::unsupported("a column that is not of a state has files")
                            .with("column", column.name),
                    );
                }
            }
        }
        layout.check()?;
        Ok(layout)
    }
}

impl Edit {
    fn read(mut record: &[u8]) -> Result<Self> {
        let input = &mut record;
        let mut edit = Self::default();
        while !input.is_empty() {
            match get_varint(input)? {
                COMPARATOR => {
                    let name = get_str(input)?;
                    if name != BYTEWISE {
                        return Err(Error::unsupported("keys are not compared as bytes")
                            .with("comparator", name));
                    }
                }
                LOG_NUMBER | NEXT_FILE | PREVIOUS_LOG_NUMBER | LEAST_LOG_NUMBER
                | GREATEST_COLUMN => {
                    get_varint(input)?;
                }
                LAST_SEQUENCE => edit.last_sequence = Some(get_varint(input)?),
                COMPACT_CURSOR => {
                    get_varint(input)?;
                    get_bytes(input)?;
                }
                DELETED_FILE => {
                    get_varint(input)?;
                    edit.deleted_files.push(get_varint(input)?);
                }
                NEW_FILE => edit.new_files.push(new_file(input)?),
                COLUMN => edit.column = get_varint(input)?,
                COLUMN_ADDED => edit.added = Some(get_str(input)?.to_owned()),
                COLUMN_DROPPED => edit.dropped = true,
                IN_GROUP => edit.left_in_group = Some(get_varint(input)?),
                tag if tag & SKIPPABLE != 0 && !WITHOUT_LENGTH.contains(&tag) => {
                    get_bytes(input)?;
                }
                tag => {
                    return Err(Error::unsupported(
                        "the local database uses something that native snapshots don't know, such as blob files",
                    )
                    .with("tag", tag));
                }
            }
        }
        Ok(edit)
    }
}

fn new_file(input: &mut &[u8]) -> Result<FileLayout> {
    let mut file = FileLayout {
        level: get_varint(input)?,
        number: get_varint(input)?,
        size: get_varint(input)?,
        smallest: get_bytes(input)?.to_vec(),
        largest: get_bytes(input)?.to_vec(),
        smallest_sequence: get_varint(input)?,
        largest_sequence: get_varint(input)?,
        ..FileLayout::default()
    };
    loop {
        let tag = get_varint(input)?;
        if tag == FIELDS_END {
            break;
        }
        let mut value = get_bytes(input)?;
        match tag {
            FIELD_EPOCH => file.epoch = get_varint(&mut value)?,
            // There is no log.
            FIELD_LEAST_LOG => {}
            _ if tag == FIELD_OLDEST_BLOB || tag & FIELD_NEEDED != 0 => {
                return Err(Error::unsupported(
                    "a file of the local database refers to others, such as blob files or other folders",
                )
                .with("file", file.name())
                .with("tag", tag));
            }
            _ => file.fields.push((tag, value.to_vec())),
        }
    }
    file.check()?;
    Ok(file)
}

/// Writes the manifest of a database that consists of these files.
pub(super) fn write(layout: &Layout) -> Vec<u8> {
    let greatest = layout.files().map(|file| file.number).max().unwrap_or(0);
    let mut log = Vec::new();
    let mut first = Vec::new();
    put_varint(&mut first, COMPARATOR);
    put_bytes(&mut first, BYTEWISE.as_bytes());
    for (tag, value) in [
        (LOG_NUMBER, 0),
        // Past the manifest's own number, too.
        (NEXT_FILE, greatest.max(MANIFEST_NUMBER) + 1),
        (GREATEST_COLUMN, layout.columns.len() as u64),
        (LAST_SEQUENCE, layout.last_sequence),
    ] {
        put_varint(&mut first, tag);
        put_varint(&mut first, value);
    }
    record_log::append(&mut log, &first);
    for (id, column) in (1..).zip(&layout.columns) {
        let mut added = Vec::new();
        put_varint(&mut added, COMPARATOR);
        put_bytes(&mut added, BYTEWISE.as_bytes());
        put_varint(&mut added, LOG_NUMBER);
        put_varint(&mut added, 0);
        put_varint(&mut added, COLUMN);
        put_varint(&mut added, id);
        put_varint(&mut added, COLUMN_ADDED);
        put_bytes(&mut added, column_of(&column.state).as_bytes());
        record_log::append(&mut log, &added);
        if column.files.is_empty() {
            continue;
        }
        let mut files = Vec::new();
        for file in &column.files {
            put_file(&mut files, file);
        }
        put_varint(&mut files, COLUMN);
        put_varint(&mut files, id);
        record_log::append(&mut log, &files);
    }
    log
}

/// The number of the manifest that is written.
pub(super) const MANIFEST_NUMBER: u64 = 1;

fn put_file(out: &mut Vec<u8>, file: &FileLayout) {
    put_varint(out, NEW_FILE);
    put_varint(out, file.level);
    put_varint(out, file.number);
    put_varint(out, file.size);
    put_bytes(out, &file.smallest);
    put_bytes(out, &file.largest);
    put_varint(out, file.smallest_sequence);
    put_varint(out, file.largest_sequence);
    let mut epoch = Vec::new();
    put_varint(&mut epoch, file.epoch);
    put_varint(out, FIELD_EPOCH);
    put_bytes(out, &epoch);
    for (tag, value) in &file.fields {
        put_varint(out, *tag);
        put_bytes(out, value);
    }
    put_varint(out, FIELDS_END);
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
