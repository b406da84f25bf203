use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use state_api::{Error, Result};

use super::{BlockCipher, KeyRing};
use crate::names::UuidSource;

const NONCE_LEN: usize = 24;

/// Keeps the keys apart from those that the same bytes give for another purpose.
const PURPOSE: &str = "holdfast 2026-11 blocks of checkpoint objects, XChaCha20-Poly1305";

/// Encrypts blocks by XChaCha20-Poly1305 (Arciszewski: XChaCha, draft-irtf-cfrg-xchacha) with keys out of a [`KeyRing`].
///
/// The cipher's key is derived from that of the ring by BLAKE3. Nonces of 24 bytes are random: 182 bits of chance, so that
/// they needn't be kept over restarts.
pub struct XChaChaCipher {
    keys: KeyRing,
    nonces: UuidSource,
}

impl XChaChaCipher {
    /// Creates a cipher; nonces come from a source of randomness that never repeats itself, such as [`UuidSource::machine`].
    #[must_use]
    pub fn new(keys: KeyRing, nonces: UuidSource) -> Self {
        Self { keys, nonces }
    }

    fn cipher(&self, key_id: &str) -> Result<XChaCha20Poly1305> {
        let key = blake3::derive_key(PURPOSE, self.keys.get(key_id)?);
        Ok(XChaCha20Poly1305::new(&key.into()))
    }
}

impl BlockCipher for XChaChaCipher {
    fn key_id(&self) -> &str {
        self.keys.newest()
    }

    fn seal(&self, context: &[u8], block: &[u8]) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..16].copy_from_slice(self.nonces.next().as_bytes());
        nonce[16..].copy_from_slice(&self.nonces.next().as_bytes()[..8]);
        let payload = Payload {
            msg: block,
            aad: context,
        };
        let sealed = self
            .cipher(self.key_id())?
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| Error::bug("a block can't be encrypted"))?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, key_id: &str, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        let (nonce, msg) = sealed
            .split_first_chunk::<NONCE_LEN>()
            .ok_or_else(|| Error::corrupt("an encrypted block is cut short"))?;
        let payload = Payload { msg, aad: context };
        self.cipher(key_id)?
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| {
                Error::corrupt(
                    "an encrypted block was changed, or encrypted with another key of this name",
                )
                .with("key", key_id)
            })
    }
}

impl fmt::Debug for XChaChaCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XChaChaCipher")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use state_api::ErrorKind;

    use super::*;

    fn cipher(keys: &[(&str, u8)]) -> XChaChaCipher {
        let hex = |byte: u8| format!("{byte:02x}").repeat(32);
        let lines = keys
            .iter()
            .map(|(name, byte)| format!("{name} {}\n", hex(*byte)));
        let keys = KeyRing::parse(&lines.collect::<String>()).unwrap();
        XChaChaCipher::new(keys, UuidSource::machine())
    }

    #[test]
    fn a_block_opens_with_its_key_and_context_also_when_the_key_is_an_old_one() {
        let old = cipher(&[("k1", 1)]);
        let sealed = old.seal(b"place 1", b"late flights").unwrap();
        assert!(!sealed.windows(4).any(|part| part == b"late"));
        assert_ne!(sealed, old.seal(b"place 1", b"late flights").unwrap());
        let rotated = cipher(&[("k2", 2), ("k1", 1)]);
        assert_eq!(rotated.key_id(), "k2");
        assert_eq!(
            rotated.open("k1", b"place 1", &sealed).unwrap(),
            b"late flights"
        );
        for (cipher, context, kind) in [
            (&rotated, "place 2", ErrorKind::Corrupt),
            (&cipher(&[("k1", 3)]), "place 1", ErrorKind::Corrupt),
            (&cipher(&[("k2", 2)]), "place 1", ErrorKind::Config),
        ] {
            let error = cipher.open("k1", context.as_bytes(), &sealed).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        for len in [0, NONCE_LEN - 1, NONCE_LEN, sealed.len() - 1] {
            let error = rotated.open("k1", b"place 1", &sealed[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}");
        }
    }
}
