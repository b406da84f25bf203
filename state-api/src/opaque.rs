use std::ops::{Deref, DerefMut};

use crate::wire::{get_bytes, put_varint};
use crate::{Error, Result, Schema, StateKey, StateType, Value};

/// A type with an encoding of its own and no schema; wrapped in [`Opaque`] it can be state.
///
/// # Contract
/// Implemented by users for types of other crates or with a format of their own; called where [`StateType`] is.
/// - `decode(encode(x))` gives `x`; `decode` returns an error on bad bytes and doesn't panic.
/// - [`CODEC_ID`](Self::CODEC_ID) and [`VERSION`](Self::VERSION) name the encoding: bytes written under another id or version
///   are incompatible, unless a conversion is registered for them.
pub trait OpaqueType: Clone + Send + Sync + 'static {
    /// Names the codec; stored with the state.
    const CODEC_ID: &'static str;

    /// The version of the codec; stored with the state, raised when the encoding changes.
    const VERSION: u32;

    /// Appends the encoding; its length is kept around it.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads a value that takes up all of the bytes.
    ///
    /// # Errors
    /// Any, when the bytes are not the encoding of a value; `Corrupt` is what callers expect.
    fn decode(bytes: &[u8]) -> Result<Self>;

    /// Estimates the bytes of heap memory that the value owns.
    fn heap_size(&self) -> usize {
        0
    }
}

/// An [`OpaqueType`] that can be a key.
///
/// # Contract
/// `a == b` ⇔ equal encodings, on every platform and in every version of the program.
pub trait OpaqueKey: OpaqueType + Eq {}

/// Makes state of a type that has no schema; checkpoints show it as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opaque<T>(pub T);

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Opaque<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: OpaqueType> StateType for Opaque<T> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        Schema::Opaque {
            codec: T::CODEC_ID.to_owned(),
            version: T::VERSION,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // The length goes in front once it is known: the content is encoded in place and moved by the length's bytes.
        let start = out.len();
        self.0.encode(out);
        let len = out.len() - start;
        let mut frame = Vec::with_capacity(10);
        put_varint(&mut frame, len as u64);
        out.splice(start..start, frame);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        decode_content(get_bytes(input)?)
    }

    fn to_value(&self) -> Value {
        let mut bytes = Vec::new();
        self.0.encode(&mut bytes);
        Value::Opaque {
            codec: T::CODEC_ID.into(),
            version: T::VERSION,
            bytes,
        }
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Opaque {
                codec,
                version,
                bytes,
            } if codec == T::CODEC_ID && version == T::VERSION => decode_content(&bytes),
            Value::Opaque { codec, version, .. } => Err(Error::incompatible(format!(
                "opaque state of codec {codec:?} version {version} is read by codec {:?} version {}",
                T::CODEC_ID,
                T::VERSION
            ))),
            other => Err(other.mismatch(&Self::schema())),
        }
    }

    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }
}

fn decode_content<T: OpaqueType>(bytes: &[u8]) -> Result<Opaque<T>> {
    T::decode(bytes)
        .map(Opaque)
        .map_err(|e| e.with("codec", T::CODEC_ID).with("version", T::VERSION))
}

impl<T: OpaqueKey> StateKey for Opaque<T> {
    type Stored = Self;
}
