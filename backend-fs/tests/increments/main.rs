//! What a checkpoint costs, what it goes on top of, and whose the objects are.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod background;
mod basis;
mod costs;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use backend_fs::{BackgroundBases, ChangeStreams, FsBackend, FsConfig};
use backend_hashmap::HashMapBackend;
use backend_testkit::fuzz::Random;
use backend_testkit::{
    Call, Checkpoint, Cut, Fault, FaultyStorage, Job, LiveBackend, MemoryStorage, Mode, Setup,
    block_on, dump, poll_once,
};
use futures_util::future::BoxFuture;
use managed_state::keyed::{KeyedStates, ListState, MapState, SortedMapState, Timers, ValueState};
use state_api::access::{ListAccess, MapAccess, SortedMapAccess, ValueAccess};
use state_api::{
    BackendFactory, ErrorKind, Executor, IncrementalHandle, KeyedHandle, Result, SnapshotKind,
    StateHandle,
};

type Counts = Job<u32, ValueState<u64>>;

fn counts(states: &mut KeyedStates<u32>) -> Result<ValueState<u64>> {
    states.value("count")
}

fn setup() -> Setup {
    Setup::new(Arc::new(FsBackend), Mode::Direct).unwrap()
}

/// A base is due once there are changes at all.
fn eager() -> Setup {
    let backend = LiveBackend::new("fs", |cx| {
        let config = FsConfig {
            change_ratio: 1e-6,
            ..FsConfig::default()
        };
        Ok(Box::new(ChangeStreams::new(config, cx)))
    });
    Setup::new(Arc::new(backend), Mode::Direct).unwrap()
}

fn fill(job: &mut Counts, keys: impl IntoIterator<Item = u32>, value: u64) {
    for key in keys {
        job.at(&key, |at, state| at.value(state).set(value));
    }
}

fn read(job: &mut Counts, keys: std::ops::Range<u32>) -> Vec<Option<u64>> {
    keys.map(|key| job.at(&key, |at, state| at.value(state).get()))
        .collect()
}

fn incremental(handle: &KeyedHandle) -> &IncrementalHandle {
    match handle {
        KeyedHandle::Incremental(handle) => handle,
        other => panic!("{other:?}"),
    }
}

fn new_bytes(checkpoint: &Checkpoint) -> u64 {
    let handles = checkpoint.all().map(incremental);
    handles.map(|handle| handle.new_bytes).sum()
}

/// Names of the objects that checkpoints may share, by subtask.
fn shared(checkpoint: &Checkpoint) -> Vec<Vec<String>> {
    let names = |handle: &IncrementalHandle| {
        let files = handle.shared.iter();
        files.map(|file| file.name.to_string()).collect()
    };
    checkpoint
        .all()
        .map(|handle| names(incremental(handle)))
        .collect()
}

/// Paths of all objects of a checkpoint.
fn objects(checkpoint: &Checkpoint) -> BTreeSet<String> {
    let parts = checkpoint.all().flat_map(KeyedHandle::parts);
    let objects = parts.filter_map(StateHandle::object);
    objects.map(|object| object.path.to_string()).collect()
}

/// Collections of each kind.
type Nested = (
    MapState<u32, u64>,
    SortedMapState<u32, u64>,
    ListState<u64>,
    Timers,
);

fn nested(states: &mut KeyedStates<u32>) -> Result<Nested> {
    Ok((
        states.map("map")?,
        states.sorted_map("sorted")?,
        states.list("list")?,
        states.timers("timers")?,
    ))
}

/// The entries of the map, those of the sorted map, and the elements of the list.
type Contents = (Vec<(u32, u64)>, Vec<(u32, u64)>, Vec<u64>);

fn contents(job: &mut Job<u32, Nested>, key: u32) -> Contents {
    job.at(&key, |at, (map, sorted, list, _)| {
        let mut entries = at.map(map).entries()?;
        entries.sort_unstable();
        Ok((
            entries,
            at.sorted_map(sorted).entries()?,
            at.list(list).get()?,
        ))
    })
}
