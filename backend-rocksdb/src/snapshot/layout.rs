use std::collections::BTreeSet;

use state_api::wire::{
    expect_end, get_bytes, get_len, get_str, get_varint, put_bytes, put_varint, take_array,
};
use state_api::{Error, KeyGroup, KeyGroupRange, Result};

use super::crc32c::crc32c;

const MAGIC: [u8; 7] = *b"HFRKSLY";
const VERSION: u8 = 1;
/// More levels than RocksDB may be told to have.
const MOST_LEVELS: u64 = 64;
/// RocksDB's numbers of files and of changes fit into so many bits.
const NUMBER_BITS: u32 = 56;
/// The last 8 bytes of a greatest key that is not in its file: a deleted range ends there.
const EXCLUDED: [u8; 8] = [0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];

/// Which files a frozen database consists of: enough to put a database together out of them, or out of those of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of the key group at the start of each key.
    pub(crate) prefix_len: usize,
    /// The number of the last change; later ones have greater numbers.
    pub(crate) last_sequence: u64,
    /// The columns, each name once.
    pub(crate) columns: Vec<ColumnLayout>,
}

/// The files of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnLayout {
    /// The state whose column it is.
    pub(crate) state: String,
    /// Its files; no number is twice in a layout.
    pub(crate) files: Vec<FileLayout>,
}

/// What RocksDB knows of a file beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileLayout {
    /// Its number, and so its name.
    pub(crate) number: u64,
    /// Its level.
    pub(crate) level: u64,
    /// Its bytes.
    pub(crate) size: u64,
    /// Least key, followed by 8 bytes of RocksDB's.
    pub(crate) smallest: Vec<u8>,
    /// Greatest key, followed by 8 bytes of RocksDB's. Deleted ranges in the file count from least to greatest key only.
    pub(crate) largest: Vec<u8>,
    /// Number of its first change.
    pub(crate) smallest_sequence: u64,
    /// Number of its last change.
    pub(crate) largest_sequence: u64,
    /// Orders the files of level 0: later ones have greater numbers.
    pub(crate) epoch: u64,
    /// What else RocksDB has written down, by tag.
    pub(crate) fields: Vec<(u64, Vec<u8>)>,
}

impl FileLayout {
    /// Returns the name of the file in the folder of the database.
    pub(crate) fn name(&self) -> String {
        file_name(self.number)
    }

    /// Returns the least key.
    pub(crate) fn first_key(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    /// Returns the greatest key, and whether the file goes up to it without having it.
    pub(crate) fn last_key(&self) -> (&[u8], bool) {
        (user_key(&self.largest), self.largest.ends_with(&EXCLUDED))
    }

    /// Returns whether a key group of a range may be in the file.
    pub(crate) fn intersects(&self, bounds: &Bounds) -> bool {
        let (last, excluded) = self.last_key();
        let starts_before_end = bounds
            .end
            .as_deref()
            .is_none_or(|end| self.first_key() < end);
        let ends_after_start = if excluded {
            last > bounds.start.as_slice()
        } else {
            last >= bounds.start.as_slice()
        };
        starts_before_end && ends_after_start
    }

    /// Returns whether nothing but key groups of a range is in the file.
    pub(crate) fn is_within(&self, bounds: &Bounds) -> bool {
        let (last, excluded) = self.last_key();
        let ends_before_end = bounds
            .end
            .as_deref()
            .is_none_or(|end| last < end || (excluded && last == end));
        self.first_key() >= bounds.start.as_slice() && ends_before_end
    }
}

/// The stored keys of a range of key groups: from the start up to, and without, the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    /// `None` when no key can follow.
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    /// Returns the bounds of a range that is not empty.
    pub(crate) fn of(range: KeyGroupRange, prefix_len: usize) -> Self {
        let end = prefix(range.end(), prefix_len);
        Self {
            start: prefix(range.start(), prefix_len),
            end: state_api::prefix_end(&end),
        }
    }
}

fn prefix(group: KeyGroup, prefix_len: usize) -> Vec<u8> {
    let bytes = group.0.to_be_bytes();
    match prefix_len {
        1 => bytes[1..].to_vec(),
        _ => bytes.to_vec(),
    }
}

fn user_key(internal: &[u8]) -> &[u8] {
    &internal[..internal.len().saturating_sub(8)]
}

/// Returns the name that RocksDB gives to the file of a number.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:06}.sst")
}

