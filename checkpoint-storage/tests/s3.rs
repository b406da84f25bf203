//! Checkpoints on S3: a server in the process of the tests, spoken to as any other.
//!
//! The server is `s3s` over `s3s-fs`, whose create-if-absent looks first and writes then; the front of `s3-testkit` makes it
//! exclusive. What the other test files run on every store runs on this one too, with the feature `s3-tests`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::collections::BTreeSet;

use bytes::Bytes;
use checkpoint_storage::{
    Fate, GcOptions, JobStore, ObjectCheckpointStorage, ProbeOptions, StoreAccess, StoreOptions,
    StoreRoot, StoredCheckpoint, StreamOptions, UuidSource, Why, collect_garbage, left_beside,
    probe, read_handle, verify,
};
use common::*;
use s3_testkit::{S3Fault, S3Request, S3Server};
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, ErrorKind, ObjectHandle, Scope, StateHandle,
};

use common::write_noise as write;

fn object(handle: &StateHandle) -> &ObjectHandle {
    match handle {
        StateHandle::Object(object) => object,
        StateHandle::Inline(_) => panic!("an object was expected"),
    }
}

async fn read(root: &StoreRoot, handle: &StateHandle) -> state_api::Result<Bytes> {
    read_handle(&storage(root, StreamOptions::default()), handle).await
}

fn count(requests: &[S3Request], which: impl Fn(&S3Request) -> bool) -> usize {
    requests.iter().filter(|request| which(request)).count()
}

#[test]
fn the_probe_finds_s3_fit_after_fifty_races() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "probe");
    let how = ProbeOptions::of(&root);
    assert_eq!((how.rounds, how.body_len), (50, 256 << 10));
    runtime.block_on(probe(&root, &names(1), how)).unwrap();
    let seen = server.take_requests();
    let races: Vec<_> = seen
        .iter()
        .filter(|request| request.creates && request.len == 256 << 10)
        .map(|request| request.path.as_str())
        .collect();
    // Two writers each; one whose answer didn't come asks again.
    assert!(races.len() >= 100, "{}", races.len());
    assert_eq!(races.iter().collect::<BTreeSet<_>>().len(), 50);
    assert_eq!(
        runtime.block_on(all_objects(&root, "")),
        Vec::<String>::new()
    );
}

#[test]
fn the_probe_refuses_a_store_whose_condition_is_not_kept() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "probe");
    // A writer that is told to have lost although nobody won.
    server.judge(|request| {
        request.creates.then_some(S3Fault::Refuse {
            status: 412,
            retry_after_s: None,
        })
    });
    let error = runtime
        .block_on(probe(&root, &names(1), ProbeOptions::of(&root)))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("none created the object"),
        "{error}"
    );
}

#[test]
fn objects_of_any_length_read_as_they_were_written_and_long_ones_go_in_parts() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "lengths");
    for len in [
        1,
        100,
        (128 << 10) + 1,
        (5 << 20) - 1,
        5 << 20,
        (5 << 20) + 1,
        17 << 20,
    ] {
        let body = noise(len, 3);
        runtime.block_on(async {
            let handle = write(&root, body.clone(), 700_001).await.unwrap();
            assert_eq!(object(&handle).len, len as u64);
            assert!(read(&root, &handle).await.unwrap() == body, "{len}");
        });
        let seen = server.take_requests();
        let parts = count(&seen, |r| r.is_upload() && r.query.contains("partNumber="));
        let expected = if len <= 5 << 20 {
            0
        } else {
            len.div_ceil(5 << 20)
        };
        assert_eq!(parts, expected, "{len} bytes");
    }
    assert_eq!(server.open_upload_files(), 0);
}

