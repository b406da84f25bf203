//! Who gets which part of a checkpoint: area AA of the catalogue.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::collections::BTreeMap;
use std::sync::Arc;

use OperatorStateMode::{Broadcast, Split, Union};
use runtime_core::assign::{OperatorShape, assign, restored_max_parallelism};
use state_api::{
    CheckpointId, CodecKind, ErrorKind, GroupExtent, IncrementalHandle, KeyGroup, KeyGroupOffsets,
    KeyGroupRange, KeyGroupsHandle, KeyedHandle, MaxParallelism, OperatorSnapshot,
    OperatorStateHandle, OperatorStateMode, OperatorStatePart, StateHandle, StateKind, StateMeta,
    Subtask, TypeMeta,
};

fn max() -> MaxParallelism {
    MaxParallelism::new(128).unwrap()
}

fn bytes(name: &str) -> StateHandle {
    StateHandle::Inline(name.to_owned().into())
}

/// A handle named by its bytes, with states of (name, mode, number of elements).
fn handle(name: &str, states: &[(&str, OperatorStateMode, u64)]) -> OperatorStateHandle {
    let unit = TypeMeta::of::<()>(CodecKind::Compact);
    let part = |&(state, mode, elements): &(&str, OperatorStateMode, u64)| OperatorStatePart {
        meta: StateMeta {
            name: state.into(),
            kind: StateKind::OperatorList,
            key: unit.clone(),
            namespace: unit.clone(),
            map_key: None,
            value: unit.clone(),
            ttl_ms: None,
        },
        mode,
        elements: (0..elements).map(|i| (i, 1)).collect(),
    };
    OperatorStateHandle {
        states: states.iter().map(part).collect(),
        bytes: bytes(name),
    }
}

fn with_operator(handles: &[OperatorStateHandle]) -> Vec<OperatorSnapshot> {
    handles
        .iter()
        .map(|h| OperatorSnapshot {
            managed_operator: vec![h.clone()],
            ..OperatorSnapshot::default()
        })
        .collect()
}

fn deal(old: &[OperatorSnapshot], parallelism: u32) -> Vec<OperatorSnapshot> {
    assign(&old.iter().collect::<Vec<_>>(), parallelism, max()).unwrap()
}

/// The elements that each new subtask gets of a state, as (handle, offset).
fn elements(dealt: &[OperatorSnapshot], state: &str) -> Vec<Vec<(String, u64)>> {
    let of_subtask = |snapshot: &OperatorSnapshot| {
        let mut all = Vec::new();
        for handle in &snapshot.managed_operator {
            let StateHandle::Inline(name) = &handle.bytes else {
                panic!("inline")
            };
            let name = String::from_utf8(name.to_vec()).unwrap();
            for part in handle
                .states
                .iter()
                .filter(|part| &*part.meta.name == state)
            {
                all.extend(
                    part.elements
                        .iter()
                        .map(|(offset, _)| (name.clone(), *offset)),
                );
            }
        }
        all
    };
    dealt.iter().map(of_subtask).collect()
}

fn counts(dealt: &[OperatorSnapshot], state: &str) -> Vec<usize> {
    elements(dealt, state).iter().map(Vec::len).collect()
}

#[test]
fn k_634_split_lists_are_dealt_out_or_merged() {
    let old = with_operator(&[
        handle("a", &[("t-1", Split, 1)]),
        handle("b", &[("t-2", Split, 1)]),
    ]);
    let three = deal(&old, 3);
    for state in ["t-1", "t-2"] {
        assert_eq!(counts(&three, state).iter().sum::<usize>(), 1, "{state}");
    }
    let one = deal(&old, 1);
    assert_eq!(
        (counts(&one, "t-1"), counts(&one, "t-2")),
        (vec![1], vec![1])
    );
    assert_eq!(deal(&old, 2), old);
}

#[test]
fn k_635_union_lists_go_to_all_whole() {
    let old = with_operator(&[
        handle("a", &[("t-3", Union, 2)]),
        handle("b", &[("t-3", Union, 3), ("t-4", Union, 1)]),
    ]);
    for n in [1, 2, 5] {
        let dealt = deal(&old, n);
        assert_eq!(counts(&dealt, "t-3"), vec![5; n as usize]);
        assert_eq!(counts(&dealt, "t-4"), vec![1; n as usize]);
    }
}

