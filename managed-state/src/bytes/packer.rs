use std::sync::Arc;

use state_api::{BatchEntry, ByteStore, Column, Result, WriteBatch};

use super::state::Located;
use crate::format::{Chunk, ListHead, put_chunk_number, put_encoded_element};

/// Bytes of chunks that are written to the store together.
const BATCH: usize = 1 << 20;

/// Packs the elements of a list into chunks and writes these to the store.
///
/// Nothing of it can be seen before a head that tells of the chunks is written.
pub(super) struct Packer {
    column: Column,
    state: Arc<str>,
    /// Group prefix, key and namespace of the list.
    list: Vec<u8>,
    /// What a head says of the chunks so far.
    head: ListHead,
    limits: Limits,
    /// A chunk that is being filled, its front included.
    chunk: Vec<u8>,
    front: usize,
    elements: u64,
    latest_ms: i64,
    batch: WriteBatch,
    batch_bytes: usize,
}

/// Sizes in bytes that decide how a list is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Elements in a chunk; only one that has a single element is larger.
    pub(super) chunk: usize,
    /// Elements behind the chunks, which are rewritten with the head at each change of the front.
    pub(super) tail: usize,
    /// Elements that are read whole by somebody who goes through the list and takes nothing from it.
    pub(super) scan: usize,
}

impl Limits {
    pub(super) const fn of_chunk(bytes: usize) -> Self {
        Self {
            chunk: bytes,
            tail: bytes / 8,
            scan: bytes.saturating_mul(256),
        }
    }
}

impl Packer {
    /// Goes on behind the chunks of a head.
    pub(super) fn behind(at: &Located<'_>, head: ListHead) -> Self {
        let mut chunk = Vec::new();
        Chunk::put_front(0, &mut chunk);
        Self {
            column: at.column(),
            state: Arc::clone(at.state.name()),
            list: at.composite().to_vec(),
            head,
            limits: at.limits(),
            front: chunk.len(),
            chunk,
            elements: 0,
            latest_ms: i64::MIN,
            batch: WriteBatch::default(),
            batch_bytes: 0,
        }
    }

    /// Adds an element.
    pub(super) fn put(
        &mut self,
        store: &mut dyn ByteStore,
        timestamp_ms: Option<i64>,
        element: &[u8],
    ) -> Result<()> {
        let before = self.chunk.len();
        put_encoded_element(timestamp_ms, element, &mut self.chunk);
        if self.elements > 0 && self.chunk.len() - self.front > self.limits.chunk {
            // It begins the next chunk.
            let last = self.chunk.split_off(before);
            self.close(store)?;
            self.chunk.extend_from_slice(&last);
        }
        self.elements += 1;
        self.latest_ms = self.latest_ms.max(timestamp_ms.unwrap_or(i64::MIN));
        Ok(())
    }

    /// Writes the last chunks; returns the head and the elements that belong behind it.
    pub(super) fn finish(mut self, store: &mut dyn ByteStore) -> Result<(ListHead, Vec<u8>)> {
        let most = if self.head.has_chunks() {
            self.limits.tail
        } else {
            self.limits.chunk
        };
        if self.elements > 0 && self.chunk.len() - self.front > most {
            self.close(store)?;
        }
        if !self.batch.entries.is_empty() {
            store.write(std::mem::take(&mut self.batch))?;
        }
        self.chunk.drain(..self.front);
        Ok((self.head, self.chunk))
    }

    fn close(&mut self, store: &mut dyn ByteStore) -> Result<()> {
        let mut key = Vec::with_capacity(self.list.len() + crate::format::NUMBER_LEN);
        key.extend_from_slice(&self.list);
        put_chunk_number(self.head.next, &mut key);
        let counted = self.head.add_chunk(self.elements, self.latest_ms);
        counted.map_err(|e| e.with("state", &self.state))?;
        (self.elements, self.latest_ms) = (0, i64::MIN);
        let mut next = Vec::with_capacity(self.chunk.len());
        next.extend_from_slice(&self.chunk[..self.front]);
        let full = std::mem::replace(&mut self.chunk, next);
        self.batch_bytes += full.len();
        let entry = BatchEntry::Put(self.column, key, full);
        self.batch.entries.push(entry);
        if self.batch_bytes >= BATCH {
            self.batch_bytes = 0;
            store.write(std::mem::take(&mut self.batch))?;
        }
        Ok(())
    }
}
