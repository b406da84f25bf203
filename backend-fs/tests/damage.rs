//! Damaged bases and change streams: nothing panics, nothing takes more memory than the bytes allow, and every byte that is
//! changed is noticed.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::Arc;

use backend_fs::FsBackend;
use backend_testkit::fuzz::fuzz;
use backend_testkit::meter::{Bound, Metered};
use backend_testkit::{Mode, Setup, block_on};
use managed_state::changes::restore_changes;
use managed_state::format::GroupReader;
use managed_state::keyed::{KeyedStates, ListState, MapState, ValueState};
use state_api::access::{ListAccess, MapAccess, ValueAccess};
use state_api::{
    ErrorKind, IncrementalHandle, KeyGroup, KeyGroupRange, KeyedHandle, NamedHandle,
    RestoreContext, Result, SnapshotKind, StateHandle,
};

#[global_allocator]
static METERED: Metered = Metered;

/// A change of a few bytes becomes an entry of a hash table, and one of a block.
const BOUND: Bound = Bound {
    fixed: 256 << 10,
    per_byte: 512,
};

type States = (ValueState<u64>, MapState<u16, u64>, ListState<String>);

fn register(states: &mut KeyedStates<u16>) -> Result<States> {
    Ok((
        states.value("value")?,
        states.map("map")?,
        states.list("list")?,
    ))
}

/// A base and two streams, as they are written.
fn chain(setup: &Setup) -> IncrementalHandle {
    let mut job = setup.start_at(1, register).unwrap();
    let mut last = None;
    for round in 0..3_u16 {
        for key in (0..24).filter(|key| round == 0 || key % 3 == 0) {
            job.at(&key, |at, (value, map, list)| {
                at.value(value).set(u64::from(round))?;
                at.map(map).put(round, 1)?;
                if key % 2 == 0 && round == 2 {
                    at.map(map).clear()?;
                    at.value(value).clear()?;
                    at.list(list).pop_front()?;
                }
                at.list(list).push(format!("{round}-{key}"))
            });
        }

        last = Some(job.snapshot(SnapshotKind::Checkpoint));
    }
    let last = last.unwrap();
    match &last.handles[0][..] {
        [KeyedHandle::Incremental(handle)] => {
            assert_eq!(handle.shared.len(), 3);
            handle.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end))
}

/// Returns the number of entries, every block taken apart.
fn restore(setup: &Setup, handle: &IncrementalHandle, range: KeyGroupRange) -> Result<u64> {
    let cx = RestoreContext {
        storage: Arc::clone(&setup.storage),
        executor: Arc::clone(&setup.executor),
    };
    let mut count = 0;
    // One key group at a time.
    block_on(restore_changes(
        handle,
        range,
        1,
        &cx,
        &mut |group, block| {
            assert!(range.contains(group));
            let mut reader = GroupReader::open(group, handle.states.len(), &block)?;
            while let Some(section) = reader.next()? {
                let mut entries = section.entries();
                while entries.next()?.is_some() {
                    count += 1;
                }
            }
            Ok(())
        },
    ))?;
    Ok(count)
}

#[test]
fn k_681_every_byte_that_is_changed_is_noticed_and_its_object_named() {
    let setup = Setup::new(Arc::new(FsBackend), Mode::Direct).unwrap();
    let handle = chain(&setup);
    let whole = restore(&setup, &handle, range(0, 15)).unwrap();
    assert!(whole > 40);
    for file in &handle.shared {
        let name = file.bytes.object().unwrap().path.as_str();
        let intact = setup.memory.object(name).unwrap();
        for at in 0..intact.len() {
            let put = |bytes: Vec<u8>| assert!(setup.memory.damage(name, |old| *old = bytes));
            let mut damaged = intact.to_vec();
            damaged[at] ^= 0x10;
            put(damaged);
            let error = restore(&setup, &handle, range(0, 15)).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
                "byte {at}: {error}"
            );
            assert_eq!(error.context("object"), Some(name), "byte {at}: {error}");
            // A part of the key groups: what is read is right, or refused.
            match restore(&setup, &handle, range(3, 6)) {
                Ok(entries) => assert!(entries < whole),
                Err(error) => assert_eq!(error.context("object"), Some(name)),
            }
            put(intact.to_vec());
        }
    }
    assert_eq!(restore(&setup, &handle, range(0, 15)).unwrap(), whole);
}

#[test]
fn objects_that_are_anything_at_all_are_refused_or_read() {
    let setup = Setup::new(Arc::new(FsBackend), Mode::Direct).unwrap();
    let handle = chain(&setup);
    let objects = handle.shared.iter().map(|file| &file.bytes);
    let samples: Vec<Vec<u8>> = objects
        .map(|bytes| {
            let name = bytes.object().unwrap().path.as_str();
            setup.memory.object(name).unwrap().to_vec()
        })
        .collect();
    let (mut read, mut refused) = (0, 0);
    let cases = fuzz(4_000, &samples, |random, bytes| {
        let len = bytes.len();
        let mut handle = handle.clone();
        let at = random.below(3);
        handle.shared[at] = NamedHandle {
            name: "damaged".into(),
            bytes: StateHandle::Inline(bytes.into()),
        };
        match BOUND.hold(len, || restore(&setup, &handle, range(2, 9))) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }
    });
    assert_eq!(read + refused, cases);
    assert!(read > 0 && refused > read, "{read} read, {refused} refused");
}
