//! Many objects of S3 are deleted by one request, and the report is as exact as if each had one.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::fs;

use checkpoint_storage::{Fate, GcOptions, JobStore, StoreRoot, StreamOptions, collect_garbage};
use common::job_folder::write_object;
use common::*;
use s3_testkit::{S3Fault, S3Request, S3Server};
use state_api::{ErrorKind, ObjectHandle, Scope};
use tokio::runtime::Runtime;

/// Objects in `all/` of the server's bucket, by their paths there.
fn objects(server: &S3Server, count: usize) -> Vec<String> {
    let folder = server.bucket().join("all/shared");
    fs::create_dir_all(&folder).unwrap();
    let names = (0..count).map(|index| format!("1-{index}"));
    names
        .map(|name| {
            fs::write(folder.join(&name), &name).unwrap();
            format!("shared/{name}")
        })
        .collect()
}

/// As a checkpoint refers to them.
fn handles(paths: &[String]) -> Vec<ObjectHandle> {
    let handle = |path: &String| {
        let object = object(state_api::Root::Own, path, b"");
        object.object().unwrap().clone()
    };
    paths.iter().map(handle).collect()
}

fn is_batch(request: &S3Request) -> bool {
    request.method == "POST"
        && request
            .query
            .split('&')
            .any(|part| part.starts_with("delete"))
}

/// Requests that delete: by the batch, and alone.
fn deletions(server: &S3Server) -> (usize, usize) {
    let seen = server.take_requests();
    let alone = seen.iter().filter(|request| request.method == "DELETE");
    (
        seen.iter().filter(|request| is_batch(request)).count(),
        alone.count(),
    )
}

fn refused(status: u16) -> S3Fault {
    S3Fault::Refuse {
        status,
        retry_after_s: None,
    }
}

fn started() -> (Runtime, S3Server, StoreRoot, JobStore) {
    let (runtime, server) = (runtime(), S3Server::start().unwrap());
    let root = s3(&server, &runtime, "all");
    let store = runtime
        .block_on(JobStore::open(root.clone(), job(), names(1)))
        .unwrap();
    drop(server.take_requests());
    (runtime, server, root, store)
}

#[test]
fn many_objects_take_few_requests_and_those_that_are_gone_count() {
    let (runtime, server, root, store) = started();
    let mut paths = objects(&server, 600);
    paths.extend((0..5).map(|index| format!("shared/1-gone{index}")));
    let report = runtime
        .block_on(store.delete_objects(&handles(&paths)))
        .unwrap();
    assert_eq!(report.into_result().unwrap(), 605);
    assert_eq!(deletions(&server), (3, 0));
    assert!(runtime.block_on(all_objects(&root, "shared")).is_empty());
    // A single one needs no list of names.
    let path = objects(&server, 1);
    runtime
        .block_on(store.delete_objects(&handles(&path)))
        .unwrap();
    assert_eq!(deletions(&server), (0, 1));
}

#[test]
fn a_batch_whose_answer_is_lost_is_repeated() {
    for fault in [
        S3Fault::FailAfter { status: 500 },
        S3Fault::Vanish,
        refused(503),
    ] {
        let (runtime, server, root, store) = started();
        let paths = objects(&server, 20);
        let mut left = 1;
        server.judge(move |request| {
            let hit = left > 0 && is_batch(request);
            left -= usize::from(hit);
            hit.then_some(fault)
        });
        let report = runtime
            .block_on(store.delete_objects(&handles(&paths)))
            .unwrap();
        assert_eq!(report.into_result().unwrap(), 20, "{fault:?}");
        assert_eq!(deletions(&server), (2, 0), "{fault:?}");
        assert!(runtime.block_on(all_objects(&root, "shared")).is_empty());
    }
}

#[test]
fn a_store_that_takes_no_batches_is_asked_one_by_one_and_what_stays_is_named() {
    let (runtime, server, root, store) = started();
    let paths = objects(&server, 20);
    server.judge(|request| {
        let held = request.method == "DELETE" && request.path.ends_with("/1-7");
        match (is_batch(request), held) {
            (true, _) => Some(refused(501)),
            (_, true) => Some(refused(403)),
            _ => None,
        }
    });
    let report = runtime
        .block_on(store.delete_objects(&handles(&paths)))
        .unwrap();
    assert_eq!(report.deleted, 19);
    let [(path, error)] = &report.failed[..] else {
        panic!("{:?}", report.failed);
    };
    assert_eq!(
        (path.as_str(), error.kind()),
        ("shared/1-7", ErrorKind::Config)
    );
    server.pardon();
    assert_eq!(
        runtime.block_on(all_objects(&root, "shared")),
        ["shared/1-7"]
    );
}

#[test]
fn garbage_goes_by_the_batch() {
    let (runtime, server, root, store) = started();
    runtime.block_on(async {
        let storage = store.storage(StreamOptions::default());
        for index in 0..30 {
            let body = format!("{index}").repeat(30_000);
            write_object(&storage, 1, Scope::Shared, &body).await;
        }
        store.end().await.unwrap();
        drop(server.take_requests());
        let report = collect_garbage(&root, &GcOptions::default()).await.unwrap();
        let found = report.unreferenced.iter();
        let written: Vec<_> = found.filter(|it| it.path.starts_with("shared/")).collect();
        assert_eq!(written.len(), 30);
        for found in written {
            assert!(matches!(found.fate, Fate::Deleted), "{found:?}");
        }
        let (batches, _) = deletions(&server);
        assert_eq!(batches, 1);
        assert!(all_objects(&root, "shared").await.is_empty());
    });
}
