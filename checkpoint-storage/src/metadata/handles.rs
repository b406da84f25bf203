//! The bytes of handles.
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use state_api::wire::{
    expect_end, get_bytes, get_len, get_str, get_u8, get_varint, put_bytes, put_varint, take_array,
};
use state_api::{
    CheckpointId, CodecKind, Digest, EntryCount, Error, IncrementalHandle, KeyGroupsHandle,
    KeyedHandle, NamedHandle, ObjectHandle, OperatorStateHandle, OperatorStateMode,
    OperatorStatePart, RelPath, Result, Root, Schema, StateHandle, StateKind, StateMeta,
    StateSummary, TypeMeta,
};

use super::extents::{get_elements, get_offsets, get_range, put_elements, put_offsets, put_range};

/// Writes the handles of one operator; gathers the descriptions of its states on the way.
pub(super) struct HandleWriter<'a> {
    roots: Arc<HashMap<&'a str, u64>>,
    states: HashMap<Vec<u8>, u64>,
    pub(super) table: Vec<u8>,
}

impl<'a> HandleWriter<'a> {
    pub(super) fn new(roots: Arc<HashMap<&'a str, u64>>) -> Self {
        Self {
            roots,
            states: HashMap::new(),
            table: Vec::new(),
        }
    }

    pub(super) fn bytes(&self, out: &mut Vec<u8>, handle: &StateHandle) -> Result<()> {
        match handle {
            StateHandle::Inline(bytes) => {
                out.push(0);
                put_bytes(out, bytes);
            }
            StateHandle::Object(object) => {
                out.push(1);
                let root = match &object.root {
                    Root::Own => 0,
                    Root::Url(url) => *self.roots.get(url.as_ref()).ok_or_else(|| {
                        Error::invalid(
                            "a handle points into a root that the metadata does not list",
                        )
                        .with("root", url)
                    })?,
                };
                put_varint(out, root);
                put_bytes(out, object.path.as_str().as_bytes());
                put_varint(out, object.len);
                out.extend_from_slice(&object.digest.0);
            }
        }
        Ok(())
    }

    fn state(&mut self, out: &mut Vec<u8>, meta: &StateMeta) {
        let mut encoded = Vec::new();
        put_state_meta(&mut encoded, meta);
        let next = self.states.len() as u64;
        let index = match self.states.get(&encoded) {
            Some(index) => *index,
            None => {
                self.table.extend_from_slice(&encoded);
                self.states.insert(encoded, next);
                next
            }
        };
        put_varint(out, index);
    }

    fn summaries(&mut self, out: &mut Vec<u8>, states: &[StateSummary]) {
        put_varint(out, states.len() as u64);
        for summary in states {
            self.state(out, &summary.meta);
            let (kind, count) = match summary.entries {
                EntryCount::Exact(count) => (0, count),
                EntryCount::Estimate(count) => (1, count),
            };
            out.push(kind);
            put_varint(out, count);
        }
    }

    pub(super) fn key_groups(&mut self, out: &mut Vec<u8>, handle: &KeyGroupsHandle) -> Result<()> {
        put_bytes(out, handle.format.as_bytes());
        put_offsets(out, &handle.offsets);
        self.summaries(out, &handle.states);
        self.bytes(out, &handle.bytes)
    }

    fn files(&self, out: &mut Vec<u8>, files: &[NamedHandle]) -> Result<()> {
        put_varint(out, files.len() as u64);
        files.iter().try_for_each(|file| {
            put_bytes(out, file.name.as_bytes());
            self.bytes(out, &file.bytes)
        })
    }

    pub(super) fn keyed(&mut self, out: &mut Vec<u8>, handle: &KeyedHandle) -> Result<()> {
        match handle {
            KeyedHandle::KeyGroups(handle) => {
                out.push(0);
                self.key_groups(out, handle)
            }
            KeyedHandle::Incremental(handle) => {
                out.push(1);
                put_bytes(out, handle.format.as_bytes());
                put_bytes(out, handle.backend_id.as_bytes());
                put_varint(out, handle.checkpoint.0);
                put_range(out, handle.range);
                put_varint(out, handle.new_bytes);
                self.summaries(out, &handle.states);
                self.files(out, &handle.private)?;
                self.files(out, &handle.shared)
            }
        }
    }

