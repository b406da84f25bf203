//! Objects in blocks that are compressed, encrypted, or both; `docs/formats/sealed.md` has the bytes.
//!
//! A handle speaks of the plain bytes: their length, their digest. Only the storage knows that others are stored, by the ending
//! of the object's name.
mod cipher;
mod compression;
mod format;
mod index;
mod keys;
mod protection;
mod sealer;
mod whole;
#[cfg(feature = "encryption")]
mod xchacha;

use std::sync::Arc;

pub use cipher::BlockCipher;
pub use compression::Compression;
pub(crate) use index::IndexCache;
pub use keys::KeyRing;
pub use protection::Protection;
pub(crate) use sealer::Sealer;
pub(crate) use whole::WholeReader;
#[cfg(feature = "encryption")]
pub use xchacha::XChaChaCipher;

/// The ending of the names of sealed objects.
pub const SEALED_ENDING: &str = ".sealed";

/// How new objects are stored, and with which key existing ones are opened.
#[derive(Clone, Debug, Default)]
pub struct Sealing {
    /// How blocks are compressed; objects of any compression are read.
    pub compression: Compression,
    /// What encrypts blocks; without it, encrypted objects can't be read.
    pub cipher: Option<Arc<dyn BlockCipher>>,
}

impl Sealing {
    /// Tells whether new objects are stored as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.compression == Compression::None && self.cipher.is_none()
    }
}

/// Tells whether an object is sealed, by its path.
pub(crate) fn is_sealed(path: &str) -> bool {
    path.ends_with(SEALED_ENDING)
}