#[test]
fn a_job_folder_on_s3_publishes_is_found_by_url_and_verifies() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "all");
    runtime.block_on(async {
        let store = JobStore::open(root.folder("flights"), job(), names(1))
            .await
            .unwrap();
        let metadata = job_folder::checkpoint(&store, 1, &[]).await;
        let published = store.publish(&metadata).await.unwrap();
        assert_eq!(published.url, "s3://state/all/flights/chk-1");
        let access = StoreAccess::new(runtime.handle().clone()).with_options(s3_options(&server));
        for pointer in [
            "s3://state/all/flights/latest",
            "s3a://state/all/flights/chk-1",
            "s3://state/all/flights/chk-1/_metadata",
        ] {
            let found = StoredCheckpoint::find(pointer, &access).await.unwrap();
            assert_eq!(found.metadata, metadata, "{pointer}");
            verify(&found, []).await.unwrap().into_result().unwrap();
        }
        let error = StoredCheckpoint::find("s3://state/all/nothing/latest", &access)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_missing_bucket_and_a_wrong_key_fail_at_once_and_say_so() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let open = |url: &str, secret: &str| {
        let options = s3_options(&server).with("s3.secret-key", secret).unwrap();
        StoreRoot::open(
            url,
            StoreAccess::new(runtime.handle().clone()).with_options(options),
        )
        .unwrap()
    };
    for (url, secret) in [
        ("s3://elsewhere/x", S3Server::SECRET_KEY),
        ("s3://state/x", "not-the-secret-of-anybody"),
    ] {
        let root = open(url, secret);
        let error = runtime
            .block_on(root.publish("a", Bytes::from_static(b"x")))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error:?}");
        let error = runtime
            .block_on(write(&root, noise(100, 1), 100))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error:?}");
        let error = runtime.block_on(root.read_all("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error:?}");
        assert!(
            server.take_requests().len() < 10,
            "{url}: a lasting failure is not tried again"
        );
    }
}

#[test]
fn credentials_appear_in_no_error_no_debug_output_and_no_metadata() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "all");
    let options: StoreOptions = s3_options(&server);
    let access = StoreAccess::new(runtime.handle().clone()).with_options(options.clone());
    let mut shown = vec![format!("{options:?} {access:?} {root:?}")];
    let secret = "another-secret-that-is-wrong";
    let wrong = StoreRoot::open(
        "s3://state/x",
        StoreAccess::new(runtime.handle().clone())
            .with_options(options.with("s3.secret-key", secret).unwrap()),
    )
    .unwrap();
    runtime.block_on(async {
        let store = JobStore::open(root.folder("flights"), job(), names(1))
            .await
            .unwrap();
        let metadata = job_folder::checkpoint(&store, 1, &[]).await;
        shown.push(store.publish(&metadata).await.unwrap().url);
        for error in [
            wrong.read_all("a").await.unwrap_err(),
            wrong.len("a").await.unwrap_err(),
            wrong.list("").await.unwrap_err(),
            wrong.delete("a").await.unwrap_err(),
            wrong
                .publish("a", Bytes::from_static(b"x"))
                .await
                .unwrap_err(),
            write(&wrong, noise(10, 1), 10).await.unwrap_err(),
        ] {
            shown.push(format!("{error} {error:?} {error:#?}"));
        }
    });
    for path in runtime.block_on(all_objects(&root, "")) {
        let bytes = runtime.block_on(root.read_all(&path)).unwrap();
        shown.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for text in shown {
        for hidden in [S3Server::ACCESS_KEY, S3Server::SECRET_KEY, secret] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
}

/// Refuses, for each request, as many times as asked.
fn times(
    n: usize,
    which: impl Fn(&S3Request) -> bool + Send + 'static,
    fault: S3Fault,
) -> impl FnMut(&S3Request) -> Option<S3Fault> + Send {
    let mut left = n;
    move |request| {
        let hit = left > 0 && which(request);
        left -= usize::from(hit);
        hit.then_some(fault)
    }
}

const SLOW_DOWN: S3Fault = S3Fault::Refuse {
    status: 503,
    retry_after_s: None,
};

#[test]
fn every_call_outlives_failures_that_pass() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "faults");
    let body = noise(12 << 20, 5);
    for fault in [
        SLOW_DOWN,
        S3Fault::Refuse {
            status: 500,
            retry_after_s: None,
        },
        S3Fault::FailAfter { status: 500 },
        S3Fault::FailAfter { status: 504 },
        S3Fault::Vanish,
        S3Fault::Hang,
    ] {
        // Each request of its kind fails twice, whatever it is about.
        let mut failed = std::collections::HashMap::new();
        server.judge(move |request| {
            let key = (
                request.method.clone(),
                request.path.clone(),
                request.query.clone(),
            );
            let times: &mut u32 = failed.entry(key).or_default();
            *times += 1;
            (*times <= 2).then_some(fault)
        });
        runtime.block_on(async {
            let name = format!("{fault:?}").replace([' ', '{', '}', ':', ','], "");
            let root = root.folder(&name);
            root.publish("once", Bytes::from_static(b"mine"))
                .await
                .unwrap();
            let handle = write(&root, body.clone(), 1 << 20).await;
            let handle =
                handle.unwrap_or_else(|e| panic!("{fault:?}: {e}: {:#?}", server.take_requests()));
            assert!(read(&root, &handle).await.unwrap() == body, "{fault:?}");
            let small = write(&root, noise(100, 6), 100).await.unwrap();
            assert_eq!(read(&root, &small).await.unwrap().len(), 100, "{fault:?}");
            assert_eq!(all_objects(&root, "").await.len(), 3, "{fault:?}");
            assert_eq!(root.len("once").await.unwrap(), Some(4), "{fault:?}");
            root.delete("once").await.unwrap();
            assert_eq!(root.len("once").await.unwrap(), None, "{fault:?}");
        });
    }
    assert!(root.requests().unwrap().counts().retries > 0);
}

