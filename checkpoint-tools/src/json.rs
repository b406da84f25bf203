use std::fmt::Write;

use state_api::{OperatorStateMode, Value};

use crate::entry::{Entry, Item, RawPart};

/// Writes an item as one JSON object, without a line end.
#[must_use]
pub fn item_json(item: &Item) -> String {
    match item {
        Item::Entry(entry) => entry_json(entry),
        Item::Raw(raw) => raw_json(raw),
    }
}

/// Writes an entry as one JSON object, without a line end; what the entry does not have is left out.
///
/// Values are as [`Value::to_json_string`] writes them.
#[must_use]
pub fn entry_json(entry: &Entry) -> String {
    let mut out = Object::new();
    out.text("operator", entry.operator.as_str());
    out.text("state", &entry.state);
    out.text("kind", kind_word(entry));
    if let Some(group) = entry.key_group {
        out.raw("key_group", &group.0.to_string());
    } else {
        out.raw("subtask", &entry.subtask.to_string());
    }
    out.value("key", entry.key.as_ref());
    out.value("namespace", entry.namespace.as_ref());
    out.value("map_key", entry.map_key.as_ref());
    out.number("index", entry.index);
    out.number("time_ms", entry.time_ms);
    out.value("value", entry.value.as_ref());
    out.number("renewed_ms", entry.renewed_ms);
    out.number("expires_ms", entry.expires_ms);
    out.finish()
}

/// Names the kind of an entry's state, and how it is dealt out if it is not the usual way.
pub(crate) fn kind_word(entry: &Entry) -> &'static str {
    match entry.mode {
        Some(OperatorStateMode::Union) => "union-list",
        _ => entry.kind.as_str(),
    }
}

fn raw_json(raw: &RawPart) -> String {
    let mut out = Object::new();
    out.text("operator", raw.operator.as_str());
    out.text("raw", raw.kind.as_str());
    out.number("subtask", raw.subtask);
    out.number("key_group", raw.key_group.map(|group| group.0));
    out.number("partition", raw.partition);
    out.raw("bytes", &raw.bytes.to_string());
    out.finish()
}

/// A JSON object that is being written.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".into())
    }

    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // Writing to a string can't fail.
        let _ = write!(self.0, "\"{name}\":{json}");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &serde_json::Value::from(text).to_string());
    }

    fn value(&mut self, name: &str, value: Option<&Value>) {
        if let Some(value) = value {
            self.raw(name, &value.to_json_string());
        }
    }

    fn number(&mut self, name: &str, number: Option<impl std::fmt::Display>) {
        if let Some(number) = number {
            self.raw(name, &number.to_string());
        }
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
