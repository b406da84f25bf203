//! Operator state as bytes, for whoever reads or changes a snapshot without the program that wrote it.
use bytes::Bytes;
use state_api::wire::{expect_end, get_bytes, get_len, put_bytes, put_varint};
use state_api::{
    CheckpointStorage, CheckpointStream, Error, OperatorStateHandle, OperatorStateMode,
    OperatorStatePart, Result, StateHandle, StateMeta,
};

use super::states::element;
use crate::format::{OPERATOR_MAGIC, check_header, header, naming, object_name, read_all};

/// An operator state with its elements, each as it is stored.
#[derive(Clone, Debug)]
pub struct StoredOperatorState {
    /// Name, kind and types.
    pub meta: StateMeta,
    /// How it is dealt out.
    pub mode: OperatorStateMode,
    /// The elements of a list; of a broadcast state one, the whole map.
    pub elements: Vec<Bytes>,
}

/// Reads the states of a handle, the object's digest checked.
///
/// # Errors
/// `Corrupt`, naming the object, when bytes are missing or damaged; those of the storage.
pub async fn read_operator_states(
    handle: &OperatorStateHandle,
    storage: &dyn CheckpointStorage,
) -> Result<Vec<StoredOperatorState>> {
    let stream = read_all(&handle.bytes, storage).await?;
    let cut = || {
        check_header(OPERATOR_MAGIC, &stream)?;
        let of_part = |part: &OperatorStatePart| {
            let elements = part.elements.iter();
            let elements = elements.map(|&(offset, len)| element(&stream, part, offset, len));
            Ok(StoredOperatorState {
                meta: part.meta.clone(),
                mode: part.mode,
                elements: elements.collect::<Result<_>>()?,
            })
        };
        handle
            .states
            .iter()
            .map(of_part)
            .collect::<Result<Vec<_>>>()
    };
    cut().map_err(|e| naming(e, &object_name(&handle.bytes)))
}

/// Writes states as one stream; no handle if there are none.
///
/// # Errors
/// Those of the storage.
pub async fn write_operator_states(
    states: Vec<StoredOperatorState>,
    mut stream: Box<dyn CheckpointStream>,
) -> Result<Option<OperatorStateHandle>> {
    if states.is_empty() {
        stream.abort().await;
        return Ok(None);
    }
    stream
        .write(Bytes::copy_from_slice(&header(OPERATOR_MAGIC)))
        .await?;
    let mut parts = Vec::with_capacity(states.len());
    for state in states {
        let mut elements = Vec::with_capacity(state.elements.len());
        for element in state.elements {
            elements.push((stream.position(), element.len() as u64));
            stream.write(element).await?;
        }
        parts.push(OperatorStatePart {
            meta: state.meta,
            mode: state.mode,
            elements,
        });
    }
    let bytes = stream.finish().await?;
    Ok(Some(OperatorStateHandle {
        states: parts,
        bytes: bytes.unwrap_or_else(|| StateHandle::Inline(Bytes::new())),
    }))
}

/// Reads the keys and values of a broadcast state out of its element, still encoded.
///
/// # Errors
/// `Corrupt` when the bytes are no such map.
pub fn broadcast_entries(element: &[u8]) -> Result<Vec<(&[u8], &[u8])>> {
    let mut input = element;
    let len = get_len(&mut input)?;
    let mut entries = Vec::new();
    for _ in 0..len {
        entries.push((get_bytes(&mut input)?, get_bytes(&mut input)?));
    }
    expect_end(input)?;
    Ok(entries)
}

/// Makes the element of a broadcast state out of encoded keys and values, in any order.
///
/// # Errors
/// `InvalidArgument` when a key is there twice.
pub fn broadcast_element(mut entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Bytes> {
    // Equal maps have equal bytes.
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::invalid("a broadcast state has each key once"));
    }
    let mut out = Vec::new();
    put_varint(&mut out, entries.len() as u64);
    for (key, value) in entries {
        put_bytes(&mut out, &key);
        put_bytes(&mut out, &value);
    }
    Ok(out.into())
}
