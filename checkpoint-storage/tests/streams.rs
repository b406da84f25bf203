//! Area U: streams and the objects they write.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;

use bytes::Bytes;
use checkpoint_storage::{
    MemoryCheckpointStorage, MemoryStore, ObjectCheckpointStorage, StoreRoot, UuidSource,
    digest_of, read_handle,
};
use common::*;
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, CheckpointStream, ErrorKind, ObjectHandle, Result,
    Root, Scope, StateHandle,
};

const CHECKPOINT: CheckpointId = CheckpointId(3);

fn body(len: usize) -> Bytes {
    (0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>().into()
}

async fn write(
    storage: &dyn CheckpointStorage,
    scope: Scope,
    parts: &[usize],
) -> Result<Option<StateHandle>> {
    let mut stream = storage.create(CHECKPOINT, scope);
    let mut at = 0;
    for len in parts {
        stream.write(body(at + len).slice(at..)).await?;
        at += len;
    }
    stream.finish().await
}

fn object_of(handle: Option<StateHandle>) -> ObjectHandle {
    match handle {
        Some(StateHandle::Object(object)) => object,
        other => panic!("{other:?} is no object"),
    }
}

#[test]
fn a_dropped_removal_leaves_the_rest_on_the_list() {
    let mut store = FaultyStore::new(|_, _, _| Fault::None);
    store.yields = 1;
    let storage = storage(&store.root(), options(0, 16));
    for name in ["shared/7-a", "shared/7-b", "shared/7-c"] {
        store.inner.put(name, "x");
        let handle = object(Root::Own, name, b"x");
        storage.discard(handle.object().unwrap());
    }
    for polls in 0..4 {
        assert!(poll_times(storage.reap(), polls).is_none());
        // Nothing lies there that is not on the list.
        assert!(storage.unwanted() >= store.inner.paths().len(), "{polls}");
    }
    assert!(poll_times(storage.reap(), 100).unwrap().failed.is_empty());
    assert_eq!((storage.unwanted(), store.inner.paths().len()), (0, 0));
}

#[test]
fn k_457_an_empty_stream_gives_no_handle_and_creates_nothing() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 0));
            assert_eq!(
                write(&storage, Scope::Exclusive, &[]).await.unwrap(),
                None,
                "{kind}"
            );
            assert_eq!(
                write(&storage, Scope::Exclusive, &[0, 0]).await.unwrap(),
                None,
                "{kind}"
            );
            assert!(all_objects(&root, "").await.is_empty(), "{kind}");
        });
    });
}

#[test]
fn k_458_state_below_the_threshold_is_inline_and_creates_nothing() {
    let store = MemoryStore::new();
    let storage = storage(&StoreRoot::memory(&store, "t"), options(1000, 1024));
    let handle = now(write(&storage, Scope::Exclusive, &[500, 499])).unwrap();
    assert_eq!(handle, Some(StateHandle::Inline(body(999))));
    assert!(store.paths().is_empty());
}

#[test]
fn k_459_state_above_the_threshold_is_an_object_that_reads_as_it_was_written() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            for parts in [
                &[896][..],
                &[10, 2000, 3, 1, 1024, 1023, 5000],
                &[3_000_000, 7, 9_000_000],
            ] {
                let storage = storage(&root, options(15, 1024));
                let handle = write(&storage, Scope::Exclusive, parts)
                    .await
                    .unwrap()
                    .unwrap();
                let whole = body(parts.iter().sum());
                assert_eq!(handle.object().unwrap().digest, digest_of(&whole), "{kind}");
                assert_eq!(
                    read_handle(&storage, &handle).await.unwrap(),
                    whole,
                    "{kind}"
                );
                assert_eq!(
                    (storage.open_objects(), storage.unwanted()),
                    (0, 0),
                    "{kind}"
                );
                storage.discard(handle.object().unwrap());
                assert_eq!(storage.reap().await.removed, 1, "{kind}");
            }
            assert!(all_objects(&root, "").await.is_empty(), "{kind}");
        });
    });
}

