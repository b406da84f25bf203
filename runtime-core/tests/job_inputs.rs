//! Several inputs and several outputs of an operator, windows and timers across restores at other parallelisms, idle inputs.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use job_support::{Items, Ledger, parts, settings, with_memory};
use managed_state::keyed::{At, DueTimer, ListState, Timers, ValueState};
use runtime_core::restart::RestartStrategy;
use runtime_core::sources::Generator;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, Job, KeyedOperator, Out, Record, Session, SideOutput, SnapshotWork, States,
    Stream, TimeWindow, Timed, Tumbling, TwoInputOperator, Watermarks, WindowFunction,
};
use state_api::access::{ListAccess, ValueAccess};
use state_api::{CheckpointId, Error, Result};

/// Key, event time, number.
type Event = (u32, i64, u64);

/// Ends at the first failure, to be gone on with by another job.
fn once() -> ExecutionSettings {
    ExecutionSettings {
        restart: RestartStrategy::None,
        ..settings(10)
    }
}

/// Fails once when so many records have passed.
fn failing<T: Record>(stream: &Stream<T>, after: u64) -> Stream<T> {
    let seen = AtomicU64::new(0);
    stream.try_map(move |record| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == after {
            return Err(Error::user("on purpose"));
        }
        Ok(record)
    })
}

/// All records of a window, with it.
#[derive(Clone)]
struct Numbers;

impl WindowFunction for Numbers {
    type Key = u32;
    type In = Event;
    type Out = (u32, TimeWindow, Vec<u64>);

    fn process(
        &mut self,
        window: TimeWindow,
        records: Vec<Event>,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let mut numbers: Vec<u64> = records.into_iter().map(|record| record.2).collect();
        numbers.sort_unstable();
        out.emit((*at.key(), window, numbers))
    }
}

/// Bursts per key with pauses between them, out of order by up to 5 ms.
fn bursts() -> Vec<Event> {
    let time = |i: u64| (i + i / 30 * 17) as i64 + [0, 4, 1, 3, 2][(i % 5) as usize];
    (0..600).map(|i| ((i * 7 % 6) as u32, time(i), i)).collect()
}

fn sessions(events: &[Event], gap: i64) -> Vec<(u32, TimeWindow, Vec<u64>)> {
    let mut by_key: BTreeMap<u32, Vec<(i64, u64)>> = BTreeMap::new();
    for (key, time, number) in events {
        by_key.entry(*key).or_default().push((*time, *number));
    }
    let mut found = Vec::new();
    for (key, mut records) in by_key {
        records.sort_unstable();
        let mut open: Option<(TimeWindow, Vec<u64>)> = None;
        for (time, number) in records {
            let alone = TimeWindow::new(time, time + gap);
            match &mut open {
                Some((window, numbers)) if window.touches(alone) => {
                    *window = window.cover(alone);
                    numbers.push(number);
                }
                _ => {
                    let before = open.replace((alone, vec![number]));
                    found.extend(before.map(|(window, numbers)| (key, window, numbers)));
                }
            }
        }
        found.extend(open.map(|(window, numbers)| (key, window, numbers)));
    }
    found
        .iter_mut()
        .for_each(|session| session.2.sort_unstable());
    found.sort();
    found
}

#[test]
fn k_769_sessions_in_the_middle_of_which_a_job_dies_and_is_rescaled_are_whole() {
    let events = bursts();
    for seed in 0..12 {
        let ledger = Ledger::new();
        let (parts, _) = with_memory(parts());
        for (parallelism, fails_after) in [(2, 150 + seed * 7), (3, 120 + seed * 11), (1, 0)] {
            let job = Job::new("sessions").parallelism(parallelism);
            let read = job.source("events", Items::new(events.clone(), 4));
            failing(&read, fails_after)
                .assign_watermarks(5, |e: &Event| e.1)
                .key_by(|e| e.0)
                .window(Session::gap(9))
                .process("sessions", Numbers)
                .sink_exactly_once("out", ledger.clone());
            let outcome = Driver::new(seed).run(&job, &once(), parts.clone());
            assert_eq!(outcome.is_err(), fails_after > 0, "seed {seed}");
        }
        let mut seen = ledger.records();
        seen.sort();
        assert_eq!(seen, sessions(&events, 9), "seed {seed}");
    }
}

