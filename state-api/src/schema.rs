use std::fmt;

use crate::hash::hash_bytes;
use crate::wire::add_sizes;
use crate::{Result, Value};

/// The names, the order and the kinds of a state type's parts.
///
/// Its text (`Display`, [`Schema::parse`]) is stored beside the state and enough to decode the bytes. The grammar:
///
/// ```text
/// schema  = "unit" | "bool" | int | "f32" | "f64" | "char" | "string" | "bytes" | "duration"
///         | "option<" schema ">" | "list<" schema ">" | "set<" schema ">" | "map<" schema "," schema ">"
///         | "array<" schema "," digits ">" | "tuple(" [ schema { "," schema } ] ")"
///         | "struct" name [ fields ]
///         | "enum" name "{" [ name [ fields ] { "," name [ fields ] } ] "}"
///         | "opaque(" quoted "," digits ")"
/// int     = ( "u" | "i" ) ( "8" | "16" | "32" | "64" | "128" )
/// fields  = "{" [ name ":" schema { "," name ":" schema } ] "}"      named
///         | "(" [ schema { "," schema } ] ")"                        by position
/// name    = letters, digits, "_", not starting with a digit | quoted, not empty
/// quoted  = '"' characters, with \" and \\ escaped '"'
/// ```
///
/// White space between tokens is skipped when read; what is printed has just the blank behind `struct` and `enum`.
/// Examples: `struct Flight{carrier:string,delay:f64}`, `map<string,u64>`, `enum Shape{Dot,Circle{r:f64},Box(f64,f64)}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schema {
    /// `()`.
    Unit,
    /// `bool`, one byte.
    Bool,
    /// An integer, little-endian.
    Int(IntType),
    /// `f32`, its bits little-endian.
    F32,
    /// `f64`, its bits little-endian.
    F64,
    /// A Unicode scalar value in 4 bytes.
    Char,
    /// UTF-8 behind its length.
    String,
    /// Bytes behind their length.
    Bytes,
    /// Seconds in 8 bytes, nanoseconds in 4.
    Duration,
    /// A byte that is 0 or 1, then the value if 1.
    Option(Box<Schema>),
    /// Elements in order, behind their number.
    List(Box<Schema>),
    /// Distinct elements, behind their number.
    Set(Box<Schema>),
    /// Keys and values, behind their number.
    Map(Box<Schema>, Box<Schema>),
    /// That many elements, without a length.
    Array(Box<Schema>, u32),
    /// The parts one after the other.
    Tuple(Vec<Schema>),
    /// The fields one after the other.
    Struct(StructSchema),
    /// The index of a variant, then its fields.
    Enum(EnumSchema),
    /// Bytes behind their length, in an encoding that only its codec knows.
    Opaque {
        /// Names the codec.
        codec: String,
        /// The version of the codec.
        version: u32,
    },
}

/// The kinds of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the integer type of that name")]
pub enum IntType {
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
}

impl IntType {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::U128,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::I128,
    ];

    /// Returns the name of the Rust type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::U128 => "u128",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
        }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::U64 | Self::I64 => 8,
            Self::U128 | Self::I128 => 16,
        }
    }

    /// Says whether negative numbers exist.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::I128
        )
    }

    /// Says whether every number of this kind is one of `other` too.
    #[must_use]
    pub fn widens_to(self, other: Self) -> bool {
        match (self.is_signed(), other.is_signed()) {
            (false, true) => self.size() < other.size(),
            (true, false) => false,
            _ => self.size() <= other.size(),
        }
    }
}

/// A struct: its name and its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StructSchema {
    /// The name, as written in the program or as renamed.
    pub name: String,
    /// The fields.
    pub fields: Fields,
}

/// An enum: its name and its variants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnumSchema {
    /// The name, as written in the program or as renamed.
    pub name: String,
    /// The variants; the compact encoding starts with an index into them.
    pub variants: Vec<VariantSchema>,
}

/// One variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VariantSchema {
    /// The name.
    pub name: String,
    /// What the variant carries.
    pub fields: Fields,
}

/// The fields of a struct or of a variant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fields {
    /// None, as in `struct Marker;`.
    Unit,
    /// Fields with names.
    Named(Vec<Field>),
    /// Fields by position; their names are `0`, `1`, ….
    Positional(Vec<Field>),
}

impl Fields {
    /// Returns the fields in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Field] {
        match self {
            Self::Unit => &[],
            Self::Named(fields) | Self::Positional(fields) => fields,
        }
    }
}

/// One field of a struct or of a variant.
///
/// Two fields are equal when name and schema are; default and former names belong to the program, not to the stored text.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name; its position when it has none.
    pub name: String,
    /// The type.
    pub schema: Schema,
    /// Whether the program has a value for it when an older version of the type lacks the field.
    pub has_default: bool,
    /// Names under which older versions of the type stored it.
    pub aliases: Vec<String>,
}