#[test]
fn k_462_exactly_the_threshold_is_inline_and_one_byte_more_is_an_object() {
    for (threshold, buffer) in [(1000, 1000), (1000, 4096), (0, 4096)] {
        for cut in [0, 1, 500, threshold] {
            let store = MemoryStore::new();
            let storage = storage(
                &StoreRoot::memory(&store, "t"),
                options(threshold as i64, buffer),
            );
            let cut = cut.min(threshold);
            let inline = now(write(&storage, Scope::Exclusive, &[cut, threshold - cut])).unwrap();
            assert_eq!(
                inline,
                (threshold > 0).then(|| StateHandle::Inline(body(threshold)))
            );
            assert!(store.paths().is_empty());
            let more = now(write(
                &storage,
                Scope::Exclusive,
                &[cut, threshold + 1 - cut],
            ))
            .unwrap();
            assert_eq!(object_of(more).len, threshold as u64 + 1);
        }
    }
}

#[test]
fn what_is_told_to_be_inline_at_most_makes_the_threshold_lower_and_never_higher() {
    for (told, len, is_inline) in [
        (0, 1, false),
        (99, 100, false),
        (100, 100, true),
        (u64::MAX, 1000, true),
        (u64::MAX, 1001, false),
    ] {
        let store = MemoryStore::new();
        let storage = storage(&StoreRoot::memory(&store, "t"), options(1000, 4096));
        let mut stream = storage.create(CHECKPOINT, Scope::Shared);
        stream.inline_at_most(told);
        now(stream.write(body(len))).unwrap();
        now(stream.flush()).unwrap();
        let handle = now(stream.finish()).unwrap().unwrap();
        assert_eq!(handle.object().is_none(), is_inline, "{len} of {told}");
        assert_eq!(handle.len(), len as u64);
    }
}

#[test]
fn k_463_the_position_counts_every_byte_written() {
    let storage = storage(
        &StoreRoot::memory(&MemoryStore::new(), "t"),
        options(16, 64),
    );
    let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
    let mut written = 0;
    for len in [0, 1, 15, 16, 31, 64, 65, 1000, 3] {
        now(stream.write(body(len))).unwrap();
        written += len as u64;
        assert_eq!(stream.position(), written);
        if len % 2 == 1 {
            now(stream.flush()).unwrap();
            assert_eq!(stream.position(), written);
        }
    }
    assert_eq!(object_of(now(stream.finish()).unwrap()).len, written);
}

#[test]
fn k_464_an_aborted_stream_removes_its_object_and_no_other() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 16));
            let kept = object_of(write(&storage, Scope::Exclusive, &[100]).await.unwrap());
            let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
            stream.write(body(100)).await.unwrap();
            assert_eq!(storage.open_objects(), 1);
            stream.abort().await;
            assert_eq!(
                (storage.open_objects(), storage.unwanted()),
                (0, 0),
                "{kind}"
            );
            assert_eq!(
                all_objects(&root, "").await,
                [kept.path.to_string()],
                "{kind}"
            );
        });
    });
}

#[test]
fn a_dropped_stream_leaves_its_object_to_the_reaper() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 16));
            let mut stream = storage.create(CHECKPOINT, Scope::Shared);
            stream.write(body(100)).await.unwrap();
            drop(stream);
            // An upload in parts is aborted first.
            while storage.open_objects() > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(
                (storage.open_objects(), storage.unwanted()),
                (0, 1),
                "{kind}"
            );
            let report = storage.reap().await;
            assert_eq!(
                (report.removed, report.failed.len(), storage.unwanted()),
                (1, 0, 0),
                "{kind}"
            );
            assert!(all_objects(&root, "").await.is_empty(), "{kind}");
        });
    });
}

