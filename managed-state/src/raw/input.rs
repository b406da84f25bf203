use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use state_api::{
    CheckpointStorage, Error, KeyGroup, KeyGroupRange, KeyGroupsHandle, OperatorStateHandle, Result,
};

use super::RAW;
use super::block::open_block;
use super::operator::PARTITION;
use crate::format::{RAW_MAGIC, check_header, naming, object_name, read_all, read_groups};

/// Reads the bytes of one key group or partition, until the next one is taken or the input is closed.
#[derive(Debug)]
pub struct RawReader {
    rest: Bytes,
    /// The turn of the input that this reader belongs to, and the turn that it has come to.
    turn: u64,
    current: Arc<AtomicU64>,
}

impl RawReader {
    /// Returns the number of bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl io::Read for RawReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.current.load(Ordering::SeqCst) != self.turn {
            return Err(io::Error::other("the raw state stream is closed"));
        }
        io::Read::read(&mut RestOf(&mut self.rest), out)
    }
}

struct RestOf<'a>(&'a mut Bytes);

impl io::Read for RestOf<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len().min(self.0.len());
        let part = self.0.split_to(len);
        for (to, from) in out.iter_mut().zip(part) {
            *to = from;
        }
        Ok(len)
    }
}

/// Hands out readers, one at a time.
#[derive(Debug)]
struct Turns<P> {
    queue: VecDeque<(P, Bytes)>,
    turn: u64,
    current: Arc<AtomicU64>,
}

impl<P> Turns<P> {
    fn new(queue: VecDeque<(P, Bytes)>) -> Self {
        Self {
            queue,
            turn: 0,
            current: Arc::new(AtomicU64::new(0)),
        }
    }

    fn next(&mut self) -> Option<(P, RawReader)> {
        self.advance();
        let (what, rest) = self.queue.pop_front()?;
        Some((
            what,
            RawReader {
                rest,
                turn: self.turn,
                current: Arc::clone(&self.current),
            },
        ))
    }

    fn advance(&mut self) {
        self.turn += 1;
        self.current.store(self.turn, Ordering::SeqCst);
    }

    fn close(&mut self) {
        self.advance();
        self.queue.clear();
    }
}

impl<P> Drop for Turns<P> {
    fn drop(&mut self) {
        self.close();
    }
}

/// A key group with the bytes that were written for it.
#[derive(Debug)]
pub struct RawKeyedPartition {
    /// The key group.
    pub group: KeyGroup,
    /// Its bytes.
    pub reader: RawReader,
}

/// Restored raw keyed state: the key groups that have some, handle by handle in ascending order.
///
/// Taking the next partition closes the one before; dropping or closing the input closes all.
#[derive(Debug)]
pub struct RawKeyedInput(Turns<KeyGroup>);

impl RawKeyedInput {
    /// Closes the input: readers that are still about fail from now on.
    pub fn close(&mut self) {
        self.0.close();
    }
}

impl Iterator for RawKeyedInput {
    type Item = RawKeyedPartition;

    fn next(&mut self) -> Option<RawKeyedPartition> {
        self.0
            .next()
            .map(|(group, reader)| RawKeyedPartition { group, reader })
    }
}

/// Restored raw operator state: the partitions that were assigned to this subtask.
///
/// Taking the next partition closes the one before; dropping or closing the input closes all.
#[derive(Debug)]
pub struct RawOperatorInput(Turns<()>);

impl RawOperatorInput {
    /// Closes the input: readers that are still about fail from now on.
    pub fn close(&mut self) {
        self.0.close();
    }
}

impl Iterator for RawOperatorInput {
    type Item = RawReader;

    fn next(&mut self) -> Option<RawReader> {
        self.0.next().map(|((), reader)| reader)
    }
}

/// Reads the raw bytes of the key groups of a range.
///
/// # Errors
/// `Corrupt`, naming the object, when bytes are missing or damaged; `Incompatible` for handles that are not raw state; those of the storage.
pub async fn restore_raw_keyed(
    handles: &[KeyGroupsHandle],
    range: KeyGroupRange,
    storage: &dyn CheckpointStorage,
) -> Result<RawKeyedInput> {
    let mut queue = VecDeque::new();
    for handle in handles {
        let name = object_name(&handle.bytes);
        if &*handle.format != RAW {
            return Err(Error::incompatible(format!(
                "keyed state is in the format {:?}, not raw",
                handle.format
            ))
            .with("object", name));
        }
        let mut blocks = Vec::new();
        let load = &mut |group: KeyGroup, block: Bytes| {
            blocks.push((group, open_block(group.0.into(), &block)?));
            Ok(())
        };
        in_stream_order(handle, range, storage, load)
            .await
            .map_err(|e| naming(e, &name))?;
        blocks.sort_by_key(|(group, _)| *group);
        queue.extend(blocks);
    }
    Ok(RawKeyedInput(Turns::new(queue)))
}

/// An operator may start its groups in any order, so they don't lie in the order of their numbers: the object is read whole.
async fn in_stream_order(
    handle: &KeyGroupsHandle,
    range: KeyGroupRange,
    storage: &dyn CheckpointStorage,
    load: &mut dyn FnMut(KeyGroup, Bytes) -> Result<()>,
) -> Result<()> {
    let wanted = || {
        handle
            .offsets
            .iter()
            .filter(|(group, extent)| !extent.is_empty() && range.contains(*group))
    };
    let mut position = 0;
    let ascending = handle
        .offsets
        .iter()
        .filter(|(_, extent)| !extent.is_empty())
        .all(|(_, extent)| {
            let follows = extent.offset >= position;
            position = extent.offset;
            follows
        });
    if ascending {
        return read_groups(handle, range, storage, RAW_MAGIC, load).await;
    }
    let stream = read_all(&handle.bytes, storage).await?;
    check_header(RAW_MAGIC, &stream)?;
    for (group, extent) in wanted() {
        load(group, cut(&stream, extent.offset, extent.len)?)?;
    }
    Ok(())
}

/// Reads the raw partitions that the handles list.
///
/// # Errors
/// As [`restore_raw_keyed`].
pub async fn restore_raw_operator(
    handles: &[OperatorStateHandle],
    storage: &dyn CheckpointStorage,
) -> Result<RawOperatorInput> {
    let mut queue = VecDeque::new();
    for handle in handles {
        let name = object_name(&handle.bytes);
        let stream = read_all(&handle.bytes, storage).await?;
        let mut cut_all = || {
            check_header(RAW_MAGIC, &stream)?;
            for (offset, len) in handle.states.iter().flat_map(|part| &part.elements) {
                queue.push_back(((), open_block(PARTITION, &cut(&stream, *offset, *len)?)?));
            }
            Ok(())
        };
        cut_all().map_err(|e| naming(e, &name))?;
    }
    Ok(RawOperatorInput(Turns::new(queue)))
}

fn cut(stream: &Bytes, offset: u64, len: u64) -> Result<Bytes> {
    let start = usize::try_from(offset).ok();
    let end = offset
        .checked_add(len)
        .and_then(|end| usize::try_from(end).ok());
    match (start, end) {
        (Some(start), Some(end)) if end <= stream.len() => Ok(stream.slice(start..end)),
        _ => Err(Error::corrupt(
            "raw state does not lie where its handle says",
        )),
    }
}
