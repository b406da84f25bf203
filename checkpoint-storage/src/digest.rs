use state_api::Digest;

/// Computes the BLAKE3-256 digest of an object while its bytes pass by.
#[derive(Clone, Debug, Default)]
pub struct DigestBuilder {
    hasher: blake3::Hasher,
    len: u64,
}

impl DigestBuilder {
    /// Creates the digest of nothing so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Returns the number of bytes added.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the digest of all bytes added so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(*self.hasher.finalize().as_bytes())
    }
}

/// Returns the digest of bytes.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_how_the_bytes_were_cut() {
        let mut builder = DigestBuilder::new();
        assert!(builder.is_empty());
        for part in [&b"hold"[..], b"", b"fast"] {
            builder.update(part);
        }
        assert_eq!(builder.digest(), digest_of(b"holdfast"));
        assert_eq!(builder.len(), 8);
        assert_eq!(
            digest_of(b"").to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }
}
