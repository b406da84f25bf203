//! From an encoded key of which only the schema is known to its key group.
use crate::hash::{fold64, hash_bytes, java_string_hash};
use crate::schema::{Fields, IntType};
use crate::wire::{expect_end, get_bytes};
use crate::{Error, HashId, KeyGroup, MaxParallelism, Result, Schema, Value};

impl HashId {
    /// Returns the key group of a key in its compact encoding, as [`HashId::group`] does of the key itself.
    ///
    /// Keys of types whose [`StateKey::stable_hash`](crate::StateKey::stable_hash) was written by hand may have another one:
    /// whoever relies on it compares it for a key whose group is known.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the encoding of a value; `Unsupported` for [`HashId::Flink`] and a type without a Java
    /// hash code.
    pub fn group_of_encoded(
        self,
        schema: &Schema,
        key: &[u8],
        max: MaxParallelism,
    ) -> Result<KeyGroup> {
        match self {
            Self::Holdfast1 => Ok(max.group_of_hash64(stable_hash(schema, key)?)),
            Self::Flink => {
                let mut rest = key;
                let value = schema.decode_compact(&mut rest)?;
                expect_end(rest)?;
                let hash = flink_hash(schema, &value).ok_or_else(|| {
                    Error::unsupported("the key type has no Java hash code").with("type", schema)
                })?;
                Ok(max.group_of_hash32(hash))
            }
        }
    }
}

fn stable_hash(schema: &Schema, key: &[u8]) -> Result<u64> {
    Ok(match schema {
        Schema::String | Schema::Bytes => {
            let mut rest = key;
            let content = get_bytes(&mut rest)?;
            expect_end(rest)?;
            hash_bytes(content)
        }
        Schema::Struct(it) => match it.fields.as_slice() {
            // A struct of a single field is encoded as the field is, and hashes as it does.
            [one] => stable_hash(&one.schema, key)?,
            _ => hash_bytes(key),
        },
        _ => hash_bytes(key),
    })
}

fn flink_hash(schema: &Schema, value: &Value) -> Option<i32> {
    match (schema, value) {
        (Schema::Bool, Value::Bool(v)) => Some(if *v { 1231 } else { 1237 }),
        (Schema::Int(IntType::I8 | IntType::I16 | IntType::I32), Value::Int(v)) => {
            i32::try_from(*v).ok()
        }
        (Schema::Int(IntType::I64), Value::Int(v)) => {
            i64::try_from(*v).ok().map(|v| fold64(v.cast_unsigned()))
        }
        (Schema::String, Value::Str(v)) => Some(java_string_hash(v)),
        (Schema::Option(inner), Value::Option(v)) => match v {
            Some(v) => flink_hash(inner, v),
            None => has_flink_hash(inner).then_some(0),
        },
        (Schema::Tuple(parts), Value::Tuple(values)) => {
            let mut parts = parts.iter().zip(values);
            parts.try_fold(0i32, |hash, (part, v)| {
                Some(hash.wrapping_mul(31).wrapping_add(flink_hash(part, v)?))
            })
        }
        (Schema::Struct(it), Value::Record { fields, .. }) => {
            match (it.fields.as_slice(), fields.as_slice()) {
                ([field], [(_, v)]) => flink_hash(&field.schema, v),
                _ => None,
            }
        }
        _ => None,
    }
}

fn has_flink_hash(schema: &Schema) -> bool {
    match schema {
        Schema::Bool | Schema::String => true,
        Schema::Int(int) => matches!(
            int,
            IntType::I8 | IntType::I16 | IntType::I32 | IntType::I64
        ),
        Schema::Option(inner) => has_flink_hash(inner),
        Schema::Tuple(parts) => parts.iter().all(has_flink_hash),
        Schema::Struct(it) => match &it.fields {
            Fields::Named(fields) | Fields::Positional(fields) => {
                matches!(fields.as_slice(), [one] if has_flink_hash(&one.schema))
            }
            Fields::Unit => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{ErrorKind, StateKey, StateType};

    #[derive(Clone, Debug, PartialEq, Eq, StateType, StateKey)]
    struct Carrier(String);

    #[derive(Clone, Debug, PartialEq, Eq, StateType, StateKey)]
    struct Leg {
        carrier: Carrier,
        number: u16,
    }

    #[derive(Clone, Debug, PartialEq, Eq, StateType, StateKey)]
    enum Place {
        Gate(i8),
        Other { name: String },
    }

    #[track_caller]
    fn as_the_type<K: StateKey>(hash: HashId, keys: impl IntoIterator<Item = K>) {
        let max = MaxParallelism::new(1 << 15).unwrap();
        for key in keys {
            let mut encoded = Vec::new();
            key.encode(&mut encoded);
            let found = hash.group_of_encoded(&K::schema(), &encoded, max).unwrap();
            assert_eq!(found, hash.group(&key, max), "{}", key.to_value());
        }
    }

    #[test]
    fn an_encoded_key_is_in_the_group_of_the_key() {
        let own = HashId::Holdfast1;
        as_the_type(own, [0u8, 200]);
        as_the_type(own, [i64::MIN, -1, 77]);
        as_the_type(own, [u128::MAX]);
        as_the_type(own, [true, false]);
        as_the_type(own, ['x']);
        as_the_type(own, ["", "AA", "a longer one"].map(str::to_owned));
        as_the_type(own, [b"bytes".to_vec()]);
        as_the_type(own, [vec![1u32, 2]]);
        as_the_type(own, [[1u8, 2, 3]]);
        as_the_type(own, [Some(3u8), None]);
        as_the_type(own, [(1u8, "x".to_owned())]);
        as_the_type(own, [Duration::from_millis(5)]);
        as_the_type(own, [Carrier("AA".into())]);
        as_the_type(
            own,
            [Leg {
                carrier: Carrier("B6".into()),
                number: 7,
            }],
        );
        as_the_type(own, [Place::Gate(-1), Place::Other { name: "x".into() }]);
        as_the_type(own, [()]);
    }

    #[test]
    fn java_s_hash_codes_are_those_of_the_type() {
        let java = HashId::Flink;
        as_the_type(java, [i8::MIN, 5]);
        as_the_type(java, [i64::MIN, -1, 1 << 40]);
        as_the_type(java, ["", "AA", "\u{1f600}"].map(str::to_owned));
        as_the_type(java, [Some(3i32), None]);
        as_the_type(java, [(1i32, "x".to_owned(), true)]);
        as_the_type(java, [Carrier("AA".into())]);
        let max = MaxParallelism::new(128).unwrap();
        let error = java.group_of_encoded(&Schema::Char, &[0; 4], max);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn bytes_that_are_no_key_are_corrupt() {
        let max = MaxParallelism::new(128).unwrap();
        let error = HashId::Holdfast1.group_of_encoded(&Schema::String, &[9, 1], max);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
