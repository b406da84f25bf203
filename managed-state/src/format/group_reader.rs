use state_api::wire::{get_bytes, get_varint, take, take_array};
use state_api::{Error, KeyGroup, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Group number, end mark, checksum.
const SHORTEST_BLOCK: usize = 2 + 1 + 8;

/// Reads the block of one key group, its checksum verified first.
#[derive(Clone, Debug)]
pub struct GroupReader<'a> {
    group: KeyGroup,
    columns: usize,
    rest: &'a [u8],
}

impl<'a> GroupReader<'a> {
    /// Opens a block that must be of this group and have states below `columns` only.
    ///
    /// # Errors
    /// `Corrupt` when the checksum or the group is wrong.
    pub fn open(group: KeyGroup, columns: usize, block: &'a [u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(what).with("key group", group);
        if block.len() < SHORTEST_BLOCK {
            return Err(corrupt("the block of a key group is cut short"));
        }
        let Some((content, checksum)) = block.split_last_chunk::<8>() else {
            return Err(corrupt("the block of a key group is cut short"));
        };
        if xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return Err(corrupt(
                "the checksum of a key group does not match its bytes",
            ));
        }
        let mut rest = content;
        let found = u16::from_be_bytes(take_array(&mut rest)?);
        if found != group.0 {
            return Err(corrupt("the block belongs to another key group").with("found", found));
        }
        Ok(Self {
            group,
            columns,
            rest,
        })
    }

    /// Returns the next section; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` when the bytes make no sense in spite of their checksum.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would have to end after an error"
    )]
    pub fn next(&mut self) -> Result<Option<Section<'a>>> {
        self.read_section()
            .map_err(|e| e.with("key group", self.group))
    }

    fn read_section(&mut self) -> Result<Option<Section<'a>>> {
        let tag = get_varint(&mut self.rest)?;
        let Some(column) = tag.checked_sub(1) else {
            return match self.rest {
                [] => {
                    // Asking again is answered alike.
                    self.rest = &[0];
                    Ok(None)
                }
                more => Err(Error::corrupt(format!(
                    "{} bytes left after the end of the key group",
                    more.len()
                ))),
            };
        };
        let column = usize::try_from(column)
            .ok()
            .filter(|column| *column < self.columns);
        let column = column
            .and_then(|column| u32::try_from(column).ok())
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "section {tag} of a snapshot with {} states",
                    self.columns
                ))
            })?;
        let len = u64::from_le_bytes(take_array(&mut self.rest)?);
        let entries = u64::from_le_bytes(take_array(&mut self.rest)?);
        let len = usize::try_from(len)
            .map_err(|_| Error::corrupt("a section exceeds the address space"))?;
        let bytes = take(&mut self.rest, len)?;
        // An entry takes two bytes at least, so the number is a safe hint for capacities.
        if entries > (bytes.len() / 2) as u64 {
            return Err(Error::corrupt(format!("{entries} entries in {len} bytes")));
        }
        Ok(Some(Section {
            column,
            entries,
            bytes,
        }))
    }
}

/// Entries of one state in one key group, or a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Position of the state in the handle's list.
    pub column: u32,
    /// Number of entries.
    pub entries: u64,
    /// The entries.
    pub bytes: &'a [u8],
}

impl<'a> Section<'a> {
    /// Reads the entries without copying.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            left: self.entries,
            rest: self.bytes,
        }
    }
}

/// The entries of a section: composite keys without group prefix, and values.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    left: u64,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Returns the next key and value; `None` after the last.
    ///
    /// # Errors
    /// `Corrupt` when the section ends before or after its last entry.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would have to end after an error"
    )]
    pub fn next(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        if self.left == 0 {
            state_api::wire::expect_end(self.rest)?;
            return Ok(None);
        }
        self.left -= 1;
        let key = get_bytes(&mut self.rest)?;
        let value = get_bytes(&mut self.rest)?;
        Ok(Some((key, value)))
    }
}
