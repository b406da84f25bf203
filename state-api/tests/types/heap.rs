//! Heap sizes that types report, against what the allocator gave out.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use backend_testkit::meter::held_by;
use bytes::Bytes;
use state_api::StateType;

use crate::derived::{Carrier, Shape};

/// Checks that a reported size is within 15 % of the allocator's.
fn is_honest<T: StateType>(what: &str, build: impl FnOnce() -> T) {
    let (value, held) = held_by(build);
    let reported = value.heap_size();
    let off = reported.abs_diff(held);
    assert!(
        off * 100 <= held * 15,
        "{what}: {reported} reported, {held} held"
    );
}

#[test]
fn reported_heap_sizes_are_within_15_percent_of_the_allocator() {
    is_honest("string", || "x".repeat(1000));
    is_honest("shared string", || Arc::<str>::from("x".repeat(1000)));
    is_honest("boxed string", || "x".repeat(1000).into_boxed_str());
    is_honest("byte string", || Bytes::from(vec![1; 1000]));
    is_honest("list", || (0..1000u64).collect::<Vec<_>>());
    is_honest("list of strings", || {
        (0..1000).map(|i| format!("value {i}")).collect::<Vec<_>>()
    });
    is_honest("deque", || (0..1000u64).collect::<VecDeque<_>>());
    is_honest("box", || Box::new([7u64; 100]));
    is_honest("option", || Some("x".repeat(1000)));
    is_honest("array", || [(); 3].map(|()| "x".repeat(100)));
    is_honest("struct", || vec![Carrier("x".repeat(1000)); 3]);
    is_honest("enum", || {
        let name = "x".repeat(1000);
        Shape::Circle { radius: 1, name }
    });
    for len in [3u64, 7, 14, 100, 10_000] {
        is_honest("hash map", || {
            (0..len).map(|i| (i, i)).collect::<HashMap<_, _>>()
        });
        is_honest("hash set", || (0..len).collect::<HashSet<_>>());
    }
    let scattered = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for len in [0, 1, 11, 1000, 10_000] {
        is_honest("tree map", || {
            (0..len).fold(BTreeMap::new(), |mut map, i| {
                map.insert(scattered(i), i);
                map
            })
        });
        is_honest("tree set", || {
            (0..len).fold(BTreeSet::new(), |mut set, i| {
                set.insert(scattered(i));
                set
            })
        });
    }
    is_honest("nothing", || (7u64, true, [1u16; 3]));
}
