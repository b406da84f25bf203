//! Writing snapshots to a local folder and reading them back; the snapshot operations of the peer harness.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_hashmap::HashMapSnapshots;
use managed_state::keyed::{KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{KeyedHandle, Result};

use crate::disk::{Disk, bytes_of, request};
use crate::operations::{Line, PeerShape};
use crate::process::cpu_time;
use crate::stopwatch::{Spread, now, seconds};
use crate::store::Swallow;
use crate::subject::{Facade, Subject, live_states, states_with};
use crate::table::Table;
use crate::workload::{
    INSERT_SEED, KEY_GROUPS, Longs, PROBE_SEED, Shape, Structs, Words, keys, order,
};

const MB: f64 = 1e6;

/// Returns the table of throughput: encoded bytes by wall clock and by CPU second of all threads.
///
/// # Errors
/// Those of the states and of the disk.
pub fn throughput_table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "Full snapshot of {n} keys to a local folder, digest and sync included, and restore; MB/s of encoded state"
        ),
        &[
            "shape",
            "MB",
            "write ms",
            "write MB/s",
            "per CPU second",
            "no disk MB/s",
            "restore ms",
            "restore MB/s",
            "per CPU second",
        ],
    );
    shape::<Longs>(n, rounds, &mut table)?;
    shape::<Words>(n, rounds, &mut table)?;
    shape::<Structs>(n.min(2_000_000), rounds, &mut table)?;
    Ok(table)
}

fn cpu<R>(work: impl FnOnce() -> R) -> (R, f64, f64) {
    let before = cpu_time().unwrap_or_default();
    let (result, wall) = seconds(work);
    let taken = cpu_time().unwrap_or_default() - before;
    (result, wall, taken.as_secs_f64())
}

fn shape<S: Shape>(n: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let disk = Disk::new()?;
    let nowhere = Disk::new()?.with_storage(Arc::new(Swallow::default()));
    let mut facade = Facade::<S>::empty()?;
    facade.add(&keys::<S>(n, INSERT_SEED))?;
    let (mut write, mut swallow, mut restore) = (Vec::new(), Vec::new(), Vec::new());
    let (mut write_cpu, mut restore_cpu, mut bytes) = (0.0, 0.0, 0);
    for round in 0..=rounds as u64 {
        let snapshot = facade.states.snapshot(&request(2 * round + 1))?;
        let (handles, wall, used) = cpu(|| disk.persist(2 * round + 1, snapshot));
        let handles = handles?;
        let snapshot = facade.states.snapshot(&request(2 * round + 2))?;
        let (done, no_disk) = seconds(|| nowhere.persist(2 * round + 2, snapshot));
        done?;
        let (restored, back, back_used) = cpu(|| restored::<S>(&disk, &handles));
        let restored = restored?;
        assert_eq!(
            restored.states.entries("value")?,
            n as u64,
            "the restored state is complete"
        );
        bytes = bytes_of(&handles);
        disk.remove(&handles);
        if round > 0 {
            write.push(wall);
            write_cpu += used;
            swallow.push(no_disk);
            restore.push(back);
            restore_cpu += back_used;
        }
    }
    let (write, restore) = (Spread::of(write).median, Spread::of(restore).median);
    let mb = bytes as f64 / MB;
    let per_cpu = |seconds: f64| match seconds > 0.0 {
        true => format!("{:.0}", mb * rounds as f64 / seconds),
        false => String::new(),
    };
    table.row([
        S::NAME.to_owned(),
        format!("{mb:.0}"),
        format!("{:.0}", write * 1e3),
        format!("{:.0}", mb / write),
        per_cpu(write_cpu),
        format!("{:.0}", mb / Spread::of(swallow).median),
        format!("{:.0}", restore * 1e3),
        format!("{:.0}", mb / restore),
        per_cpu(restore_cpu),
    ]);
    Ok(())
}

