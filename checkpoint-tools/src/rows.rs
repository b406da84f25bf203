//! Rows that become entries of states: lines of JSON as `dump` writes them, or records of a table.
use managed_state::format::put_encoded_element;
use state_api::option_text::nearest;
use state_api::{Error, Fields, Result, Schema, StateKind, StateMeta, TypeMeta, Value};

use crate::cell::value_from_cell;
use crate::decode::{layout, map_key_type, put_time};
use crate::json_text::{Json, field};
use crate::json_value::{value_from_json, value_from_text};

/// The names that a row may have.
pub(crate) const NAMES: [&str; 14] = [
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
    fields: Vec<(String, Json)>,
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
    /// `InvalidArgument` when it is none, or has a name that a row does not have, with the nearest one, or when it stands for raw
    /// bytes ([`is_raw`](Self::is_raw)).
    pub fn from_json(line: &str) -> Result<Self> {
        let json =
            Json::parse(line).map_err(|e| Error::invalid(format!("a row is no JSON: {e}")))?;
        let Json::Object(fields) = json else {
            return Err(Error::invalid("a row is a JSON object"));
        };
        if field(&fields, "raw").is_some() {
            return Err(Error::invalid(
                "the row stands for bytes that only the job can read, of which a dump has the length alone",
            ));
        }
        let row = Self {
            fields,
            origin: Origin::Json,
        };
        row.check()
    }

    /// Says whether a line stands for raw bytes, of which a dump has the length alone: no row comes of it.
    #[must_use]
    pub fn is_raw(line: &str) -> bool {
        line.contains("\"raw\"") && Json::parse(line).is_ok_and(|json| json.get("raw").is_some())
    }

    /// A record of a table, its cells by the names of their columns.
    pub(crate) fn of_cells(fields: Vec<(String, Json)>) -> Result<Self> {
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
        for (name, json) in &self.fields {
            if !NAMES.contains(&name.as_str()) {
                return Err(unknown_name("a row has no", name));
            }
            if matches!(name.as_str(), "operator" | "state") && json.as_str().is_none() {
                return Err(Error::invalid(format!("{name} is a name, not {json}")));
            }
        }
        match self.get("delete") {
            None | Some(Json::Bool(_)) => Ok(self),
            Some(Json::Str(text)) if text == "true" || text == "false" => Ok(self),
            Some(other) => Err(Error::invalid(format!(
                "delete is true or false, not {other}"
            ))),
        }
    }

    fn get(&self, name: &str) -> Option<&Json> {
        field(&self.fields, name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Json::as_str)
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
        match self.get("delete") {
            Some(Json::Bool(delete)) => *delete,
            Some(Json::Str(delete)) => delete == "true",
            _ => false,
        }
    }

    /// Says whether the row names a part; an empty cell of a table names none.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_empty = |json: &Json| self.origin == Origin::Table && json.as_str() == Some("");
        self.get(name).is_some_and(|json| !is_empty(json))
    }

    /// Returns the position of an element in its list, if it is there.
    pub(crate) fn index(&self) -> Result<Option<u64>> {
        self.position("index", "the position of an element in its list, from 0")
    }

    /// Returns the subtask that wrote an element of an operator's list, if it is there.
    pub(crate) fn subtask(&self) -> Result<Option<u64>> {
        self.position("subtask", "the number of a subtask, from 0")
    }

    fn position(&self, name: &str, what: &str) -> Result<Option<u64>> {
        if !self.has(name) {
            return Ok(None);
        }
        let number = match self.get(name) {
            Some(Json::Number(text) | Json::Str(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| Error::invalid(format!("{name} is {what}")))?;
        Ok(Some(number))
    }

    /// Returns the time of a timer in milliseconds, if it is there.
    pub(crate) fn time_ms(&self) -> Result<Option<i64>> {
        self.number("time_ms")
    }

    /// Refuses a row that leaves out the namespace of a state that has one.
    pub(crate) fn needs_namespace(&self, meta: &StateMeta) -> Result<()> {
        if self.has("namespace") || meta.namespace.schema == Schema::Unit {
            return Ok(());
        }
        Err(Error::invalid("a row lacks its namespace").with("state", &meta.name))
    }

    /// Says whether the row is one element of a list, not the whole of it.
    pub(crate) fn is_element(&self) -> bool {
        match self.origin {
            Origin::Json => self.has("index"),
            Origin::Table => true,
            Origin::Texts => false,
        }
    }

    fn value_of(&self, name: &'static str, schema: &Schema) -> Result<Value> {
        let Some(json) = self.get(name) else {
            if *schema == Schema::Unit {
                return Ok(Value::Unit);
            }
            match schema {
                Schema::Option(_) if self.origin == Origin::Table => {
                    return Ok(Value::Option(None));
                }
                // A struct without fields has no columns.
                Schema::Struct(it) if it.fields == Fields::Named(Vec::new()) => {
                    return value_from_json(schema, &Json::Object(Vec::new()));
                }
                _ => {}
            }
            return Err(Error::invalid(format!(
                "a row lacks its {name}, a {schema}"
            )));
        };
        let read = match (self.origin, json) {
            (Origin::Table, json) => value_from_cell(schema, json),
            (Origin::Texts, Json::Str(text)) => value_from_text(schema, text),
            (_, json) => value_from_json(schema, json),
        };
        read.map_err(|e| e.with("part", name))
    }

    fn number(&self, name: &'static str) -> Result<Option<i64>> {
        if !self.has(name) {
            return Ok(None);
        }
        let number = match self.get(name) {
            None | Some(Json::Null) => return Ok(None),
            Some(Json::Number(text) | Json::Str(text)) => text.trim().parse().ok(),
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
        self.check_parts(meta)?;
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

    /// Refuses parts that an entry of the state does not have: what they were meant for would be lost.
    fn check_parts(&self, meta: &StateMeta) -> Result<()> {
        let has_map_key = matches!(meta.kind, StateKind::Map | StateKind::SortedMap);
        for (name, may_be) in [
            ("map_key", has_map_key),
            ("time_ms", meta.kind == StateKind::Timer),
            ("index", meta.kind == StateKind::List),
        ] {
            if self.has(name) && !may_be {
                return Err(Error::invalid(format!(
                    "an entry of kind {} has no {name}",
                    meta.kind
                )));
            }
        }
        Ok(())
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

/// Creates the error for a name that no row has, with the nearest one that it may have.
pub(crate) fn unknown_name(what: &str, name: &str) -> Error {
    let hint = nearest(name, NAMES.into_iter())
        .map(|near| format!("; did you mean {near:?}?"))
        .unwrap_or_default();
    Error::invalid(format!("{what} {name:?}{hint}"))
}