#[test]
fn k_465_a_failure_at_any_call_poisons_the_stream_and_removes_the_object() {
    for fault in [Fault::Fail, Fault::FailAfter] {
        for failing in ["create", "write", "finish"] {
            let store = FaultyStore::new(
                move |call, _, _| if call == failing { fault } else { Fault::None },
            );
            let storage = storage(&store.root(), options(0, 16));
            let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
            let written = now(stream.write(body(100)));
            let error = match failing {
                "finish" => {
                    written.unwrap();
                    now(stream.finish()).unwrap_err()
                }
                _ => {
                    let error = written.unwrap_err();
                    assert_eq!(
                        now(stream.write(body(1))).unwrap_err().kind(),
                        ErrorKind::Poisoned
                    );
                    assert_eq!(now(stream.flush()).unwrap_err().kind(), ErrorKind::Poisoned);
                    assert_eq!(
                        now(stream.finish()).unwrap_err().kind(),
                        ErrorKind::Poisoned
                    );
                    error
                }
            };
            assert_eq!(error.kind(), ErrorKind::Retryable, "{failing} {fault:?}");
            assert_eq!(error.context("checkpoint"), Some("3"));
            assert!(
                error.context("object").unwrap().starts_with("chk-3/7-"),
                "{error}"
            );
            now(storage.reap());
            assert_eq!((storage.open_objects(), storage.unwanted()), (0, 0));
            assert!(store.inner.paths().is_empty(), "{failing} {fault:?}");
        }
    }
}

#[test]
fn an_object_that_can_not_be_removed_now_is_removed_later() {
    let store = FaultyStore::new(|call, _, n| match call {
        "finish" | "abort" => Fault::Fail,
        "delete" if n < 5 => Fault::Fail,
        _ => Fault::None,
    });
    let storage = storage(&store.root(), options(0, 16));
    now(write(&storage, Scope::Exclusive, &[100])).unwrap_err();
    assert_eq!((store.inner.paths().len(), storage.unwanted()), (1, 1));
    let report = now(storage.reap());
    assert_eq!(
        (report.removed, report.failed.len(), storage.unwanted()),
        (0, 1, 1)
    );
    assert_eq!(now(storage.reap()).removed, 1);
    assert!(store.inner.paths().is_empty());
}

#[test]
fn k_466_a_stream_whose_write_was_cancelled_refuses_the_next() {
    let mut store = FaultyStore::new(|_, _, _| Fault::None);
    store.yields = 1;
    let storage = storage(&store.root(), options(0, 16));
    let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
    assert!(futures_util::FutureExt::now_or_never(stream.write(body(100))).is_none());
    assert_eq!(
        now(stream.write(body(100))).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn k_467_streams_above_and_below_the_threshold_do_not_disturb_each_other() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(1000, 1024));
            let mut streams: Vec<Box<dyn CheckpointStream>> = (0..5)
                .map(|_| storage.create(CHECKPOINT, Scope::Exclusive))
                .collect();
            let lens = [900, 5000, 1000, 20_000, 30_000];
            for step in 0..10 {
                for (stream, len) in streams.iter_mut().zip(lens) {
                    stream
                        .write(body(len).slice(len / 10 * step..len / 10 * (step + 1)))
                        .await
                        .unwrap();
                }
            }
            streams.pop().unwrap().abort().await;
            let mut handles = Vec::new();
            for stream in streams {
                handles.push(stream.finish().await.unwrap().unwrap());
            }
            let objects: Vec<_> = handles.iter().map(|h| h.object().is_some()).collect();
            assert_eq!(objects, [false, true, false, true], "{kind}");
            for (handle, len) in handles.iter().zip(lens) {
                assert_eq!(
                    read_handle(&storage, handle).await.unwrap(),
                    body(len),
                    "{kind}"
                );
            }
            handles
                .iter()
                .filter_map(StateHandle::object)
                .for_each(|object| storage.discard(object));
            assert_eq!(storage.drain().await.removed, 2);
            assert!(all_objects(&root, "").await.is_empty(), "{kind}");
        });
    });
}

