//! Asking ahead for keys: live tables look at the entries, once they are larger than the processor's caches.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_hashmap::HashMapSnapshots;
use managed_state::keyed::{KeyedContext, KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{
    KeyGroup, KeyGroupRange, KeyedBackend, ManualClock, MaxParallelism, Result, Schema, StateType,
    Value,
};

static TOUCHED: AtomicUsize = AtomicUsize::new(0);

/// A large value that counts how often it is touched.
#[derive(Clone)]
struct Noticing([u8; 1024]);

impl StateType for Noticing {
    const FIXED_SIZE: Option<usize> = <[u8; 1024]>::FIXED_SIZE;
    const HAS_HEAP: bool = false;

    fn schema() -> Schema {
        <[u8; 1024]>::schema()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        StateType::decode(input).map(Self)
    }

    fn to_value(&self) -> Value {
        self.0.to_value()
    }

    fn from_value(value: Value) -> Result<Self> {
        StateType::from_value(value).map(Self)
    }

    fn touch(&self) -> u8 {
        TOUCHED.fetch_add(1, Ordering::Relaxed);
        self.0[0]
    }
}

#[test]
fn entries_of_the_own_groups_are_looked_at_once_a_table_is_large() {
    let backend = KeyedBackend::Live(Box::new(HashMapSnapshots));
    let max = MaxParallelism::new(128).unwrap();
    let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(63));
    let cx = KeyedContext::new(max, range, Arc::new(ManualClock::at(0)), 7);
    let mut states = KeyedStates::<u64>::new(backend, cx).unwrap();
    let value: ValueState<Noticing> = states.value("value").unwrap();
    let own: Vec<u64> = (0..4_000)
        .filter(|key| range.contains(states.hash(key).group()))
        .take(1_000)
        .collect();
    let touched = |states: &mut KeyedStates<u64>| {
        let keys: Vec<u64> = (0..4_000).collect();
        let hashes: Vec<_> = keys.iter().map(|key| states.hash(key)).collect();
        states.prefetch(keys.iter().zip(hashes));
        TOUCHED.swap(0, Ordering::Relaxed)
    };
    let set = |states: &mut KeyedStates<u64>, keys: &[u64]| {
        for key in keys {
            states
                .at(key)
                .value(value)
                .set(Noticing([1; 1024]))
                .unwrap();
        }
    };
    set(&mut states, &own[..100]);
    assert_eq!(touched(&mut states), 0, "100 KiB are in the caches anyway");
    set(&mut states, &own);
    assert_eq!(touched(&mut states), own.len());
    states.at(&own[0]).value(value).clear().unwrap();
    assert_eq!(touched(&mut states), own.len() - 1);
}
