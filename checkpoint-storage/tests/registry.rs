//! Area N: the registry of shared objects.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::collections::{BTreeMap, BTreeSet};

use checkpoint_storage::{
    CheckpointMetadata, Ownership, Registration, SharedRegistry, SubtaskMetadata, Unused,
};
use common::*;
use state_api::{
    CheckpointId, ErrorKind, ObjectHandle, OperatorSnapshot, Root, SnapshotKind, StateHandle,
};

fn shared(name: &str) -> ObjectHandle {
    match object(Root::Own, &format!("shared/{name}"), name.as_bytes()) {
        StateHandle::Object(object) => object,
        StateHandle::Inline(_) => unreachable!(),
    }
}

/// A checkpoint that uses these shared objects.
fn using(checkpoint: u64, objects: &[ObjectHandle]) -> CheckpointMetadata {
    let mut all = metadata(checkpoint, 1);
    let files = objects
        .iter()
        .map(|o| file(o.path.as_str(), StateHandle::Object(o.clone())))
        .collect();
    let private = vec![file(
        "private",
        object(Root::Own, &format!("chk-{checkpoint}/1-p"), b"p"),
    )];
    let snapshot = OperatorSnapshot {
        managed_keyed: vec![incremental(checkpoint, private, files)],
        ..OperatorSnapshot::default()
    };
    let mut count = operator("count", 1);
    count.subtasks = vec![SubtaskMetadata::new(0, snapshot)];
    all.operators = vec![count];
    all.collect_roots();
    all
}

fn unused(objects: &[ObjectHandle]) -> Unused {
    Unused {
        objects: objects.to_vec(),
        still_used: BTreeSet::new(),
    }
}

const fn id(n: u64) -> CheckpointId {
    CheckpointId(n)
}

#[test]
fn k_275_a_first_registration_is_new() {
    let mut registry = SharedRegistry::new();
    assert!(registry.is_empty());
    assert_eq!(
        registry.register(id(1), &shared("a")).unwrap(),
        Registration::New
    );
    assert_eq!(registry.uses(&shared("a")), Some((id(1), id(1))));
}

#[test]
fn k_276_an_equal_handle_moves_the_last_use_only() {
    let mut registry = SharedRegistry::new();
    registry.register(id(1), &shared("a")).unwrap();
    assert_eq!(
        registry.register(id(2), &shared("a")).unwrap(),
        Registration::Known
    );
    assert_eq!(registry.uses(&shared("a")), Some((id(1), id(2))));
    // A late acknowledgement of an older checkpoint does not move it back.
    registry.register(id(1), &shared("a")).unwrap();
    assert_eq!(registry.uses(&shared("a")), Some((id(1), id(2))));
    assert_eq!(registry.len(), 1);
}

#[test]
fn k_277_two_objects_under_one_name_are_a_bug_and_nothing_is_deleted() {
    let mut registry = SharedRegistry::new();
    registry.register(id(1), &shared("a")).unwrap();
    let other = ObjectHandle {
        len: 99,
        ..shared("a")
    };
    assert_eq!(
        registry.register(id(2), &other).unwrap_err().kind(),
        ErrorKind::Bug
    );
    assert_eq!(registry.uses(&shared("a")), Some((id(1), id(1))));
    assert_eq!(registry.unregister_unused(id(1)), unused(&[]));
}

#[test]
fn k_279_only_what_was_last_used_below_the_lowest_retained_goes() {
    let mut registry = SharedRegistry::new();
    for n in 1..=3 {
        registry.register(id(n), &shared(&format!("f{n}"))).unwrap();
    }
    assert_eq!(registry.unregister_unused(id(2)), unused(&[shared("f1")]));
    assert_eq!(registry.unregister_unused(id(2)), unused(&[]));
    assert_eq!(registry.len(), 2);
}

