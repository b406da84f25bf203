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

/// The byte store behind the cache.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    name: &'static str,
    open: fn() -> Result<KeyedBackend>,
}

impl Behind {
    /// The reference byte store, a sorted map in memory.
    pub const REFERENCE: Self = Self {
        name: "the reference byte store",
        open: || Ok(KeyedBackend::Bytes(Box::new(ReferenceStore::new()))),
    };

    /// RocksDB with its default options and enough memory for all keys.
    #[cfg(feature = "rocksdb")]
    pub const ROCKSDB: Self = Self {
        name: "RocksDB",
        open: crate::rocksdb::in_memory,
    };

    /// The state of one subtask on the store, behind a cache of so many bytes; 0 for none.
    fn states<K: StateKey>(self, cache: usize) -> Result<KeyedStates<K>> {
        let mut cx = KeyedContext::single(KEY_GROUPS, Arc::new(SystemClock))?;
        cx.object_cache = (cache > 0).then(|| ObjectCacheBudget::new(cache));
        KeyedStates::new((self.open)()?, cx)
    }
}

/// Returns the table of every shape: `hot` keys, all of which the cache holds; and `hot` keys of which it holds a quarter.
///
/// # Errors
/// Those of the states.
pub fn table(behind: Behind, hot: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "The object cache in front of {}, {hot} keys, 128 key groups, ns per operation, {rounds} alternations",
            behind.name
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
    shape::<Longs>(behind, hot, rounds, &mut table)?;
    shape::<Words>(behind, hot, rounds, &mut table)?;
    shape::<Structs>(behind, hot, rounds, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(behind: Behind, hot: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let entry = size_of::<S::Key>() + size_of::<S::Value>() + 64;
    let (inserts, probes) = (keys::<S>(hot, INSERT_SEED), keys::<S>(hot, PROBE_SEED));
    let mut all: [[Vec<f64>; 4]; 4] = Default::default();
    for round in 0..=rounds {
        let mut subjects = [
            Facade::<S>::empty()?,
            Facade::over(behind.states(hot * entry * 4)?)?,
            Facade::over(behind.states(hot * entry / 2)?)?,
            Facade::over(behind.states(0)?)?,
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
