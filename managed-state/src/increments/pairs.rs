use std::fmt;

use state_api::wire::{get_varint, put_varint};
use state_api::{CancelToken, Error, Result};
use xxhash_rust::xxh3::Xxh3;

use crate::format::{ChunkWriter, HEADER_LEN, PAIRS_MAGIC, check_header, header};

/// Encoded bytes are handed on when so many are together.
const CHUNK_SIZE: usize = 1 << 20;

const COLUMN: u64 = 0;
const PUT: u64 = 1;
const REMOVED: u64 = 2;
/// The checksum of all bytes before: the digest of an object says nothing about bytes that were damaged on their way to it.
const END: u64 = 3;
/// The kind of a record stands in the low bits of its first number.
const KIND_BITS: u32 = 2;

/// Takes pairs and removed keys, column by column, and hands them to the upload as bytes.
pub struct PairWriter<'w> {
    out: Vec<u8>,
    chunks: &'w mut ChunkWriter<u64>,
    cancel: CancelToken,
    records: u64,
    /// Of what was handed on.
    checksum: Xxh3,
}

impl<'w> PairWriter<'w> {
    pub(super) fn new(chunks: &'w mut ChunkWriter<u64>, cancel: CancelToken) -> Self {
        let mut out = chunks.buffer(CHUNK_SIZE);
        out.extend_from_slice(&header(PAIRS_MAGIC));
        Self {
            out,
            chunks,
            cancel,
            records: 0,
            checksum: Xxh3::new(),
        }
    }

    /// Starts a column: what follows is of it. Its name is that of its state.
    ///
    /// # Errors
    /// `Cancelled` when nobody wants the snapshot any more, `Retryable` when the file of bytes that wait fails.
    pub fn column(&mut self, name: &str) -> Result<()> {
        self.record(COLUMN, name.as_bytes(), None)
    }

    /// Adds a key and its value.
    ///
    /// # Errors
    /// As [`column`](Self::column).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records += 1;
        self.record(PUT, key, Some(value))
    }

    /// Adds a key that is gone.
    ///
    /// # Errors
    /// As [`column`](Self::column).
    pub fn removed(&mut self, key: &[u8]) -> Result<()> {
        self.records += 1;
        self.record(REMOVED, key, None)
    }

    fn record(&mut self, kind: u64, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        put_varint(&mut self.out, (key.len() as u64) << KIND_BITS | kind);
        if let Some(value) = value {
            put_varint(&mut self.out, value.len() as u64);
        }
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(value.unwrap_or_default());
        if self.out.len() < CHUNK_SIZE {
            return Ok(());
        }
        self.cancel.check()?;
        self.checksum.update(&self.out);
        let empty = self.chunks.buffer(CHUNK_SIZE);
        self.chunks.send(std::mem::replace(&mut self.out, empty))
    }

    /// Hands on the last bytes; returns the number of pairs and removed keys.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.checksum.update(&self.out);
        let checksum = self.checksum.digest().to_le_bytes();
        self.record(END, &checksum, None)?;
        self.chunks.send(self.out)?;
        Ok(self.records)
    }
}

impl fmt::Debug for PairWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairWriter")
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// What a [`PairWriter`] was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Column(&'a [u8]),
    Put(&'a [u8], &'a [u8]),
    Removed(&'a [u8]),
}

/// What stands next in the bytes.
enum Next<'a> {
    Record(Record<'a>),
    /// Nothing follows; the checksum of all bytes before.
    End(&'a [u8]),
}

/// Reads records out of bytes that come in pieces. They are proven at the end only.
pub(super) struct PairReader {
    /// Bytes that are still to come.
    to_come: u64,
    unread: Vec<u8>,
    has_header: bool,
    has_end: bool,
    /// Of what was read.
    checksum: Xxh3,
}

impl PairReader {
    /// Starts reading so many bytes.
    pub(super) fn new(len: u64) -> Self {
        Self {
            to_come: len,
            unread: Vec::new(),
            has_header: false,
            has_end: false,
            checksum: Xxh3::new(),
        }
    }

    /// Takes a piece and hands on the records that are whole by now.
    pub(super) fn read(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let too_many = || Error::corrupt("there are more bytes than were to come");
        let to_come = self.to_come.checked_sub(piece.len() as u64);
        self.to_come = to_come.ok_or_else(too_many)?;
        self.unread.extend_from_slice(piece);
        let mut input = self.unread.as_slice();
        if !self.has_header {
            let Some((head, rest)) = input.split_at_checked(HEADER_LEN) else {
                return Ok(());
            };
            check_header(PAIRS_MAGIC, head)?;
            (input, self.has_header) = (rest, true);
        }
        let mut before = self.unread.len() - input.len();
        while let Some(found) = next(&mut input, self.to_come)? {
            if self.has_end {
                return Err(Error::corrupt("the pairs go on after their end"));
            }
            match found {
                Next::Record(record) => take(record)?,
                Next::End(checksum) => {
                    self.checksum.update(&self.unread[..before]);
                    self.has_end = true;
                    if self.checksum.digest().to_le_bytes() != checksum {
                        return Err(Error::corrupt("the checksum of the pairs is wrong"));
                    }
                }
            }
            before = self.unread.len() - input.len();
        }
        if !self.has_end {
            self.checksum.update(&self.unread[..before]);
        }
        self.unread.drain(..before);
        Ok(())
    }

    /// Checks that all is read.
    pub(super) fn finish(self) -> Result<()> {
        if self.has_end && self.unread.is_empty() {
            Ok(())
        } else {
            Err(Error::corrupt("the pairs do not end where they should"))
        }
    }
}

/// Takes the next record off the input if all of it is there; it must end before the bytes that are still to come do.
fn next<'a>(input: &mut &'a [u8], to_come: u64) -> Result<Option<Next<'a>>> {
    let mut rest = *input;
    let Some(first) = varint(&mut rest)? else {
        return Ok(None);
    };
    let kind = first & ((1 << KIND_BITS) - 1);
    let value_len = match kind {
        PUT => varint(&mut rest)?,
        _ => Some(0),
    };
    let Some(value_len) = value_len else {
        return Ok(None);
    };
    let key_len = first >> KIND_BITS;
    let is_within = key_len
        .checked_add(value_len)
        .is_some_and(|len| len <= to_come + rest.len() as u64);
    if !is_within {
        return Err(Error::corrupt("a pair does not end where the pairs do"));
    }
    let split = |bytes: &'a [u8], len: u64| bytes.split_at_checked(usize::try_from(len).ok()?);
    let Some((key, rest)) = split(rest, key_len) else {
        return Ok(None);
    };
    let Some((value, rest)) = split(rest, value_len) else {
        return Ok(None);
    };
    *input = rest;
    Ok(Some(match kind {
        COLUMN => Next::Record(Record::Column(key)),
        PUT => Next::Record(Record::Put(key, value)),
        REMOVED => Next::Record(Record::Removed(key)),
        _ => Next::End(key),
    }))
}