#[test]
fn k_281_an_object_goes_with_the_last_checkpoint_that_uses_it() {
    let mut registry = SharedRegistry::new();
    let (f1, f2) = (shared("f1"), shared("f2"));
    registry
        .register_checkpoint(&using(1, std::slice::from_ref(&f1)), Ownership::Own)
        .unwrap();
    registry
        .register_checkpoint(&using(2, &[f1.clone(), f2.clone()]), Ownership::Own)
        .unwrap();
    registry
        .register_checkpoint(&using(3, std::slice::from_ref(&f2)), Ownership::Own)
        .unwrap();
    assert_eq!(registry.unregister_unused(id(2)), unused(&[]));
    assert_eq!(registry.unregister_unused(id(3)), unused(&[f1]));
    assert_eq!(registry.uses(&f2), Some((id(2), id(3))));
}

#[test]
fn k_282_a_claimed_checkpoint_stays_as_a_whole_while_one_of_its_objects_is_used() {
    let mut registry = SharedRegistry::new();
    let url: std::sync::Arc<str> = "file:///savepoint".into();
    let claimed = ObjectHandle {
        root: Root::Url(url),
        ..shared("claimed")
    };
    registry
        .register_checkpoint(
            &using(1, std::slice::from_ref(&claimed)),
            Ownership::Claimed,
        )
        .unwrap();
    for n in [2, 3] {
        registry
            .register_checkpoint(&using(n, std::slice::from_ref(&claimed)), Ownership::Own)
            .unwrap();
    }
    registry
        .register_checkpoint(&using(4, &[shared("new")]), Ownership::Own)
        .unwrap();
    let found = registry.unregister_unused(id(3));
    assert_eq!(
        (found.objects.len(), found.still_used),
        (0, BTreeSet::from([id(1)]))
    );
    assert_eq!(registry.unregister_unused(id(4)), unused(&[claimed]));
}

#[test]
fn a_claimed_checkpoint_loses_none_of_its_objects_before_all_of_them() {
    let mut registry = SharedRegistry::new();
    let (early, late) = (shared("early"), shared("late"));
    registry
        .register_checkpoint(
            &using(1, &[early.clone(), late.clone()]),
            Ownership::Claimed,
        )
        .unwrap();
    registry
        .register_checkpoint(&using(2, std::slice::from_ref(&late)), Ownership::Own)
        .unwrap();
    let found = registry.unregister_unused(id(2));
    assert_eq!(
        (found.objects.len(), found.still_used),
        (0, BTreeSet::from([id(1)]))
    );
    assert_eq!(registry.unregister_unused(id(3)), unused(&[early, late]));
}

#[test]
fn k_286_the_same_object_twice_in_one_checkpoint_is_kept_once() {
    let mut registry = SharedRegistry::new();
    registry
        .register_checkpoint(&using(1, &[shared("a"), shared("a")]), Ownership::Own)
        .unwrap();
    assert_eq!(registry.len(), 1);
    assert_eq!(registry.unregister_unused(id(2)), unused(&[shared("a")]));
}

#[test]
fn k_288_a_closed_registry_takes_nothing_but_still_says_what_goes() {
    let mut registry = SharedRegistry::new();
    registry.register(id(1), &shared("a")).unwrap();
    registry.close();
    assert_eq!(
        registry.register(id(2), &shared("b")).unwrap_err().kind(),
        ErrorKind::Poisoned
    );
    assert_eq!(registry.unregister_unused(id(2)), unused(&[shared("a")]));
}

#[test]
fn k_291_a_registry_rebuilt_from_retained_checkpoints_in_any_order_knows_first_and_last_use() {
    let (old, both, new) = (shared("old"), shared("both"), shared("new"));
    let three = using(3, &[old.clone(), both.clone()]);
    let four = using(4, &[both.clone(), new.clone()]);
    for retained in [[&three, &four], [&four, &three]] {
        let registry = SharedRegistry::rebuild(retained).unwrap();
        assert_eq!(registry.uses(&old), Some((id(3), id(3))));
        assert_eq!(registry.uses(&both), Some((id(3), id(4))));
        assert_eq!(registry.uses(&new), Some((id(4), id(4))));
    }
}