/// Restores handles and registers the state, which fills its table.
fn restored<S: Shape>(disk: &Disk, handles: &[KeyedHandle]) -> Result<Facade<S>> {
    let mut states = live_states()?;
    let cx = disk.restore_context();
    let restoring = states.restore(handles, &cx);
    disk.runtime().block_on(restoring)?;
    Facade::over(states)
}

/// The snapshot operations of the peer harness on our side.
///
/// # Errors
/// Those of the states and of the disk.
pub fn peer_lines<P: PeerShape>(n: usize, rounds: usize) -> Result<Vec<Line>> {
    let disk = Disk::new()?;
    // Half of the keys are written while a snapshot is held: more than the default limit for overlays.
    let states = states_with(Box::new(HashMapSnapshots), KEY_GROUPS, 4.0)?;
    let mut run = PeerRun::<P> {
        facade: Facade::over(states)?,
        disk,
        probes: order(n, PROBE_SEED),
        at: 0,
        next: 1,
        lines: Vec::new(),
    };
    run.facade.add(&keys::<P>(n, INSERT_SEED))?;
    run.full(n, rounds)?;
    run.writers(n, rounds)?;
    Ok(run.lines)
}

struct PeerRun<P: Shape> {
    facade: Facade<P>,
    disk: Disk,
    probes: Vec<u64>,
    /// The next position of the probe order.
    at: usize,
    /// The next checkpoint.
    next: u64,
    lines: Vec<Line>,
}

/// What a writer does to the keys of a window.
type Write<P> =
    fn(&mut KeyedStates<<P as Shape>::Key>, ValueState<u64>, &[<P as Shape>::Key]) -> Result<()>;

fn update<P: PeerShape>(
    states: &mut KeyedStates<P::Key>,
    state: ValueState<u64>,
    keys: &[P::Key],
) -> Result<()> {
    for (index, key) in keys.iter().enumerate() {
        states
            .at(key)
            .value(state)
            .set(crate::workload::value(index as u64))?;
    }
    Ok(())
}

fn rmw<P: PeerShape>(
    states: &mut KeyedStates<P::Key>,
    state: ValueState<u64>,
    keys: &[P::Key],
) -> Result<()> {
    for key in keys {
        states
            .at(key)
            .value(state)
            .update(|n| *n = n.wrapping_add(1))?;
    }
    Ok(())
}

impl<P: PeerShape> PeerRun<P> {
    /// The keys of the next window, made anew.
    fn window(&mut self, ops: usize) -> Vec<P::Key> {
        if self.at + ops > self.probes.len() {
            self.at = 0;
        }
        let ids = &self.probes[self.at..self.at + ops];
        self.at += ops;
        ids.iter().map(|id| P::key(*id)).collect()
    }

    fn line(&mut self, bench: &str, field: &'static str, all: Vec<f64>) {
        self.lines.push(Line {
            bench: bench.to_owned(),
            key: P::KEY,
            field,
            spread: Spread::of(all),
        });
    }

    fn full(&mut self, n: usize, rounds: usize) -> Result<()> {
        let (mut sync, mut asynchronous, mut restore) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        let mut last: Vec<KeyedHandle> = Vec::new();
        for round in 0..=rounds {
            let changed = self.window(n / 100);
            update::<P>(&mut self.facade.states, self.facade.state, &changed)?;
            let id = self.next;
            self.next += 1;
            let (snapshot, cut) = seconds(|| self.facade.states.snapshot(&request(id)));
            let snapshot = snapshot?;
            let (handles, wrote) = seconds(|| self.disk.persist(id, snapshot));
            self.disk.remove(&last);
            last = handles?;
            bytes = bytes_of(&last);
            if round > 0 {
                sync.push(cut * 1e3);
                asynchronous.push(wrote * 1e3);
            }
        }
        for round in 0..=rounds.min(3) {
            let (restored, took) = seconds(|| restored::<P>(&self.disk, &last));
            assert_eq!(
                restored?.states.entries("value")?,
                n as u64,
                "the restored state is complete"
            );
            if round > 0 {
                restore.push(took * 1e3);
            }
        }
        self.line("snapshot_full", "sync_ms", sync);
        self.line("snapshot_full", "async_ms", asynchronous);
        self.line("snapshot_full", "bytes", vec![bytes as f64]);
        self.line("restore_full", "ms", restore);
        Ok(())
    }

