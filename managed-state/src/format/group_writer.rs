use state_api::KeyGroup;
use state_api::wire::{put_bytes, put_varint};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::elements::patch_length;

/// Writes the block of one key group.
///
/// The block is appended to a buffer that the caller lends. A group without entries leaves the buffer as it was.
pub struct GroupWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where the block, or the part of it that is still in the buffer, starts.
    start: usize,
    section: Option<OpenSection>,
    /// Covers what was drained, if something was.
    drained: Option<Box<Xxh3>>,
    drained_len: u64,
    group: KeyGroup,
    wrote_entries: bool,
    /// How many bytes the lengths of key and value took last.
    key_mark: usize,
    value_mark: usize,
}

#[derive(Clone, Copy)]
struct OpenSection {
    column: u32,
    /// Where the section starts, and where its two length fields do.
    at: usize,
    lengths_at: usize,
    entries: u64,
}

impl<'a> GroupWriter<'a> {
    /// Begins the block of a group at the end of a buffer.
    #[must_use]
    pub fn begin(group: KeyGroup, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&group.0.to_be_bytes());
        Self {
            out,
            start,
            section: None,
            drained: None,
            drained_len: 0,
            group,
            wrote_entries: false,
            key_mark: 1,
            value_mark: 1,
        }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> KeyGroup {
        self.group
    }

    /// Begins a section of a state, by its position in the handle's list of states. A state may have several sections.
    pub fn section(&mut self, column: u32) {
        self.end_section();
        let at = self.out.len();
        put_varint(self.out, u64::from(column) + 1);
        let lengths_at = self.out.len();
        self.out.extend_from_slice(&[0; 16]);
        self.section = Some(OpenSection {
            column,
            at,
            lengths_at,
            entries: 0,
        });
    }

    /// Returns the entries written to the current section so far.
    #[must_use]
    pub fn section_entries(&self) -> u64 {
        self.section.map_or(0, |section| section.entries)
    }

    /// Writes an entry of the current section.
    ///
    /// # Panics
    /// Without a section.
    #[inline]
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        put_bytes(self.out, key);
        put_bytes(self.out, value);
        self.count(1);
    }

    /// Writes an entry of the current section, key and value being appended in place by the caller.
    ///
    /// # Panics
    /// Without a section.
    #[inline]
    pub fn entry_with(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        reserve_length(self.out, self.key_mark);
        key(self.out);
        self.key_mark = patch_length(self.out, at, self.key_mark);
        let at = self.out.len();
        reserve_length(self.out, self.value_mark);
        value(self.out);
        self.value_mark = patch_length(self.out, at, self.value_mark);
        self.count(1);
    }

    /// Makes room for entries of the current section that take so many bytes together, and returns it to be filled.
    ///
    /// # Panics
    /// Without a section.
    #[inline]
    pub(crate) fn entries(&mut self, entries: usize, bytes: usize) -> &mut [u8] {
        self.count(entries);
        let start = self.out.len();
        self.out.resize(start + bytes, 0);
        &mut self.out[start..]
    }

    #[inline]
    fn count(&mut self, entries: usize) {
        let section = self
            .section
            .as_mut()
            .expect("a section is begun before its entries");
        section.entries += entries as u64;
    }

    /// Writes a whole section out of the entries of another block, as they are.
    pub fn carry_section(&mut self, column: u32, entries: u64, bytes: &[u8]) {
        self.section(column);
        self.out.extend_from_slice(bytes);
        if let Some(section) = &mut self.section {
            section.entries = entries;
        }
        self.end_section();
    }

    /// Returns the number of bytes in the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.out.len()
    }

    /// Takes all bytes out of the buffer, so that a block can be larger than memory; the current section goes on in a new one.
    pub fn drain(&mut self) -> Vec<u8> {
        let column = self.section.map(|section| section.column);
        self.end_section();
        let part = &self.out[self.start..];
        self.drained_len += part.len() as u64;
        self.drained
            .get_or_insert_with(|| Box::new(Xxh3::new()))
            .update(part);
        self.start = 0;
        let taken = std::mem::take(self.out);
        if let Some(column) = column {
            self.section(column);
        }
        taken
    }

    /// Ends the block; returns its length in bytes, what was drained included. 0 if the group had no entries.
    pub fn finish(mut self) -> u64 {
        self.end_section();
        if !self.wrote_entries && self.drained.is_none() {
            self.out.truncate(self.start);
            return 0;
        }
        self.out.push(0);
        let part = &self.out[self.start..];
        let len = self.drained_len + part.len() as u64 + 8;
        let checksum = match self.drained {
            None => xxh3_64(part),
            Some(mut hasher) => {
                hasher.update(part);
                hasher.digest()
            }
        };
        self.out.extend_from_slice(&checksum.to_le_bytes());
        len
    }

    fn end_section(&mut self) {
        let Some(section) = self.section.take() else {
            return;
        };
        if section.entries == 0 {
            self.out.truncate(section.at);
            return;
        }
        self.wrote_entries = true;
        let lengths = section.lengths_at;
        let bytes = (self.out.len() - lengths - 16) as u64;
        self.out[lengths..lengths + 8].copy_from_slice(&bytes.to_le_bytes());
        self.out[lengths + 8..lengths + 16].copy_from_slice(&section.entries.to_le_bytes());
    }
}

/// Makes room for a length, most often of one byte.
#[inline]
fn reserve_length(out: &mut Vec<u8>, bytes: usize) {
    if bytes == 1 {
        out.push(0);
    } else {
        out.resize(out.len() + bytes, 0);
    }
}
