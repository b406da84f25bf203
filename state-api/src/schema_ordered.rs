//! The ordered layout of sorted map keys, driven by a schema instead of a type.
use crate::schema::{EnumSchema, Fields, IntType};
use crate::types::{char_of, duration_of, escape_ordered, get_flag, unescape_ordered};
use crate::value::Name;
use crate::wire::{take, take_array};
use crate::{Error, Result, Schema, Value};

/// The number of variants whose index takes one byte.
const SHORT_INDEX: usize = 1 << 8;

/// Bounds the values that a decoding makes: elements that take no bytes could else be as many as a schema says.
struct Decoder {
    values_left: usize,
}

pub(crate) fn decode(schema: &Schema, input: &mut &[u8]) -> Result<Value> {
    let values_left = input.len().saturating_mul(16).saturating_add(1 << 16);
    Decoder { values_left }.value(schema, input)
}

impl Decoder {
    fn value(&mut self, schema: &Schema, input: &mut &[u8]) -> Result<Value> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("the bytes describe far more values than they hold"))?;
        Ok(match schema {
            Schema::Unit => Value::Unit,
            Schema::Bool => Value::Bool(get_flag(input)?),
            Schema::Int(int) => decode_int(*int, take(input, int.size())?),
            Schema::Char => Value::Char(char_of(u32::from_be_bytes(take_array(input)?))?),
            Schema::String => Value::Str(
                String::from_utf8(unescape_ordered(input)?)
                    .map_err(|e| Error::corrupt("a string is not UTF-8").caused_by(e))?,
            ),
            Schema::Bytes => Value::Bytes(unescape_ordered(input)?),
            Schema::Duration => {
                let seconds = u64::from_be_bytes(take_array(input)?);
                Value::Duration(duration_of(
                    seconds,
                    u32::from_be_bytes(take_array(input)?),
                )?)
            }
            Schema::Option(inner) => Value::Option(if get_flag(input)? {
                Some(Box::new(self.value(inner, input)?))
            } else {
                None
            }),
            Schema::List(item) => {
                let mut items = Vec::new();
                while get_flag(input)? {
                    items.push(self.value(item, input)?);
                }
                Value::List(items)
            }
            Schema::Array(item, len) if **item == Schema::Int(IntType::U8) => {
                Value::Bytes(take(input, *len as usize)?.to_vec())
            }
            Schema::Array(item, len) => {
                let mut items = Vec::new();
                for _ in 0..*len {
                    items.push(self.value(item, input)?);
                }
                Value::List(items)
            }
            Schema::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.value(part, input));
                Value::Tuple(parts.collect::<Result<_>>()?)
            }
            Schema::Struct(it) => Value::Record {
                name: it.name.clone().into(),
                fields: self.fields(&it.fields, input)?,
            },
            Schema::Enum(it) => self.variant(it, input)?,
            Schema::F32
            | Schema::F64
            | Schema::Set(_)
            | Schema::Map(..)
            | Schema::Opaque { .. } => return Err(without_order(schema)),
        })
    }

    fn fields(&mut self, fields: &Fields, input: &mut &[u8]) -> Result<Vec<(Name, Value)>> {
        let fields = fields.as_slice().iter();
        fields
            .map(|field| Ok((field.name.clone().into(), self.value(&field.schema, input)?)))
            .collect()
    }

    fn variant(&mut self, it: &EnumSchema, input: &mut &[u8]) -> Result<Value> {
        let index = if it.variants.len() <= SHORT_INDEX {
            usize::from(u8::from_be_bytes(take_array(input)?))
        } else {
            usize::from(u16::from_be_bytes(take_array(input)?))
        };
        let variant = it.variants.get(index).ok_or_else(|| {
            Error::corrupt(format!(
                "enum {} has no variant with index {index}",
                it.name
            ))
        })?;
        Ok(Value::Variant {
            name: it.name.clone().into(),
            variant: variant.name.clone().into(),
            fields: self.fields(&variant.fields, input)?,
        })
    }
}

fn decode_int(int: IntType, bytes: &[u8]) -> Value {
    let wide = bytes
        .iter()
        .fold(0u128, |wide, byte| wide << 8 | u128::from(*byte));
    if !int.is_signed() {
        return Value::UInt(wide);
    }
    // The sign bit is flipped; shifting up and back down again extends it.
    let unused = 128 - 8 * int.size() as u32;
    let flipped = wide ^ (1 << (8 * int.size() - 1));
    Value::Int((flipped << unused).cast_signed() >> unused)
}

#[cold]
fn without_order(schema: &Schema) -> Error {
    Error::incompatible(format!("{schema} has no ordered encoding"))
}

