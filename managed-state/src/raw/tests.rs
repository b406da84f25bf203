use std::io::{Read, Write};

use bytes::Bytes;
use proptest::prelude::*;
use state_api::{
    ErrorKind, GroupExtent, KeyGroup, KeyGroupOffsets, KeyGroupRange, KeyGroupsHandle,
    OperatorStateHandle, StateHandle,
};

use super::*;
use crate::format::test_storage::{Storage, block_on};

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end))
}

fn keyed_handle(streams: RawStreams, storage: &Storage) -> Option<KeyGroupsHandle> {
    let snapshot = streams.finish().unwrap().keyed?;
    Some(block_on(snapshot.persist(storage.context())).unwrap())
}

fn operator_handle(streams: RawStreams, storage: &Storage) -> Option<OperatorStateHandle> {
    let snapshot = streams.finish().unwrap().operator?;
    Some(block_on(snapshot.persist(storage.context())).unwrap())
}

fn text(reader: &mut impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

fn keyed_text(
    handles: &[KeyGroupsHandle],
    range: KeyGroupRange,
    storage: &Storage,
) -> Vec<(u16, String)> {
    let input = block_on(restore_raw_keyed(handles, range, storage)).unwrap();
    input
        .map(|mut partition| (partition.group.0, text(&mut partition.reader)))
        .collect()
}

/// Writes the number of each group into it.
fn written(groups: impl IntoIterator<Item = u16>, range: KeyGroupRange) -> RawStreams {
    let mut streams = RawStreams::new(range);
    for group in groups {
        streams.keyed().start_group(KeyGroup(group)).unwrap();
        write!(streams.keyed(), "group {group}").unwrap();
    }
    streams
}

fn expected(groups: impl IntoIterator<Item = u16>) -> Vec<(u16, String)> {
    groups
        .into_iter()
        .map(|group| (group, format!("group {group}")))
        .collect()
}

#[test]
fn k_159_each_key_group_gets_its_bytes_back() {
    let storage = Storage::default();
    let handle = keyed_handle(written(0..=9, range(0, 9)), &storage).unwrap();
    assert_eq!(&*handle.format, RAW);
    assert!(handle.offsets.iter().all(|(_, extent)| !extent.is_empty()));
    assert_eq!(
        keyed_text(&[handle], range(0, 9), &storage),
        expected(0..=9)
    );
}

#[test]
fn k_160_k_161_a_group_is_started_once_and_within_the_range() {
    let storage = Storage::default();
    let mut streams = RawStreams::new(range(3, 5));
    assert!(streams.keyed().write(b"no group yet").is_err());
    streams.keyed().start_group(KeyGroup(4)).unwrap();
    streams.keyed().write_all(b"four").unwrap();
    for bad in [4, 2, 6] {
        assert_eq!(
            streams
                .keyed()
                .start_group(KeyGroup(bad))
                .unwrap_err()
                .kind(),
            ErrorKind::InvalidArgument
        );
    }
    let handle = keyed_handle(streams, &storage).unwrap();
    assert_eq!(
        keyed_text(&[handle], range(0, 9), &storage),
        [(4, "four".to_owned())]
    );
}

#[test]
fn k_162_groups_that_were_not_started_are_skipped_and_empty_ones_are_not() {
    let storage = Storage::default();
    let mut streams = written([2, 7], range(0, 9));
    streams.keyed().start_group(KeyGroup(8)).unwrap();
    let handle = keyed_handle(streams, &storage).unwrap();
    assert_eq!(handle.offsets.get(KeyGroup(3)).unwrap(), GroupExtent::NONE);
    let mut expected = expected([2, 7]);
    expected.push((8, String::new()));
    assert_eq!(keyed_text(&[handle], range(0, 9), &storage), expected);
}

#[test]
fn groups_started_in_any_order_come_back_in_theirs() {
    let storage = Storage::default();
    let handle = keyed_handle(written([7, 2, 5, 0], range(0, 9)), &storage).unwrap();
    assert_eq!(
        keyed_text(std::slice::from_ref(&handle), range(0, 9), &storage),
        expected([0, 2, 5, 7])
    );
    assert_eq!(
        keyed_text(&[handle], range(1, 5), &storage),
        expected([2, 5])
    );
}

#[test]
fn k_163_k_164_unused_streams_give_no_handle() {
    let storage = Storage::default();
    let mut streams = RawStreams::new(range(0, 9));
    streams.keyed();
    streams.operator();
    let snapshots = streams.finish().unwrap();
    assert!(snapshots.keyed.is_none() && snapshots.operator.is_none());
    assert!(
        RawStreams::new(range(0, 9))
            .finish()
            .unwrap()
            .keyed
            .is_none()
    );
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_164_k_168_partitions_come_back_where_the_handle_says() {
    let storage = Storage::default();
    let mut streams = RawStreams::new(KeyGroupRange::EMPTY);
    for n in 0..5 {
        streams.operator().start_partition().unwrap();
        write!(streams.operator(), "partition {n}").unwrap();
    }
    let mut handle = operator_handle(streams, &storage).unwrap();
    assert_eq!(handle.states[0].elements.len(), 5);
    // As after redistribution: some of them, not in order.
    let all = handle.states[0].elements.clone();
    handle.states[0].elements = vec![all[3], all[0]];
    let mut input = block_on(restore_raw_operator(&[handle], &storage)).unwrap();
    let mut first = input.next().unwrap();
    assert_eq!(text(&mut first), "partition 3");
    let mut second = input.next().unwrap();
    // The first is closed by moving on.
    assert!(first.read(&mut [0]).is_err());
    assert_eq!(text(&mut second), "partition 0");
    assert!(input.next().is_none());
}

#[test]
fn k_165_closing_by_the_operator_keeps_what_was_written() {
    let storage = Storage::default();
    let mut streams = written([1], range(0, 9));
    streams.keyed().close();
    assert!(streams.keyed().write(b"late").is_err());
    assert_eq!(
        streams.keyed().start_group(KeyGroup(2)).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    let handle = keyed_handle(streams, &storage).unwrap();
    assert_eq!(keyed_text(&[handle], range(0, 9), &storage), expected([1]));
}

#[test]
fn k_166_streams_that_are_not_finished_leave_nothing() {
    let storage = Storage::default();
    let snapshots = written([1], range(0, 9)).finish().unwrap();
    drop(snapshots);
    drop(written([1], range(0, 9)));
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_167_a_stream_asked_for_twice_is_the_same() {
    let mut streams = RawStreams::new(range(0, 9));
    streams.keyed().start_group(KeyGroup(1)).unwrap();
    assert!(streams.keyed().start_group(KeyGroup(1)).is_err());
}

#[test]
fn k_169_several_handles_and_a_part_of_the_range() {
    let storage = Storage::default();
    let handles = [
        keyed_handle(written(0..=4, range(0, 4)), &storage).unwrap(),
        keyed_handle(written(5..=9, range(5, 9)), &storage).unwrap(),
    ];
    assert_eq!(keyed_text(&handles, range(3, 6), &storage), expected(3..=6));
}

#[test]
fn k_170_a_reader_fails_after_the_input_is_closed() {
    let storage = Storage::default();
    let handle = keyed_handle(written(0..=4, range(0, 4)), &storage).unwrap();
    let mut input = block_on(restore_raw_keyed(
        std::slice::from_ref(&handle),
        range(0, 4),
        &storage,
    ))
    .unwrap();
    let mut kept = input.next().unwrap().reader;
    input.close();
    assert!(kept.read(&mut [0; 4]).is_err());
    assert!(input.next().is_none());
    let mut input = block_on(restore_raw_keyed(&[handle], range(0, 4), &storage)).unwrap();
    let mut kept = input.next().unwrap().reader;
    drop(input);
    assert!(kept.read(&mut [0; 4]).is_err());
}

#[test]
fn damage_is_refused_with_the_object_named() {
    let storage = Storage::default();
    let handle = keyed_handle(written(0..=9, range(0, 9)), &storage).unwrap();
    let name = handle.bytes.object().unwrap().to_string();
    storage.change(|bytes| bytes[20] ^= 4);
    for wanted in [range(0, 9), range(0, 3)] {
        let error = block_on(restore_raw_keyed(
            std::slice::from_ref(&handle),
            wanted,
            &storage,
        ))
        .unwrap_err();
        assert_eq!(
            (error.kind(), error.context("object")),
            (ErrorKind::Corrupt, Some(&name[..]))
        );
    }
    let mut canonical = handle;
    canonical.format = "canonical".into();
    let error = block_on(restore_raw_keyed(&[canonical], range(0, 9), &storage)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

proptest! {
    #[test]
    fn arbitrary_streams_and_places_are_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        places in proptest::collection::vec((0u64..200, 0u64..200), 4),
        right_header in any::<bool>(),
        huge in any::<bool>(),
    ) {
        let storage = Storage::default();
        let mut stream = if right_header { b"HFRAWST\x01".to_vec() } else { Vec::new() };
        stream.extend(bytes);
        let bytes = StateHandle::Inline(Bytes::from(stream));
        let mut offsets = KeyGroupOffsets::new(range(0, 3));
        for (group, (offset, len)) in (0u16..).zip(&places) {
            let offset = if huge { u64::MAX - offset } else { *offset };
            offsets.set(KeyGroup(group), GroupExtent { offset, len: *len }).unwrap();
        }
        let handle = KeyGroupsHandle { format: RAW.into(), offsets, bytes: bytes.clone(), states: vec![] };
        let _ = block_on(restore_raw_keyed(&[handle], range(0, 3), &storage));
        let mut streams = RawStreams::new(range(0, 3));
        streams.operator().start_partition().unwrap();
        let mut handle = operator_handle(streams, &storage).unwrap();
        handle.states[0].elements = places;
        handle.bytes = bytes;
        let _ = block_on(restore_raw_operator(&[handle], &storage));
    }
}