#[test]
fn k_636_k_637_each_subtask_gets_one_copy_of_a_broadcast_state() {
    let both = with_operator(&[
        handle("a", &[("t-5", Broadcast, 1)]),
        handle("b", &[("t-5", Broadcast, 1)]),
    ]);
    let names = |dealt: &[OperatorSnapshot]| -> Vec<String> {
        elements(dealt, "t-5")
            .into_iter()
            .map(|e| e.into_iter().map(|(name, _)| name).collect())
            .collect()
    };
    assert_eq!(names(&deal(&both, 3)), ["a", "b", "a"]);
    assert_eq!(names(&deal(&both, 1)), ["a"]);
    // Reported by one subtask only, the other without or with empty state; the parallelism unchanged too.
    let empty = OperatorSnapshot::default();
    let mut first_only = with_operator(&[handle("a", &[("t-5", Broadcast, 1)])]);
    first_only.push(empty);
    let second_empty = with_operator(&[
        handle("a", &[("t-5", Broadcast, 1)]),
        handle("b", &[("t-5", Broadcast, 0)]),
    ]);
    for old in [first_only, second_empty] {
        for n in [1, 2, 3] {
            assert_eq!(names(&deal(&old, n)), vec!["a"; n as usize]);
        }
    }
}

#[test]
fn k_638_each_state_of_a_handle_follows_its_own_mode() {
    let states = [
        ("split", Split, 4),
        ("union", Union, 2),
        ("broadcast", Broadcast, 1),
    ];
    let old = with_operator(&[handle("a", &states), handle("b", &states)]);
    let dealt = deal(&old, 4);
    assert_eq!(counts(&dealt, "split"), [2, 2, 2, 2]);
    assert_eq!(counts(&dealt, "union"), [4, 4, 4, 4]);
    assert_eq!(counts(&dealt, "broadcast"), [1, 1, 1, 1]);
}

#[test]
fn k_639_elements_are_dealt_out_evenly_each_once() {
    for old_parallelism in 1..5_u64 {
        for new in 1..6 {
            let names: Vec<String> = (0..old_parallelism).map(|i| format!("h{i}")).collect();
            let handles: Vec<_> = names
                .iter()
                .zip(0..)
                .map(|(n, i)| handle(n, &[("list", Split, 3 * i + 1)]))
                .collect();
            let old = with_operator(&handles);
            let dealt = deal(&old, new);
            let sizes = counts(&dealt, "list");
            if old.len() != new as usize {
                assert!(
                    sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1,
                    "{old_parallelism} to {new}"
                );
            }
            let mut all: Vec<_> = elements(&dealt, "list").into_iter().flatten().collect();
            let mut before: Vec<_> = elements(&old, "list").into_iter().flatten().collect();
            all.sort();
            before.sort();
            assert_eq!(all, before);
        }
    }
}

#[test]
fn k_640_remainders_of_several_states_land_on_different_subtasks() {
    let old = with_operator(&[handle("a", &[("x", Split, 3), ("y", Split, 1)])]);
    let dealt = deal(&old, 2);
    assert_eq!(
        (counts(&dealt, "x"), counts(&dealt, "y")),
        (vec![2, 1], vec![0, 1])
    );
}

#[test]
fn k_641_an_unchanged_parallelism_keeps_split_handles_as_they_are() {
    let old = with_operator(&[
        handle("a", &[("x", Split, 7)]),
        handle("b", &[("x", Split, 1)]),
    ]);
    assert_eq!(deal(&old, 2), old);
}

#[test]
fn k_638_k_641_at_an_unchanged_parallelism_split_lists_stay_beside_states_that_all_get() {
    let old = with_operator(&[
        handle("a", &[("split", Split, 7), ("union", Union, 1)]),
        handle("b", &[("split", Split, 1), ("broadcast", Broadcast, 1)]),
        handle("c", &[("split", Split, 0)]),
    ]);
    let dealt = deal(&old, 3);
    assert_eq!(elements(&dealt, "split"), elements(&old, "split"));
    assert_eq!(counts(&dealt, "union"), [1, 1, 1]);
    assert_eq!(counts(&dealt, "broadcast"), [1, 1, 1]);
}

