//! Area K of the catalogue over a byte store.
use std::time::Duration;

use state_api::access::{ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess};
use state_api::{StateKind, TtlConfig, TtlUpdate, TtlVisibility};

use super::tests::{Fixture, bound};
use super::*;

fn ttl() -> TtlConfig {
    TtlConfig::new(Duration::from_millis(100)).unwrap()
}

struct Timed {
    f: Fixture,
    state: ByteState,
}

impl Timed {
    fn new(kind: StateKind, ttl: TtlConfig) -> Self {
        let mut f = Fixture::new();
        let state = f.state::<u64, u32, u64>("s", kind, Some(ttl));
        Self { f, state }
    }

    fn at(&mut self, now: i64) -> &mut Self {
        self.f.clock.set(now);
        self
    }

    fn value(&mut self) -> ByteValue<'_, u64> {
        ByteValue::new(self.state.at(&mut self.f.store, &bound(&1u64), &1u32), None)
    }

    fn list(&mut self) -> ByteList<'_, u64> {
        ByteList::new(self.state.at(&mut self.f.store, &bound(&1u64), &1u32))
    }

    fn map(&mut self) -> ByteSortedMap<'_, u64, u64> {
        ByteSortedMap::new(self.state.at(&mut self.f.store, &bound(&1u64), &1u32))
    }

    fn stored(&self) -> usize {
        self.f.store.column(self.state.column()).len()
    }
}

#[test]
fn k_171_k_173_a_value_expires_counted_from_its_latest_write() {
    let mut t = Timed::new(StateKind::Value, ttl());
    assert_eq!(t.value().get().unwrap(), None);
    for write in [0, 50] {
        t.at(write).value().set(5).unwrap();
    }
    assert_eq!(t.at(120).value().get().unwrap(), Some(5));
    t.at(170).value().set(6).unwrap();
    assert_eq!(t.at(220).value().get().unwrap(), Some(6));
    assert_eq!(t.at(300).value().get().unwrap(), None);
    assert_eq!(t.stored(), 0);
}

#[test]
fn k_174_an_expired_value_is_seen_once_when_visibility_is_relaxed() {
    let mut t = Timed::new(
        StateKind::Value,
        ttl().visibility(TtlVisibility::ReturnExpiredIfNotCleanedUp),
    );
    t.value().set(5).unwrap();
    assert_eq!(t.at(100).value().get().unwrap(), Some(5));
    assert_eq!(t.value().get().unwrap(), None);
}

#[test]
fn k_175_k_176_reads_renew_when_asked_to() {
    for relaxed in [false, true] {
        let config = ttl().update(TtlUpdate::OnReadAndWrite);
        let visible = if relaxed {
            TtlVisibility::ReturnExpiredIfNotCleanedUp
        } else {
            TtlVisibility::NeverReturnExpired
        };
        let mut t = Timed::new(StateKind::Value, config.visibility(visible));
        t.value().set(5).unwrap();
        for now in [60, 120, 180, 240] {
            assert_eq!(t.at(now).value().get().unwrap(), Some(5));
        }
        assert_eq!(t.at(340).value().get().unwrap(), relaxed.then_some(5));
        assert_eq!(t.value().get().unwrap(), None);
    }
}

#[test]
fn k_177_the_longest_time_to_live_never_wraps() {
    let mut t = Timed::new(StateKind::Value, TtlConfig::new(Duration::MAX).unwrap());
    t.at(10).value().set(5).unwrap();
    assert_eq!(t.at(50).value().get().unwrap(), Some(5));
}

#[test]
fn k_178_a_change_of_an_expired_value_starts_afresh() {
    let mut t = Timed::new(StateKind::Value, ttl());
    t.value().set(5).unwrap();
    t.at(99).value().update(|n| *n += 1).unwrap();
    assert_eq!(t.at(198).value().get().unwrap(), Some(6));
    t.at(199).value().update(|n| *n += 1).unwrap();
    assert_eq!(t.value().get().unwrap(), Some(1));
}

