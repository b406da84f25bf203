//! Damaged dirty entries of an object cache, applied to a byte store: nothing panics, and nothing takes more memory than the
//! length of the stream allows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::BTreeMap;
use std::sync::Arc;

use backend_testkit::fuzz::fuzz;
use backend_testkit::meter::{Bound, Metered};
use backend_testkit::{InlineExecutor, MemoryStorage, NativeStore, ReferenceStore, block_on};
use managed_state::format::{HEADER_LEN, WRITE_BACK};
use managed_state::keyed::{KeyedContext, KeyedStates, MapState, ValueState};
use state_api::access::{MapAccess, ValueAccess};
use state_api::{
    BackendContext, CheckpointId, ErrorKind, GroupExtent, JobId, KeyGroup, KeyGroupOffsets,
    KeyGroupsHandle, KeyedBackend, KeyedHandle, ManualClock, ObjectCacheBudget, OperatorUid,
    PersistContext, RestoreContext, Result, SnapshotKind, SnapshotRequest, StateHandle, Subtask,
};
use xxhash_rust::xxh3::xxh3_64;

#[global_allocator]
static METERED: Metered = Metered;

/// An entry of a few bytes becomes a key and a value in a batch, nodes of the store's map, and copies for whoever reads.
const BOUND: Bound = Bound {
    fixed: 256 << 10,
    per_byte: 512,
};

fn context() -> KeyedContext {
    KeyedContext::single(4, Arc::new(ManualClock::at(0))).unwrap()
}

type Tokens = (ValueState<String>, MapState<u16, u64>);

fn register(states: &mut KeyedStates<u32>) -> Result<Tokens> {
    Ok((states.value("value")?, states.map("map")?))
}

/// What the cache of a store had not written back, for 4 key groups.
fn sample() -> KeyGroupsHandle {
    let cx = context();
    let backend = BackendContext {
        job: JobId::new("fuzz").unwrap(),
        operator: OperatorUid::new("fuzz").unwrap(),
        subtask: Subtask {
            index: 0,
            parallelism: 1,
        },
        max_parallelism: cx.max_parallelism,
        range: cx.range,
        local_dir: std::env::temp_dir(),
        clock: Arc::clone(&cx.clock),
        options: BTreeMap::new(),
    };
    let store = NativeStore::new(&backend, Some(ObjectCacheBudget::new(1 << 20)));
    let mut states = KeyedStates::new(KeyedBackend::Bytes(Box::new(store)), cx).unwrap();
    let (value, map) = register(&mut states).unwrap();
    for key in 0..40 {
        let mut at = states.at(&key);
        at.value(value).set("v".repeat(key as usize)).unwrap();
        at.map(map).put(3, u64::from(key)).unwrap();
        if key % 3 == 0 {
            at.value(value).clear().unwrap();
        }
    }
    let request = SnapshotRequest {
        checkpoint: CheckpointId(1),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    };
    let storage = Arc::new(MemoryStorage::new().inline_below(1 << 20));
    let cx = PersistContext::new(CheckpointId(1), storage, Arc::new(InlineExecutor));
    let handles = block_on(states.snapshot(&request).unwrap().persist(cx)).unwrap();
    let found = handles
        .into_iter()
        .find(|handle| handle.format() == WRITE_BACK);
    match found {
        Some(KeyedHandle::KeyGroups(groups)) => groups,
        other => panic!("no dirty entries: {other:?}"),
    }
}

fn stream(handle: &KeyGroupsHandle) -> &[u8] {
    match &handle.bytes {
        StateHandle::Inline(bytes) => bytes,
        StateHandle::Object(_) => panic!("the sample is inline"),
    }
}

/// The blocks of the groups without their checksums.
fn contents(handle: &KeyGroupsHandle) -> Vec<(KeyGroup, Vec<u8>)> {
    let extents = handle.offsets.iter().filter(|(_, e)| !e.is_empty());
    let content = |(group, extent): (KeyGroup, GroupExtent)| {
        let block = &stream(handle)[extent.offset as usize..][..extent.len as usize];
        (group, block[..block.len() - 8].to_vec())
    };
    extents.map(content).collect()
}

/// Puts a stream together whose checksums are right.
fn assemble(sample: &KeyGroupsHandle, contents: &[(KeyGroup, Vec<u8>)]) -> KeyGroupsHandle {
    let mut bytes = stream(sample)[..HEADER_LEN].to_vec();
    let mut offsets = KeyGroupOffsets::new(sample.offsets.range());
    for (group, content) in contents {
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(&xxh3_64(content).to_le_bytes());
        let len = bytes.len() as u64 - offset;
        offsets.set(*group, GroupExtent { offset, len }).unwrap();
    }
    KeyGroupsHandle {
        offsets,
        bytes: StateHandle::Inline(bytes.into()),
        ..sample.clone()
    }
}

/// The value and the map entry of each key.
type Found = BTreeMap<u32, (Option<String>, Option<u64>)>;

/// Restores into an empty store and reads everything.
fn read_all(handle: &KeyGroupsHandle) -> Result<Found> {
    let backend = KeyedBackend::Bytes(Box::new(ReferenceStore::new()));
    let mut states = KeyedStates::new(backend, context())?;
    let cx = RestoreContext {
        storage: Arc::new(MemoryStorage::new()),
        executor: Arc::new(InlineExecutor),
    };
    block_on(states.restore(&[KeyedHandle::KeyGroups(handle.clone())], &cx))?;
    let (value, map) = register(&mut states)?;
    let mut found = BTreeMap::new();
    for key in 0..40 {
        let mut at = states.at(&key);
        let pair = (at.value(value).get()?, at.map(map).get(&3)?);
        found.insert(key, pair);
    }
    Ok(found)
}

#[test]
fn dirty_entries_are_read_as_they_were_written() {
    let handle = sample();
    assert_eq!(assemble(&handle, &contents(&handle)), handle);
    for (key, (value, entry)) in read_all(&handle).unwrap() {
        let text = "v".repeat(key as usize);
        assert_eq!(value, (key % 3 != 0).then_some(text), "{key}");
        assert_eq!(entry, Some(u64::from(key)));
    }
}

#[test]
fn damage_under_right_checksums_is_refused_or_read() {
    let handle = sample();
    let whole = contents(&handle);
    let mut refused = 0;
    let cases = fuzz(1_500, &[], |random, _| {
        let mut damaged = whole.clone();
        let at = random.below(damaged.len());
        match random.below(3) {
            // One byte: a tag, a length, a value.
            0 => {
                let content = &mut damaged[at].1;
                let byte = random.below(content.len());
                content[byte] = random.number() as u8;
            }
            _ => random.damage(&mut damaged[at].1),
        }
        let damaged = assemble(&handle, &damaged);
        let read = BOUND.hold(stream(&damaged).len(), || read_all(&damaged).map(drop));
        refused += u32::from(read.is_err());
    });
    assert!(refused > 0 || cases < 100);
}

#[test]
fn an_entry_that_is_neither_set_nor_removed_is_corrupt() {
    let handle = sample();
    let mut changed = contents(&handle);
    // Group, tag of the section, its two lengths, the length of the first key, the key, the length of its value.
    let key = usize::from(changed[0].1[19]);
    changed[0].1[19 + 1 + key + 1] = 7;
    let error = read_all(&assemble(&handle, &changed)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("neither"), "{error}");
}
