//! Numbers, `bool`, `char`, `()`, `Duration`.
use std::time::Duration;

use crate::hash::{fold64, hash_bytes};
use crate::schema::IntType;
use crate::wire::{get_u8, take, take_array};
use crate::{Error, OrderedKey, Result, Schema, StateKey, StateType, Value};

/// How Java hashes an integer type, where it has one.
macro_rules! flink_int {
    (itself, $self:ident) => {
        Some(i32::from(*$self))
    };
    (long, $self:ident) => {
        Some(fold64($self.cast_unsigned()))
    };
    (none, $self:ident) => {
        None
    };
}

macro_rules! has_flink_int {
    (none) => {
        false
    };
    ($other:ident) => {
        true
    };
}

macro_rules! integer {
    ($($int:ident, $stored:ident, $kind:ident, $unsigned:ident, $sign_flip:expr, $value:ident, $wide:ident, $java:ident;)*) => {$(
        impl StateType for $int {
            const FIXED_SIZE: Option<usize> = Some(size_of::<$stored>());
            const HAS_HEAP: bool = false;

            fn schema() -> Schema {
                Schema::Int(IntType::$kind)
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as $stored).to_le_bytes());
            }

            #[inline]
            fn decode(input: &mut &[u8]) -> Result<Self> {
                narrow_stored($stored::from_le_bytes(take_array(input)?))
            }

            #[inline]
            fn touch(&self) -> u8 {
                *self as u8
            }

            const IN_PLACE: bool = true;

            #[inline]
            fn put_in_place(&self, place: &mut [u8]) {
                place.copy_from_slice(&(*self as $stored).to_le_bytes());
            }

            #[inline]
            fn decode_array<const N: usize>(input: &mut &[u8]) -> Result<[Self; N]> {
                let bytes = take(input, N * size_of::<$stored>())?;
                let (places, _) = bytes.as_chunks();
                let mut array = [0; N];
                for (item, place) in array.iter_mut().zip(places) {
                    *item = narrow_stored($stored::from_le_bytes(*place))?;
                }
                Ok(array)
            }

            fn to_value(&self) -> Value {
                Value::$value(*self as $wide)
            }

            fn from_value(value: Value) -> Result<Self> {
                let fitting = match &value {
                    Value::Int(v) => $int::try_from(*v).ok(),
                    Value::UInt(v) => $int::try_from(*v).ok(),
                    _ => None,
                };
                fitting.ok_or_else(|| value.mismatch(&Self::schema()))
            }

            integer!(@byte_hooks $int);
        }

        impl StateKey for $int {
            type Stored = Self;

            const FLINK_HASH: bool = has_flink_int!($java);

            #[inline]
            fn stable_hash(&self) -> u64 {
                hash_bytes(&(*self as $stored).to_le_bytes())
            }

            #[inline]
            fn flink_hash(&self) -> Option<i32> {
                flink_int!($java, self)
            }
        }

        impl OrderedKey for $int {
            #[inline]
            fn encode_ordered(&self, out: &mut Vec<u8>) {
                let flipped = (*self as $stored) as $unsigned ^ $sign_flip;
                out.extend_from_slice(&flipped.to_be_bytes());
            }

            #[inline]
            fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
                let flipped = $unsigned::from_be_bytes(take_array(input)?);
                narrow_stored((flipped ^ $sign_flip) as $stored)
            }
        }
    )*};
    (@byte_hooks u8) => {
        const IS_BYTE: bool = true;

        #[inline]
        fn slice_bytes(items: &[Self]) -> Option<&[u8]> {
            Some(items)
        }

        #[inline]
        fn vec_from_bytes(bytes: &[u8]) -> Option<Vec<Self>> {
            Some(bytes.to_vec())
        }

        #[inline]
        fn array_from_bytes<const N: usize>(bytes: [u8; N]) -> Option<[Self; N]> {
            Some(bytes)
        }
    };
    (@byte_hooks $other:ident) => {};
}

/// Converts from the stored width, which only `usize` and `isize` can fail to hold.
#[inline]
fn narrow_stored<S, T: TryFrom<S>>(stored: S) -> Result<T> {
    T::try_from(stored).map_err(|_| Error::corrupt("number exceeds the word size of this machine"))
}

integer! {
    u8, u8, U8, u8, 0, UInt, u128, none;
    u16, u16, U16, u16, 0, UInt, u128, none;
    u32, u32, U32, u32, 0, UInt, u128, none;
    u64, u64, U64, u64, 0, UInt, u128, none;
    u128, u128, U128, u128, 0, UInt, u128, none;
    usize, u64, U64, u64, 0, UInt, u128, none;
    i8, i8, I8, u8, 1 << 7, Int, i128, itself;
    i16, i16, I16, u16, 1 << 15, Int, i128, itself;
    i32, i32, I32, u32, 1 << 31, Int, i128, itself;
    i64, i64, I64, u64, 1 << 63, Int, i128, long;
    i128, i128, I128, u128, 1 << 127, Int, i128, none;
    isize, i64, I64, u64, 1 << 63, Int, i128, none;
}

