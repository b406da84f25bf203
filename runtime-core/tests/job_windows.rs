//! Event time: watermarks, windows, timers, and broadcast state, under the seeded driver.
mod job_support;

use std::collections::BTreeMap;

use job_support::{Items, Ledger, parts, settings, with_memory};
use managed_state::keyed::{At, DueTimer, ListState, Timers, ValueState};
use managed_state::operator::{BroadcastState, OperatorStates};
use runtime_core::operator::BroadcastSide;
use runtime_core::testing::Driver;
use runtime_core::{BroadcastOperator, Job, KeyedOperator, Out, States, Tumbling, Windowed};
use state_api::access::{Aggregator, ListAccess, ValueAccess};
use state_api::{Error, Result};

/// Sums the second field.
#[derive(Clone)]
struct Sum;

impl Aggregator for Sum {
    type In = (u32, i64, u64);
    type Acc = u64;
    type Out = u64;

    fn create(&self) -> u64 {
        0
    }

    fn add(&self, acc: &mut u64, input: (u32, i64, u64)) -> Result<()> {
        *acc += input.2;
        Ok(())
    }

    fn merge(&self, acc: &mut u64, other: u64) -> Result<()> {
        *acc += other;
        Ok(())
    }

    fn result(&self, acc: &u64) -> u64 {
        *acc
    }
}

/// (key, time, amount), out of order by up to 5 ms within each split.
fn events(n: u64) -> Vec<(u32, i64, u64)> {
    (0..n)
        .map(|i| {
            (
                (i % 5) as u32,
                (i as i64) + [0, 5, 2, 0, 4][(i % 5) as usize] - 5,
                i,
            )
        })
        .collect()
}

fn expected_windows(events: &[(u32, i64, u64)], size: i64) -> BTreeMap<(u32, i64), u64> {
    let mut sums = BTreeMap::new();
    for (key, time, amount) in events {
        *sums
            .entry((*key, time.div_euclid(size) * size))
            .or_default() += amount;
    }
    sums
}

#[test]
fn windows_fire_once_with_all_their_records_whatever_the_order_of_splits_and_failures() {
    for seed in 0..10 {
        let (events, ledger) = (events(400), Ledger::new());
        let (parts, _) = with_memory(parts());
        let failed = std::sync::atomic::AtomicBool::new(false);
        let job = Job::new("windows").parallelism(2);
        job.source("events", Items::new(events.clone(), 3))
            .assign_watermarks(5, |e: &(u32, i64, u64)| e.1)
            .try_map(move |e| {
                if e.2 == 300 && !failed.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    return Err(Error::user("on purpose"));
                }
                Ok(e)
            })
            .key_by(|e| e.0)
            .window(Tumbling::of(50))
            .aggregate("sums", Sum)
            .sink_exactly_once("out", ledger.clone());
        let outcome = Driver::new(seed).run(&job, &settings(10), parts).unwrap();
        assert_eq!(outcome.restarts, 1);
        let mut seen = BTreeMap::new();
        for Windowed {
            key,
            start_ms,
            end_ms,
            value,
        } in ledger.records()
        {
            assert_eq!(end_ms - start_ms, 50);
            assert_eq!(
                seen.insert((key, start_ms), value),
                None,
                "seed {seed}: a window fired twice"
            );
        }
        assert_eq!(seen, expected_windows(&events, 50), "seed {seed}");
    }
}

/// Joins names from the broadcast side to amounts: waits for a timer, so that all names of the time before are there.
#[derive(Clone, Default)]
struct Join {
    waiting: ListState<u64>,
    seen: ValueState<u64>,
    timers: Timers,
    names: BroadcastState<u32, String>,
}

impl BroadcastOperator for Join {
    type Key = u32;
    type In = (u32, i64, u64);
    type Broadcast = (u32, String);
    type Out = (String, u64, u64);

