use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use state_api::{Error, ErrorKind, Result};

use super::BlockCipher;
use super::format::{BLOCK_HEADER_LEN, BLOCK_LEN, FOOTER_LEN, Footer, Header, MOST_OF_ONE_BLOCK};
use crate::root::StoreRoot;

/// Objects whose blocks are remembered.
const REMEMBERED: usize = 256;

/// Bytes of the end that are read at once: the index of objects up to some 4 GB.
const TAIL: u64 = 64 << 10;

/// Where the blocks of sealed objects begin, remembered for some.
#[derive(Debug, Default)]
pub(crate) struct IndexCache(Mutex<HashMap<String, Arc<Index>>>);

/// Where the blocks of an object begin.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) header: Header,
    pub(super) footer: Footer,
    /// Where each block begins, and where the last one ends.
    pub(super) starts: Vec<u64>,
    /// Length of the object as it is stored.
    pub(super) stored_len: u64,
}

impl IndexCache {
    /// Returns the plain length of a sealed object, or `None` if there is no such object.
    pub(crate) async fn len(&self, root: &StoreRoot, path: &str) -> Result<Option<u64>> {
        match self.index(root, path).await {
            Ok(index) => Ok(Some(index.footer.plain_len)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads plain bytes of a sealed object; fewer come back when the object ends inside the range.
    pub(crate) async fn read(
        &self,
        root: &StoreRoot,
        path: &str,
        range: Range<u64>,
        plain_len: u64,
    ) -> Result<Bytes> {
        let cipher = root.sealing().cipher.as_deref();
        let named = |e: Error| e.with("object", path);
        if plain_len <= BLOCK_LEN as u64 {
            // One request: all of a small object, and no more than one can be.
            let stored = root.read(path, 0..MOST_OF_ONE_BLOCK + 1).await?;
            let plain = open_whole(&stored, cipher).map_err(named)?;
            return Ok(cut(plain.into(), 0, &range));
        }
        let index = self.index(root, path).await?;
        let range = range.start.min(index.footer.plain_len)..range.end.min(index.footer.plain_len);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        // Below the number of blocks, which is below 2^32.
        let first = (range.start / BLOCK_LEN as u64) as usize;
        let last = ((range.end - 1) / BLOCK_LEN as u64) as usize;
        let stored = root
            .read(path, index.starts[first]..index.starts[last + 1])
            .await?;
        let mut rest = &stored[..];
        let mut plain = Vec::with_capacity((last + 1 - first) * BLOCK_LEN);
        for number in first..=last {
            let block = index
                .header
                .take_block(&mut rest, number as u32, cipher)
                .map_err(named)?;
            if block.len() as u64 != index.plain_len_of(number) {
                return Err(named(Error::corrupt(
                    "a block has not the length of its place",
                )));
            }
            plain.extend_from_slice(&block);
        }
        Ok(cut(plain.into(), (first * BLOCK_LEN) as u64, &range))
    }

    async fn index(&self, root: &StoreRoot, path: &str) -> Result<Arc<Index>> {
        let key = format!("{}/{path}", root.url());
        if let Some(found) = self.lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let index = Arc::new(
            Index::load(root, path)
                .await
                .map_err(|e| e.with("object", path))?,
        );
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, Arc::clone(&index));
        Ok(index)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Index>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Reads the index of an object from the store, whatever is remembered of it.
    pub(super) async fn load(root: &StoreRoot, path: &str) -> Result<Self> {
        let len = root
            .len(path)
            .await?
            .ok_or_else(|| Error::not_found("there is no such object"))?;
        let damaged = || Error::corrupt("the end of a sealed object does not fit its length");
        let mut tail = root.read(path, len.saturating_sub(TAIL)..len).await?;
        let (header, header_len) = match len <= TAIL {
            true => Header::decode(&tail)?,
            false => Header::decode(&root.read(path, 0..Header::MOST as u64).await?)?,
        };
        let footer = Footer::decode(&tail)?;
        let index_len = u64::from(footer.blocks) * 4;
        let end = FOOTER_LEN as u64 + index_len;
        // What the object's own length does not leave room for is not asked for, nor allocated.
        let least = u64::from(footer.blocks) * BLOCK_HEADER_LEN as u64;
        if len < header_len as u64 + end + least {
            return Err(damaged());
        }
        if (tail.len() as u64) < end {
            tail = root.read(path, len - end..len).await?;
        }
        let from = (tail.len() as u64).checked_sub(end).ok_or_else(damaged)? as usize;
        let (lens, _) = tail[from..tail.len() - FOOTER_LEN].as_chunks::<4>();
        let mut at = header_len as u64;
        let mut starts = Vec::with_capacity(lens.len() + 1);
        for block in lens {
            starts.push(at);
            at += u64::from(u32::from_le_bytes(*block));
        }
        starts.push(at);
        if at + end != len {
            return Err(damaged());
        }
        Ok(Self {
            header,
            footer,
            starts,
            stored_len: len,
        })
    }

    /// Returns the plain length that a block must have by its place.
    pub(super) fn plain_len_of(&self, block: usize) -> u64 {
        let before = block as u64 * BLOCK_LEN as u64;
        self.footer
            .plain_len
            .saturating_sub(before)
            .min(BLOCK_LEN as u64)
    }
}

/// Opens an object that is there as a whole.
fn open_whole(stored: &[u8], cipher: Option<&dyn BlockCipher>) -> Result<Vec<u8>> {
    let (header, at) = Header::decode(stored)?;
    let footer = Footer::decode(stored)?;
    if footer.blocks > 1 {
        // The handle says that there is one: what others would take to unpack is not tried.
        return Err(Error::corrupt("a sealed object is longer than it was"));
    }
    let mut rest = &stored[at..];
    let mut plain = Vec::new();
    for number in 0..footer.blocks {
        plain.extend_from_slice(&header.take_block(&mut rest, number, cipher)?);
    }
    if plain.len() as u64 != footer.plain_len
        || rest.len() as u64 != FOOTER_LEN as u64 + u64::from(footer.blocks) * 4
    {
        return Err(Error::corrupt(
            "the parts of a sealed object contradict each other",
        ));
    }
    Ok(plain)
}

/// Returns what a range has of bytes that begin at a position.
fn cut(bytes: Bytes, at: u64, range: &Range<u64>) -> Bytes {
    let len = bytes.len() as u64;
    let within = |position: u64| position.saturating_sub(at).min(len) as usize;
    let (from, to) = (within(range.start), within(range.end));
    if from >= to {
        Bytes::new()
    } else {
        bytes.slice(from..to)
    }
}
