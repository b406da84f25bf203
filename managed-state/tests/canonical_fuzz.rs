//! Damaged keyed snapshots, restored into live tables and into a byte store, migrated and read: nothing panics, and nothing
//! takes more memory than the length of the snapshot allows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::sync::Arc;
use std::time::Duration;

use backend_testkit::fuzz::{Random, fuzz};
use backend_testkit::meter::{Bound, Metered};
use backend_testkit::{InlineExecutor, MemoryStorage, ReferenceStore, block_on};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use managed_state::format::{
    CANONICAL, Elements, FrozenTablesSnapshot, GroupReader, HEADER_LEN, load_tables, restore_groups,
};
use managed_state::keyed::{
    KeyedContext, KeyedStates, ListState, MapState, SortedMapState, Timers, ValueState,
};
use state_api::access::{ListAccess, MapAccess, SortedMapAccess, ValueAccess};
use state_api::wire::{get_bytes, get_varint, put_bytes, put_varint, take, take_array};
use state_api::{
    CancelToken, CheckpointId, CodecKind, FrozenTables, GroupExtent, KeyGroup, KeyGroupOffsets,
    KeyGroupsHandle, KeyedBackend, KeyedHandle, LiveSnapshots, LoadTables, ManualClock,
    PersistContext, RestoreContext, Result, Snapshot, SnapshotKind, SnapshotRequest, StateHandle,
    StateOptions, StateType, TtlConfig,
};
use xxhash_rust::xxh3::xxh3_64;

#[global_allocator]
static METERED: Metered = Metered;

/// Tables of every state and key group have a size of their own. An entry takes two bytes and more, and becomes a key and a
/// cell in a table that may be half empty, twice while that grows, and a copy of all of them for whoever reads.
const BOUND: Bound = Bound {
    fixed: 256 << 10,
    per_byte: 512,
};

/// Reading bytes in place takes none, but for the text of an error.
const IN_PLACE: Bound = Bound {
    fixed: 2 << 10,
    per_byte: 0,
};

/// Makes full snapshots in the canonical format.
struct Canonical;

impl LiveSnapshots for Canonical {
    fn snapshot(
        &mut self,
        _: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        Ok(Box::new(FrozenTablesSnapshot::new(tables, CANONICAL)))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(load_tables(handles, CANONICAL, cx, tables))
    }
}

mod before {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, StateType)]
    pub(super) struct Visit {
        pub(super) page: String,
        pub(super) at: u32,
    }
}

mod after {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, StateType)]
    pub(super) struct Visit {
        pub(super) at: u64,
        #[state(default)]
        pub(super) seconds: Option<f64>,
        pub(super) page: String,
    }
}

/// One state of every kind; `V` is the type of the values, of which two versions are told apart.
#[derive(Clone, Copy)]
struct Tokens<V> {
    value: ValueState<V>,
    in_window: ValueState<V, (i64, i64)>,
    by_text: ValueState<u8, String>,
    timed: ValueState<u64>,
    list: ListState<V>,
    timed_list: ListState<String>,
    map: MapState<u16, V>,
    timed_map: MapState<String, u8>,
    sorted: SortedMapState<String, V>,
    timers: Timers<String>,
}

fn register<V: StateType>(states: &mut KeyedStates<String>) -> Result<Tokens<V>> {
    let hour = || TtlConfig::new(Duration::from_secs(3600)).unwrap();
    Ok(Tokens {
        value: states.value("value")?,
        in_window: states.value(StateOptions::new("window").codec(CodecKind::Evolvable))?,
        by_text: states.value("text")?,
        timed: states.value(StateOptions::new("timed").ttl(hour()))?,
        list: states.list("list")?,
        timed_list: states.list(StateOptions::new("timed list").ttl(hour()))?,
        map: states.map("map")?,
        timed_map: states.map(StateOptions::new("timed map").ttl(hour()))?,
        sorted: states.sorted_map("sorted")?,
        timers: states.timers("timers")?,
    })
}

