//! What the code of `#[derive(StateType)]` calls; not for use by hand.
use std::any::{TypeId, type_name};
use std::cell::RefCell;

pub use crate::types::put_first;
use crate::{Error, Name, Result, Schema, StateKey, StateType, Value};

/// Builds the schema of a type, refusing one that contains itself.
///
/// # Panics
/// When the schema of `T` is being built already: the type contains itself, by way of other types.
pub fn without_recursion<T: StateType>(build: impl FnOnce() -> Schema) -> Schema {
    thread_local! {
        static BUILDING: RefCell<Vec<TypeId>> = const { RefCell::new(Vec::new()) };
    }
    /// Takes the type off again, also when building it panics.
    struct Building;
    impl Drop for Building {
        fn drop(&mut self) {
            BUILDING.with_borrow_mut(|building| building.pop());
        }
    }
    let id = TypeId::of::<T>();
    let nested = BUILDING.with_borrow(|building| building.contains(&id));
    assert!(
        !nested,
        "{} contains itself, so its schema has no end: wrap the recursive part in `Opaque`",
        type_name::<T>()
    );
    BUILDING.with_borrow_mut(|building| building.push(id));
    let _building = Building;
    build()
}

/// Compiles when a type is a key.
#[inline]
pub fn is_key<T: StateKey>() {}

/// Creates the error for an index that no variant has.
#[cold]
pub fn no_such_index(owner: &str, index: u64) -> Error {
    Error::corrupt(format!("enum {owner} has no variant with index {index}"))
}

/// Creates the error for an ordered index that no variant has.
#[cold]
pub fn no_such_ordered_index(owner: &str, index: &[u8]) -> Error {
    let index = index
        .iter()
        .fold(0, |index, byte| index << 8 | u64::from(*byte));
    no_such_index(owner, index)
}

/// Creates the error for a name that no variant has.
#[cold]
pub fn no_such_variant(owner: &str, variant: &str) -> Error {
    Error::incompatible(format!("enum {owner} has no variant {variant}"))
}

/// The fields of a dynamic struct or variant, taken out by name.
#[derive(Debug)]
pub struct FieldValues {
    owner: &'static str,
    fields: Vec<(Name, Option<Value>)>,
}

impl FieldValues {
    fn new(owner: &'static str, fields: Vec<(Name, Value)>) -> Self {
        let fields = fields.into_iter().map(|(name, value)| (name, Some(value)));
        Self {
            owner,
            fields: fields.collect(),
        }
    }

    /// Opens a struct.
    ///
    /// # Errors
    /// `Incompatible` when the value is something else.
    pub fn of_struct<T: StateType>(owner: &'static str, value: Value) -> Result<Self> {
        match value {
            Value::Record { fields, .. } => Ok(Self::new(owner, fields)),
            other => Err(other.mismatch(&T::schema())),
        }
    }

    /// Opens a value of an enum; returns the name of the variant too.
    ///
    /// # Errors
    /// `Incompatible` when the value is something else.
    pub fn of_enum<T: StateType>(owner: &'static str, value: Value) -> Result<(Name, Self)> {
        match value {
            Value::Variant {
                variant, fields, ..
            } => Ok((variant, Self::new(owner, fields))),
            other => Err(other.mismatch(&T::schema())),
        }
    }

    fn find<T: StateType>(&mut self, names: &[&str]) -> Result<Option<T>> {
        for wanted in names {
            let found = self.fields.iter_mut().find(|(name, _)| name == wanted);
            if let Some(value) = found.and_then(|(_, value)| value.take()) {
                let converted = T::from_value(value);
                return converted
                    .map(Some)
                    .map_err(|e| e.with("field", format_args!("{}.{}", self.owner, names[0])));
            }
        }
        Ok(None)
    }

    /// Takes a field by the first of the names that is there.
    ///
    /// # Errors
    /// `Incompatible` when there is none, or its value can't become the field's type.
    pub fn take<T: StateType>(&mut self, names: &[&str]) -> Result<T> {
        match self.find(names)? {
            Some(value) => Ok(value),
            None => Err(Error::incompatible(format!(
                "the stored {} has no field {} and the program has no default for it",
                self.owner, names[0]
            ))),
        }
    }

    /// Takes a field by the first of the names that is there, or its default.
    ///
    /// # Errors
    /// `Incompatible` when its value can't become the field's type.
    pub fn take_or<T: StateType>(
        &mut self,
        names: &[&str],
        default: impl FnOnce() -> T,
    ) -> Result<T> {
        Ok(self.find(names)?.unwrap_or_else(default))
    }
}