    fn open(&mut self, states: &mut States<'_, u32>, broadcast: &mut OperatorStates) -> Result<()> {
        self.waiting = states.list("waiting")?;
        self.seen = states.value("seen")?;
        self.timers = states.event_timers("due")?;
        self.names = broadcast.broadcast("names")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: (u32, i64, u64),
        at: &mut At<'_, u32>,
        _broadcast: &OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        at.list(self.waiting).push(record.2)?;
        at.value(self.seen).update(|n| *n += 1)?;
        at.timers(self.timers).set(out.time().unwrap_or(0))?;
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        (key, name): (u32, String),
        side: &mut BroadcastSide<'_, u32>,
        _out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        side.broadcast.entries_mut(self.names)?.insert(key, name);
        // Reaches every key that is there, each once.
        let seen = self.seen;
        side.keyed
            .for_each_key("seen", &(), |at| at.value(seen).update(|n| *n += 1000))
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<u32>,
        at: &mut At<'_, u32>,
        broadcast: &OperatorStates,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        assert!(due.is_of(self.timers));
        let name = broadcast
            .entries(self.names)?
            .get(at.key())
            .cloned()
            .unwrap_or_default();
        let waiting = at.list(self.waiting).get()?;
        at.list(self.waiting).clear()?;
        let seen = at.value(self.seen).get()?.unwrap_or(0);
        waiting
            .into_iter()
            .try_for_each(|amount| out.emit((name.clone(), amount, seen)))
    }
}

#[test]
fn a_broadcast_side_reaches_every_subtask_and_every_key_before_the_timers_of_its_time() {
    for (seed, parallelism) in [(1, 1), (2, 2), (3, 3)] {
        let (events, ledger) = (events(200), Ledger::new());
        let (parts, _) = with_memory(parts());
        let job = Job::new("join").parallelism(parallelism);
        let names: Vec<_> = (0..5).map(|k| (k, format!("name {k}"))).collect();
        let names = job.source("names", Items::new(names, 1)).parallelism(1);
        job.source("events", Items::new(events.clone(), 3))
            .assign_watermarks(5, |e: &(u32, i64, u64)| e.1)
            .key_by(|e| e.0)
            .connect_broadcast(&names, "join", Join::default())
            .sink_exactly_once("out", ledger.clone());
        Driver::new(seed).run(&job, &settings(10), parts).unwrap();
        let mut joined: Vec<_> = ledger
            .records()
            .into_iter()
            .map(|(name, amount, _)| (amount, name))
            .collect();
        joined.sort();
        let mut wanted: Vec<_> = events
            .iter()
            .map(|e| (e.2, format!("name {}", e.0)))
            .collect();
        wanted.sort();
        assert_eq!(joined, wanted, "seed {seed}");
    }
}

/// Emits what it has counted when the clock says so.
#[derive(Clone, Default)]
struct Delayed {
    count: ValueState<u64>,
    timers: Timers<u8>,
}

impl KeyedOperator for Delayed {
    type Key = u32;
    type In = (u32, i64, u64);
    type Out = (u32, u64);

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.count = states.value("count")?;
        self.timers = states.processing_timers("later")?;
        Ok(())
    }

    fn process(
        &mut self,
        _: (u32, i64, u64),
        at: &mut At<'_, u32>,
        _: &mut Out<'_, (u32, u64)>,
    ) -> Result<()> {
        if at.value(self.count).update(|n| {
            *n += 1;
            *n
        })? == 1
        {
            let later = at.now_ms() + 1_000_000;
            at.timers_in(self.timers, &7).set(later)?;
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<u32>,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, (u32, u64)>,
    ) -> Result<()> {
        assert_eq!(due.namespace::<u8>()?, 7);
        let count = at.value(self.count).get()?.unwrap_or(0);
        out.emit((due.key, count))
    }
}

#[test]
fn a_timer_in_processing_time_fires_when_the_clock_reaches_it() {
    let ledger: Ledger<(u32, u64)> = Ledger::new();
    let job = Job::new("delayed");
    let endless = runtime_core::sources::Generator::new(|i| ((i % 3) as u32, 0, i))
        .take(60)
        .per_second(0.05);
    job.source("events", endless)
        .key_by(|e: &(u32, i64, u64)| e.0)
        .process("delayed", Delayed::default())
        .sink_exactly_once("out", ledger.clone());
    let (parts, _) = with_memory(parts());
    Driver::new(4).run(&job, &settings(100_000), parts).unwrap();
    let mut fired: Vec<u32> = ledger.records().into_iter().map(|(key, _)| key).collect();
    fired.sort_unstable();
    assert_eq!(fired, [0, 1, 2]);
}
