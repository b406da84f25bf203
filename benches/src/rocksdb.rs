//! Keyed state over RocksDB against the bare crate at the same options, alternated in one run.
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use backend_rocksdb::rocksdb::{
    ColumnFamily, DBWithThreadMode, MergeOperands, Options, ReadOptions, SingleThreaded,
    WriteOptions,
};
use backend_rocksdb::{Compactor, RocksDbBackend, SharedMemory};
use managed_state::keyed::{KeyedContext, KeyedStates, ListState, MapState, ValueState, ValueView};
use state_api::access::{ListAccess, MapAccess, ValueAccess};
use state_api::{
    BackendContext, Error, JobId, KeyGroupRange, KeyedBackend, MaxParallelism, OperatorUid, Result,
    StateKey, Subtask, SystemClock,
};

use crate::settings;
use crate::stopwatch::{Spread, ns_per_op};
use crate::table::Table;
use crate::workload::{INSERT_SEED, KEY_GROUPS, PROBE_SEED, mix64, order};

/// Entries of a map, and elements of a list, under each key.
const ENTRIES: u64 = 10;
/// Keys that are looked up at once.
const BATCH: usize = 64;
/// The memory of either side: for all of a million keys, and for a part of them.
const BUDGETS: [u64; 2] = [256 << 20, 32 << 20];

const OPERATIONS: [&str; 9] = [
    "value put",
    "value get",
    "value get in batches",
    "value read-modify-write",
    "list append",
    "map put",
    "map get",
    "map iterate, per entry",
    "value read-modify-write in batches",
];

type Bare = DBWithThreadMode<SingleThreaded>;

/// Options that the backend made: of the database by no name, and of columns by that of their state.
type Captured = BTreeMap<Option<String>, Options>;

struct Facade {
    states: KeyedStates<u64>,
    value: ValueState<u64>,
    list: ListState<u64>,
    map: MapState<u64, u64>,
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::retryable("the bare database failed").caused_by(error)
}

pub(crate) fn context(local_dir: &Path) -> Result<BackendContext> {
    let max = MaxParallelism::new(KEY_GROUPS)?;
    let subtask = Subtask {
        index: 0,
        parallelism: 1,
    };
    let range: KeyGroupRange = max.range_of(subtask)?;
    Ok(BackendContext {
        job: JobId::new("bench")?,
        operator: OperatorUid::new("bench")?,
        subtask,
        max_parallelism: max,
        range,
        local_dir: local_dir.to_owned(),
        clock: Arc::new(SystemClock),
        options: std::collections::BTreeMap::new(),
    })
}

/// The memory that the peer harness gives one database.
pub(crate) const PEER_MEMORY: u64 = 512 << 20;

/// Opens a database with its default options and memory of its own for more than the hot keys of a measurement.
pub(crate) fn in_memory() -> Result<KeyedBackend> {
    let backend = RocksDbBackend::new().with_memory(SharedMemory::new(BUDGETS[0], 0.5));
    let store = backend.open(&context(&std::env::temp_dir())?)?;
    Ok(KeyedBackend::Bytes(Box::new(store)))
}

/// Creates empty states over a database with the memory of the peer harness, all else as it is by default but for `BENCH_ROCKSDB`.
pub(crate) fn peer_states<K: StateKey>() -> Result<KeyedStates<K>> {
    let backend = RocksDbBackend::new().with_memory(SharedMemory::new(PEER_MEMORY, 0.5));
    let mut context = context(&std::env::temp_dir())?;
    context.options = settings::options("BENCH_ROCKSDB").into_iter().collect();
    let store = backend.open(&context)?;
    OPEN.set(Some(store.compactor()));
    let cx = KeyedContext::single(KEY_GROUPS, Arc::new(SystemClock))?;
    KeyedStates::new(KeyedBackend::Bytes(Box::new(store)), cx)
}

thread_local! {
    /// The database that this thread opened last.
    static OPEN: Cell<Option<Compactor>> = const { Cell::new(None) };
}

