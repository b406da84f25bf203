//! Maps and sets of std.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use crate::wire::{get_len, put_varint, reserve};
use crate::{Error, Result, Schema, StateKey, StateType, Value};

use super::sequence::{get_element, heap_of, put_element, put_sequence};

#[cold]
fn duplicate() -> Error {
    Error::corrupt("a map or set holds the same key twice")
}

fn map_schema<K: StateType, V: StateType>() -> Schema {
    Schema::Map(Box::new(K::schema()), Box::new(V::schema()))
}

fn set_schema<T: StateType>() -> Schema {
    Schema::Set(Box::new(T::schema()))
}

/// Appends an entry. A key that encodes to nothing is marked; the value behind it needs no mark of its own.
fn put_entry<K: StateType, V: StateType>(key: &K, value: &V, out: &mut Vec<u8>) {
    put_element(key, out);
    value.encode(out);
}

/// Reads entries and hands them to `insert`, which says whether the key is new.
fn get_entries<K: StateType, V: StateType>(
    len: usize,
    input: &mut &[u8],
    mut insert: impl FnMut(K, V) -> bool,
) -> Result<()> {
    for _ in 0..len {
        let key = get_element(input)?;
        if !insert(key, V::decode(input)?) {
            return Err(duplicate());
        }
    }
    Ok(())
}

fn entries_from_value<K: StateType, V: StateType>(
    value: Value,
    schema: impl FnOnce() -> Schema,
    mut insert: impl FnMut(K, V) -> bool,
) -> Result<()> {
    match value {
        Value::Map(entries) => {
            for (key, value) in entries {
                if !insert(K::from_value(key)?, V::from_value(value)?) {
                    return Err(duplicate());
                }
            }
            Ok(())
        }
        other => Err(other.mismatch(&schema())),
    }
}

fn elements_from_value<T: StateType>(
    value: Value,
    schema: impl FnOnce() -> Schema,
    mut insert: impl FnMut(T) -> bool,
) -> Result<()> {
    match value {
        Value::List(items) => {
            for item in items {
                if !insert(T::from_value(item)?) {
                    return Err(duplicate());
                }
            }
            Ok(())
        }
        other => Err(other.mismatch(&schema())),
    }
}

/// Appends pieces in byte order behind their number, so that equal collections have equal bytes.
fn put_sorted(mut pieces: Vec<Vec<u8>>, out: &mut Vec<u8>) {
    pieces.sort_unstable();
    put_varint(out, pieces.len() as u64);
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Estimates the nodes of a B-tree: of 11 entries each and two thirds full, where random insertion leaves them, with the
/// tree's own pointers. Ascending insertion leaves them emptier, by a fifth.
fn btree_bytes(len: usize, entry: usize) -> usize {
    const NODE: usize = 11;
    // Entries, the pointer to the parent, two counters.
    let leaf = NODE * entry + 16;
    match len {
        0 => 0,
        1..=NODE => leaf,
        // 7.5 entries a node on average, and the pointers of the inner ones spread over all.
        _ => len * (leaf + 11) * 2 / 15,
    }
}

/// Computes the allocation of a hash table: a power of two of buckets, 7/8 of them usable, one control byte each.
fn hash_table_bytes(capacity: usize, entry: usize) -> usize {
    match capacity {
        0 => 0,
        1..=3 => 4 * (entry + 1) + 16,
        4..=7 => 8 * (entry + 1) + 16,
        _ => (capacity * 8 / 7).next_power_of_two() * (entry + 1) + 16,
    }
}

impl<K: StateType + Ord, V: StateType> StateType for BTreeMap<K, V> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        map_schema::<K, V>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (key, value) in self {
            put_entry(key, value, out);
        }
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let len = get_len(input)?;
        let mut map = Self::new();
        get_entries(len, input, |k, v| map.insert(k, v).is_none())?;
        Ok(map)
    }

    fn to_value(&self) -> Value {
        Value::Map(
            self.iter()
                .map(|(k, v)| (k.to_value(), v.to_value()))
                .collect(),
        )
    }

    fn from_value(value: Value) -> Result<Self> {
        let mut map = Self::new();
        entries_from_value(value, Self::schema, |k, v| map.insert(k, v).is_none())?;
        Ok(map)
    }

    fn heap_size(&self) -> usize {
        btree_bytes(self.len(), size_of::<K>() + size_of::<V>())
            + heap_of(self.keys())
            + heap_of(self.values())
    }
}