pub(crate) fn encode(schema: &Schema, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    // The compact encoder is what knows whether a value has a schema.
    schema.encode_compact(value, out)?;
    out.truncate(start);
    let written = put(schema, value, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn put(schema: &Schema, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    match (schema, value) {
        (Schema::Unit, Value::Unit) => {}
        (Schema::Bool, Value::Bool(v)) => out.push(u8::from(*v)),
        (Schema::Int(int), Value::UInt(v)) => put_int(*int, *v, out),
        (Schema::Int(int), Value::Int(v)) => put_int(*int, v.cast_unsigned(), out),
        (Schema::Char, Value::Char(v)) => out.extend_from_slice(&u32::from(*v).to_be_bytes()),
        (Schema::String, Value::Str(v)) => escape_ordered(v.as_bytes(), out),
        (Schema::Bytes, Value::Bytes(v)) => escape_ordered(v, out),
        (Schema::Duration, Value::Duration(v)) => {
            out.extend_from_slice(&v.as_secs().to_be_bytes());
            out.extend_from_slice(&v.subsec_nanos().to_be_bytes());
        }
        (Schema::Option(_), Value::Option(None)) => out.push(0),
        (Schema::Option(inner), Value::Option(Some(v))) => {
            out.push(1);
            put(inner, v, out)?;
        }
        (Schema::List(item), Value::List(items)) => {
            for v in items {
                out.push(1);
                put(item, v, out)?;
            }
            out.push(0);
        }
        (Schema::Array(..), Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        (Schema::Array(item, _), Value::List(items)) => {
            items.iter().try_for_each(|v| put(item, v, out))?;
        }
        (Schema::Tuple(parts), Value::Tuple(values)) => {
            let mut parts = parts.iter().zip(values);
            parts.try_for_each(|(part, v)| put(part, v, out))?;
        }
        (Schema::Struct(it), Value::Record { fields, .. }) => put_fields(&it.fields, fields, out)?,
        (
            Schema::Enum(it),
            Value::Variant {
                variant, fields, ..
            },
        ) => {
            let found = it.variants.iter().position(|v| v.name == *variant);
            let index = found.ok_or_else(|| value.mismatch(schema))?;
            match u8::try_from(index) {
                Ok(short) if it.variants.len() <= SHORT_INDEX => out.push(short),
                _ => {
                    let long = u16::try_from(index).map_err(|_| without_order(schema))?;
                    out.extend_from_slice(&long.to_be_bytes());
                }
            }
            put_fields(&it.variants[index].fields, fields, out)?;
        }
        (Schema::F32 | Schema::F64 | Schema::Set(_) | Schema::Map(..), _)
        | (Schema::Opaque { .. }, _) => return Err(without_order(schema)),
        _ => return Err(value.mismatch(schema)),
    }
    Ok(())
}

fn put_int(int: IntType, wide: u128, out: &mut Vec<u8>) {
    let flipped = if int.is_signed() {
        wide ^ (1 << (8 * int.size() - 1))
    } else {
        wide
    };
    out.extend_from_slice(&flipped.to_be_bytes()[16 - int.size()..]);
}

fn put_fields(fields: &Fields, values: &[(Name, Value)], out: &mut Vec<u8>) -> Result<()> {
    for field in fields.as_slice() {
        let value = values.iter().find(|(name, _)| *name == field.name);
        let value = value
            .ok_or_else(|| Error::incompatible(format!("field {:?} is missing", field.name)))?;
        put(&field.schema, &value.1, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::time::Duration;

    use super::*;
    use crate::{ErrorKind, OrderedKey, StateKey, StateType};

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, StateType, StateKey, OrderedKey)]
    enum Place {
        Nowhere,
        Gate { number: i16, wing: char },
        Runway(u8, Option<String>),
    }

    #[track_caller]
    fn as_the_type<K: OrderedKey + Debug>(keys: impl IntoIterator<Item = K>) {
        let schema = K::schema();
        for key in keys {
            let mut typed = Vec::new();
            key.encode_ordered(&mut typed);
            let mut input = &typed[..];
            let value = decode(&schema, &mut input).unwrap();
            assert_eq!((&value, input), (&key.to_value(), &[][..]), "{key:?}");
            let mut dynamic = vec![7];
            encode(&schema, &value, &mut dynamic).unwrap();
            assert_eq!(&dynamic[1..], typed, "{key:?}");
            for cut in 0..typed.len() {
                let short = decode(&schema, &mut &typed[..cut]);
                assert_eq!(short.unwrap_err().kind(), ErrorKind::Corrupt);
            }
        }
    }

    #[test]
    fn keys_decode_and_encode_as_their_types_do() {
        as_the_type([0i8, -1, i8::MIN, i8::MAX]);
        as_the_type([0u64, 1, u64::MAX]);
        as_the_type([i128::MIN, -1, 0, i128::MAX]);
        as_the_type([u128::MAX, 0]);
        as_the_type([true, false]);
        as_the_type(['a', '\u{10ffff}']);
        as_the_type(["", "a\0b", "\0\0"].map(str::to_owned));
        as_the_type([vec![0u8, 255, 0], vec![]]);
        as_the_type([vec![3u16, 4], vec![]]);
        as_the_type([[1u8, 2, 3]]);
        as_the_type([[-1i32, 2]]);
        as_the_type([Duration::new(5, 7)]);
        as_the_type([Some((1u8, "x".to_owned())), None]);
        as_the_type([
            Place::Nowhere,
            Place::Gate {
                number: -3,
                wing: 'B',
            },
            Place::Runway(9, Some("north".into())),
            Place::Runway(9, None),
        ]);
    }

    #[test]
    fn what_has_no_order_and_what_is_of_another_type_is_refused() {
        for schema in ["f64", "map<u8,u8>", "opaque(\"x\",1)"] {
            let schema = Schema::parse(schema).unwrap();
            let error = decode(&schema, &mut &[0u8; 16][..]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible);
        }
        let mut out = vec![1];
        let error = encode(&Schema::Int(IntType::U8), &Value::UInt(256), &mut out).unwrap_err();
        assert_eq!(
            (error.kind(), &out[..]),
            (ErrorKind::Incompatible, &[1][..])
        );
    }
}
