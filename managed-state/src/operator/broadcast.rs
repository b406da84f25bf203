use std::fmt;

use bytes::Bytes;
use state_api::wire::{expect_end, get_bytes, get_len, put_bytes, put_varint};
use state_api::{Error, OperatorStateMode, Result, StateKey, StateMeta, StateType, TypeMeta};

use super::part::{ElementWriter, FrozenPart, OperatorSlot, Reader};
use crate::live::LiveMap;

/// A map that is the same in every subtask, because all of them see the same broadcast input.
///
/// Nothing enforces that: each subtask keeps its own copy, so apply the same updates everywhere, and don't depend on their order.
#[derive(Clone)]
pub struct BroadcastMap<K: StateKey, V: StateType> {
    entries: LiveMap<K, V>,
}

impl<K: StateKey, V: StateType> BroadcastMap<K, V> {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Returns whether a key is there.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.entries.insert(key, value)
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }

    /// Goes through the entries, letting `keep` change each value or drop the entry by returning false.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain(keep);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Iterates over the entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a view that can't write: what the side that is not broadcast gets.
    #[must_use]
    pub fn view(&self) -> BroadcastView<'_, K, V> {
        BroadcastView { map: self }
    }
}

/// A broadcast state for reading only.
///
/// It has no methods that write:
/// ```compile_fail
/// # use managed_state::operator::BroadcastView;
/// fn write(mut view: BroadcastView<'_, u64, u64>) {
///     view.insert(1, 2);
/// }
/// ```
pub struct BroadcastView<'a, K: StateKey, V: StateType> {
    map: &'a BroadcastMap<K, V>,
}

impl<K: StateKey, V: StateType> fmt::Debug for BroadcastMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastMap")
            .field("len", &self.len())
            .finish()
    }
}

impl<K: StateKey, V: StateType> fmt::Debug for BroadcastView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl<K: StateKey, V: StateType> Clone for BroadcastView<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: StateKey, V: StateType> Copy for BroadcastView<'_, K, V> {}

impl<'a, K: StateKey, V: StateType> BroadcastView<'a, K, V> {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(self, key: &K) -> Option<&'a V> {
        self.map.get(key)
    }

    /// Returns whether a key is there.
    #[must_use]
    pub fn contains(self, key: &K) -> bool {
        self.map.contains(key)
    }

    /// Iterates over the entries, in no order.
    pub fn iter(self) -> impl Iterator<Item = (&'a K, &'a V)> {
        self.map.iter()
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(self) -> usize {
        self.map.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.map.is_empty()
    }
}

pub(super) struct BroadcastSlot<K: StateKey, V: StateType> {
    pub(super) meta: StateMeta,
    pub(super) map: BroadcastMap<K, V>,
}

impl<K: StateKey, V: StateType> BroadcastSlot<K, V> {
    pub(super) fn new(meta: StateMeta) -> Self {
        Self {
            meta,
            map: BroadcastMap {
                entries: LiveMap::new(),
            },
        }
    }
}

fn key_type(meta: &StateMeta) -> Result<&TypeMeta> {
    meta.map_key.as_ref().ok_or_else(|| {
        Error::corrupt("a broadcast state lacks the type of its keys").with("state", &meta.name)
    })
}

impl<K: StateKey, V: StateType> OperatorSlot for BroadcastSlot<K, V> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn mode(&self) -> OperatorStateMode {
        OperatorStateMode::Broadcast
    }

    fn load(&mut self, old: &StateMeta, elements: &[Bytes]) -> Result<()> {
        let keys = Reader::new(
            &self.meta.name,
            "key",
            key_type(old)?,
            key_type(&self.meta)?,
        )?;
        let values = Reader::new(&self.meta.name, "value", &old.value, &self.meta.value)?;
        for element in elements {
            let mut input = &element[..];
            let len = get_len(&mut input)?;
            // A copy out of another handle takes the place of this one.
            self.map.clear();
            for _ in 0..len {
                let key = keys.read(get_bytes(&mut input)?)?;
                let value = values.read(get_bytes(&mut input)?)?;
                if self.map.insert(key, value).is_some() {
                    return Err(Error::corrupt("a broadcast state holds a key twice"));
                }
            }
            expect_end(input)?;
        }
        Ok(())
    }

    fn freeze(&self) -> Box<dyn FrozenPart> {
        Box::new(FrozenBroadcast {
            meta: self.meta.clone(),
            map: self.map.clone(),
        })
    }
}

struct FrozenBroadcast<K: StateKey, V: StateType> {
    meta: StateMeta,
    map: BroadcastMap<K, V>,
}

impl<K: StateKey, V: StateType> FrozenPart for FrozenBroadcast<K, V> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn mode(&self) -> OperatorStateMode {
        OperatorStateMode::Broadcast
    }

    fn encode(&self, out: &mut ElementWriter<'_>) -> Result<()> {
        let codec = key_type(&self.meta)?.codec;
        let encoded_key = |(key, value)| {
            let mut encoded = Vec::new();
            codec.encode::<K>(key, &mut encoded);
            (encoded, value)
        };
        let mut entries: Vec<(Vec<u8>, &V)> = self.map.iter().map(encoded_key).collect();
        // Equal maps have equal bytes.
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let start = out.position();
        put_varint(&mut out.buffer, entries.len() as u64);
        let mut encoded = Vec::new();
        for (key, value) in entries {
            put_bytes(&mut out.buffer, &key);
            encoded.clear();
            self.meta.value.codec.encode(value, &mut encoded);
            put_bytes(&mut out.buffer, &encoded);
            out.flush_if_full()?;
        }
        out.end_element(start)
    }
}
