use std::sync::Arc;

use managed_state::format::{CompositeLayout, Elements, split_timestamp};
use state_api::wire::{expect_end, take_array};
use state_api::{Error, OperatorUid, Result, StateKind, StateMeta, TypeMeta, Value};

use crate::entry::Entry;
use crate::keyed::StoredEntry;

/// The flipped sign bit of a timer's time.
const SIGN: u64 = 1 << 63;

/// The parts of a stored key.
pub(crate) struct KeyParts<'a> {
    pub(crate) time_ms: Option<i64>,
    pub(crate) key: (Value, &'a [u8]),
    pub(crate) namespace: (Value, &'a [u8]),
    /// The map key, encoded; empty for other kinds.
    pub(crate) rest: &'a [u8],
}

/// Returns how key and namespace of a state are put together.
pub(crate) fn layout(meta: &StateMeta) -> CompositeLayout {
    CompositeLayout::for_sizes(
        meta.key.schema.fixed_size(),
        meta.namespace.schema.fixed_size(),
    )
}

/// Takes a stored key apart.
pub(crate) fn split_key<'a>(meta: &StateMeta, stored: &'a [u8]) -> Result<KeyParts<'a>> {
    let mut input = stored;
    let time_ms = match meta.kind {
        StateKind::Timer => {
            let flipped = u64::from_be_bytes(take_array(&mut input)?);
            Some((flipped ^ SIGN).cast_signed())
        }
        _ => None,
    };
    let layout = layout(meta);
    let key = layout.take_value(&meta.key.schema, &mut input)?;
    let namespace = layout.take_value(&meta.namespace.schema, &mut input)?;
    if !matches!(meta.kind, StateKind::Map | StateKind::SortedMap) {
        expect_end(input)?;
    }
    Ok(KeyParts {
        time_ms,
        key,
        namespace,
        rest: input,
    })
}

/// Appends the time of a timer as it stands before its key.
pub(crate) fn put_time(time_ms: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&(time_ms.cast_unsigned() ^ SIGN).to_be_bytes());
}

/// Reads a value of a type that takes up all of the bytes.
pub(crate) fn decode_all(of: &TypeMeta, bytes: &[u8]) -> Result<Value> {
    let mut input = bytes;
    let value = of.codec.decode_value(&of.schema, &mut input)?;
    expect_end(input)?;
    Ok(value)
}

/// Returns the type of a state's map keys.
pub(crate) fn map_key_type(meta: &StateMeta) -> Result<&TypeMeta> {
    meta.map_key
        .as_ref()
        .ok_or_else(|| Error::corrupt("a map lacks the type of its keys"))
}

/// Reads the map key of a keyed map: in the compact encoding, or in the ordered one if the map is sorted.
pub(crate) fn decode_map_key(meta: &StateMeta, bytes: &[u8]) -> Result<Value> {
    let schema = &map_key_type(meta)?.schema;
    let mut input = bytes;
    let value = match meta.kind {
        StateKind::SortedMap => schema.decode_ordered(&mut input)?,
        _ => schema.decode_compact(&mut input)?,
    };
    expect_end(input)?;
    Ok(value)
}

/// Turns the stored entries of an operator's subtask into dynamic values.
pub(crate) struct Decoder {
    operator: OperatorUid,
    subtask: u32,
}

impl Decoder {
    pub(crate) fn new(operator: OperatorUid, subtask: u32) -> Self {
        Self { operator, subtask }
    }

    /// Decodes one stored entry and hands over what is in it.
    pub(crate) fn entry(
        &self,
        stored: StoredEntry<'_>,
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        self.decode(stored, take).map_err(|e| {
            if e.context("state").is_some() {
                return e;
            }
            e.with("state", &stored.state.name)
        })
    }

    fn decode(
        &self,
        stored: StoredEntry<'_>,
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let meta = stored.state;
        let parts = split_key(meta, stored.key)?;
        let mut entry = self.blank(meta);
        entry.key_group = Some(stored.group);
        entry.key = Some(parts.key.0);
        entry.namespace = Some(parts.namespace.0).filter(|namespace| *namespace != Value::Unit);
        entry.time_ms = parts.time_ms;
        match meta.kind {
            StateKind::Timer => take(entry),
            StateKind::List => {
                let mut elements = Elements::new(stored.value, meta.ttl_ms.is_some());
                let mut index = 0;
                while let Some((renewed_ms, bytes)) = elements.next()? {
                    let mut element = entry.clone();
                    element.index = Some(index);
                    element.value = Some(decode_all(&meta.value, bytes)?);
                    if meta.ttl_ms.is_some() {
                        renew(&mut element, meta, renewed_ms);
                    }
                    take(element)?;
                    index += 1;
                }
                Ok(())
            }
            _ => {
                if matches!(meta.kind, StateKind::Map | StateKind::SortedMap) {
                    entry.map_key = Some(decode_map_key(meta, parts.rest)?);
                }
                let mut value = stored.value;
                if meta.ttl_ms.is_some() {
                    let (renewed_ms, rest) = split_timestamp(value)?;
                    renew(&mut entry, meta, renewed_ms);
                    value = rest;
                }
                entry.value = Some(decode_all(&meta.value, value)?);
                take(entry)
            }
        }
    }

    /// An entry of a state without its contents.
    pub(crate) fn blank(&self, meta: &StateMeta) -> Entry {
        Entry {
            operator: self.operator.clone(),
            subtask: self.subtask,
            state: Arc::clone(&meta.name),
            kind: meta.kind,
            mode: None,
            key_group: None,
            key: None,
            namespace: None,
            map_key: None,
            index: None,
            time_ms: None,
            value: None,
            renewed_ms: None,
            expires_ms: None,
        }
    }
}

fn renew(entry: &mut Entry, meta: &StateMeta, renewed_ms: i64) {
    entry.renewed_ms = Some(renewed_ms);
    entry.expires_ms = meta.ttl_ms.map(|ttl_ms| renewed_ms.saturating_add(ttl_ms));
}
