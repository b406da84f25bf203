//! From a key to its key group: hash ids, Flink's mixing function, the hashes of strings and encodings.
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, KeyGroup, MaxParallelism, Result, StateKey, StateType};

/// Names the function that turns a key into its key group; stored in every checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashId {
    /// 64 bits of XXH3 without a seed ([`StateKey::stable_hash`]), folded to 32 bits.
    #[default]
    Holdfast1,
    /// Java's `hashCode` ([`StateKey::flink_hash`]), for keys whose state was written by Flink.
    Flink,
}

impl HashId {
    /// Returns the name that is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Holdfast1 => "holdfast-1",
            Self::Flink => "flink",
        }
    }

    /// Parses a stored name.
    ///
    /// # Errors
    /// `Unsupported` when the name is none of `holdfast-1` and `flink`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "holdfast-1" => Ok(Self::Holdfast1),
            "flink" => Ok(Self::Flink),
            _ => Err(Error::unsupported(format!(
                "key hash {name:?} is unknown; known are holdfast-1 and flink"
            ))),
        }
    }

    /// Checks that keys of a type can be hashed; called once when a job starts.
    ///
    /// # Errors
    /// `Unsupported` for [`HashId::Flink`] and a type whose [`StateKey::FLINK_HASH`] is `false`.
    pub fn check<K: StateKey>(self) -> Result<()> {
        if self == Self::Flink && !K::FLINK_HASH {
            return Err(Error::unsupported("the key type has no Java hash code")
                .with("hash", self.as_str())
                .with("type", K::schema()));
        }
        Ok(())
    }

    /// Returns the key group of a key.
    ///
    /// A type that [`HashId::check`] refuses falls back on its stable hash.
    #[inline]
    #[must_use]
    pub fn group<K: StateKey>(self, key: &K, max: MaxParallelism) -> KeyGroup {
        match self {
            Self::Holdfast1 => max.group_of_hash64(key.stable_hash()),
            Self::Flink => max.group_of_hash32(
                key.flink_hash()
                    .unwrap_or_else(|| fold64(key.stable_hash())),
            ),
        }
    }
}

/// The stable hash of a key and its key group, computed once and good wherever the key goes: to choose a channel, then to
/// reach its state.
///
/// It belongs to the key that it was computed from, under one hash id and one number of key groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash {
    stable: u64,
    group: KeyGroup,
}

impl KeyHash {
    /// Hashes a key.
    #[inline]
    #[must_use]
    pub fn of<K: StateKey>(key: &K, hash: HashId, max: MaxParallelism) -> Self {
        let stable = key.stable_hash();
        let group = match hash {
            HashId::Holdfast1 => max.group_of_hash64(stable),
            HashId::Flink => hash.group(key, max),
        };
        Self { stable, group }
    }

    /// Returns the stable hash ([`StateKey::stable_hash`]).
    #[inline]
    #[must_use]
    pub const fn stable(self) -> u64 {
        self.stable
    }

    /// Returns the key group.
    #[inline]
    #[must_use]
    pub const fn group(self) -> KeyGroup {
        self.group
    }
}

impl fmt::Display for HashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for HashId {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

/// Mixes a 32-bit hash into a number that is not negative (Flink's `MathUtils.murmurHash`).
#[inline]
#[must_use]
pub const fn murmur(hash: i32) -> i32 {
    let mut code = hash.cast_unsigned();
    code = code.wrapping_mul(0xcc9e_2d51);
    code = code.rotate_left(15);
    code = code.wrapping_mul(0x1b87_3593);
    code = code.rotate_left(13);
    code = code.wrapping_mul(5).wrapping_add(0xe654_6b64);
    code ^= 4;
    code ^= code >> 16;
    code = code.wrapping_mul(0x85eb_ca6b);
    code ^= code >> 13;
    code = code.wrapping_mul(0xc2b2_ae35);
    code ^= code >> 16;
    non_negative(code.cast_signed())
}

/// Keeps what is not negative, negates the rest; `i32::MIN`, which has no opposite, becomes 0.
#[inline]
const fn non_negative(code: i32) -> i32 {
    if code >= 0 {
        code
    } else if code == i32::MIN {
        0
    } else {
        -code
    }
}

/// Folds 64 bits to 32 by xor of the halves, as Java's `Long.hashCode` does.
#[inline]
#[must_use]
pub const fn fold64(hash: u64) -> i32 {
    ((hash ^ (hash >> 32)) as u32).cast_signed()
}

/// Returns the hash code that Java gives a string: the 31-polynomial over its UTF-16 units.
#[must_use]
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// Hashes bytes as `holdfast-1` does: XXH3, 64 bits, seed 0.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Hashes the compact encoding of a value, which is what `holdfast-1` does with composite keys.
#[inline]
#[must_use]
pub fn hash_encoded<T: StateType>(value: &T) -> u64 {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    // Taken, not borrowed: an `encode` that hashes something itself finds an empty buffer, not a locked one.
    let mut buffer = BUFFER.take();
    buffer.clear();
    value.encode(&mut buffer);
    let hash = xxh3_64(&buffer);
    BUFFER.set(buffer);
    hash
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