#[test]
fn a_publisher_whose_answer_was_lost_has_won_and_the_next_one_has_not() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "lost");
    runtime.block_on(async {
        for (path, fault) in [
            ("a", S3Fault::Vanish),
            ("b", S3Fault::FailAfter { status: 503 }),
        ] {
            server.judge(times(1, |request| request.creates, fault));
            root.publish(path, Bytes::from_static(b"first"))
                .await
                .unwrap();
            // Also when the answer to the loser is lost.
            server.judge(times(1, |request| request.creates, fault));
            let error = root
                .publish(path, Bytes::from_static(b"second"))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{fault:?}");
            assert_eq!(root.read_all(path).await.unwrap(), "first");
        }
    });
}

#[test]
fn an_upload_whose_completion_was_answered_too_late_is_whole_or_fails() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "late");
    let body = noise(11 << 20, 9);
    // The first completion works and its answer is lost; the second one finds the upload gone.
    server.judge(times(1, S3Request::completes_upload, S3Fault::Vanish));
    let handle = runtime
        .block_on(write(&root, body.clone(), 1 << 20))
        .unwrap();
    assert!(runtime.block_on(read(&root, &handle)).unwrap() == body);
    // None of them works: there is no handle, no object and no open upload.
    server.judge(times(
        usize::MAX,
        S3Request::completes_upload,
        S3Fault::Refuse {
            status: 500,
            retry_after_s: None,
        },
    ));
    let error = runtime
        .block_on(write(&root, body.clone(), 1 << 20))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    server.pardon();
    assert_eq!(runtime.block_on(all_objects(&root, "")).len(), 1);
    assert_eq!(server.open_upload_files(), 0);
}

#[test]
fn a_connection_that_drops_in_a_part_gives_the_whole_object_or_none() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "dropped");
    let body = noise(24 << 20, 11);
    let third = |request: &S3Request| request.query.contains("partNumber=3");
    server.judge(times(1, third, S3Fault::Hang));
    let handle = runtime
        .block_on(write(&root, body.clone(), 3 << 20))
        .unwrap();
    assert_eq!(object(&handle).len, 24 << 20);
    assert!(runtime.block_on(read(&root, &handle)).unwrap() == body);
    server.judge(times(usize::MAX, third, S3Fault::Hang));
    runtime.block_on(write(&root, body, 3 << 20)).unwrap_err();
    server.pardon();
    assert_eq!(runtime.block_on(all_objects(&root, "")).len(), 1);
    assert_eq!(server.open_upload_files(), 0, "a failed upload is aborted");
}

