use bytes::Bytes;
use futures_util::FutureExt;
use proptest::prelude::*;
use state_api::{
    CheckpointId, CodecKind, ErrorKind, OperatorStateHandle, OperatorStateMode, OperatorStatePart,
    RestoreContext, Result, SnapshotKind, SnapshotRequest, StateHandle, StateKind, StateMeta,
    StateOptions, TtlConfig, TypeMeta,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::format::test_storage::{Storage, Threads, block_on};

const REQUEST: SnapshotRequest = SnapshotRequest {
    checkpoint: CheckpointId(1),
    kind: SnapshotKind::Checkpoint,
    now_ms: 0,
};

fn persist(states: &mut OperatorStates, storage: &Storage) -> Option<OperatorStateHandle> {
    block_on(
        states
            .snapshot(&REQUEST)
            .unwrap()
            .persist(storage.context()),
    )
    .unwrap()
}

fn try_restored(handles: &[OperatorStateHandle], storage: &Storage) -> Result<OperatorStates> {
    let mut states = OperatorStates::new();
    let cx = RestoreContext {
        storage: Arc::new(storage.clone()),
        executor: Arc::new(Threads),
    };
    block_on(states.restore(handles, &cx))?;
    Ok(states)
}

fn restored(handles: &[OperatorStateHandle], storage: &Storage) -> OperatorStates {
    try_restored(handles, storage).unwrap()
}

fn text(s: &str) -> String {
    s.to_owned()
}

fn list_of(states: &mut OperatorStates, name: &str) -> Vec<u64> {
    let list = states.list::<u64>(name).unwrap();
    states.elements(list).unwrap().to_vec()
}

/// A handle of one list state `n` with these elements.
fn list_handle(elements: impl IntoIterator<Item = u64>, storage: &Storage) -> OperatorStateHandle {
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("n").unwrap();
    states.elements_mut(list).unwrap().extend(elements);
    persist(&mut states, storage).unwrap()
}

#[test]
fn k_136_a_state_registered_twice_is_one() {
    let mut states = OperatorStates::new();
    let (one, other) = (
        states.list::<u64>("n").unwrap(),
        states.list::<u64>("n").unwrap(),
    );
    states.elements_mut(one).unwrap().push(5);
    assert_eq!(states.elements(other).unwrap().to_vec(), [5]);
    assert_eq!(states.list_names(), ["n"]);
}

#[test]
fn k_137_another_mode_or_type_is_refused_and_the_state_untouched() {
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("n").unwrap();
    states.elements_mut(list).unwrap().push(5);
    for error in [
        states.union_list::<u64>("n").unwrap_err(),
        states.broadcast::<u64, u64>("n").unwrap_err(),
        states.list::<String>("n").unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.context("state")),
            (ErrorKind::InvalidArgument, Some("n"))
        );
    }
    states.broadcast::<u64, u64>("b").unwrap();
    assert_eq!(
        states.list::<u64>("b").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(list_of(&mut states, "n"), [5]);
}

#[test]
fn k_137_a_restored_state_is_not_had_in_another_mode() {
    let storage = Storage::default();
    let mut states = restored(&[list_handle([1, 2], &storage)], &storage);
    assert_eq!(
        states.union_list::<u64>("n").unwrap_err().kind(),
        ErrorKind::Incompatible
    );
    assert_eq!(
        states.broadcast::<u64, u64>("n").unwrap_err().kind(),
        ErrorKind::Incompatible
    );
    assert_eq!(list_of(&mut states, "n"), [1, 2]);
}

#[test]
fn k_138_lists_and_broadcast_states_are_listed_apart() {
    let mut states = OperatorStates::new();
    states.list::<u64>("split").unwrap();
    states.union_list::<u64>("union").unwrap();
    states.broadcast::<u64, String>("rules").unwrap();
    assert_eq!(states.list_names(), ["split", "union"]);
    assert_eq!(states.broadcast_names(), ["rules"]);
}

