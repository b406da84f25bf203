use std::borrow::Cow;

use state_api::{Error, Result};

/// How the blocks of new objects are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: little work, half to two thirds of the bytes of typical state.
    Lz4,
    /// Zstandard at its default level: more work, fewer bytes; needs the feature `zstd`.
    Zstd,
}

pub(super) const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

impl Compression {
    /// Reads the value of `execution.checkpointing.snapshot-compression`.
    ///
    /// # Errors
    /// `Config` for an unknown word, and for `zstd` where it is not compiled in.
    pub fn parse(word: &str) -> Result<Self> {
        match word.to_ascii_lowercase().as_str() {
            "false" | "none" => Ok(Self::None),
            // Flink's own choice is Snappy, which is of LZ4's kind.
            "true" | "lz4" => Ok(Self::Lz4),
            "zstd" if cfg!(feature = "zstd") => Ok(Self::Zstd),
            "zstd" => Err(Error::config(
                "zstd is not compiled in: build with --features zstd, or use lz4",
            )),
            _ => Err(Error::config(format!(
                "compression {word:?} is unknown; known are false, true, lz4, zstd"
            ))),
        }
    }

    /// Returns how a block is stored, and the bytes; one that does not shrink is stored as it is.
    pub(super) fn pack<'a>(self, block: &'a [u8]) -> Result<(u8, Cow<'a, [u8]>)> {
        let (method, packed) = match self {
            Self::None => return Ok((RAW, Cow::Borrowed(block))),
            Self::Lz4 => (LZ4, lz4_flex::block::compress(block)),
            Self::Zstd => (ZSTD, zstd_pack(block)?),
        };
        Ok(if packed.len() < block.len() {
            (method, Cow::Owned(packed))
        } else {
            (RAW, Cow::Borrowed(block))
        })
    }
}

/// Unpacks a block whose plain length is known; allocates that and no more.
pub(super) fn unpack(method: u8, packed: &[u8], plain_len: usize) -> Result<Vec<u8>> {
    let damaged = |why: String| Error::corrupt(format!("a block does not unpack: {why}"));
    let block = match method {
        RAW => packed.to_vec(),
        LZ4 => {
            let mut block = vec![0; plain_len];
            let len = lz4_flex::block::decompress_into(packed, &mut block)
                .map_err(|e| damaged(e.to_string()))?;
            block.truncate(len);
            block
        }
        ZSTD => zstd_unpack(packed, plain_len)?,
        other => {
            return Err(Error::unsupported(format!(
                "blocks are packed by method {other}, which this version does not know"
            )));
        }
    };
    if block.len() != plain_len {
        return Err(damaged(format!(
            "{} bytes instead of {plain_len}",
            block.len()
        )));
    }
    Ok(block)
}

#[cfg(feature = "zstd")]
fn zstd_pack(block: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::compress(block, 0).map_err(|e| Error::bug("a block can't be packed").caused_by(e))
}

#[cfg(feature = "zstd")]
fn zstd_unpack(packed: &[u8], plain_len: usize) -> Result<Vec<u8>> {
    zstd::bulk::decompress(packed, plain_len)
        .map_err(|e| Error::corrupt(format!("a block does not unpack: {e}")))
}

#[cfg(not(feature = "zstd"))]
fn zstd_pack(_: &[u8]) -> Result<Vec<u8>> {
    Err(missing())
}

#[cfg(not(feature = "zstd"))]
fn zstd_unpack(_: &[u8], _: usize) -> Result<Vec<u8>> {
    Err(missing())
}

#[cfg(not(feature = "zstd"))]
fn missing() -> Error {
    Error::config(
        "the object is packed by zstd, which is not compiled in: build with --features zstd",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Compression> {
        let mut all = vec![Compression::None, Compression::Lz4];
        if cfg!(feature = "zstd") {
            all.push(Compression::Zstd);
        }
        all
    }

    #[test]
    fn a_block_unpacks_to_what_it_was_and_only_at_its_length() {
        for compression in all() {
            for block in [vec![], vec![7; 100_000], (0..=255).collect::<Vec<u8>>()] {
                let (method, packed) = compression.pack(&block).unwrap();
                assert!(packed.len() <= block.len());
                assert_eq!(unpack(method, &packed, block.len()).unwrap(), block);
                assert!(unpack(method, &packed, block.len() + 1).is_err());
                if !block.is_empty() {
                    assert!(unpack(method, &packed, block.len() - 1).is_err());
                }
            }
        }
    }

    #[test]
    fn words_of_the_configuration_are_understood() {
        assert_eq!(Compression::parse("FALSE").unwrap(), Compression::None);
        assert_eq!(Compression::parse("true").unwrap(), Compression::Lz4);
        assert!(
            Compression::parse("gzip")
                .unwrap_err()
                .to_string()
                .contains("known are")
        );
        assert_eq!(Compression::parse("zstd").is_ok(), cfg!(feature = "zstd"));
    }
}
