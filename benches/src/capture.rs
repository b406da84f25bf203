//! What it costs that tables remember which keys changed.
use backend_hashmap::HashMapSnapshots;
use futures_util::future::LocalBoxFuture;
use state_api::{
    FrozenTables, KeyedHandle, LiveSnapshots, LoadTables, RestoreContext, Result, Snapshot,
    SnapshotRequest,
};

use crate::stopwatch::{Spread, ns_per_op};
use crate::subject::{Facade, Subject, states_with};
use crate::table::Table;
use crate::workload::{INSERT_SEED, KEY_GROUPS, Longs, PROBE_SEED, Shape, Structs, Words, keys};

/// The strategy of the backend `hashmap`, with change capture switched on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capturing(HashMapSnapshots);

impl LiveSnapshots for Capturing {
    fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        self.0.snapshot(request, tables)
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        self.0.restore(handles, cx, tables)
    }

    fn captures_changes(&self) -> bool {
        true
    }
}

/// Of how many keys one changes while changes are noted; past half of a key group they are not noted any more.
const PART: usize = 3;

/// Returns the table: operations without capture, the first change of a key since the last cut, later ones, and those after most
/// keys changed.
///
/// # Errors
/// Those of the states.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Change capture, {n} keys, read-modify-write of one in {PART}, ns"),
        &[
            "shape",
            "off",
            "on, first change of a key",
            "on, again",
            "on, most changed",
            "get, off",
            "get, on",
            "bytes per changed key",
        ],
    );
    shape::<Longs>(n, rounds, &mut table)?;
    shape::<Words>(n, rounds, &mut table)?;
    shape::<Structs>(n, rounds, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(n: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let (inserts, probes) = (keys::<S>(n, INSERT_SEED), keys::<S>(n, PROBE_SEED));
    let mut off = Facade::<S>::empty()?;
    let mut on = Facade::<S>::over(states_with(Box::<Capturing>::default(), KEY_GROUPS, 0.25)?)?;
    off.add(&inserts)?;
    on.add(&inserts)?;
    let few = &probes[..n / PART];
    let mut all: [Vec<f64>; 6] = Default::default();
    let mut bytes = Vec::new();
    let mut failure = Ok(0);
    let mut keep = |result: Result<u64>| match result {
        Ok(sum) => sum,
        Err(error) => {
            failure = Err(error);
            0
        }
    };
    for round in 0..=rounds as u64 {
        // Everything up to here is confirmed: the next change of each key is its first.
        drop(on.states.snapshot(&crate::disk::request(round + 1))?);
        on.states
            .checkpoint_completed(state_api::CheckpointId(round + 1))?;
        while on.states.maintain(1 << 16) {}
        let before = on.states.memory().total;
        let without = ns_per_op(few.len(), || keep(off.read_modify_write(few)));
        let first = ns_per_op(few.len(), || keep(on.read_modify_write(few)));
        while on.states.maintain(1 << 16) {}
        let grown = on.states.memory().total.saturating_sub(before);
        let again = ns_per_op(few.len(), || keep(on.read_modify_write(few)));
        keep(on.read_modify_write(&probes));
        let whole = ns_per_op(few.len(), || keep(on.read_modify_write(few)));
        let read_off = ns_per_op(n, || keep(off.get(&probes)));
        let read_on = ns_per_op(n, || keep(on.get(&probes)));
        if round > 0 {
            let measured = [without, first, again, whole, read_off, read_on];
            for (into, ns) in all.iter_mut().zip(measured) {
                into.push(ns);
            }
            bytes.push(grown as f64 / few.len() as f64);
        }
    }
    failure?;
    let cells = all
        .into_iter()
        .map(|ns| format!("{:.1}", Spread::of(ns).median));
    let bytes = format!("{:.1}", Spread::of(bytes).median);
    table.row(
        std::iter::once(S::NAME.to_owned())
            .chain(cells)
            .chain([bytes]),
    );
    Ok(())
}