#[test]
fn k_470_ten_names_that_are_taken_are_enough() {
    let store = MemoryStore::new();
    let root = StoreRoot::memory(&store, "t");
    let one = uuid::Uuid::from_u128(1);
    let names = UuidSource::from_fn(move || one);
    let storage = ObjectCheckpointStorage::new(root, Attempt(7), names, options(0, 16));
    let first = object_of(now(write(&storage, Scope::Exclusive, &[100])).unwrap());
    let error = now(write(&storage, Scope::Exclusive, &[100])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert!(error.to_string().contains("10 attempts"), "{error}");
    // The object of the first stream is still there.
    assert_eq!((storage.open_objects(), storage.unwanted()), (0, 0));
    assert_eq!(store.get(first.path.as_str()).unwrap(), body(100));
}

#[test]
fn k_471_handles_are_relative_in_every_scope_and_name_their_attempt() {
    let storage = storage(&StoreRoot::memory(&MemoryStore::new(), "t"), options(0, 16));
    for (scope, folder) in [
        (Scope::Exclusive, "chk-3"),
        (Scope::Shared, "shared"),
        (Scope::TaskOwned, "taskowned"),
    ] {
        let object = object_of(now(write(&storage, scope, &[100])).unwrap());
        assert_eq!(object.root, Root::Own);
        let (above, name) = object.path.as_str().split_once('/').unwrap();
        assert_eq!(above, folder);
        assert_eq!(checkpoint_storage::attempt_of_name(name), Some(Attempt(7)));
    }
}

#[test]
fn k_472_a_flush_below_the_threshold_creates_nothing() {
    let store = MemoryStore::new();
    let storage = storage(&StoreRoot::memory(&store, "t"), options(100, 4096));
    let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
    now(stream.write(body(100))).unwrap();
    now(stream.flush()).unwrap();
    assert!(store.paths().is_empty());
    now(stream.write(body(1))).unwrap();
    now(stream.flush()).unwrap();
    assert_eq!(store.paths().len(), 1);
    assert_eq!(object_of(now(stream.finish()).unwrap()).len, 101);
}

#[test]
fn k_476_creating_a_storage_creates_nothing() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(&folder.path().join("a/b"), runtime.handle());
    let storage = storage(&root, options(0, 16));
    let stream = storage.create(CHECKPOINT, Scope::Shared);
    drop(stream);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn k_488_a_state_past_the_limit_of_the_memory_storage_is_refused_with_size_and_limit() {
    let storage = MemoryCheckpointStorage::default();
    let limit = 5 << 20;
    let handle = now(write(&storage, Scope::Exclusive, &[limit]))
        .unwrap()
        .unwrap();
    assert_eq!(handle.len(), limit as u64);
    let mut stream = storage.create(CHECKPOINT, Scope::Shared);
    now(stream.write(body(limit))).unwrap();
    let error = now(stream.write(body(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    for part in [
        "5242881 bytes",
        "the 5242880 bytes",
        MemoryCheckpointStorage::MAX_STATE_SIZE_OPTION,
    ] {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
    assert_eq!(
        now(stream.finish()).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn k_489_a_memory_stream_that_failed_refuses_everything() {
    let mut stream = MemoryCheckpointStorage::new(10).create(CHECKPOINT, Scope::Exclusive);
    now(stream.write(body(11))).unwrap_err();
    assert_eq!(
        now(stream.write(body(1))).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert_eq!(now(stream.flush()).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(
        now(stream.finish()).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
}

#[test]
fn k_457_an_empty_memory_stream_gives_no_handle() {
    let storage = MemoryCheckpointStorage::default();
    assert_eq!(now(write(&storage, Scope::Exclusive, &[])).unwrap(), None);
    now(storage.create(CHECKPOINT, Scope::Exclusive).abort());
}

#[test]
fn k_498_a_missing_short_long_or_damaged_object_is_an_error_that_names_it() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 16));
            let handle = write(&storage, Scope::Exclusive, &[5_000_000])
                .await
                .unwrap()
                .unwrap();
            let good = handle.object().unwrap();
            let name = good.path.to_string();
            let expect = async |object: &ObjectHandle, words: &str| {
                let handle = StateHandle::Object(object.clone());
                let errors = [
                    read_handle(&storage, &handle).await.unwrap_err(),
                    storage.read_range(object, 0..object.len).await.unwrap_err(),
                ];
                for error in errors {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{kind}");
                    assert_eq!(
                        error.context("object"),
                        Some(object.path.as_str()),
                        "{kind}"
                    );
                    assert!(error.to_string().contains(words), "{kind}: {error}");
                }
            };
            expect(
                &ObjectHandle {
                    digest: digest_of(b"?"),
                    ..good.clone()
                },
                "digest differs",
            )
            .await;
            expect(
                &ObjectHandle {
                    len: good.len + 1,
                    ..good.clone()
                },
                "has 5000000 bytes instead of 5000001",
            )
            .await;
            let gone = ObjectHandle {
                path: state_api::RelPath::new("chk-3/7-gone").unwrap(),
                ..good.clone()
            };
            expect(&gone, "is missing").await;
            assert_eq!(
                all_objects(&root, "").await,
                [name],
                "{kind}: nothing is deleted"
            );
            // A longer object shows when it is read from start to end.
            let short = ObjectHandle {
                len: good.len - 1,
                digest: digest_of(&body(4_999_999)),
                ..good.clone()
            };
            let error = storage.open(&short).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{kind}");
        });
    });
}

#[test]
fn a_part_of_an_object_reads_as_that_part() {
    on_every_store(|kind, runtime, root| {
        runtime.block_on(async {
            let storage = storage(&root, options(0, 16));
            let object = object_of(write(&storage, Scope::Exclusive, &[1000]).await.unwrap());
            for range in [0..0, 0..1, 10..20, 999..1000, 1000..1000, 0..1000] {
                let part = storage.read_range(&object, range.clone()).await.unwrap();
                assert_eq!(
                    part,
                    body(1000).slice(range.start as usize..range.end as usize),
                    "{kind}"
                );
            }
            let outside = storage.read_range(&object, 990..1001).await.unwrap_err();
            assert_eq!(outside.kind(), ErrorKind::InvalidArgument, "{kind}");
        });
    });
}

#[test]
fn an_object_in_another_folder_is_read_only_if_the_folder_is_allowed() {
    let store = MemoryStore::new();
    let archive = StoreRoot::memory(&store, "archive");
    let written = object_of(
        now(write(
            &storage(&archive, options(0, 16)),
            Scope::Shared,
            &[100],
        ))
        .unwrap(),
    );
    let foreign = StateHandle::Object(ObjectHandle {
        root: Root::Url("memory://archive/".into()),
        ..written
    });
    let closed = storage(
        &StoreRoot::memory(&MemoryStore::new(), "job"),
        options(0, 16),
    );
    let error = now(read_handle(&closed, &foreign)).unwrap_err();
    assert_eq!(
        (error.kind(), error.context("root")),
        (ErrorKind::Config, Some("memory://archive"))
    );
    let open = closed.with_roots([archive]);
    assert_eq!(now(read_handle(&open, &foreign)).unwrap(), body(100));
    // It is not this attempt's to remove.
    open.discard(foreign.object().unwrap());
    assert_eq!(open.unwanted(), 0);
}

#[test]
fn k_500_deleting_what_is_gone_is_no_error_and_what_can_not_be_deleted_is_one() {
    on_every_store(|kind, runtime, root| {
        runtime
            .block_on(root.delete("chk-1/7-gone"))
            .unwrap_or_else(|e| panic!("{kind}: {e}"));
    });
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("chk-1/stuck/inside")).unwrap();
    let root = local(folder.path(), runtime.handle());
    assert!(runtime.block_on(root.delete("chk-1/stuck")).is_err());
}

#[cfg(unix)]
#[test]
fn a_link_below_the_root_is_refused() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("chk-1")).unwrap();
    let root = local(folder.path(), runtime.handle());
    let error = runtime.block_on(root.read_all("chk-1/secret")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("links below the root"),
        "{error}"
    );
    assert!(
        runtime
            .block_on(root.publish("chk-1/x", Bytes::new()))
            .is_err()
    );
    assert!(runtime.block_on(root.delete("chk-1/secret")).is_err());
    assert_eq!(
        std::fs::read(outside.path().join("secret")).unwrap(),
        b"secret"
    );
}

