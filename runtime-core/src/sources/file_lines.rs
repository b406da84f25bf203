use std::path::{Path, PathBuf};
use std::sync::Arc;

use state_api::{Error, Result};

use super::line_reader::{LineOptions, Parse};
use super::{FileSplit, LineReader, RateLimited, file_ranges};
use crate::Record;
use crate::source::{Source, SourceContext};

/// Reads the lines of a file, or of the files of a folder in the order of their names.
///
/// Files are divided into ranges of whole lines, which are read independently: a single large file keeps all subtasks
/// busy, and after a restore at another parallelism the ranges, with the offsets reached, are dealt out anew. Lines end
/// with `\n` or `\r\n`; the last one may have no end. Hidden files, files whose name starts with `_` and folders within the
/// folder are left out. What is appended to a file after it was divided is not read, nor is a file that comes later: a restored
/// job goes on with the files that its checkpoint names.
///
/// Each file is a part of its own for watermarks: records of a file that is read late are not late in event time, but
/// windows wait until the last file has been begun. [`FileLines::in_time_order`] lifts that.
///
/// ```
/// use runtime_core::sources::FileLines;
///
/// let words = FileLines::new("books/").parsed(|line| Ok(Some(line.len())));
/// # let _ = words;
/// ```
#[derive(Clone)]
pub struct FileLines<T = String> {
    path: PathBuf,
    parse: Parse<T>,
    range_bytes: u64,
    options: LineOptions,
}

impl FileLines<String> {
    /// Creates a source of lines as text; nothing is opened yet.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            parse: Arc::new(|line| Ok(Some(line.to_owned()))),
            range_bytes: 4 << 20,
            options: LineOptions {
                longest: 16 << 20,
                skip_header: false,
                lossy: false,
                in_time_order: false,
            },
        }
    }
}

impl<T> FileLines<T> {
    /// Makes something else of each line, or nothing (`None`), without a copy of the line in between.
    ///
    /// An error of the function fails the job, with the file and the offset of the line added.
    #[must_use]
    pub fn parsed<U>(
        self,
        parse: impl Fn(&str) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> FileLines<U> {
        FileLines {
            path: self.path,
            parse: Arc::new(parse),
            range_bytes: self.range_bytes,
            options: self.options,
        }
    }

    /// Leaves out the first line of each file.
    #[must_use]
    pub fn skip_header(mut self) -> Self {
        self.options.skip_header = true;
        self
    }

    /// Reads what is not UTF-8 with the replacement character in its place, instead of failing.
    #[must_use]
    pub fn lossy(mut self) -> Self {
        self.options.lossy = true;
        self
    }

    /// Says that the files follow each other in event time as they do by name, so that windows need not wait for files that
    /// are not begun yet.
    #[must_use]
    pub fn in_time_order(mut self) -> Self {
        self.options.in_time_order = true;
        self
    }

    /// Sets the size of the ranges that files are divided into, in bytes (4 MiB unless set); there are always enough ranges
    /// for all subtasks, and at most about a thousand a file.
    #[must_use]
    pub fn range_bytes(mut self, bytes: u64) -> Self {
        self.range_bytes = bytes.max(1);
        self
    }

    /// Sets the length of the longest line that is read, in bytes (16 MiB unless set).
    #[must_use]
    pub fn longest_line(mut self, bytes: usize) -> Self {
        self.options.longest = bytes;
        self
    }

    /// Limits the lines per second of all subtasks together.
    #[must_use]
    pub fn per_second(self, records: f64) -> RateLimited<Self> {
        RateLimited::new(self, records)
    }
}

impl<T: Record> Source for FileLines<T> {
    type Out = T;
    type Split = FileSplit;
    type Reader = LineReader<T>;

    fn enumerate(&self, parallelism: u32) -> Result<Vec<FileSplit>> {
        let (folder, names) = file_ranges::list(&self.path)?;
        file_ranges::divide(&folder, &names, self.range_bytes, parallelism)
    }

    fn reader(&self, _: &SourceContext, splits: Vec<FileSplit>) -> Result<LineReader<T>> {
        if let Some(split) = splits
            .iter()
            .find(|split| !file_ranges::has(&self.path, split))
        {
            return Err(split.about(Error::incompatible(format!(
                "the checkpoint reads another file than the one that is named, {}: name that one, or the folder of both",
                self.path.display()
            ))));
        }
        LineReader::new(
            file_ranges::folder(&self.path),
            Arc::clone(&self.parse),
            self.options,
            splits,
        )
    }

    fn describe(&self, split: &FileSplit) -> String {
        if split.start == 0 && split.end == split.length {
            return format!("{} {}/{}", split.file, split.position, split.length);
        }
        format!(
            "{} {} in {}..{}/{}",
            split.file, split.position, split.start, split.end, split.length
        )
    }
}

impl<T> std::fmt::Debug for FileLines<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLines")
            .field("path", &self.path)
            .field("range_bytes", &self.range_bytes)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::StateType;

    /// Splits are stored by their schema: it must not change by accident.
    #[test]
    fn the_schema_of_a_split_is_as_old_checkpoints_have_it() {
        assert_eq!(
            FileSplit::schema().to_string(),
            "struct FileSplit{file:string,ordinal:u64,start:u64,end:u64,position:u64,length:u64,head_hash:u64}"
        );
    }
}
