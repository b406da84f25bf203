//! Reading files so that somebody can watch how far a job has come.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use runtime_core::Record;
use runtime_core::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use runtime_core::sources::{FileLines, FileSplit, LineReader};
use state_api::{CheckpointId, Result};

/// How many records of the input were read, as all readers of the source count them.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Records that this process emitted.
    emitted: AtomicU64,
    /// Whether the records that are left are counted, which reads the input once more.
    counts_left: bool,
    /// Records that the readers have still before them, by subtask.
    left: Mutex<BTreeMap<u32, u64>>,
}

impl Reading {
    /// Creates a count of what is read, and, if asked for, of what is left.
    pub(crate) fn new(counts_left: bool) -> Arc<Self> {
        Arc::new(Self {
            counts_left,
            ..Self::default()
        })
    }

    /// Returns the number of records that this process has read.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted.load(Ordering::Relaxed)
    }

    /// Returns the number of records that are still to be read; 0 unless they are counted.
    pub(crate) fn left(&self) -> u64 {
        self.left
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .sum()
    }

    fn begin(&self, subtask: u32, records: u64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.insert(subtask, records);
    }

    fn took(&self, subtask: u32, records: u64) {
        self.emitted.fetch_add(records, Ordering::Relaxed);
        if self.counts_left {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let of_subtask = left.entry(subtask).or_default();
            *of_subtask = of_subtask.saturating_sub(records);
        }
    }
}

/// Lines of files with a header, counted as they are read.
pub(crate) struct ObservedLines<T> {
    lines: FileLines<T>,
    folder: PathBuf,
    reading: Arc<Reading>,
}

impl<T: Record> ObservedLines<T> {
    /// Watches a source of lines whose files lie in a folder.
    pub(crate) fn new(lines: FileLines<T>, folder: &Path, reading: &Arc<Reading>) -> Self {
        Self {
            lines,
            folder: folder.to_owned(),
            reading: Arc::clone(reading),
        }
    }
}

impl<T: Record> Source for ObservedLines<T> {
    type Out = T;
    type Split = FileSplit;
    type Reader = ObservedReader<T>;

    fn enumerate(&self, parallelism: u32) -> Result<Vec<FileSplit>> {
        self.lines.enumerate(parallelism)
    }

    fn reader(&self, cx: &SourceContext, splits: Vec<FileSplit>) -> Result<ObservedReader<T>> {
        let subtask = cx.subtask.index;
        if self.reading.counts_left {
            // What can't be read here can't be read by the reader either, and it says so better.
            let left = splits
                .iter()
                .map(|split| records_left(&self.folder, split).unwrap_or(0));
            self.reading.begin(subtask, left.sum());
        }
        Ok(ObservedReader {
            reader: self.lines.reader(cx, splits)?,
            reading: Arc::clone(&self.reading),
            subtask,
        })
    }

    fn describe(&self, split: &FileSplit) -> String {
        self.lines.describe(split)
    }
}

/// Reads for [`ObservedLines`].
pub(crate) struct ObservedReader<T> {
    reader: LineReader<T>,
    reading: Arc<Reading>,
    subtask: u32,
}

impl<T: Record> SourceReader for ObservedReader<T> {
    type Out = T;
    type Split = FileSplit;

    fn poll(&mut self, out: &mut SourceOutput<'_, T>) -> Result<SourceStatus> {
        let before = out.emitted();
        let status = self.reader.poll(out);
        self.reading
            .took(self.subtask, (out.emitted() - before) as u64);
        status
    }

    fn snapshot(&mut self) -> Result<Vec<FileSplit>> {
        self.reader.snapshot()
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.reader.checkpoint_completed(checkpoint)
    }
}

/// Counts the lines of a split that are not read yet, without the header and empty lines.
fn records_left(folder: &Path, split: &FileSplit) -> std::io::Result<u64> {
    let mut file = File::open(folder.join(&split.file))?;
    file.seek(SeekFrom::Start(split.position))?;
    let mut reader = BufReader::with_capacity(1 << 18, file.take(split.remaining()));
    let (mut records, mut line) = (0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        records += u64::from(!line.trim_ascii().is_empty());
        line.clear();
    }
    Ok(records - u64::from(split.position == 0 && records > 0))
}

/// Returns the folder that an input's files are in, and their names.
///
/// # Errors
/// As those of [`FileLines`], when there is nothing to read.
pub(crate) fn files_of(input: &Path) -> Result<(PathBuf, Vec<String>)> {
    let splits = FileLines::new(input).enumerate(1)?;
    let mut names: Vec<String> = splits.into_iter().map(|split| split.file).collect();
    names.dedup();
    if names.is_empty() {
        // A file without a single byte has no split, but a name.
        names.extend(
            input
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    let folder = if input.is_dir() {
        input.to_owned()
    } else {
        input.parent().map(Path::to_owned).unwrap_or_default()
    };
    Ok((folder, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(position: u64, end: u64) -> FileSplit {
        FileSplit {
            file: "a.csv".into(),
            ordinal: 0,
            start: 0,
            end,
            position,
            length: end,
            head_hash: 0,
        }
    }

    #[test]
    fn records_are_counted_without_header_and_empty_lines() {
        let folder = tempfile::tempdir().unwrap();
        let text = "header\none\n\ntwo\nthree";
        std::fs::write(folder.path().join("a.csv"), text).unwrap();
        let left = |position, end| records_left(folder.path(), &split(position, end)).unwrap();
        assert_eq!(left(0, text.len() as u64), 3);
        assert_eq!(left(7, text.len() as u64), 3);
        assert_eq!(left(7, 12), 1);
        assert_eq!(left(16, text.len() as u64), 1);
    }

    #[test]
    fn the_files_of_a_folder_come_by_name_and_an_empty_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", ".hidden"] {
            std::fs::write(folder.path().join(name), "x\n").unwrap();
        }
        let (found, names) = files_of(folder.path()).unwrap();
        assert_eq!(
            (found.as_path(), names),
            (folder.path(), vec!["a.csv".to_owned(), "b.csv".to_owned()])
        );
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        assert_eq!(files_of(&empty).unwrap().1, ["empty"]);
        assert!(files_of(&folder.path().join("nothing")).is_err());
    }
}
