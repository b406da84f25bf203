//! Azure, Google, Alibaba and Tencent: what is asked of each, and how its answers are understood.
//!
//! The servers are in this process and keep to what the providers write about their protocols. What the other test files run on
//! every store runs on these too, with the feature `blob-tests`; `own_store` is for the real ones.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use checkpoint_storage::{
    JobStore, ProbeOptions, StoreAccess, StoreOptions, StoreRoot, StoredCheckpoint, StreamOptions,
    probe, read_handle, verify,
};
use common::*;
use s3_testkit::{BlobProtocol, BlobServer, S3Fault, S3Request};
use state_api::ErrorKind;
use tokio::runtime::Runtime;

/// Runs a test on a server of each protocol.
fn on_every_protocol(test: impl Fn(BlobProtocol, &BlobServer, &Runtime, StoreRoot)) {
    for protocol in BlobProtocol::ALL {
        let (runtime, server) = (runtime(), BlobServer::start(protocol).unwrap());
        let root = blobs(protocol, &server, &runtime, "all");
        test(protocol, &server, &runtime, root);
    }
}

const REFUSE: fn(u16) -> S3Fault = |status| S3Fault::Refuse {
    status,
    retry_after_s: None,
};

#[test]
fn the_probe_finds_each_service_fit_and_what_creates_says_that_it_must_not_overwrite() {
    on_every_protocol(|protocol, server, runtime, root| {
        let how = ProbeOptions::of(&root);
        assert_eq!((how.rounds, how.body_len), (50, 256 << 10));
        runtime.block_on(probe(&root, &names(1), how)).unwrap();
        let seen = server.take_requests();
        // Google learns of the condition when an upload begins, which has no body of its own.
        let begins = |request: &S3Request| match protocol {
            BlobProtocol::Google => request.method == "POST",
            _ => request.method == "PUT",
        };
        let (creating, others): (Vec<_>, Vec<_>) = seen
            .iter()
            .filter(|request| begins(request))
            .partition(|request| request.creates);
        assert!(others.is_empty(), "{protocol:?}: {others:?}");
        // Two writers each, and one who comes late.
        assert!(creating.len() >= 150, "{protocol:?}: {}", creating.len());
        let named: BTreeSet<_> = creating
            .iter()
            .map(|request| format!("{}?{}", request.path, request.query))
            .collect();
        assert_eq!(named.len(), 50, "{protocol:?}");
        assert_eq!(server.objects(), 0, "{protocol:?}");
    });
}