/// Writes the states that were created last to files, and compacts these, as the peer harness does.
pub(crate) fn settle() -> Result<()> {
    match OPEN.take() {
        Some(compactor) => {
            compactor.compact()?;
            OPEN.set(Some(compactor));
            Ok(())
        }
        None => Ok(()),
    }
}

impl Facade {
    /// Opens states with a budget of their own, and says with which options.
    fn open(dir: &Path, memory: u64) -> Result<(Self, Captured)> {
        let captured: Arc<Mutex<Captured>> = Arc::default();
        let hook = Arc::clone(&captured);
        let backend = RocksDbBackend::new()
            .with_memory(SharedMemory::new(memory, 0.5))
            .with_options(move |options, state| {
                let mut captured = hook.lock().unwrap_or_else(PoisonError::into_inner);
                captured.insert(state.map(str::to_owned), options.clone());
            });
        let store = backend.open(&context(dir)?)?;
        let cx = KeyedContext::single(KEY_GROUPS, Arc::new(SystemClock))?;
        let mut states = KeyedStates::new(KeyedBackend::Bytes(Box::new(store)), cx)?;
        let facade = Self {
            value: states.value("value")?,
            list: states.list("list")?,
            map: states.map("map")?,
            states,
        };
        let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((facade, std::mem::take(&mut *captured)))
    }

    fn run(&mut self, operation: usize, keys: &[u64], probes: &[u64]) -> Result<u64> {
        let mut sum = 0_u64;
        match operation {
            0 => {
                for key in keys {
                    self.states.at(key).value(self.value).set(*key)?;
                }
            }
            1 => {
                for key in probes {
                    let read = |value: Option<&u64>| value.copied().unwrap_or_default();
                    sum ^= self.states.at(key).value(self.value).with(read)?;
                }
            }
            2 => {
                let read = |value: Option<&u64>| value.copied().unwrap_or_default();
                self.in_batches(probes, |mut value| {
                    sum ^= value.with(read)?;
                    Ok(())
                })?;
            }
            3 => {
                for key in probes {
                    let add = |value: &mut u64| *value += 1;
                    self.states.at(key).value(self.value).update(add)?;
                }
            }
            4 => {
                for entry in 0..ENTRIES {
                    for key in few(keys) {
                        self.states.at(key).list(self.list).push(entry)?;
                    }
                }
            }
            5 => {
                for entry in 0..ENTRIES {
                    for key in few(keys) {
                        self.states.at(key).map(self.map).put(entry, *key)?;
                    }
                }
            }
            6 => {
                for entry in 0..ENTRIES {
                    for key in few(probes) {
                        let read = |value: Option<&u64>| value.copied().unwrap_or_default();
                        sum ^= self.states.at(key).map(self.map).with(&entry, read)?;
                    }
                }
            }
            7 => {
                for key in few(probes) {
                    self.states.at(key).map(self.map).for_each(|_, value| {
                        sum ^= value;
                        Ok(())
                    })?;
                }
            }
            _ => self.in_batches(probes, |mut value| value.update(|value| *value += 1))?,
        }
        Ok(sum)
    }