impl Field {
    /// Creates a field without default and former names.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: Schema) -> Self {
        Self {
            name: name.into(),
            schema,
            has_default: false,
            aliases: Vec::new(),
        }
    }

    /// Says that the program has a default for the field.
    #[must_use]
    pub fn with_default(mut self) -> Self {
        self.has_default = true;
        self
    }

    /// Adds a former name.
    #[must_use]
    pub fn with_alias(mut self, name: impl Into<String>) -> Self {
        self.aliases.push(name.into());
        self
    }
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.schema == other.schema
    }
}

impl Eq for Field {}

impl std::hash::Hash for Field {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.schema.hash(state);
    }
}

impl Schema {
    /// The deepest nesting that [`Schema::parse`] takes.
    pub const MAX_DEPTH: usize = 128;

    /// The longest text in bytes that [`Schema::parse`] takes.
    pub const MAX_TEXT: usize = 1 << 20;

    /// Parses the text form.
    ///
    /// # Errors
    /// `Corrupt` when the text breaks the grammar, is too long or too deep, or names a field or variant twice.
    pub fn parse(text: &str) -> Result<Self> {
        crate::schema_text::parse(text)
    }

    /// Returns 64 bits of XXH3 over the text: equal schemas have equal fingerprints on every platform.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        hash_bytes(self.to_string().as_bytes())
    }

    /// Returns the length of the compact encoding in bytes, if it is the same for all values.
    #[must_use]
    pub fn fixed_size(&self) -> Option<usize> {
        match self {
            Self::Unit => Some(0),
            Self::Bool => Some(1),
            Self::Int(int) => Some(int.size()),
            Self::F32 | Self::Char => Some(4),
            Self::F64 => Some(8),
            Self::Duration => Some(12),
            Self::Array(_, 0) => Some(0),
            Self::Array(item, len) => item.fixed_size()?.checked_mul(usize::try_from(*len).ok()?),
            Self::Tuple(parts) => sum_sizes(parts.iter()),
            Self::Struct(it) => sum_sizes(it.fields.as_slice().iter().map(|f| &f.schema)),
            Self::Enum(it) => {
                // The index of a variant takes one byte below 128.
                let bare = it.variants.iter().all(|v| v.fields.as_slice().is_empty());
                (bare && it.variants.len() <= 128).then_some(1)
            }
            Self::String
            | Self::Bytes
            | Self::Option(_)
            | Self::List(_)
            | Self::Set(_)
            | Self::Map(..)
            | Self::Opaque { .. } => None,
        }
    }

    /// Says whether an opaque codec is part of the schema, so that bytes are not decoded in full.
    #[must_use]
    pub fn has_opaque(&self) -> bool {
        let any = |fields: &Fields| fields.as_slice().iter().any(|f| f.schema.has_opaque());
        match self {
            Self::Opaque { .. } => true,
            Self::Option(inner) | Self::List(inner) | Self::Set(inner) | Self::Array(inner, _) => {
                inner.has_opaque()
            }
            Self::Map(key, value) => key.has_opaque() || value.has_opaque(),
            Self::Tuple(parts) => parts.iter().any(Self::has_opaque),
            Self::Struct(it) => any(&it.fields),
            Self::Enum(it) => it.variants.iter().any(|v| any(&v.fields)),
            _ => false,
        }
    }

    /// Decodes a compact encoding into a dynamic value and advances the input past it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the encoding of a value, or when they describe more values than 16 times their
    /// number plus 65,536.
    pub fn decode_compact(&self, input: &mut &[u8]) -> Result<Value> {
        crate::schema_codec::decode(self, input)
    }

    /// Decodes an ordered encoding ([`OrderedKey`](crate::OrderedKey)) into a dynamic value and advances the input past it.
    ///
    /// # Errors
    /// `Corrupt` as [`decode_compact`](Self::decode_compact); `Incompatible` when the type has no ordered encoding.
    pub fn decode_ordered(&self, input: &mut &[u8]) -> Result<Value> {
        crate::schema_ordered::decode(self, input)
    }

    /// Appends the ordered encoding of a dynamic value.
    ///
    /// # Errors
    /// `Incompatible` when the value does not have exactly this schema, or the type has no ordered encoding; the output is then
    /// as it was.
    pub fn encode_ordered(&self, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        crate::schema_ordered::encode(self, value, out)
    }

    /// Appends the compact encoding of a dynamic value.
    ///
    /// # Errors
    /// `Incompatible` when the value does not have exactly this schema; the output is then as it was.
    pub fn encode_compact(&self, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        crate::schema_codec::encode(self, value, out)
    }
}

fn sum_sizes<'a>(mut parts: impl Iterator<Item = &'a Schema>) -> Option<usize> {
    parts.try_fold(0, |sum, part| add_sizes(Some(sum), part.fixed_size()))
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::schema_text::print(self, f)
    }
}
