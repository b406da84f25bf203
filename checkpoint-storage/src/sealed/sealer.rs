use bytes::Bytes;
use state_api::{Error, Result};

use super::Sealing;
use super::format::{BLOCK_LEN, Footer, Header, put_index};
use crate::digest::DigestBuilder;

/// Turns the plain bytes of one object into the stored ones.
pub(crate) struct Sealer {
    sealing: Sealing,
    header: Header,
    /// Less than a block.
    pending: Vec<u8>,
    plain_len: u64,
    blocks: Vec<u32>,
    /// Of all that was given out.
    stored: DigestBuilder,
    started: bool,
}

impl Sealer {
    /// Starts an object; the id must be random.
    ///
    /// # Errors
    /// `Config` when the key's name is empty or longer than 255 bytes.
    pub(crate) fn new(sealing: Sealing, id: [u8; 16]) -> Result<Self> {
        let key_id = sealing
            .cipher
            .as_ref()
            .map(|cipher| cipher.key_id().to_owned());
        if key_id
            .as_ref()
            .is_some_and(|name| name.is_empty() || name.len() > 255)
        {
            return Err(Error::config("the name of a key has 1 to 255 bytes"));
        }
        Ok(Self {
            sealing,
            header: Header { id, key_id },
            pending: Vec::new(),
            plain_len: 0,
            blocks: Vec::new(),
            stored: DigestBuilder::new(),
            started: false,
        })
    }

    /// Takes plain bytes and returns stored ones, which may be none yet.
    pub(crate) fn write(&mut self, mut plain: &[u8]) -> Result<Bytes> {
        let mut out = self.start();
        self.plain_len += plain.len() as u64;
        if !self.pending.is_empty() {
            let room = (BLOCK_LEN - self.pending.len()).min(plain.len());
            let (now, rest) = plain.split_at(room);
            self.pending.extend_from_slice(now);
            plain = rest;
            if self.pending.len() == BLOCK_LEN {
                let block = std::mem::take(&mut self.pending);
                self.put(&mut out, &block)?;
            }
        }
        while let Some((block, rest)) = plain.split_at_checked(BLOCK_LEN) {
            self.put(&mut out, block)?;
            plain = rest;
        }
        self.pending.extend_from_slice(plain);
        self.stored.update(&out);
        Ok(out.into())
    }

    /// Returns the last stored bytes.
    pub(crate) fn finish(mut self) -> Result<Bytes> {
        let mut out = self.start();
        let block = std::mem::take(&mut self.pending);
        if !block.is_empty() {
            self.put(&mut out, &block)?;
        }
        put_index(&mut out, &self.blocks);
        self.stored.update(&out);
        let footer = Footer {
            stored: self.stored.digest(),
            plain_len: self.plain_len,
            // Counted as they were put.
            blocks: self.blocks.len() as u32,
        };
        footer.put(&mut out);
        Ok(out.into())
    }

    fn start(&mut self) -> Vec<u8> {
        if std::mem::replace(&mut self.started, true) {
            return Vec::new();
        }
        self.header.encode()
    }

    fn put(&mut self, out: &mut Vec<u8>, block: &[u8]) -> Result<()> {
        let number = u32::try_from(self.blocks.len()).map_err(|_| {
            Error::new(
                state_api::ErrorKind::LimitExceeded,
                "an object has more blocks than can be counted",
            )
        })?;
        let before = out.len();
        let cipher = self.sealing.cipher.as_deref();
        self.header
            .put_block(out, number, block, self.sealing.compression, cipher)?;
        // A block and what sealing adds.
        self.blocks.push((out.len() - before) as u32);
        Ok(())
    }
}
