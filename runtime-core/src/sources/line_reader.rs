use std::collections::VecDeque;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use state_api::{Error, Result};

use super::FileSplit;
use super::line_buffer::{Found, LineBuffer};
use crate::source::{SourceOutput, SourceReader, SourceStatus};

/// Bytes after which a poll ends even if no line was emitted, so that a barrier never waits for a long read.
const POLL_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Makes a record of a line, or nothing.
pub(super) type Parse<T> = Arc<dyn Fn(&str) -> Result<Option<T>> + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub(super) struct LineOptions {
    pub longest: usize,
    pub skip_header: bool,
    pub lossy: bool,
    pub in_time_order: bool,
}

/// Reads the lines of the splits of one subtask, one split after the other in the order of the input.
pub struct LineReader<T> {
    folder: PathBuf,
    parse: Parse<T>,
    options: LineOptions,
    /// Splits that are not begun in this run.
    waiting: VecDeque<FileSplit>,
    current: Option<OpenSplit>,
    /// Whether files are declared as parts of the input; and if so, whether it is done.
    declares: bool,
    declared: bool,
}

struct OpenSplit {
    split: FileSplit,
    file: File,
    buffer: LineBuffer,
    /// Offset up to which the file is in the buffer or behind it.
    read_to: u64,
}

impl<T> LineReader<T> {
    pub(super) fn new(
        folder: PathBuf,
        parse: Parse<T>,
        options: LineOptions,
        mut splits: Vec<FileSplit>,
    ) -> Result<Self> {
        splits.sort_by_key(|split| (split.ordinal, split.start));
        for split in &splits {
            // Before the first record, so that a changed input is found at the restore.
            split.open(&folder)?;
        }
        let first = splits.first().map(|split| split.ordinal);
        let declares =
            !options.in_time_order && splits.iter().any(|split| Some(split.ordinal) != first);
        Ok(Self {
            folder,
            parse,
            options,
            waiting: splits.into(),
            current: None,
            declares,
            declared: false,
        })
    }

    fn declare(&mut self, out: &mut SourceOutput<'_, T>) -> Result<()> {
        if self.declares && !self.declared {
            let mut last = None;
            for split in &self.waiting {
                if last != Some(split.ordinal) {
                    out.start_split(split.ordinal)?;
                    last = Some(split.ordinal);
                }
            }
        }
        self.declared = true;
        Ok(())
    }

    /// Opens the next split; false if there is none.
    fn advance(&mut self, out: &mut SourceOutput<'_, T>) -> Result<bool> {
        let Some(split) = self.waiting.front() else {
            return Ok(false);
        };
        let mut file = split.open(&self.folder)?;
        file.seek(SeekFrom::Start(split.position))
            .map_err(|e| split.unreadable(e))?;
        if self.declares {
            out.select_split(split.ordinal)?;
        }
        self.current = self.waiting.pop_front().map(|split| OpenSplit {
            read_to: split.position,
            buffer: LineBuffer::new(self.options.longest),
            split,
            file,
        });
        Ok(true)
    }

    fn end_split(&mut self, out: &mut SourceOutput<'_, T>) -> Result<()> {
        let ended = self.current.take().map(|open| open.split.ordinal);
        let next = self.waiting.front().map(|split| split.ordinal);
        match ended {
            Some(ended) if self.declares && next != Some(ended) => out.finish_split(ended),
            _ => Ok(()),
        }
    }
}

impl OpenSplit {
    /// Reads the next bytes of the split; returns how many.
    fn fill(&mut self) -> Result<usize> {
        let left = self.split.end - self.read_to;
        let read = self
            .buffer
            .fill(&mut self.file, left)
            .map_err(|e| self.split.unreadable(e))?;
        if read == 0 {
            return Err(self.split.about(Error::incompatible(
                "the input file has shrunk while it was read",
            )));
        }
        self.read_to += read as u64;
        Ok(read)
    }

    /// Makes a record of the line at a place in the buffer.
    fn parse<T>(
        &self,
        place: std::ops::Range<usize>,
        parse: &Parse<T>,
        options: LineOptions,
    ) -> Result<Option<T>> {
        let mut line = self.buffer.line(place);
        if self.split.position == 0 {
            if options.skip_header {
                return Ok(None);
            }
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let parsed = match std::str::from_utf8(line) {
            Ok(text) => parse(text),
            Err(_) if options.lossy => parse(&String::from_utf8_lossy(line)),
            Err(e) => Err(Error::invalid("a line of the input is not UTF-8 text").caused_by(e)),
        };
        parsed.map_err(|e| self.split.about(e))
    }
}

impl<T: 'static> SourceReader for LineReader<T> {
    type Out = T;
    type Split = FileSplit;

    fn poll(&mut self, out: &mut SourceOutput<'_, T>) -> Result<SourceStatus> {
        self.declare(out)?;
        let mut bytes = 0;
        while !out.is_full() && bytes < POLL_BYTES {
            let Some(open) = &mut self.current else {
                if self.advance(out)? {
                    continue;
                }
                return Ok(SourceStatus::Finished);
            };
            let at_end = open.read_to >= open.split.end;
            match open.buffer.next_line(at_end) {
                Found::Line(place, taken) => {
                    let record = open.parse(place, &self.parse, self.options)?;
                    open.split.position += taken as u64;
                    bytes += taken;
                    if let Some(record) = record {
                        out.emit(record)?;
                    }
                }
                Found::Nothing if at_end => self.end_split(out)?,
                Found::Nothing => bytes += open.fill()?,
                Found::TooLong => {
                    let error = Error::limit(format!(
                        "a line is longer than {} bytes",
                        self.options.longest
                    ));
                    return Err(open.split.about(error));
                }
            }
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self) -> Result<Vec<FileSplit>> {
        let current = self.current.iter().map(|open| &open.split);
        let splits = current
            .chain(&self.waiting)
            .filter(|split| split.remaining() > 0);
        Ok(splits.cloned().collect())
    }
}

impl<T> std::fmt::Debug for LineReader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineReader")
            .field("current", &self.current.as_ref().map(|open| &open.split))
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