    pub(super) fn operator_state(
        &mut self,
        out: &mut Vec<u8>,
        handle: &OperatorStateHandle,
    ) -> Result<()> {
        put_varint(out, handle.states.len() as u64);
        for part in &handle.states {
            self.state(out, &part.meta);
            out.push(match part.mode {
                OperatorStateMode::Split => 0,
                OperatorStateMode::Union => 1,
                OperatorStateMode::Broadcast => 2,
            });
            put_elements(out, &part.elements);
        }
        self.bytes(out, &handle.bytes)
    }

    /// Returns the number of distinct states so far.
    pub(super) fn state_count(&self) -> u64 {
        self.states.len() as u64
    }
}

fn put_type(out: &mut Vec<u8>, ty: &TypeMeta) {
    put_bytes(out, ty.codec.as_str().as_bytes());
    put_bytes(out, ty.schema.to_string().as_bytes());
}

fn get_type(input: &mut &[u8]) -> Result<TypeMeta> {
    let codec = CodecKind::parse(get_str(input)?)?;
    let schema = Schema::parse(get_str(input)?)
        .map_err(|e| Error::corrupt("a schema can't be read").caused_by(e))?;
    Ok(TypeMeta { codec, schema })
}

fn put_state_meta(out: &mut Vec<u8>, meta: &StateMeta) {
    put_bytes(out, meta.name.as_bytes());
    put_bytes(out, meta.kind.as_str().as_bytes());
    put_type(out, &meta.key);
    put_type(out, &meta.namespace);
    put_type(out, &meta.value);
    out.push(u8::from(meta.map_key.is_some()) | (u8::from(meta.ttl_ms.is_some()) << 1));
    if let Some(map_key) = &meta.map_key {
        put_type(out, map_key);
    }
    if let Some(ttl_ms) = meta.ttl_ms {
        out.extend_from_slice(&ttl_ms.to_le_bytes());
    }
}

fn get_state_meta(input: &mut &[u8]) -> Result<StateMeta> {
    let name = get_str(input)?.into();
    let kind = get_str(input)?;
    let kind = StateKind::parse(kind)
        .ok_or_else(|| Error::unsupported(format!("state kind {kind:?} is unknown")))?;
    let (key, namespace, value) = (get_type(input)?, get_type(input)?, get_type(input)?);
    let flags = get_u8(input)?;
    if flags > 3 {
        return Err(Error::corrupt(format!(
            "unknown flags {flags:#x} of a state"
        )));
    }
    let map_key = if flags & 1 != 0 {
        Some(get_type(input)?)
    } else {
        None
    };
    let ttl_ms = if flags & 2 != 0 {
        Some(i64::from_le_bytes(take_array(input)?))
    } else {
        None
    };
    Ok(StateMeta {
        name,
        kind,
        key,
        namespace,
        map_key,
        value,
        ttl_ms,
    })
}

/// Reads the descriptions of all states of an operator.
pub(super) fn get_state_table(mut input: &[u8]) -> Result<Vec<Described>> {
    let count = get_len(&mut input)?;
    let mut table = Vec::new();
    for _ in 0..count {
        let before = input.len();
        let meta = get_state_meta(&mut input)?;
        table.push((meta, before - input.len()));
    }
    expect_end(input)?;
    Ok(table)
}

/// What copies of state descriptions may cost: a file can refer to one long description many times.
pub(super) struct Budget(Cell<usize>);

impl Budget {
    pub(super) fn for_file(len: usize) -> Self {
        Self(Cell::new((16 << 20) + len.saturating_mul(256)))
    }

    fn spend(&self, bytes: usize) -> Result<()> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.ok_or_else(|| {
            Error::corrupt("the states are described too many times for the length of the file")
        })?);
        Ok(())
    }
}

/// A description of a state and the length of its bytes.
type Described = (StateMeta, usize);

/// Reads the handles of one operator.
pub(super) struct HandleReader<'a> {
    pub(super) roots: &'a [Arc<str>],
    pub(super) states: Vec<Described>,
    pub(super) budget: &'a Budget,
}

/// Reads as many elements as a length says; grows as elements are read, so a lie allocates nothing.
fn repeat<T>(input: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> Result<T>) -> Result<Vec<T>> {
    let count = get_len(input)?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(input)?);
    }
    Ok(items)
}

