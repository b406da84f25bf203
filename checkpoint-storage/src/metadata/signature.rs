use std::fmt;

use bytes::Bytes;
use state_api::{Error, Result};

use super::CheckpointMetadata;
use crate::sealed::KeyRing;

/// Signs metadata with a key, and tells whether it was signed: a message authentication code over all its bytes.
///
/// # Contract
/// Implemented by whoever holds keys; called from any thread.
/// - The tag of the same bytes under the key of the same name is the same, also in another process and years later.
/// - Without the key, nobody can make the tag of bytes that were not signed: HMAC, keyed BLAKE3, KMAC do that; a plain hash does not.
pub trait MetadataSigner: Send + Sync + fmt::Debug {
    /// Returns the name of the key that new metadata is signed with, at most 255 bytes.
    fn key_id(&self) -> &str;

    /// Returns the tag of some bytes under the key of a name.
    ///
    /// # Errors
    /// `Config` for a key that is not there.
    fn tag(&self, key_id: &str, metadata: &[u8]) -> Result<[u8; 32]>;

    /// Returns whether metadata without a signature is refused; by default it is.
    fn requires_signature(&self) -> bool {
        true
    }
}

/// Signs by BLAKE3 with keys of 32 bytes (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: BLAKE3, 2020).
///
/// New metadata is signed with the first key, and a signature of any of them is accepted.
#[derive(Debug)]
pub struct Blake3Signer {
    keys: KeyRing,
    required: bool,
}

impl Blake3Signer {
    /// Creates a signer with a key and its name.
    ///
    /// # Errors
    /// `Config` when the name is none.
    pub fn new(key_id: &str, key: [u8; 32]) -> Result<Self> {
        KeyRing::of_one(key_id, key).map(Self::with_keys)
    }

    /// Creates a signer with several keys.
    #[must_use]
    pub fn with_keys(keys: KeyRing) -> Self {
        Self {
            keys,
            required: true,
        }
    }

    /// Accepts metadata without a signature too, until all that a job needs is signed: a wrong signature is still refused.
    #[must_use]
    pub fn accepting_unsigned(self) -> Self {
        Self {
            required: false,
            ..self
        }
    }
}

impl MetadataSigner for Blake3Signer {
    fn key_id(&self) -> &str {
        self.keys.newest()
    }

    fn tag(&self, key_id: &str, metadata: &[u8]) -> Result<[u8; 32]> {
        Ok(*blake3::keyed_hash(self.keys.get(key_id)?, metadata).as_bytes())
    }

    fn requires_signature(&self) -> bool {
        self.required
    }
}

/// The end of a file that is signed; before it stand the key's name, its length and the tag.
const MAGIC: &[u8; 8] = b"HFMAC1\n\0";

const TAG_LEN: usize = 32;

/// Returns the bytes of a metadata file, signed if there is a signer.
pub(crate) fn file_of(
    signer: Option<&dyn MetadataSigner>,
    metadata: &CheckpointMetadata,
) -> Result<Bytes> {
    let plain = metadata.encode()?;
    let Some(signer) = signer else {
        return Ok(plain);
    };
    let mut file = plain.to_vec();
    file.extend_from_slice(&signature(signer, &plain)?);
    Ok(file.into())
}

/// Returns what is appended to signed metadata: tag, key's name, its length, magic.
fn signature(signer: &dyn MetadataSigner, metadata: &[u8]) -> Result<Vec<u8>> {
    let key_id = signer.key_id();
    let len = u8::try_from(key_id.len())
        .map_err(|_| Error::config("the name of a key has 1 to 255 bytes"))?;
    let mut signature = signer.tag(key_id, metadata)?.to_vec();
    signature.extend_from_slice(key_id.as_bytes());
    signature.push(len);
    signature.extend_from_slice(MAGIC);
    Ok(signature)
}

