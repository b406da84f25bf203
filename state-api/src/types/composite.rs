//! `Option`, `Box`, tuples.
use crate::wire::add_sizes;
use crate::{Error, OrderedKey, Result, Schema, StateKey, StateType, Value};

use super::scalar::get_flag;

/// Writes the compact encoding of a field to the front of a place and returns the rest of the place.
///
/// # Panics
/// When the place is smaller than the field.
#[inline]
pub fn put_first<'a, T: StateType>(field: &T, place: &'a mut [u8]) -> &'a mut [u8] {
    let (first, rest) = place.split_at_mut(T::FIXED_SIZE.unwrap_or(0));
    field.put_in_place(first);
    rest
}

impl<T: StateType> StateType for Option<T> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = T::HAS_HEAP;

    fn schema() -> Schema {
        Schema::Option(Box::new(T::schema()))
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(inner) => {
                out.push(1);
                inner.encode(out);
            }
        }
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(if get_flag(input)? {
            Some(T::decode(input)?)
        } else {
            None
        })
    }

    fn to_value(&self) -> Value {
        Value::Option(self.as_ref().map(|inner| Box::new(inner.to_value())))
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Option(None) => Ok(None),
            Value::Option(Some(inner)) => T::from_value(*inner).map(Some),
            // A field that has become optional.
            other => T::from_value(other).map(Some),
        }
    }

    fn heap_size(&self) -> usize {
        self.as_ref().map_or(0, T::heap_size)
    }

    #[inline]
    fn touch(&self) -> u8 {
        self.as_ref().map_or(0, T::touch)
    }
}

impl<T: StateKey> StateKey for Option<T> {
    type Stored = Self;

    const FLINK_HASH: bool = T::FLINK_HASH;

    fn flink_hash(&self) -> Option<i32> {
        match self {
            None if T::FLINK_HASH => Some(0),
            None => None,
            Some(inner) => inner.flink_hash(),
        }
    }
}

impl<T: OrderedKey> OrderedKey for Option<T> {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(inner) => {
                out.push(1);
                inner.encode_ordered(out);
            }
        }
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        Ok(if get_flag(input)? {
            Some(T::decode_ordered(input)?)
        } else {
            None
        })
    }
}

impl<T: StateType> StateType for Box<T> {
    const FIXED_SIZE: Option<usize> = T::FIXED_SIZE;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        T::schema()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        T::decode(input).map(Self::new)
    }

    fn to_value(&self) -> Value {
        T::to_value(self)
    }

    fn from_value(value: Value) -> Result<Self> {
        T::from_value(value).map(Self::new)
    }

    fn heap_size(&self) -> usize {
        size_of::<T>() + T::heap_size(self)
    }

    #[inline]
    fn touch(&self) -> u8 {
        T::touch(self)
    }
}

impl<T: StateKey> StateKey for Box<T> {
    type Stored = Self;

    const FLINK_HASH: bool = T::FLINK_HASH;

    #[inline]
    fn stable_hash(&self) -> u64 {
        T::stable_hash(self)
    }

    fn flink_hash(&self) -> Option<i32> {
        T::flink_hash(self)
    }
}

impl<T: OrderedKey> OrderedKey for Box<T> {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        T::encode_ordered(self, out);
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        T::decode_ordered(input).map(Self::new)
    }
}

macro_rules! tuple {
    ($($name:ident . $index:tt),+) => {
        impl<$($name: StateType),+> StateType for ($($name,)+) {
            const FIXED_SIZE: Option<usize> = {
                let sum = Some(0);
                $(let sum = add_sizes(sum, $name::FIXED_SIZE);)+
                sum
            };
            const HAS_HEAP: bool = $($name::HAS_HEAP)||+;

            fn schema() -> Schema {
                Schema::Tuple(vec![$($name::schema()),+])
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode(out);)+
            }

            #[inline]
            fn decode(input: &mut &[u8]) -> Result<Self> {
                Ok(($($name::decode(input)?,)+))
            }

            fn to_value(&self) -> Value {
                Value::Tuple(vec![$(self.$index.to_value()),+])
            }

            fn from_value(value: Value) -> Result<Self> {
                const ARITY: usize = [$($index),+].len();
                let parts = match value {
                    Value::Tuple(parts) => parts,
                    other => return Err(other.mismatch(&Self::schema())),
                };
                match <[Value; ARITY]>::try_from(parts) {
                    #[allow(non_snake_case, reason = "the parts are named as the type parameters")]
                    Ok([$($name),+]) => Ok(($($name::from_value($name)?,)+)),
                    Err(parts) => Err(Error::incompatible(format!(
                        "a tuple of {} can't become a tuple of {ARITY}",
                        parts.len()
                    ))),
                }
            }

            fn heap_size(&self) -> usize {
                0 $(+ self.$index.heap_size())+
            }

            #[inline]
            fn touch(&self) -> u8 {
                0 $(^ self.$index.touch())+
            }

            const IN_PLACE: bool = $($name::IN_PLACE)&&+;

            #[inline]
            fn put_in_place(&self, mut place: &mut [u8]) {
                $(place = put_first(&self.$index, place);)+
                let _ = place;
            }
        }

        impl<$($name: StateKey),+> StateKey for ($($name,)+) {
            type Stored = Self;

            const FLINK_HASH: bool = $($name::FLINK_HASH)&&+;

            /// The hash code of Flink's Java tuples.
            fn flink_hash(&self) -> Option<i32> {
                let hash = 0i32;
                $(let hash = hash.wrapping_mul(31).wrapping_add(self.$index.flink_hash()?);)+
                Some(hash)
            }
        }

        impl<$($name: OrderedKey),+> OrderedKey for ($($name,)+) {
            fn encode_ordered(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_ordered(out);)+
            }

            fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
                Ok(($($name::decode_ordered(input)?,)+))
            }
        }
    };
}

tuple!(A.0);
tuple!(A.0, B.1);
tuple!(A.0, B.1, C.2);
tuple!(A.0, B.1, C.2, D.3);
tuple!(A.0, B.1, C.2, D.3, E.4);
tuple!(A.0, B.1, C.2, D.3, E.4, F.5);
tuple!(A.0, B.1, C.2, D.3, E.4, F.5, G.6);
tuple!(A.0, B.1, C.2, D.3, E.4, F.5, G.6, H.7);
