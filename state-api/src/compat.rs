//! Whether stored state can be read by a program whose types have changed, and how.
use std::collections::HashSet;
use std::fmt;

use crate::schema::{EnumSchema, Fields, IntType};
use crate::wire::expect_end;
use crate::{CodecKind, Result, Schema, StateType};

/// How the values of one type are stored: codec and schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeMeta {
    /// The codec.
    pub codec: CodecKind,
    /// The schema at the time of writing.
    pub schema: Schema,
}

impl TypeMeta {
    /// Describes a type of this program.
    #[must_use]
    pub fn of<T: StateType>(codec: CodecKind) -> Self {
        Self {
            codec,
            schema: T::schema(),
        }
    }
}

impl fmt::Display for TypeMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.codec, self.schema)
    }
}

/// Where a type stands in a state, which decides whether it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// A value, list element or map value of keyed state; all of operator and broadcast state, keys included.
    Value,
    /// The key of an operator.
    Key,
    /// A namespace.
    Namespace,
    /// The user's key within a map state.
    MapKey,
    /// What a timer carries.
    Timer,
}

impl Position {
    /// Says whether stored values here may be rewritten for a new schema.
    #[must_use]
    pub const fn may_migrate(self) -> bool {
        matches!(self, Self::Value)
    }

    /// Returns what it is called, in the plural.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Value => "values",
            Self::Key => "keys",
            Self::Namespace => "namespaces",
            Self::MapKey => "map keys",
            Self::Timer => "timers",
        }
    }
}

/// What a restored state needs before a program with other types can use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// Nothing: the bytes are read as they are.
    AsIs,
    /// Each value is decoded with the old schema and encoded with the new one.
    Migrates {
        /// What changes, a line each.
        changes: Vec<String>,
    },
    /// The state can't be used; only a registered conversion can help.
    Incompatible {
        /// Why, in one line.
        reason: String,
    },
}

/// Decides what stored values need to be read as a new type.
///
/// Values may gain fields that have a default, lose fields, have fields renamed (when the new one names the old one as its
/// alias), gain variants, widen numbers, become optional and change codec. Keys of maps and elements of sets inside a value
/// stay as they are, for two of them could become equal. In any other position than [`Position::Value`] nothing may change.
#[must_use]
pub fn check(old: &TypeMeta, new: &TypeMeta, position: Position) -> Compatibility {
    if old == new {
        return Compatibility::AsIs;
    }
    if !position.may_migrate() {
        return Compatibility::Incompatible {
            reason: format!(
                "{} don't migrate, and {old} is to become {new}",
                position.as_str()
            ),
        };
    }
    let mut changes = Vec::new();
    if old.codec != new.codec {
        changes.push(format!("codec {} becomes {}", old.codec, new.codec));
    }
    let mut diff = Diff {
        path: Vec::new(),
        changes,
    };
    match diff.schema(&old.schema, &new.schema) {
        Ok(()) => Compatibility::Migrates {
            changes: diff.changes,
        },
        Err(reason) => Compatibility::Incompatible { reason },
    }
}

/// Reads a value that was stored under an old type: bytes to dynamic value to new type.
///
/// # Errors
/// `Corrupt` when the bytes are not a value of the old type or bytes are left; `Incompatible` when the value can't become
/// one of the new type.
pub fn migrate<T: StateType>(old: &TypeMeta, mut bytes: &[u8]) -> Result<T> {
    let value = old.codec.decode_value(&old.schema, &mut bytes)?;
    expect_end(bytes)?;
    T::from_value(value)
}

/// Walks two schemas side by side, collecting changes; an `Err` is the reason why they are incompatible.
struct Diff {
    path: Vec<String>,
    changes: Vec<String>,
}

type Verdict = Result<(), String>;

impl Diff {
    fn at(&self) -> String {
        if self.path.is_empty() {
            "the value".to_owned()
        } else {
            self.path.join(".")
        }
    }

    fn changed(&mut self, what: impl fmt::Display) {
        let line = format!("{} {what}", self.at());
        self.changes.push(line);
    }

    fn within(&mut self, step: &str, old: &Schema, new: &Schema) -> Verdict {
        self.path.push(step.to_owned());
        let verdict = self.schema(old, new);
        self.path.pop();
        verdict
    }