/// Takes a number off the input if all of it is there.
fn varint(input: &mut &[u8]) -> Result<Option<u64>> {
    const LONGEST: usize = 10;
    let ends = input.iter().take(LONGEST).any(|byte| byte & 0x80 == 0);
    if ends || input.len() >= LONGEST {
        get_varint(input).map(Some)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    /// Two columns; the last key takes two bytes for its length.
    fn sample() -> Vec<u8> {
        let key = [b'x'; 100];
        let mut sample = b"HFPAIRS\x01\x0Ccol\x05\x02kvv\x06g\x01\x00\x0Copq\x91\x03\x00".to_vec();
        sample.extend_from_slice(&key);
        let checksum = xxhash_rust::xxh3::xxh3_64(&sample).to_le_bytes();
        sample.push(8 << 2 | 3);
        sample.extend_from_slice(&checksum);
        sample
    }

    fn read(pieces: std::slice::Chunks<'_, u8>) -> Result<Vec<String>> {
        let len = pieces.clone().map(<[u8]>::len).sum::<usize>();
        let mut reader = PairReader::new(len as u64);
        let mut records = Vec::new();
        for piece in pieces {
            reader.read(piece, |record| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                records.push(match record {
                    Record::Column(name) => format!("in {}", text(name)),
                    Record::Put(key, value) => format!("{}={}", text(key), text(value)),
                    Record::Removed(key) => format!("-{}", text(key)),
                });
                Ok(())
            })?;
        }
        reader.finish().map(|()| records)
    }

    #[test]
    fn records_come_whole_however_the_bytes_are_cut() {
        let (sample, last) = (sample(), format!("{}=", "x".repeat(100)));
        for size in 1..=sample.len() {
            let records = read(sample.chunks(size)).unwrap();
            let expected = ["in col", "k=vv", "-g", "=", "in opq", &last];
            assert_eq!(records, expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_length_that_goes_past_the_end_is_noticed_before_the_rest_is_read() {
        // Of a key, of a value, of both together, and of more than there can be; 1000 bytes are to come.
        let head = &b"HFPAIRS\x01"[..];
        let key = [head, b"\xA2\x7F"].concat();
        let value = [head, b"\x05\xFF\x7Fk"].concat();
        let both = [head, b"\xE1\x12\xD8\x04"].concat();
        let endless = [head, b"\x05", &[0xFF; 9], b"\x01k"].concat();
        for start in [key, value, both, endless] {
            let mut reader = PairReader::new(1_000);
            let read = reader.read(&start, |_| Ok(()));
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt, "{start:?}");
        }
        let more = PairReader::new(7).read(b"HFPAIRS\x01", |_| Ok(()));
        assert_eq!(more.unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn k_681_bytes_that_are_missing_changed_or_there_twice_are_noticed() {
        let sample = sample();
        let mut damaged: Vec<Vec<u8>> = (0..sample.len())
            .map(|end| sample[..end].to_vec())
            .collect();
        for at in 0..sample.len() {
            let mut flipped = sample.clone();
            flipped[at] ^= 0x10;
            damaged.push(flipped);
        }
        damaged.push(sample.repeat(2));
        damaged.push([&sample[..], b"\x00"].concat());
        damaged.push([&sample[..8], &[0x80; 11]].concat());
        for bytes in damaged {
            let kind = read(bytes.chunks(7)).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported));
        }
    }
}
