//! The storage for tests itself: it fails where it is told to, and counts what is left open.

use std::sync::Arc;

use backend_testkit::{
    Call, CountingStorage, Fault, FaultyStorage, MemoryStorage, block_on, poll_once,
};
use bytes::Bytes;
use state_api::{
    CheckpointId, CheckpointStorage, ErrorKind, ObjectHandle, Result, Scope, StateHandle,
};

fn write(storage: &dyn CheckpointStorage, parts: &[&'static [u8]]) -> Result<ObjectHandle> {
    block_on(async {
        let mut stream = storage.create(CheckpointId(3), Scope::Exclusive);
        for part in parts {
            stream.write(Bytes::from_static(part)).await?;
        }
        match stream.finish().await? {
            Some(StateHandle::Object(object)) => Ok(object),
            other => panic!("not an object: {other:?}"),
        }
    })
}

fn read(storage: &dyn CheckpointStorage, object: &ObjectHandle) -> Result<Vec<u8>> {
    block_on(async {
        let mut reader = storage.open(object).await?;
        let mut all = Vec::new();
        while let Some(chunk) = reader.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    })
}

#[test]
fn memory_storage_gives_back_what_was_written_under_names_that_repeat() {
    let (a, b) = (MemoryStorage::new(), MemoryStorage::new());
    let object = write(&a, &[b"hello ", b"world"]).unwrap();
    assert_eq!(write(&b, &[b"hello world"]).unwrap(), object);
    assert_eq!(read(&a, &object).unwrap(), b"hello world");
    assert_eq!(
        block_on(a.read_range(&object, 6..11)).unwrap(),
        &b"world"[..]
    );
    assert_eq!(
        block_on(a.read_range(&object, 6..12)).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(a.names(), ["chk-3/000000"]);
    assert!(a.damage("chk-3/000000", |bytes| bytes[0] = b'j'));
    assert_eq!(read(&a, &object).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(a.remove("chk-3/000000"));
    assert_eq!(read(&a, &object).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn few_bytes_stay_in_the_handle_and_none_give_no_handle() {
    let storage = MemoryStorage::new().inline_below(5);
    let finish = |bytes: &'static [u8]| {
        block_on(async {
            let mut stream = storage.create(CheckpointId(1), Scope::Shared);
            stream.write(Bytes::from_static(bytes)).await?;
            stream.finish().await
        })
    };
    assert_eq!(finish(b"").unwrap(), None);
    assert_eq!(
        finish(b"abcd").unwrap(),
        Some(StateHandle::Inline(Bytes::from_static(b"abcd")))
    );
    assert!(finish(b"abcde").unwrap().unwrap().object().is_some());
}

#[test]
fn each_fault_does_what_its_name_says() {
    let memory = MemoryStorage::new();
    let faulty = FaultyStorage::new(Arc::new(memory.clone()));
    let stored = |fault| {
        faulty.fail_nth_of(Call::Write, 1, fault);
        let object = write(&faulty, &[b"abcd"]).unwrap();
        memory.object(object.path.as_str()).unwrap()
    };
    assert_eq!(stored(Fault::Truncate), &b"ab"[..]);
    assert_eq!(stored(Fault::Duplicate), &b"abcdabcd"[..]);
    assert_eq!(stored(Fault::FlipBit), &b"absd"[..]);
    assert_eq!(faulty.faults(), 3);
    let before = memory.names().len();
    faulty.fail_nth(2, Fault::Fail(ErrorKind::Fenced));
    assert_eq!(
        write(&faulty, &[b"x"]).unwrap_err().kind(),
        ErrorKind::Fenced
    );
    assert_eq!(memory.names().len(), before);
    faulty.fail_nth_of(Call::Finish, 1, Fault::LoseAnswer);
    assert_eq!(
        write(&faulty, &[b"x"]).unwrap_err().kind(),
        ErrorKind::Retryable
    );
    assert_eq!(
        memory.names().len(),
        before + 1,
        "the work was done, only the answer is lost"
    );
    faulty.fail_all(Call::Open, Fault::Fail(ErrorKind::Retryable));
    let object = write(&faulty, &[b"x"]).unwrap();
    for _ in 0..3 {
        assert_eq!(
            read(&faulty, &object).unwrap_err().kind(),
            ErrorKind::Retryable
        );
    }
    faulty.heal();
    assert_eq!(read(&faulty, &object).unwrap(), b"x");
}

#[test]
fn a_call_that_hangs_goes_on_when_it_is_released_or_ends_when_it_is_dropped() {
    let faulty = FaultyStorage::new(Arc::new(MemoryStorage::new()));
    let object = write(&faulty, &[b"abc"]).unwrap();
    faulty.fail_nth(1, Fault::Hang);
    let mut reading = faulty.read_range(&object, 0..2);
    assert!(poll_once(&mut reading).is_none());
    assert_eq!(faulty.hanging(), 1);
    faulty.release();
    assert_eq!(poll_once(&mut reading).unwrap().unwrap(), &b"ab"[..]);
    assert_eq!(faulty.hanging(), 0);
    faulty.fail_nth(1, Fault::Hang);
    let mut reading = faulty.read_range(&object, 0..2);
    assert!(poll_once(&mut reading).is_none());
    drop(reading);
    assert_eq!(faulty.hanging(), 0);
}

#[test]
fn counting_storage_tells_finished_aborted_and_dropped_streams_apart() {
    let counting = CountingStorage::new(Arc::new(MemoryStorage::new()));
    let object = write(&counting, &[b"abc", b"de"]).unwrap();
    block_on(counting.create(CheckpointId(1), Scope::Exclusive).abort());
    drop(counting.create(CheckpointId(1), Scope::Exclusive));
    let open = counting.create(CheckpointId(1), Scope::Exclusive);
    let counts = counting.counts();
    assert_eq!(
        (
            counts.created,
            counts.finished,
            counts.aborted,
            counts.dropped,
            counts.open
        ),
        (4, 1, 1, 1, 1)
    );
    assert_eq!(counts.bytes_written, 5);
    drop(open);
    assert_eq!(counting.counts().open, 0);
    assert_eq!(counting.objects(), std::slice::from_ref(&object));
    assert_eq!(read(&counting, &object).unwrap(), b"abcde");
    let counts = counting.counts();
    assert_eq!(
        (counts.bytes_read, counts.opens, counts.open_readers),
        (5, 1, 0)
    );
}
