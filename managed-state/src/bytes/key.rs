use state_api::{KeyGroup, StateKey};

use crate::format::put_group_prefix;

/// The key of the record at hand as it stands at the front of stored keys, encoded once for all states.
#[derive(Clone, Debug)]
pub struct ByteKey {
    bytes: Vec<u8>,
    prefix_len: usize,
    group: KeyGroup,
}

impl ByteKey {
    /// Creates a key that is not bound yet; `prefix_len` is the length of the key-group prefix in bytes, 1 or 2.
    #[must_use]
    pub fn new(prefix_len: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(32),
            prefix_len,
            group: KeyGroup(0),
        }
    }

    /// Binds the key of a record.
    #[inline]
    pub fn bind<K: StateKey>(&mut self, key: &K, group: KeyGroup) {
        self.group = group;
        self.bytes.clear();
        put_group_prefix(group, self.prefix_len, &mut self.bytes);
        key.encode(&mut self.bytes);
    }

    /// Returns the key group.
    #[must_use]
    pub fn group(&self) -> KeyGroup {
        self.group
    }

    /// Returns the prefix of the key group.
    #[inline]
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        self.bytes.get(..self.prefix_len).unwrap_or_default()
    }

    /// Returns prefix and encoded key: all of a stored key where there is no namespace.
    #[inline]
    #[must_use]
    pub fn stored(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the encoded key without prefix.
    #[inline]
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        self.bytes.get(self.prefix_len..).unwrap_or_default()
    }
}
