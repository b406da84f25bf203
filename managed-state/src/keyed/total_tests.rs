//! Whether the running total of a subtask's tables is what adding up gives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use state_api::access::{ListAccess, MapAccess, MergeAccess, ValueAccess};
use state_api::{
    CheckpointId, FrozenTables, KeyGroup, KeyGroupRange, KeyedBackend, KeyedHandle, LiveSnapshots,
    LoadTables, ManualClock, MaxParallelism, RestoreContext, Result, Snapshot, SnapshotKind,
    SnapshotRequest, StateOptions, TtlConfig,
};

use crate::format::{CANONICAL, FrozenTablesSnapshot, load_tables};
use crate::keyed::states::Slots;
use crate::keyed::{KeyedContext, KeyedStates};

/// Holds on to tables, and wants to know what changes if told so.
struct Holding {
    captures: bool,
    base: Option<CheckpointId>,
}

impl LiveSnapshots for Holding {
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

    fn captures_changes(&self) -> bool {
        self.captures
    }

    fn needs_changes_since(&self) -> Option<CheckpointId> {
        self.base
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.base = Some(checkpoint);
        Ok(())
    }
}

/// Checks the running total of a set of states.
fn check(states: &mut KeyedStates<u64>, settles: bool, what: &str) {
    let total = states.memory().total;
    let Slots::Live(live) = &mut states.slots else {
        panic!("live tables were asked for");
    };
    let added_up: usize = live
        .slots
        .iter()
        .map(|entry| entry.slot.count_bytes())
        .sum();
    assert_eq!(total, added_up, "{what}");
    if settles {
        let kept = live.total.as_mut().unwrap().settle(&mut live.slots);
        assert_eq!(kept, added_up, "{what}");
    }
}

#[test]
fn the_running_total_is_what_adding_up_gives_whatever_a_subtask_does() {
    for seed in 0..16_u64 {
        let mut random = seed + 1;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % below
        };
        let max = [8, 300][seed as usize % 2];
        let clock = Arc::new(ManualClock::at(0));
        let mut cx = KeyedContext::new(
            MaxParallelism::new(max).unwrap(),
            KeyGroupRange::new(KeyGroup(0), KeyGroup((max - 1) as u16)),
            clock.clone(),
            7,
        );
        cx.memory_limit = Some(1 << 40);
        let strategy = Holding {
            captures: seed % 4 < 2,
            base: None,
        };
        let mut states =
            KeyedStates::<u64>::new(KeyedBackend::Live(Box::new(strategy)), cx).unwrap();
        let ttl = |per_record| {
            TtlConfig::new(Duration::from_millis(500))
                .unwrap()
                .cleanup_incrementally(4, per_record)
                .unwrap()
        };
        let value = states.value::<String, ()>("value").unwrap();
        let timed = states
            .value::<String, ()>(StateOptions::new("timed").ttl(ttl(seed % 2 == 0)))
            .unwrap();
        let list = states.list::<String, u32>("list").unwrap();
        let timed_list = states
            .list::<u64, ()>(StateOptions::new("timed list").ttl(ttl(true)))
            .unwrap();
        let map = states.map::<String, u64, ()>("map").unwrap();
        let sorted = states.sorted_map::<u64, String, ()>("sorted").unwrap();
        let sum = states
            .reducing::<u64, u32>("sum", |a: &u64, b| Ok(a.wrapping_add(b)))
            .unwrap();
        let timers = states.timers::<u32>("timers").unwrap();
        let (mut open, mut id) = (Vec::new(), 0);
        for step in 0..3000 {
            let (key, n) = (next(400), next(1 << 20));
            let text = "x".repeat(n as usize % 300);
            let namespace = (n % 3) as u32;
            let what = next(1000);
            match what {
                0..150 => states.at(&key).value(value).set(text).unwrap(),
                150..200 => states.at(&key).value(value).clear().unwrap(),
                200..300 => states.at(&key).value(timed).set(text).unwrap(),
                300..400 => states
                    .at(&key)
                    .list_in(list, &namespace)
                    .push(text)
                    .unwrap(),
                400..420 => states.at(&key).list_in(list, &namespace).clear().unwrap(),
                420..440 => states.at(&key).merge_lists(list, &0, &[1, 2]).unwrap(),
                440..500 => states.at(&key).list(timed_list).push(n).unwrap(),
                500..580 => {
                    states
                        .at(&key)
                        .map(map)
                        .put(format!("{}", n % 40), n)
                        .unwrap();
                }
                580..620 => {
                    states
                        .at(&key)
                        .map(map)
                        .remove(&format!("{}", n % 40))
                        .unwrap();
                }
                620..680 => {
                    states
                        .at(&key)
                        .sorted_map(sorted)
                        .put(n % 40, text)
                        .unwrap();
                }
                680..740 => {
                    states.at(&key).reducing_in(sum, &namespace).add(n).unwrap();
                }
                740..750 => states.at(&key).merge_reducing(sum, &0, &[1, 2]).unwrap(),
                750..800 => {
                    let mut at = states.at(&key);
                    at.timers_in(timers, &namespace).set(n as i64).unwrap();
                }
                800..820 => {
                    let mut at = states.at(&key);
                    at.timers_in(timers, &namespace).remove(n as i64).unwrap();
                }
                820..840 => drop(states.pop_due(timers.erase::<u64>(), n as i64).unwrap()),
                840..880 => states.sweep_for_record(),
                880..920 => drop(states.maintain(n as usize % 300)),
                920..940 => clock.advance(n as i64 % 300),
                940..960 => {
                    id += 1;
                    let kind = match n % 4 {
                        0 => SnapshotKind::CanonicalSavepoint,
                        _ => SnapshotKind::Checkpoint,
                    };
                    let request = SnapshotRequest {
                        checkpoint: CheckpointId(id),
                        kind,
                        now_ms: 0,
                    };
                    open.extend(states.snapshot(&request).ok());
                }
                960..980 if !open.is_empty() => {
                    drop(open.swap_remove(n as usize % open.len()));
                }
                980..985 => states.checkpoint_completed(CheckpointId(id)).unwrap(),
                985..990 => states.checkpoint_aborted(CheckpointId(id)).unwrap(),
                _ => drop(states.at(&key).value(value).get().unwrap()),
            }
            check(
                &mut states,
                n % 4 == 0,
                &format!("seed {seed}, step {step}, {what}"),
            );
        }
        // One that comes late counts too.
        let late = states.value::<String, ()>("late").unwrap();
        states.at(&1).value(late).set("x".repeat(1000)).unwrap();
        check(&mut states, true, "a late one");
    }
}
