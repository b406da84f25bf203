//! A store that fails, hangs, or damages what it is given.
use super::prelude::*;
use state_api::{CancelToken, PersistContext};

fn register(states: &mut States<u32>) -> Result<(ValueState<u64>, ListState<String>)> {
    Ok((states.value("value")?, states.list("list")?))
}

type Pair = (ValueState<u64>, ListState<String>);

fn fill(job: &mut Job<u32, Pair>, mark: u64) {
    for key in 0..60 {
        job.at(&key, |at, (value, list)| {
            at.value(value).set(mark + u64::from(key))?;
            at.list(list)
                .replace(vec![format!("{mark}-{key}"), "x".repeat(50)])
        });
    }
}

fn check(job: &mut Job<u32, Pair>, mark: u64) {
    for key in 0..60 {
        let found = job.at(&key, |at, (value, list)| {
            Ok((at.value(value).get()?, at.list(list).get()?))
        });
        assert_eq!(
            found,
            (
                Some(mark + u64::from(key)),
                vec![format!("{mark}-{key}"), "x".repeat(50)]
            ),
            "key {key}"
        );
    }
}

/// Reads everything as a job would, so that damage which is only found on reading is found.
fn try_check(job: &mut Job<u32, Pair>) -> Result<Vec<(Option<u64>, Vec<String>)>> {
    (0..60)
        .map(|key| {
            job.try_at(&key, |at, (value, list)| {
                Ok((at.value(value).get()?, at.list(list).get()?))
            })
        })
        .collect()
}

fn faulty(setup: &Setup) -> (Setup, FaultyStorage, CountingStorage) {
    let counting = CountingStorage::new(Arc::new(setup.memory.clone()));
    let faulty = FaultyStorage::new(Arc::new(counting.clone()));
    (
        setup.clone().storage(Arc::new(faulty.clone())),
        faulty,
        counting,
    )
}

/// A store that fails while a snapshot is written fails the snapshot, leaves no stream open, and the next one works. (K-096, K-133)
pub fn a_failing_store_fails_the_snapshot_alone(setup: &Setup) {
    for fault in [Fault::Fail(ErrorKind::Retryable), Fault::LoseAnswer] {
        for call in 1.. {
            let (setup, faulty, counting) = faulty(setup);
            let mut job = setup.start(register);
            fill(&mut job, 1);
            let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
            let id = cut.id;
            faulty.fail_nth(call, fault);
            let result = cut.persist(&setup);
            if faulty.faults() == 0 {
                result.unwrap();
                break;
            }
            fails(ErrorKind::Retryable, result);
            job.aborted(id).unwrap();
            let counts = counting.counts();
            assert_eq!(
                counts.open, 0,
                "{fault:?} at call {call} left streams open: {counts:?}"
            );
            check(&mut job, 1);
            fill(&mut job, 2);
            faulty.heal();
            let next = job.snapshot(SnapshotKind::Checkpoint);
            job.revert_to(&next, 3);
            check(&mut job, 2);
            assert!(call < 1_000, "a snapshot that makes no end of calls");
        }
    }
}

/// Bytes that the store damages, on writing or on reading, are noticed: never is wrong state restored. (K-106, K-107, K-681)
pub fn damaged_bytes_are_never_restored_as_state(setup: &Setup) {
    for fault in [Fault::Truncate, Fault::Duplicate, Fault::FlipBit] {
        for parallelism in [2, 3] {
            for call in 1.. {
                let (setup, faulty, _) = faulty(setup);
                let mut job = setup.start_at(2, register).unwrap();
                fill(&mut job, 1);
                faulty.fail_nth(call, fault);
                let restored = job
                    .cut(SnapshotKind::Checkpoint)
                    .and_then(|cut| cut.persist(&setup))
                    .and_then(|checkpoint| setup.restore(&checkpoint, parallelism, register))
                    .and_then(|mut job| try_check(&mut job));
                match restored {
                    Ok(found) => {
                        let expected = try_check(&mut job).unwrap();
                        assert!(
                            found == expected,
                            "{fault:?} at call {call} gave wrong state"
                        );
                    }
                    Err(error) => assert_eq!(
                        error.kind(),
                        ErrorKind::Corrupt,
                        "{fault:?} at call {call}: {error}"
                    ),
                }
                if faulty.faults() == 0 {
                    break;
                }
                assert!(call < 1_000, "a snapshot that makes no end of calls");
            }
        }
    }
}

