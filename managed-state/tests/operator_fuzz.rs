//! Damaged operator state and raw streams: they are refused or read, within an amount of memory that their length sets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::io::{Read, Write};
use std::sync::Arc;

use backend_testkit::fuzz::{Random, fuzz};
use backend_testkit::meter::{Bound, Metered};
use backend_testkit::{InlineExecutor, MemoryStorage, block_on};
use bytes::Bytes;
use managed_state::operator::OperatorStates;
use managed_state::raw::{RawStreams, restore_raw_keyed, restore_raw_operator};
use state_api::{
    CancelToken, CheckpointId, GroupExtent, KeyGroup, KeyGroupRange, KeyGroupsHandle,
    OperatorStateHandle, PersistContext, RestoreContext, Result, Snapshot, SnapshotKind,
    SnapshotRequest, StateHandle, StateType,
};
use xxhash_rust::xxh3::Xxh3;

#[global_allocator]
static METERED: Metered = Metered;

/// A byte of an element may become a list or map entry of some sixty bytes, in a vector that grows; elements are copied out
/// of the stream once before they are decoded.
const BOUND: Bound = Bound {
    fixed: 16 << 10,
    per_byte: 256,
};

fn persist<H>(snapshot: Box<dyn Snapshot<H>>) -> H {
    let cx = PersistContext {
        checkpoint: CheckpointId(1),
        storage: Arc::new(MemoryStorage::new().inline_below(1 << 20)),
        cancel: CancelToken::new(),
        executor: Arc::new(InlineExecutor),
        spill_dir: None,
    };
    block_on(snapshot.persist(cx)).unwrap()
}

fn inline(bytes: &StateHandle) -> Vec<u8> {
    match bytes {
        StateHandle::Inline(bytes) => bytes.to_vec(),
        StateHandle::Object(_) => panic!("the sample is inline"),
    }
}

#[derive(Clone, Debug, Default, PartialEq, StateType)]
struct Position {
    file: String,
    offset: u64,
    parts: Vec<Option<u16>>,
}

/// The same with other fields: what was written is migrated.
mod later {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, StateType)]
    pub(super) struct Position {
        pub(super) parts: Vec<Option<u32>>,
        pub(super) offset: u64,
        #[state(default)]
        pub(super) seen: bool,
        pub(super) file: String,
    }
}

fn operator_sample() -> OperatorStateHandle {
    let mut states = OperatorStates::new();
    let split = states.list::<Position>("split").unwrap();
    let union = states.union_list::<String>("union").unwrap();
    let broadcast = states.broadcast::<String, Position>("broadcast").unwrap();
    for n in 0..4u16 {
        let position = Position {
            file: format!("file {n}"),
            offset: 300 * u64::from(n),
            parts: vec![Some(n), None],
        };
        states.elements_mut(split).unwrap().push(position.clone());
        states
            .elements_mut(union)
            .unwrap()
            .push("u".repeat(n.into()));
        let entries = states.entries_mut(broadcast).unwrap();
        entries.insert(format!("key {n}"), position);
    }
    let request = SnapshotRequest {
        checkpoint: CheckpointId(1),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    };
    persist(states.snapshot(&request).unwrap()).unwrap()
}

fn restore(handle: &OperatorStateHandle, migrate: bool) -> Result<()> {
    let mut states = OperatorStates::new();
    let cx = RestoreContext {
        storage: Arc::new(MemoryStorage::new()),
        executor: Arc::new(InlineExecutor),
    };
    block_on(states.restore(std::slice::from_ref(handle), &cx))?;
    // What one state refuses says nothing about the others.
    let results = if migrate {
        [
            states.list::<later::Position>("split").map(drop),
            states.union_list::<String>("union").map(drop),
            states
                .broadcast::<String, later::Position>("broadcast")
                .map(drop),
        ]
    } else {
        [
            states.list::<Position>("split").map(drop),
            states.union_list::<String>("union").map(drop),
            states.broadcast::<String, Position>("broadcast").map(drop),
        ]
    };
    results.into_iter().collect()
}

/// Any place, mostly one near the truth.
fn place(random: &mut Random, (offset, len): (u64, u64)) -> (u64, u64) {
    match random.below(4) {
        0 => (
            random.number() >> random.below(64),
            random.number() >> random.below(64),
        ),
        1 => (offset + random.below(3) as u64, len),
        2 => (offset, len + random.below(3) as u64),
        _ => (offset, len),
    }
}

#[test]
fn damaged_operator_state_is_refused_or_read() {
    let sample = operator_sample();
    assert!(restore(&sample, false).is_ok() && restore(&sample, true).is_ok());
    let whole = inline(&sample.bytes);
    let mut refused = 0;
    let cases = fuzz(4_000, std::slice::from_ref(&whole), |random, bytes| {
        let mut damaged = sample.clone();
        let bytes = if random.below(3) == 0 {
            whole.clone()
        } else {
            bytes
        };
        let len = bytes.len();
        damaged.bytes = StateHandle::Inline(Bytes::from(bytes));
        if random.below(2) == 0 {
            for part in &mut damaged.states {
                for element in &mut part.elements {
                    *element = place(random, *element);
                }
            }
        }
        for migrate in [false, true] {
            let read = BOUND.hold(len, || restore(&damaged, migrate));
            refused += u32::from(read.is_err());
        }
    });
    // A run of a few cases may happen to find none.
    assert!(refused > 0 || cases < 100);
}

