//! From JSON, or from a cell of a table, to a value of a schema: the way back of [`state_api::Value::to_json_string`].
use std::time::Duration;

use state_api::{EnumSchema, Error, Fields, IntType, Name, Result, Schema, Value};

use crate::canonical::{sort_map, sort_set};
use crate::json_text::{Json, field};

/// Reads a value of a schema out of JSON text; text that is no JSON stands for itself where a string, a character or a name is
/// wanted: `AA` is `"AA"`.
///
/// # Errors
/// `InvalidArgument` when the text is no such value, saying what is wrong where.
pub fn value_from_text(schema: &Schema, text: &str) -> Result<Value> {
    let parsed = Json::parse(text).map_err(|e| {
        Error::invalid(format!("{text:?} is no JSON text of a {schema}")).caused_by(e)
    });
    let quoted = || value_from_json(schema, &Json::from(text));
    match parsed {
        // `12` is the key "12" of a state whose keys are strings.
        Ok(json) => match value_from_json(schema, &json) {
            Err(error) if json.as_str().is_none() => quoted().map_err(|_| error),
            read => read,
        },
        Err(error) => quoted().map_err(|_| error),
    }
}

/// Reads a value of a schema out of JSON, as [`Value::to_json_string`] writes it; sets and maps may stand in any order.
///
/// # Errors
/// `InvalidArgument` when it is no such value, or a set or map has something twice, saying what is wrong where.
pub(crate) fn value_from_json(schema: &Schema, json: &Json) -> Result<Value> {
    read(schema, json).map_err(|error| {
        let place = match error.path.is_empty() {
            true => String::new(),
            false => {
                let path: Vec<&str> = error.path.iter().rev().map(String::as_str).collect();
                format!(" at {}", path.join("."))
            }
        };
        Error::invalid(format!("{}{place}", error.what))
    })
}

/// What is wrong, and where: names from the inside to the outside.
struct Wrong {
    what: String,
    path: Vec<String>,
}

type Read<T> = std::result::Result<T, Wrong>;

fn wrong<T>(schema: &Schema, json: &Json) -> Read<T> {
    let mut shown = json.to_string();
    if shown.len() > 60 {
        let end = (0..=57).rev().find(|end| shown.is_char_boundary(*end));
        shown.truncate(end.unwrap_or(0));
        shown.push('…');
    }
    Err(Wrong {
        what: format!("{shown} is no {schema}"),
        path: Vec::new(),
    })
}

fn at<T>(name: impl ToString, read: Read<T>) -> Read<T> {
    read.map_err(|mut error| {
        error.path.push(name.to_string());
        error
    })
}

fn read(schema: &Schema, json: &Json) -> Read<Value> {
    Ok(match (schema, json) {
        (Schema::Unit, Json::Null) => Value::Unit,
        (Schema::Bool, Json::Bool(v)) => Value::Bool(*v),
        (Schema::Bool, Json::Str(v)) if v == "true" || v == "false" => Value::Bool(v == "true"),
        (Schema::Int(int), Json::Number(v) | Json::Str(v)) => integer(*int, v, schema, json)?,
        (Schema::F32, Json::Number(v) | Json::Str(v)) => Value::F32(single(v, schema, json)?),
        (Schema::F64, Json::Number(v) | Json::Str(v)) => Value::F64(double(v, schema, json)?),
        // A blank or a line end is a character too: nothing is trimmed.
        (Schema::Char, Json::Str(v)) => match v.parse() {
            Ok(v) => Value::Char(v),
            Err(_) => return wrong(schema, json),
        },
        (Schema::String, Json::Str(v)) => Value::Str(v.clone()),
        (Schema::Bytes, Json::Str(v)) => match hex(v) {
            Some(bytes) => Value::Bytes(bytes),
            None => return wrong(schema, json),
        },
        (Schema::Duration, Json::Number(v) | Json::Str(v)) => duration(v, schema, json)?,
        (Schema::Option(_), Json::Null) => Value::Option(None),
        (Schema::Option(inner), _) => {
            let is_there = match json {
                Json::Object(fields) if may_be_null(inner) && is_some_null(json) => {
                    fields.first().map_or(json, |(_, content)| content)
                }
                _ => json,
            };
            Value::Option(Some(Box::new(read(inner, is_there)?)))
        }
        (Schema::List(item), Json::Array(items)) => Value::List(sequence(item, items)?),
        (Schema::Set(item), Json::Array(items)) => {
            let mut items = sequence(item, items)?;
            if let Some(twice) = sort_set(item, &mut items) {
                return doubled(schema, twice);
            }
            Value::List(items)
        }
        (Schema::Array(item, len), Json::Str(v)) if **item == Schema::Int(IntType::U8) => {
            match hex(v) {
                Some(bytes) if bytes.len() == *len as usize => Value::Bytes(bytes),
                _ => return wrong(schema, json),
            }
        }
        (Schema::Array(item, len), Json::Array(items)) if items.len() == *len as usize => {
            let items = sequence(item, items)?;
            match **item {
                Schema::Int(IntType::U8) => Value::Bytes(bytes_of(&items)),
                _ => Value::List(items),
            }
        }
        (Schema::Map(key, value), _) => map(schema, key, value, json)?,
        (Schema::Tuple(parts), Json::Array(items)) if parts.len() == items.len() => {
            let parts = parts.iter().zip(items).enumerate();
            let parts = parts.map(|(i, (part, json))| at(i, read(part, json)));
            Value::Tuple(parts.collect::<Read<_>>()?)
        }
        (Schema::Struct(it), _) => Value::Record {
            name: it.name.clone().into(),
            fields: fields(schema, &it.fields, json)?,
        },
        (Schema::Enum(it), _) => variant(schema, it, json)?,
        (Schema::Opaque { codec, version }, Json::Object(_)) => {
            let bytes = json.get("bytes").and_then(Json::as_str).and_then(hex);
            let is = json.get("opaque").and_then(Json::as_str) == Some(codec)
                && json.get("version") == Some(&Json::Number(version.to_string()));
            match bytes {
                Some(bytes) if is => Value::Opaque {
                    codec: codec.clone().into(),
                    version: *version,
                    bytes,
                },
                _ => return wrong(schema, json),
            }
        }
        _ => return wrong(schema, json),
    })
}

