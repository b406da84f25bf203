use std::fmt;

use bytes::Bytes;
use state_api::{Error, Result};

use super::CheckpointMetadata;

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
}

/// Signs by BLAKE3 with one key of 32 bytes (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: BLAKE3, 2020).
pub struct Blake3Signer {
    key_id: String,
    key: [u8; 32],
}

impl Blake3Signer {
    /// Creates a signer with a key and its name.
    ///
    /// # Errors
    /// `Config` when the name is empty or longer than 255 bytes.
    pub fn new(key_id: &str, key: [u8; 32]) -> Result<Self> {
        if key_id.is_empty() || key_id.len() > 255 {
            return Err(Error::config("the name of a key has 1 to 255 bytes"));
        }
        Ok(Self {
            key_id: key_id.to_owned(),
            key,
        })
    }
}

impl MetadataSigner for Blake3Signer {
    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn tag(&self, key_id: &str, metadata: &[u8]) -> Result<[u8; 32]> {
        if key_id != self.key_id {
            return Err(Error::config(format!(
                "the metadata is signed with key {key_id:?}, and the one that is there is {:?}",
                self.key_id
            )));
        }
        Ok(*blake3::keyed_hash(&self.key, metadata).as_bytes())
    }
}

impl fmt::Debug for Blake3Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blake3Signer")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
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
        let error = checked(Some(&signer("k2", 7)), &file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(!format!("{:?}", signer("k1", 7)).contains("7, 7"));
    }
}
