use std::fmt;
use std::sync::Arc;

use state_api::wire::{expect_end, get_len, get_str, get_varint, put_bytes, put_varint};
use state_api::{
    CancelToken, CheckpointStorage, Error, FrozenChanges, FrozenTables, GroupExtent, KeyGroup,
    KeyGroupOffsets, KeyGroupRange, PersistContext, Result, StateHandle, StateSummary,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::format::{
    CHANGES_MAGIC, ChunkWriter, HEADER_LEN, KEYED_MAGIC, Placement, check_header, header, upload,
};

/// Encoded bytes are handed on when so many are together.
const CHUNK_SIZE: usize = 1 << 20;

/// Checksum and length of the index, the last bytes of a stream.
const TAIL_LEN: u64 = 8 + 4;

/// What is read at the end of an object in the hope that the whole index is in it.
const FIRST_READ: u64 = 8 << 10;

/// What an object of a chain holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// All entries, in the canonical layout.
    Base,
    /// What changed.
    Changes,
}

impl StreamKind {
    pub(super) fn magic(self) -> [u8; 7] {
        match self {
            Self::Base => KEYED_MAGIC,
            Self::Changes => CHANGES_MAGIC,
        }
    }
}

/// What stands at the end of an object: the names of its states, by column, and where its key groups are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamIndex {
    /// Whether it is a base.
    pub kind: StreamKind,
    /// The states, by column.
    pub names: Vec<Arc<str>>,
    /// Where each key group is.
    pub offsets: KeyGroupOffsets,
}

/// What an object is made of.
pub enum StreamSource {
    /// All entries of frozen tables.
    Base(Box<dyn FrozenTables>),
    /// What changed in them.
    Changes(Box<dyn FrozenChanges>),
}

impl StreamSource {
    /// Returns what the object holds.
    #[must_use]
    pub fn kind(&self) -> StreamKind {
        match self {
            Self::Base(_) => StreamKind::Base,
            Self::Changes(_) => StreamKind::Changes,
        }
    }

    fn range(&self) -> KeyGroupRange {
        match self {
            Self::Base(tables) => tables.range(),
            Self::Changes(changes) => changes.range(),
        }
    }

    fn states(&self) -> Vec<StateSummary> {
        match self {
            Self::Base(tables) => tables.states(),
            Self::Changes(changes) => changes.states(),
        }
    }

    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Base(tables) => tables.encode_group(group, out),
            Self::Changes(changes) => changes.encode_group(group, out),
        }
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamSource").field(&self.kind()).finish()
    }
}

/// An object that was written.
#[derive(Clone, Debug)]
pub struct WrittenStream {
    /// The bytes.
    pub bytes: StateHandle,
    /// The states with their entries, those of changes with all of them.
    pub states: Vec<StateSummary>,
}

/// Writes an object: the blocks of the key groups, then the index. `None` if there is no block.
///
/// The source is encoded on a CPU thread and gone before the last bytes are uploaded.
///
/// # Errors
/// As [`upload`].
pub async fn write_stream(
    cx: &PersistContext,
    placement: Placement,
    source: StreamSource,
) -> Result<Option<WrittenStream>> {
    let cancel = cx.cancel.clone();
    let encode = move |chunks: &mut ChunkWriter<_>| encode_stream(source, chunks, &cancel);
    let written = upload(cx, placement, encode, |(blocks, _)| *blocks > 0).await?;
    Ok(written.map(|((_, states), bytes)| WrittenStream { bytes, states }))
}

/// Returns the number of blocks and the states.
fn encode_stream<T>(
    mut source: StreamSource,
    chunks: &mut ChunkWriter<T>,
    cancel: &CancelToken,
) -> Result<(u64, Vec<StateSummary>)> {
    let range = source.range();
    let mut buffer = chunks.buffer(CHUNK_SIZE);
    buffer.extend_from_slice(&header(source.kind().magic()));
    let (mut lens, mut blocks) = (Vec::new(), 0);
    for group in range.iter() {
        cancel.check()?;
        let start = buffer.len();
        source.encode_group(group, &mut buffer)?;
        let len = (buffer.len() - start) as u64;
        put_varint(&mut lens, len);
        blocks += u64::from(len > 0);
        if buffer.len() >= CHUNK_SIZE {
            let next = chunks.buffer(CHUNK_SIZE);
            chunks.send(std::mem::replace(&mut buffer, next))?;
        }
    }
    let states = source.states();
    let start = buffer.len();
    put_varint(&mut buffer, states.len() as u64);
    let names = states.iter().map(|state| &state.meta.name);
    names.for_each(|name| put_bytes(&mut buffer, name.as_bytes()));
    put_varint(&mut buffer, u64::from(range.start().0));
    put_varint(&mut buffer, range.len() as u64);
    buffer.extend_from_slice(&lens);
    let index = &buffer[start..];
    let len = u32::try_from(index.len())
        .map_err(|_| Error::limit("the index of a stream is too long"))?;
    let checksum = xxh3_64(index);
    buffer.extend_from_slice(&checksum.to_le_bytes());
    buffer.extend_from_slice(&len.to_le_bytes());
    chunks.send(buffer)?;
    Ok((blocks, states))
}