/// Says whether JSON is `{"Some":null}`, or that within others of the kind: an option that is there, of what is written `null`.
fn is_some_null(json: &Json) -> bool {
    match json {
        Json::Object(fields) => match fields.as_slice() {
            [(name, content)] if name == "Some" => *content == Json::Null || is_some_null(content),
            _ => false,
        },
        _ => false,
    }
}

/// Says whether a value of a schema may be written `null`.
fn may_be_null(schema: &Schema) -> bool {
    match schema {
        Schema::Unit | Schema::Option(_) => true,
        Schema::Struct(it) => match &it.fields {
            Fields::Positional(fields) if fields.len() == 1 => may_be_null(&fields[0].schema),
            _ => false,
        },
        _ => false,
    }
}

fn bytes_of(items: &[Value]) -> Vec<u8> {
    let byte = |item: &Value| match item {
        Value::UInt(byte) => u8::try_from(*byte).unwrap_or_default(),
        _ => 0,
    };
    items.iter().map(byte).collect()
}

fn doubled<T>(schema: &Schema, value: &Value) -> Read<T> {
    Err(Wrong {
        what: format!("{} is twice in a {schema}", value.to_json_string()),
        path: Vec::new(),
    })
}

/// Reads the bits of what is written `NaN(0x…)`: one of the many values that are no number.
fn nan_bits(text: &str) -> Option<u64> {
    let digits = text.trim().strip_prefix("NaN(0x")?.strip_suffix(')')?;
    u64::from_str_radix(digits, 16).ok()
}

/// Says whether text means an infinite number, rather than one that is too large.
fn means_infinity(text: &str) -> bool {
    text.contains(['n', 'N'])
}

fn single(text: &str, schema: &Schema, json: &Json) -> Read<f32> {
    if let Some(bits) = nan_bits(text) {
        let float = u32::try_from(bits).map(f32::from_bits);
        return match float {
            Ok(float) if float.is_nan() => Ok(float),
            _ => wrong(schema, json),
        };
    }
    let float: f32 = parsed(text, schema, json)?;
    match float.is_infinite() && !means_infinity(text) {
        true => wrong(schema, json),
        false => Ok(float),
    }
}

fn double(text: &str, schema: &Schema, json: &Json) -> Read<f64> {
    if let Some(bits) = nan_bits(text) {
        let float = f64::from_bits(bits);
        return match float.is_nan() {
            true => Ok(float),
            false => wrong(schema, json),
        };
    }
    let float: f64 = parsed(text, schema, json)?;
    match float.is_infinite() && !means_infinity(text) {
        true => wrong(schema, json),
        false => Ok(float),
    }
}

fn parsed<T: std::str::FromStr>(text: &str, schema: &Schema, json: &Json) -> Read<T> {
    text.trim().parse().or_else(|_| wrong(schema, json))
}

fn integer(int: IntType, text: &str, schema: &Schema, json: &Json) -> Read<Value> {
    let value = if int.is_signed() {
        Value::Int(parsed(text, schema, json)?)
    } else {
        Value::UInt(parsed(text, schema, json)?)
    };
    // Whether it fits is known to the encoder.
    match schema.encode_compact(&value, &mut Vec::new()) {
        Ok(()) => Ok(value),
        Err(_) => wrong(schema, json),
    }
}