/// Returns metadata without its signature, which is checked if there is a signer, and must be there then.
pub(crate) fn checked<'a>(signer: Option<&dyn MetadataSigner>, file: &'a [u8]) -> Result<&'a [u8]> {
    let signed = taken_apart(file);
    match (signer, signed) {
        (None, signed) => Ok(signed.map_or(file, |(metadata, _, _)| metadata)),
        (Some(signer), None) if !signer.requires_signature() => Ok(file),
        (Some(_), None) => Err(Error::corrupt(
            "the metadata is not signed, and only signed metadata is accepted here",
        )),
        (Some(signer), Some((metadata, tag, key_id))) => {
            // Hashes compare in constant time.
            let expected = blake3::Hash::from_bytes(signer.tag(key_id, metadata)?);
            if expected != blake3::Hash::from_bytes(*tag) {
                return Err(Error::corrupt(
                    "the metadata was changed after it was signed, or signed with another key of the same name",
                )
                .with("key", key_id));
            }
            Ok(metadata)
        }
    }
}

fn taken_apart(file: &[u8]) -> Option<(&[u8], &[u8; TAG_LEN], &str)> {
    let rest = file.strip_suffix(MAGIC)?;
    let (len, rest) = rest.split_last()?;
    let (rest, key_id) = rest.split_at_checked(rest.len().checked_sub(usize::from(*len))?)?;
    let (metadata, tag) = rest.split_last_chunk::<TAG_LEN>()?;
    Some((metadata, tag, std::str::from_utf8(key_id).ok()?))
}

#[cfg(test)]
mod tests {
    use state_api::{Attempt, CheckpointId, ErrorKind, JobId, SnapshotKind};

    use super::*;

    fn signer(name: &str, key: u8) -> Blake3Signer {
        Blake3Signer::new(name, [key; 32]).unwrap()
    }

    fn metadata() -> CheckpointMetadata {
        let job = JobId::new("job").unwrap();
        CheckpointMetadata::new(
            CheckpointId(1),
            job,
            Attempt(1),
            SnapshotKind::Checkpoint,
            0,
        )
    }

    #[test]
    fn signed_metadata_reads_with_the_key_and_without_one() {
        let plain = metadata().encode().unwrap();
        let file = file_of(Some(&signer("k1", 7)), &metadata()).unwrap();
        assert_eq!(checked(Some(&signer("k1", 7)), &file).unwrap(), plain);
        assert_eq!(checked(None, &file).unwrap(), plain);
        assert_eq!(checked(None, &plain).unwrap(), plain);
    }

    #[test]
    fn metadata_that_an_old_key_signed_is_accepted_and_new_one_is_signed_with_the_newest() {
        let ring = format!("k2 {}\nk1 {}", "08".repeat(32), "07".repeat(32));
        let both = Blake3Signer::with_keys(KeyRing::parse(&ring).unwrap());
        let old = file_of(Some(&signer("k1", 7)), &metadata()).unwrap();
        checked(Some(&both), &old).unwrap();
        let new = file_of(Some(&both), &metadata()).unwrap();
        checked(Some(&signer("k2", 8)), &new).unwrap();
    }

    #[test]
    fn a_forger_who_repairs_the_digest_is_found_and_unsigned_metadata_is_refused() {
        let file = file_of(Some(&signer("k1", 7)), &metadata()).unwrap();
        let mut other = metadata();
        other.checkpoint = CheckpointId(2);
        let forged = file_of(Some(&signer("k1", 8)), &other).unwrap();
        for (file, why) in [
            (forged.to_vec(), "another key of the same name"),
            (other.encode().unwrap().to_vec(), "unsigned"),
            (
                [
                    other.encode().unwrap().as_ref(),
                    &file[metadata().encode().unwrap().len()..],
                ]
                .concat(),
                "borrowed signature",
            ),
        ] {
            let error = checked(Some(&signer("k1", 7)), &file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{why}");
        }
        let lenient = signer("k1", 7).accepting_unsigned();
        let unsigned = other.encode().unwrap();
        assert_eq!(checked(Some(&lenient), &unsigned).unwrap(), unsigned);
        assert!(checked(Some(&lenient), &forged).is_err());
        let error = checked(Some(&signer("k2", 7)), &file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(!format!("{:?}", signer("k1", 7)).contains("7, 7"));
    }
}
