//! A store of one's own, proven: `HOLDFAST_STORE_URL` names a folder of it, `HOLDFAST_STORE_OPTIONS` has `OPTION=VALUE` in each
//! line. Each test works in a new folder below, and removes it.
//!
//! What the other test files run on every store runs on this one too.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;

use bytes::Bytes;
use checkpoint_storage::{
    Compression, ObjectCheckpointStorage, ProbeOptions, Sealing, StoreAccess, StoreOptions,
    StoreRoot, StreamOptions, UuidSource, probe, read_handle,
};
use common::*;
use futures_util::{StreamExt, stream};
use state_api::{Attempt, CheckpointId, CheckpointStorage, ErrorKind, Scope, StateHandle};
use tokio::runtime::Runtime;

fn url() -> String {
    std::env::var("HOLDFAST_STORE_URL").expect("HOLDFAST_STORE_URL names a folder of the store")
}

/// Runs a test in a new folder of the store.
fn in_new_folder(test: impl Fn(&Runtime, StoreRoot)) {
    let runtime = runtime();
    let root = named_store(&runtime, "test");
    let root = root.unwrap_or_else(|| panic!("HOLDFAST_STORE_URL is not set: {}", url()));
    test(&runtime, root.clone());
    runtime.block_on(remove_all(&root));
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn the_store_is_fit_after_fifty_races_of_two_writers() {
    in_new_folder(|runtime, root| {
        let how = ProbeOptions::of(&root);
        assert_eq!(
            how.rounds, 50,
            "a local folder is proven by the other tests"
        );
        for round in 0..3 {
            runtime.block_on(probe(&root, &names(round), how)).unwrap();
        }
        assert_eq!(
            runtime.block_on(all_objects(&root, "")),
            Vec::<String>::new()
        );
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn objects_of_any_length_read_as_they_were_written_whole_and_in_parts() {
    in_new_folder(|runtime, root| {
        let lengths = [1, 100, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 33 << 20];
        for (seed, len) in lengths.into_iter().enumerate() {
            let body = noise(len, seed as u64 + 1);
            runtime.block_on(async {
                let handle = write_noise(&root, body.clone(), 700_001).await.unwrap();
                let StateHandle::Object(object) = &handle else {
                    panic!("an object was expected");
                };
                let storage = storage(&root, StreamOptions::default());
                let whole = read_handle(&storage, &handle).await.unwrap();
                assert!(whole == body, "{len}");
                let path = object.path.as_str();
                assert_eq!(root.len(path).await.unwrap(), Some(len as u64));
                let end = len as u64;
                for range in [0..1, end / 3..end / 2, end - 1..end, end - 1..end + 9] {
                    let part = root.read(path, range.clone()).await.unwrap();
                    let expected = range.start as usize..range.end.min(end) as usize;
                    assert!(part == body[expected], "{len}: {range:?}");
                }
                let behind = root.read(path, end..end + 9).await.unwrap();
                assert!(behind.is_empty(), "{len}");
            });
        }
        assert_eq!(runtime.block_on(all_objects(&root, "")).len(), 6);
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn of_two_long_uploads_to_one_name_one_loses_and_the_other_is_whole() {
    in_new_folder(|runtime, root| {
        runtime.block_on(async {
            let bodies = [noise(20 << 20, 3), noise(20 << 20, 5)];
            let write = |body: &Bytes| {
                let (root, body) = (root.clone(), body.clone());
                async move {
                    let mut writer = root.create("one", Arc::new(())).await?;
                    for at in (0..body.len()).step_by(1 << 20) {
                        writer.write(body.slice(at..at + (1 << 20))).await?;
                    }
                    writer.finish().await
                }
            };
            let (first, second) =
                futures_util::future::join(write(&bodies[0]), write(&bodies[1])).await;
            let (winner, loser) = match (first, second) {
                (Ok(()), Err(e)) => (&bodies[0], e),
                (Err(e), Ok(())) => (&bodies[1], e),
                outcomes => panic!("{outcomes:?}"),
            };
            assert_eq!(loser.kind(), ErrorKind::AlreadyExists, "{loser:?}");
            assert!(root.read_all("one").await.unwrap() == *winner);
            // Nor does one win that begins when it is there.
            let error = write(&noise(20 << 20, 7)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error:?}");
            assert!(root.read_all("one").await.unwrap() == *winner);
        });
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn an_upload_that_is_given_up_leaves_no_object() {
    in_new_folder(|runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 1 << 20));
            for ends in ["dropped", "aborted"] {
                let mut stream = storage.create(CheckpointId(1), Scope::Exclusive);
                for seed in 0..20 {
                    stream.write(noise(1 << 20, seed + 1)).await.unwrap();
                }
                match ends {
                    "dropped" => drop(stream),
                    _ => stream.abort().await,
                }
                let report = storage.drain().await;
                assert!(report.failed.is_empty(), "{ends}: {:?}", report.failed);
                let left = all_objects(&root, "").await;
                assert_eq!(left, Vec::<String>::new(), "{ends}");
                if let Some(open) = root.open_uploads().await.unwrap() {
                    assert!(open.is_empty(), "{ends}: {open:?}");
                }
            }
        });
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn a_folder_of_more_objects_than_a_page_holds_is_listed_whole() {
    in_new_folder(|runtime, root| {
        // Azure gives 5,000 names at a time, the others 1,000.
        let scheme = url().split(':').next().unwrap_or_default().to_owned();
        let azure = ["az", "azblob", "wasb", "wasbs", "abfs", "abfss"];
        let number = if azure.contains(&scheme.as_str()) {
            5050
        } else {
            1050
        };
        runtime.block_on(async {
            let written = stream::iter(0..number).map(|n| {
                let root = root.clone();
                async move {
                    root.publish(&format!("many/{n:05}"), Bytes::from(n.to_string()))
                        .await
                }
            });
            let written: Vec<_> = written.buffer_unordered(32).collect().await;
            assert!(written.iter().all(Result::is_ok), "{written:?}");
            root.publish("many/deeper/a", Bytes::from_static(b"a"))
                .await
                .unwrap();
            let listed = root.list("many").await.unwrap();
            let names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
            let mut expected: Vec<_> = (0..number).map(|n| format!("{n:05}")).collect();
            expected.push("deeper".into());
            assert!(names == expected, "{}", names.len());
            let folders = listed.iter().filter(|entry| entry.is_folder).count();
            assert_eq!(folders, 1);
            let deleted = stream::iter(0..number).map(|n| {
                let root = root.clone();
                async move { root.delete(&format!("many/{n:05}")).await }
            });
            let deleted: Vec<_> = deleted.buffer_unordered(32).collect().await;
            assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
            root.delete("many/00000").await.unwrap();
            assert!(!root.remove_folder("many").await.unwrap());
            assert_eq!(root.list("many").await.unwrap().len(), 1);
        });
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn what_is_compressed_and_encrypted_reads_as_it_was_written() {
    in_new_folder(|runtime, root| {
        let mut sealings = vec![Sealing {
            compression: Compression::Lz4,
            cipher: None,
        }];
        #[cfg(feature = "encryption")]
        {
            let keys = checkpoint_storage::KeyRing::of_one("k1", [7; 32]).unwrap();
            let cipher = checkpoint_storage::XChaChaCipher::new(keys, UuidSource::machine());
            sealings.push(Sealing {
                compression: Compression::Lz4,
                cipher: Some(Arc::new(cipher)),
            });
        }
        for sealing in sealings {
            let root = root.clone().with_sealing(sealing);
            runtime.block_on(async {
                let mut body = noise(9 << 20, 5).to_vec();
                body.extend(vec![b'x'; 9 << 20]);
                let body = Bytes::from(body);
                let storage = ObjectCheckpointStorage::new(
                    root.clone(),
                    Attempt(7),
                    UuidSource::machine(),
                    StreamOptions::default(),
                );
                let mut stream = storage.create(CheckpointId(1), Scope::Shared);
                for at in (0..body.len()).step_by(1 << 20) {
                    stream.write(body.slice(at..at + (1 << 20))).await.unwrap();
                }
                let handle = stream.finish().await.unwrap().unwrap();
                let StateHandle::Object(object) = &handle else {
                    panic!("an object was expected");
                };
                assert!(object.path.as_str().ends_with(".sealed"));
                let stored = root.len(object.path.as_str()).await.unwrap().unwrap();
                assert!(stored < 10 << 20, "{stored}");
                assert!(read_handle(&storage, &handle).await.unwrap() == body);
            });
        }
    });
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn a_bucket_that_is_not_there_fails_at_once_and_is_no_empty_one() {
    let url = url();
    let (scheme, rest) = url.split_once("://").unwrap();
    if matches!(scheme, "hdfs" | "viewfs") {
        // It has no buckets; a folder that is missing is an empty one.
        return in_new_folder(|runtime, root| {
            let found = runtime.block_on(root.list("nothing/here")).unwrap();
            assert_eq!(found, []);
        });
    }
    let (bucket, _) = rest.split_once('/').unwrap_or((rest, ""));
    // The account of Azure stands behind the container.
    let account = bucket.find('@').map_or("", |at| &bucket[at..]);
    let missing = format!("holdfast-{}", UuidSource::machine().next());
    let runtime = runtime();
    let root = StoreRoot::open(
        &format!("{scheme}://{missing}{account}/x"),
        named_access(&runtime),
    );
    let root = root.unwrap();
    runtime.block_on(async {
        for error in [
            root.publish("a", Bytes::from_static(b"x"))
                .await
                .unwrap_err(),
            write_noise(&root, noise(100, 1), 100).await.unwrap_err(),
            root.list("").await.unwrap_err(),
            root.read_all("a").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        }
    });
    assert_eq!(root.requests().unwrap().counts().retries, 0);
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn changed_secrets_are_refused_at_once_and_shown_nowhere() {
    if url().starts_with("hdfs:") || url().starts_with("viewfs:") {
        // Its credentials are no options.
        return;
    }
    let runtime = runtime();
    let is_credential = |key: &str| {
        let option = StoreOptions::find(key).filter(|option| option.secret);
        // What is only read or listed needs no key to encrypt with.
        option.is_some_and(|option| option.key != "s3.server-side-encryption.key")
    };
    let mut secrets = named_options();
    secrets.retain(|(key, _)| is_credential(key));
    assert!(
        !secrets.is_empty(),
        "HOLDFAST_STORE_OPTIONS must have the credentials, to be changed"
    );
    for (secret, value) in secrets {
        // Of the same alphabet, and with the same end, so that it is wrong and not malformed.
        let end = value.len().saturating_sub(4);
        let changed: String = value
            .char_indices()
            .map(|(at, c)| match c {
                _ if at >= end => c,
                'a' => 'b',
                'A' => 'B',
                '1' => '2',
                'b'..='y' | 'B'..='Y' | '2'..='8' => char::from(c as u8 + 1),
                other => other,
            })
            .collect();
        assert_ne!(changed, value, "{secret}");
        let mut options = StoreOptions::new();
        for (key, value) in named_options() {
            options.set(&key, value).unwrap();
        }
        options.set(&secret, &changed).unwrap();
        let access = StoreAccess::new(runtime.handle().clone()).with_options(options);
        let root = StoreRoot::open(&format!("{}/wrong", url()), access).unwrap();
        runtime.block_on(async {
            for error in [
                root.publish("a", Bytes::from_static(b"x"))
                    .await
                    .unwrap_err(),
                root.list("").await.unwrap_err(),
                root.read_all("a").await.unwrap_err(),
                root.len("a").await.unwrap_err(),
                root.delete("a").await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config, "{secret}: {error:?}");
                let shown = format!("{error} {error:?} {error:#?}");
                assert!(!shown.contains(&changed), "{secret}: {shown}");
            }
        });
        assert_eq!(root.requests().unwrap().counts().retries, 0, "{secret}");
    }
}
