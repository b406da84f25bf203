//! Rows that become entries of states: lines of JSON as `dump` writes them, or records of a table.
use managed_state::format::put_encoded_element;
use serde_json::{Map, Value as Json};
use state_api::option_text::nearest;
use state_api::{Error, Result, Schema, StateKind, StateMeta, TypeMeta, Value};

use crate::decode::{layout, map_key_type, put_time};
use crate::json_value::{value_from_json, value_from_text};

/// The names that a row may have.
const NAMES: [&str; 14] = [
    "operator",
    "state",
    "kind",
    "key_group",
    "subtask",
    "key",
    "namespace",
    "map_key",
    "index",
    "time_ms",
    "value",
    "renewed_ms",
    "expires_ms",
    "delete",
];

/// A row: what becomes of one entry of a state.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    fields: Map<String, Json>,
    origin: Origin,
}

/// Where a row comes from, and so how its parts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A JSON object.
    Json,
    /// A record of a table: cells are text as it stands, and of a list one element each.
    Table,
    /// Arguments: JSON text, or a string without quotes.
    Texts,
}

/// An entry in the form in which it is stored, its key without the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedRow {
    /// The key by itself, without namespace and map key.
    pub(crate) key: Vec<u8>,
    pub(crate) namespace: Vec<u8>,
    pub(crate) map_key: Vec<u8>,
    /// The whole stored key.
    pub(crate) stored: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Row {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// `InvalidArgument` when it is none, or has a name that a row does not have, with the nearest one.
    pub fn from_json(line: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(line)
            .map_err(|e| Error::invalid(format!("a row is no JSON: {e}")))?;
        let Json::Object(fields) = json else {
            return Err(Error::invalid("a row is a JSON object"));
        };
        let row = Self {
            fields,
            origin: Origin::Json,
        };
        row.check()
    }

    /// Reads a record of a table whose columns have these names; `value.delay` is the field `delay` of a struct. An empty cell is
    /// nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that a row does not have, with the nearest one.
    pub fn from_record<'a>(
        head: impl IntoIterator<Item = &'a str>,
        record: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut fields = Map::new();
        for (name, cell) in head.into_iter().zip(record) {
            match name.split_once('.') {
                None => {
                    if !(cell.is_empty() && name != "key" && name != "value" && name != "map_key") {
                        fields.insert(name.to_owned(), cell.into());
                    }
                }
                Some((part, field)) => {
                    let of = fields
                        .entry(part.to_owned())
                        .or_insert_with(|| Json::Object(Map::new()));
                    if let Json::Object(of) = of {
                        of.insert(field.to_owned(), cell.into());
                    }
                }
            }
        }
        let row = Self {
            fields,
            origin: Origin::Table,
        };
        row.check()
    }

    /// Makes a row out of texts, each JSON or a string without quotes; of a list the value is the whole of it.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that a row does not have, with the nearest one.
    pub fn from_texts(texts: &[(&str, Option<&str>)]) -> Result<Self> {
        let given = texts
            .iter()
            .filter_map(|(name, text)| Some((*name, (*text)?)));
        let row = Self {
            fields: given
                .map(|(name, text)| (name.to_owned(), text.into()))
                .collect(),
            origin: Origin::Texts,
        };
        row.check()
    }

    fn check(self) -> Result<Self> {
        for name in self.fields.keys() {
            if !NAMES.contains(&name.as_str()) {
                let hint = nearest(name, NAMES.into_iter())
                    .map(|near| format!("; did you mean {near:?}?"))
                    .unwrap_or_default();
                return Err(Error::invalid(format!("a row has no {name:?}{hint}")));
            }
        }
        Ok(self)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Json::as_str)
    }

    /// Returns the uid of the operator, if it is there.
    #[must_use]
    pub fn operator(&self) -> Option<&str> {
        self.text("operator")
    }

    /// Returns the name of the state, if it is there.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.text("state")
    }

    /// Says whether the entry is to be removed.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        match self.fields.get("delete") {
            Some(Json::Bool(delete)) => *delete,
            Some(Json::String(delete)) => delete == "true",
            _ => false,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Says whether the row is one element of a list, not the whole of it.
    fn is_element(&self) -> bool {
        match self.origin {
            Origin::Json => self.has("index"),
            Origin::Table => true,
            Origin::Texts => false,
        }
    }

    fn value_of(&self, name: &'static str, schema: &Schema) -> Result<Value> {
        let Some(json) = self.fields.get(name) else {
            if *schema == Schema::Unit {
                return Ok(Value::Unit);
            }
            if self.origin == Origin::Table && matches!(schema, Schema::Option(_)) {
                return Ok(Value::Option(None));
            }
            return Err(Error::invalid(format!(
                "a row lacks its {name}, a {schema}"
            )));
        };
        let read = match (self.origin, json) {
            (Origin::Table, json) => from_cell(schema, json),
            (Origin::Texts, Json::String(text)) => value_from_text(schema, text),
            (_, json) => value_from_json(schema, json),
        };
        read.map_err(|e| e.with("part", name))
    }

    fn number(&self, name: &'static str) -> Result<Option<i64>> {
        let number = match self.fields.get(name) {
            None | Some(Json::Null) => return Ok(None),
            Some(Json::Number(number)) => number.as_i64(),
            Some(Json::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(Error::invalid(format!(
                "{name} is a number of milliseconds"
            ))),
        }
    }

    /// Encodes the row as an entry of a keyed state; of a deletion the key alone.
    ///
    /// What has a time-to-live and does not say when it was renewed was renewed at `now_ms`.
    pub(crate) fn encode(&self, meta: &StateMeta, now_ms: i64) -> Result<EncodedRow> {
        self.encode_parts(meta, now_ms)
            .map_err(|e| e.with("state", &meta.name))
    }

    fn encode_parts(&self, meta: &StateMeta, now_ms: i64) -> Result<EncodedRow> {
        let compact = |name, schema: &Schema| {
            let mut out = Vec::new();
            schema.encode_compact(&self.value_of(name, schema)?, &mut out)?;
            Ok::<_, Error>(out)
        };
        let mut row = EncodedRow {
            key: compact("key", &meta.key.schema)?,
            namespace: Vec::new(),
            map_key: Vec::new(),
            stored: Vec::new(),
            value: Vec::new(),
        };
        if !self.is_deletion() || self.has("namespace") {
            row.namespace = compact("namespace", &meta.namespace.schema)?;
        }
        if matches!(meta.kind, StateKind::Map | StateKind::SortedMap)
            && (!self.is_deletion() || self.has("map_key"))
        {
            let schema = &map_key_type(meta)?.schema;
            let value = self.value_of("map_key", schema)?;
            match meta.kind {
                StateKind::SortedMap => schema.encode_ordered(&value, &mut row.map_key)?,
                _ => schema.encode_compact(&value, &mut row.map_key)?,
            }
        }
        if meta.kind == StateKind::Timer {
            let time = self.number("time_ms")?;
            match time {
                Some(time_ms) => put_time(time_ms, &mut row.stored),
                None if self.is_deletion() => {}
                None => return Err(Error::invalid("a row lacks the time of its timer, time_ms")),
            }
        }
        layout(meta).put_encoded(&row.key, &row.namespace, &mut row.stored);
        row.stored.extend_from_slice(&row.map_key);
        if self.is_deletion() || meta.kind == StateKind::Timer {
            return Ok(row);
        }
        let renewed_ms = match meta.ttl_ms {
            None => None,
            Some(_) => Some(self.number("renewed_ms")?.unwrap_or(now_ms)),
        };
        if meta.kind == StateKind::List {
            let elements = if self.is_element() {
                vec![self.value_of("value", &meta.value.schema)?]
            } else {
                let list = Schema::List(Box::new(meta.value.schema.clone()));
                match self.value_of("value", &list)? {
                    Value::List(elements) => elements,
                    _ => Vec::new(),
                }
            };
            let mut encoded = Vec::new();
            for element in elements {
                encoded.clear();
                encode(&meta.value, &element, &mut encoded)?;
                put_encoded_element(renewed_ms, &encoded, &mut row.value);
            }
            return Ok(row);
        }
        if let Some(ms) = renewed_ms {
            row.value.extend_from_slice(&ms.to_le_bytes());
        }
        let value = self.value_of("value", &meta.value.schema)?;
        encode(&meta.value, &value, &mut row.value)?;
        Ok(row)
    }

    /// Encodes the row as key and value of a broadcast state; of a deletion the key alone.
    pub(crate) fn encode_broadcast(&self, meta: &StateMeta) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let of = map_key_type(meta)?;
        encode(of, &self.value_of("map_key", &of.schema)?, &mut key)?;
        if !self.is_deletion() {
            let it = self.value_of("value", &meta.value.schema)?;
            encode(&meta.value, &it, &mut value)?;
        }
        Ok((key, value))
    }

    /// Encodes the value of the row as an element of an operator list.
    pub(crate) fn encode_element(&self, meta: &StateMeta) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let value = self.value_of("value", &meta.value.schema)?;
        encode(&meta.value, &value, &mut out)?;
        Ok(out)
    }
}

