//! Strings and byte strings.
use std::sync::Arc;

use bytes::Bytes;
use compact_str::CompactString;

use crate::hash::{hash_bytes, java_string_hash};
use crate::wire::{get_bytes, get_str, get_u8, put_bytes};
use crate::{Error, OrderedKey, Result, Schema, StateKey, StateType, StoredKey, Value};

/// Appends bytes so that byte order is kept and no encoding is a prefix of another: 0 becomes 0 255, the end is 0 0.
pub(crate) fn escape_ordered(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    let mut pieces = bytes.split(|byte| *byte == 0);
    out.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        out.extend_from_slice(&[0, 0xff]);
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&[0, 0]);
}

/// Reads what [`escape_ordered`] wrote.
pub(crate) fn unescape_ordered(input: &mut &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let Some(zero) = input.iter().position(|byte| *byte == 0) else {
            return Err(Error::corrupt("ordered string has no end"));
        };
        bytes.extend_from_slice(&input[..zero]);
        *input = &input[zero + 1..];
        match get_u8(input)? {
            0 => return Ok(bytes),
            0xff => bytes.push(0),
            other => {
                return Err(Error::corrupt(format!(
                    "ordered string has a zero byte before {other}"
                )));
            }
        }
    }
}

macro_rules! text {
    ($($text:ty, $stored:ty, |$this:ident| $heap:expr;)*) => {$(
        impl StateType for $text {
            const FIXED_SIZE: Option<usize> = None;
            const HAS_HEAP: bool = true;

            fn schema() -> Schema {
                Schema::String
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                put_bytes(out, self.as_bytes());
            }

            #[inline]
            fn decode(input: &mut &[u8]) -> Result<Self> {
                Ok(get_str(input)?.into())
            }

            fn to_value(&self) -> Value {
                Value::Str(String::from(&**self))
            }

            fn from_value(value: Value) -> Result<Self> {
                match value {
                    Value::Str(text) => Ok(text.into()),
                    other => Err(other.mismatch(&Self::schema())),
                }
            }

            #[inline]
            fn heap_size(&self) -> usize {
                let $this = self;
                $heap
            }

            #[inline]
            fn touch(&self) -> u8 {
                self.as_bytes().first().copied().unwrap_or(0)
            }

            const IS_CONTENT: bool = true;

            #[inline]
            fn content(&self) -> &[u8] {
                self.as_bytes()
            }
        }

        impl StateKey for $text {
            type Stored = $stored;

            const FLINK_HASH: bool = true;

            #[inline]
            fn stable_hash(&self) -> u64 {
                hash_bytes(self.as_bytes())
            }

            fn flink_hash(&self) -> Option<i32> {
                Some(java_string_hash(self))
            }
        }

        impl OrderedKey for $text {
            fn encode_ordered(&self, out: &mut Vec<u8>) {
                escape_ordered(self.as_bytes(), out);
            }

            fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
                match String::from_utf8(unescape_ordered(input)?) {
                    Ok(text) => Ok(text.into()),
                    Err(e) => Err(Error::corrupt("text is not UTF-8").caused_by(e)),
                }
            }
        }
    )*};
}

text! {
    String, CompactString, |text| text.capacity();
    Box<str>, CompactString, |text| text.len();
    // Shared text is counted in full by each holder, with the two reference counts.
    Arc<str>, Arc<str>, |text| text.len() + 2 * size_of::<usize>();
    // Up to 24 bytes lie in line.
    CompactString, CompactString, |text| if text.is_heap_allocated() { text.capacity() } else { 0 };
}

macro_rules! stored_in_line {
    ($($text:ty),*) => {$(
        impl StoredKey<$text> for CompactString {
            #[inline]
            fn of(key: &$text) -> Self {
                Self::new(key)
            }

            #[inline]
            fn is(&self, key: &$text) -> bool {
                self.as_bytes() == key.as_bytes()
            }

            #[inline]
            fn to_key(&self) -> $text {
                self.as_str().into()
            }
        }
    )*};
}

stored_in_line!(String, Box<str>);

impl StateType for Bytes {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        Schema::Bytes
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(Self::copy_from_slice(get_bytes(input)?))
    }

    fn to_value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Bytes(bytes) => Ok(bytes.into()),
            other => Err(other.mismatch(&Self::schema())),
        }
    }

    fn heap_size(&self) -> usize {
        self.len()
    }

    #[inline]
    fn touch(&self) -> u8 {
        self.first().copied().unwrap_or(0)
    }

    const IS_CONTENT: bool = true;

    #[inline]
    fn content(&self) -> &[u8] {
        self
    }
}

impl StateKey for Bytes {
    type Stored = Self;

    fn stable_hash(&self) -> u64 {
        hash_bytes(self)
    }
}

impl OrderedKey for Bytes {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        escape_ordered(self, out);
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        Ok(unescape_ordered(input)?.into())
    }
}
