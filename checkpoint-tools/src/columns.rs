//! The columns of a table of entries, whatever the table is written as.
use state_api::{Fields, Schema, StateKind, Value};

use crate::cell::cell_text;
use crate::entry::Entry;
use crate::find::FoundState;
use crate::json::kind_word;

/// One column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
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
pub(crate) enum Part {
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

    /// Finds it in an entry, or the field of it that a column is for.
    pub(crate) fn of<'e>(self, entry: &'e Entry, field: Option<&str>) -> Option<&'e Value> {
        let value = match self {
            Self::Key => &entry.key,
            Self::Namespace => &entry.namespace,
            Self::MapKey => &entry.map_key,
            Self::Value => &entry.value,
        };
        match (value.as_ref()?, field) {
            (value, None) => Some(value),
            (Value::Record { fields, .. }, Some(field)) => {
                let found = fields.iter().find(|(name, _)| name == field);
                found.map(|(_, value)| value)
            }
            (_, Some(_)) => None,
        }
    }
}

impl Column {
    pub(crate) fn name(&self) -> String {
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

    pub(crate) fn cell(&self, entry: &Entry) -> String {
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
                let value = part.of(entry, field.as_deref());
                value.map(cell_text).unwrap_or_default()
            }
        }
    }
}

/// Returns the columns of a table of one state, or of several: with one, key, map key and value that are structs take a column for
/// each of their fields.
pub(crate) fn columns_of(states: &[FoundState<'_>]) -> Vec<Column> {
    match states {
        [one] => {
            let mut columns = columns_of_one(one);
            if columns.is_empty() {
                // A record has at least one cell.
                columns.push(Column::Part(Part::Value, None));
            }
            columns
        }
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
    }
}

fn columns_of_one(state: &FoundState<'_>) -> Vec<Column> {
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
