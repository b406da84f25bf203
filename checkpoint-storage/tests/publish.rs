//! Publishing: whole, durable, once, or not at all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::{Arc, Barrier};

use bytes::Bytes;
use checkpoint_storage::{
    ConditionalPublish, Content, LocalPublish, LocalStore, MemoryPublish, MemoryStore,
    ProbeOptions, Publish, StoreRoot, probe,
};
use common::*;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, ErrorKind, Result};

#[test]
fn k_481_what_is_published_is_never_replaced() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            root.publish("chk-1/_metadata", Bytes::from_static(b"first"))
                .await
                .unwrap();
            let error = root
                .publish("chk-1/_metadata", Bytes::from_static(b"second"))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind}");
            assert_eq!(
                root.read_all("chk-1/_metadata").await.unwrap(),
                "first",
                "{kind}"
            );
        });
    });
}

#[test]
fn of_two_publishers_on_a_local_disk_exactly_one_wins_50_times_out_of_50() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    for round in 0..50 {
        let path = format!("chk-{round}/_metadata");
        let start = Arc::new(Barrier::new(2));
        let racers: Vec<_> = [b'a', b'b']
            .into_iter()
            .map(|fill| {
                let (root, path, start) = (root.clone(), path.clone(), Arc::clone(&start));
                let handle = runtime.handle().clone();
                std::thread::spawn(move || {
                    start.wait();
                    handle.block_on(root.publish(&path, vec![fill; 100_000].into()))
                })
            })
            .collect();
        let outcomes: Vec<_> = racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect();
        let winners: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let loser = outcomes
            .iter()
            .find_map(|outcome| outcome.as_ref().err())
            .unwrap();
        assert_eq!(loser.kind(), ErrorKind::AlreadyExists, "round {round}");
        let fill = if outcomes[0].is_ok() { b'a' } else { b'b' };
        assert_eq!(
            runtime.block_on(root.read_all(&path)).unwrap(),
            vec![fill; 100_000],
            "round {round}"
        );
        let left = std::fs::read_dir(folder.path().join(format!("chk-{round}")))
            .unwrap()
            .count();
        assert_eq!(left, 1, "round {round}: no temporary file is left");
    }
}

#[test]
fn k_483_nothing_shows_under_the_final_path_before_it_is_whole() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    let target = folder.path().join("chk-1/_metadata");
    let bytes = Bytes::from(vec![7; 4 << 20]);
    let watcher = std::thread::spawn({
        let target = target.clone();
        move || {
            // Bounded by the publication, which ends with the file in place.
            loop {
                if let Ok(found) = std::fs::read(&target) {
                    return found.len();
                }
                std::thread::yield_now();
            }
        }
    });
    runtime
        .block_on(root.publish("chk-1/_metadata", bytes))
        .unwrap();
    assert_eq!(watcher.join().unwrap(), 4 << 20);
}

#[test]
fn k_484_a_crash_between_temporary_file_and_link_publishes_nothing_and_blocks_nobody() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    std::fs::create_dir(folder.path().join("chk-1")).unwrap();
    // What a process that was killed there leaves behind.
    std::fs::write(
        folder
            .path()
            .join("chk-1/._metadata.00000000-0000-4000-8000-000000000000.tmp"),
        "torn",
    )
    .unwrap();
    assert_eq!(runtime.block_on(root.len("chk-1/_metadata")).unwrap(), None);
    runtime
        .block_on(root.publish("chk-1/_metadata", Bytes::from_static(b"whole")))
        .unwrap();
    assert_eq!(
        runtime.block_on(root.read_all("chk-1/_metadata")).unwrap(),
        "whole"
    );
}

#[test]
fn k_485_a_publication_that_fails_leaves_no_file() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    // A folder in place of the file: the link fails.
    std::fs::create_dir_all(folder.path().join("chk-1/_metadata")).unwrap();
    assert!(
        runtime
            .block_on(root.publish("chk-1/_metadata", Bytes::from_static(b"x")))
            .is_err()
    );
    assert_eq!(
        std::fs::read_dir(folder.path().join("chk-1"))
            .unwrap()
            .count(),
        1
    );
    // A file in place of the folder: nothing can be created.
    std::fs::write(folder.path().join("chk-2"), "").unwrap();
    assert!(
        runtime
            .block_on(root.publish("chk-2/_metadata", Bytes::from_static(b"x")))
            .is_err()
    );
}

#[test]
fn a_service_without_atomic_conditional_writes_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let fs = opendal::services::Fs::default().root(folder.path().to_str().unwrap());
    let error = ConditionalPublish::new(opendal::Operator::new(fs).unwrap(), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("torn file"), "{error}");
    let memory = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    assert_eq!(
        ConditionalPublish::new(memory, None).unwrap().method(),
        "conditional write"
    );
}

#[test]
fn the_probe_passes_on_every_store_and_leaves_nothing() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            probe(&root, &names(5), ProbeOptions::default())
                .await
                .unwrap_or_else(|e| panic!("{kind}: {e}"));
            assert!(root.list("").await.unwrap().is_empty(), "{kind}");
        });
    });
}

