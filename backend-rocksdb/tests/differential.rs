//! One long random run on `hashmap`, on RocksDB and on RocksDB behind a cache of objects at once: every answer, and now and then
//! all of the state, must be the same.
//!
//! `HOLDFAST_CASES` is the number of thousands of operations (20 unless set; 10000 for the long form), `HOLDFAST_SEED` says which.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test"
)]
use std::sync::Arc;
use std::time::Duration;

use backend_hashmap::HashMapBackend;
use backend_rocksdb::{RocksDbBackend, SharedMemory};
use backend_testkit::fuzz::Random;
use backend_testkit::model::Settings;
use backend_testkit::{Checkpoint, Job, Mode, Setup, dump};
use managed_state::keyed::{
    KeyedStates, ListState, MapState, ReducingState, SortedMapState, Timers, ValueState,
};
use state_api::access::{ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess};
use state_api::{BackendFactory, Result, SnapshotKind, StateOptions, TtlConfig};

#[derive(Clone, Copy)]
struct Tokens {
    value: ValueState<String>,
    timed: ValueState<u64>,
    list: ListState<u64>,
    timed_list: ListState<u32>,
    map: MapState<u16, String>,
    sorted: SortedMapState<i32, u64>,
    sum: ReducingState<u64>,
    due: Timers<()>,
}

fn register(states: &mut KeyedStates<u64>) -> Result<Tokens> {
    // Savepoints show what is not expired; what is may be gone on one side only.
    let ttl = TtlConfig::new(Duration::from_millis(500))?.cleanup_full_snapshot();
    Ok(Tokens {
        value: states.value("value")?,
        timed: states.value(StateOptions::new("timed").ttl(ttl))?,
        list: states.list("list")?,
        timed_list: states.list(StateOptions::new("timed list").ttl(ttl))?,
        map: states.map("map")?,
        sorted: states.sorted_map("sorted")?,
        sum: states.reducing("sum", |a: &u64, b| Ok(a.wrapping_add(b)))?,
        due: states.timers("due")?,
    })
}

/// Keys of the run: enough for files on several levels, few enough that most are hit again.
const KEYS: usize = 4_096;
/// Operations between two comparisons of all of the state.
const BETWEEN: u64 = 50_000;

/// Does one operation and returns what it answered.
fn operate(job: &mut Job<u64, Tokens>, kind: usize, key: u64, number: u64) -> String {
    job.at(&key, |at, tokens| {
        Ok(match kind {
            0 => format!("{:?}", at.value(tokens.value).get()?),
            1 => format!(
                "{:?}",
                at.value(tokens.value)
                    .set("v".repeat(number as usize % 400))?
            ),
            2 => format!("{:?}", at.value(tokens.value).clear()?),
            3 => format!(
                "{:?}",
                at.value(tokens.timed).update(|n| {
                    *n = n.wrapping_add(number);
                    *n
                })?
            ),
            4 => format!("{:?}", at.value(tokens.timed).get()?),
            5 => format!("{:?}", at.list(tokens.list).push(number)?),
            6 => format!("{:?}", at.list(tokens.list).get()?),
            7 => format!("{:?}", at.list(tokens.list).pop_front()?),
            8 => {
                // Lists stay short.
                at.list(tokens.list).retain(|n| n % 2 == number % 2)?;
                format!("{:?}", at.list(tokens.list).len()?)
            }
            9 => format!("{:?}", at.list(tokens.timed_list).push(number as u32)?),
            10 => format!("{:?}", at.list(tokens.timed_list).get()?),
            11 | 12 => {
                let entry = format!("entry {number}");
                format!("{:?}", at.map(tokens.map).put(number as u16 % 200, entry)?)
            }
            13 => format!("{:?}", at.map(tokens.map).get(&(number as u16 % 200))?),
            14 => format!("{:?}", at.map(tokens.map).remove(&(number as u16 % 200))?),
            15 => {
                let mut entries = at.map(tokens.map).entries()?;
                entries.sort();
                format!("{entries:?}")
            }
            16 => {
                at.map(tokens.map)
                    .retain(|key, _| u64::from(*key) % 3 != number % 3)?;
                format!("{:?}", at.map(tokens.map).is_empty()?)
            }
            17 if number.is_multiple_of(8) => format!("{:?}", at.map(tokens.map).clear()?),
            17 | 18 => format!(
                "{:?}",
                at.sorted_map(tokens.sorted)
                    .put(number as i32 % 300, number)?
            ),
            19 => {
                let from = number as i32 % 300;
                let mut found = Vec::new();
                at.sorted_map(tokens.sorted).range(
                    Some(&from),
                    Some(&(from + 50)),
                    |key, value| {
                        found.push((*key, *value));
                        Ok(())
                    },
                )?;
                format!("{found:?}")
            }
            20 => {
                let mut sorted = at.sorted_map(tokens.sorted);
                format!("{:?} {:?}", sorted.first()?, sorted.last()?)
            }
            21 => {
                let from = number as i32 % 300;
                format!(
                    "{:?}",
                    at.sorted_map(tokens.sorted)
                        .remove_range(Some(&from), Some(&(from + 30)))?
                )
            }
            22 => {
                at.reducing(tokens.sum).add(number)?;
                format!("{:?}", at.reducing(tokens.sum).get()?)
            }
            // Whether a timer is the earliest of its subtask depends on the parallelism.
            23 => {
                at.timers(tokens.due).set(number as i64 % 100_000)?;
                String::new()
            }
            24 => {
                at.timers(tokens.due).remove(number as i64 % 100_000)?;
                String::new()
            }
            _ => {
                at.value(tokens.timed).clear()?;
                format!("{:?}", at.list(tokens.timed_list).clear()?)
            }
        })
    })
}