#[test]
fn nothing_of_a_checkpoint_that_was_not_claimed_is_ever_deleted() {
    let mut registry = SharedRegistry::new();
    let theirs = shared("theirs");
    registry
        .register_checkpoint(
            &using(10, std::slice::from_ref(&theirs)),
            Ownership::NotClaimed,
        )
        .unwrap();
    registry.register(id(11), &theirs).unwrap();
    registry.register(id(11), &shared("ours")).unwrap();
    assert_eq!(
        registry.unregister_unused(id(12)),
        unused(&[shared("ours")])
    );
    assert!(registry.is_empty());
}

#[test]
fn savepoints_of_the_job_take_no_part() {
    let mut registry = SharedRegistry::new();
    let savepoint = CheckpointMetadata {
        kind: SnapshotKind::NativeSavepoint,
        ..using(1, &[shared("a")])
    };
    registry
        .register_checkpoint(&savepoint, Ownership::Own)
        .unwrap();
    assert!(registry.is_empty());
}

#[test]
fn private_objects_are_not_registered() {
    let mut registry = SharedRegistry::new();
    registry
        .register_checkpoint(&using(1, &[shared("a")]), Ownership::Own)
        .unwrap();
    assert_eq!(registry.len(), 1);
}

#[test]
fn in_whatever_order_objects_are_named_and_forgotten_the_registry_knows_what_a_map_would() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let all: Vec<_> = (0..40).map(|n| shared(&n.to_string())).collect();
    // Checkpoints: how many objects in a row are left out, from where on, and what is the lowest retained one.
    let checkpoint = (0..40usize, 0..40usize, any::<bool>(), 0..4u64);
    let config = Config::with_cases(200);
    let mut runner = TestRunner::new(config);
    let walks = proptest::collection::vec(checkpoint, 1..20);
    runner
        .run(&walks, |walk| {
            let mut registry = SharedRegistry::new();
            let mut model: BTreeMap<String, (CheckpointId, CheckpointId)> = BTreeMap::new();
            for ((skipped, from, backwards, back), n) in walk.into_iter().zip(1..) {
                let mut used: Vec<_> = (skipped..40).map(|i| &all[(from + i) % 40]).collect();
                if backwards {
                    used.reverse();
                }
                for object in used {
                    let known = registry.register(id(n), object).unwrap();
                    let uses = model.entry(object.to_string());
                    let expected = match uses {
                        std::collections::btree_map::Entry::Occupied(_) => Registration::Known,
                        std::collections::btree_map::Entry::Vacant(_) => Registration::New,
                    };
                    prop_assert_eq!(known, expected);
                    uses.or_insert((id(n), id(n))).1 = id(n);
                }
                let lowest = id(n.saturating_sub(back));
                let gone = registry.unregister_unused(lowest).objects;
                let gone: BTreeSet<_> = gone.iter().map(ToString::to_string).collect();
                let unused = model.extract_if(.., |_, (_, last)| *last < lowest);
                prop_assert_eq!(gone, unused.map(|(name, _)| name).collect::<BTreeSet<_>>());
                prop_assert_eq!(registry.len(), model.len());
                for object in &all {
                    let expected = model.get(&object.to_string()).copied();
                    prop_assert_eq!(registry.uses(object), expected);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn k_277_an_object_that_comes_where_another_of_its_name_came_is_a_bug_too() {
    let mut registry = SharedRegistry::new();
    for name in ["a", "b", "c"] {
        registry.register(id(1), &shared(name)).unwrap();
    }
    registry.register(id(2), &shared("a")).unwrap();
    let other = ObjectHandle {
        len: 7,
        ..shared("b")
    };
    let error = registry.register(id(2), &other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert_eq!(registry.uses(&shared("b")), Some((id(1), id(1))));
    registry.register(id(2), &shared("b")).unwrap();
    assert_eq!(registry.uses(&shared("b")), Some((id(1), id(2))));
}
