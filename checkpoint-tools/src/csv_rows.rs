use std::io::Write;

use state_api::{Error, Fields, Result, Schema, StateKind, Value};

use crate::cell::cell_text;
use crate::entry::Entry;
use crate::find::FoundState;
use crate::json::kind_word;

/// Writes entries as a table with a head.
///
/// With one state, key, map key and value that are structs take a column for each of their fields, named `value.delay` and so on.
/// Strings and numbers are written as they are, everything else as JSON.
pub struct CsvRows<W: Write> {
    writer: csv::Writer<W>,
    columns: Vec<Column>,
}

/// One column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Operator,
    State,
    Kind,
    Subtask,
    KeyGroup,
    Part(Part, Option<String>),
    Index,
    Time,
    Renewed,
    Expires,
}

/// A part of an entry that is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Key,
    Namespace,
    MapKey,
    Value,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Namespace => "namespace",
            Self::MapKey => "map_key",
            Self::Value => "value",
        }
    }
}

impl Column {
    fn name(&self) -> String {
        match self {
            Self::Operator => "operator".into(),
            Self::State => "state".into(),
            Self::Kind => "kind".into(),
            Self::Subtask => "subtask".into(),
            Self::KeyGroup => "key_group".into(),
            Self::Part(part, None) => part.name().into(),
            Self::Part(part, Some(field)) => format!("{}.{field}", part.name()),
            Self::Index => "index".into(),
            Self::Time => "time_ms".into(),
            Self::Renewed => "renewed_ms".into(),
            Self::Expires => "expires_ms".into(),
        }
    }

    fn cell(&self, entry: &Entry) -> String {
        let number = |number: Option<i64>| number.map(|n| n.to_string()).unwrap_or_default();
        match self {
            Self::Operator => entry.operator.to_string(),
            Self::State => entry.state.to_string(),
            Self::Kind => kind_word(entry).into(),
            Self::Subtask => entry.subtask.to_string(),
            Self::KeyGroup => entry.key_group.map(|g| g.0.to_string()).unwrap_or_default(),
            Self::Index => entry.index.map(|i| i.to_string()).unwrap_or_default(),
            Self::Time => number(entry.time_ms),
            Self::Renewed => number(entry.renewed_ms),
            Self::Expires => number(entry.expires_ms),
            Self::Part(part, field) => {
                let value = match part {
                    Part::Key => &entry.key,
                    Part::Namespace => &entry.namespace,
                    Part::MapKey => &entry.map_key,
                    Part::Value => &entry.value,
                };
                match (value, field) {
                    (None, _) => String::new(),
                    (Some(value), None) => cell_text(value),
                    (Some(Value::Record { fields, .. }), Some(field)) => fields
                        .iter()
                        .find(|(name, _)| name == field)
                        .map(|(_, value)| cell_text(value))
                        .unwrap_or_default(),
                    (Some(_), Some(_)) => String::new(),
                }
            }
        }
    }
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
        let columns = match states {
            [one] => columns_of(one),
            _ => vec![
                Column::Operator,
                Column::State,
                Column::Kind,
                Column::Subtask,
                Column::KeyGroup,
                Column::Part(Part::Key, None),
                Column::Part(Part::Namespace, None),
                Column::Part(Part::MapKey, None),
                Column::Index,
                Column::Time,
                Column::Part(Part::Value, None),
                Column::Renewed,
                Column::Expires,
            ],
        };
        let mut columns = columns;
        if columns.is_empty() {
            // A record has at least one cell.
            columns.push(Column::Part(Part::Value, None));
        }
        let mut rows = Self {
            writer: csv::Writer::from_writer(writer),
            columns,
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

fn columns_of(state: &FoundState<'_>) -> Vec<Column> {
    let meta = state.meta;
    let mut columns = Vec::new();
    let mut part = |part, schema: &Schema| match schema {
        Schema::Struct(it) if matches!(&it.fields, Fields::Named(_)) => {
            let fields = it.fields.as_slice().iter();
            columns.extend(fields.map(|field| Column::Part(part, Some(field.name.clone()))));
        }
        Schema::Unit => {}
        _ => columns.push(Column::Part(part, None)),
    };
    part(Part::Key, &meta.key.schema);
    part(Part::Namespace, &meta.namespace.schema);
    if let Some(map_key) = &meta.map_key {
        part(Part::MapKey, &map_key.schema);
    }
    let mut values = Vec::new();
    std::mem::swap(&mut columns, &mut values);
    match meta.kind {
        StateKind::Timer => values.push(Column::Time),
        StateKind::List => values.push(Column::Index),
        StateKind::OperatorList => values.extend([Column::Subtask, Column::Index]),
        _ => {}
    }
    let value = &meta.value.schema;
    match value {
        Schema::Struct(it) if matches!(&it.fields, Fields::Named(_)) => {
            let fields = it.fields.as_slice().iter();
            values.extend(fields.map(|field| Column::Part(Part::Value, Some(field.name.clone()))));
        }
        // A set of keys has no values.
        Schema::Unit => {}
        _ => values.push(Column::Part(Part::Value, None)),
    }
    if meta.ttl_ms.is_some() {
        values.extend([Column::Renewed, Column::Expires]);
    }
    values
}