    fn schema(&mut self, old: &Schema, new: &Schema) -> Verdict {
        if old == new {
            return Ok(());
        }
        match (old, new) {
            (Schema::Int(from), Schema::Int(to)) if from.widens_to(*to) => {
                self.changed(format_args!("widens from {old} to {new}"));
                Ok(())
            }
            (Schema::F32, Schema::F64) => {
                self.changed("widens from f32 to f64");
                Ok(())
            }
            (Schema::Option(from), Schema::Option(to)) => self.schema(from, to),
            (_, Schema::Option(to)) => {
                self.changed("becomes optional");
                self.schema(old, to)
            }
            (Schema::List(from), Schema::List(to)) => self.within("[]", from, to),
            (Schema::Bytes, Schema::List(to)) => self.within("[]", &Schema::Int(IntType::U8), to),
            (Schema::Array(from, len), Schema::Array(to, new_len)) if len == new_len => {
                self.within("[]", from, to)
            }
            (Schema::Map(key, from), Schema::Map(new_key, to)) => {
                if key != new_key {
                    return Err(format!(
                        "the map keys of {} change from {key} to {new_key}",
                        self.at()
                    ));
                }
                self.within("[]", from, to)
            }
            (Schema::Tuple(from), Schema::Tuple(to)) if from.len() == to.len() => {
                let mut parts = from.iter().zip(to).enumerate();
                parts.try_for_each(|(i, (from, to))| self.within(&i.to_string(), from, to))
            }
            (Schema::Struct(from), Schema::Struct(to)) if from.name == to.name => {
                self.fields(&from.fields, &to.fields)
            }
            (Schema::Enum(from), Schema::Enum(to)) if from.name == to.name => {
                self.variants(from, to)
            }
            _ => Err(format!("{} can't change from {old} to {new}", self.at())),
        }
    }

    fn fields(&mut self, old: &Fields, new: &Fields) -> Verdict {
        if matches!(
            (old, new),
            (Fields::Named(_), Fields::Positional(_)) | (Fields::Positional(_), Fields::Named(_))
        ) {
            return Err(format!(
                "{} can't change between named fields and fields by position",
                self.at()
            ));
        }
        let mut used = HashSet::new();
        let mut order = Vec::new();
        for field in new.as_slice() {
            let names = std::iter::once(&field.name).chain(&field.aliases);
            let found = names
                .filter_map(|name| old.as_slice().iter().position(|f| f.name == *name))
                .next();
            match found {
                Some(index) => {
                    let before = &old.as_slice()[index];
                    if before.name != field.name {
                        self.changed(format_args!(
                            "has its field {} renamed to {}",
                            before.name, field.name
                        ));
                    }
                    used.insert(index);
                    order.push(index);
                    self.within(&field.name, &before.schema, &field.schema)?;
                }
                None if field.has_default => {
                    self.changed(format_args!(
                        "gains the field {} with its default",
                        field.name
                    ));
                }
                None => {
                    return Err(format!(
                        "{} gains the field {}, which has no default (give it one with #[state(default)])",
                        self.at(),
                        field.name
                    ));
                }
            }
        }
        if !order.is_sorted() {
            self.changed("has its fields in another order");
        }
        for (index, field) in old.as_slice().iter().enumerate() {
            if !used.contains(&index) {
                self.changed(format_args!("loses the field {}", field.name));
            }
        }
        Ok(())
    }

    fn variants(&mut self, old: &EnumSchema, new: &EnumSchema) -> Verdict {
        let mut order = Vec::new();
        for before in &old.variants {
            let Some(index) = new.variants.iter().position(|v| v.name == before.name) else {
                return Err(format!("{} loses the variant {}", self.at(), before.name));
            };
            order.push(index);
            self.path.push(before.name.clone());
            let verdict = self.fields(&before.fields, &new.variants[index].fields);
            self.path.pop();
            verdict?;
        }
        if !order.is_sorted() {
            self.changed("has its variants in another order");
        }
        for (index, variant) in new.variants.iter().enumerate() {
            if !order.contains(&index) {
                self.changed(format_args!("gains the variant {}", variant.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "compat_tests.rs"]
mod tests;
