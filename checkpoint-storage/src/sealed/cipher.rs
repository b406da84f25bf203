use std::fmt;

use state_api::Result;

/// Encrypts blocks of objects, and authenticates them.
///
/// # Contract
/// Implemented by whoever holds keys, over an AEAD such as AES-256-GCM or XChaCha20-Poly1305; called from any thread.
/// - `open` gives back what `seal` was given, for the same context, also in another process and years later.
/// - `open` refuses bytes that `seal` did not make, and those of another context: blocks can't be swapped.
/// - Each call of `seal` takes a nonce of its own, which it keeps in its result: the same block is sealed more than once.
/// - A key that was used for sealing stays available for opening as long as checkpoints need it; key ids are never reused.
pub trait BlockCipher: Send + Sync + fmt::Debug {
    /// Returns the name of the key that new blocks are sealed with; it is stored in clear, at most 255 bytes.
    fn key_id(&self) -> &str;

    /// Encrypts a block.
    ///
    /// # Errors
    /// Those of the implementer; the stream fails with it.
    fn seal(&self, context: &[u8], block: &[u8]) -> Result<Vec<u8>>;

    /// Decrypts a block that the key of this name sealed.
    ///
    /// # Errors
    /// `Corrupt` for bytes that were not sealed with this key and context; `Config` for a key that is not there.
    fn open(&self, key_id: &str, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>>;
}
