use bytes::Bytes;
use state_api::{Digest, Error, ErrorKind, Result};

use super::index::Index;
use crate::digest::DigestBuilder;
use crate::root::StoreRoot;

/// Stored bytes that are read at once, a block at least.
const CHUNK: u64 = 4 << 20;

/// Reads a sealed object from start to end: the stored bytes are compared with their digest, and the blocks opened if their
/// key is there.
///
/// Nothing that is remembered of the object is believed.
pub(crate) struct WholeReader {
    root: StoreRoot,
    path: String,
    index: Index,
    next: Next,
    stored: DigestBuilder,
    opens: bool,
    /// Why a block did not open: said when the stored bytes turn out to be what they were.
    failed: Option<Error>,
}

enum Next {
    Header,
    Block(usize),
    End,
    Nothing,
}

/// A part of a sealed object.
pub(crate) struct Piece {
    /// The bytes as they are stored.
    pub(crate) stored: Bytes,
    /// What is in them; nothing where their key is not there.
    pub(crate) plain: Bytes,
}

impl WholeReader {
    /// Starts to read an object.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` when its parts contradict each other; `Retryable` when the store fails.
    pub(crate) async fn open(root: &StoreRoot, path: &str) -> Result<Self> {
        let index = Index::load(root, path)
            .await
            .map_err(|e| e.with("object", path))?;
        let opens = index.header.key_id.is_none() || root.sealing().cipher.is_some();
        Ok(Self {
            root: root.clone(),
            path: path.to_owned(),
            index,
            next: Next::Header,
            stored: DigestBuilder::new(),
            opens,
            failed: None,
        })
    }

    /// Returns the length of what is inside.
    pub(crate) fn plain_len(&self) -> u64 {
        self.index.footer.plain_len
    }

    /// Returns the digest that the stored bytes must have.
    pub(crate) fn stored_digest(&self) -> Digest {
        self.index.footer.stored
    }

    /// Returns the name of the key that the object is encrypted with, if nobody here has it; known at the end.
    pub(crate) fn missing_key(&self) -> Option<&str> {
        let key = self.index.header.key_id.as_deref();
        key.filter(|_| !self.opens)
    }

    /// Returns the next part; the last one when all stored bytes are what they were.
    ///
    /// # Errors
    /// `Corrupt`, which says whether it is what is stored or what is inside that is not right; `Retryable` when the store fails.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>> {
        let next = self.step().await;
        next.map_err(|e| e.with("object", &self.path))
    }

    async fn step(&mut self) -> Result<Option<Piece>> {
        let blocks = self.index.starts.len() - 1;
        match self.next {
            Next::Header => {
                let stored = self.read(0..self.index.starts[0]).await?;
                self.next = Next::Block(0);
                Ok(Some(Piece {
                    stored,
                    plain: Bytes::new(),
                }))
            }
            Next::Block(first) if first < blocks => {
                let starts = &self.index.starts;
                let within = |end: &usize| starts[*end] - starts[first] <= CHUNK;
                let end = (first + 2..=blocks).take_while(within).last();
                let end = end.unwrap_or(first + 1);
                let stored = self.read(starts[first]..starts[end]).await?;
                self.next = Next::Block(end);
                let plain = match self.open_blocks(&stored, first..end) {
                    Ok(plain) => plain,
                    Err(e) => {
                        self.failed.get_or_insert(e);
                        Bytes::new()
                    }
                };
                Ok(Some(Piece { stored, plain }))
            }
            Next::Block(_) => {
                // The index; the footer has the digest of all before it.
                let end = self.index.stored_len - super::format::FOOTER_LEN as u64;
                let index = self.read(self.index.starts[blocks]..end).await?;
                if self.stored.digest() != self.index.footer.stored {
                    return Err(Error::corrupt(
                        "the stored bytes of a sealed object are not what they were",
                    ));
                }
                if let Some(failed) = self.failed.take() {
                    return Err(failed);
                }
                self.next = Next::End;
                Ok(Some(Piece {
                    stored: index,
                    plain: Bytes::new(),
                }))
            }
            Next::End => {
                let mut footer = Vec::new();
                self.index.footer.put(&mut footer);
                self.next = Next::Nothing;
                Ok(Some(Piece {
                    stored: footer.into(),
                    plain: Bytes::new(),
                }))
            }
            Next::Nothing => Ok(None),
        }
    }

    async fn read(&mut self, range: std::ops::Range<u64>) -> Result<Bytes> {
        let wanted = range.end - range.start;
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let stored = match self.root.read(&self.path, range).await {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Error::corrupt("a sealed object is gone").caused_by(e));
            }
            read => read?,
        };
        if stored.len() as u64 != wanted {
            return Err(Error::corrupt("a sealed object is cut short"));
        }
        self.stored.update(&stored);
        Ok(stored)
    }

    fn open_blocks(&mut self, stored: &[u8], blocks: std::ops::Range<usize>) -> Result<Bytes> {
        if !self.opens || self.failed.is_some() {
            return Ok(Bytes::new());
        }
        let cipher = self.root.sealing().cipher.as_deref();
        let mut rest = stored;
        let mut plain = Vec::new();
        for number in blocks {
            let opened = self
                .index
                .header
                .take_block(&mut rest, number as u32, cipher);
            let block = match opened {
                Ok(block) => block,
                // The key is none of those that are here.
                Err(e) if e.kind() == ErrorKind::Config => {
                    self.opens = false;
                    return Ok(Bytes::new());
                }
                Err(e) => return Err(e),
            };
            if block.len() as u64 != self.index.plain_len_of(number) {
                return Err(Error::corrupt("a block has not the length of its place"));
            }
            plain.extend_from_slice(&block);
        }
        match rest.is_empty() {
            true => Ok(plain.into()),
            false => Err(Error::corrupt("a block has not the length of its place")),
        }
    }
}
