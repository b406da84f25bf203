//! Throughput of writers while a snapshot is being written, with a core to spare and without; a store that hangs.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use state_api::access::ValueAccess;
use state_api::{Error, Result};

use crate::disk::{Disk, request};
use crate::histogram::Histogram;
use crate::process::resident_bytes;
use crate::stopwatch::{Spread, now};
use crate::store::Swallow;
use crate::subject::{Facade, Subject};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Words, keys};

/// Records between two looks at the state of the snapshot, and between two turns of maintenance, as a task has them.
const BATCH: usize = 1024;
const MAINTENANCE: usize = 1024;
const IDLE: Duration = Duration::from_millis(500);

/// Operations per second of one writer in the phases of a snapshot.
#[derive(Default)]
struct Phases {
    idle: Vec<f64>,
    during: Vec<f64>,
    merging: Vec<f64>,
    given_up: usize,
}

struct Writer<'a, S: Shape> {
    facade: Facade<S>,
    probes: &'a [S::Key],
    at: usize,
}

impl<S: Shape> Writer<'_, S> {
    /// Writes batches while `more` says so; returns operations per second.
    fn run(&mut self, mut more: impl FnMut(&Facade<S>) -> bool) -> Result<f64> {
        let start = now();
        let mut count = 0;
        while more(&self.facade) {
            let end = (self.at + BATCH).min(self.probes.len());
            let batch = &self.probes[self.at..end];
            self.facade.read_modify_write(batch)?;
            self.facade.states.maintain(MAINTENANCE);
            count += batch.len();
            self.at = if end == self.probes.len() { 0 } else { end };
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    fn measure(&mut self, disk: &Disk, rounds: usize, together: &Barrier) -> Result<Phases> {
        let mut phases = Phases::default();
        for round in 0..=rounds as u64 {
            together.wait();
            let end = now() + IDLE;
            let idle = self.run(|_| now() < end)?;
            together.wait();
            let snapshot = self.facade.states.snapshot(&request(round + 1))?;
            let done = Arc::new(AtomicBool::new(false));
            let (flag, cx) = (Arc::clone(&done), disk.persist_context(round + 1));
            let writing = disk.runtime().spawn(async move {
                let result = snapshot.persist(cx).await;
                flag.store(true, Ordering::Release);
                result
            });
            let during = self.run(|_| !done.load(Ordering::Acquire))?;
            let result = disk.runtime().block_on(writing);
            let result = result.map_err(|e| Error::bug("the snapshot panicked").caused_by(e))?;
            let end = now() + Duration::from_secs(10);
            let merging = self.run(|facade| facade.states.memory().overlays > 0 && now() < end)?;
            match result {
                Ok(handles) => disk.remove(&handles),
                Err(_) => phases.given_up += 1,
            }
            if round > 0 {
                phases.idle.push(idle);
                phases.during.push(during);
                phases.merging.push(merging);
            }
        }
        Ok(phases)
    }
}

/// Returns the table for one writer, and for as many as there are cores.
///
/// # Errors
/// Those of the states and of the disk.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "Read-modify-writes per second (millions, all writers) around snapshots to a local folder, {n} keys a writer"
        ),
        &[
            "shape",
            "writers",
            "no snapshot",
            "while one is written",
            "÷ no snapshot",
            "while merging",
            "÷ no snapshot",
            "given up",
        ],
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for writers in [1, cores] {
        shape::<Longs>(n, rounds, writers, &mut table)?;
        shape::<Words>(n, rounds, writers, &mut table)?;
        if cores == 1 {
            break;
        }
    }
    Ok(table)
}

