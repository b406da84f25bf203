//! The rules of a backend: one plain function each, whose name is the rule.
//!
//! A function takes a [`Setup`](crate::Setup), writes state, calls [`Job::settle`](crate::Job::settle), which does what the
//! mode asks for, and asserts. It panics when the rule is broken. Which rules there are is listed in [`Suite`](crate::Suite).
pub mod canonical;
pub mod faults;
pub mod isolation;
pub mod keys;
pub mod list;
pub mod map;
pub mod merging;
pub mod migration;
pub mod routing;
pub mod snapshot;
pub mod sorted_map;
pub mod timers;
pub mod ttl;
pub mod value;

mod prelude {
    pub(super) use std::collections::{BTreeMap, BTreeSet};
    pub(super) use std::sync::Arc;
    pub(super) use std::time::Duration;

    pub(super) use managed_state::keyed::{
        At, KeyedStates as States, ListState, MapState, ReducingState, SortedMapState, Timers,
        ValueState,
    };
    pub(super) use state_api::access::{
        Aggregator, ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess,
    };
    pub(super) use state_api::{
        CodecKind, Error, ErrorKind, HashId, KeyGroup, KeyHash, KeyedHandle, Result, SnapshotKind,
        StateHandle, StateKey, StateOptions, StateType, TtlConfig, TtlUpdate, TtlVisibility,
    };

    pub(super) use crate::executor::{
        InlineExecutor, ManualExecutor, block_on, poll_once, poll_until,
    };
    pub(super) use crate::job::Job;
    pub(super) use crate::setup::{Checkpoint, Setup, fails, ok};
    pub(super) use crate::storage::{Call, CountingStorage, Fault, FaultyStorage};

    /// Registers a value state named `value`.
    pub(super) fn value<K: StateKey>(states: &mut States<K>) -> Result<ValueState<u64>> {
        states.value("value")
    }

    pub(super) fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
        items.sort();
        items
    }

    /// The keys of the rules about merging namespaces: 1 is the target, 2 and 3 are the sources.
    pub(super) const NAMESPACE_KEYS: [&str; 5] = ["abc", "def", "ghi", "jkl", "mno"];

    /// Gives each key but `ghi` the elements 11, 22, 33, 44 and 55, spread over the namespaces in another way.
    pub(super) fn fill_namespaces<S: Copy>(
        job: &mut Job<String, S>,
        add: impl Fn(&mut At<'_, String>, S, u32, u64) -> Result<()>,
    ) {
        let placed: [(&str, [u32; 5]); 4] = [
            ("abc", [1, 1, 2, 3, 3]),
            ("def", [1, 1, 3, 3, 3]),
            ("jkl", [1; 5]),
            ("mno", [3; 5]),
        ];
        for (key, namespaces) in placed {
            for (namespace, element) in namespaces.into_iter().zip([11, 22, 33, 44, 55]) {
                job.at(&key.to_owned(), |at, state| {
                    add(at, state, namespace, element)
                });
            }
        }
    }
}