#[test]
fn a_token_of_another_operator_or_none_is_refused() {
    let mut other = OperatorStates::new();
    let foreign = other.list::<u64>("n").unwrap();
    let mut states = OperatorStates::new();
    states.list::<u64>("n").unwrap();
    for token in [foreign, OperatorListState::default()] {
        assert_eq!(
            states.elements(token).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
    let ttl = TtlConfig::new(Duration::from_secs(1)).unwrap();
    assert_eq!(
        states
            .list::<u64>(StateOptions::new("t").ttl(ttl))
            .unwrap_err()
            .kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(
        states.list::<u64>("").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn k_141_no_states_give_no_handle_and_a_registered_one_does() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    assert_eq!(persist(&mut states, &storage), None);
    assert!(storage.0.objects.lock().unwrap().is_empty());
    states.list::<u64>("n").unwrap();
    let handle = persist(&mut states, &storage).unwrap();
    assert_eq!(handle.states[0].elements, []);
    assert_eq!(list_of(&mut restored(&[handle], &storage), "n"), []);
    assert_eq!(list_of(&mut restored(&[], &storage), "n"), []);
}

#[test]
fn k_143_k_144_a_broadcast_state_comes_back_as_of_its_snapshot() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    let rules = states.broadcast::<u64, String>("rules").unwrap();
    let map = states.entries_mut(rules).unwrap();
    for n in 1..=100 {
        map.insert(n, n.to_string());
    }
    let frozen = states.snapshot(&REQUEST).unwrap();
    let map = states.entries_mut(rules).unwrap();
    map.insert(1, text("changed"));
    map.insert(999, text("new"));
    map.remove(&2);
    let first = block_on(frozen.persist(storage.context()))
        .unwrap()
        .unwrap();
    let second = persist(&mut states, &storage).unwrap();
    states.entries_mut(rules).unwrap().clear();
    let third = persist(&mut states, &storage).unwrap();

    let read = |handle: OperatorStateHandle| {
        let mut states = restored(&[handle], &storage);
        let rules = states.broadcast::<u64, String>("rules").unwrap();
        let view = states.entries(rules).unwrap();
        let mut entries: Vec<(u64, String)> = view.iter().map(|(k, v)| (*k, v.clone())).collect();
        entries.sort();
        entries
    };
    assert_eq!(
        read(first),
        (1..=100).map(|n| (n, n.to_string())).collect::<Vec<_>>()
    );
    let entries = read(second);
    assert_eq!(
        (entries.len(), entries[0].1.as_str(), entries[1].0),
        (100, "changed", 3)
    );
    assert_eq!(read(third), []);
}

#[test]
fn k_145_everything_comes_back_together() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let list = states.list::<Vec<u64>>(name).unwrap();
        // More than is shared as one piece.
        states
            .elements_mut(list)
            .unwrap()
            .extend((0..500).map(|i| vec![i, n as u64]));
    }
    let union = states.union_list::<String>("u").unwrap();
    states.elements_mut(union).unwrap().push(text("offset 7"));
    for name in ["x", "y", "z"] {
        let map = states.broadcast::<String, u64>(name).unwrap();
        states.entries_mut(map).unwrap().insert(text(name), 1);
    }
    let handle = persist(&mut states, &storage).unwrap();
    let mut again = restored(&[handle], &storage);
    assert!(again.is_restored());
    assert_eq!(again.list_names(), states.list_names());
    assert_eq!(again.broadcast_names(), states.broadcast_names());
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let list = again.list::<Vec<u64>>(name).unwrap();
        let expected: Vec<_> = (0..500).map(|i| vec![i, n as u64]).collect();
        assert_eq!(again.elements(list).unwrap().to_vec(), expected);
    }
    let union = again.union_list::<String>("u").unwrap();
    assert_eq!(again.elements(union).unwrap().to_vec(), ["offset 7"]);
    for name in ["x", "y", "z"] {
        let map = again.broadcast::<String, u64>(name).unwrap();
        assert_eq!(again.entries(map).unwrap().get(&text(name)), Some(&1));
    }
}