#[test]
fn a_dropped_stream_aborts_its_upload() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "abandoned");
    let storage = storage(&root, options(0, 1 << 20));
    runtime.block_on(async {
        let mut stream = storage.create(CheckpointId(1), Scope::Exclusive);
        for seed in 0..12 {
            stream.write(noise(1 << 20, seed + 1)).await.unwrap();
        }
        drop(stream);
        let report = storage.drain().await;
        assert!(report.failed.is_empty());
        assert_eq!(all_objects(&root, "").await, Vec::<String>::new());
    });
    assert_eq!(server.open_upload_files(), 0);
}

#[test]
fn reads_that_are_torn_short_flipped_or_missing_are_repaired_or_named() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "reads");
    let body = noise(1 << 20, 13);
    let handle = runtime
        .block_on(write(&root, body.clone(), 1 << 20))
        .unwrap();
    let reads = |request: &S3Request| request.method == "GET";
    server.judge(times(2, reads, S3Fault::Cut(700_000)));
    assert!(
        runtime.block_on(read(&root, &handle)).unwrap() == body,
        "a torn read is read again"
    );
    for fault in [S3Fault::Flip(17), S3Fault::Shorten(1000)] {
        server.judge(times(usize::MAX, reads, fault));
        let error = runtime.block_on(read(&root, &handle)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Retryable),
            "{fault:?}: {error}"
        );
        assert!(
            error.to_string().contains(object(&handle).path.as_str()),
            "{error}"
        );
    }
    server.judge(times(usize::MAX, reads, S3Fault::Forget));
    let error = runtime.block_on(read(&root, &handle)).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Corrupt,
        "an object that was there after it was written is missing"
    );
    // A store that forgets for a moment what it has taken is asked again, by readers of parts, of streams and of lengths.
    server.judge(times(2, reads, S3Fault::Forget));
    assert!(runtime.block_on(read(&root, &handle)).unwrap() == body);
    let storage = storage(&root, StreamOptions::default());
    server.judge(times(2, reads, S3Fault::Forget));
    let mut reader = runtime.block_on(storage.open(object(&handle))).unwrap();
    let first = runtime.block_on(reader.next()).unwrap().unwrap();
    assert!(first == body);
    let heads = |request: &S3Request| request.method == "HEAD";
    server.judge(times(2, heads, S3Fault::Forget));
    runtime.block_on(storage.open(object(&handle))).unwrap();
}

#[test]
fn a_call_that_hangs_ends_at_its_timeout_and_is_made_again() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let options = s3_options(&server)
        .with("fs.requests.timeout", "200 ms")
        .unwrap();
    let access = StoreAccess::new(runtime.handle().clone()).with_options(options);
    let root = StoreRoot::open("s3://state/slow", access).unwrap();
    let slow = S3Fault::Slow(std::time::Duration::from_secs(30));
    server.judge(times(1, |_| true, slow));
    runtime
        .block_on(root.publish("a", Bytes::from_static(b"x")))
        .unwrap();
    server.judge(times(1, |_| true, slow));
    assert_eq!(runtime.block_on(root.read_all("a")).unwrap(), "x");
}

#[test]
fn a_storm_of_503_is_weathered_with_few_requests_and_requests_stay_within_their_number() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let options = s3_options(&server)
        .with("fs.requests.max-concurrent", 4)
        .unwrap()
        .with("fs.requests.attempts", 20)
        .unwrap();
    let access = StoreAccess::new(runtime.handle().clone()).with_options(options);
    let root = StoreRoot::open("s3://state/storm", access).unwrap();
    // Nine out of ten writes are refused, until two hundred were.
    let (mut n, mut refused) = (0_u32, 0_u32);
    server.judge(move |request| {
        n += 1;
        let hit = request.is_upload() && !n.is_multiple_of(10) && refused < 200;
        refused += u32::from(hit);
        hit.then_some(SLOW_DOWN)
    });
    runtime.block_on(async {
        let writes = (0..64).map(|i| {
            let root = root.clone();
            async move { write(&root, noise(1000, i + 1), 1000).await }
        });
        let handles = futures_util::future::try_join_all(writes).await.unwrap();
        assert_eq!(handles.len(), 64);
    });
    let counts = root.requests().unwrap().counts();
    assert!(
        counts.throttled > 0 && counts.throttled <= 200,
        "{counts:?}"
    );
    assert_eq!(counts.put, 64 + counts.throttled, "{counts:?}");
}