impl<K: StateKey + Ord, V: StateKey> StateKey for BTreeMap<K, V> {
    type Stored = Self;
}

impl<T: StateType + Ord> StateType for BTreeSet<T> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        set_schema::<T>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_sequence(self.iter(), out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let len = get_len(input)?;
        let mut set = Self::new();
        for _ in 0..len {
            if !set.insert(get_element(input)?) {
                return Err(duplicate());
            }
        }
        Ok(set)
    }

    fn to_value(&self) -> Value {
        Value::List(self.iter().map(T::to_value).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        let mut set = Self::new();
        elements_from_value(value, Self::schema, |item| set.insert(item))?;
        Ok(set)
    }

    fn heap_size(&self) -> usize {
        btree_bytes(self.len(), size_of::<T>()) + heap_of(self.iter())
    }
}

impl<T: StateKey + Ord> StateKey for BTreeSet<T> {
    type Stored = Self;
}

impl<K, V, S> StateType for HashMap<K, V, S>
where
    K: StateType + Eq + Hash,
    V: StateType,
    S: BuildHasher + Default + Clone + Send + Sync + 'static,
{
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        map_schema::<K, V>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let piece = |(key, value): (&K, &V)| {
            let mut piece = Vec::new();
            put_entry(key, value, &mut piece);
            piece
        };
        put_sorted(self.iter().map(piece).collect(), out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let len = get_len(input)?;
        let mut map = Self::with_capacity_and_hasher(reserve::<(K, V)>(len, input), S::default());
        get_entries(len, input, |k, v| map.insert(k, v).is_none())?;
        Ok(map)
    }

    fn to_value(&self) -> Value {
        let mut entries: Vec<_> = self
            .iter()
            .map(|(key, value)| {
                let mut encoded = Vec::new();
                put_entry(key, value, &mut encoded);
                (encoded, (key.to_value(), value.to_value()))
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Value::Map(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        let mut map = Self::default();
        entries_from_value(value, Self::schema, |k, v| map.insert(k, v).is_none())?;
        Ok(map)
    }

    fn heap_size(&self) -> usize {
        hash_table_bytes(self.capacity(), size_of::<(K, V)>())
            + heap_of(self.keys())
            + heap_of(self.values())
    }
}

impl<T, S> StateType for HashSet<T, S>
where
    T: StateType + Eq + Hash,
    S: BuildHasher + Default + Clone + Send + Sync + 'static,
{
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        set_schema::<T>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let piece = |item: &T| {
            let mut piece = Vec::new();
            put_element(item, &mut piece);
            piece
        };
        put_sorted(self.iter().map(piece).collect(), out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let len = get_len(input)?;
        let mut set = Self::with_capacity_and_hasher(reserve::<T>(len, input), S::default());
        for _ in 0..len {
            if !set.insert(get_element(input)?) {
                return Err(duplicate());
            }
        }
        Ok(set)
    }

    fn to_value(&self) -> Value {
        let mut items: Vec<_> = self
            .iter()
            .map(|item| {
                let mut encoded = Vec::new();
                item.encode(&mut encoded);
                (encoded, item.to_value())
            })
            .collect();
        items.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Value::List(items.into_iter().map(|(_, item)| item).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        let mut set = Self::default();
        elements_from_value(value, Self::schema, |item| set.insert(item))?;
        Ok(set)
    }

    fn heap_size(&self) -> usize {
        hash_table_bytes(self.capacity(), size_of::<T>()) + heap_of(self.iter())
    }
}