#[test]
fn k_181_list_elements_expire_one_by_one_and_the_last_clears_the_list() {
    let mut t = Timed::new(StateKind::List, ttl());
    t.at(0).list().push(1).unwrap();
    t.at(50).list().extend(vec![2, 3]).unwrap();
    t.at(90).list().push(4).unwrap();
    assert_eq!(t.at(99).list().get().unwrap(), [1, 2, 3, 4]);
    assert_eq!(t.at(100).list().get().unwrap(), [2, 3, 4]);
    assert_eq!(t.at(150).list().len().unwrap(), 1);
    assert_eq!(t.stored(), 1);
    assert_eq!(t.at(190).list().pop_front().unwrap(), None);
    assert_eq!(t.stored(), 0);
}

#[test]
fn list_elements_are_renewed_by_reads_and_seen_once_more_as_configured() {
    let mut t = Timed::new(StateKind::List, ttl().update(TtlUpdate::OnReadAndWrite));
    t.list().push(1).unwrap();
    t.at(90).list().push(2).unwrap();
    assert_eq!(t.at(99).list().get().unwrap(), [1, 2]);
    assert_eq!(t.at(198).list().get().unwrap(), [1, 2]);
    assert_eq!(t.at(298).list().get().unwrap(), []);

    let mut t = Timed::new(
        StateKind::List,
        ttl().visibility(TtlVisibility::ReturnExpiredIfNotCleanedUp),
    );
    t.list().push(1).unwrap();
    t.at(50).list().push(2).unwrap();
    assert_eq!(t.at(100).list().get().unwrap(), [1, 2]);
    assert_eq!(t.list().get().unwrap(), [2]);
}

#[test]
fn k_180_map_entries_expire_one_by_one_everywhere() {
    let mut t = Timed::new(StateKind::SortedMap, ttl());
    t.at(0).map().put(1, 10).unwrap();
    t.at(0).map().put(9, 90).unwrap();
    t.at(50).map().put_all(vec![(2, 20), (3, 30)]).unwrap();
    t.at(100);
    assert_eq!(t.map().get(&1).unwrap(), None);
    assert_eq!(t.stored(), 3);
    assert!(!t.map().contains(&1).unwrap());
    assert!(!t.map().remove(&9).unwrap());
    t.at(0).map().put(1, 10).unwrap();
    t.at(0).map().put(9, 90).unwrap();
    t.at(100);
    assert_eq!(t.map().first().unwrap(), Some((2, 20)));
    assert_eq!(t.map().last().unwrap(), Some((3, 30)));
    t.at(0).map().put(1, 10).unwrap();
    t.at(100);
    assert_eq!(t.map().entries().unwrap(), [(2, 20), (3, 30)]);
    assert_eq!(t.stored(), 2);
    // 3.08: what is expired but still there counts.
    t.at(150);
    assert!(!t.map().is_empty().unwrap());
    t.map()
        .retain(|_, _| panic!("expired entries are not shown"))
        .unwrap();
    assert!(t.map().is_empty().unwrap());
}

#[test]
fn map_entries_are_renewed_by_reads_and_seen_once_more_as_configured() {
    let mut t = Timed::new(
        StateKind::SortedMap,
        ttl().update(TtlUpdate::OnReadAndWrite),
    );
    t.map().put_all((0..300).map(|n| (n, n)).collect()).unwrap();
    assert_eq!(t.at(99).map().entries().unwrap().len(), 300);
    assert_eq!(t.at(198).map().entries().unwrap().len(), 300);
    assert_eq!(t.at(298).map().entries().unwrap().len(), 0);

    let mut t = Timed::new(
        StateKind::SortedMap,
        ttl().visibility(TtlVisibility::ReturnExpiredIfNotCleanedUp),
    );
    t.map().put_all((0..300).map(|n| (n, n)).collect()).unwrap();
    assert_eq!(t.at(100).map().get(&7).unwrap(), Some(7));
    assert_eq!(t.map().get(&7).unwrap(), None);
    assert_eq!(t.map().entries().unwrap().len(), 299);
    assert_eq!(t.map().entries().unwrap().len(), 0);
}