fn encode(of: &TypeMeta, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    of.codec.encode_value(&of.schema, value, out)
}

/// Reads a cell, or the cells of a struct by the names of its fields.
fn from_cell(schema: &Schema, json: &Json) -> Result<Value> {
    match (schema, json) {
        (Schema::Struct(it), Json::Object(cells)) => {
            let known = it.fields.as_slice();
            if let Some(unknown) = cells
                .keys()
                .find(|name| !known.iter().any(|field| field.name == **name))
            {
                return Err(Error::invalid(format!("{schema} has no field {unknown:?}")));
            }
            let fields = known.iter().map(|field| {
                let cell = cells.get(&field.name).unwrap_or(&Json::Null);
                let value = match cell {
                    Json::Null if !matches!(field.schema, Schema::Option(_)) => Err(
                        Error::invalid(format!("field {:?} of {schema} is missing", field.name)),
                    ),
                    Json::Null => Ok(Value::Option(None)),
                    cell => from_cell(&field.schema, cell),
                };
                Ok((field.name.clone().into(), value?))
            });
            Ok(Value::Record {
                name: it.name.clone().into(),
                fields: fields.collect::<Result<_>>()?,
            })
        }
        (Schema::Option(_), Json::String(cell)) if cell.is_empty() => Ok(Value::Option(None)),
        (Schema::Option(inner), cell) => Ok(Value::Option(Some(Box::new(from_cell(inner, cell)?)))),
        // A cell is a string as it stands, whatever it looks like.
        (Schema::String, Json::String(cell)) => Ok(Value::Str(cell.clone())),
        (schema, Json::String(cell)) => value_from_text(schema, cell),
        (schema, json) => value_from_json(schema, json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_become_structs_by_the_names_of_their_columns() {
        let schema = Schema::parse("struct T{n:u32,name:string,o:option<f64>}").unwrap();
        let head = ["key", "value.n", "value.name", "value.o"];
        let read = |cells: [&str; 4]| {
            let row = Row::from_record(head, cells).unwrap();
            row.value_of("value", &schema).map(|v| v.to_json_string())
        };
        assert_eq!(
            read(["k", "7", "12", ""]).unwrap(),
            r#"{"n":7,"name":"12","o":null}"#
        );
        assert_eq!(
            read(["k", "7", "", "1.5"]).unwrap(),
            r#"{"n":7,"name":"","o":1.5}"#
        );
        assert!(read(["k", "x", "", ""]).is_err());
        let error = Row::from_record(["key", "valeu"], ["1", "2"]).unwrap_err();
        assert!(
            error.message().contains("did you mean \"value\""),
            "{error}"
        );
    }
}
