use std::collections::VecDeque;

use bytes::Bytes;
use state_api::{
    BatchEntry, ByteStore, CheckpointStorage, Column, Error, GroupExtent, KeyGroup, KeyGroupRange,
    KeyGroupsHandle, KeyedHandle, LoadTables, ObjectHandle, ObjectReader, RestoreContext, Result,
    StateHandle, StateMeta, StateSummary, WriteBatch, read_handle,
};

use super::composite::put_group_prefix;
use super::group_reader::GroupReader;
use super::header::{CANONICAL, HEADER_LEN, KEYED_MAGIC, check_header};

/// The most that is read at once of an object of which only some groups are needed; a larger group is read whole.
const RANGE_READ: u64 = 8 << 20;

/// Key groups are read together until they have so many bytes.
const PIECE: u64 = 4 << 20;

/// Room that is reserved on the word of a length, before the bytes are there.
const TRUSTED_LEN: u64 = 16 << 20;

/// A batch is written to a byte store when it has so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Reads the key groups of a range out of one handle in the canonical layout, in ascending order, those without bytes left out.
///
/// If all groups are needed, the object is read from start to end and its digest checked, which is known only after the last
/// group was handed out: on an error, throw away what came out of it. If some are needed, just their bytes are read. Whoever
/// takes a block checks its checksum with [`GroupReader`].
///
/// # Errors
/// `Corrupt`, naming the object, when offsets, length or digest are wrong; those of the storage and of `load`.
pub async fn restore_groups(
    handle: &KeyGroupsHandle,
    range: KeyGroupRange,
    storage: &dyn CheckpointStorage,
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    let name = object_name(&handle.bytes);
    read_groups(handle, range, storage, KEYED_MAGIC, load)
        .await
        .map_err(|e| naming(e, &name))
}

pub(crate) async fn read_groups(
    handle: &KeyGroupsHandle,
    range: KeyGroupRange,
    storage: &dyn CheckpointStorage,
    magic: [u8; 7],
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    let wanted = needed_extents(handle, range)?;
    if wanted.is_empty() {
        return Ok(());
    }
    match &handle.bytes {
        StateHandle::Inline(bytes) => {
            check_header(magic, bytes)?;
            for (group, extent) in wanted {
                let block = slice(bytes, extent).ok_or_else(|| out_of_bounds(group))?;
                load(group, block)?;
            }
            Ok(())
        }
        StateHandle::Object(object) => {
            if range.contains_range(handle.offsets.range()) {
                read_from_start(object, &wanted, storage, magic, load).await
            } else {
                read_parts(object, &wanted, storage, magic, load).await
            }
        }
    }
}

fn needed_extents(
    handle: &KeyGroupsHandle,
    range: KeyGroupRange,
) -> Result<Vec<(KeyGroup, GroupExtent)>> {
    let mut wanted = Vec::new();
    let mut position = HEADER_LEN as u64;
    for (group, extent) in handle
        .offsets
        .iter()
        .filter(|(_, extent)| !extent.is_empty())
    {
        let end = extent
            .offset
            .checked_add(extent.len)
            .filter(|end| *end <= handle.bytes.len());
        let (true, Some(end)) = (extent.offset >= position, end) else {
            return Err(out_of_bounds(group));
        };
        position = end;
        if range.contains(group) {
            wanted.push((group, extent));
        }
    }
    Ok(wanted)
}

#[cold]
fn out_of_bounds(group: KeyGroup) -> Error {
    Error::corrupt("a key group does not lie where its handle says").with("key group", group)
}

fn slice(bytes: &Bytes, extent: GroupExtent) -> Option<Bytes> {
    let start = usize::try_from(extent.offset).ok()?;
    let end = start.checked_add(usize::try_from(extent.len).ok()?)?;
    (end <= bytes.len()).then(|| bytes.slice(start..end))
}

async fn read_from_start(
    object: &ObjectHandle,
    wanted: &[(KeyGroup, GroupExtent)],
    storage: &dyn CheckpointStorage,
    magic: [u8; 7],
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    let mut input = Sequential {
        reader: storage.open(object).await?,
        chunk: Bytes::new(),
        position: 0,
        ends: wanted
            .iter()
            .map(|(_, extent)| extent.offset + extent.len)
            .collect(),
    };
    check_header(magic, &input.take(HEADER_LEN as u64).await?)?;
    for (group, extent) in wanted {
        input.skip_to(extent.offset).await?;
        let block = input.take(extent.len).await?;
        load(*group, block)?;
    }
    // The digest is checked at the end.
    while input.reader.next().await?.is_some() {}
    Ok(())
}