    /// Goes through keys as the runtime does.
    fn in_batches(
        &mut self,
        keys: &[u64],
        mut f: impl FnMut(ValueView<'_, u64, (), u64>) -> Result<()>,
    ) -> Result<()> {
        for keys in keys.chunks(BATCH) {
            let hashes: Vec<_> = keys.iter().map(|key| self.states.hash(key)).collect();
            self.states
                .prefetch(keys.iter().zip(hashes.iter().copied()));
            for (key, hash) in keys.iter().zip(hashes) {
                f(self.states.at_hashed(key, hash).value(self.value))?;
            }
        }
        Ok(())
    }
}

/// The keys of lists and maps, which have several entries each.
fn few(keys: &[u64]) -> &[u64] {
    &keys[..keys.len() / ENTRIES as usize]
}

/// A key as a program without our states would store it: a byte that spreads keys, then the key.
fn stored(key: u64) -> [u8; 9] {
    let mut stored = [0; 9];
    stored[0] = (mix64(key) % u64::from(KEY_GROUPS)) as u8;
    stored[1..].copy_from_slice(&key.to_le_bytes());
    stored
}

fn stored_entry(key: u64, entry: u64) -> [u8; 17] {
    let mut all = [0; 17];
    all[..9].copy_from_slice(&stored(key));
    all[9..].copy_from_slice(&entry.to_le_bytes());
    all
}

fn append(_: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut merged = value.unwrap_or_default().to_vec();
    operands
        .iter()
        .for_each(|operand| merged.extend_from_slice(operand));
    Some(merged)
}

fn open_bare(dir: &Path, captured: &Captured) -> Result<Bare> {
    let made = |state: Option<&str>| {
        let options = captured.get(&state.map(str::to_owned)).cloned();
        options.ok_or_else(|| Error::bug("the backend made no options"))
    };
    let mut database = made(None)?;
    database.create_if_missing(true);
    database.set_atomic_flush(true);
    database.set_avoid_flush_during_shutdown(true);
    let mut db = Bare::open(&database, dir).map_err(failed)?;
    for name in ["value", "list", "map"] {
        let mut column = made(Some(name))?;
        column.set_merge_operator_associative("append", append);
        db.create_cf(name, &column).map_err(failed)?;
    }
    Ok(db)
}

fn column<'a>(db: &'a Bare, name: &str) -> Result<&'a ColumnFamily> {
    db.cf_handle(name)
        .ok_or_else(|| Error::bug("a column is missing"))
}

fn run_bare(db: &Bare, operation: usize, keys: &[u64], probes: &[u64]) -> Result<u64> {
    let (value, list, map) = (
        column(db, "value")?,
        column(db, "list")?,
        column(db, "map")?,
    );
    let read = ReadOptions::default();
    let mut write = WriteOptions::default();
    write.disable_wal(true);
    let number = |bytes: &[u8]| -> Result<u64> {
        let bytes = bytes.try_into();
        Ok(u64::from_le_bytes(bytes.map_err(failed)?))
    };
    let mut sum = 0_u64;
    match operation {
        0 => {
            for key in keys {
                db.put_cf_opt(value, stored(*key), key.to_le_bytes(), &write)
                    .map_err(failed)?;
            }
        }
        1 => {
            for key in probes {
                if let Some(found) = db
                    .get_pinned_cf_opt(value, stored(*key), &read)
                    .map_err(failed)?
                {
                    sum ^= number(&found)?;
                }
            }
        }
        2 => {
            for keys in probes.chunks(BATCH) {
                let keys = keys.iter().map(|key| stored(*key));
                for found in db.batched_multi_get_pinned_cf_opt(value, keys, false, &read) {
                    if let Some(found) = found.map_err(failed)? {
                        sum ^= number(&found)?;
                    }
                }
            }
        }
        3 => {
            for key in probes {
                let key = stored(*key);
                let found = db.get_pinned_cf_opt(value, key, &read).map_err(failed)?;
                let was = found
                    .as_deref()
                    .map(number)
                    .transpose()?
                    .unwrap_or_default();
                db.put_cf_opt(value, key, (was + 1).to_le_bytes(), &write)
                    .map_err(failed)?;
            }
        }
        4 => {
            for entry in 0..ENTRIES {
                for key in few(keys) {
                    db.merge_cf_opt(list, stored(*key), entry.to_le_bytes(), &write)
                        .map_err(failed)?;
                }
            }
        }
        5 => {
            for entry in 0..ENTRIES {
                for key in few(keys) {
                    let at = stored_entry(*key, entry);
                    db.put_cf_opt(map, at, key.to_le_bytes(), &write)
                        .map_err(failed)?;
                }
            }
        }
        6 => {
            for entry in 0..ENTRIES {
                for key in few(probes) {
                    let at = stored_entry(*key, entry);
                    if let Some(found) = db.get_pinned_cf_opt(map, at, &read).map_err(failed)? {
                        sum ^= number(&found)?;
                    }
                }
            }
        }
        7 => {
            for key in few(probes) {
                let start = stored(*key);
                let mut options = ReadOptions::default();
                options.set_iterate_range(backend_rocksdb::rocksdb::PrefixRange(start.as_slice()));
                let mut iter = db.raw_iterator_cf_opt(map, options);
                iter.seek(start);
                while let Some((_, found)) = iter.item() {
                    sum ^= number(found)?;
                    iter.next();
                }
                iter.status().map_err(failed)?;
            }
        }
        _ => {
            for keys in probes.chunks(BATCH) {
                let stored: Vec<_> = keys.iter().map(|key| stored(*key)).collect();
                let values = db.batched_multi_get_pinned_cf_opt(value, &stored, false, &read);
                for (key, found) in stored.iter().zip(values) {
                    let found = found.map_err(failed)?;
                    let was = found.as_deref().map(number).transpose()?;
                    let sum = was.unwrap_or_default() + 1;
                    db.put_cf_opt(value, key, sum.to_le_bytes(), &write)
                        .map_err(failed)?;
                }
            }
        }
    }
    Ok(sum)
}

