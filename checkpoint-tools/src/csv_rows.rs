use std::io::Write;

use state_api::{Error, Result};

use crate::columns::{Column, columns_of};
use crate::entry::Entry;
use crate::find::FoundState;

/// Writes entries as a table with a head.
///
/// With one state, key, map key and value that are structs take a column for each of their fields, named `value.delay` and so on.
/// Strings and numbers are written as they are, everything else as JSON.
pub struct CsvRows<W: Write> {
    writer: csv::Writer<W>,
    columns: Vec<Column>,
}

fn failed(error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::retryable("a row can't be written").caused_by(error),
        other => Error::bug(format!("a row can't be written: {other:?}")),
    }
}

impl<W: Write> CsvRows<W> {
    /// Begins a table of the entries of one state, or of several, and writes the head.
    ///
    /// # Errors
    /// `Retryable`, caused by an [`std::io::Error`], when the writer fails.
    pub fn new(states: &[FoundState<'_>], writer: W) -> Result<Self> {
        let mut rows = Self {
            writer: csv::Writer::from_writer(writer),
            columns: columns_of(states),
        };
        let head = rows.columns.iter().map(Column::name);
        rows.writer.write_record(head).map_err(failed)?;
        Ok(rows)
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn entry(&mut self, entry: &Entry) -> Result<()> {
        let cells = self.columns.iter().map(|column| column.cell(entry));
        self.writer.write_record(cells).map_err(failed)
    }

    /// Writes what is gathered.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn finish(mut self) -> Result<()> {
        let flushed = self.writer.flush();
        flushed.map_err(|e| Error::retryable("a row can't be written").caused_by(e))
    }
}

impl<W: Write> std::fmt::Debug for CsvRows<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsvRows")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