/// Opens a folder with more options, on a server that takes its time, so that what may be under way at once is.
fn slow_root(server: &S3Server, runtime: &tokio::runtime::Runtime, more: [&str; 2]) -> StoreRoot {
    let slow = S3Fault::Slow(std::time::Duration::from_millis(20));
    server.judge(move |_| Some(slow));
    let options = s3_options(server)
        .with("fs.requests.timeout", "30 s")
        .unwrap()
        .with(more[0], more[1])
        .unwrap();
    let access = StoreAccess::new(runtime.handle().clone()).with_options(options);
    StoreRoot::open("s3://state/slow", access).unwrap()
}

#[test]
fn streams_and_reads_beside_each_other_share_the_requests_that_may_be_under_way() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = slow_root(&server, &runtime, ["fs.requests.max-concurrent", "4"]);
    runtime.block_on(async {
        let writes = (0..64).map(|i| {
            let root = root.clone();
            async move { write(&root, noise(1000, i + 1), 1000).await }
        });
        let handles = futures_util::future::try_join_all(writes).await.unwrap();
        assert_eq!(server.take_most_at_once(), 4);
        let reads = handles.iter().map(|handle| read(&root, handle));
        futures_util::future::try_join_all(reads).await.unwrap();
        assert_eq!(server.take_most_at_once(), 4);
    });
}

#[test]
fn of_one_upload_no_more_parts_are_under_way_than_may_be() {
    for most in [1, 3] {
        let (runtime, server) = (runtime(), S3Server::start().unwrap());
        let number = most.to_string();
        let option = ["fs.upload.max-concurrent-parts", &number];
        let root = slow_root(&server, &runtime, option);
        runtime
            .block_on(write(&root, noise(40 << 20, 3), 1 << 20))
            .unwrap();
        assert_eq!(server.take_most_at_once(), most);
    }
}

#[test]
fn what_a_store_asks_to_wait_is_waited() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let waits = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&waits);
    let pacing = checkpoint_storage::Pacing::new(
        std::sync::Arc::new(state_api::SystemClock),
        names(5),
        move |time| {
            seen.lock().unwrap().push(time);
            Box::pin(async {})
        },
    );
    let access = StoreAccess::new(runtime.handle().clone())
        .with_options(s3_options(&server))
        .with_pacing(pacing);
    let root = StoreRoot::open("s3://state/wait", access).unwrap();
    server.judge(times(
        1,
        |_| true,
        S3Fault::Refuse {
            status: 503,
            retry_after_s: Some(7),
        },
    ));
    runtime
        .block_on(root.publish("a", Bytes::from_static(b"x")))
        .unwrap();
    let longest = *waits.lock().unwrap().iter().max().unwrap();
    assert!(
        longest >= std::time::Duration::from_millis(6500),
        "{longest:?}"
    );
}

