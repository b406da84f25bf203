//! A job in event time under the seeded simulation: two keyed inputs, one of them a union, with timers, and windows behind them. Stops
//! drain it half of the time. `HOLDFAST_SEED` runs one seed alone; `HOLDFAST_SEEDS` sets how many there are per test.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and a test says what it tried"
)]
mod job_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use job_support::{Items, Ledger, settings};
use managed_state::keyed::{At, DueTimer, MapState, Timers};
use managed_state::operator::OperatorStates;
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::{Failpoint, Failpoints};
use runtime_core::testing::{Simulation, SimulationReport, Trouble};
use runtime_core::{
    ExecutionSettings, Job, JobEvent, Operator, Out, States, TimeWindow, Tumbling,
    TwoInputOperator, WindowFunction,
};
use state_api::access::MapAccess;
use state_api::{Clock, Result};

/// Key, event time, number.
type Event = (u64, i64, u64);

/// What came of an event: which sort of thing it is, then as the event.
type Seen = (String, u64, i64, u64);

/// Key and window, with what was in it.
type Fired = (u64, i64, i64, Vec<Seen>);

/// The events of a source are read in so many splits.
const SPLITS: u64 = 3;

/// Milliseconds from an event to its timer.
const DELAY_MS: i64 = 40;

/// Milliseconds by which events are out of order, at most.
const BOUND_MS: i64 = 5;

/// The sources, with what the numbers of their events begin at.
const SOURCES: [(&str, u64, u64); 3] =
    [("left", 0, 300), ("some", 1_000, 150), ("more", 2_000, 150)];

fn events(first: u64, count: u64) -> Vec<Event> {
    let time = |i: u64| i as i64 * 300 / count as i64 + [0, 4, 1, 3, 2][(i % 5) as usize];
    (0..count)
        .map(|i| ((i * 7 + first) % 11, time(i), first + i))
        .collect()
}

/// The split that an event was read in.
fn split_of(number: u64) -> u64 {
    let of_source = |(_, first, count): &(&str, u64, u64)| {
        let within = number.checked_sub(*first)?;
        (within < *count).then(|| first + within / count.div_ceil(SPLITS))
    };
    SOURCES.iter().find_map(of_source).unwrap()
}

/// Whether what is of one key and split stays in its order: through exchanges by key it does. What was in flight at the union, where
/// there are no keys, a restore at another parallelism deals out.
fn is_ordered(sort: &str) -> bool {
    sort == "first"
}

/// Passes on what comes in: what is in flight at a union belongs to the operator behind it.
#[derive(Clone)]
struct Passes;

impl Operator for Passes {
    type In = Event;
    type Out = Event;

    fn process(
        &mut self,
        event: Event,
        _: &mut OperatorStates,
        out: &mut Out<'_, Event>,
    ) -> Result<()> {
        out.emit(event)
    }
}

/// Passes on what two inputs bring, sets a timer for each event, and tells which came out of order.
#[derive(Clone, Default)]
struct Both {
    /// By split, the number of the last event.
    last: MapState<u64, u64>,
    timers: Timers<u64>,
}

impl Both {
    fn take(
        &mut self,
        sort: &str,
        (key, time, number): Event,
        at: &mut At<'_, u64>,
        out: &mut Out<'_, Seen>,
    ) -> Result<()> {
        let split = split_of(number);
        let last = at.map(self.last).get(&split)?;
        if is_ordered(sort) && last.is_some_and(|last| last >= number) {
            out.emit(("out of order".to_owned(), key, time, number))?;
        }
        at.map(self.last).put(split, number)?;
        at.timers_in(self.timers, &number).set(time + DELAY_MS)?;
        out.emit((sort.to_owned(), key, time, number))
    }
}

impl TwoInputOperator for Both {
    type Key = u64;
    type First = Event;
    type Second = Event;
    type Out = Seen;

    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.last = states.map("last")?;
        self.timers = states.event_timers("due")?;
        Ok(())
    }

    fn process_first(
        &mut self,
        event: Event,
        at: &mut At<'_, u64>,
        out: &mut Out<'_, Seen>,
    ) -> Result<()> {
        self.take("first", event, at, out)
    }

    fn process_second(
        &mut self,
        event: Event,
        at: &mut At<'_, u64>,
        out: &mut Out<'_, Seen>,
    ) -> Result<()> {
        self.take("second", event, at, out)
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<u64>,
        _: &mut At<'_, u64>,
        out: &mut Out<'_, Seen>,
    ) -> Result<()> {
        let number = due.namespace()?;
        out.emit(("timer".to_owned(), due.key, due.time, number))
    }
}

/// All of a window.
#[derive(Clone)]
struct All;

impl WindowFunction for All {
    type Key = u64;
    type In = Seen;
    type Out = Fired;

    fn process(
        &mut self,
        window: TimeWindow,
        records: Vec<Seen>,
        at: &mut At<'_, u64>,
        out: &mut Out<'_, Fired>,
    ) -> Result<()> {
        out.emit((*at.key(), window.start_ms, window.end_ms, records))
    }
}

