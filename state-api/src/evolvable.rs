//! The evolvable encoding: a version byte, then a value that describes itself.
//!
//! A value is a tag and its content. Integers are varints (signed ones zigzag), floats their little-endian bits, strings
//! framed by their length, collections by their number of elements. A struct is its name, the number of its fields, and per
//! field the name, the length in bytes and the value; a variant has its own name after that of the enum.
use crate::types::{char_of, duration_of};
use crate::value::Name;
use crate::wire::{
    get_bytes, get_len, get_str, get_u8, get_varint, get_varint128, put_bytes, put_varint,
    put_varint128, reserve, take_array,
};
use crate::{Error, Result, Value};

/// The first byte of an encoding.
const VERSION: u8 = 1;

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 2 * crate::Schema::MAX_DEPTH;

mod tag {
    pub(super) const UNIT: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const UINT: u8 = 3;
    pub(super) const INT: u8 = 4;
    pub(super) const F32: u8 = 5;
    pub(super) const F64: u8 = 6;
    pub(super) const CHAR: u8 = 7;
    pub(super) const STR: u8 = 8;
    pub(super) const BYTES: u8 = 9;
    pub(super) const DURATION: u8 = 10;
    pub(super) const NONE: u8 = 11;
    pub(super) const SOME: u8 = 12;
    pub(super) const LIST: u8 = 13;
    pub(super) const MAP: u8 = 14;
    pub(super) const TUPLE: u8 = 15;
    pub(super) const RECORD: u8 = 16;
    pub(super) const VARIANT: u8 = 17;
    pub(super) const OPAQUE: u8 = 18;
}

pub(crate) fn encode(value: &Value, out: &mut Vec<u8>) {
    out.push(VERSION);
    put(value, out);
}

fn put(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Unit => out.push(tag::UNIT),
        Value::Bool(false) => out.push(tag::FALSE),
        Value::Bool(true) => out.push(tag::TRUE),
        Value::UInt(v) => {
            out.push(tag::UINT);
            put_varint128(out, *v);
        }
        Value::Int(v) => {
            out.push(tag::INT);
            put_varint128(out, ((v << 1) ^ (v >> 127)).cast_unsigned());
        }
        Value::F32(v) => {
            out.push(tag::F32);
            out.extend_from_slice(&v.to_le_bytes());
        }
        Value::F64(v) => {
            out.push(tag::F64);
            out.extend_from_slice(&v.to_le_bytes());
        }
        Value::Char(v) => {
            out.push(tag::CHAR);
            put_varint(out, u64::from(*v));
        }
        Value::Str(v) => {
            out.push(tag::STR);
            put_bytes(out, v.as_bytes());
        }
        Value::Bytes(v) => {
            out.push(tag::BYTES);
            put_bytes(out, v);
        }
        Value::Duration(v) => {
            out.push(tag::DURATION);
            put_varint(out, v.as_secs());
            put_varint(out, u64::from(v.subsec_nanos()));
        }
        Value::Option(None) => out.push(tag::NONE),
        Value::Option(Some(v)) => {
            out.push(tag::SOME);
            put(v, out);
        }
        Value::List(items) => put_items(tag::LIST, items, out),
        Value::Tuple(items) => put_items(tag::TUPLE, items, out),
        Value::Map(entries) => {
            out.push(tag::MAP);
            put_varint(out, entries.len() as u64);
            for (key, value) in entries {
                put(key, out);
                put(value, out);
            }
        }
        Value::Record { name, fields } => {
            out.push(tag::RECORD);
            put_bytes(out, name.as_bytes());
            put_fields(fields, out);
        }
        Value::Variant {
            name,
            variant,
            fields,
        } => {
            out.push(tag::VARIANT);
            put_bytes(out, name.as_bytes());
            put_bytes(out, variant.as_bytes());
            put_fields(fields, out);
        }
        Value::Opaque {
            codec,
            version,
            bytes,
        } => {
            out.push(tag::OPAQUE);
            put_bytes(out, codec.as_bytes());
            put_varint(out, u64::from(*version));
            put_bytes(out, bytes);
        }
    }
}

fn put_items(tag: u8, items: &[Value], out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(item, out));
}

