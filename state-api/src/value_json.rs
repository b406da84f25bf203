//! JSON text of a dynamic value.
use std::fmt::Write;

use crate::Value;
use crate::value::{Name, positional, write_hex};

pub(crate) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Unit | Value::Option(None) => out.push_str("null"),
        Value::Bool(v) => push(out, v),
        Value::Int(v) if i64::try_from(*v).is_ok() => push(out, v),
        Value::UInt(v) if u64::try_from(*v).is_ok() => push(out, v),
        Value::Int(v) => write_string(&v.to_string(), out),
        Value::UInt(v) => write_string(&v.to_string(), out),
        // The debug form of a finite float is its shortest exact one, and valid JSON.
        Value::F32(v) if v.is_finite() => push(out, format_args!("{v:?}")),
        Value::F64(v) if v.is_finite() => push(out, format_args!("{v:?}")),
        // One of the many values that are no number has its bits beside it, all but the usual one.
        Value::F32(v) if v.is_nan() && v.to_bits() != f32::NAN.to_bits() => {
            push(out, format_args!("\"NaN({:#x})\"", v.to_bits()));
        }
        Value::F64(v) if v.is_nan() && v.to_bits() != f64::NAN.to_bits() => {
            push(out, format_args!("\"NaN({:#x})\"", v.to_bits()));
        }
        Value::F32(v) => write_string(&v.to_string(), out),
        Value::F64(v) => write_string(&v.to_string(), out),
        Value::Char(v) => write_string(v.encode_utf8(&mut [0; 4]), out),
        Value::Str(v) => write_string(v, out),
        Value::Bytes(v) => write_quoted_hex(v, out),
        Value::Duration(v) => push(out, format_args!("{}.{:09}", v.as_secs(), v.subsec_nanos())),
        Value::Option(Some(inner)) if is_null(inner) => {
            out.push_str("{\"Some\":");
            write(inner, out);
            out.push('}');
        }
        Value::Option(Some(inner)) => write(inner, out),
        Value::List(items) | Value::Tuple(items) => write_array(items.iter(), out),
        Value::Map(entries) => write_map(entries, out),
        Value::Record { fields, .. } => write_fields(fields, out),
        Value::Variant {
            variant, fields, ..
        } if fields.is_empty() => write_string(variant, out),
        Value::Variant {
            variant, fields, ..
        } => {
            out.push('{');
            write_string(variant, out);
            out.push(':');
            write_fields(fields, out);
            out.push('}');
        }
        Value::Opaque {
            codec,
            version,
            bytes,
        } => {
            out.push_str("{\"opaque\":");
            write_string(codec, out);
            push(out, format_args!(",\"version\":{version},\"bytes\":"));
            write_quoted_hex(bytes, out);
            out.push('}');
        }
    }
}

/// Says whether a value is written `null`, or so much like it that an option of it would be taken for an absent one.
fn is_null(value: &Value) -> bool {
    match value {
        Value::Unit | Value::Option(None) => true,
        Value::Option(Some(inner)) => is_null(inner),
        Value::Record { fields, .. } if positional(fields) => match fields.as_slice() {
            [(_, one)] => is_null(one),
            _ => false,
        },
        _ => false,
    }
}

fn push(out: &mut String, piece: impl std::fmt::Display) {
    // Writing to a string can't fail.
    let _ = write!(out, "{piece}");
}

fn write_quoted_hex(bytes: &[u8], out: &mut String) {
    out.push('"');
    let _ = write_hex(bytes, out);
    out.push('"');
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                push(out, format_args!("\\u{:04x}", u32::from(c)))
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_array<'a>(items: impl Iterator<Item = &'a Value>, out: &mut String) {
    out.push('[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(']');
}

fn write_map(entries: &[(Value, Value)], out: &mut String) {
    let by_name = entries.iter().all(|(key, _)| matches!(key, Value::Str(_)));
    out.push(if by_name { '{' } else { '[' });
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if by_name {
            write(key, out);
            out.push(':');
            write(value, out);
        } else {
            write_array([key, value].into_iter(), out);
        }
    }
    out.push(if by_name { '}' } else { ']' });
}

fn write_fields(fields: &[(Name, Value)], out: &mut String) {
    if positional(fields) {
        match fields {
            [(_, one)] => write(one, out),
            _ => write_array(fields.iter().map(|(_, value)| value), out),
        }
        return;
    }
    out.push('{');
    for (i, (name, value)) in fields.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

#[cfg(test)]
#[path = "value_json_tests.rs"]
mod tests;
