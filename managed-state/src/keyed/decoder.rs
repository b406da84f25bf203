//! How restored bytes become values of the types that the program has now.

use state_api::compat::{check, migrate};
use state_api::wire::take_array;
use state_api::{
    CodecKind, Compatibility, Error, Position, Result, StateMeta, StateType, TypeMeta,
};

/// Decodes values that an older program may have written.
#[derive(Clone, Debug)]
pub(crate) enum Decoder {
    /// The bytes are in the codec and layout of now.
    AsIs(CodecKind),
    /// The bytes are read by their old schema and converted.
    Migrate(Box<TypeMeta>),
}

impl Decoder {
    #[inline]
    pub(crate) fn decode<T: StateType>(&self, input: &mut &[u8]) -> Result<T> {
        match self {
            Self::AsIs(codec) => codec.decode(input),
            Self::Migrate(old) => {
                // A migrated value is the last thing in its frame.
                let value = migrate(old, input)?;
                *input = &[];
                Ok(value)
            }
        }
    }
}

/// Where restored entries come from: which timestamps stand before values, and how values are decoded.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) value: Decoder,
    /// Whether a timestamp stands before each value.
    timed: bool,
    /// The timestamp for values that have none.
    now_ms: i64,
}

impl Origin {
    /// Compares a restored state with the one that the program registers.
    ///
    /// # Errors
    /// `Incompatible`, with state, old and new type.
    pub(crate) fn resolve(old: &StateMeta, new: &StateMeta, now_ms: i64) -> Result<Self> {
        if old.kind != new.kind {
            return Err(Error::incompatible(format!(
                "the snapshot holds a {} state, the program registers a {} state",
                old.kind, new.kind
            ))
            .with("state", &new.name));
        }
        same(&new.name, "key", Position::Key, &old.key, &new.key)?;
        same(
            &new.name,
            "namespace",
            Position::Namespace,
            &old.namespace,
            &new.namespace,
        )?;
        match (&old.map_key, &new.map_key) {
            (Some(old), Some(new_key)) => {
                same(&new.name, "map key", Position::MapKey, old, new_key)?;
            }
            (None, None) => {}
            _ => {
                return Err(
                    Error::corrupt("a map state lacks its map key type").with("state", &new.name)
                );
            }
        }
        let value = match resolve(&new.name, "value", Position::Value, &old.value, &new.value)? {
            true => Decoder::AsIs(new.value.codec),
            false => Decoder::Migrate(Box::new(old.value.clone())),
        };
        Ok(Self {
            value,
            timed: old.ttl_ms.is_some(),
            now_ms,
        })
    }

    /// Returns whether entries can be taken over byte by byte.
    pub(crate) fn is_unchanged(&self, new: &StateMeta) -> bool {
        matches!(self.value, Decoder::AsIs(_)) && self.timed == new.ttl_ms.is_some()
    }

    /// Takes the timestamp before a value, or returns the time of the restore if there is none.
    #[inline]
    pub(crate) fn take_stamp(&self, input: &mut &[u8]) -> Result<i64> {
        if self.timed {
            take_array(input).map(i64::from_le_bytes)
        } else {
            Ok(self.now_ms)
        }
    }
}

/// Returns whether the bytes can be read as they are; false if they must be migrated.
fn resolve(
    state: &str,
    part: &str,
    position: Position,
    old: &TypeMeta,
    new: &TypeMeta,
) -> Result<bool> {
    match check(old, new, position) {
        Compatibility::AsIs => Ok(true),
        Compatibility::Migrates { .. } => Ok(false),
        Compatibility::Incompatible { reason } => Err(Error::incompatible(reason)
            .with("state", state)
            .with("part", part)
            .with("old", &old.schema)
            .with("new", &new.schema)),
    }
}

fn same(state: &str, part: &str, position: Position, old: &TypeMeta, new: &TypeMeta) -> Result<()> {
    if resolve(state, part, position, old, new)? {
        return Ok(());
    }
    Err(
        Error::incompatible(format!("the {part} of a state can't be migrated"))
            .with("state", state)
            .with("old", &old.schema)
            .with("new", &new.schema),
    )
}