fn put_fields(fields: &[(Name, Value)], out: &mut Vec<u8>) {
    put_varint(out, fields.len() as u64);
    for (name, value) in fields {
        put_bytes(out, name.as_bytes());
        // Most fields are shorter than 128 bytes: leave one byte for the length, and make room when that was too little.
        let at = out.len();
        out.push(0);
        put(value, out);
        let len = out.len() - at - 1;
        if let Ok(short @ 0..=0x7f) = u8::try_from(len) {
            out[at] = short;
        } else {
            let mut framed = Vec::with_capacity(10);
            put_varint(&mut framed, len as u64);
            out.splice(at..=at, framed);
        }
    }
}

pub(crate) fn decode(input: &mut &[u8]) -> Result<Value> {
    match get_u8(input)? {
        VERSION => get(input, MAX_DEPTH),
        other => Err(Error::corrupt(format!(
            "evolvable encoding of version {other}, written by a newer program or damaged; known is {VERSION}"
        ))),
    }
}

fn get(input: &mut &[u8], depth: usize) -> Result<Value> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::corrupt(format!(
            "value nests deeper than {MAX_DEPTH} levels"
        )));
    };
    Ok(match get_u8(input)? {
        tag::UNIT => Value::Unit,
        tag::FALSE => Value::Bool(false),
        tag::TRUE => Value::Bool(true),
        tag::UINT => Value::UInt(get_varint128(input)?),
        tag::INT => {
            let zigzag = get_varint128(input)?;
            Value::Int((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
        }
        tag::F32 => Value::F32(f32::from_le_bytes(take_array(input)?)),
        tag::F64 => Value::F64(f64::from_le_bytes(take_array(input)?)),
        tag::CHAR => Value::Char(char_of(get_u32(input)?)?),
        tag::STR => Value::Str(get_str(input)?.to_owned()),
        tag::BYTES => Value::Bytes(get_bytes(input)?.to_vec()),
        tag::DURATION => {
            let seconds = get_varint(input)?;
            Value::Duration(duration_of(seconds, get_u32(input)?)?)
        }
        tag::NONE => Value::Option(None),
        tag::SOME => Value::Option(Some(Box::new(get(input, depth)?))),
        tag::LIST => Value::List(get_items(input, depth)?),
        tag::TUPLE => Value::Tuple(get_items(input, depth)?),
        tag::MAP => {
            let len = get_len(input)?;
            let mut entries = Vec::with_capacity(reserve::<(Value, Value)>(len, input));
            for _ in 0..len {
                entries.push((get(input, depth)?, get(input, depth)?));
            }
            Value::Map(entries)
        }
        tag::RECORD => Value::Record {
            name: get_name(input)?,
            fields: get_fields(input, depth)?,
        },
        tag::VARIANT => Value::Variant {
            name: get_name(input)?,
            variant: get_name(input)?,
            fields: get_fields(input, depth)?,
        },
        tag::OPAQUE => Value::Opaque {
            codec: get_name(input)?,
            version: get_u32(input)?,
            bytes: get_bytes(input)?.to_vec(),
        },
        other => return Err(Error::corrupt(format!("value has the unknown tag {other}"))),
    })
}

fn get_u32(input: &mut &[u8]) -> Result<u32> {
    u32::try_from(get_varint(input)?).map_err(|_| Error::corrupt("number exceeds 32 bits"))
}

fn get_name(input: &mut &[u8]) -> Result<Name> {
    Ok(get_str(input)?.to_owned().into())
}

fn get_items(input: &mut &[u8], depth: usize) -> Result<Vec<Value>> {
    let len = get_len(input)?;
    let mut items = Vec::with_capacity(reserve::<Value>(len, input));
    for _ in 0..len {
        items.push(get(input, depth)?);
    }
    Ok(items)
}

fn get_fields(input: &mut &[u8], depth: usize) -> Result<Vec<(Name, Value)>> {
    let len = get_len(input)?;
    let mut fields = Vec::with_capacity(reserve::<(Name, Value)>(len, input));
    for _ in 0..len {
        let name = get_name(input)?;
        let mut content = get_bytes(input)?;
        fields.push((name, get(&mut content, depth)?));
        crate::wire::expect_end(content)?;
    }
    Ok(fields)
}