#[test]
fn k_182_a_merge_takes_what_is_alive_and_renews_it() {
    let mut t = Timed::new(StateKind::Reducing, ttl());
    let key = bound(&1u64);
    for (now, namespace, n) in [(0, 1u32, 1), (60, 2, 10)] {
        t.at(now);
        ByteReducing::new(
            t.state.at(&mut t.f.store, &key, &namespace),
            &|a: &u64, b| Ok(a + b),
        )
        .add(n)
        .unwrap();
    }
    t.at(120);
    merge_reducing(
        &mut t.state,
        &mut t.f.store,
        &key,
        &1u32,
        &[2, 3],
        &|a: &u64, b| Ok(a + b),
    )
    .unwrap();
    assert_eq!(t.at(219).value().get().unwrap(), Some(10));
    assert_eq!(t.at(220).value().get().unwrap(), None);

    // Sources of which none is alive leave the target's time alone.
    t.at(300);
    t.value().set(5).unwrap();
    merge_reducing(
        &mut t.state,
        &mut t.f.store,
        &key,
        &1u32,
        &[2, 3],
        &|a: &u64, b| Ok(a + b),
    )
    .unwrap();
    assert_eq!(t.at(399).value().get().unwrap(), Some(5));
    merge_reducing(
        &mut t.state,
        &mut t.f.store,
        &key,
        &1u32,
        &[2, 3],
        &|a: &u64, b| Ok(a + b),
    )
    .unwrap();
    assert_eq!(t.at(400).value().get().unwrap(), None);

    let mut t = Timed::new(StateKind::List, ttl());
    for (now, namespace, n) in [(0, 1u32, 1u64), (60, 2, 10)] {
        t.at(now);
        ByteList::new(t.state.at(&mut t.f.store, &key, &namespace))
            .push(n)
            .unwrap();
    }
    t.at(120);
    merge_lists(&mut t.state, &mut t.f.store, &key, &1u32, &[2, 3]).unwrap();
    assert_eq!(t.at(219).list().get().unwrap(), [10]);
    assert_eq!(t.at(220).list().get().unwrap(), []);
}

#[test]
fn k_183_k_184_keys_and_namespaces_expire_separately() {
    let mut t = Timed::new(StateKind::Value, ttl());
    for (now, key, namespace) in [(0, 1u64, 1u32), (30, 2, 1), (60, 1, 2)] {
        t.at(now);
        ByteValue::<u64>::new(t.state.at(&mut t.f.store, &bound(&key), &namespace), None)
            .set(key)
            .unwrap();
    }
    for (now, alive) in [
        (99, [true, true, true]),
        (100, [false, true, true]),
        (130, [false, false, true]),
        (160, [false; 3]),
    ] {
        t.at(now);
        for ((key, namespace), alive) in [(1u64, 1u32), (2, 1), (1, 2)].into_iter().zip(alive) {
            let mut view =
                ByteValue::<u64>::new(t.state.at(&mut t.f.store, &bound(&key), &namespace), None);
            assert_eq!(
                view.get().unwrap(),
                alive.then_some(key),
                "key {key} at {now}"
            );
        }
    }
}

#[test]
fn k_201_an_expired_accumulator_is_begun_afresh() {
    let mut t = Timed::new(StateKind::Reducing, ttl());
    let key = bound(&1u64);
    for (now, sum) in [(0, 1), (99, 2), (198, 3), (298, 1)] {
        t.at(now);
        let mut view = ByteReducing::new(t.state.at(&mut t.f.store, &key, &1u32), &|a: &u64, b| {
            Ok(a + b)
        });
        view.add(1).unwrap();
        assert_eq!(view.get().unwrap(), Some(sum));
    }
}