/// Reads the index of an object.
///
/// # Errors
/// `Corrupt` when it is missing or damaged; those of the storage.
pub async fn read_index(
    bytes: &StateHandle,
    storage: &dyn CheckpointStorage,
) -> Result<StreamIndex> {
    match bytes {
        StateHandle::Inline(bytes) => StreamIndex::read(bytes, bytes, bytes.len() as u64),
        StateHandle::Object(object) => {
            let start = object.len.saturating_sub(FIRST_READ);
            let mut tail = storage.read_range(object, start..object.len).await?;
            let len = index_len(&tail)?;
            if len + TAIL_LEN > tail.len() as u64 {
                let start = index_start(object.len, len)?;
                tail = storage.read_range(object, start..object.len).await?;
            }
            let head = storage.read_range(object, 0..HEADER_LEN as u64).await?;
            StreamIndex::read(&head, &tail, object.len)
        }
    }
}

/// Reads the length of an index, the last bytes of a stream.
fn index_len(tail: &[u8]) -> Result<u64> {
    let len = tail.last_chunk::<4>().ok_or_else(no_index)?;
    Ok(u64::from(u32::from_le_bytes(*len)))
}

fn index_start(stream: u64, index: u64) -> Result<u64> {
    let start = stream.checked_sub(index + TAIL_LEN);
    start
        .filter(|start| *start >= HEADER_LEN as u64)
        .ok_or_else(no_index)
}

#[cold]
fn no_index() -> Error {
    Error::corrupt("the stream does not end with an index")
}

impl StreamIndex {
    /// Reads an index out of the first bytes of a stream and the last ones, given its length.
    ///
    /// # Errors
    /// `Corrupt` when it is missing or damaged, `Unsupported` for a newer version.
    pub fn read(head: &[u8], tail: &[u8], stream: u64) -> Result<Self> {
        let kind = if head.starts_with(&CHANGES_MAGIC) {
            StreamKind::Changes
        } else {
            StreamKind::Base
        };
        check_header(kind.magic(), head)?;
        let len = index_len(tail)?;
        let end = index_start(stream, len)?;
        let from = tail.len().checked_sub((len + TAIL_LEN) as usize);
        let found = from.ok_or_else(no_index)?;
        let (mut index, rest) = tail[found..].split_at(len as usize);
        if rest[..8] != xxh3_64(index).to_le_bytes() {
            return Err(Error::corrupt("the checksum of a stream's index is wrong"));
        }
        let columns = get_len(&mut index)?;
        let mut names: Vec<Arc<str>> = Vec::new();
        for _ in 0..columns {
            names.push(get_str(&mut index)?.into());
        }
        let number = |index: &mut &[u8]| {
            u16::try_from(get_varint(index)?)
                .map_err(|_| Error::corrupt("a stream's index names a key group past the last one"))
        };
        let (first, groups) = (number(&mut index)?, number(&mut index)?);
        let last = groups
            .checked_sub(1)
            .and_then(|more| first.checked_add(more))
            .filter(|last| *last < 1 << 15)
            .ok_or_else(|| Error::corrupt("a stream's index has no key groups, or too many"))?;
        if usize::from(groups) > index.len() {
            return Err(Error::corrupt("a stream's index ends early"));
        }
        let range = KeyGroupRange::new(KeyGroup(first), KeyGroup(last));
        let mut offsets = KeyGroupOffsets::new(range);
        let mut position = HEADER_LEN as u64;
        for group in range.iter() {
            let len = get_varint(&mut index)?;
            let next = position.checked_add(len).filter(|next| *next <= end);
            let next = next.ok_or_else(|| {
                Error::corrupt("a key group does not end before the stream's index")
                    .with("key group", group)
            })?;
            if len > 0 {
                let offset = position;
                offsets.set(group, GroupExtent { offset, len })?;
            }
            position = next;
        }
        expect_end(index)?;
        if position != end {
            return Err(Error::corrupt("a stream holds more than its index says"));
        }
        Ok(Self {
            kind,
            names,
            offsets,
        })
    }
}
