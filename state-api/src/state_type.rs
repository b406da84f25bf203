use crate::hash::hash_encoded;
use crate::{Result, Schema, Value};

/// A type that can be state: it has a schema, a compact encoding of fixed layout and a dynamic form.
///
/// Usually derived (`#[derive(StateType)]`). Implemented for integers, floats, `bool`, `char`, `()`, strings, `Vec`,
/// arrays, `VecDeque`, tuples, `Option`, `Box`, maps and sets of std, `Duration` and `bytes::Bytes`. A type without a
/// schema is wrapped in [`Opaque`](crate::Opaque).
///
/// A type that contains itself has no schema and can't be derived: make the recursive part opaque.
///
/// # Contract
/// Implemented by the derive and by hand; called by backends on the task's thread, by snapshots on CPU threads.
/// - `decode(encode(x)) == x`, taking exactly the bytes that `encode` wrote; what follows stays in the input.
/// - [`Schema::decode_compact`] of `schema()` reads the bytes of `encode` and gives what `to_value` gives.
/// - `from_value(to_value(x)) == x`.
/// - [`FIXED_SIZE`](Self::FIXED_SIZE) is what [`Schema::fixed_size`] of `schema()` says. A type whose values may encode to
///   nothing must say `Some(0)`.
/// - `decode` and `from_value` return an error on any bad input; they don't panic, and don't allocate more than a constant
///   times the input's length.
/// - Values have no interior mutability: a snapshot shares them with the task.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be state",
    note = "derive it with `#[derive(StateType)]`, or wrap a type of another crate in `Opaque`"
)]
pub trait StateType: Sized + Clone + Send + Sync + 'static {
    /// The length of the compact encoding in bytes, if it is the same for all values.
    const FIXED_SIZE: Option<usize>;

    /// Whether values own heap memory; if not, [`StateType::heap_size`] is always 0.
    const HAS_HEAP: bool;

    /// Returns names, order and kinds of the parts.
    fn schema() -> Schema;

    /// Appends the compact encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads a compact encoding and advances the input past it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the encoding of a value.
    fn decode(input: &mut &[u8]) -> Result<Self>;

    /// Returns the dynamic form.
    fn to_value(&self) -> Value;

    /// Builds a value out of the dynamic form of this type or of an older version of it.
    ///
    /// Missing fields take their defaults, unknown fields are dropped, integers and floats are widened.
    ///
    /// # Errors
    /// `Incompatible` when the dynamic value can't become this type.
    fn from_value(value: Value) -> Result<Self>;

    /// Returns the bytes of heap memory that the value owns, its own size not included.
    #[inline]
    fn heap_size(&self) -> usize {
        0
    }

    /// Reads a byte of what the value owns on the heap, and of the value itself; the byte means nothing.
    ///
    /// Whoever encodes many values calls it some values ahead, so that the memory of several is fetched at a time.
    #[inline]
    fn touch(&self) -> u8 {
        0
    }

    /// Whether [`StateType::put_in_place`] works; then [`StateType::FIXED_SIZE`] is some number.
    #[doc(hidden)]
    const IN_PLACE: bool = false;

    /// Writes the compact encoding to a place of just its size.
    #[doc(hidden)]
    #[inline]
    fn put_in_place(&self, _place: &mut [u8]) {
        unreachable!("asked only of types that say so");
    }

    /// Whether the compact encoding is that of a byte string: a length, and what [`StateType::content`] returns.
    #[doc(hidden)]
    const IS_CONTENT: bool = false;

    /// Returns the bytes of a string or byte string.
    #[doc(hidden)]
    #[inline]
    fn content(&self) -> &[u8] {
        unreachable!("asked only of types that say so");
    }

    /// Appends the encodings of values, one after the other.
    #[doc(hidden)]
    #[inline]
    fn encode_slice(items: &[Self], out: &mut Vec<u8>) {
        match Self::FIXED_SIZE {
            Some(size) if Self::IN_PLACE && size > 0 => {
                // Room first, so that what is left is a copy.
                let start = out.len();
                out.resize(start + items.len() * size, 0);
                for (item, place) in items.iter().zip(out[start..].chunks_exact_mut(size)) {
                    item.put_in_place(place);
                }
            }
            _ => items.iter().for_each(|item| item.encode(out)),
        }
    }

    /// Reads as many values as an array has.
    #[doc(hidden)]
    #[inline]
    fn decode_array<const N: usize>(input: &mut &[u8]) -> Result<[Self; N]> {
        crate::types::try_array(|| Self::decode(input))
    }

    /// Whether this is `u8`: sequences of it are byte strings.
    #[doc(hidden)]
    const IS_BYTE: bool = false;

    #[doc(hidden)]
    #[inline]
    fn slice_bytes(_items: &[Self]) -> Option<&[u8]> {
        None
    }

    #[doc(hidden)]
    #[inline]
    fn vec_from_bytes(_bytes: &[u8]) -> Option<Vec<Self>> {
        None
    }

    #[doc(hidden)]
    #[inline]
    fn array_from_bytes<const N: usize>(_bytes: [u8; N]) -> Option<[Self; N]> {
        None
    }
}

