//! The compact layout, driven by a schema instead of a type.
use crate::schema::{EnumSchema, Field, Fields, IntType};
use crate::types::{EMPTY_ELEMENT, char_of, duration_of, expect_empty_element, get_flag};
use crate::value::Name;
use crate::wire::{
    get_bytes, get_len, get_str, get_varint, put_bytes, put_varint, reserve, take, take_array,
};
use crate::{Error, Result, Schema, Value};

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
        self.values_left = match self.values_left.checked_sub(1) {
            Some(left) => left,
            None => {
                return Err(Error::corrupt(
                    "the bytes describe far more values than they hold",
                ));
            }
        };
        Ok(match schema {
            Schema::Unit => Value::Unit,
            Schema::Bool => Value::Bool(get_flag(input)?),
            Schema::Int(int) => decode_int(*int, input)?,
            Schema::F32 => Value::F32(f32::from_le_bytes(take_array(input)?)),
            Schema::F64 => Value::F64(f64::from_le_bytes(take_array(input)?)),
            Schema::Char => Value::Char(char_of(u32::from_le_bytes(take_array(input)?))?),
            Schema::String => Value::Str(get_str(input)?.to_owned()),
            Schema::Bytes => Value::Bytes(get_bytes(input)?.to_vec()),
            Schema::Duration => {
                let seconds = u64::from_le_bytes(take_array(input)?);
                Value::Duration(duration_of(
                    seconds,
                    u32::from_le_bytes(take_array(input)?),
                )?)
            }
            Schema::Option(inner) => Value::Option(if get_flag(input)? {
                Some(Box::new(self.value(inner, input)?))
            } else {
                None
            }),
            Schema::List(item) | Schema::Set(item) => self.sequence(item, input)?,
            Schema::Map(key, value) => self.map(key, value, input)?,
            Schema::Array(item, len) => self.array(item, *len as usize, input)?,
            Schema::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.value(part, input));
                Value::Tuple(parts.collect::<Result<_>>()?)
            }
            Schema::Struct(it) => Value::Record {
                name: it.name.clone().into(),
                fields: self.fields(&it.fields, input)?,
            },
            Schema::Enum(it) => self.variant(it, input)?,
            Schema::Opaque { codec, version } => Value::Opaque {
                codec: codec.clone().into(),
                version: *version,
                bytes: get_bytes(input)?.to_vec(),
            },
        })
    }

    fn sequence(&mut self, item: &Schema, input: &mut &[u8]) -> Result<Value> {
        let len = get_len(input)?;
        let marked = item.fixed_size() == Some(0);
        let mut items = Vec::with_capacity(reserve::<Value>(len, input));
        for _ in 0..len {
            if marked {
                expect_empty_element(input)?;
            }
            items.push(self.value(item, input)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, key: &Schema, value: &Schema, input: &mut &[u8]) -> Result<Value> {
        let len = get_len(input)?;
        let marked = key.fixed_size() == Some(0);
        let mut entries = Vec::with_capacity(reserve::<(Value, Value)>(len, input));
        for _ in 0..len {
            if marked {
                expect_empty_element(input)?;
            }
            entries.push((self.value(key, input)?, self.value(value, input)?));
        }
        Ok(Value::Map(entries))
    }

    fn array(&mut self, item: &Schema, len: usize, input: &mut &[u8]) -> Result<Value> {
        if *item == Schema::Int(IntType::U8) {
            return Ok(Value::Bytes(take(input, len)?.to_vec()));
        }
        let mut items = Vec::with_capacity(reserve::<Value>(len, input));
        for _ in 0..len {
            items.push(self.value(item, input)?);
        }
        Ok(Value::List(items))
    }

    fn fields(&mut self, fields: &Fields, input: &mut &[u8]) -> Result<Vec<(Name, Value)>> {
        let fields = fields.as_slice().iter();
        fields
            .map(|field| Ok((field.name.clone().into(), self.value(&field.schema, input)?)))
            .collect()
    }

    fn variant(&mut self, it: &EnumSchema, input: &mut &[u8]) -> Result<Value> {
        let index = get_varint(input)?;
        let variant = usize::try_from(index).ok().and_then(|i| it.variants.get(i));
        let variant = variant.ok_or_else(|| {
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

fn decode_int(int: IntType, input: &mut &[u8]) -> Result<Value> {
    let bytes = take(input, int.size())?;
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    if int.is_signed() {
        // Shifting up and back down again extends the sign.
        let unused = 128 - 8 * int.size() as u32;
        return Ok(Value::Int(i128::from_le_bytes(wide) << unused >> unused));
    }
    Ok(Value::UInt(u128::from_le_bytes(wide)))
}

pub(crate) fn encode(schema: &Schema, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
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
        (Schema::Int(int), _) => put_int(*int, value, out)?,
        (Schema::F32, Value::F32(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (Schema::F64, Value::F64(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (Schema::Char, Value::Char(v)) => out.extend_from_slice(&u32::from(*v).to_le_bytes()),
        (Schema::String, Value::Str(v)) => put_bytes(out, v.as_bytes()),
        (Schema::Bytes, Value::Bytes(v)) => put_bytes(out, v),
        (Schema::Duration, Value::Duration(v)) => {
            out.extend_from_slice(&v.as_secs().to_le_bytes());
            out.extend_from_slice(&v.subsec_nanos().to_le_bytes());
        }
        (Schema::Option(_), Value::Option(None)) => out.push(0),
        (Schema::Option(inner), Value::Option(Some(v))) => {
            out.push(1);
            put(inner, v, out)?;
        }
        (Schema::List(item), Value::List(items)) => put_sequence(item, items, out)?,
        (Schema::Set(item), Value::List(items)) => put_sequence(item, items, out)?,
        (Schema::Map(key, entry), Value::Map(entries)) => {
            put_varint(out, entries.len() as u64);
            let marked = key.fixed_size() == Some(0);
            for (k, v) in entries {
                if marked {
                    out.push(EMPTY_ELEMENT);
                }
                put(key, k, out)?;
                put(entry, v, out)?;
            }
        }
        (Schema::Array(item, len), Value::Bytes(bytes))
            if **item == Schema::Int(IntType::U8) && bytes.len() == *len as usize =>
        {
            out.extend_from_slice(bytes);
        }
        (Schema::Array(item, len), Value::List(items)) if items.len() == *len as usize => {
            items.iter().try_for_each(|v| put(item, v, out))?;
        }
        (Schema::Tuple(parts), Value::Tuple(values)) if parts.len() == values.len() => {
            let mut parts = parts.iter().zip(values);
            parts.try_for_each(|(part, v)| put(part, v, out))?;
        }
        (Schema::Struct(it), Value::Record { fields, .. }) => {
            put_fields(schema, &it.fields, fields, out)?
        }
        (
            Schema::Enum(it),
            Value::Variant {
                variant, fields, ..
            },
        ) => {
            let found = it.variants.iter().position(|v| v.name == *variant);
            let index = found.ok_or_else(|| value.mismatch(schema))?;
            put_varint(out, index as u64);
            put_fields(schema, &it.variants[index].fields, fields, out)?;
        }
        (
            Schema::Opaque { codec, version },
            Value::Opaque {
                codec: c,
                version: v,
                bytes,
            },
        ) if codec == c && version == v => {
            put_bytes(out, bytes);
        }
        _ => return Err(value.mismatch(schema)),
    }
    Ok(())
}

fn put_int(int: IntType, value: &Value, out: &mut Vec<u8>) -> Result<()> {
    let bits = 8 * int.size() as u32;
    let (wide, fits) = match value {
        Value::UInt(v) => {
            let usable = bits - u32::from(int.is_signed());
            (*v, u128::BITS - v.leading_zeros() <= usable)
        }
        Value::Int(v) if int.is_signed() => {
            let unused = 128 - bits;
            (v.cast_unsigned(), *v << unused >> unused == *v)
        }
        Value::Int(v) => {
            let wide = v.cast_unsigned();
            (wide, *v >= 0 && u128::BITS - wide.leading_zeros() <= bits)
        }
        _ => return Err(value.mismatch(&Schema::Int(int))),
    };
    if !fits {
        return Err(Error::incompatible(format!(
            "{value} does not fit {}",
            int.as_str()
        )));
    }
    out.extend_from_slice(&wide.to_le_bytes()[..int.size()]);
    Ok(())
}

fn put_sequence(item: &Schema, items: &[Value], out: &mut Vec<u8>) -> Result<()> {
    put_varint(out, items.len() as u64);
    let marked = item.fixed_size() == Some(0);
    for value in items {
        if marked {
            out.push(EMPTY_ELEMENT);
        }
        put(item, value, out)?;
    }
    Ok(())
}

fn put_fields(
    owner: &Schema,
    fields: &Fields,
    values: &[(Name, Value)],
    out: &mut Vec<u8>,
) -> Result<()> {
    let fields: &[Field] = fields.as_slice();
    if fields.len() != values.len() {
        return Err(Error::incompatible(format!(
            "{} fields given for the {} of {owner}",
            values.len(),
            fields.len()
        )));
    }
    for field in fields {
        match values.iter().find(|(name, _)| *name == field.name) {
            Some((_, value)) => put(&field.schema, value, out)?,
            None => {
                return Err(Error::incompatible(format!(
                    "field {:?} of {owner} is missing",
                    field.name
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "schema_codec_tests.rs"]
mod tests;
