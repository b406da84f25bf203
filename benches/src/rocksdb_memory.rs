//! Resident memory of states over RocksDB that are much larger than their budget.
use backend_rocksdb::{RocksDbBackend, SharedMemory};
use managed_state::keyed::{KeyedContext, KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{Error, KeyedBackend, Result, SystemClock};
use std::sync::Arc;

use crate::process::{peak_resident_bytes, reset_peak, resident_bytes};
use crate::rocksdb::context;
use crate::stopwatch::seconds;
use crate::table::Table;
use crate::workload::{INSERT_SEED, KEY_GROUPS, PROBE_SEED, mix64, order};

/// Bytes of a value, which doesn't compress.
const VALUE: usize = 1 << 10;

/// Returns a table of the resident memory while values of `megabytes` in all are written, read and overwritten at a budget of
/// `budget` bytes.
///
/// # Errors
/// Those of the database.
pub fn table(megabytes: usize, budget: u64) -> Result<Table> {
    let n = megabytes << 10;
    let dir =
        tempfile::tempdir().map_err(|e| Error::retryable("no temporary folder").caused_by(e))?;
    let writes = order(n, INSERT_SEED);
    let reads = order(n, PROBE_SEED);
    let before = resident_bytes().unwrap_or_default();
    let memory = SharedMemory::new(budget, 0.5);
    let backend = RocksDbBackend::new().with_memory(Arc::clone(&memory));
    let store = backend.open(&context(dir.path())?)?;
    let cx = KeyedContext::single(KEY_GROUPS, Arc::new(SystemClock))?;
    let mut states = KeyedStates::<u64>::new(KeyedBackend::Bytes(Box::new(store)), cx)?;
    let state: ValueState<Vec<u8>> = states.value("value")?;
    let mut table = Table::new(
        format!(
            "Memory of {megabytes} MiB of state over RocksDB at a budget of {} MiB, MiB above the {} before it was opened",
            budget >> 20,
            before >> 20
        ),
        &[
            "phase",
            "seconds",
            "accounted, most",
            "resident, most",
            "resident, end",
            "÷ budget",
        ],
    );
    for phase in ["write", "read", "overwrite and read"] {
        reset_peak();
        let (accounted, took) = seconds(|| -> Result<usize> {
            let mut most = 0;
            for (at, key) in writes.iter().enumerate() {
                if phase != "read" {
                    states.at(key).value(state).set(value(*key))?;
                }
                if phase != "write" {
                    let key = reads[at];
                    let found = states.at(&key).value(state).with(|v| v.map(Vec::len))?;
                    if found != Some(VALUE) {
                        return Err(Error::bug("a value is not what was written"));
                    }
                }
                if at % 1024 == 0 {
                    most = most.max(memory.used());
                }
            }
            Ok(most)
        });
        let above = |bytes: Option<u64>| bytes.unwrap_or_default().saturating_sub(before);
        let (peak, end) = (above(peak_resident_bytes()), above(resident_bytes()));
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        table.row([
            phase.to_owned(),
            format!("{took:.1}"),
            mib(accounted? as u64),
            mib(peak),
            mib(end),
            format!("{:.2}", peak as f64 / budget as f64),
        ]);
    }
    Ok(table)
}

/// Bytes that don't compress.
fn value(key: u64) -> Vec<u8> {
    let words = (0..VALUE as u64 / 8).map(|word| mix64(key.wrapping_mul(128) + word));
    words.flat_map(u64::to_le_bytes).collect()
}
