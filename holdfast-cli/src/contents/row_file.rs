//! Files of rows.
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use checkpoint_tools::Row;
use state_api::{Error, Result};

/// The longest line of a file of rows in bytes.
const LONGEST_LINE: u64 = 64 << 20;

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

/// Hands over rows out of JSON objects, one a line; empty lines are skipped.
pub(super) fn json_rows(path: &Path, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let mut input = BufReader::new(open(path)?);
    let mut line = String::new();
    for number in 1u64.. {
        line.clear();
        let mut limited = Read::by_ref(&mut input).take(LONGEST_LINE);
        let read = limited.read_line(&mut line).map_err(|e| unread(path, e))?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == LONGEST_LINE && !line.ends_with('\n') {
            return Err(Error::invalid("a line is too long")
                .with("path", path.display())
                .with("line", number));
        }
        if line.trim().is_empty() {
            continue;
        }
        Row::from_json(&line)
            .and_then(&mut *take)
            .map_err(|e| e.with("path", path.display()).with("line", number))?;
    }
    Ok(())
}

/// Hands over rows out of a table with a head.
pub(super) fn csv_rows(path: &Path, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let mut input = csv::Reader::from_reader(BufReader::new(open(path)?));
    let wrong = |e: csv::Error| {
        Error::invalid(format!("the table can't be read: {e}")).with("path", path.display())
    };
    let head = input.headers().map_err(wrong)?.clone();
    for record in input.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(0, csv::Position::line);
        Row::from_record(head.iter(), record.iter())
            .and_then(&mut *take)
            .map_err(|e| e.with("path", path.display()).with("line", line))?;
    }
    Ok(())
}