#[test]
fn k_642_k_643_subtasks_without_elements_get_nothing() {
    let old = with_operator(&[
        handle("a", &[("x", Split, 2)]),
        handle("b", &[("x", Split, 0)]),
    ]);
    let dealt = deal(&old, 4);
    assert_eq!(counts(&dealt, "x"), [1, 1, 0, 0]);
    assert!(dealt[3].managed_operator.is_empty());
    assert!(deal(&[], 2).iter().all(OperatorSnapshot::is_empty));
}

#[test]
fn k_644_raw_and_managed_state_are_kept_apart() {
    let mut old = with_operator(&[handle("managed", &[("x", Split, 2)])]);
    old[0].raw_operator = vec![handle("raw", &[("x", Split, 2)])];
    let dealt = deal(&old, 2);
    for snapshot in &dealt {
        assert_eq!(snapshot.managed_operator[0].bytes, bytes("managed"));
        assert_eq!(snapshot.raw_operator[0].bytes, bytes("raw"));
    }
}

#[test]
fn k_645_records_in_flight_stay_where_they_are_when_the_parallelism_does() {
    let mut old = with_operator(&[handle("a", &[]), handle("b", &[])]);
    old[0].in_flight = vec![handle("flight a", &[("channels", Split, 3)])];
    old[1].in_flight = vec![handle("flight b", &[("channels", Split, 1)])];
    assert_eq!(deal(&old, 2), old);
}

/// K-646, K-647: there are no channels to go by; each element goes to one subtask, as those of a split list do.
#[test]
fn k_646_k_647_records_in_flight_without_a_key_are_dealt_out_at_another_parallelism() {
    let mut old = vec![OperatorSnapshot::default(); 3];
    for ((index, snapshot), elements) in old.iter_mut().enumerate().zip([2, 0, 5]) {
        let states = [("channels", Split, elements)];
        snapshot.in_flight = vec![handle(&format!("flight {index}"), &states)];
    }
    // As operator state, whose elements are told apart.
    let told_apart = |snapshots: &[OperatorSnapshot]| {
        let as_state = |snapshot: &OperatorSnapshot| OperatorSnapshot {
            managed_operator: snapshot.in_flight.clone(),
            ..OperatorSnapshot::default()
        };
        let snapshots: Vec<_> = snapshots.iter().map(as_state).collect();
        elements(&snapshots, "channels")
    };
    let before = told_apart(&old).concat();
    assert_eq!(before.len(), 7);
    for new in [1, 2, 4, 6] {
        let dealt = told_apart(&deal(&old, new));
        // In runs: their order is kept from one subtask to the next.
        assert_eq!(dealt.concat(), before, "each goes to one of {new}");
        let each = || dealt.iter().map(Vec::len);
        let (least, most) = (each().min().unwrap(), each().max().unwrap());
        assert!(most - least <= 1, "{dealt:?}");
    }
}

#[test]
fn k_590_keyed_records_in_flight_go_to_whoever_owns_their_key_group() {
    let mut old = vec![OperatorSnapshot::default(); 3];
    for (index, snapshot) in (0..).zip(&mut old) {
        let before = Subtask {
            index,
            parallelism: 3,
        };
        let range = max().range_of(before).unwrap();
        let KeyedHandle::KeyGroups(flight) = groups(&format!("flight {index}"), range) else {
            unreachable!("the handle is one of key groups")
        };
        snapshot.in_flight_keyed = vec![flight];
    }
    let in_flight = |snapshots: &[OperatorSnapshot]| {
        let mut all = BTreeMap::new();
        for handle in snapshots.iter().flat_map(|s| &s.in_flight_keyed) {
            for (group, extent) in handle.offsets.iter() {
                let place = (handle.bytes.clone(), extent.offset);
                assert_eq!(all.insert(group, place), None, "{group} twice");
            }
        }
        all
    };
    let before = in_flight(&old);
    assert_eq!(before.len(), 128);
    for new in [1, 2, 3, 4, 7] {
        let dealt = deal(&old, new);
        assert_eq!(in_flight(&dealt), before, "to {new}");
        for (index, snapshot) in (0..).zip(&dealt) {
            let subtask = Subtask {
                index,
                parallelism: new,
            };
            let range = max().range_of(subtask).unwrap();
            let all = snapshot.in_flight_keyed.iter();
            assert!(all.clone().count() > 0, "{index} of {new}");
            assert!(
                all.flat_map(|handle| handle.offsets.iter())
                    .all(|(group, _)| range.contains(group)),
                "{index} of {new}"
            );
        }
    }
}