fn states(live: bool) -> KeyedStates<String> {
    let backend = if live {
        KeyedBackend::Live(Box::new(Canonical))
    } else {
        KeyedBackend::Bytes(Box::new(ReferenceStore::new()))
    };
    let cx = KeyedContext::single(4, Arc::new(ManualClock::at(1_000_000))).unwrap();
    KeyedStates::new(backend, cx).unwrap()
}

/// A snapshot of some keys, with its bytes in the handle.
fn sample() -> KeyGroupsHandle {
    use before::Visit;
    let mut states = states(true);
    let tokens = register::<Visit>(&mut states).unwrap();
    for n in 0..12u32 {
        let visit = Visit {
            page: "x".repeat(n as usize),
            at: n,
        };
        let key = format!("key {n}");
        let mut at = states.at(&key);
        at.value(tokens.value).set(visit.clone()).unwrap();
        at.value_in(tokens.in_window, &(5, n.into()))
            .set(visit.clone())
            .unwrap();
        at.value_in(tokens.by_text, &format!("n{n}"))
            .set(1)
            .unwrap();
        at.value(tokens.timed).set(n.into()).unwrap();
        at.list(tokens.list).extend(vec![visit.clone(); 3]).unwrap();
        at.list(tokens.timed_list).push("one".to_owned()).unwrap();
        for entry in 0..3u8 {
            at.map(tokens.map).put(entry.into(), visit.clone()).unwrap();
            at.map(tokens.timed_map).put("m".repeat(2), entry).unwrap();
            at.sorted_map(tokens.sorted)
                .put(format!("s{entry}"), visit.clone())
                .unwrap();
        }
        at.timers_in(tokens.timers, &"w".to_owned())
            .set(i64::from(n) - 5)
            .unwrap();
    }
    let request = SnapshotRequest {
        checkpoint: CheckpointId(1),
        kind: SnapshotKind::CanonicalSavepoint,
        now_ms: 1_000_000,
    };
    let cx = PersistContext {
        checkpoint: CheckpointId(1),
        storage: Arc::new(MemoryStorage::new().inline_below(1 << 20)),
        cancel: CancelToken::new(),
        executor: Arc::new(InlineExecutor),
        spill_dir: None,
    };
    let mut handles = block_on(states.snapshot(&request).unwrap().persist(cx)).unwrap();
    match handles.remove(0) {
        KeyedHandle::KeyGroups(handle) => handle,
        KeyedHandle::Incremental(_) => panic!("a canonical snapshot is one stream"),
    }
}

/// What stands in a key group, without its checksum.
#[derive(Clone)]
struct Group {
    number: KeyGroup,
    sections: Vec<Section>,
}

