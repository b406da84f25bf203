//! A run of raw bytes with its checksum, so that a part of an object is verified without the rest.
use std::io;

use bytes::Bytes;
use state_api::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

/// Length of a checksum in bytes.
const CHECKSUM: usize = 8;

/// Names a block among those of its stream: it can't stand in for another one.
fn checksum(number: u64, payload: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = Xxh3::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(payload);
    hasher.digest().to_le_bytes()
}

/// Gathers blocks one after the other.
#[derive(Debug)]
pub(super) struct BlockWriter {
    bytes: Vec<u8>,
    /// Number and first byte of the current block.
    current: Option<(u64, usize)>,
    closed: bool,
}

impl BlockWriter {
    pub(super) fn new(header: &[u8]) -> Self {
        Self {
            bytes: header.to_vec(),
            current: None,
            closed: false,
        }
    }

    /// Begins a block; returns number, offset and length of the one before.
    pub(super) fn begin(&mut self, number: u64) -> Result<Option<(u64, u64, u64)>> {
        if self.closed {
            return Err(Error::poisoned("the raw state stream is closed"));
        }
        let ended = self.end();
        self.current = Some((number, self.bytes.len()));
        Ok(ended)
    }

    /// Ends the current block.
    pub(super) fn end(&mut self) -> Option<(u64, u64, u64)> {
        let (number, start) = self.current.take()?;
        let checksum = checksum(number, self.bytes.get(start..).unwrap_or_default());
        self.bytes.extend_from_slice(&checksum);
        Some((number, start as u64, (self.bytes.len() - start) as u64))
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Err(io::Error::other("the raw state stream is closed"));
        }
        if self.current.is_none() {
            return Err(io::Error::other(
                "raw state is written before a key group or partition is started",
            ));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Checks a block and returns its payload.
pub(super) fn open_block(number: u64, block: &Bytes) -> Result<Bytes> {
    match block.split_last_chunk::<CHECKSUM>() {
        Some((payload, found)) if checksum(number, payload) == *found => {
            Ok(block.slice(..payload.len()))
        }
        _ => Err(Error::corrupt(
            "the checksum of raw state does not match its bytes",
        )),
    }
}