    /// Writers with no snapshot, with one held, with one being written; each takes the next window of keys.
    fn writers(&mut self, n: usize, rounds: usize) -> Result<()> {
        let writes: [(&str, Write<P>); 2] = [("update", update::<P>), ("rmw", rmw::<P>)];
        for (name, write) in writes {
            let (mut idle, mut held, mut during) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..=rounds {
                let ops = n / 2;
                let keys = self.window(ops);
                let a = self.timed(write, &keys)?;

                let keys = self.window(ops);
                let id = self.next;
                self.next += 2;
                let snapshot = self.facade.states.snapshot(&request(id))?;
                let b = self.timed(write, &keys)?;
                let handles = self.disk.persist(id, snapshot)?;
                self.disk.remove(&handles);
                while self.facade.states.maintain(1 << 16) {}

                let keys = self.window(ops);
                let c = self.during(id + 1, write, &keys)?;
                while self.facade.states.maintain(1 << 16) {}
                if round > 0 {
                    idle.push(a);
                    held.push(b);
                    during.push(c);
                }
            }
            self.line(&format!("{name}_idle"), "ns_per_op", idle);
            self.line(&format!("{name}_held"), "ns_per_op", held);
            self.line(&format!("{name}_during_async"), "ns_per_op", during);
        }
        Ok(())
    }

    fn timed(&mut self, write: Write<P>, keys: &[P::Key]) -> Result<f64> {
        let state = self.facade.state;
        let (done, took) = seconds(|| write(&mut self.facade.states, state, keys));
        done?;
        Ok(took * 1e9 / keys.len() as f64)
    }

    fn during(&mut self, id: u64, write: Write<P>, keys: &[P::Key]) -> Result<f64> {
        let state = self.facade.state;
        let snapshot = self.facade.states.snapshot(&request(id))?;
        let done = Arc::new(AtomicBool::new(false));
        let (flag, cx) = (Arc::clone(&done), self.disk.persist_context(id));
        let writing = self.disk.runtime().spawn(async move {
            let result = snapshot.persist(cx).await;
            flag.store(true, Ordering::Release);
            result
        });
        let start = now();
        let mut count = 0;
        for batch in keys.chunks(1024).cycle() {
            if done.load(Ordering::Acquire) {
                break;
            }
            write(&mut self.facade.states, state, batch)?;
            count += batch.len();
        }
        let took = start.elapsed().as_secs_f64();
        match self.disk.runtime().block_on(writing) {
            Ok(handles) => self.disk.remove(&handles?),
            Err(error) => {
                return Err(state_api::Error::bug("the snapshot panicked").caused_by(error));
            }
        }
        Ok(took * 1e9 / count.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back<S: Shape>() {
        let disk = Disk::new().unwrap();
        let (inserts, probes) = (keys::<S>(1000, INSERT_SEED), keys::<S>(1000, PROBE_SEED));
        let mut facade = Facade::<S>::empty().unwrap();
        facade.add(&inserts).unwrap();
        let sum = facade.get(&probes).unwrap();
        let snapshot = facade.states.snapshot(&request(1)).unwrap();
        let handles = disk.persist(1, snapshot).unwrap();
        let mut restored = restored::<S>(&disk, &handles).unwrap();
        assert_eq!(restored.states.entries("value").unwrap(), 1000);
        assert_eq!(restored.get(&probes).unwrap(), sum, "{}", S::NAME);
    }

    #[test]
    fn what_was_written_comes_back() {
        comes_back::<Longs>();
        comes_back::<Words>();
        comes_back::<Structs>();
    }
}