/// A [`StateType`] that state can be keyed by.
///
/// Derived with `#[derive(StateType, StateKey)]`. Floats are not keys: `NaN` is not equal to itself, and
/// `0.0` and `-0.0` are equal with different bytes.
///
/// # Contract
/// Called on the task's thread, once per record. `a == b` ⇔ equal compact encodings ⇔ equal stable hashes (up to the
/// collisions of a good 64-bit hash). A stable hash never changes: not with the process, the platform or the version.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key of state",
    note = "derive it with `#[derive(StateType, StateKey)]`; floats and hash maps are never keys"
)]
pub trait StateKey: StateType + Eq {
    /// The form in which live tables keep keys of this type: `Self`, or one that takes less memory and lies closer.
    ///
    /// Its compact encoding and its stable hash are those of the key.
    type Stored: StateKey + StoredKey<Self>;

    /// Whether [`StateKey::flink_hash`] gives a hash for every value of the type.
    const FLINK_HASH: bool = false;

    /// Returns the `holdfast-1` hash: XXH3 (64 bits, seed 0) over the little-endian bytes of a number, `bool` or `char`,
    /// over the content of a string or byte string, over the compact encoding of anything else.
    ///
    /// A struct of a single field hashes as the field does.
    #[inline]
    fn stable_hash(&self) -> u64 {
        hash_encoded(self)
    }

    /// Returns the hash code that Java gives the corresponding type, if there is one.
    #[inline]
    fn flink_hash(&self) -> Option<i32> {
        None
    }
}

/// What a table keeps of a key of type `K`. Each key is its own stored form; short strings have another one.
///
/// # Contract
/// Called on the task's thread. `S::of(&k).is(&k)`, `S::of(&k).to_key() == k`, and `s.is(&k)` ⇔ `s.to_key() == k`.
pub trait StoredKey<K>: Clone + Eq {
    /// Makes the stored form of a key.
    fn of(key: &K) -> Self;

    /// Returns whether this is the stored form of a key.
    fn is(&self, key: &K) -> bool;

    /// Returns the key.
    fn to_key(&self) -> K;
}

impl<K: Clone + Eq> StoredKey<K> for K {
    #[inline]
    fn of(key: &K) -> Self {
        key.clone()
    }

    #[inline]
    fn is(&self, key: &K) -> bool {
        self == key
    }

    #[inline]
    fn to_key(&self) -> K {
        self.clone()
    }
}

/// A [`StateKey`] with an encoding whose byte order is the order of the values, for sorted map states.
///
/// Derived with `#[derive(StateType, StateKey, OrderedKey)]`.
///
/// # Contract
/// `a < b` ⇔ `encode_ordered(a) < encode_ordered(b)` compared as bytes. No encoding is a prefix of another one of the
/// same type, so encodings may be put one after the other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key of a sorted map state",
    note = "derive it with `#[derive(StateType, StateKey, OrderedKey)]`"
)]
pub trait OrderedKey: StateKey + Ord {
    /// Appends the ordered encoding.
    fn encode_ordered(&self, out: &mut Vec<u8>);

    /// Reads an ordered encoding and advances the input past it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not the ordered encoding of a value.
    fn decode_ordered(input: &mut &[u8]) -> Result<Self>;
}