impl Layout {
    /// Returns all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileLayout> {
        self.columns.iter().flat_map(|column| &column.files)
    }

    /// Returns the bytes to be stored: see `docs/formats/rocksdb.md`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        put_varint(&mut out, self.prefix_len as u64);
        put_varint(&mut out, self.last_sequence);
        put_varint(&mut out, self.columns.len() as u64);
        for column in &self.columns {
            put_bytes(&mut out, column.state.as_bytes());
            put_varint(&mut out, column.files.len() as u64);
            for file in &column.files {
                file.encode(&mut out);
            }
        }
        let checksum = crc32c(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// `Corrupt` for anything else, `Unsupported` when a newer version wrote it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(Error::corrupt("the layout is shorter than its checksum"));
        };
        let mut input = body;
        if take_array::<7>(&mut input)? != MAGIC {
            return Err(Error::corrupt(
                "the layout does not start with its magic number",
            ));
        }
        let [version] = take_array::<1>(&mut input)?;
        if version != VERSION {
            return Err(Error::unsupported(format!(
                "the layout has version {version}; this program reads version {VERSION}"
            )));
        }
        if crc32c(&[body]) != u32::from_le_bytes(*checksum) {
            return Err(Error::corrupt("the layout differs from its checksum"));
        }
        let input = &mut input;
        let prefix_len = match get_varint(input)? {
            1 => 1,
            2 => 2,
            _ => return Err(Error::corrupt("key groups take one or two bytes")),
        };
        let last_sequence = number(input)?;
        let mut columns = Vec::new();
        for _ in 0..get_len(input)? {
            columns.push(ColumnLayout::decode(input)?);
        }
        expect_end(input)?;
        let layout = Self {
            prefix_len,
            last_sequence,
            columns,
        };
        layout.check()?;
        Ok(layout)
    }

    /// Checks what must hold between the parts.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check(&self) -> Result<()> {
        let mut states = BTreeSet::new();
        let mut numbers = BTreeSet::new();
        for column in &self.columns {
            if !states.insert(column.state.as_str()) {
                return Err(
                    Error::corrupt("a column is twice in the layout").with("state", &column.state)
                );
            }
            for file in &column.files {
                if !numbers.insert(file.number) {
                    return Err(
                        Error::corrupt("a file is twice in the layout").with("file", file.name())
                    );
                }
                if file.largest_sequence > self.last_sequence {
                    return Err(
                        Error::corrupt("a file is newer than the layout").with("file", file.name())
                    );
                }
            }
        }
        Ok(())
    }
}

impl ColumnLayout {
    fn decode(input: &mut &[u8]) -> Result<Self> {
        let state = get_str(input)?.to_owned();
        let mut files = Vec::new();
        for _ in 0..get_len(input)? {
            files.push(FileLayout::decode(input)?);
        }
        Ok(Self { state, files })
    }
}

impl FileLayout {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, self.level);
        put_varint(out, self.size);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.smallest_sequence);
        put_varint(out, self.largest_sequence);
        put_varint(out, self.epoch);
        put_varint(out, self.fields.len() as u64);
        for (tag, value) in &self.fields {
            put_varint(out, *tag);
            put_bytes(out, value);
        }
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        let mut file = Self {
            number: number(input)?,
            level: get_varint(input)?,
            size: get_varint(input)?,
            smallest: get_bytes(input)?.to_vec(),
            largest: get_bytes(input)?.to_vec(),
            smallest_sequence: number(input)?,
            largest_sequence: number(input)?,
            epoch: get_varint(input)?,
            fields: Vec::new(),
        };
        for _ in 0..get_len(input)? {
            let tag = get_varint(input)?;
            file.fields.push((tag, get_bytes(input)?.to_vec()));
        }
        file.check()?;
        Ok(file)
    }

    /// Checks what must hold of a file.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::corrupt(what).with("file", self.name()));
        if self.smallest.len() < 8 || self.largest.len() < 8 {
            return wrong("a key of the layout is too short");
        }
        if self.first_key() > self.last_key().0 {
            return wrong("a file of the layout ends before it starts");
        }
        if self.smallest_sequence > self.largest_sequence {
            return wrong("the changes of a file end before they start");
        }
        if self.level >= MOST_LEVELS {
            return wrong("a file of the layout is on a level that does not exist");
        }
        if self.size == 0 {
            return wrong("a file of the layout is empty");
        }
        Ok(())
    }
}

fn number(input: &mut &[u8]) -> Result<u64> {
    let number = get_varint(input)?;
    if number >> NUMBER_BITS == 0 {
        Ok(number)
    } else {
        Err(Error::corrupt("a number of the layout is too great"))
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