/// A checkpoint of as many subtasks as asked, each with state of a length, published in a new job folder.
fn checkpoint_requests(subtasks: u32, len: usize) -> checkpoint_storage::RequestCounts {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "budget");
    runtime.block_on(async {
        let store = JobStore::open(root.clone(), job(), names(1)).await.unwrap();
        let before = root.requests().unwrap().counts();
        let storage = store.storage(StreamOptions::default());
        let mut count = operator("count", subtasks);
        for index in 0..subtasks {
            let mut stream = storage.create(store.first_checkpoint(), Scope::Exclusive);
            // Ten states of a subtask share its stream.
            for state in 0..10 {
                stream
                    .write(noise(len / 10, u64::from(index * 10 + state) + 1))
                    .await
                    .unwrap();
            }
            let handle = stream.finish().await.unwrap().unwrap();
            let snapshot = state_api::OperatorSnapshot {
                managed_operator: vec![state_api::OperatorStateHandle {
                    states: Vec::new(),
                    bytes: handle,
                }],
                ..state_api::OperatorSnapshot::default()
            };
            count
                .subtasks
                .push(checkpoint_storage::SubtaskMetadata::new(index, snapshot));
        }
        let mut all = metadata(1, store.attempt().0);
        all.operators = vec![count];
        store.publish(&all).await.unwrap();
        root.requests().unwrap().counts().since(&before)
    })
}

#[test]
fn a_checkpoint_keeps_to_its_budget_of_requests() {
    // Two looks for a higher attempt, the metadata, and a look whether it is there.
    let fixed = checkpoint_storage::RequestCounts {
        get: 2,
        head: 1,
        put: 1,
        ..Default::default()
    };
    let numbers = |counts: checkpoint_storage::RequestCounts| checkpoint_storage::RequestCounts {
        sent_bytes: 0,
        ..counts
    };
    // 64 subtasks with ten states of 1 KB: all of it is in the metadata.
    assert_eq!(numbers(checkpoint_requests(64, 10_000)), fixed);
    // More than 20 KiB: one object for each subtask.
    assert_eq!(
        numbers(checkpoint_requests(16, 100_000)),
        checkpoint_storage::RequestCounts { put: 17, ..fixed }
    );
    // More than a part: begin, parts, completion.
    assert_eq!(
        numbers(checkpoint_requests(1, 12 << 20)),
        checkpoint_storage::RequestCounts {
            put: 4,
            post: 2,
            ..fixed
        }
    );
}

/// Leaves uploads of an attempt behind, as a process that was killed does: they can't be given up.
async fn leave_uploads(server: &S3Server, root: &StoreRoot, attempt: u64, count: u64) {
    server.judge(|request| {
        let gives_up = request.method == "DELETE" && request.query.contains("uploadId=");
        gives_up.then_some(S3Fault::Refuse {
            status: 403,
            retry_after_s: None,
        })
    });
    let storage = ObjectCheckpointStorage::new(
        root.clone(),
        Attempt(attempt),
        UuidSource::machine(),
        options(0, 1 << 20),
    );
    for seed in 0..count {
        let mut stream = storage.create(CheckpointId(9), Scope::Shared);
        for _ in 0..11 {
            stream.write(noise(1 << 20, seed + 1)).await.unwrap();
        }
        drop(stream);
    }
    storage.drain().await;
    server.pardon();
}