#[test]
fn the_probe_refuses_a_bucket_that_overwrites_whatever_it_is_told() {
    on_every_protocol(|protocol, server, runtime, root| {
        server.overwrite();
        let error = runtime
            .block_on(probe(&root, &names(1), ProbeOptions::of(&root)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{protocol:?}");
        assert!(
            error.to_string().contains("both created one object"),
            "{protocol:?}: {error}"
        );
        assert_eq!(server.objects(), 0, "{protocol:?}");
    });
}

#[test]
fn objects_are_deleted_several_at_a_time() {
    on_every_protocol(|protocol, server, runtime, root| {
        let paths: Vec<_> = (0..40).map(|n| format!("shared/1-{n}")).collect();
        runtime.block_on(async {
            for path in &paths {
                root.publish(path, Bytes::from_static(b"x")).await.unwrap();
            }
            server.judge(|_| Some(S3Fault::Slow(std::time::Duration::from_millis(20))));
            assert_eq!(server.take_most_at_once(), 1);
            let outcomes = root.delete_all(&paths, 8).await;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        });
        assert_eq!(server.take_most_at_once(), 8, "{protocol:?}");
        assert_eq!(server.objects(), 0, "{protocol:?}");
    });
}

#[test]
fn of_two_long_uploads_to_one_name_the_later_one_loses_when_it_ends_and_leaves_nothing() {
    on_every_protocol(|protocol, server, runtime, root| {
        runtime.block_on(async {
            let bodies = [noise(17 << 20, 3), noise(17 << 20, 5)];
            let mut writers = Vec::new();
            for body in &bodies {
                let mut writer = root.create("one", Arc::new(())).await.unwrap();
                for at in (0..body.len()).step_by(1 << 20) {
                    writer.write(body.slice(at..at + (1 << 20))).await.unwrap();
                }
                writers.push(writer);
            }
            let (second, first) = (writers.pop().unwrap(), writers.pop().unwrap());
            first.finish().await.unwrap();
            let error = second.finish().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{protocol:?}");
            assert!(
                root.read_all("one").await.unwrap() == bodies[0],
                "{protocol:?}"
            );
        });
        assert_eq!(server.objects(), 1, "{protocol:?}");
        // Azure forgets blocks by itself after a week; there is no request for it.
        let left = usize::from(protocol == BlobProtocol::Azure);
        assert_eq!(server.open_uploads(), left, "{protocol:?}");
    });
}

#[test]
fn a_publisher_whose_answer_was_lost_has_won_and_the_next_one_has_not() {
    on_every_protocol(|protocol, server, runtime, root| {
        // What completes an object: one request, and the second one with Google.
        let completes = move |request: &S3Request| request.method == "PUT" && request.len > 0;
        runtime.block_on(async {
            for (path, fault) in [
                ("a", S3Fault::Vanish),
                ("b", S3Fault::FailAfter { status: 503 }),
                ("c", S3Fault::FailAfter { status: 429 }),
            ] {
                for (body, wins) in [("first", true), ("second", false)] {
                    let mut left = 1;
                    server.judge(move |request| {
                        let hit = left > 0 && completes(request);
                        left -= usize::from(hit);
                        hit.then_some(fault)
                    });
                    let outcome = root
                        .publish(path, Bytes::from_static(body.as_bytes()))
                        .await;
                    match outcome {
                        Ok(()) => assert!(wins, "{protocol:?} {fault:?}"),
                        Err(e) => assert_eq!(
                            (e.kind(), wins),
                            (ErrorKind::AlreadyExists, false),
                            "{protocol:?} {fault:?}: {e}"
                        ),
                    }
                }
                server.pardon();
                assert_eq!(root.read_all(path).await.unwrap(), "first", "{protocol:?}");
            }
        });
    });
}

#[test]
fn what_passes_is_tried_again_whatever_it_is_about() {
    on_every_protocol(|protocol, server, runtime, root| {
        for status in [408, 429, 500, 502, 503, 504] {
            // Each request fails once; to publish again is another session with Google, which is the same request.
            let mut failed = BTreeSet::new();
            server.judge(move |request| {
                let path = match request.path.strip_prefix("/session/") {
                    Some(_) => format!("a session, {} bytes", request.len),
                    None => request.path.clone(),
                };
                let key = format!("{} {path} {}", request.method, request.query);
                failed.insert(key).then_some(REFUSE(status))
            });
            runtime.block_on(async {
                let root = root.folder(&format!("after-{status}"));
                let body = noise(11 << 20, u64::from(status));
                root.publish("once", Bytes::from_static(b"mine"))
                    .await
                    .unwrap_or_else(|e| panic!("{protocol:?} {status}: {e}"));
                let handle = write_noise(&root, body.clone(), 1 << 20)
                    .await
                    .unwrap_or_else(|e| panic!("{protocol:?} {status}: {e}"));
                let storage = storage(&root, StreamOptions::default());
                let read = read_handle(&storage, &handle).await.unwrap();
                assert!(read == body, "{protocol:?} {status}");
                assert_eq!(all_objects(&root, "").await.len(), 2, "{protocol:?}");
                root.delete("once").await.unwrap();
                assert_eq!(root.len("once").await.unwrap(), None, "{protocol:?}");
            });
        }
    });
}

#[test]
fn a_missing_bucket_is_no_empty_one() {
    on_every_protocol(|protocol, server, runtime, root| {
        server.remove_bucket();
        runtime.block_on(async {
            let error = [
                root.publish("a", Bytes::from_static(b"x"))
                    .await
                    .unwrap_err(),
                write_noise(&root, noise(100, 1), 100).await.unwrap_err(),
                root.read_all("a").await.unwrap_err(),
                root.list("").await.unwrap_err(),
            ];
            for error in error {
                assert_eq!(error.kind(), ErrorKind::Config, "{protocol:?}: {error:?}");
                assert!(
                    error.to_string().contains("there is no such bucket"),
                    "{protocol:?}: {error}"
                );
            }
        });
        let asked = server.take_requests().len();
        assert!(asked < 10, "{protocol:?}: {asked}");
    });
}

#[test]
fn refused_credentials_fail_at_once_and_are_shown_nowhere() {
    on_every_protocol(|protocol, server, runtime, root| {
        let options: StoreOptions = blob_options(protocol, server);
        let mut shown = vec![format!("{options:?} {root:?}")];
        for status in [401, 403] {
            server.judge(move |_| Some(REFUSE(status)));
            let _ = server.take_requests();
            runtime.block_on(async {
                for error in [
                    root.publish("a", Bytes::from_static(b"x"))
                        .await
                        .unwrap_err(),
                    write_noise(&root, noise(100, 1), 100).await.unwrap_err(),
                    root.read_all("a").await.unwrap_err(),
                    root.list("").await.unwrap_err(),
                    root.len("a").await.unwrap_err(),
                    root.delete("a").await.unwrap_err(),
                ] {
                    assert_eq!(
                        error.kind(),
                        ErrorKind::Config,
                        "{protocol:?} {status}: {error:?}"
                    );
                    shown.push(format!("{error} {error:?} {error:#?}"));
                }
            });
            let asked = server.take_requests().len();
            assert!(asked < 12, "{protocol:?}: {asked}");
        }
        // The server has repeated what it was asked with; a key of Azure is in no request.
        let masked = shown[1..].iter().any(|text| text.contains("******"));
        assert!(masked || protocol == BlobProtocol::Azure, "{protocol:?}");
        for text in shown {
            for secret in [KEY, KEY_ID] {
                assert!(!text.contains(secret), "{protocol:?}: {text}");
            }
        }
    });
}

#[test]
fn a_job_folder_publishes_is_found_by_url_and_verifies() {
    on_every_protocol(|protocol, server, runtime, root| {
        runtime.block_on(async {
            let store = JobStore::open(root.folder("flights"), job(), names(1))
                .await
                .unwrap();
            let metadata = job_folder::checkpoint(&store, 1, &[]).await;
            let published = store.publish(&metadata).await.unwrap();
            let own = blob_url(protocol, "all/flights");
            assert_eq!(published.url, format!("{own}/chk-1"));
            let access = StoreAccess::new(runtime.handle().clone())
                .with_options(blob_options(protocol, server));
            for pointer in ["latest", "chk-1", "chk-1/_metadata"] {
                let found = StoredCheckpoint::find(&format!("{own}/{pointer}"), &access)
                    .await
                    .unwrap();
                assert_eq!(found.metadata, metadata, "{protocol:?}");
                verify(&found, []).await.unwrap().into_result().unwrap();
            }
        });
    });
}

#[test]
fn options_that_are_said_in_part_are_named_before_anybody_is_asked() {
    let runtime = runtime();
    for (url, options, missing) in [
        ("az://state/x", vec![], "azure.account-name"),
        (
            "az://state/x",
            vec![
                ("azure.endpoint", "http://127.0.0.1:1/me"),
                ("azure.account-key", KEY),
            ],
            "azure.account-name",
        ),
        ("oss://state/x", vec![], "fs.oss.endpoint"),
        (
            "oss://state/x",
            vec![
                ("fs.oss.endpoint", "oss.example.com"),
                ("fs.oss.accessKeyId", KEY_ID),
            ],
            "fs.oss.accessKeySecret",
        ),
        ("cos://state/x", vec![], "cos.endpoint"),
        (
            "cos://state/x",
            vec![
                ("cos.endpoint", "https://cos.example.com"),
                ("cos.session-token", "token"),
            ],
            "cos.secret-id",
        ),
    ] {
        let mut all = StoreOptions::new();
        for (key, value) in options {
            all.set(key, value).unwrap();
        }
        let access = StoreAccess::new(runtime.handle().clone()).with_options(all);
        let error = StoreRoot::open(url, access).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert_eq!(error.context("option"), Some(missing), "{url}: {error}");
    }
}

#[test]
fn an_account_of_azure_has_one_name_in_urls_and_options_and_a_token_may_have_its_question_mark() {
    let (runtime, server) = (runtime(), BlobServer::start(BlobProtocol::Azure).unwrap());
    // Where the option is silent, the account says where it is.
    let named = StoreOptions::new()
        .with("azure.account-name", "me")
        .unwrap();
    let access = StoreAccess::new(runtime.handle().clone()).with_options(named);
    StoreRoot::open("az://state/x", access).unwrap();
    let mut options = StoreOptions::new();
    for (key, value) in [
        // A slash at the end is none in the path of an object.
        ("azure.endpoint", format!("{}/", server.endpoint())),
        ("azure.sas-token", "?sv=2022-11-02&sig=hidden".to_owned()),
    ] {
        options.set(key, value).unwrap();
    }
    let access = StoreAccess::new(runtime.handle().clone()).with_options(options);
    let root = StoreRoot::open("az://state/x", access).unwrap();
    runtime.block_on(async {
        root.publish("a", Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(root.list("").await.unwrap().len(), 1);
        server.judge(|_| Some(REFUSE(403)));
        let error = root.list("").await.unwrap_err();
        assert!(!format!("{error:#?}").contains("hidden"), "{error:#?}");
    });
    for request in server.take_requests() {
        assert!(request.path.starts_with("/holdfast/state"), "{request:?}");
        let query = format!("&{}", request.query);
        assert!(query.contains("&sv=2022-11-02&sig=hidden"), "{request:?}");
    }
}