fn duration(text: &str, schema: &Schema, json: &Json) -> Read<Value> {
    let (seconds, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    if fraction.len() > 9 || fraction.contains(|c: char| !c.is_ascii_digit()) {
        return wrong(schema, json);
    }
    let nanos = parsed(&format!("{fraction:0<9}"), schema, json)?;
    Ok(Value::Duration(Duration::new(
        parsed(seconds, schema, json)?,
        nanos,
    )))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?;
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |i: usize| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn sequence(item: &Schema, items: &[Json]) -> Read<Vec<Value>> {
    let items = items.iter().enumerate();
    items.map(|(i, json)| at(i, read(item, json))).collect()
}

fn map(schema: &Schema, key: &Schema, value: &Schema, json: &Json) -> Read<Value> {
    let entry = |k: &Json, v: &Json| Ok((read(key, k)?, at(k, read(value, v))?));
    let mut entries: Vec<(Value, Value)> = match json {
        Json::Object(of) => {
            let entries = of.iter().map(|(k, v)| entry(&Json::from(k.as_str()), v));
            entries.collect::<Read<_>>()?
        }
        Json::Array(pairs) => {
            let pairs = pairs.iter().map(|pair| match pair {
                Json::Array(pair) => match pair.as_slice() {
                    [k, v] => entry(k, v),
                    _ => wrong(schema, &Json::Array(pair.clone())),
                },
                _ => wrong(schema, pair),
            });
            pairs.collect::<Read<_>>()?
        }
        _ => return wrong(schema, json),
    };
    match sort_map(key, &mut entries) {
        Some(twice) => doubled(schema, twice),
        None => Ok(Value::Map(entries)),
    }
}

fn fields(schema: &Schema, of: &Fields, json: &Json) -> Read<Vec<(Name, Value)>> {
    let one = |name: &str, schema: &Schema, json: &Json| {
        Ok((Name::from(name.to_owned()), at(name, read(schema, json))?))
    };
    match (of, json) {
        (Fields::Unit, Json::Null) => Ok(Vec::new()),
        (Fields::Unit, Json::Object(given)) if given.is_empty() => Ok(Vec::new()),
        (Fields::Named(fields), Json::Object(given)) => {
            if let Some((unknown, _)) = given
                .iter()
                .find(|(name, _)| !fields.iter().any(|field| field.name == *name))
            {
                return Err(Wrong {
                    what: format!("{schema} has no field {unknown:?}"),
                    path: Vec::new(),
                });
            }
            let fields = fields.iter().map(|of| {
                // An absent option may be left out.
                let missing = matches!(of.schema, Schema::Option(_)).then_some(&Json::Null);
                match field(given, &of.name).or(missing) {
                    Some(json) => one(&of.name, &of.schema, json),
                    None => Err(Wrong {
                        what: format!("field {:?} of {schema} is missing", of.name),
                        path: Vec::new(),
                    }),
                }
            });
            fields.collect()
        }
        (Fields::Positional(fields), _) if fields.len() == 1 => {
            let field = &fields[0];
            Ok(vec![one(&field.name, &field.schema, json)?])
        }
        (Fields::Positional(fields), Json::Array(given)) if fields.len() == given.len() => {
            let fields = fields.iter().zip(given);
            fields
                .map(|(field, json)| one(&field.name, &field.schema, json))
                .collect()
        }
        (fields, Json::Object(given)) if fields.as_slice().is_empty() && given.is_empty() => {
            Ok(Vec::new())
        }
        _ => wrong(schema, json),
    }
}

fn variant(schema: &Schema, it: &EnumSchema, json: &Json) -> Read<Value> {
    let (name, content) = match json {
        Json::Str(name) => (name, &Json::Null),
        Json::Object(of) if of.len() == 1 => (&of[0].0, &of[0].1),
        _ => return wrong(schema, json),
    };
    let Some(found) = it.variants.iter().find(|variant| variant.name == *name) else {
        let names: Vec<&str> = it.variants.iter().map(|v| v.name.as_str()).collect();
        return Err(Wrong {
            what: format!(
                "enum {} has no variant {name:?}; it has {}",
                it.name,
                names.join(", ")
            ),
            path: Vec::new(),
        });
    };
    let fields = match (found.fields.as_slice(), content) {
        ([], Json::Null) => Vec::new(),
        _ => at(name, fields(schema, &found.fields, content))?,
    };
    Ok(Value::Variant {
        name: it.name.clone().into(),
        variant: found.name.clone().into(),
        fields,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn comes_back(schema: &str, value: Value) {
        let schema = Schema::parse(schema).unwrap();
        schema.encode_compact(&value, &mut Vec::new()).unwrap();
        let text = value.to_json_string();
        assert_eq!(value_from_text(&schema, &text).unwrap(), value, "{text}");
    }

    fn record(name: &'static str, fields: Vec<(&'static str, Value)>) -> Value {
        Value::Record {
            name: name.into(),
            fields: fields.into_iter().map(|(n, v)| (n.into(), v)).collect(),
        }
    }

    #[test]
    fn what_is_written_as_json_is_read_back() {
        comes_back("unit", Value::Unit);
        comes_back("bool", Value::Bool(true));
        comes_back("u128", Value::UInt(u128::MAX));
        comes_back("i64", Value::Int(i64::MIN.into()));
        comes_back("f64", Value::F64(-0.1));
        comes_back("f64", Value::F64(f64::INFINITY));
        comes_back("f32", Value::F32(1.5));
        comes_back("char", Value::Char('"'));
        comes_back("string", Value::Str("a\n\"é".into()));
        comes_back("string", Value::Str("12".into()));
        comes_back("bytes", Value::Bytes(vec![0, 255]));
        comes_back("array<u8,2>", Value::Bytes(vec![0, 255]));
        comes_back("duration", Value::Duration(Duration::new(5, 70)));
        comes_back("option<u8>", Value::Option(None));
        comes_back("option<u8>", Value::Option(Some(Box::new(Value::UInt(3)))));
        comes_back("list<u8>", Value::List(vec![Value::UInt(3)]));
        let pairs = vec![(Value::UInt(1), Value::Str("x".into()))];
        comes_back("map<u8,string>", Value::Map(pairs));
        let pairs = vec![(Value::Str("x".into()), Value::UInt(1))];
        comes_back("map<string,u8>", Value::Map(pairs));
        comes_back(
            "tuple(u8,bool)",
            Value::Tuple(vec![Value::UInt(1), Value::Bool(false)]),
        );
        comes_back(
            "struct P{x:u8,y:option<i8>}",
            record("P", vec![("x", Value::UInt(1)), ("y", Value::Option(None))]),
        );
        comes_back(
            "struct C(string)",
            record("C", vec![("0", Value::Str("AA".into()))]),
        );
        let shape = "enum Shape{Dot,Circle{r:f64},Box(f64,f64)}";
        for (variant, fields) in [
            ("Dot", vec![]),
            ("Circle", vec![("r".into(), Value::F64(2.0))]),
            (
                "Box",
                vec![("0".into(), Value::F64(1.0)), ("1".into(), Value::F64(2.5))],
            ),
        ] {
            let name = "Shape".into();
            let variant = variant.into();
            comes_back(
                shape,
                Value::Variant {
                    name,
                    variant,
                    fields,
                },
            );
        }
        comes_back(
            "opaque(\"mine\",2)",
            Value::Opaque {
                codec: "mine".into(),
                version: 2,
                bytes: vec![1, 2],
            },
        );
    }

    #[test]
    fn text_that_is_no_json_is_a_string_where_one_is_wanted() {
        let read = |schema: &str, text: &str| {
            value_from_text(&Schema::parse(schema).unwrap(), text).map(|v| v.to_json_string())
        };
        assert_eq!(read("string", "AA").unwrap(), "\"AA\"");
        assert_eq!(read("string", "12").unwrap(), "\"12\"");
        assert_eq!(read("struct C(string)", "AA").unwrap(), "\"AA\"");
        assert_eq!(read("enum E{A,B}", "B").unwrap(), "\"B\"");
        assert_eq!(read("u8", "12").unwrap(), "12");
        assert!(read("u8", "AA").is_err());
    }

    #[test]
    fn an_error_says_what_is_wrong_where() {
        let told = |schema: &str, text: &str| {
            let error = value_from_text(&Schema::parse(schema).unwrap(), text).unwrap_err();
            assert_eq!(error.kind(), state_api::ErrorKind::InvalidArgument);
            error.message().to_owned()
        };
        assert_eq!(told("u8", "256"), "256 is no u8");
        assert_eq!(
            told("struct P{x:list<u8>}", r#"{"x":[1,-1]}"#),
            "-1 is no u8 at x.1"
        );
        assert_eq!(
            told("struct P{x:u8}", "{}"),
            "field \"x\" of struct P{x:u8} is missing"
        );
        assert!(told("struct P{x:u8}", r#"{"x":1,"z":2}"#).contains("no field \"z\""));
        assert!(told("enum E{A,B}", "\"C\"").contains("it has A, B"));
    }
}