/// Breaks one rule of [`Publish`].
#[derive(Debug)]
struct Broken {
    store: MemoryStore,
    rule: &'static str,
}

impl Publish for Broken {
    fn method(&self) -> &'static str {
        self.rule
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move {
            match self.rule {
                "replaces" => {
                    self.store.put(&path, bytes);
                    Ok(())
                }
                "checks, then writes" => {
                    let taken = self.store.get(&path).is_some();
                    pending(1).await;
                    if taken {
                        return Err(Error::new(ErrorKind::AlreadyExists, "taken"));
                    }
                    self.store.put(&path, bytes);
                    Ok(())
                }
                "tears" => {
                    let half = bytes.slice(..bytes.len() / 2);
                    MemoryPublish::new(self.store.clone())
                        .publish(&path, half)
                        .await
                }
                "refuses all" => Err(Error::new(ErrorKind::AlreadyExists, "taken")),
                // Its publishing is as it should be.
                "lists too little" => {
                    MemoryPublish::new(self.store.clone())
                        .publish(&path, bytes)
                        .await
                }
                "lies" => match self.store.get("first") {
                    Some(_) => Err(Error::new(ErrorKind::AlreadyExists, "taken")),
                    None => {
                        self.store.put("first", bytes);
                        Ok(())
                    }
                },
                rule => panic!("no rule {rule}"),
            }
        }
        .boxed()
    }
}

#[test]
fn the_probe_refuses_a_store_that_breaks_a_rule_and_says_which() {
    let rules = [
        ("replaces", "both created one object"),
        ("checks, then writes", "both created one object"),
        ("tears", "does not read as the winner"),
        ("refuses all", "none created the object"),
        ("lies", "could not be read"),
        (
            "lists too little",
            "is missing in a listing made after it was written",
        ),
    ];
    for (rule, reason) in rules {
        let store = MemoryStore::new();
        let objects = FaultyStore::over(store.clone(), move |call, _, _| match (rule, call) {
            ("lists too little", "list") => Fault::Lie,
            _ => Fault::None,
        });
        let root = StoreRoot::new(
            Arc::new(objects),
            Arc::new(Broken { store, rule }),
            "broken://",
        );
        let runtime = runtime();
        let error = runtime
            .block_on(probe(&root, &names(5), ProbeOptions::default()))
            .unwrap_err();
        if rule == "lies" {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{rule}: {error}");
            continue;
        }
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{rule}");
        assert_eq!(error.context("method"), Some(rule));
        assert!(error.to_string().contains(reason), "{rule}: {error}");
    }
}

/// Parts of 1,000 bytes, the number of which it may be wrong about; it may fail at one of them.
struct Parts {
    given: u8,
    number: u8,
    said: u64,
    fails_at: Option<u8>,
}

impl Parts {
    fn new(number: u8) -> Self {
        Self {
            given: 0,
            number,
            said: u64::from(number) * 1000,
            fails_at: None,
        }
    }
}

impl Content for Parts {
    fn len(&self) -> u64 {
        self.said
    }

    fn next_part(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        assert!(buffer.is_empty());
        if self.fails_at == Some(self.given) {
            return Err(Error::invalid("there is no such part"));
        }
        if self.given < self.number {
            buffer.resize(1000, self.given);
            self.given += 1;
        }
        Ok(())
    }
}

#[test]
fn an_object_published_in_parts_is_whole_and_there_once() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let publish = |mut parts: Parts| {
                let root = root.clone();
                async move { root.publish_parts("chk-1/_metadata", &mut parts).await }
            };
            publish(Parts::new(50)).await.unwrap();
            let whole: Vec<u8> = (0..50).flat_map(|fill| [fill; 1000]).collect();
            let read = root.read_all("chk-1/_metadata").await.unwrap();
            assert_eq!(read, whole, "{kind}");
            let error = publish(Parts::new(1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind}");
            let listed = root.list("chk-1").await.unwrap();
            assert_eq!(listed.len(), 1, "{kind}: no temporary file is left");
        });
    });
}

#[test]
fn nothing_is_published_of_content_that_fails_or_is_not_as_long_as_it_says() {
    let fails = |at| Parts {
        fails_at: Some(at),
        ..Parts::new(20)
    };
    let says = |said| Parts {
        said,
        ..Parts::new(20)
    };
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            for (mut parts, expected) in [
                (fails(0), ErrorKind::InvalidArgument),
                (fails(11), ErrorKind::InvalidArgument),
                (says(19_999), ErrorKind::Bug),
                (says(20_001), ErrorKind::Bug),
            ] {
                let error = root.publish_parts("chk-1/_metadata", &mut parts).await;
                assert_eq!(error.unwrap_err().kind(), expected, "{kind}");
                assert_eq!(root.list("chk-1").await.unwrap(), [], "{kind}");
            }
        });
    });
}

#[test]
fn a_local_publisher_says_how_it_works() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::new(folder.path(), runtime.handle().clone()).unwrap();
    assert_eq!(
        LocalPublish::new(store, names(1)).method(),
        "temporary file and hard link"
    );
}