#[test]
fn a_frozen_list_is_not_reached_by_later_changes() {
    let storage = Storage::default();
    for len in [3u64, 1000] {
        let mut states = OperatorStates::new();
        let list = states.list::<u64>("n").unwrap();
        states.elements_mut(list).unwrap().extend(0..len);
        let frozen = states.snapshot(&REQUEST).unwrap();
        let elements = states.elements_mut(list).unwrap();
        elements.retain(|n| n % 2 == 0);
        elements.push(77);
        let handle = block_on(frozen.persist(storage.context()))
            .unwrap()
            .unwrap();
        assert_eq!(
            list_of(&mut restored(&[handle], &storage), "n"),
            (0..len).collect::<Vec<_>>()
        );
    }
}

#[test]
fn k_150_a_union_list_that_is_not_registered_is_written_on_by_one_subtask_alone() {
    let storage = Storage::default();
    let mut handles: Vec<_> = (0..2)
        .map(|index| {
            let mut states = OperatorStates::of_subtask(index);
            let list = states.union_list::<u64>("u").unwrap();
            let own = [u64::from(index), 7];
            states.elements_mut(list).unwrap().extend(own);
            let map = states.broadcast::<u64, u64>("rules").unwrap();
            states.entries_mut(map).unwrap().insert(1, 2);
            persist(&mut states, &storage).unwrap()
        })
        .collect();
    for _ in 0..3 {
        // Each is given the whole list, and some copy of the map.
        let carried = |index| {
            let mut states = OperatorStates::of_subtask(index);
            let cx = RestoreContext {
                storage: Arc::new(storage.clone()),
                executor: Arc::new(Threads),
            };
            block_on(states.restore(&handles, &cx)).unwrap();
            states.list::<u64>("new").unwrap();
            persist(&mut states, &storage).unwrap()
        };
        handles = (0..2).map(carried).collect();
    }
    let mut states = restored(&handles, &storage);
    let list = states.union_list::<u64>("u").unwrap();
    assert_eq!(states.elements(list).unwrap().to_vec(), [0, 7, 1, 7]);
    let map = states.broadcast::<u64, u64>("rules").unwrap();
    assert_eq!(states.entries(map).unwrap().get(&1), Some(&2));
}

#[test]
fn k_147_k_148_a_cancelled_snapshot_ends_and_leaves_nothing() {
    let storage = Storage::default();
    storage.0.gate.shut();
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("n").unwrap();
    states.elements_mut(list).unwrap().push(1);
    let snapshot = states.snapshot(&REQUEST).unwrap();
    let cx = storage.context();
    let cancel = cx.cancel.clone();
    let persist = std::thread::spawn(move || block_on(snapshot.persist(cx)));
    while !storage.0.gate.holds_something() {
        std::thread::yield_now();
    }
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 1);
    cancel.cancel();
    assert_eq!(
        persist.join().unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 0);
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_147_a_snapshot_that_is_dropped_while_the_store_hangs_leaves_nothing() {
    let storage = Storage::default();
    storage.0.gate.shut();
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("n").unwrap();
    states.elements_mut(list).unwrap().push(1);
    let mut persist = states
        .snapshot(&REQUEST)
        .unwrap()
        .persist(storage.context());
    while !storage.0.gate.holds_something() {
        assert!((&mut persist).now_or_never().is_none());
        std::thread::yield_now();
    }
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 1);
    drop(persist);
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 0);
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_150_a_restored_state_that_is_not_registered_is_carried_on() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("old").unwrap();
    states.elements_mut(list).unwrap().extend(0..10);
    let map = states.broadcast::<u64, u64>("rules").unwrap();
    states.entries_mut(map).unwrap().insert(1, 2);
    let first = persist(&mut states, &storage).unwrap();

    let mut second_run = restored(&[first], &storage);
    second_run.list::<u64>("new").unwrap();
    assert_eq!(second_run.list_names(), ["new", "old"]);
    let second = persist(&mut second_run, &storage).unwrap();

    let mut third_run = restored(&[second], &storage);
    assert_eq!(list_of(&mut third_run, "old"), (0..10).collect::<Vec<_>>());
    let map = third_run.broadcast::<u64, u64>("rules").unwrap();
    assert_eq!(third_run.entries(map).unwrap().get(&1), Some(&2));
}