fn groups(name: &str, range: KeyGroupRange) -> KeyedHandle {
    let mut offsets = KeyGroupOffsets::new(range);
    for (group, offset) in range.iter().zip(1..) {
        offsets
            .set(
                group,
                GroupExtent {
                    offset: offset * 10,
                    len: 10,
                },
            )
            .unwrap();
    }
    KeyedHandle::KeyGroups(KeyGroupsHandle {
        format: Arc::from("canonical"),
        offsets,
        bytes: bytes(name),
        states: Vec::new(),
    })
}

fn keyed(
    old_parallelism: u32,
    make: impl Fn(&str, KeyGroupRange) -> KeyedHandle,
) -> Vec<OperatorSnapshot> {
    let range = |index| {
        max()
            .range_of(Subtask {
                index,
                parallelism: old_parallelism,
            })
            .unwrap()
    };
    (0..old_parallelism)
        .map(|i| OperatorSnapshot {
            managed_keyed: vec![make(&format!("h{i}"), range(i))],
            ..OperatorSnapshot::default()
        })
        .collect()
}

#[test]
fn k_654_keyed_handles_go_to_every_range_they_reach_with_trimmed_offsets() {
    let old = keyed(4, groups);
    for new in [1, 2, 3, 4, 7] {
        let dealt = deal(&old, new);
        let mut owners: BTreeMap<KeyGroup, (u32, u64)> = BTreeMap::new();
        for (index, snapshot) in (0..).zip(&dealt) {
            let range = max()
                .range_of(Subtask {
                    index,
                    parallelism: new,
                })
                .unwrap();
            for handle in &snapshot.managed_keyed {
                let KeyedHandle::KeyGroups(handle) = handle else {
                    panic!("key groups")
                };
                for (group, extent) in handle.offsets.iter() {
                    assert!(range.contains(group), "{group} at {index}/{new}");
                    assert!(
                        owners.insert(group, (index, extent.offset)).is_none(),
                        "{group} twice"
                    );
                }
            }
        }
        assert_eq!(owners.len(), 128, "to {new}");
        // Absolute offsets stay.
        assert_eq!(owners[&KeyGroup(33)].1, 20);
    }
}

#[test]
fn k_655_incremental_handles_are_given_whole() {
    let incremental = |name: &str, range| {
        KeyedHandle::Incremental(IncrementalHandle {
            format: Arc::from("sst"),
            backend_id: name.into(),
            checkpoint: CheckpointId(1),
            range,
            private: Vec::new(),
            shared: Vec::new(),
            new_bytes: 0,
            states: Vec::new(),
        })
    };
    let dealt = deal(&keyed(2, incremental), 3);
    let ids: Vec<Vec<KeyGroupRange>> = dealt
        .iter()
        .map(|s| s.managed_keyed.iter().map(KeyedHandle::range).collect())
        .collect();
    let (low, high) = (
        KeyGroupRange::new(KeyGroup(0), KeyGroup(63)),
        KeyGroupRange::new(KeyGroup(64), KeyGroup(127)),
    );
    assert_eq!(ids, [vec![low], vec![low, high], vec![high]]);
}

#[test]
fn k_657_the_number_of_key_groups_is_the_checkpoints_unless_the_user_insists_on_another() {
    let shape = |parallelism, wanted: Option<u32>| OperatorShape {
        parallelism,
        max_parallelism: wanted.map(|n| MaxParallelism::new(n).unwrap()),
    };
    assert_eq!(
        restored_max_parallelism(shape(4, None), max()).unwrap(),
        max()
    );
    assert_eq!(
        restored_max_parallelism(shape(4, Some(128)), max()).unwrap(),
        max()
    );
    for bad in [shape(4, Some(256)), shape(129, None)] {
        assert_eq!(
            restored_max_parallelism(bad, max()).unwrap_err().kind(),
            ErrorKind::Incompatible
        );
    }
}
