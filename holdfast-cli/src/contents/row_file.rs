//! Files of rows.
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use checkpoint_tools::{Row, TableHead};
use state_api::{Error, Result};

use super::steps::Steps;

/// The longest line of a file of rows in bytes: a dump writes a value into one, however large it is.
const LONGEST_LINE: u64 = 4 << 30;

/// What becomes of lines of a dump that stand for raw bytes, of which it has the length alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawRows {
    Refused,
    Skipped,
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path).map_err(|e| {
        Error::config("the file of rows can't be read")
            .with("path", path.display())
            .caused_by(e)
    })?;
    Ok(Box::new(file))
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    Error::config("the file of rows can't be read")
        .with("path", path.display())
        .caused_by(error)
}

/// Returns the length of a file of rows in bytes, if it has one.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Hands over rows out of JSON objects, one a line; empty lines are skipped. Returns how many lines of raw bytes were too.
pub(super) fn json_rows(
    path: &Path,
    raw: RawRows,
    progress: &Steps,
    take: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<u64> {
    let mut input = BufReader::new(open(path)?);
    let mut line = String::new();
    let mut skipped = 0;
    for number in 1u64.. {
        line.clear();
        let mut limited = Read::by_ref(&mut input).take(LONGEST_LINE);
        let read = limited.read_line(&mut line).map_err(|e| unread(path, e))?;
        if read == 0 {
            return Ok(skipped);
        }
        progress.advance(read as u64);
        if read as u64 == LONGEST_LINE && !line.ends_with('\n') {
            return Err(Error::invalid("a line is too long")
                .with("path", path.display())
                .with("line", number));
        }
        if line.trim().is_empty() {
            continue;
        }
        if raw == RawRows::Skipped && Row::is_raw(&line) {
            skipped += 1;
            continue;
        }
        Row::from_json(&line)
            .and_then(&mut *take)
            .map_err(|e| e.with("path", path.display()).with("line", number))?;
    }
    Ok(skipped)
}

/// Hands over rows out of a table with a head.
pub(super) fn csv_rows(
    path: &Path,
    progress: &Steps,
    take: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    let mut input = csv::Reader::from_reader(BufReader::new(open(path)?));
    let wrong = |e: csv::Error| {
        Error::invalid(format!("the table can't be read: {e}")).with("path", path.display())
    };
    let head = TableHead::new(input.headers().map_err(wrong)?)
        .map_err(|e| e.with("path", path.display()))?;
    let (mut record, mut done) = (csv::StringRecord::new(), 0);
    while input.read_record(&mut record).map_err(wrong)? {
        let position = input.position().byte();
        progress.advance(position - done);
        done = position;
        let line = record.position().map_or(0, csv::Position::line);
        head.row(record.iter())
            .and_then(&mut *take)
            .map_err(|e| e.with("path", path.display()).with("line", line))?;
    }
    Ok(())
}
