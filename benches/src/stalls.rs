//! How long single operations take: growth, freezing and merging included.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use state_api::Result;
use state_api::access::ValueAccess;

use crate::disk::{Disk, request};
use crate::histogram::Histogram;
use crate::process::run_delay_ns;
use crate::stopwatch::now;
use crate::subject::{Bare, Facade, OurHash, Subject};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Words, keys, value};

/// Operations longer than this are looked at: was the thread waiting for a core?
const SUSPECT: u64 = 50_000;

/// Times of single operations, and the greatest without the time that the thread waited for a core.
#[derive(Default)]
struct Clocked {
    all: Histogram,
    running: Histogram,
    delay: Option<u64>,
}

impl Clocked {
    fn start() -> Self {
        Self {
            delay: run_delay_ns(),
            ..Self::default()
        }
    }

    #[inline]
    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = now();
        let result = work();
        let took = start.elapsed().as_nanos() as u64;
        self.all.record(took);
        if took > SUSPECT {
            self.suspect(took);
        } else {
            self.running.record(took);
        }
        result
    }

    #[cold]
    fn suspect(&mut self, took: u64) {
        let delay = run_delay_ns();
        let waited = delay.zip(self.delay).map_or(0, |(now, then)| now - then);
        self.delay = delay;
        self.running.record(took.saturating_sub(waited));
    }

    fn row(&self, what: &str, table: &mut Table) {
        let us = |ns: u64| match ns {
            0..1000 => format!("{:.2}", ns as f64 / 1e3),
            1000..100_000 => format!("{:.1}", ns as f64 / 1e3),
            _ => format!("{:.0}", ns as f64 / 1e3),
        };
        table.row([
            what.to_owned(),
            self.all.total().to_string(),
            us(self.all.quantile(0.5)),
            us(self.all.quantile(0.99)),
            us(self.all.quantile(0.999)),
            us(self.all.quantile(0.9999)),
            us(self.running.quantile(0.9999)),
            us(self.running.max()),
            us(self.all.max()),
        ]);
    }
}

/// Returns the table: `n` keys added, changed, changed during snapshots and while layers are merged.
///
/// The first row times nothing: what it shows is the machine. The second is a bare table that grows.
///
/// # Errors
/// Those of the states and of the disk.
pub fn table(n: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Single operations, {n} keys, µs (the clock itself takes some 0.03)"),
        &[
            "phase",
            "operations",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "p99.99 on core",
            "longest on core",
            "longest",
        ],
    );
    let mut idle = Clocked::start();
    for index in 0..n as u64 {
        idle.time(|| std::hint::black_box(value(index)));
    }
    idle.row("nothing", &mut table);

    let inserts = keys::<Longs>(n, INSERT_SEED);
    let mut bare: Bare<Longs, OurHash> = Subject::<Longs>::empty()?;
    let mut grow = Clocked::start();
    for key in &inserts {
        grow.time(|| bare.insert(*key, 1));
    }
    grow.row("bare hashbrown: add", &mut table);
    drop((bare, inserts));

    shape::<Longs>(n, &mut table)?;
    shape::<Words>(n, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(n: usize, table: &mut Table) -> Result<()> {
    let disk = Disk::new()?;
    let mut facade = Facade::<S>::empty()?;
    let inserts = keys::<S>(n, INSERT_SEED);
    let mut add = Clocked::start();
    for (index, key) in inserts.iter().enumerate() {
        add.time(|| {
            let value = S::value(index as u64);
            facade.states.at(key).value(facade.state).set(value)
        })?;
    }
    drop(inserts);
    add.row(&format!("{}: add, growing from empty", S::NAME), table);

    let probes = keys::<S>(n, PROBE_SEED);
    let mut steady = Clocked::start();
    for key in &probes {
        steady.time(|| facade.states.at(key).value(facade.state).update(S::bump))?;
    }
    steady.row(&format!("{}: read-modify-write", S::NAME), table);

    // Three snapshots: the sync part is an operation too; then writes until each is on disk, then until all is merged.
    let (mut cut, mut during, mut after) = (Clocked::start(), Clocked::start(), Clocked::start());
    let mut probe = probes.iter().cycle();
    for checkpoint in 1..=3 {
        let snapshot = cut.time(|| facade.states.snapshot(&request(checkpoint)))?;
        let done = Arc::new(AtomicBool::new(false));
        let (flag, cx) = (Arc::clone(&done), disk.persist_context(checkpoint));
        let writing = disk.runtime().spawn(async move {
            let result = snapshot.persist(cx).await;
            flag.store(true, Ordering::Release);
            result
        });
        while !done.load(Ordering::Acquire) {
            for key in probe.by_ref().take(256) {
                during.time(|| facade.states.at(key).value(facade.state).update(S::bump))?;
            }
        }
        match disk.runtime().block_on(writing) {
            // Past the overlay limit a snapshot is given up, with its reason; the writes are what is measured.
            Ok(result) => drop(result.map(|handles| disk.remove(&handles))),
            Err(error) => {
                return Err(state_api::Error::bug("the snapshot panicked").caused_by(error));
            }
        }
        let until = now() + Duration::from_secs(10);
        while facade.states.memory().overlays > 0 && now() < until {
            for key in probe.by_ref().take(4096) {
                after.time(|| facade.states.at(key).value(facade.state).update(S::bump))?;
            }
        }
    }
    cut.row(&format!("{}: sync part of a snapshot", S::NAME), table);
    during.row(
        &format!("{}: read-modify-write during a snapshot", S::NAME),
        table,
    );
    after.row(
        &format!("{}: read-modify-write while merging", S::NAME),
        table,
    );
    Ok(())
}
