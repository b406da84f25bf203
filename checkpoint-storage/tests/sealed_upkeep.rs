//! Verifying, copying and clearing up checkpoints whose objects are compressed or encrypted, and whose metadata is signed.
#![cfg(feature = "encryption")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use checkpoint_storage::{
    Blake3Signer, Compression, CopyOptions, CopySealing, Damage, GcOptions, JobStore, KeyRing,
    MemoryStore, Protection, Sealing, StoreRoot, StoredCheckpoint, StreamOptions, UuidSource,
    VerifyOptions, XChaChaCipher, collect_garbage, copy_checkpoint, read_handle, verify,
    verify_checkpoints,
};
use common::job_folder::checkpoint;
use common::*;
use state_api::{CheckpointId, CheckpointStorage, ErrorKind, Scope, StateHandle};

fn keys(names: &[(&str, u8)]) -> KeyRing {
    let line = |(name, byte): &(&str, u8)| format!("{name} {}\n", format!("{byte:02x}").repeat(32));
    KeyRing::parse(&names.iter().map(line).collect::<String>()).unwrap()
}

fn encrypted(names: &[(&str, u8)]) -> Sealing {
    Sealing {
        compression: Compression::Lz4,
        cipher: Some(Arc::new(XChaChaCipher::new(
            keys(names),
            UuidSource::seeded(7),
        ))),
    }
}

fn packed() -> Sealing {
    Sealing {
        compression: Compression::Lz4,
        cipher: None,
    }
}

/// A job with one checkpoint, of which an object is shared; small state is inline where it may be.
async fn job_in(root: &StoreRoot, inline: bool) -> StoredCheckpoint {
    let store = JobStore::open(root.clone(), job(), names(1)).await.unwrap();
    let options = match inline {
        true => StreamOptions::default(),
        false => options(0, 16),
    };
    let storage = store.storage(options);
    let mut stream = storage.create(CheckpointId(1), Scope::Shared);
    let body = "late flights, late flights, ".repeat(20);
    stream.write(body.into()).await.unwrap();
    let shared = stream.finish().await.unwrap().unwrap();
    let metadata = checkpoint(&store, 1, &[shared]).await;
    store.publish(&metadata).await.unwrap();
    store.load("chk-1").await.unwrap()
}

/// What is in a checkpoint, by its digest; read with what its folder is opened with.
async fn contents(found: &StoredCheckpoint) -> Vec<Vec<u8>> {
    let storage = found.storage([]);
    let mut all = Vec::new();
    for operator in &found.metadata.operators {
        for (_, part) in operator.parts() {
            all.push(read_handle(&storage, part).await.unwrap().to_vec());
        }
    }
    all
}

async fn read(root: &StoreRoot) -> StoredCheckpoint {
    StoredCheckpoint::read(root, "").await.unwrap()
}

fn stored(store: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    let body = |path: &String| (path.clone(), store.get(path).unwrap().to_vec());
    store.paths().iter().map(body).collect()
}

#[test]
fn a_byte_that_is_flipped_anywhere_in_a_sealed_object_is_named_with_and_without_the_key() {
    for (written, read) in [
        (packed(), Sealing::default()),
        (encrypted(&[("k1", 1)]), encrypted(&[("k1", 1)])),
        (encrypted(&[("k1", 1)]), Sealing::default()),
    ] {
        let store = MemoryStore::new();
        let root = StoreRoot::memory(&store, "t").with_sealing(written);
        now(job_in(&root, false));
        let with_key = read.cipher.is_some();
        // Opened anew each time, so that nothing is remembered.
        let open = || {
            let root = StoreRoot::memory(&store, "t").with_sealing(read.clone());
            now(StoredCheckpoint::read(&root, "chk-1")).unwrap()
        };
        let sealed: Vec<_> = store.paths();
        let sealed = sealed.iter().filter(|path| path.ends_with(".sealed"));
        for path in sealed.take(1) {
            let bytes = store.get(path).unwrap();
            for at in 0..bytes.len() {
                for bit in [0x01, 0x80] {
                    let mut flipped = bytes.to_vec();
                    flipped[at] ^= bit;
                    store.put(path, flipped);
                    let found = open();
                    let report = now(verify_checkpoints(&[&found], VerifyOptions::default()));
                    let certain: Vec<_> = report
                        .damaged
                        .iter()
                        .filter(|damaged| damaged.damage.is_certain())
                        .map(|damaged| damaged.object.path.as_str())
                        .collect();
                    assert_eq!(
                        certain,
                        [path],
                        "byte {at}, with the key: {with_key}: {report:?}"
                    );
                }
            }
            for len in [0, 1, bytes.len() / 2, bytes.len() - 1] {
                store.put(path, bytes[..len].to_vec());
                let report = now(verify_checkpoints(&[&open()], VerifyOptions::default()));
                assert!(
                    report.damaged.iter().any(|d| d.damage.is_certain()),
                    "{len}"
                );
            }
            store.put(path, bytes);
        }
        let found = open();
        let report = now(verify_checkpoints(&[&found], VerifyOptions::default()));
        let verified = now(verify(&found, []));
        if with_key || report.is_whole() {
            assert!(report.is_whole() && verified.unwrap().faults.is_empty());
        } else {
            // Whole as it is stored; nobody here knows what is inside.
            assert!(report.damaged.iter().all(|d| d.damage == Damage::NotOpened));
            assert!(report.damaged[0].reason.to_string().contains("\"k1\""));
            assert_eq!(verified.unwrap_err().kind(), ErrorKind::Config);
        }
    }
}