#[test]
fn uploads_that_a_killed_process_left_are_listed_and_given_up_once_its_attempt_is_over() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "all");
    let job_root = root.folder("flights");
    runtime.block_on(async {
        let store = JobStore::open(job_root.clone(), job(), names(1))
            .await
            .unwrap();
        let metadata = job_folder::checkpoint(&store, 1, &[]).await;
        store.publish(&metadata).await.unwrap();
        // More than a page of them; beside the job is one that nothing tells the writer of.
        leave_uploads(&server, &job_root, store.attempt().0, 7).await;
        leave_uploads(&server, &root.folder("savepoint-flight-0123456789ab"), 1, 1).await;
        let open = root.open_uploads().await.unwrap().unwrap();
        assert_eq!(open.len(), 8);
        assert!(
            open.iter()
                .take(7)
                .all(|upload| upload.path.starts_with("flights/shared/1-"))
        );
        let beside = left_beside(&root).await.unwrap();
        assert_eq!(beside.len(), 1);
        assert!(
            beside[0].reason.starts_with("uploads in parts"),
            "{beside:?}"
        );

        let of = |report: &checkpoint_storage::GcReport| -> Vec<String> {
            let uploads = report
                .unreferenced
                .iter()
                .filter(|found| found.upload.is_some());
            let uploads = uploads.inspect(|found| assert_eq!(found.why, Why::NeverUploaded));
            uploads.map(|found| format!("{:?}", found.fate)).collect()
        };
        // Nobody can tell whether the attempt runs.
        let dry = GcOptions {
            dry_run: true,
            ..GcOptions::default()
        };
        let report = collect_garbage(&job_root, &dry).await.unwrap();
        assert_eq!(
            of(&report),
            vec![format!("{:?}", Fate::MayBePending(Attempt(1))); 7]
        );
        assert!(report.uploads_unseen.is_none());
        let report = collect_garbage(&job_root, &GcOptions::default())
            .await
            .unwrap();
        assert_eq!((of(&report).len(), report.attempt), (7, None));
        assert_eq!(root.open_uploads().await.unwrap().unwrap().len(), 8);
        // Taken over, they go, and nothing else does.
        let take_over = GcOptions {
            take_over: true,
            ..GcOptions::default()
        };
        let report = collect_garbage(&job_root, &take_over).await.unwrap();
        assert_eq!(of(&report), vec!["Deleted"; 7]);
        let left = root.open_uploads().await.unwrap().unwrap();
        assert_eq!(left.len(), 1);
        assert!(left[0].path.starts_with("savepoint-"), "{left:?}");
        let found = StoredCheckpoint::read(&job_root, "chk-1").await.unwrap();
        verify(&found, []).await.unwrap().into_result().unwrap();
    });
    assert_eq!(
        runtime
            .block_on(root.folder("flights").open_uploads())
            .unwrap(),
        Some(Vec::new())
    );
}

#[test]
fn the_next_attempt_gives_up_uploads_of_lower_ones_alone() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "job");
    runtime.block_on(async {
        JobStore::open(root.clone(), job(), names(1)).await.unwrap();
        leave_uploads(&server, &root, 1, 2).await;
        let next = JobStore::open(root.clone(), job(), names(2)).await.unwrap();
        leave_uploads(&server, &root, next.attempt().0, 1).await;
        let report = next.sweep_abandoned().await.unwrap();
        assert_eq!((report.uploads, report.failed.len()), (2, 0));
        let open = root.open_uploads().await.unwrap().unwrap();
        assert_eq!(open.len(), 1);
        assert!(open[0].path.starts_with("shared/2-"), "{open:?}");
        // One that has ended meanwhile is given up without complaint, and its object stays.
        root.give_up_upload(&open[0]).await.unwrap();
        root.give_up_upload(&open[0]).await.unwrap();
    });
}

#[test]
fn a_store_that_does_not_list_uploads_says_so_and_is_cleaned_up_otherwise() {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "job");
    let lists_uploads = |request: &S3Request| {
        request.method == "GET"
            && request
                .query
                .split('&')
                .any(|part| part.starts_with("uploads"))
    };
    runtime.block_on(async {
        let store = JobStore::open(root.clone(), job(), names(1)).await.unwrap();
        store.end().await.unwrap();
        // What passes is waited for.
        server.judge(times(2, lists_uploads, SLOW_DOWN));
        let report = collect_garbage(&root, &GcOptions::default()).await.unwrap();
        assert!(report.uploads_unseen.is_none());
        for (status, kind) in [(403, ErrorKind::Config), (501, ErrorKind::Unsupported)] {
            let fault = S3Fault::Refuse {
                status,
                retry_after_s: None,
            };
            server.judge(times(usize::MAX, lists_uploads, fault));
            let report = collect_garbage(&root, &GcOptions::default()).await.unwrap();
            assert!(report.stopped.is_empty(), "{:?}", report.stopped);
            let error = report.uploads_unseen.unwrap();
            assert_eq!(error.kind(), kind);
            let text = format!("{error} {error:?}");
            assert!(!text.contains(S3Server::ACCESS_KEY), "{text}");
            let store = JobStore::open(root.clone(), job(), names(7)).await.unwrap();
            store.sweep_abandoned().await.unwrap();
            store.end().await.unwrap();
        }
    });
}