#[test]
fn k_151_k_152_list_elements_have_places_and_a_broadcast_state_has_one() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    let list = states.list::<String>("words").unwrap();
    states
        .elements_mut(list)
        .unwrap()
        .extend(["one", "", "three"].map(text));
    let map = states.broadcast::<u64, u64>("rules").unwrap();
    for n in 0..50 {
        states.entries_mut(map).unwrap().insert(n, n);
    }
    let handle = persist(&mut states, &storage).unwrap();
    let offsets: Vec<u64> = handle.states[0]
        .elements
        .iter()
        .map(|(offset, _)| *offset)
        .collect();
    assert_eq!(offsets.len(), 3);
    assert!(offsets.is_sorted_by(|a, b| a < b));
    assert_eq!(handle.states[1].elements.len(), 1);
    for (n, expected) in ["one", "", "three"].into_iter().enumerate() {
        let mut part = handle.clone();
        part.states[0].elements = vec![handle.states[0].elements[n]];
        let mut states = restored(&[part], &storage);
        let words = states.list::<String>("words").unwrap();
        assert_eq!(states.elements(words).unwrap().to_vec(), [expected]);
    }
}

#[test]
fn k_153_elements_of_several_handles_in_any_order() {
    let storage = Storage::default();
    let (mut one, two) = (list_handle(0..5, &storage), list_handle(10..15, &storage));
    one.states[0].elements.reverse();
    assert_eq!(
        list_of(&mut restored(&[one, two], &storage), "n"),
        [4, 3, 2, 1, 0, 10, 11, 12, 13, 14]
    );
}

#[test]
fn k_158_equal_broadcast_maps_have_equal_bytes_and_one_copy_is_taken() {
    let storage = Storage::default();
    storage.0.inline_below.store(1 << 20, Ordering::SeqCst);
    let handle = |keys: &mut dyn Iterator<Item = u64>| {
        let mut states = OperatorStates::new();
        let map = states.broadcast::<u64, u64>("rules").unwrap();
        for key in keys {
            states.entries_mut(map).unwrap().insert(key, key + 1);
        }
        persist(&mut states, &storage).unwrap()
    };
    let (forwards, backwards) = (handle(&mut (0..300)), handle(&mut (0..300).rev()));
    assert_eq!(forwards, backwards);
    let older = handle(&mut (500..600));
    let mut states = restored(&[older, forwards], &storage);
    let again = persist(&mut states, &storage).unwrap();
    let map = states.broadcast::<u64, u64>("rules").unwrap();
    assert_eq!(states.entries(map).unwrap().len(), 300);
    let mut states = restored(&[again], &storage);
    let map = states.broadcast::<u64, u64>("rules").unwrap();
    assert_eq!(states.entries(map).unwrap().len(), 300);
}

