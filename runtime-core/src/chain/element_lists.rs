use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointStorage, CodecKind, Error, OperatorStateHandle, OperatorStateMode, OperatorStatePart,
    PersistContext, Position, Result, Scope, Snapshot, StateHandle, StateKind, StateMeta,
    StateType, TypeMeta, compat,
};

/// One list: what its elements are, how it is dealt out, and their encodings.
#[derive(Clone, Debug)]
struct List {
    value: TypeMeta,
    mode: OperatorStateMode,
    elements: Vec<Bytes>,
}

/// Named lists of an operator subtask, on their way into a checkpoint or out of one.
#[derive(Clone, Debug, Default)]
pub struct ListStates {
    lists: BTreeMap<Arc<str>, List>,
}

impl ListStates {
    /// Creates a set without lists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a list; its elements are split over the subtasks at a restore.
    pub fn put<'a, T: StateType>(&mut self, name: &str, elements: impl IntoIterator<Item = &'a T>) {
        self.put_as(name, OperatorStateMode::Split, elements);
    }

    /// Stores a list; every subtask gets the elements of all at a restore.
    pub fn put_union<'a, T: StateType>(
        &mut self,
        name: &str,
        elements: impl IntoIterator<Item = &'a T>,
    ) {
        self.put_as(name, OperatorStateMode::Union, elements);
    }

    pub(crate) fn put_as<'a, T: StateType>(
        &mut self,
        name: &str,
        mode: OperatorStateMode,
        elements: impl IntoIterator<Item = &'a T>,
    ) {
        let encode = |element: &T| {
            let mut bytes = Vec::new();
            element.encode(&mut bytes);
            Bytes::from(bytes)
        };
        let elements = elements.into_iter().map(encode).collect();
        let value = TypeMeta::of::<T>(CodecKind::Compact);
        self.lists.insert(
            name.into(),
            List {
                value,
                mode,
                elements,
            },
        );
    }

    /// Returns the elements of a list; none if there is no such list.
    ///
    /// # Errors
    /// `Incompatible` when the list has elements that can't become a `T`, `Corrupt` when they don't decode.
    pub fn get<T: StateType>(&self, name: &str) -> Result<Vec<T>> {
        let Some(list) = self.lists.get(name) else {
            return Ok(Vec::new());
        };
        let wanted = TypeMeta::of::<T>(CodecKind::Compact);
        let read = |bytes: &Bytes| {
            if list.value == wanted {
                CodecKind::Compact.decode_all(bytes)
            } else {
                compat::migrate(&list.value, bytes)
            }
        };
        if let compat::Compatibility::Incompatible { reason } =
            compat::check(&list.value, &wanted, Position::Value)
        {
            return Err(Error::incompatible(reason).with("state", name));
        }
        list.elements
            .iter()
            .map(read)
            .collect::<Result<_>>()
            .map_err(|e| e.with("state", name))
    }

    /// Returns the async part of a snapshot.
    pub(crate) fn into_snapshot(self) -> Box<dyn Snapshot<Option<OperatorStateHandle>>> {
        Box::new(self)
    }

    /// Reads the lists of several handles, one behind the other.
    pub(crate) async fn read(
        handles: &[OperatorStateHandle],
        storage: &dyn CheckpointStorage,
    ) -> Result<Self> {
        let mut lists: BTreeMap<Arc<str>, List> = BTreeMap::new();
        for handle in handles {
            let bytes = read_all(&handle.bytes, storage).await?;
            for part in &handle.states {
                let list = lists
                    .entry(Arc::clone(&part.meta.name))
                    .or_insert_with(|| List {
                        value: part.meta.value.clone(),
                        mode: part.mode,
                        elements: Vec::new(),
                    });
                for &(offset, len) in &part.elements {
                    list.elements.push(cut(&bytes, offset, len).ok_or_else(|| {
                        Error::corrupt("an element lies outside its object")
                            .with("state", &part.meta.name)
                    })?);
                }
            }
        }
        Ok(Self { lists })
    }
}

fn cut(bytes: &Bytes, offset: u64, len: u64) -> Option<Bytes> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    (end <= bytes.len()).then(|| bytes.slice(start..end))
}

async fn read_all(handle: &StateHandle, storage: &dyn CheckpointStorage) -> Result<Bytes> {
    let object = match handle {
        StateHandle::Inline(bytes) => return Ok(bytes.clone()),
        StateHandle::Object(object) => object,
    };
    let mut reader = storage.open(object).await?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all.into())
}

impl Snapshot<Option<OperatorStateHandle>> for ListStates {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Option<OperatorStateHandle>>> {
        Box::pin(async move {
            let unit = TypeMeta::of::<()>(CodecKind::Compact);
            let mut stream = cx.storage.create(cx.checkpoint, Scope::Exclusive);
            let mut states = Vec::new();
            let mut offset = 0;
            for (name, list) in self.lists {
                let mut all = Vec::new();
                let mut elements = Vec::with_capacity(list.elements.len());
                for bytes in &list.elements {
                    elements.push((offset, bytes.len() as u64));
                    offset += bytes.len() as u64;
                    all.extend_from_slice(bytes);
                }
                if elements.is_empty() {
                    continue;
                }
                cx.cancel.check()?;
                stream.write(all.into()).await?;
                let meta = StateMeta {
                    name,
                    kind: StateKind::OperatorList,
                    key: unit.clone(),
                    namespace: unit.clone(),
                    map_key: None,
                    value: list.value,
                    ttl_ms: None,
                };
                states.push(OperatorStatePart {
                    meta,
                    mode: list.mode,
                    elements,
                });
            }
            let bytes = match stream.finish().await? {
                Some(bytes) => bytes,
                // Elements may encode to nothing; their number still counts.
                None if !states.is_empty() => StateHandle::Inline(Bytes::new()),
                None => return Ok(None),
            };
            Ok(Some(OperatorStateHandle { states, bytes }))
        })
    }
}