#[test]
fn what_is_whole_as_stored_and_wrong_inside_is_told_apart() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "t").with_sealing(packed());
    let mut found = now(job_in(&root, false));
    // As if another object had been sealed under this name.
    let object = found.metadata.objects().next().unwrap().object.clone();
    let subtask = &mut found.metadata.operators[0].subtasks[0];
    for part in Arc::make_mut(&mut subtask.snapshot)
        .managed_keyed
        .iter_mut()
    {
        if let state_api::KeyedHandle::Incremental(handle) = part
            && let StateHandle::Object(of_it) = &mut handle.private[0].bytes
        {
            of_it.digest = state_api::Digest([7; 32]);
        }
    }
    let report = now(verify_checkpoints(&[&found], VerifyOptions::default()));
    let [damaged] = &report.damaged[..] else {
        panic!("{report:?}");
    };
    assert_eq!(damaged.damage, Damage::Digest);
    assert_eq!(damaged.object.path, object.path);
    assert!(
        damaged.reason.to_string().contains("inside"),
        "{}",
        damaged.reason
    );
}

#[test]
fn a_copy_keeps_sealed_objects_as_they_are_stored_and_needs_no_key_for_it() {
    let store = MemoryStore::new();
    let sealing = encrypted(&[("k1", 1)]);
    let with_key = StoreRoot::memory(&store, "t").with_sealing(sealing.clone());
    let wanted = now(contents(&now(job_in(&with_key, false))));
    let found = now(StoredCheckpoint::read(
        &StoreRoot::memory(&store, "t"),
        "chk-1",
    ))
    .unwrap();
    let other = MemoryStore::new();
    let target = StoreRoot::memory(&other, "copy");
    let report = now(copy_checkpoint(&found, &target, CopyOptions::default())).unwrap();
    assert_eq!((report.objects, report.reused), (3, 0));
    let bodies = |store: &MemoryStore| {
        let all = stored(store).into_iter();
        let mut bodies: Vec<_> = all.filter(|(path, _)| path.ends_with(".sealed")).collect();
        bodies
            .iter_mut()
            .for_each(|(path, _)| *path = path.rsplit('/').next().unwrap().to_owned());
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(&other), bodies(&store));
    assert!(
        now(copy_checkpoint(&found, &target, CopyOptions::default()))
            .unwrap()
            .already_there
    );
    // Interrupted before the end, it goes on with what is there, also without the key.
    now(target.delete("_metadata")).unwrap();
    now(target.publish("_copying", "x".into())).unwrap();
    let report = now(copy_checkpoint(&found, &target, CopyOptions::default())).unwrap();
    assert_eq!(report.reused, 3);
    let copy = now(read(&target.clone().with_sealing(sealing)));
    assert_eq!(now(contents(&copy)), wanted);
    assert!(now(verify_checkpoints(&[&copy], VerifyOptions::default())).is_whole());
    assert_eq!(other.paths().len(), 4, "{:?}", other.paths());
}