#[test]
fn k_156_k_217_to_k_220_types_are_migrated_or_refused() {
    let storage = Storage::default();
    let mut states = OperatorStates::new();
    let (split, union) = (
        states.list::<u32>("split").unwrap(),
        states.union_list::<u32>("union").unwrap(),
    );
    for list in [split, union] {
        states.elements_mut(list).unwrap().extend([1, 2]);
    }
    let map = states.broadcast::<u32, u32>("rules").unwrap();
    states.entries_mut(map).unwrap().insert(7, 8);
    let handle = persist(&mut states, &storage).unwrap();

    let mut wider = restored(std::slice::from_ref(&handle), &storage);
    let split = wider.list::<u64>("split").unwrap();
    assert_eq!(wider.elements(split).unwrap().to_vec(), [1, 2]);
    let union = wider
        .union_list::<u64>(StateOptions::new("union").codec(CodecKind::Evolvable))
        .unwrap();
    assert_eq!(wider.elements(union).unwrap().to_vec(), [1, 2]);
    let map = wider.broadcast::<u64, u64>("rules").unwrap();
    assert_eq!(wider.entries(map).unwrap().get(&7), Some(&8));
    // What is written now is of the new type.
    let next = persist(&mut wider, &storage).unwrap();
    let mut again = restored(&[next], &storage);
    let union = again
        .union_list::<u64>(StateOptions::new("union").codec(CodecKind::Evolvable))
        .unwrap();
    assert_eq!(again.elements(union).unwrap().to_vec(), [1, 2]);

    let mut wrong = restored(std::slice::from_ref(&handle), &storage);
    for error in [
        wrong.list::<String>("split").unwrap_err(),
        wrong.union_list::<String>("union").unwrap_err(),
        wrong.broadcast::<String, u32>("rules").unwrap_err(),
        wrong.broadcast::<u32, String>("rules").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.context("state").is_some() && error.context("old").is_some());
    }
    // A refusal registers nothing and loses nothing.
    let split = wrong.list::<u32>("split").unwrap();
    assert_eq!(wrong.elements(split).unwrap().to_vec(), [1, 2]);
}

#[test]
fn damage_is_refused_with_the_object_named() {
    let storage = Storage::default();
    let handle = list_handle(0..10, &storage);
    let name = handle.bytes.object().unwrap().to_string();
    storage.change(|bytes| bytes[12] ^= 1);
    let error = try_restored(std::slice::from_ref(&handle), &storage)
        .err()
        .unwrap();
    assert_eq!(
        (error.kind(), error.context("object")),
        (ErrorKind::Corrupt, Some(&name[..]))
    );
    storage.change(|bytes| bytes[12] ^= 1);
    for place in [(0, 1000), (u64::MAX, 8), (8, u64::MAX)] {
        let mut lying = handle.clone();
        lying.states[0].elements[3] = place;
        let error = try_restored(&[lying], &storage).err().unwrap();
        assert_eq!(
            (error.kind(), error.context("object")),
            (ErrorKind::Corrupt, Some(&name[..]))
        );
    }
}

#[test]
fn restoring_after_registration_is_refused() {
    let mut states = OperatorStates::new();
    states.list::<u64>("n").unwrap();
    let storage = Storage::default();
    let cx = RestoreContext {
        storage: Arc::new(storage.clone()),
        executor: Arc::new(Threads),
    };
    assert_eq!(
        block_on(states.restore(&[], &cx)).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

proptest! {
    #[test]
    fn arbitrary_streams_and_places_are_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        places in proptest::collection::vec((0u64..120, 0u64..120), 0..5),
        right_header in any::<bool>(),
    ) {
        let mut stream = if right_header { b"HFOPSTA\x01".to_vec() } else { Vec::new() };
        stream.extend(bytes);
        let part = |name: &str, kind, map_key: Option<TypeMeta>, mode| OperatorStatePart {
            meta: StateMeta {
                name: name.into(),
                kind,
                key: TypeMeta::of::<()>(CodecKind::Compact),
                namespace: TypeMeta::of::<()>(CodecKind::Compact),
                map_key,
                value: TypeMeta::of::<String>(CodecKind::Compact),
                ttl_ms: None,
            },
            mode,
            elements: places.clone(),
        };
        let key = TypeMeta::of::<String>(CodecKind::Compact);
        let handle = OperatorStateHandle {
            states: vec![
                part("list", StateKind::OperatorList, None, OperatorStateMode::Split),
                part("map", StateKind::Broadcast, Some(key), OperatorStateMode::Broadcast),
            ],
            bytes: StateHandle::Inline(Bytes::from(stream)),
        };
        if let Ok(mut states) = try_restored(&[handle], &Storage::default()) {
            let _ = states.list::<String>("list");
            let _ = states.broadcast::<String, String>("map");
        }
    }
}