const KINDS: usize = 26;

/// Asks each job the same; all must answer as the first does.
fn same<A: PartialEq + std::fmt::Debug>(
    jobs: &mut [Job<u64, Tokens>],
    mut ask: impl FnMut(usize, &mut Job<u64, Tokens>) -> A,
    what: impl Fn() -> String,
) {
    let mut answers = jobs
        .iter_mut()
        .enumerate()
        .map(|(which, job)| ask(which, job));
    let first = answers.next().unwrap();
    for (other, answer) in answers.enumerate() {
        assert_eq!(first, answer, "backend {}: {}", other + 1, what());
    }
}

#[test]
fn a_long_run_on_hashmap_and_rocksdb_gives_the_same() {
    let settings = Settings::from_env_or(20);
    let operations = u64::from(settings.cases) * 1_000;
    println!(
        "HOLDFAST_SEED={} HOLDFAST_CASES={}",
        settings.seed, settings.cases
    );
    let mut random = Random::new(settings.seed);
    // Little memory: state is written to files and compacted, and objects are given up, all the time.
    let rocksdb = |object_ratio| {
        RocksDbBackend::new()
            .with_memory(SharedMemory::with_objects(8 << 20, 0.5, object_ratio))
            .with_options(|options, state| {
                if state.is_some() {
                    options.set_write_buffer_size(256 << 10);
                    options.set_target_file_size_base(256 << 10);
                    options.set_max_bytes_for_level_base(1 << 20);
                }
            })
    };
    let factories: [Arc<dyn BackendFactory>; 3] = [
        Arc::new(HashMapBackend),
        Arc::new(rocksdb(0.0)),
        Arc::new(rocksdb(0.03)),
    ];
    let setups: Vec<Setup> = factories
        .into_iter()
        .map(|factory| Setup::new(factory, Mode::Direct).unwrap())
        .collect();
    let mut jobs: Vec<Job<u64, Tokens>> =
        setups.iter().map(|setup| setup.start(register)).collect();
    for operation in 0..operations {
        let (kind, key) = (random.below(KINDS), random.below(KEYS) as u64);
        let number = random.number();
        same(
            &mut jobs,
            |_, job| operate(job, kind, key, number),
            || format!("operation {operation}: kind {kind}, key {key}, number {number}"),
        );
        if operation % 500 == 499 {
            for setup in &setups {
                setup.clock.advance(37);
            }
            let up_to = random.below(100_000) as i64;
            let fire = |_, job: &mut Job<u64, Tokens>| {
                let fired = job.fire::<()>(|tokens| tokens.due.erase::<u64>(), up_to);
                let mut fired = fired.concat();
                fired.sort_unstable();
                fired
            };
            same(&mut jobs, fire, || {
                format!("timers up to {up_to} after operation {operation}")
            });
        }
        if operation % BETWEEN == BETWEEN - 1 || operation == operations - 1 {
            let savepoints: Vec<Checkpoint> = jobs
                .iter_mut()
                .map(|job| job.snapshot(SnapshotKind::CanonicalSavepoint))
                .collect();
            let dumped = |which: usize, _: &mut Job<u64, Tokens>| {
                dump(&savepoints[which], &*setups[which].storage).unwrap()
            };
            same(&mut jobs, dumped, || {
                format!("savepoints after operation {operation}")
            });
            // RocksDB goes on from its own savepoint, at another parallelism.
            for which in [1, 2] {
                let parallelism = 1 + random.below(3) as u32;
                jobs[which] = setups[which]
                    .restore(&savepoints[which], parallelism, register)
                    .unwrap();
            }
        }
    }
}