#[test]
fn a_copy_is_sealed_anew_as_its_target_says_with_what_was_inline_or_not_at_all() {
    for source in [Sealing::default(), packed(), encrypted(&[("k1", 1)])] {
        for target in [packed(), encrypted(&[("k2", 2)])] {
            let store = MemoryStore::new();
            let root = StoreRoot::memory(&store, "t").with_sealing(source.clone());
            let found = now(job_in(&root, true));
            let wanted = now(contents(&found));
            let other = MemoryStore::new();
            let to = StoreRoot::memory(&other, "copy").with_sealing(target.clone());
            let report = now(copy_checkpoint(&found, &to, CopyOptions::default())).unwrap();
            let copy = now(read(&to));
            assert_eq!(now(contents(&copy)), wanted);
            for (path, body) in stored(&other) {
                let readable = ["state 1 of", "late fli"].iter().any(|words| {
                    body.windows(words.len())
                        .any(|part| part == words.as_bytes())
                });
                assert!(target.cipher.is_none() || !readable, "{path}");
            }
            if target.cipher.is_some() {
                assert_eq!(report.objects, 3);
                let parts = copy.metadata.operators[0].parts();
                assert_eq!(parts.filter_map(|(_, part)| part.object()).count(), 3);
            }
            assert!(
                now(copy_checkpoint(&found, &to, CopyOptions::default()))
                    .unwrap()
                    .already_there
            );
            // And back into the clear, for whoever has the key.
            let plain = MemoryStore::new();
            let to = StoreRoot::memory(&plain, "plain");
            let unsealed = CopyOptions {
                sealing: CopySealing::Unsealed,
                ..CopyOptions::default()
            };
            now(copy_checkpoint(&copy, &to, unsealed)).unwrap();
            assert_eq!(now(contents(&now(read(&to)))), wanted);
            assert!(!plain.paths().iter().any(|path| path.ends_with(".sealed")));
        }
    }
}

#[test]
fn a_damaged_sealed_object_is_named_and_no_copy_comes_of_it() {
    for target in [Sealing::default(), packed()] {
        let store = MemoryStore::new();
        let root = StoreRoot::memory(&store, "t").with_sealing(packed());
        let found = now(job_in(&root, false));
        let path = found
            .metadata
            .objects()
            .next()
            .unwrap()
            .object
            .path
            .to_string();
        let mut bytes = store.get(&path).unwrap().to_vec();
        // In the block, behind 25 bytes of the object's header and 9 of its own.
        bytes[36] ^= 4;
        store.put(&path, bytes);
        let fresh = StoreRoot::memory(&store, "t");
        let found = now(StoredCheckpoint::read(&fresh, "chk-1")).unwrap();
        let to = StoreRoot::memory(&MemoryStore::new(), "copy").with_sealing(target);
        let error = now(copy_checkpoint(&found, &to, CopyOptions::default())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&path), "{error}");
        assert!(now(to.len("_metadata")).unwrap().is_none());
    }
}

#[test]
fn a_copy_is_signed_with_the_key_of_its_target() {
    let store = MemoryStore::new();
    let signed = |names: &[(&str, u8)]| Protection {
        signer: Some(Arc::new(Blake3Signer::with_keys(keys(names)))),
        ..Protection::default()
    };
    let root = signed(&[("k1", 1)]).of(StoreRoot::memory(&store, "t"));
    let found = now(job_in(&root, false));
    let other = MemoryStore::new();
    let to = signed(&[("k2", 2)]).of(StoreRoot::memory(&other, "copy"));
    now(copy_checkpoint(&found, &to, CopyOptions::default())).unwrap();
    assert!(
        now(copy_checkpoint(&found, &to, CopyOptions::default()))
            .unwrap()
            .already_there
    );
    now(read(&to));
    let wrong = signed(&[("k1", 1)]).of(StoreRoot::memory(&other, "copy"));
    let error = now(StoredCheckpoint::read(&wrong, "")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[test]
fn gc_needs_no_key_and_takes_nothing_that_is_sealed_and_needed() {
    let store = MemoryStore::new();
    let sealing = encrypted(&[("k1", 1)]);
    let root = StoreRoot::memory(&store, "t").with_sealing(sealing);
    let found = now(job_in(&root, false));
    let job = now(JobStore::open(root.clone(), job(), names(2))).unwrap();
    let storage = job.storage(options(0, 16));
    for scope in [Scope::Shared, Scope::TaskOwned] {
        let mut stream = storage.create(CheckpointId(9), scope);
        now(stream.write("nobody's".into())).unwrap();
        now(stream.finish()).unwrap().unwrap();
    }
    now(job.end()).unwrap();
    let without = StoreRoot::memory(&store, "t");
    let options = GcOptions {
        names: names(3),
        take_over: true,
        ..GcOptions::default()
    };
    let report = now(collect_garbage(&without, &options)).unwrap();
    assert_eq!(report.referenced, 3, "{report:?}");
    assert_eq!(now(verify(&found, [])).unwrap().faults.len(), 0);
    let left: Vec<_> = store.paths();
    let task_owned = left.iter().filter(|path| path.starts_with("taskowned/"));
    assert_eq!(task_owned.count(), 1, "only its task deletes it");
    let shared = left.iter().filter(|path| path.starts_with("shared/"));
    assert_eq!(shared.count(), 1);
}
