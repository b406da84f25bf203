//! Objects that are compressed or encrypted, and metadata that is signed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use checkpoint_storage::{
    Blake3Signer, BlockCipher, Compression, JobStore, MemoryStore, ObjectCheckpointStorage,
    Sealing, StoreRoot, StreamOptions, UuidSource, attempt_of_name, read_handle,
};
use common::*;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Error, ErrorKind, ObjectHandle, Result, Scope,
    StateHandle,
};

/// One key, by XChaCha20-Poly1305 with random nonces: the reference for those who keep keys.
#[derive(Debug)]
struct OneKey {
    name: &'static str,
    key: [u8; 32],
}

impl OneKey {
    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.key.into())
    }
}

impl BlockCipher for OneKey {
    fn key_id(&self) -> &str {
        self.name
    }

    fn seal(&self, context: &[u8], block: &[u8]) -> Result<Vec<u8>> {
        // 24 random bytes: a counter would have to be kept over restarts.
        let mut nonce = [0; 24];
        nonce[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        nonce[16..].copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..8]);
        let payload = Payload {
            msg: block,
            aad: context,
        };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|e| Error::bug(format!("a block can't be encrypted: {e}")))?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    fn open(&self, key_id: &str, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        if key_id != self.name {
            return Err(Error::config(format!("key {key_id:?} is not here")));
        }
        let (nonce, msg) = sealed
            .split_first_chunk::<24>()
            .ok_or_else(|| Error::corrupt("an encrypted block is cut short"))?;
        self.cipher()
            .decrypt(&XNonce::from(*nonce), Payload { msg, aad: context })
            .map_err(|_| {
                Error::corrupt("an encrypted block was changed, or its key is another one")
            })
    }
}

fn key(byte: u8) -> Arc<dyn BlockCipher> {
    Arc::new(OneKey {
        name: "k1",
        key: [byte; 32],
    })
}

fn sealing(compression: Compression, cipher: Option<u8>) -> Sealing {
    Sealing {
        compression,
        cipher: cipher.map(key),
    }
}

fn text(len: usize) -> Bytes {
    (0..)
        .flat_map(|n: u32| format!("{n} flights late; ").into_bytes())
        .take(len)
        .collect::<Vec<_>>()
        .into()
}

fn write(root: &StoreRoot, body: &Bytes) -> StateHandle {
    let storage = ObjectCheckpointStorage::new(
        root.clone(),
        Attempt(7),
        UuidSource::machine(),
        StreamOptions::default(),
    );
    let mut stream = storage.create(CheckpointId(1), Scope::Shared);
    for piece in body.chunks(100_003) {
        now(stream.write(body.slice_ref(piece))).unwrap();
    }
    now(stream.finish()).unwrap().unwrap()
}

fn object(handle: &StateHandle) -> &ObjectHandle {
    match handle {
        StateHandle::Object(object) => object,
        StateHandle::Inline(_) => panic!("an object was expected"),
    }
}

fn reader(root: &StoreRoot) -> ObjectCheckpointStorage {
    ObjectCheckpointStorage::new(root.clone(), Attempt(8), names(8), StreamOptions::default())
}

fn compressions() -> Vec<Compression> {
    let mut all = vec![Compression::None, Compression::Lz4];
    if cfg!(feature = "zstd") {
        all.push(Compression::Zstd);
    }
    all
}

#[test]
fn k_110_a_sealed_object_reads_as_it_was_written_whole_and_in_parts() {
    for compression in compressions() {
        for cipher in [None, Some(1)] {
            let root = StoreRoot::memory(&MemoryStore::new(), "t")
                .with_sealing(sealing(compression, cipher));
            for len in [30_000, 256 << 10, (256 << 10) + 1, 1_000_000] {
                let body = text(len);
                let handle = write(&root, &body);
                let object = object(&handle);
                assert_eq!(object.len, len as u64);
                let plain = root.sealing().is_plain();
                assert_eq!(object.path.as_str().ends_with(".sealed"), !plain);
                let name = object.path.as_str().rsplit('/').next().unwrap();
                assert_eq!(attempt_of_name(name), Some(Attempt(7)));
                let storage = reader(&root);
                assert!(now(read_handle(&storage, &handle)).unwrap() == body);
                for range in [0..1, 5..30_000, len as u64 - 3..len as u64, 29_999..29_999] {
                    let part = now(storage.read_range(object, range.clone())).unwrap();
                    assert!(
                        part == body[range.start as usize..range.end as usize],
                        "{compression:?} {len} {range:?}"
                    );
                }
                let stored = now(root.read_all(object.path.as_str())).unwrap();
                if compression != Compression::None {
                    assert!(
                        stored.len() * 2 < len,
                        "{compression:?}: {} of {len}",
                        stored.len()
                    );
                }
                let readable = stored.windows(12).any(|w| w == b"flights late");
                assert!(
                    cipher.is_none() || !readable,
                    "{compression:?}: {len} bytes can be read"
                );
            }
        }
    }
}

