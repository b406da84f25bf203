//! Values as cells of a table, and back.
use state_api::{Error, Fields, Result, Schema, Value};

use crate::json_text::{Json, field};
use crate::json_value::{value_from_json, value_from_text};

/// Writes a value as a cell: strings as they stand, numbers, names of variants, everything else as JSON.
///
/// Of an option nothing is an empty cell; what is there stands in quotes, as JSON, where it would be taken for nothing or for
/// something in quotes.
pub(crate) fn cell_text(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        Value::Char(c) => c.to_string(),
        Value::Option(None) => String::new(),
        Value::Option(Some(inner)) => {
            let json = value.to_json_string();
            if json.starts_with("{\"Some\":") {
                return json;
            }
            let text = cell_text(inner);
            let needs_quotes = text.is_empty() || text.starts_with(['"', '{']);
            if needs_quotes { json } else { text }
        }
        Value::Record { fields, .. } => match fields.as_slice() {
            [(name, one)] if name == "0" => cell_text(one),
            _ => value.to_json_string(),
        },
        Value::Variant {
            variant, fields, ..
        } if fields.is_empty() => variant.to_string(),
        other => {
            let json = other.to_json_string();
            // Hexadecimal text, numbers past 64 bits, what is no number.
            match json
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
            {
                Some(plain) => plain.to_owned(),
                None => json,
            }
        }
    }
}

/// Reads a cell, or the cells of a struct by the names of its fields.
///
/// # Errors
/// `InvalidArgument` when it is no such value, saying what is wrong.
pub(crate) fn value_from_cell(schema: &Schema, json: &Json) -> Result<Value> {
    match (schema, json) {
        (Schema::Struct(it), Json::Object(cells)) => {
            let known = it.fields.as_slice();
            if let Some((unknown, _)) = cells
                .iter()
                .find(|(name, _)| !known.iter().any(|field| field.name == *name))
            {
                return Err(Error::invalid(format!("{schema} has no field {unknown:?}")));
            }
            let fields = known.iter().map(|of| {
                let value = match field(cells, &of.name) {
                    Some(cell) => value_from_cell(&of.schema, cell),
                    None if matches!(of.schema, Schema::Option(_)) => Ok(Value::Option(None)),
                    None => Err(Error::invalid(format!(
                        "field {:?} of {schema} is missing",
                        of.name
                    ))),
                };
                Ok((of.name.clone().into(), value?))
            });
            Ok(Value::Record {
                name: it.name.clone().into(),
                fields: fields.collect::<Result<_>>()?,
            })
        }
        (schema, Json::Str(cell)) => from_text(schema, cell),
        (schema, json) => value_from_json(schema, json),
    }
}

fn from_text(schema: &Schema, cell: &str) -> Result<Value> {
    match schema {
        Schema::Unit if cell.is_empty() => Ok(Value::Unit),
        // A cell is a string as it stands, whatever it looks like.
        Schema::String => Ok(Value::Str(cell.to_owned())),
        Schema::Char => value_from_json(schema, &Json::from(cell)),
        Schema::Struct(it) => match &it.fields {
            Fields::Positional(fields) if fields.len() == 1 => Ok(Value::Record {
                name: it.name.clone().into(),
                fields: vec![(
                    fields[0].name.clone().into(),
                    from_text(&fields[0].schema, cell)?,
                )],
            }),
            _ => value_from_text(schema, cell),
        },
        Schema::Option(_) if cell.is_empty() => Ok(Value::Option(None)),
        Schema::Option(inner) => {
            // In quotes is what would else be taken for something that it is not; what is no JSON has just the first of them.
            let may_be_json = cell.starts_with(['"', '{']);
            let json = may_be_json.then(|| Json::parse(cell).ok()).flatten();
            let quoted = json.and_then(|json| value_from_json(schema, &json).ok());
            match quoted {
                Some(value) => Ok(value),
                None => Ok(Value::Option(Some(Box::new(from_text(inner, cell)?)))),
            }
        }
        _ => value_from_text(schema, cell),
    }
}