/// Polls a future up to a number of times, and returns its output if it was ready by then.
fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    for _ in 0..times {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
    }
    None
}

#[test]
fn cancelling_a_stream_at_any_await_point_leaves_no_object() {
    for aborted in [false, true] {
        let mut cut = 0;
        loop {
            let mut store = FaultyStore::new(|_, _, _| Fault::None);
            store.yields = 2;
            let storage = storage(&store.root(), options(10, 16));
            let work = async {
                let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
                stream.write(body(12)).await.unwrap();
                stream.write(body(100)).await.unwrap();
                stream.flush().await.unwrap();
                stream.write(body(3)).await.unwrap();
                match aborted {
                    true => stream.abort().await,
                    false => {
                        storage.discard(stream.finish().await.unwrap().unwrap().object().unwrap())
                    }
                }
            };
            let ready = poll_times(work, cut).is_some();
            // Whatever is left is on the list, and removing it takes no luck.
            assert_eq!(storage.open_objects(), 0, "cut after {cut} polls");
            let unwanted = storage.unwanted();
            let report = poll_times(storage.reap(), 1000).unwrap();
            assert_eq!(
                (report.removed, report.failed.len()),
                (unwanted, 0),
                "cut after {cut} polls"
            );
            assert!(
                store.inner.paths().is_empty(),
                "cut after {cut} polls: {:?}",
                store.inner.paths()
            );
            if ready {
                assert!(cut > 12, "the work was pending {cut} times");
                break;
            }
            cut += 1;
        }
    }
}