/// An object read from start to end, in pieces that need not be its chunks.
struct Sequential {
    reader: Box<dyn ObjectReader>,
    chunk: Bytes,
    position: u64,
    /// Where key groups end: a piece that ends there has its last group whole, and none has to be put together.
    ends: VecDeque<u64>,
}

impl Sequential {
    /// Reads on after `read` bytes of the object.
    async fn refill(&mut self, read: u64) -> Result<()> {
        while self.ends.front().is_some_and(|end| *end <= read) {
            self.ends.pop_front();
        }
        let fitting = self.ends.iter().take_while(|end| **end <= read + 2 * PIECE);
        let piece = fitting
            .copied()
            .find(|end| *end >= read + PIECE)
            .or_else(|| self.ends.back().copied().filter(|end| *end <= read + PIECE))
            .map_or(PIECE, |end| end - read);
        while self.chunk.is_empty() {
            self.chunk = self
                .reader
                .next_piece(piece)
                .await?
                .ok_or_else(|| Error::corrupt("the object ends early"))?;
        }
        Ok(())
    }

    async fn skip_to(&mut self, offset: u64) -> Result<()> {
        while self.position < offset {
            self.refill(self.position).await?;
            let skipped = (offset - self.position).min(self.chunk.len() as u64);
            drop(self.chunk.split_to(skipped as usize));
            self.position += skipped;
        }
        Ok(())
    }

    async fn take(&mut self, len: u64) -> Result<Bytes> {
        if self.chunk.is_empty() {
            self.refill(self.position).await?;
        }
        let start = self.position;
        self.position += len;
        if len <= self.chunk.len() as u64 {
            return Ok(self.chunk.split_to(len as usize));
        }
        let mut taken = Vec::with_capacity(len.min(TRUSTED_LEN) as usize);
        while (taken.len() as u64) < len {
            self.refill(start + taken.len() as u64).await?;
            let part = (len - taken.len() as u64).min(self.chunk.len() as u64);
            taken.extend_from_slice(&self.chunk.split_to(part as usize));
        }
        Ok(taken.into())
    }
}

async fn read_parts(
    object: &ObjectHandle,
    wanted: &[(KeyGroup, GroupExtent)],
    storage: &dyn CheckpointStorage,
    magic: [u8; 7],
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    check_header(
        magic,
        &storage.read_range(object, 0..HEADER_LEN as u64).await?,
    )?;
    let mut rest = wanted;
    while let [(_, first), ..] = rest {
        let (start, mut end) = (first.offset, first.offset);
        let adjacent = rest.iter().take_while(|(_, extent)| {
            let joins = extent.offset == end
                && (extent.offset == start || extent.offset + extent.len - start <= RANGE_READ);
            if joins {
                end += extent.len;
            }
            joins
        });
        let (now, later) = rest.split_at(adjacent.count());
        let mut bytes = storage.read_range(object, start..end).await?;
        if bytes.len() as u64 != end - start {
            return Err(Error::corrupt("the object ends early"));
        }
        for (group, extent) in now {
            load(*group, bytes.split_to(extent.len as usize))?;
        }
        rest = later;
    }
    Ok(())
}

/// Reads all bytes of a handle, the digest checked.
pub(crate) async fn read_all(
    handle: &StateHandle,
    storage: &dyn CheckpointStorage,
) -> Result<Bytes> {
    let read = read_handle(storage, handle).await;
    read.map_err(|e| naming(e, &object_name(handle)))
}

pub(crate) fn object_name(handle: &StateHandle) -> String {
    handle
        .object()
        .map_or_else(|| "(inline)".to_owned(), ToString::to_string)
}

/// Names the object in an error that does not name it yet.
pub(crate) fn naming(error: Error, object: &str) -> Error {
    if error.context("object").is_some() {
        error
    } else {
        error.with("object", object)
    }
}