#[derive(Clone)]
struct Section {
    tag: u64,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

fn stream(handle: &KeyGroupsHandle) -> &Bytes {
    match &handle.bytes {
        StateHandle::Inline(bytes) => bytes,
        StateHandle::Object(_) => panic!("the sample is inline"),
    }
}

/// Takes a well-formed snapshot apart.
fn parse(handle: &KeyGroupsHandle) -> Vec<Group> {
    let extents = handle.offsets.iter().filter(|(_, e)| !e.is_empty());
    let groups = extents.map(|(number, extent)| {
        let block = &stream(handle)[extent.offset as usize..][..extent.len as usize];
        let mut rest = &block[2..block.len() - 8];
        let mut sections = Vec::new();
        loop {
            let tag = get_varint(&mut rest).unwrap();
            if tag == 0 {
                break;
            }
            let len = u64::from_le_bytes(take_array(&mut rest).unwrap());
            let count = u64::from_le_bytes(take_array(&mut rest).unwrap());
            let mut bytes = take(&mut rest, len as usize).unwrap();
            let mut entry = || get_bytes(&mut bytes).unwrap().to_vec();
            let entries = (0..count).map(|_| (entry(), entry())).collect();
            sections.push(Section { tag, entries });
        }
        Group { number, sections }
    });
    groups.collect()
}

/// Damages one thing on some level, and leaves lengths and counts around it right.
fn content(group: &Group, random: &mut Random) -> Vec<u8> {
    let mut sections = group.sections.clone();
    let at = random.below(sections.len());
    let level = random.below(8);
    if level >= 3 {
        let entries = &mut sections[at].entries;
        let entry = random.below(entries.len());
        match random.below(6) {
            0 => entries.insert(entry, entries[entry].clone()),
            1 | 2 => random.damage(&mut entries[entry].0),
            _ => random.damage(&mut entries[entry].1),
        }
    } else if level == 2 {
        sections[at].tag = random.number() % 14;
    }
    let mut out = group.number.0.to_be_bytes().to_vec();
    for (index, section) in sections.iter().enumerate() {
        let mut body = Vec::new();
        for (key, value) in &section.entries {
            put_bytes(&mut body, key);
            put_bytes(&mut body, value);
        }
        if level == 1 && index == at {
            random.damage(&mut body);
        }
        put_varint(&mut out, section.tag);
        out.extend_from_slice(&(body.len() as u64).to_le_bytes());
        out.extend_from_slice(&(section.entries.len() as u64).to_le_bytes());
        out.extend_from_slice(&body);
    }
    out.push(0);
    if level == 0 {
        random.damage(&mut out);
    }
    out
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

/// Restores, registers, and reads everything; whether anything was refused.
fn read_all<V: StateType>(live: bool, handle: &KeyedHandle) -> Result<()> {
    let mut states = states(live);
    let cx = RestoreContext {
        storage: Arc::new(MemoryStorage::new()),
        executor: Arc::new(InlineExecutor),
    };
    block_on(states.restore(std::slice::from_ref(handle), &cx))?;
    let tokens = register::<V>(&mut states)?;
    // Each state is read as far as it goes: what one refuses says nothing about the others.
    let mut result = Ok(());
    let mut note = |read: Result<()>| {
        if let (Ok(()), Err(error)) = (&result, read) {
            result = Err(error);
        }
    };
    let mut all = vec!["key 1".to_owned()];
    for name in [
        "value",
        "list",
        "map",
        "sorted",
        "timed",
        "timed list",
        "timed map",
    ] {
        match states.keys(name, &()) {
            Ok(keys) => all.extend(keys),
            Err(error) => note(Err(error)),
        }
    }
    note(states.keys_and_namespaces::<(i64, i64)>("window").map(drop));
    note(states.keys_and_namespaces::<String>("text").map(drop));
    all.sort();
    all.dedup();
    for key in &all {
        let mut at = states.at(key);
        note(at.value(tokens.value).with(|_| ()));
        note(at.value_in(tokens.in_window, &(5, 1)).with(|_| ()));
        note(at.value_in(tokens.by_text, &"n1".to_owned()).with(|_| ()));
        note(at.value(tokens.timed).with(|_| ()));
        note(at.list(tokens.list).for_each(|_| Ok(())));
        note(at.list(tokens.timed_list).get().map(drop));
        note(at.map(tokens.map).for_each(|_, _| Ok(())));
        note(at.map(tokens.timed_map).entries().map(drop));
        note(at.sorted_map(tokens.sorted).first().map(drop));
        note(at.sorted_map(tokens.sorted).for_each(|_, _| Ok(())));
    }
    let timers = tokens.timers.erase::<String>();
    while let Some(due) = states.pop_due(timers, i64::MAX).unwrap_or_else(|error| {
        note(Err(error));
        None
    }) {
        note(due.namespace::<String>().map(drop));
    }
    result
}

fn try_handle(handle: KeyGroupsHandle, refused: &mut u32) {
    let len = stream(&handle).len();
    let handle = KeyedHandle::KeyGroups(handle);
    for live in [true, false] {
        let read = BOUND.hold(len, || read_all::<before::Visit>(live, &handle));
        let migrated = BOUND.hold(len, || read_all::<after::Visit>(live, &handle));
        *refused += u32::from(read.is_err()) + u32::from(migrated.is_err());
    }
}

#[test]
fn the_sample_is_read_and_migrated_whole() {
    let handle = sample();
    let contents: Vec<_> = parse(&handle)
        .iter()
        .map(|group| {
            let extent = handle.offsets.get(group.number).unwrap();
            let block = &stream(&handle)[extent.offset as usize..][..extent.len as usize];
            (group.number, block[..block.len() - 8].to_vec())
        })
        .collect();
    assert_eq!(assemble(&handle, &contents), handle);
    let mut refused = 0;
    try_handle(handle, &mut refused);
    assert_eq!(refused, 0);
}

#[test]
fn damage_under_right_checksums_breaks_neither_tables_nor_stores() {
    let handle = sample();
    let groups = parse(&handle);
    assert!(groups.len() > 1 && groups.iter().any(|group| group.sections.len() == 10));
    let mut refused = 0;
    let cases = fuzz(600, &[], |random, _| {
        let hit = random.below(groups.len());
        let contents: Vec<_> = groups
            .iter()
            .enumerate()
            .filter(|(at, _)| *at <= hit)
            .map(|(_, group)| (group.number, content(group, random)))
            .collect();
        try_handle(assemble(&handle, &contents), &mut refused);
    });
    // A run of a few cases may happen to find none.
    assert!(refused > 0 || cases < 100);
}

#[test]
fn arbitrary_places_and_streams_are_refused_or_read() {
    let handle = sample();
    let whole = stream(&handle).to_vec();
    let storage = MemoryStorage::new();
    fuzz(2_000, &[whole], |random, bytes| {
        let mut offsets = KeyGroupOffsets::new(handle.offsets.range());
        for (group, extent) in handle.offsets.iter() {
            let extent = match random.below(4) {
                0 => GroupExtent {
                    offset: random.number() >> random.below(64),
                    len: random.number() >> random.below(64),
                },
                _ => extent,
            };
            // Offsets past 64 bits are refused where handles are made.
            let _ = offsets.set(group, extent);
        }
        let damaged = KeyGroupsHandle {
            offsets,
            bytes: StateHandle::Inline(Bytes::from(bytes)),
            ..handle.clone()
        };
        let most = Bound {
            per_byte: 1,
            ..IN_PLACE
        };
        most.hold(stream(&damaged).len(), || {
            let load = &mut |group, block: Bytes| walk(group, &block);
            block_on(restore_groups(
                &damaged,
                handle.offsets.range(),
                &storage,
                load,
            ))
        })
        .unwrap_or_default();
    });
}

fn walk(group: KeyGroup, block: &[u8]) -> Result<()> {
    let mut reader = GroupReader::open(group, 10, block)?;
    while let Some(section) = reader.next()? {
        let mut entries = section.entries();
        while let Some((_, value)) = entries.next()? {
            for timestamped in [false, true] {
                let mut elements = Elements::new(value, timestamped);
                while let Ok(Some(_)) = elements.next() {}
            }
        }
    }
    Ok(())
}

#[test]
fn blocks_are_read_in_place() {
    let handle = sample();
    let samples: Vec<Vec<u8>> = parse(&handle)
        .iter()
        .map(|group| {
            let extent = handle.offsets.get(group.number).unwrap();
            let block = &stream(&handle)[extent.offset as usize..][..extent.len as usize];
            block[..block.len() - 8].to_vec()
        })
        .collect();
    fuzz(10_000, &samples, |_, mut bytes| {
        let group = match bytes.first_chunk::<2>() {
            Some(number) => KeyGroup(u16::from_be_bytes(*number)),
            None => KeyGroup(0),
        };
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        let _ = IN_PLACE.hold(bytes.len(), || walk(group, &bytes));
    });
}