/// An element in its right place whose bytes are damaged, so that its decoder sees them.
#[test]
fn damaged_elements_in_their_right_places_are_refused_or_read() {
    let sample = operator_sample();
    let whole = inline(&sample.bytes);
    fuzz(4_000, &[], |random, _| {
        let mut damaged = sample.clone();
        let mut bytes = whole[..8].to_vec();
        for part in &mut damaged.states {
            for element in &mut part.elements {
                let mut content = whole[element.0 as usize..][..element.1 as usize].to_vec();
                if random.below(4) == 0 {
                    random.damage(&mut content);
                }
                *element = (bytes.len() as u64, content.len() as u64);
                bytes.extend_from_slice(&content);
            }
        }
        let len = bytes.len();
        damaged.bytes = StateHandle::Inline(Bytes::from(bytes));
        for migrate in [false, true] {
            let _ = BOUND.hold(len, || restore(&damaged, migrate));
        }
    });
}

/// Many elements may lie in one place: they share its bytes, so they cost what a place costs.
#[test]
fn elements_that_lie_in_one_place_share_its_bytes() {
    let mut damaged = operator_sample();
    let split = &mut damaged.states[0];
    split.elements = vec![split.elements[0]; 10_000];
    let places = 10_000 * size_of::<(u64, u64)>();
    let len = damaged.bytes.len() as usize + places;
    let _ = BOUND.hold(len, || restore(&damaged, false));
}

fn range() -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(0), KeyGroup(7))
}

fn raw_samples() -> (KeyGroupsHandle, OperatorStateHandle) {
    let mut streams = RawStreams::new(range());
    for group in [5u16, 1, 2, 7] {
        streams.keyed().start_group(KeyGroup(group)).unwrap();
        write!(streams.keyed(), "bytes of group {group}").unwrap();
    }
    for partition in 0..3 {
        streams.operator().start_partition().unwrap();
        write!(streams.operator(), "partition {partition}").unwrap();
    }
    let snapshots = streams.finish().unwrap();
    (
        persist(snapshots.keyed.unwrap()),
        persist(snapshots.operator.unwrap()),
    )
}

/// The checksum of a block covers its number: that of the key group, or 2^64 - 1 for a partition.
fn seal(number: u64, payload: &[u8], out: &mut Vec<u8>) -> (u64, u64) {
    let offset = out.len() as u64;
    let mut hasher = Xxh3::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(payload);
    out.extend_from_slice(payload);
    out.extend_from_slice(&hasher.digest().to_le_bytes());
    (offset, payload.len() as u64 + 8)
}

/// Raw bytes are handed out as parts of the stream, never copied; a handle's places take some bytes each.
const RAW: Bound = Bound {
    fixed: 4 << 10,
    per_byte: 2,
};

#[test]
fn damaged_raw_streams_are_refused_or_read() {
    let (keyed, operator) = raw_samples();
    let samples = [inline(&keyed.bytes), inline(&operator.bytes)];
    let storage = MemoryStorage::new();
    let mut refused = 0;
    let cases = fuzz(6_000, &samples, |random, bytes| {
        let (mut keyed, mut operator) = (keyed.clone(), operator.clone());
        let len = bytes.len();
        let bytes = StateHandle::Inline(Bytes::from(bytes));
        (keyed.bytes, operator.bytes) = (bytes.clone(), bytes);
        if random.below(2) == 0 {
            for (group, extent) in keyed.offsets.clone().iter() {
                let (offset, len) = place(random, (extent.offset, extent.len));
                // Ends past 64 bits are refused where handles are made.
                let _ = keyed.offsets.set(group, GroupExtent { offset, len });
            }
            for element in &mut operator.states[0].elements {
                *element = place(random, *element);
            }
        }
        RAW.hold(len, || {
            match block_on(restore_raw_keyed(&[keyed], range(), &storage)) {
                Ok(input) => input.for_each(|mut part| drop(part.reader.read(&mut [0; 64]))),
                Err(_) => refused += 1,
            }
        });
        RAW.hold(len, || {
            match block_on(restore_raw_operator(&[operator], &storage)) {
                Ok(input) => input.for_each(|mut reader| drop(reader.read(&mut [0; 64]))),
                Err(_) => refused += 1,
            }
        });
    });
    // A run of a few cases may happen to find none.
    assert!(refused > 0 || cases < 100);
}

#[test]
fn raw_blocks_of_any_content_come_back_as_they_are() {
    let (keyed, operator) = raw_samples();
    let storage = MemoryStorage::new();
    fuzz(2_000, &[b"bytes".to_vec()], |random, payload| {
        let mut stream = inline(&keyed.bytes)[..8].to_vec();
        let (mut keyed, mut operator) = (keyed.clone(), operator.clone());
        let group = KeyGroup(random.below(8) as u16);
        for (other, _) in keyed.offsets.clone().iter() {
            keyed.offsets.set(other, GroupExtent::NONE).unwrap();
        }
        let (offset, len) = seal(group.0.into(), &payload, &mut stream);
        keyed
            .offsets
            .set(group, GroupExtent { offset, len })
            .unwrap();
        operator.states[0].elements = vec![seal(u64::MAX, &payload, &mut stream)];
        let bytes = StateHandle::Inline(Bytes::from(stream));
        (keyed.bytes, operator.bytes) = (bytes.clone(), bytes);
        let read = |reader: &mut dyn Read| {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let mut input = block_on(restore_raw_keyed(&[keyed], range(), &storage)).unwrap();
        let mut part = input.next().unwrap();
        assert_eq!(
            (part.group, read(&mut part.reader)),
            (group, payload.clone())
        );
        let mut input = block_on(restore_raw_operator(&[operator], &storage)).unwrap();
        assert_eq!(read(&mut input.next().unwrap()), payload);
    });
}