impl StateType for f32 {
    const FIXED_SIZE: Option<usize> = Some(4);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::F32
    }

    #[inline]
    fn touch(&self) -> u8 {
        self.to_bits() as u8
    }

    const IN_PLACE: bool = true;

    #[inline]
    fn put_in_place(&self, place: &mut [u8]) {
        place.copy_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(Self::from_le_bytes(take_array(input)?))
    }

    fn to_value(&self) -> Value {
        Value::F32(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::F32(v) => Ok(v),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

impl StateType for f64 {
    const FIXED_SIZE: Option<usize> = Some(8);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::F64
    }

    #[inline]
    fn touch(&self) -> u8 {
        self.to_bits() as u8
    }

    const IN_PLACE: bool = true;

    #[inline]
    fn put_in_place(&self, place: &mut [u8]) {
        place.copy_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(Self::from_le_bytes(take_array(input)?))
    }

    fn to_value(&self) -> Value {
        Value::F64(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::F64(v) => Ok(v),
            Value::F32(v) => Ok(Self::from(v)),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

/// Reads a byte that is 0 or 1.
pub(crate) fn get_flag(input: &mut &[u8]) -> Result<bool> {
    match get_u8(input)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corrupt(format!("byte {other} is neither 0 nor 1"))),
    }
}

impl StateType for bool {
    const FIXED_SIZE: Option<usize> = Some(1);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::Bool
    }

    const IN_PLACE: bool = true;

    #[inline]
    fn put_in_place(&self, place: &mut [u8]) {
        place.copy_from_slice(&[u8::from(*self)]);
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        get_flag(input)
    }

    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Bool(v) => Ok(v),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

impl StateKey for bool {
    type Stored = Self;

    const FLINK_HASH: bool = true;

    #[inline]
    fn stable_hash(&self) -> u64 {
        hash_bytes(&[u8::from(*self)])
    }

    fn flink_hash(&self) -> Option<i32> {
        Some(if *self { 1231 } else { 1237 })
    }
}

impl OrderedKey for bool {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        Self::decode(input)
    }
}

/// Turns a stored code point into a character.
pub(crate) fn char_of(code: u32) -> Result<char> {
    char::from_u32(code).ok_or_else(|| Error::corrupt(format!("{code:#x} is not a character")))
}

impl StateType for char {
    const FIXED_SIZE: Option<usize> = Some(4);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::Char
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u32::from(*self).to_le_bytes());
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        char_of(u32::from_le_bytes(take_array(input)?))
    }

    fn to_value(&self) -> Value {
        Value::Char(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Char(v) => Ok(v),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

impl StateKey for char {
    type Stored = Self;

    #[inline]
    fn stable_hash(&self) -> u64 {
        hash_bytes(&u32::from(*self).to_le_bytes())
    }
}

impl OrderedKey for char {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&u32::from(*self).to_be_bytes());
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        char_of(u32::from_be_bytes(take_array(input)?))
    }
}

impl StateType for () {
    const FIXED_SIZE: Option<usize> = Some(0);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::Unit
    }

    const IN_PLACE: bool = true;

    #[inline]
    fn put_in_place(&self, _place: &mut [u8]) {}

    #[inline]
    fn encode(&self, _out: &mut Vec<u8>) {}

    #[inline]
    fn decode(_input: &mut &[u8]) -> Result<Self> {
        Ok(())
    }

    fn to_value(&self) -> Value {
        Value::Unit
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Unit => Ok(()),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

impl StateKey for () {
    type Stored = Self;
}

impl OrderedKey for () {
    fn encode_ordered(&self, _out: &mut Vec<u8>) {}

    fn decode_ordered(_input: &mut &[u8]) -> Result<Self> {
        Ok(())
    }
}

/// Builds a duration of stored parts.
pub(crate) fn duration_of(seconds: u64, nanos: u32) -> Result<Duration> {
    if nanos >= 1_000_000_000 {
        return Err(Error::corrupt(format!("{nanos} ns is a second or more")));
    }
    Ok(Duration::new(seconds, nanos))
}

impl StateType for Duration {
    const FIXED_SIZE: Option<usize> = Some(12);
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        Schema::Duration
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.as_secs().to_le_bytes());
        out.extend_from_slice(&self.subsec_nanos().to_le_bytes());
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let seconds = u64::from_le_bytes(take_array(input)?);
        duration_of(seconds, u32::from_le_bytes(take_array(input)?))
    }

    fn to_value(&self) -> Value {
        Value::Duration(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Duration(v) => Ok(v),
            other => Err(other.mismatch(&Self::schema())),
        }
    }
}

impl StateKey for Duration {
    type Stored = Self;
}

impl OrderedKey for Duration {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.as_secs().to_be_bytes());
        out.extend_from_slice(&self.subsec_nanos().to_be_bytes());
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        let seconds = u64::from_be_bytes(take_array(input)?);
        duration_of(seconds, u32::from_be_bytes(take_array(input)?))
    }
}