#[test]
fn a_union_has_all_records_of_all_streams_and_their_watermarks_whatever_fails() {
    for (seed, parallelism) in [(1, 1), (2, 2), (3, 3)] {
        let (events, ledger, in_order) = (bursts(), Ledger::new(), Ledger::new());
        let (parts, _) = with_memory(parts());
        let job = Job::new("union").parallelism(parallelism);
        let streams: Vec<Stream<Event>> = (0..3)
            .map(|part| {
                let part: Vec<Event> = events.iter().filter(|e| e.2 % 3 == part).copied().collect();
                let uid = format!("events {}", part[0].2);
                let read = job.source(&uid, Items::new(part, 2)).parallelism(2);
                read.assign_watermarks(5, |e: &Event| e.1)
            })
            .collect();
        let union = streams[0].union(&streams[1..]);
        union.sink_exactly_once("all", in_order.clone());
        failing(&union, 300)
            .key_by(|e| e.0)
            .window(Session::gap(9))
            .process("sessions", Numbers)
            .sink_exactly_once("out", ledger.clone());
        let outcome = Driver::new(seed).run(&job, &settings(10), parts).unwrap();
        assert_eq!(outcome.restarts, 1);
        let mut seen = ledger.records();
        seen.sort();
        assert_eq!(seen, sessions(&events, 9), "seed {seed}");
        let mut all: Vec<u64> = in_order.records().iter().map(|e| e.2).collect();
        all.sort_unstable();
        assert_eq!(all, (0..600).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// Joins what two inputs say of a key: waits for its time, so that both have said what they have.
#[derive(Clone, Default)]
struct Join {
    left: ListState<u64>,
    right: ListState<String>,
    timers: Timers,
}

impl TwoInputOperator for Join {
    type Key = u32;
    type First = Event;
    type Second = (u32, i64, String);
    type Out = (u32, Vec<u64>, Vec<String>);

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.left = states.list("left")?;
        self.right = states.list("right")?;
        self.timers = states.event_timers("due")?;
        Ok(())
    }

    fn process_first(
        &mut self,
        record: Event,
        at: &mut At<'_, u32>,
        _: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        at.list(self.left).push(record.2)?;
        at.timers(self.timers).set(1_000).map(drop)
    }

    fn process_second(
        &mut self,
        record: (u32, i64, String),
        at: &mut At<'_, u32>,
        _: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        at.list(self.right).push(record.2)?;
        at.timers(self.timers).set(1_000).map(drop)
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<u32>,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let (mut left, mut right) = (at.list(self.left).get()?, at.list(self.right).get()?);
        left.sort_unstable();
        right.sort_unstable();
        out.emit((due.key, left, right))
    }
}

#[test]
fn two_keyed_inputs_share_state_and_timers_through_failures_and_another_parallelism() {
    let events: Vec<Event> = (0..200).map(|i| ((i % 5) as u32, i as i64, i)).collect();
    let names: Vec<_> = (0..50)
        .map(|i| (i % 5, i64::from(i), format!("n{i:02}")))
        .collect();
    let joined = |key: u32| {
        let numbers = events.iter().filter(|e| e.0 == key).map(|e| e.2).collect();
        let names = names.iter().filter(|n| n.0 == key).map(|n| n.2.clone());
        (key, numbers, names.collect())
    };
    let expected: Vec<(u32, Vec<u64>, Vec<String>)> = (0..5).map(joined).collect();
    for seed in 0..6 {
        let ledger = Ledger::new();
        let (parts, _) = with_memory(parts());
        for (parallelism, fails_after) in [(1, 60), (3, 90), (2, 0)] {
            let job = Job::new("join").parallelism(parallelism);
            let read = job.source("names", Items::new(names.clone(), 2));
            let named = read.assign_watermarks(0, |n: &(u32, i64, String)| n.1);
            let read = job.source("events", Items::new(events.clone(), 4));
            let keyed = failing(&read, fails_after).assign_watermarks(0, |e: &Event| e.1);
            // Keys that are part of the record, keys that are made, and one of each.
            let (held, made) = (keyed.key_by_ref(|e| &e.0), keyed.key_by(|e| e.0));
            let first = if seed % 2 == 0 { held } else { made };
            let second = if seed % 3 == 0 {
                named.key_by_ref(|n| &n.0)
            } else {
                named.key_by(|n| n.0)
            };
            first
                .connect(&second)
                .process("join", Join::default())
                .sink_exactly_once("out", ledger.clone());
            let outcome = Driver::new(seed).run(&job, &once(), parts.clone());
            assert_eq!(outcome.is_err(), fails_after > 0, "seed {seed}");
        }
        let mut seen = ledger.records();
        seen.sort();
        assert_eq!(seen, expected, "seed {seed}");
    }
}

/// Tells odd numbers apart from even ones.
#[derive(Clone)]
struct Odd {
    odd: SideOutput<String>,
}

impl KeyedOperator for Odd {
    type Key = u32;
    type In = Event;
    type Out = u64;

    fn open(&mut self, _: &mut States<'_, u32>) -> Result<()> {
        Ok(())
    }

    fn process(
        &mut self,
        record: Event,
        _: &mut At<'_, u32>,
        out: &mut Out<'_, u64>,
    ) -> Result<()> {
        if record.2.is_multiple_of(2) {
            out.emit(record.2)
        } else {
            out.emit_side(self.odd, format!("{}", record.2))
        }
    }
}

#[test]
fn a_side_output_is_a_stream_of_its_own_with_as_many_readers_as_like() {
    let (even, odd, lengths) = (Ledger::new(), Ledger::new(), Ledger::new());
    let (parts, _) = with_memory(parts());
    let job = Job::new("odd").parallelism(2);
    let side = SideOutput::new();
    let read = job.source("events", Items::new(bursts(), 4));
    let numbers = read.key_by(|e| e.0).process("odd", Odd { odd: side });
    numbers.sink_exactly_once("even", even.clone());
    numbers
        .side_output(side)
        .sink_exactly_once("odd numbers", odd.clone());
    failing(&numbers.side_output(side), 100)
        .key_by(String::len)
        .window(Tumbling::of(10))
        .by_clock()
        .reduce("by length", |a, b| Ok(format!("{a}{b}")))
        .map(|window| window.value.len())
        .sink_exactly_once("lengths", lengths.clone());
    let outcome = Driver::new(3).run(&job, &settings(10), parts).unwrap();
    assert_eq!(outcome.restarts, 1);
    let mut even = even.records();
    even.sort_unstable();
    assert_eq!(even, (0..300).map(|i| 2 * i).collect::<Vec<_>>());
    let mut odd = odd.records();
    odd.sort_unstable();
    let mut expected: Vec<String> = (0..300).map(|i| format!("{}", 2 * i + 1)).collect();
    expected.sort_unstable();
    assert_eq!(odd, expected);
    // What waits for the clock at the end of the input does not fire.
    let all: usize = expected.iter().map(String::len).sum();
    assert!(lengths.records().iter().sum::<usize>() <= all);
}

#[test]
fn records_that_come_after_their_windows_are_a_stream() {
    let (fired, late) = (Ledger::new(), Ledger::new());
    let (parts, _) = with_memory(parts());
    // The last record of each ten is 35 too old, and every hundredth record is 5 too old.
    let time = |i: u64| match (i % 10, i % 100) {
        (_, 50) => i as i64 - 5,
        (9, _) => i as i64 - 35,
        _ => i as i64,
    };
    let events: Vec<Event> = (0..5_000).map(|i| (0, time(i), i)).collect();
    let job = Job::new("late");
    let side = SideOutput::new();
    let windows = job
        .source("events", Items::new(events, 1))
        .assign_watermarks(0, |e: &Event| e.1)
        // A watermark after every record.
        .key_by(|e| e.0)
        .window(Tumbling::of(10))
        .allowed_lateness(10)
        .late_output(side)
        .process("windows", Numbers);
    windows.sink_exactly_once("fired", fired.clone());
    windows
        .side_output(side)
        .sink_exactly_once("late", late.clone());
    Driver::new(1)
        .budget(1)
        .run(&job, &settings(50), parts)
        .unwrap();
    let late = late.records();
    assert!(late.iter().all(|e| e.2 % 10 == 9), "{late:?}");
    // Watermarks go out with batches, so most are late, not all.
    assert!(!late.is_empty());
    let mut last: BTreeMap<TimeWindow, Vec<u64>> = BTreeMap::new();
    for (_, window, numbers) in fired.records() {
        last.insert(window, numbers);
    }
    let mut all: Vec<u64> = last.into_values().flatten().collect();
    all.extend(late.iter().map(|e| e.2));
    all.sort_unstable();
    assert_eq!(all, (0..5_000).collect::<Vec<_>>());
}

/// Sets a timer per record, in event time and by the clock, and says when it fires and what it sees.
#[derive(Clone, Default)]
struct Alarms {
    seen: ValueState<u64>,
    event: Timers<u64>,
    clock: Timers,
    clock_at_ms: i64,
}

impl KeyedOperator for Alarms {
    type Key = u32;
    type In = Event;
    type Out = (&'static str, u32, u64);

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.seen = states.value("seen")?;
        self.event = states.event_timers("event")?;
        self.clock = states.processing_timers("clock")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: Event,
        at: &mut At<'_, u32>,
        _: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        at.value(self.seen).update(|n| *n += 1)?;
        at.timers_in(self.event, &record.2).set(record.1 + 40)?;
        at.timers(self.clock).set(self.clock_at_ms).map(drop)
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<u32>,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        if due.is_of(self.event) {
            return out.emit(("event", due.key, due.namespace()?));
        }
        let seen = at.value(self.seen).get()?.unwrap_or(0);
        out.emit(("clock", due.key, seen))
    }
}

#[test]
fn k_631_k_632_timers_fire_once_each_where_their_key_is_after_each_of_two_rescales() {
    let events: Vec<Event> = (0..300).map(|i| ((i % 17) as u32, i as i64, i)).collect();
    for seed in 0..8 {
        let ledger = Ledger::new();
        let (parts, _) = with_memory(parts());
        for (parallelism, fails_after) in [(2, 100 + seed), (3, 110), (1, 0)] {
            let job = Job::new("alarms").parallelism(parallelism);
            let read = job.source("events", Items::new(events.clone(), 4));
            let alarms = Alarms {
                clock_at_ms: i64::MAX,
                ..Alarms::default()
            };
            failing(&read, fails_after)
                .assign_watermarks(0, |e: &Event| e.1)
                .key_by(|e| e.0)
                .process("alarms", alarms)
                .sink_exactly_once("out", ledger.clone());
            let outcome = Driver::new(seed).run(&job, &once(), parts.clone());
            assert_eq!(outcome.is_err(), fails_after > 0, "seed {seed}");
        }
        let mut fired = ledger.records();
        fired.sort_unstable();
        let mut expected: Vec<_> = events.iter().map(|e| ("event", e.0, e.2)).collect();
        expected.sort_unstable();
        assert_eq!(fired, expected, "seed {seed}");
    }
}

#[test]
fn a_timer_by_the_clock_that_is_overdue_at_a_restore_fires_though_nothing_comes_in() {
    let ledger = Ledger::new();
    let (parts, _) = with_memory(parts());
    let due_at = 1_000_000;
    let job = |fails: bool| {
        let job = Job::new("overdue").parallelism(2);
        let events = Generator::new(move |i| ((i % 3) as u32, 0, i))
            .take(4)
            .per_second(0.5);
        let alarms = Alarms {
            clock_at_ms: due_at,
            ..Alarms::default()
        };
        job.source("events", events)
            .try_map(move |e: Event| match e.2 {
                3 if fails => Err(Error::user("on purpose")),
                _ => Ok(e),
            })
            .key_by(|e| e.0)
            .process("alarms", alarms)
            .sink_exactly_once("out", ledger.clone());
        job
    };
    let outcome = Driver::new(1).run(&job(true), &once(), parts.clone());
    assert!(outcome.is_err());
    assert_eq!(ledger.records(), []);
    let mut driver = Driver::new(2);
    driver.clock().set(due_at + 60_000);
    driver.run(&job(false), &once(), parts).unwrap();
    let mut fired = ledger.records();
    fired.retain(|alarm| alarm.0 == "clock");
    fired.sort_unstable();
    fired.dedup();
    // Each key's, at once; key 0 fires once more for the record that came later.
    assert_eq!(
        fired[..3],
        [("clock", 0, 1), ("clock", 0, 2), ("clock", 1, 1)]
    );
}

/// A source that is silent after some records: subtask 1 has nothing for a long time.
fn with_a_silent_input(job: &Job, watermarks: Watermarks) -> Stream<Event> {
    let steady = Generator::timed(|i| Timed {
        value: (1, i as i64 * 10, i),
        time: i as i64 * 10,
    });
    let steady = job
        .source("steady", steady.take(400).per_second(100.0))
        .parallelism(1);
    let silent = Generator::new(|i| (2, i as i64, i)).take(2).per_second(0.2);
    let silent = job.source("silent", silent).parallelism(1);
    let stamped = |stream: Stream<Event>| stream.assign_watermarks_with(watermarks, |e| e.1);
    stamped(steady).union([&stamped(silent)])
}

#[test]
fn an_input_that_is_silent_for_the_time_allowed_holds_nobody_back() {
    let fired_before_the_end = |watermarks| {
        let job = Job::new("idle");
        let at: Arc<Mutex<Vec<i64>>> = Arc::default();
        let ours = Arc::clone(&at);
        let mut driver = Driver::new(5);
        let clock = driver.clock();
        with_a_silent_input(&job, watermarks)
            .key_by(|e| e.0)
            .window(Tumbling::of(100))
            .process("windows", Numbers)
            .map(move |window| {
                ours.lock()
                    .unwrap()
                    .push(state_api::Clock::now_ms(clock.as_ref()));
                window
            })
            .sink_exactly_once("out", Ledger::new());
        let (parts, _) = with_memory(parts());
        driver.run(&job, &settings(100), parts).unwrap();
        let at = at.lock().unwrap();
        at.iter().filter(|now| **now < 4_500).count()
    };
    let patient = Watermarks::out_of_order(0);
    assert_eq!(fired_before_the_end(patient), 0);
    assert!(fired_before_the_end(patient.idle_after(300)) >= 30);
}

/// Flushes a buffer of its own to a shelf that is slow, and refuses once.
#[derive(Clone)]
struct Buffered {
    buffer: Vec<u64>,
    shelf: Arc<Mutex<Vec<u64>>>,
    refusals: Arc<AtomicU64>,
    kept: ListState<u64>,
    completed: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl KeyedOperator for Buffered {
    type Key = u32;
    type In = Event;
    type Out = u64;

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.kept = states.list("kept")?;
        Ok(())
    }

    fn process(
        &mut self,
        record: Event,
        _: &mut At<'_, u32>,
        out: &mut Out<'_, u64>,
    ) -> Result<()> {
        self.buffer.push(record.2);
        out.emit(record.2)
    }

    fn snapshot_work(&mut self, _: CheckpointId) -> Result<Option<SnapshotWork>> {
        let (buffer, shelf) = (self.buffer.clone(), Arc::clone(&self.shelf));
        let refusals = Arc::clone(&self.refusals);
        Ok(Some(SnapshotWork::future(async move {
            if refusals.fetch_add(1, Ordering::Relaxed) == 1 {
                return Err(Error::user("the shelf is full"));
            }
            *shelf.lock().unwrap() = buffer;
            Ok(())
        })))
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let shelved = self.shelf.lock().unwrap().len();
        self.completed.lock().unwrap().push((checkpoint.0, shelved));
        Ok(())
    }
}

#[test]
fn a_checkpoint_completes_only_after_the_work_that_an_operator_handed_over_has_succeeded() {
    let buffered = Buffered {
        buffer: Vec::new(),
        shelf: Arc::default(),
        refusals: Arc::default(),
        kept: ListState::default(),
        completed: Arc::default(),
    };
    let (completed, shelf) = (Arc::clone(&buffered.completed), Arc::clone(&buffered.shelf));
    let ledger = Ledger::new();
    let job = Job::new("buffered");
    job.source("events", Items::new(bursts(), 1))
        .key_by(|e| e.0)
        .process("buffered", buffered)
        .sink_exactly_once("out", ledger.clone());
    let (parts, _) = with_memory(parts());
    let mut settings = settings(10);
    settings.checkpointing.tolerable_failures = 10;
    settings.checkpointing.min_pause = Duration::from_millis(1);
    Driver::new(4).run(&job, &settings, parts).unwrap();
    let completed = completed.lock().unwrap();
    // The second was declined, and what was completed had been shelved by then.
    let ids: Vec<u64> = completed.iter().map(|(id, _)| *id).collect();
    assert!(
        ids.contains(&1) && !ids.contains(&2) && ids.len() > 1,
        "{ids:?}"
    );
    assert!(completed.iter().skip(1).all(|(_, shelved)| *shelved > 0));
    assert_eq!(shelf.lock().unwrap().len(), 600);
    assert_eq!(ledger.records().len(), 600);
}