/// An object that was damaged or lost after the checkpoint is complete is an error that says which one it is. (K-106, K-107)
pub fn a_damaged_or_missing_object_is_named(setup: &Setup) {
    let mut job = setup.start_at(1, register).unwrap();
    fill(&mut job, 1);
    let checkpoint = job.snapshot(SnapshotKind::CanonicalSavepoint);
    let object = checkpoint
        .all()
        .flat_map(KeyedHandle::parts)
        .find_map(StateHandle::object)
        .unwrap();
    let name = object.path.as_str();
    let intact = setup.memory.object(name).unwrap();
    let restore = || {
        setup
            .restore(&checkpoint, 1, register)
            .and_then(|mut job| try_check(&mut job))
    };
    for at in (0..intact.len()).step_by(intact.len() / 40 + 1) {
        assert!(setup.memory.damage(name, |bytes| {
            bytes.clear();
            bytes.extend_from_slice(&intact);
            bytes[at] ^= 1;
        }));
        let error = fails(ErrorKind::Corrupt, restore());
        assert!(
            error.to_string().contains(name) || error.context("key group").is_some(),
            "byte {at}: {error}"
        );
    }
    for len in [0, 1, intact.len() / 2, intact.len() - 1] {
        assert!(setup.memory.damage(name, |bytes| {
            bytes.clear();
            bytes.extend_from_slice(&intact[..len]);
        }));
        fails(ErrorKind::Corrupt, restore());
    }
    assert!(setup.memory.remove(name));
    let error = fails(ErrorKind::Corrupt, restore());
    assert!(error.to_string().contains(name), "{error}");
}

/// A store that fails while state is restored fails the restore with its own error; a second try works. (K-106)
pub fn a_failing_store_fails_the_restore(setup: &Setup) {
    let (setup, faulty, counting) = faulty(setup);
    let mut job = setup.start_at(2, register).unwrap();
    fill(&mut job, 1);
    let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
    drop(job);
    for parallelism in [2, 3] {
        // However often it is tried again.
        for call in [Call::Open, Call::Next, Call::ReadRange] {
            faulty.fail_all(call, Fault::Fail(ErrorKind::Retryable));
        }
        fails(
            ErrorKind::Retryable,
            setup.restore(&checkpoint, parallelism, register),
        );
        faulty.heal();
        for call in 1.. {
            let before = faulty.faults();
            faulty.fail_nth(call, Fault::Fail(ErrorKind::Retryable));
            let result = setup.restore(&checkpoint, parallelism, register);
            let failed = faulty.faults() > before;
            faulty.heal();
            match result {
                // Nothing failed, or what failed was tried again.
                Ok(mut restored) => check(&mut restored, 1),
                failure => drop(fails(ErrorKind::Retryable, failure)),
            }
            if !failed {
                break;
            }
            assert_eq!(
                counting.counts().open_readers,
                0,
                "call {call} left a reader open"
            );
            assert!(call < 1_000, "a restore that makes no end of calls");
        }
        check(
            &mut setup.restore(&checkpoint, parallelism, register).unwrap(),
            1,
        );
    }
}

/// A snapshot that hangs in the store ends when it is cancelled or dropped, at every call; nothing is left behind. (K-096, K-147, K-148)
pub fn a_hanging_snapshot_can_be_cancelled(setup: &Setup) {
    for cancel in [false, true] {
        for call in 1.. {
            let (setup, faulty, counting) = faulty(setup);
            let mut job = setup.start_at(1, register).unwrap();
            fill(&mut job, 1);
            let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
            let id = cut.id;
            let before = setup.memory.names();
            faulty.fail_nth(call, Fault::Hang);
            let token = CancelToken::new();
            let cx = PersistContext {
                checkpoint: id,
                storage: Arc::clone(&setup.storage),
                cancel: token.clone(),
                executor: Arc::clone(&setup.executor),
                spill_dir: None,
            };
            let mut writing: Vec<_> = cut
                .into_snapshots()
                .into_iter()
                .map(|snapshot| snapshot.persist(cx.clone()))
                .collect();
            let result = poll_until(&mut writing[0], || faulty.faults() > 0);
            if faulty.faults() == 0 {
                result.unwrap().unwrap();
                break;
            }
            assert!(result.is_none(), "call {call} does not wait for the store");
            assert_eq!(faulty.hanging(), 1);
            if cancel {
                token.cancel();
                fails(ErrorKind::Cancelled, block_on(writing.remove(0)));
            }
            drop(writing);
            job.aborted(id).unwrap();
            let counts = counting.counts();
            assert_eq!(
                (counts.open, faulty.hanging()),
                (0, 0),
                "call {call}: {counts:?}"
            );
            assert_eq!(setup.memory.names(), before, "call {call} left an object");
            faulty.heal();
            check(&mut job, 1);
            fill(&mut job, 2);
            let next = job.snapshot(SnapshotKind::Checkpoint);
            job.revert_to(&next, 2);
            check(&mut job, 2);
            assert!(call < 1_000, "a snapshot that makes no end of calls");
        }
    }
}