#[test]
fn cancelling_a_stream_on_a_local_disk_leaves_no_file() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    for round in 0..60 {
        let storage = storage(&root, options(10, 16));
        let mut work = Box::pin({
            let storage = storage.clone();
            async move {
                let mut stream = storage.create(CHECKPOINT, Scope::Exclusive);
                stream.write(body(100)).await.unwrap();
                stream.write(body(5000)).await.unwrap();
                let handle = stream.finish().await.unwrap().unwrap();
                storage.discard(handle.object().unwrap());
            }
        });
        // Dropped after that many wake-ups, while the last operation may still be running.
        runtime.block_on(async {
            let mut left = round % 6;
            std::future::poll_fn(|cx| {
                if left == 0 || work.as_mut().poll(cx).is_ready() {
                    return std::task::Poll::Ready(());
                }
                left -= 1;
                std::task::Poll::Pending
            })
            .await;
            drop(work);
            assert!(storage.drain().await.failed.is_empty());
            assert_eq!(storage.open_objects(), 0);
        });
        assert!(
            runtime.block_on(all_objects(&root, "")).is_empty(),
            "round {round}"
        );
    }
}

#[test]
fn a_storage_may_be_used_from_a_thread_without_a_runtime() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let root = local(folder.path(), runtime.handle());
    let storage = Arc::new(storage(&root, options(0, 16)));
    let (sender, receiver) = std::sync::mpsc::channel();
    // A thread that only polls, as a task's thread does.
    std::thread::spawn(move || {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut cx = std::task::Context::from_waker(&waker);
        let mut work = Box::pin(async {
            let handle = write(&*storage, Scope::Exclusive, &[100_000])
                .await
                .unwrap()
                .unwrap();
            read_handle(&*storage, &handle).await.unwrap()
        });
        loop {
            match work.as_mut().poll(&mut cx) {
                std::task::Poll::Ready(bytes) => return sender.send(bytes).unwrap(),
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    });
    assert_eq!(
        receiver
            .recv_timeout(std::time::Duration::from_secs(30))
            .unwrap(),
        body(100_000)
    );
}
