use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::{Error, Schema};

/// The name of a type, a field or a variant.
pub type Name = Cow<'static, str>;

/// A state value without its Rust type: what a program reads of a checkpoint whose types it doesn't know, and the middle
/// step of a migration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `()`.
    Unit,
    /// A truth value.
    Bool(bool),
    /// A number of a signed integer type.
    Int(i128),
    /// A number of an unsigned integer type.
    UInt(u128),
    /// A number of single precision.
    F32(f32),
    /// A number of double precision.
    F64(f64),
    /// A character.
    Char(char),
    /// Text.
    Str(String),
    /// A byte string, also a list or an array of `u8`.
    Bytes(Vec<u8>),
    /// A span of time.
    Duration(Duration),
    /// An optional value.
    Option(Option<Box<Value>>),
    /// A list, an array or a set.
    List(Vec<Value>),
    /// Keys and values, in stored order.
    Map(Vec<(Value, Value)>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A struct; fields by position are named `0`, `1`, ….
    Record {
        /// The name of the struct.
        name: Name,
        /// The fields in order.
        fields: Vec<(Name, Value)>,
    },
    /// A value of an enum.
    Variant {
        /// The name of the enum.
        name: Name,
        /// The name of the variant.
        variant: Name,
        /// The fields in order.
        fields: Vec<(Name, Value)>,
    },
    /// Bytes that only their codec understands.
    Opaque {
        /// Names the codec.
        codec: Name,
        /// The version of the codec.
        version: u32,
        /// The encoded value.
        bytes: Vec<u8>,
    },
}

impl Value {
    /// Returns the kind of value in a word, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Bool(_) => "bool",
            Self::Int(_) => "signed integer",
            Self::UInt(_) => "unsigned integer",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Char(_) => "char",
            Self::Str(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "duration",
            Self::Option(_) => "option",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Tuple(_) => "tuple",
            Self::Record { .. } => "struct",
            Self::Variant { .. } => "enum",
            Self::Opaque { .. } => "opaque",
        }
    }

    /// Creates the error that says that this value can't become one of a schema.
    #[cold]
    #[must_use]
    pub fn mismatch(&self, schema: &Schema) -> Error {
        let error = match self {
            Self::Int(_) | Self::UInt(_) if matches!(schema, Schema::Int(_)) => {
                Error::incompatible(format!("the number {self} does not fit {schema}"))
            }
            _ => Error::incompatible(format!(
                "a value of kind {} can't become {schema}",
                self.kind()
            )),
        };
        match self {
            Self::Record { name, .. } | Self::Variant { name, .. } => error.with("type", name),
            _ => error,
        }
    }

    /// Renders the value as JSON text.
    ///
    /// Integers past 64 bits, `NaN` and infinities become strings; byte strings hexadecimal strings (`"0x…"`); durations
    /// seconds; an absent option `null`, and one that is there of what is itself written `null` `{"Some":null}`. A map is an object when all keys are strings, else an array of pairs. A struct is an
    /// object, by position an array, of one position its field. A variant is its name, or an object of its name and its fields.
    #[must_use]
    pub fn to_json_string(&self) -> String {
        let mut out = String::new();
        crate::value_json::write(self, &mut out);
        out
    }
}

/// Says whether fields are named by their position.
pub(crate) fn positional(fields: &[(Name, Value)]) -> bool {
    fields.first().is_some_and(|(name, _)| name == "0")
}

impl fmt::Display for Value {
    /// Writes the value much as Rust source would: `Flight { carrier: "AA", delay: 1.5 }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => f.write_str("()"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Int(v) => write!(f, "{v}"),
            Self::UInt(v) => write!(f, "{v}"),
            Self::F32(v) => write!(f, "{v:?}"),
            Self::F64(v) => write!(f, "{v:?}"),
            Self::Char(v) => write!(f, "{v:?}"),
            Self::Str(v) => write!(f, "{v:?}"),
            Self::Bytes(v) => write_hex(v, f),
            Self::Duration(v) => write!(f, "{v:?}"),
            Self::Option(None) => f.write_str("None"),
            Self::Option(Some(v)) => write!(f, "Some({v})"),
            Self::List(items) => write_items("[", items, "]", f),
            Self::Map(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Tuple(items) => match items.as_slice() {
                [one] => write!(f, "({one},)"),
                _ => write_items("(", items, ")", f),
            },
            Self::Record { name, fields } => write_fields(name, fields, f),
            Self::Variant {
                variant, fields, ..
            } => write_fields(variant, fields, f),
            Self::Opaque {
                codec,
                version,
                bytes,
            } => {
                write!(f, "opaque({codec:?}, {version}, ")?;
                write_hex(bytes, f)?;
                f.write_str(")")
            }
        }
    }
}

pub(crate) fn write_hex(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn write_items(
    open: &str,
    items: &[Value],
    close: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str(close)
}

fn write_fields(name: &str, fields: &[(Name, Value)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    if fields.is_empty() {
        return Ok(());
    }
    let by_position = positional(fields);
    f.write_str(if by_position { "(" } else { " { " })?;
    for (i, (name, value)) in fields.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        if !by_position {
            write!(f, "{name}: ")?;
        }
        write!(f, "{value}")?;
    }
    f.write_str(if by_position { ")" } else { " }" })
}