#[test]
fn k_109_k_155_k_768_what_was_stored_plain_or_packed_otherwise_is_read_by_any_setting() {
    let store = MemoryStore::new();
    let plain = StoreRoot::memory(&store, "t");
    let packed = plain.clone().with_sealing(sealing(Compression::Lz4, None));
    let (first, second) = (write(&plain, &text(50_000)), write(&packed, &text(60_000)));
    for root in [plain, packed] {
        assert_eq!(
            now(read_handle(&reader(&root), &first)).unwrap().len(),
            50_000
        );
        assert_eq!(
            now(read_handle(&reader(&root), &second)).unwrap().len(),
            60_000
        );
    }
}

#[test]
fn an_encrypted_object_needs_its_key_and_small_state_is_not_inline() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "t");
    let sealed = root
        .clone()
        .with_sealing(sealing(Compression::Lz4, Some(1)));
    for len in [10, 700_000] {
        let handle = write(&sealed, &text(len));
        let error = now(read_handle(&reader(&root), &handle)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "without a key: {error}");
        let wrong = root
            .clone()
            .with_sealing(sealing(Compression::None, Some(2)));
        let error = now(read_handle(&reader(&wrong), &handle)).unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Corrupt,
            "with a wrong key: {error}"
        );
    }
}

#[test]
fn a_byte_that_is_flipped_anywhere_or_a_cut_at_any_length_is_found() {
    let memory = MemoryStore::new();
    let root = StoreRoot::memory(&memory, "t").with_sealing(sealing(Compression::Lz4, Some(1)));
    let body = text(300_000);
    let handle = write(&root, &body);
    let path = object(&handle).path.as_str().to_owned();
    let stored = now(root.read_all(&path)).unwrap();
    let replace = |bytes: Vec<u8>| {
        let damaged = MemoryStore::new();
        let root =
            StoreRoot::memory(&damaged, "t").with_sealing(sealing(Compression::Lz4, Some(1)));
        now(root.publish(&path, bytes.into())).unwrap();
        now(read_handle(&reader(&root), &handle))
    };
    assert!(replace(stored.to_vec()).unwrap() == body);
    for at in (0..stored.len()).step_by(stored.len() / 300) {
        let mut bytes = stored.to_vec();
        bytes[at] ^= 0x20;
        // The digest of what is stored is for whoever does not look inside.
        let of_stored = stored.len() - 52..stored.len() - 20;
        match replace(bytes) {
            Ok(read) => assert!(of_stored.contains(&at) && read == body, "byte {at}"),
            Err(_) => assert!(!of_stored.contains(&at), "byte {at}"),
        }
        let error = replace(stored[..at].to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
    }
}

#[test]
fn a_job_with_a_signer_reads_its_own_checkpoints_and_refuses_unsigned_ones() {
    let memory = MemoryStore::new();
    let plain = StoreRoot::memory(&memory, "t");
    let signer = |byte| Arc::new(Blake3Signer::new("k1", [byte; 32]).unwrap());
    let signed = plain.clone().with_signer(signer(1));
    let store = now(JobStore::open(signed.clone(), job(), names(1))).unwrap();
    let all = metadata(1, store.attempt().0);
    let published = now(store.publish(&all)).unwrap();
    assert_eq!(
        now(store.publish(&all)).unwrap(),
        published,
        "a repeated call tells"
    );
    assert_eq!(now(store.load("latest")).unwrap().metadata, all);
    for (root, readable) in [
        (plain.clone(), true),
        (plain.clone().with_signer(signer(2)), false),
    ] {
        let found = now(checkpoint_storage::StoredCheckpoint::read(&root, "chk-1"));
        assert_eq!(found.is_ok(), readable);
    }
    let forged = now(JobStore::open(plain, job(), names(2))).unwrap();
    now(forged.publish(&metadata(2, forged.attempt().0))).unwrap();
    let error = now(checkpoint_storage::StoredCheckpoint::read(&signed, "chk-2")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(now(store.latest()).unwrap().unwrap().metadata, all);
}