/// A snapshot that is cancelled before it starts writes nothing. (K-096)
pub fn a_cancelled_snapshot_writes_nothing(setup: &Setup) {
    let mut job = setup.start_at(1, register).unwrap();
    fill(&mut job, 1);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let cx = PersistContext {
        checkpoint: cut.id,
        storage: Arc::clone(&setup.storage),
        cancel: token,
        executor: Arc::clone(&setup.executor),
        spill_dir: None,
    };
    for snapshot in cut.into_snapshots() {
        fails(ErrorKind::Cancelled, block_on(snapshot.persist(cx.clone())));
    }
    assert_eq!(setup.memory.names(), [""; 0]);
    check(&mut job, 1);
}

/// An executor that is shut down drops its work: the snapshot ends, and the state goes on. (K-096, K-147)
pub fn a_snapshot_ends_when_the_executor_is_shut_down(setup: &Setup) {
    let executor = ManualExecutor::new();
    let setup = setup.clone().executor(Arc::new(executor.clone()));
    let mut job = setup.start_at(1, register).unwrap();
    fill(&mut job, 1);
    let cut = job.cut(SnapshotKind::CanonicalSavepoint).unwrap();
    let cx = PersistContext {
        checkpoint: cut.id,
        storage: Arc::clone(&setup.storage),
        cancel: CancelToken::new(),
        executor: Arc::new(executor.clone()),
        spill_dir: None,
    };
    for snapshot in cut.into_snapshots() {
        let mut writing = snapshot.persist(cx.clone());
        assert!(poll_once(&mut writing).is_none());
        executor.drop_all();
        fails(ErrorKind::Cancelled, poll_once(&mut writing).unwrap());
    }
    check(&mut job, 1);
}

/// A memory limit refuses the write past it with the limit named, and leaves what is there. (K-077)
pub fn a_memory_limit_refuses_the_write_alone(setup: &Setup) {
    let setup = setup.clone().memory_limit(256 * 1024);
    let mut job = setup.start_at(1, register).unwrap();
    let mut written = 0;
    let refused = loop {
        let key = written;
        match job.try_at(&key, |at, (_, list)| at.list(list).push("x".repeat(1_000))) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        if written == 5_000 {
            // A byte store accounts for its memory itself.
            let total = job.subtask(0).0.memory().total;
            assert!(
                total <= 256 * 1024,
                "{total} bytes: the limit of live tables is not kept"
            );
            return;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert!(written > 50, "only {written} entries fit");
    for key in 0..written {
        assert_eq!(job.at(&key, |at, (_, list)| at.list(list).len()), 1);
    }
    job.at(&0, |at, (_, list)| at.list(list).clear());
}

/// A merge of namespaces that a memory limit refuses leaves the sources and the target as they were. (K-077)
pub fn a_memory_limit_that_refuses_a_merge_leaves_its_sources(setup: &Setup) {
    let setup = setup.clone().memory_limit(256 * 1024);
    let register = |states: &mut States<u32>| {
        Ok((
            states.list::<String, u32>("list")?,
            states.reducing::<u64, u32>("sum", |a: &u64, b| Ok(a + b))?,
        ))
    };
    let mut job = setup.start_at(1, register).unwrap();
    job.at(&0, |at, (list, sum)| {
        for namespace in 1..4_u32 {
            at.list_in(list, &namespace).push(format!("{namespace}"))?;
            at.reducing_in(sum, &namespace).add(namespace.into())?;
        }
        Ok(())
    });
    let is_full = (1..5_000).any(|key| {
        let pushed = job.try_at(&key, |at, (list, _)| {
            at.list_in(list, &1).push("x".repeat(1_000))
        });
        pushed.is_err()
    });
    let lists = job.try_at(&0, |at, (list, _)| at.merge_lists(list, &1, &[2, 3]));
    let sums = job.try_at(&0, |at, (_, sum)| at.merge_reducing(sum, &1, &[2, 3]));
    let states = job.at(&0, |at, (list, sum)| {
        let mut states = Vec::new();
        for namespace in 1..4_u32 {
            let elements = at.list_in(list, &namespace).get()?.concat();
            states.push((elements, at.reducing_in(sum, &namespace).get()?));
        }
        Ok(states)
    });
    let state = |list: &str, sum| (list.to_owned(), sum);
    if is_full {
        assert_eq!(lists.unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(sums.unwrap_err().kind(), ErrorKind::LimitExceeded);
        let expected = [
            state("1", Some(1)),
            state("2", Some(2)),
            state("3", Some(3)),
        ];
        assert_eq!(states, expected);
    } else {
        // A byte store accounts for its memory itself.
        let merged = [state("123", Some(6)), state("", None), state("", None)];
        assert_eq!(states, merged);
    }
}