/// Returns the table of operations: medians, and medians of the ratios of each round with their extremes. Both sides work on what is
/// in write buffers and files as it comes; time is that of the calling thread, without flushes and compactions.
///
/// # Errors
/// Those of the databases, and `Bug` when the two sides read differently.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let keys: Vec<u64> = order(n, INSERT_SEED).into_iter().map(mix64).collect();
    let probes: Vec<u64> = {
        let mut probes: Vec<u64> = order(n, PROBE_SEED).into_iter().map(mix64).collect();
        // Lists and maps are probed where they are.
        let filled: std::collections::HashSet<u64> = few(&keys).iter().copied().collect();
        probes.sort_by_key(|key| !filled.contains(key));
        probes
    };
    let mut table = Table::new(
        format!(
            "State over RocksDB, {n} keys, {KEY_GROUPS} key groups, ns per operation, {rounds} alternations"
        ),
        &["operation", "facade", "bare crate", "facade ÷ bare"],
    );
    for memory in BUDGETS {
        let [ours, bare] = alternate(memory, &keys, &probes, rounds)?;
        for (operation, (ours, bare)) in OPERATIONS.iter().zip(ours.iter().zip(&bare)) {
            let ns = |all: &[f64]| format!("{:.0}", Spread::of(all.to_vec()).median);
            let ratio = Spread::of(ours.iter().zip(bare).map(|(a, b)| a / b).collect());
            table.row([
                format!("{operation}, {} MiB", memory >> 20),
                ns(ours),
                ns(bare),
                format!("{ratio:.2}"),
            ]);
        }
    }
    Ok(table)
}

/// Nanoseconds of each operation and round.
type Times = [Vec<f64>; OPERATIONS.len()];

fn alternate(memory: u64, keys: &[u64], probes: &[u64], rounds: usize) -> Result<[Times; 2]> {
    let mut times: [Times; 2] = Default::default();
    for round in 0..=rounds {
        let dir = tempfile::tempdir()
            .map_err(|e| Error::retryable("no temporary folder").caused_by(e))?;
        let (mut facade, _) = Facade::open(dir.path(), memory)?;
        // The bare database has a budget of its own, too.
        let spare = dir.path().join("spare");
        let captured = Facade::open(&spare, memory)?.1;
        let db = open_bare(&dir.path().join("bare"), &captured)?;
        for operation in 0..OPERATIONS.len() {
            let mut sums = [Ok(0), Ok(0)];
            // Every round begins with the other one of the two.
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let ns = ns_per_op(keys.len(), || {
                    sums[which] = match which {
                        0 => facade.run(operation, keys, probes),
                        _ => run_bare(&db, operation, keys, probes),
                    };
                    0
                });
                // The first round warms up.
                if round > 0 {
                    times[which][operation].push(ns);
                }
            }
            let [found, expected] = sums;
            if found? != expected? {
                return Err(Error::bug("the two sides read differently")
                    .with("operation", OPERATIONS[operation]));
            }
        }
    }
    Ok(times)
}
