use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use state_api::{
    CheckpointStorage, Error, IncrementalHandle, KeyGroup, KeyGroupRange, KeyGroupsHandle,
    NamedHandle, RestoreContext, Result, StateSummary,
};

use super::merge::{GroupParts, Part, merge_group};
use super::stream::{StreamIndex, StreamKind, read_index};
use crate::format::{naming, object_name, read_groups};

/// An object of a chain, and which of the handle's states its columns are of.
struct Opened<'a> {
    file: &'a NamedHandle,
    index: StreamIndex,
    columns: Arc<[u32]>,
    object: Arc<str>,
}

impl Opened<'_> {
    fn part(&self, block: Bytes) -> Part {
        Part {
            block,
            columns: Arc::clone(&self.columns),
            object: Arc::clone(&self.object),
        }
    }
}

/// Reads the key groups of a range out of a chain of objects, and hands on the canonical block of each, whose columns are the
/// states of the handle. Groups without entries are left out; they come in no promised order.
///
/// Some key groups are read at a time: so many that the objects have `at_once` bytes of them together, or one that has more. What is
/// read, and what is put together out of it, takes a small multiple of that in memory. Streams of changes are read side by side,
/// the base behind them; key groups with changes are put together on CPU threads. Only the bytes of the range are read. That all
/// bytes of an object are right is known only at the end: on an error, throw away what was handed on.
///
/// # Errors
/// `Corrupt`, naming the object, when bytes are missing or damaged; those of the storage and of `load`.
pub async fn restore_changes(
    handle: &IncrementalHandle,
    range: KeyGroupRange,
    at_once: u64,
    cx: &RestoreContext,
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    let files = handle.private.iter().chain(&handle.shared);
    let storage = &*cx.storage;
    let opened = try_join_all(files.map(|file| open(file, &handle.states, storage))).await?;
    let (bases, streams): (Vec<_>, Vec<_>) = opened
        .into_iter()
        .enumerate()
        .partition(|(_, opened)| opened.index.kind == StreamKind::Base);
    let base = match &bases[..] {
        [] => None,
        [(0, _)] => bases.first(),
        _ => return Err(Error::corrupt("a base is not the first object of a chain")),
    };
    let chain = Chain {
        base: base.map(|(_, base)| base),
        streams: streams.iter().map(|(_, stream)| stream).collect(),
        states: handle.states.len(),
    };
    for groups in chain.batches(range, at_once)? {
        chain.restore(groups, cx, load).await?;
    }
    Ok(())
}

/// The objects of a chain.
struct Chain<'a> {
    base: Option<&'a Opened<'a>>,
    streams: Vec<&'a Opened<'a>>,
    states: usize,
}

impl Chain<'_> {
    /// Cuts a range into runs of key groups that have so many bytes at most, or are one key group.
    fn batches(&self, range: KeyGroupRange, at_once: u64) -> Result<Vec<KeyGroupRange>> {
        let mut batches: Vec<KeyGroupRange> = Vec::new();
        let mut bytes = 0_u64;
        for group in range.iter() {
            let mut len = 0_u64;
            for object in self.base.iter().chain(&self.streams) {
                let offsets = &object.index.offsets;
                if offsets.range().contains(group) {
                    len = len.saturating_add(offsets.get(group)?.len);
                }
            }
            bytes = bytes.saturating_add(len);
            match batches.last_mut() {
                Some(batch) if bytes <= at_once => {
                    *batch = KeyGroupRange::new(batch.start(), group);
                }
                _ => {
                    batches.push(KeyGroupRange::new(group, group));
                    bytes = len;
                }
            }
        }
        Ok(batches)
    }

    async fn restore(
        &self,
        range: KeyGroupRange,
        cx: &RestoreContext,
        load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
    ) -> Result<()> {
        let storage = &*cx.storage;
        let streams = self.streams.iter();
        let blocks = try_join_all(streams.map(|stream| read(stream, range, storage)));
        let mut changes: BTreeMap<KeyGroup, Vec<Part>> = BTreeMap::new();
        for (stream, blocks) in self.streams.iter().zip(blocks.await?) {
            for (group, block) in blocks {
                changes.entry(group).or_default().push(stream.part(block));
            }
        }
        let mut merging = Vec::new();
        if let Some(base) = self.base {
            let groups = as_groups(base);
            // Columns of a base that a later checkpoint carries on mean the same until states come or go.
            let as_it_is = base
                .columns
                .iter()
                .copied()
                .eq(0..base.columns.len() as u32);
            let mut take = |group, block| match changes.remove(&group) {
                None if as_it_is => load(group, block),
                changes => {
                    let parts = GroupParts {
                        group,
                        base: Some(base.part(block)),
                        changes: changes.unwrap_or_default(),
                    };
                    merging.push(merge(parts, self.states, cx));
                    Ok(())
                }
            };
            read_groups(&groups, range, storage, base.index.kind.magic(), &mut take)
                .await
                .map_err(|e| naming(e, &base.object))?;
        }
        for (group, changes) in changes {
            let parts = GroupParts {
                group,
                base: None,
                changes,
            };
            merging.push(merge(parts, self.states, cx));
        }
        for merged in merging {
            let (group, block) = merged.await?;
            if !block.is_empty() {
                load(group, block)?;
            }
        }
        Ok(())
    }
}

async fn open<'a>(
    file: &'a NamedHandle,
    states: &[StateSummary],
    storage: &dyn CheckpointStorage,
) -> Result<Opened<'a>> {
    let object: Arc<str> = object_name(&file.bytes).into();
    let named = |error: Error| naming(error, &object).with("file", &file.name);
    let index = read_index(&file.bytes, storage).await.map_err(named)?;
    let column = |name: &Arc<str>| {
        let at = states.iter().position(|state| state.meta.name == *name);
        at.and_then(|at| u32::try_from(at).ok()).ok_or_else(|| {
            named(
                Error::corrupt("an object has a state that the handle does not list")
                    .with("state", name),
            )
        })
    };
    let columns = index.names.iter().map(column).collect::<Result<_>>()?;
    Ok(Opened {
        file,
        index,
        columns,
        object: Arc::clone(&object),
    })
}

fn as_groups(opened: &Opened<'_>) -> KeyGroupsHandle {
    KeyGroupsHandle {
        format: Arc::from(""),
        offsets: opened.index.offsets.clone(),
        bytes: opened.file.bytes.clone(),
        states: Vec::new(),
    }
}

async fn read(
    stream: &Opened<'_>,
    range: KeyGroupRange,
    storage: &dyn CheckpointStorage,
) -> Result<Vec<(KeyGroup, Bytes)>> {
    let mut blocks = Vec::new();
    let groups = as_groups(stream);
    let mut take = |group, block| {
        blocks.push((group, block));
        Ok(())
    };
    read_groups(
        &groups,
        range,
        storage,
        stream.index.kind.magic(),
        &mut take,
    )
    .await
    .map_err(|e| naming(e, &stream.object))?;
    Ok(blocks)
}

/// Puts a key group together on a CPU thread.
fn merge(
    parts: GroupParts,
    states: usize,
    cx: &RestoreContext,
) -> impl Future<Output = Result<(KeyGroup, Bytes)>> + Send + use<> {
    cx.executor.on_cpu(move || {
        let mut out = Vec::new();
        merge_group(&parts, states, &mut out)?;
        Ok((parts.group, Bytes::from(out)))
    })
}
