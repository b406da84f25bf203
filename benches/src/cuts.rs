//! The sync part of a snapshot, first writes while one is open, and merging afterwards.
use std::hint::black_box;

use backend_hashmap::HashMapSnapshots;
use managed_state::keyed::{KeyedStates, ValueState};
use state_api::Result;
use state_api::access::ValueAccess;

use crate::disk::request;
use crate::stopwatch::{Spread, core_seconds, seconds};
use crate::subject::{Facade, Subject, live_states, states_with};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Structs, Words, keys, mix64};

const TIMES: usize = 9;

/// Returns the table of the sync part: one state of `n` keys in 128 groups, and 20 states in 32,768 groups.
///
/// # Errors
/// Those of the states.
pub fn sync_table(n: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "Sync part of a snapshot, {TIMES} times after writes to every key group, µs: median (least–most)"
        ),
        &["state", "µs"],
    );
    for n in [n / 10, n] {
        let mut facade = Facade::<Longs>::empty()?;
        facade.add(&keys::<Longs>(n, INSERT_SEED))?;
        let state = facade.state;
        let cut = cuts(&mut facade.states, &[state], n)?;
        table.row([
            format!("1 state, {n} keys, 128 groups"),
            format!("{cut:.0}"),
        ]);
    }
    let mut states = states_with(Box::new(HashMapSnapshots), 32_768, 0.25)?;
    let many = (0..20)
        .map(|number| states.value(format!("state {number}").as_str()))
        .collect::<Result<Vec<ValueState<u64>>>>()?;
    let each = n / 10;
    for id in 0..each as u64 {
        let key = mix64(id);
        for state in &many {
            states.at(&key).value(*state).set(id)?;
        }
    }
    let cut = cuts(&mut states, &many, each)?;
    table.row([
        format!("20 states, {each} keys each, 32768 groups"),
        format!("{cut:.0}"),
    ]);
    Ok(table)
}

/// Takes snapshots and drops them, after writes that reach every key group; microseconds of the sync part.
fn cuts(states: &mut KeyedStates<u64>, tokens: &[ValueState<u64>], n: usize) -> Result<Spread> {
    let mut all = Vec::new();
    for time in 0..=TIMES as u64 {
        // Nobody holds the last one: its layers are merged before the next.
        while states.maintain(1 << 20) {}
        let step = (n / 100_000).max(1);
        for id in (0..n as u64).step_by(step) {
            let key = mix64(id);
            for token in tokens {
                states.at(&key).value(*token).set(id + time)?;
            }
        }
        let (snapshot, took) = seconds(|| states.snapshot(&request(time + 1)));
        drop(black_box(snapshot?));
        if time > 0 {
            all.push(took * 1e6);
        }
    }
    Ok(Spread::of(all))
}

/// Returns what a snapshot costs writers: the first write of an entry while one is open, and merging once it is gone.
///
/// # Errors
/// Those of the states.
pub fn layer_table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Writes around a snapshot, {n} keys, ns per entry"),
        &[
            "shape",
            "read-modify-write, no snapshot",
            "first while one is open",
            "again while it is open",
            "get, half of it in the overlay",
            "merge, by itself",
        ],
    );
    layers::<Longs>(n, rounds, &mut table)?;
    layers::<Words>(n, rounds, &mut table)?;
    layers::<Structs>(n, rounds, &mut table)?;
    Ok(table)
}

fn layers<S: Shape>(n: usize, rounds: usize, table: &mut Table) -> Result<()> {
    // Half of the entries are written while the snapshot is open: more than the default limit for overlays.
    let mut facade = Facade::<S>::over(states_with(
        Box::new(HashMapSnapshots),
        crate::workload::KEY_GROUPS,
        4.0,
    )?)?;
    facade.add(&keys::<S>(n, INSERT_SEED))?;
    let probes = keys::<S>(n, PROBE_SEED);
    let half = &probes[..n / 2];
    let mut all: [Vec<f64>; 5] = Default::default();
    for round in 0..=rounds as u64 {
        let ns = |seconds: f64, entries: usize| seconds * 1e9 / entries as f64;
        let (done, idle) = core_seconds(|| facade.read_modify_write(half));
        done?;
        let snapshot = facade.states.snapshot(&request(round + 1))?;
        let (done, first) = core_seconds(|| facade.read_modify_write(half));
        done?;
        let (done, again) = core_seconds(|| facade.read_modify_write(half));
        done?;
        let (done, get) = core_seconds(|| facade.get(&probes));
        black_box(done?);
        drop(snapshot);
        let ((), merge) = core_seconds(|| while facade.states.maintain(1 << 16) {});
        if round > 0 {
            let measured = [
                ns(idle, half.len()),
                ns(first, half.len()),
                ns(again, half.len()),
                ns(get, n),
                ns(merge, half.len()),
            ];
            for (into, ns) in all.iter_mut().zip(measured) {
                into.push(ns);
            }
        }
    }
    let cells = all
        .into_iter()
        .map(|ns| format!("{:.0}", Spread::of(ns).median));
    table.row(std::iter::once(S::NAME.to_owned()).chain(cells));
    Ok(())
}

/// Returns whether states that own everything come back to one layer; for tests.
///
/// # Errors
/// Those of the states.
pub fn settles(n: usize) -> Result<bool> {
    let mut facade = Facade::<Longs>::over(live_states()?)?;
    let probes = keys::<Longs>(n, INSERT_SEED);
    facade.add(&probes)?;
    drop(facade.states.snapshot(&request(1))?);
    facade.read_modify_write(&probes)?;
    while facade.states.maintain(1 << 16) {}
    Ok(facade.states.memory().overlays == 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn layers_are_merged_once_a_snapshot_is_gone() {
        assert!(super::settles(10_000).unwrap());
    }
}
