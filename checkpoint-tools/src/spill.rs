//! Entries that are put aside in local files, to be taken up again in another order with little memory.
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use state_api::wire::{get_bytes, get_varint, put_bytes, put_varint};
use state_api::{Error, Result};

use crate::scratch::Scratch;

/// Bytes that wait in memory for each bucket.
const BUFFER: usize = 32 << 10;

/// Entries in buckets, each of which fits into memory by itself.
pub(crate) struct Spill {
    scratch: Scratch,
    buckets: Vec<Bucket>,
}

#[derive(Default)]
struct Bucket {
    buffer: Vec<u8>,
    /// Bytes in the bucket's file.
    written: u64,
}

/// An entry that was put aside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spilled {
    /// A number that the caller sorts by, such as the key group.
    pub(crate) group: u64,
    /// The state's number.
    pub(crate) column: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Spill {
    pub(crate) fn new(scratch: Scratch, buckets: usize) -> Self {
        let mut all = Vec::new();
        all.resize_with(buckets.max(1), Bucket::default);
        Self {
            scratch,
            buckets: all,
        }
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    fn path(&self, bucket: usize) -> PathBuf {
        self.scratch.folder().join(format!("bucket-{bucket}"))
    }

    /// Puts an entry into a bucket.
    pub(crate) fn push(
        &mut self,
        bucket: usize,
        group: u64,
        column: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let path = self.path(bucket);
        let Some(into) = self.buckets.get_mut(bucket) else {
            return Err(Error::bug("no such bucket"));
        };
        put_varint(&mut into.buffer, group);
        put_varint(&mut into.buffer, column);
        put_bytes(&mut into.buffer, key);
        put_bytes(&mut into.buffer, value);
        if into.buffer.len() >= BUFFER {
            let open = OpenOptions::new().create(true).append(true).open(&path);
            open.and_then(|mut file: File| file.write_all(&into.buffer))
                .map_err(|e| {
                    Error::retryable("entries can't be put aside")
                        .with("file", path.display())
                        .caused_by(e)
                })?;
            into.written += into.buffer.len() as u64;
            into.buffer.clear();
        }
        Ok(())
    }

    /// Takes a bucket's entries, in the order in which they were put in, and lets go of what held them.
    pub(crate) fn take(&mut self, bucket: usize) -> Result<Vec<Spilled>> {
        let path = self.path(bucket);
        let from = self.buckets.get_mut(bucket).map(std::mem::take);
        let from = from.unwrap_or_default();
        let mut bytes = Vec::new();
        if from.written > 0 {
            let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
            let gone = read.and_then(|_| std::fs::remove_file(&path));
            gone.map_err(|e| {
                Error::retryable("entries that were put aside can't be read")
                    .with("file", path.display())
                    .caused_by(e)
            })?;
            if bytes.len() as u64 != from.written {
                return Err(
                    Error::retryable("entries that were put aside are cut short")
                        .with("file", path.display()),
                );
            }
        }
        bytes.extend_from_slice(&from.buffer);
        let mut input = &bytes[..];
        let mut entries = Vec::new();
        while !input.is_empty() {
            entries.push(Spilled {
                group: get_varint(&mut input)?,
                column: get_varint(&mut input)?,
                key: get_bytes(&mut input)?.to_vec(),
                value: get_bytes(&mut input)?.to_vec(),
            });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_bucket_by_bucket_in_order_and_no_file_is_left() {
        let io = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(dir.path(), io.handle()).unwrap();
        let mut spill = Spill::new(scratch, 3);
        let value = vec![7; 1000];
        for i in 0..300u64 {
            spill
                .push(i as usize % 3, i, i * 2, &i.to_le_bytes(), &value)
                .unwrap();
        }
        for bucket in 0..3u64 {
            let entries = spill.take(bucket as usize).unwrap();
            let expected = (0..100).map(|i| i * 3 + bucket);
            assert!(entries.iter().map(|entry| entry.group).eq(expected));
            assert!(entries.iter().all(|entry| entry.value == value));
        }
        assert!(spill.take(0).unwrap().is_empty());
        drop(spill);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