impl HandleReader<'_> {
    pub(super) fn bytes(&self, input: &mut &[u8]) -> Result<StateHandle> {
        match get_u8(input)? {
            0 => Ok(StateHandle::Inline(Bytes::copy_from_slice(get_bytes(
                input,
            )?))),
            1 => {
                let root = match get_varint(input)? {
                    0 => Root::Own,
                    index => {
                        let root = usize::try_from(index - 1)
                            .ok()
                            .and_then(|index| self.roots.get(index));
                        let bad = || {
                            Error::corrupt(format!(
                                "root {index} is not one of the {} listed",
                                self.roots.len()
                            ))
                        };
                        Root::Url(Arc::clone(root.ok_or_else(bad)?))
                    }
                };
                let path = RelPath::new(get_str(input)?)
                    .map_err(|e| Error::corrupt("bad object path").caused_by(e))?;
                let len = get_varint(input)?;
                Ok(StateHandle::Object(ObjectHandle {
                    root,
                    path,
                    len,
                    digest: Digest(take_array(input)?),
                }))
            }
            kind => Err(Error::corrupt(format!(
                "kind {kind} of a handle is unknown"
            ))),
        }
    }

    fn state(&self, input: &mut &[u8]) -> Result<StateMeta> {
        let index = get_varint(input)?;
        let described = usize::try_from(index)
            .ok()
            .and_then(|index| self.states.get(index));
        let (meta, len) = described.ok_or_else(|| {
            Error::corrupt(format!(
                "state {index} is not one of the {} described",
                self.states.len()
            ))
        })?;
        self.budget.spend(*len)?;
        Ok(meta.clone())
    }

    fn summaries(&self, input: &mut &[u8]) -> Result<Vec<StateSummary>> {
        repeat(input, |input| {
            let meta = self.state(input)?;
            let entries = match (get_u8(input)?, get_varint(input)?) {
                (0, count) => EntryCount::Exact(count),
                (1, count) => EntryCount::Estimate(count),
                (kind, _) => {
                    return Err(Error::corrupt(format!("kind {kind} of a count is unknown")));
                }
            };
            Ok(StateSummary { meta, entries })
        })
    }

    pub(super) fn key_groups(&self, input: &mut &[u8]) -> Result<KeyGroupsHandle> {
        Ok(KeyGroupsHandle {
            format: get_str(input)?.into(),
            offsets: get_offsets(input)?,
            states: self.summaries(input)?,
            bytes: self.bytes(input)?,
        })
    }

    fn files(&self, input: &mut &[u8]) -> Result<Vec<NamedHandle>> {
        repeat(input, |input| {
            Ok(NamedHandle {
                name: get_str(input)?.into(),
                bytes: self.bytes(input)?,
            })
        })
    }

    pub(super) fn keyed(&self, input: &mut &[u8]) -> Result<KeyedHandle> {
        match get_u8(input)? {
            0 => Ok(KeyedHandle::KeyGroups(self.key_groups(input)?)),
            1 => Ok(KeyedHandle::Incremental(IncrementalHandle {
                format: get_str(input)?.into(),
                backend_id: get_str(input)?.into(),
                checkpoint: CheckpointId(get_varint(input)?),
                range: get_range(input)?,
                new_bytes: get_varint(input)?,
                states: self.summaries(input)?,
                private: self.files(input)?,
                shared: self.files(input)?,
            })),
            kind => Err(Error::corrupt(format!(
                "kind {kind} of a keyed handle is unknown"
            ))),
        }
    }

    pub(super) fn operator_state(&self, input: &mut &[u8]) -> Result<OperatorStateHandle> {
        let states = repeat(input, |input| {
            let meta = self.state(input)?;
            let mode = match get_u8(input)? {
                0 => OperatorStateMode::Split,
                1 => OperatorStateMode::Union,
                2 => OperatorStateMode::Broadcast,
                mode => {
                    return Err(Error::corrupt(format!(
                        "mode {mode} of operator state is unknown"
                    )));
                }
            };
            Ok(OperatorStatePart {
                meta,
                mode,
                elements: get_elements(input)?,
            })
        })?;
        Ok(OperatorStateHandle {
            states,
            bytes: self.bytes(input)?,
        })
    }
}