fn job(parallelism: u32, ledger: &Ledger<Fired>) -> Job {
    let job = Job::new("both").parallelism(parallelism);
    let [left, some, more] = SOURCES.map(|(uid, first, count)| {
        let read = job.source(uid, Items::new(events(first, count), SPLITS));
        read.assign_watermarks(BOUND_MS, |event: &Event| event.1)
    });
    let right = some
        .persist_in_flight()
        .union([&more.persist_in_flight()])
        .operator("passes", Passes)
        .persist_in_flight();
    left.persist_in_flight()
        .key_by(|event: &Event| event.0)
        .connect(&right.key_by_ref(|event: &Event| &event.0))
        .process("both", Both::default())
        .persist_in_flight()
        .key_by(|seen: &Seen| seen.1)
        .window(Tumbling::of(50))
        .process("windows", All)
        .persist_in_flight()
        .rebalance()
        .sink_exactly_once("out", ledger.clone());
    job
}

/// Says what is wrong with an output; nothing if each event and each timer is there once, in its window and in order.
fn check(fired: &[Fired], drained: bool) -> std::result::Result<(), String> {
    let (mut windows, mut seen) = (BTreeSet::new(), BTreeMap::new());
    for (of, start, end, records) in fired {
        // A window that a drain ends before its time fires again with what comes later.
        if !windows.insert((*of, *start)) && !drained {
            return Err(format!("window {start} of key {of} fired twice"));
        }
        let mut last = BTreeMap::new();
        for (sort, key, time, number) in records {
            if key != of || !(start..end).contains(&time) {
                let event = (sort, key, time, number);
                return Err(format!("{event:?} is in window {start} of key {of}"));
            }
            let before = last.insert((sort, split_of(*number)), *number);
            if is_ordered(sort) && before.is_some_and(|before| before >= *number) {
                return Err(format!("{sort} {number} is behind {before:?}"));
            }
            *seen
                .entry((sort.clone(), *key, *time, *number))
                .or_insert(0) += 1;
        }
    }
    let mut expected = BTreeMap::new();
    for (uid, first, count) in SOURCES {
        let sort = if uid == "left" { "first" } else { "second" };
        for (key, time, number) in events(first, count) {
            expected.insert((sort.to_owned(), key, time, number), 1);
            expected.insert(("timer".to_owned(), key, time + DELAY_MS, number), 1);
        }
    }
    for (one, times) in &seen {
        if expected.get(one) != Some(times) {
            return Err(format!("{one:?} is there {times} times"));
        }
    }
    match expected.keys().find(|one| !seen.contains_key(*one)) {
        Some(missing) => Err(format!("{missing:?} is missing")),
        None => Ok(()),
    }
}

fn simulation(seed: u64, trouble: Trouble) -> Simulation {
    let settings = settings(10);
    let settings = ExecutionSettings {
        checkpointing: CoordinatorConfig {
            tolerable_failures: CoordinatorConfig::UNLIMITED,
            timeout: Duration::from_secs(5),
            ..settings.checkpointing
        },
        ..settings
    };
    let backend = Arc::new(backend_hashmap::HashMapBackend);
    let simulation = Simulation::new(seed, backend, settings).trouble(trouble);
    if std::env::var_os("HOLDFAST_SEED").is_none() {
        return simulation;
    }
    // One seed that runs alone tells what happens.
    let clock = simulation.clock();
    let tell = move |event: &JobEvent| println!("{} ms: {event:?}", clock.now_ms());
    simulation.events(Arc::new(tell))
}

fn simulate(
    simulation: Simulation,
    ledger: &Ledger<Fired>,
) -> Result<(std::result::Result<(), String>, SimulationReport)> {
    let report = simulation.run(|parallelism| job(parallelism, ledger))?;
    Ok((check(&ledger.records(), report.drains > 0), report))
}

/// Barriers in every mode, as each seed chooses; half of the stops with a savepoint drain.
fn trouble() -> Trouble {
    Trouble {
        drains: 500,
        steps: 2_000,
        ..Trouble::some()
    }
}

fn seeds(first: u64, default: u64) -> std::ops::Range<u64> {
    let of = |name| {
        let value = std::env::var(name).ok();
        value.map(|value| value.parse::<u64>().expect("a number"))
    };
    match of("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + of("HOLDFAST_SEEDS").unwrap_or(default),
    }
}

#[test]
fn k_759_two_keyed_inputs_and_a_union_with_timers_and_windows_end_with_the_right_answer() {
    let seeds = seeds(600_000, 100);
    let count = seeds.end - seeds.start;
    let (mut deaths, mut stops, mut drains, mut failures) = (0, 0, 0, 0);
    for seed in seeds {
        let ledger = Ledger::unsteady(seed, 2);
        let (checked, report) = simulate(simulation(seed, trouble()), &ledger)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if let Err(wrong) = checked {
            panic!("seed {seed}: {wrong}; {report:?}");
        }
        deaths += u64::from(report.deaths);
        stops += u64::from(report.stops);
        drains += u64::from(report.drains);
        failures += u64::from(report.failures);
    }
    println!("{count} seeds: {deaths} deaths, {failures} failures, {stops} stops, {drains} drains");
    if count >= 100 {
        assert!(deaths > count / 2 && failures > count && stops > count / 8);
        assert!(drains > count / 10);
    }
}

#[test]
fn with_records_in_flight_of_two_inputs_dropped_the_simulation_notices() {
    let wrong = |seed: &u64| {
        let dropping = Failpoints::new(|point| point == Failpoint::InFlight);
        let simulation = simulation(*seed, trouble()).failpoints(dropping);
        simulate(simulation, &Ledger::new()).is_ok_and(|(checked, _)| checked.is_err())
    };
    let caught = (0..40).filter(wrong).count();
    println!("{caught} of 40 seeds end with a wrong answer");
    assert!(caught > 0);
}
