use std::fmt;
use std::str::FromStr;

use crate::{Error, Result, Schema, StateType, Value, evolvable};

/// How the values of a state become bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodecKind {
    /// Fixed layout, without names: small and fast. Reading it takes the schema that it was written with.
    #[default]
    Compact,
    /// Fields and variants by name: larger and slower, but readable without any schema, by older and newer programs alike.
    Evolvable,
}

impl CodecKind {
    /// Returns the name that is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Evolvable => "evolvable",
        }
    }

    /// Parses a stored name.
    ///
    /// # Errors
    /// `Unsupported` when the name is none of `compact` and `evolvable`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "compact" => Ok(Self::Compact),
            "evolvable" => Ok(Self::Evolvable),
            _ => Err(Error::unsupported(format!(
                "codec {name:?} is unknown; known are compact and evolvable"
            ))),
        }
    }

    /// Returns the length of an encoding of a type in bytes, if it is the same for all values.
    #[must_use]
    pub const fn fixed_size<T: StateType>(self) -> Option<usize> {
        match self {
            Self::Compact => T::FIXED_SIZE,
            Self::Evolvable => None,
        }
    }

    /// Appends the encoding of a value.
    #[inline]
    pub fn encode<T: StateType>(self, value: &T, out: &mut Vec<u8>) {
        match self {
            Self::Compact => value.encode(out),
            Self::Evolvable => evolvable::encode(&value.to_value(), out),
        }
    }

    /// Reads a value and advances the input past it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the encoding of a value; `Incompatible` when they are the evolvable encoding of a
    /// type that can't become this one.
    #[inline]
    pub fn decode<T: StateType>(self, input: &mut &[u8]) -> Result<T> {
        match self {
            Self::Compact => T::decode(input),
            Self::Evolvable => T::from_value(evolvable::decode(input)?),
        }
    }

    /// Reads a value that takes up all of the bytes.
    ///
    /// # Errors
    /// As [`CodecKind::decode`], and `Corrupt` when bytes are left.
    #[inline]
    pub fn decode_all<T: StateType>(self, mut bytes: &[u8]) -> Result<T> {
        let value = self.decode(&mut bytes)?;
        crate::wire::expect_end(bytes)?;
        Ok(value)
    }

    /// Reads a dynamic value, of the type whose schema this is, and advances the input past it.
    ///
    /// The evolvable codec needs no schema and does not look at it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the encoding of a value.
    pub fn decode_value(self, schema: &Schema, input: &mut &[u8]) -> Result<Value> {
        match self {
            Self::Compact => schema.decode_compact(input),
            Self::Evolvable => evolvable::decode(input),
        }
    }

    /// Appends the encoding of a dynamic value of the type whose schema this is.
    ///
    /// # Errors
    /// `Incompatible` when the value does not have exactly this schema; the output is then as it was.
    pub fn encode_value(self, schema: &Schema, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Compact => schema.encode_compact(value, out),
            Self::Evolvable => {
                // The compact encoder is what knows whether a value has a schema.
                schema.encode_compact(value, &mut Vec::new())?;
                evolvable::encode(value, out);
                Ok(())
            }
        }
    }
}

impl fmt::Display for CodecKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CodecKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
