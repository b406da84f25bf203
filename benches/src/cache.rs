//! Hot keys behind the object cache in front of a byte store, beside live tables and the bare store, alternated in one run.
use std::sync::Arc;

use backend_testkit::ReferenceStore;
use managed_state::keyed::{KeyedContext, KeyedStates};
use state_api::{KeyedBackend, ObjectCacheBudget, Result, StateKey, SystemClock};

use crate::stopwatch::{Spread, ns_per_op};
use crate::subject::{Facade, Subject};
use crate::table::Table;
use crate::workload::{INSERT_SEED, KEY_GROUPS, Longs, PROBE_SEED, Shape, Structs, Words, keys};

const OPERATIONS: [&str; 4] = ["add", "get", "update", "read-modify-write"];

/// The state of one subtask on the reference byte store, behind a cache of so many bytes; 0 for none.
fn states<K: StateKey>(cache: usize) -> Result<KeyedStates<K>> {
    let mut cx = KeyedContext::single(KEY_GROUPS, Arc::new(SystemClock))?;
    cx.object_cache = (cache > 0).then(|| ObjectCacheBudget::new(cache));
    KeyedStates::new(KeyedBackend::Bytes(Box::new(ReferenceStore::new())), cx)
}

/// Returns the table of every shape: `hot` keys, all of which the cache holds; and `hot` keys of which it holds a quarter.
///
/// # Errors
/// Those of the states.
pub fn table(hot: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "The object cache in front of the reference byte store, {hot} keys, 128 key groups, ns per operation, {rounds} alternations"
        ),
        &[
            "operation",
            "live tables",
            "cached",
            "a quarter cached",
            "no cache",
            "cached ÷ live",
            "no cache ÷ cached",
        ],
    );
    shape::<Longs>(hot, rounds, &mut table)?;
    shape::<Words>(hot, rounds, &mut table)?;
    shape::<Structs>(hot, rounds, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(hot: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let entry = size_of::<S::Key>() + size_of::<S::Value>() + 64;
    let (inserts, probes) = (keys::<S>(hot, INSERT_SEED), keys::<S>(hot, PROBE_SEED));
    let mut all: [[Vec<f64>; 4]; 4] = Default::default();
    for round in 0..=rounds {
        let mut subjects = [
            Facade::<S>::empty()?,
            Facade::over(states(hot * entry * 4)?)?,
            Facade::over(states(hot * entry / 2)?)?,
            Facade::over(states(0)?)?,
        ];
        for (operation, all) in all.iter_mut().enumerate() {
            for turn in 0..4 {
                let which = (round + turn) % 4;
                let subject = &mut subjects[which];
                let mut done = Ok(0);
                let ns = ns_per_op(hot, || {
                    done = match operation {
                        0 => subject.add(&inserts),
                        1 => subject.get(&probes),
                        2 => subject.update(&probes),
                        _ => subject.read_modify_write(&probes),
                    };
                    done.as_ref().map_or(0, |sum| *sum)
                });
                done?;
                // The first round warms up.
                if round > 0 {
                    all[which].push(ns);
                }
            }
        }
    }
    for (operation, [live, cached, quarter, bare]) in OPERATIONS.iter().zip(&all) {
        let ns = |all: &[f64]| format!("{:.1}", Spread::of(all.to_vec()).median);
        let ratio =
            |a: &[f64], b: &[f64]| Spread::of(a.iter().zip(b).map(|(a, b)| a / b).collect());
        table.row([
            format!("{}: {operation}", S::NAME),
            ns(live),
            ns(cached),
            ns(quarter),
            ns(bare),
            format!("{:.2}", ratio(cached, live)),
            format!("{:.2}", ratio(bare, cached)),
        ]);
    }
    Ok(())
}