pub(super) fn key_groups<'a>(handle: &'a KeyedHandle, format: &str) -> Result<&'a KeyGroupsHandle> {
    match handle {
        KeyedHandle::KeyGroups(groups) if &*groups.format == format => Ok(groups),
        other => Err(Error::incompatible(format!(
            "keyed state is in the format {:?}, not in {format:?}; to change the backend, convert the checkpoint to the canonical format or take a canonical savepoint",
            other.format()
        ))),
    }
}

/// Fills live tables out of handles whose streams are in the canonical layout, under this word or under [`CANONICAL`].
///
/// # Errors
/// `Incompatible` for another format; as [`restore_groups`].
pub async fn load_tables(
    handles: &[KeyedHandle],
    format: &str,
    cx: &RestoreContext,
    tables: &mut dyn LoadTables,
) -> Result<()> {
    let range = tables.range();
    for handle in handles {
        let groups = key_groups(handle, format)
            .or_else(|error| key_groups(handle, CANONICAL).map_err(|_| error))?;
        let metas: Vec<StateMeta> = groups
            .states
            .iter()
            .map(|state| state.meta.clone())
            .collect();
        tables.begin(&metas)?;
        restore_groups(groups, range, &*cx.storage, &mut |group, block| {
            tables.load_group(group, block)
        })
        .await?;
    }
    Ok(())
}

/// Fills an empty byte store out of canonical handles; returns the states by column. A column is named as its state.
///
/// Stored keys start with the key group in `prefix_len` bytes.
///
/// # Errors
/// `Incompatible` for another format, or when two handles contradict each other about a state; as [`restore_groups`].
pub async fn restore_into_store(
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    prefix_len: usize,
    store: &mut dyn ByteStore,
    storage: &dyn CheckpointStorage,
) -> Result<Vec<(Column, StateMeta)>> {
    let mut restored: Vec<(Column, StateMeta)> = Vec::new();
    for handle in handles {
        let groups = key_groups(handle, CANONICAL)?;
        let columns = open_columns(&groups.states, store, &mut restored)?;
        let load =
            &mut |group, block: Bytes| load_into_store(group, &block, &columns, prefix_len, store);
        restore_groups(groups, range, storage, load).await?;
    }
    Ok(restored)
}

/// Opens the columns of a handle's states, named as they are, and adds to `restored` those that are not in it yet.
///
/// # Errors
/// `Incompatible` when another handle described a state in another way; those of the store.
pub fn open_columns(
    states: &[StateSummary],
    store: &mut dyn ByteStore,
    restored: &mut Vec<(Column, StateMeta)>,
) -> Result<Vec<Column>> {
    let mut columns = Vec::with_capacity(states.len());
    for state in states {
        let column = store.open_state_column(&state.meta)?;
        match restored
            .iter()
            .find(|(_, meta)| meta.name == state.meta.name)
        {
            Some((_, meta)) if *meta != state.meta => {
                return Err(Error::incompatible(
                    "two parts of the snapshot describe the state in different ways",
                )
                .with("state", &state.meta.name));
            }
            Some(_) => {}
            None => restored.push((column, state.meta.clone())),
        }
        columns.push(column);
    }
    Ok(columns)
}

fn load_into_store(
    group: KeyGroup,
    block: &[u8],
    columns: &[Column],
    prefix_len: usize,
    store: &mut dyn ByteStore,
) -> Result<()> {
    let mut reader = GroupReader::open(group, columns.len(), block)?;
    let mut batch = WriteBatch::default();
    let mut batch_bytes = 0;
    while let Some(section) = reader.next()? {
        // Checked by the reader against the number of columns.
        let Some(column) = columns.get(section.column as usize) else {
            continue;
        };
        let mut entries = section.entries();
        while let Some((key, value)) = entries.next()? {
            let mut stored = Vec::with_capacity(prefix_len + key.len());
            put_group_prefix(group, prefix_len, &mut stored);
            stored.extend_from_slice(key);
            batch_bytes += stored.len() + value.len();
            batch
                .entries
                .push(BatchEntry::Put(*column, stored, value.to_vec()));
            if batch_bytes >= BATCH_BYTES {
                store.write(std::mem::take(&mut batch))?;
                batch_bytes = 0;
            }
        }
    }
    if batch.entries.is_empty() {
        Ok(())
    } else {
        store.write(batch)
    }
}