fn shape<S: Shape>(n: usize, rounds: usize, writers: usize, table: &mut Table) -> Result<()> {
    let disk = Disk::new()?;
    let (inserts, probes) = (keys::<S>(n, INSERT_SEED), keys::<S>(n, PROBE_SEED));
    let together = Barrier::new(writers);
    let one = || -> Result<Phases> {
        let mut facade = Facade::<S>::empty()?;
        facade.add(&inserts)?;
        let mut writer = Writer {
            facade,
            probes: &probes,
            at: 0,
        };
        writer.measure(&disk, rounds, &together)
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(one)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err(Error::bug("a writer panicked"))))
            .collect::<Result<Vec<_>>>()
    })?;
    // The sum of the writers, round by round.
    let sum = |of: fn(&Phases) -> &Vec<f64>| -> f64 {
        let rounds = (0..rounds).map(|r| all.iter().map(|phases| of(phases)[r]).sum());
        Spread::of(rounds.collect()).median
    };
    let (idle, during, merging) = (sum(|p| &p.idle), sum(|p| &p.during), sum(|p| &p.merging));
    let given_up: usize = all.iter().map(|phases| phases.given_up).sum();
    table.row([
        S::NAME.to_owned(),
        writers.to_string(),
        format!("{:.2}", idle / 1e6),
        format!("{:.2}", during / 1e6),
        format!("{:.0} %", during / idle * 100.0),
        format!("{:.2}", merging / 1e6),
        format!("{:.0} %", merging / idle * 100.0),
        format!("{given_up} of {}", writers * (rounds + 1)),
    ]);
    Ok(())
}

/// Returns what becomes of a task whose every key is rewritten while the store hangs.
///
/// # Errors
/// Those of the states.
pub fn hang_table(n: usize, hang: Duration) -> Result<Table> {
    let mut table = Table::new(
        format!(
            "Every key rewritten while the store hangs for {} s, {n} keys",
            hang.as_secs()
        ),
        &[
            "shape",
            "resident before MB",
            "most MB",
            "ratio",
            "10 s after MB",
            "p99.9 µs",
            "longest µs",
            "overlays after, bytes",
            "the snapshot",
        ],
    );
    hanging::<Longs>(n, hang, &mut table)?;
    Ok(table)
}

fn hanging<S: Shape>(n: usize, hang: Duration, table: &mut Table) -> Result<()> {
    let disk = Disk::new()?.with_storage(Arc::new(Swallow { pause: hang }));
    let probes = keys::<S>(n, PROBE_SEED);
    let mut facade = Facade::<S>::empty()?;
    facade.add(&keys::<S>(n, INSERT_SEED))?;
    let resident = || resident_bytes().unwrap_or_default() as f64 / 1e6;
    let before = resident();
    let snapshot = facade.states.snapshot(&request(1))?;
    let cx = disk.persist_context(1);
    let writing = disk.runtime().spawn(snapshot.persist(cx));
    let (mut times, mut most) = (Histogram::default(), before);
    let mut rewrite_until = |end: Instant, most: &mut f64| -> Result<()> {
        for (index, key) in probes.iter().cycle().enumerate() {
            let start = now();
            facade.states.at(key).value(facade.state).update(S::bump)?;
            times.record(start.elapsed().as_nanos() as u64);
            if index % 65_536 == 0 {
                *most = most.max(resident());
                if start >= end {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    rewrite_until(now() + hang, &mut most)?;
    rewrite_until(now() + Duration::from_secs(10), &mut most)?;
    let result = disk.runtime().block_on(writing);
    let result = result.map_err(|e| Error::bug("the snapshot panicked").caused_by(e))?;
    table.row([
        S::NAME.to_owned(),
        format!("{before:.0}"),
        format!("{most:.0}"),
        format!("{:.2}", most / before),
        format!("{:.0}", resident()),
        format!("{:.1}", times.quantile(0.999) as f64 / 1e3),
        format!("{:.0}", times.max() as f64 / 1e3),
        facade.states.memory().overlays.to_string(),
        match result {
            Ok(_) => "was completed".to_owned(),
            Err(error) => format!("was given up: {}", error.message()),
        },
    ]);
    Ok(())
}
