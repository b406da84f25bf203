use state_api::{Digest, Error, Result};

use super::{BlockCipher, compression};

/// Plain bytes of each block but the last.
pub(super) const BLOCK_LEN: usize = 256 << 10;

/// Most bytes by which sealing may make a block longer: nonce, tag, header of the cipher.
const MOST_OVERHEAD: usize = 1024;

const MAGIC: &[u8; 8] = b"HFSEAL2\n";

/// Magic, object id, length of the key's name.
const HEADER_LEN: usize = 8 + 16 + 1;

/// Stored length, plain length, method.
pub(super) const BLOCK_HEADER_LEN: usize = 4 + 4 + 1;

/// Digest of the stored bytes before it, plain length, number of blocks, magic.
pub(super) const FOOTER_LEN: usize = 32 + 8 + 4 + 8;

/// The most that is stored of an object that is one block or none.
pub(super) const MOST_OF_ONE_BLOCK: u64 =
    (Header::MOST + BLOCK_HEADER_LEN + BLOCK_LEN + MOST_OVERHEAD + 4 + FOOTER_LEN) as u64;

/// What stands at the start of a sealed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Random: blocks of different objects have different contexts.
    pub(super) id: [u8; 16],
    /// Name of the key, if the blocks are encrypted.
    pub(super) key_id: Option<String>,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let key_id = self.key_id.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEADER_LEN + key_id.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.id);
        // At most 255 bytes: checked when the sealer was made.
        bytes.push(key_id.len() as u8);
        bytes.extend_from_slice(key_id.as_bytes());
        bytes
    }

    /// Reads a header; returns its length too.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, usize)> {
        let fixed = bytes
            .first_chunk::<HEADER_LEN>()
            .filter(|fixed| fixed.starts_with(MAGIC));
        let Some(fixed) = fixed else {
            return Err(Error::corrupt("the object is not sealed as its name says"));
        };
        let mut id = [0; 16];
        id.copy_from_slice(&fixed[8..24]);
        let len = HEADER_LEN + usize::from(fixed[24]);
        let name = bytes
            .get(HEADER_LEN..len)
            .and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name else {
            return Err(Error::corrupt("the name of a key is cut short, or no text"));
        };
        let key_id = (!name.is_empty()).then(|| name.to_owned());
        Ok((Self { id, key_id }, len))
    }

    /// The longest header.
    pub(super) const MOST: usize = HEADER_LEN + 255;

    /// What a block is bound to: its object, its place, its length and how it is packed.
    fn context(&self, number: u32, plain_len: u32, method: u8) -> [u8; 25] {
        let mut context = [0; 25];
        context[..16].copy_from_slice(&self.id);
        context[16..20].copy_from_slice(&number.to_le_bytes());
        context[20..24].copy_from_slice(&plain_len.to_le_bytes());
        context[24] = method;
        context
    }

    /// Appends a block.
    pub(super) fn put_block(
        &self,
        out: &mut Vec<u8>,
        number: u32,
        block: &[u8],
        compression: super::Compression,
        cipher: Option<&dyn BlockCipher>,
    ) -> Result<()> {
        let (method, packed) = compression.pack(block)?;
        let plain_len = block.len() as u32;
        let sealed = match cipher {
            Some(cipher) => cipher.seal(&self.context(number, plain_len, method), &packed)?,
            None => packed.into_owned(),
        };
        if sealed.len() > block.len() + MOST_OVERHEAD {
            return Err(Error::bug(format!(
                "the cipher made {} bytes of a block of {}",
                sealed.len(),
                block.len()
            )));
        }
        out.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        out.extend_from_slice(&plain_len.to_le_bytes());
        out.push(method);
        out.extend_from_slice(&sealed);
        Ok(())
    }

    /// Opens the block at the front of some bytes, and takes it off them.
    pub(super) fn take_block(
        &self,
        bytes: &mut &[u8],
        number: u32,
        cipher: Option<&dyn BlockCipher>,
    ) -> Result<Vec<u8>> {
        let short = || Error::corrupt("a block is cut short");
        let (head, rest) = bytes
            .split_first_chunk::<BLOCK_HEADER_LEN>()
            .ok_or_else(short)?;
        let stored_len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let plain_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let method = head[8];
        if plain_len as usize > BLOCK_LEN || stored_len > plain_len as usize + MOST_OVERHEAD {
            return Err(Error::corrupt("a block is longer than blocks are"));
        }
        let (stored, rest) = rest.split_at_checked(stored_len).ok_or_else(short)?;
        *bytes = rest;
        let Some(key_id) = &self.key_id else {
            return compression::unpack(method, stored, plain_len as usize);
        };
        let Some(cipher) = cipher else {
            return Err(Error::config(format!(
                "the object is encrypted with key {key_id:?}, and nothing here decrypts"
            )));
        };
        let packed = cipher.open(key_id, &self.context(number, plain_len, method), stored)?;
        compression::unpack(method, &packed, plain_len as usize)
    }
}

/// Appends the index: the stored length of each block with its header.
pub(super) fn put_index(out: &mut Vec<u8>, blocks: &[u32]) {
    for len in blocks {
        out.extend_from_slice(&len.to_le_bytes());
    }
}

/// What stands at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// Digest of all stored bytes before the footer.
    pub(super) stored: Digest,
    pub(super) plain_len: u64,
    pub(super) blocks: u32,
}

impl Footer {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stored.0);
        out.extend_from_slice(&self.plain_len.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(MAGIC);
    }

    /// Reads the footer at the end of some bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("the end of a sealed object is missing or damaged");
        let footer = bytes.last_chunk::<FOOTER_LEN>().ok_or_else(damaged)?;
        let (stored, rest) = footer.split_first_chunk::<32>().ok_or_else(damaged)?;
        let (plain, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (blocks, magic) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let footer = Self {
            stored: Digest(*stored),
            plain_len: u64::from_le_bytes(*plain),
            blocks: u32::from_le_bytes(*blocks),
        };
        let blocks = footer.plain_len.div_ceil(BLOCK_LEN as u64);
        if magic != MAGIC || blocks != u64::from(footer.blocks) {
            return Err(damaged());
        }
        Ok(footer)
    }
}
