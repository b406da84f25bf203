//! Checkpoints while a sink is far too slow: an unaligned one does not wait for it, an aligned one says what it waits for.
//! The sink takes virtual time for each record, so that the runs are the same everywhere.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use job_support::{Count, asking, now, parts, settings, with_memory};
use managed_state::operator::OperatorStates;
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::{
    CheckpointRecord, CheckpointStats, Failpoint, Failpoints, JobReport, Reply, SubtaskRecord,
};
use runtime_core::sink::{Sink, SinkContext, SinkWriter};
use runtime_core::sinks::CollectSink;
use runtime_core::sources::Generator;
use runtime_core::testing::Driver;
use runtime_core::{CheckpointMode, ExecutionSettings, Job, JobEvent, Operator, Out};
use state_api::{Clock, ManualClock, Result};

const RECORDS: u64 = 40_000;

/// Takes so many microseconds of virtual time per record.
#[derive(Clone)]
struct Slow {
    clock: Arc<ManualClock>,
    micros: u64,
}

struct SlowWriter {
    slow: Slow,
    owed: u64,
}

impl Sink for Slow {
    type In = (String, u64);
    type Writer = SlowWriter;

    fn writer(&self, _cx: &SinkContext) -> Result<SlowWriter> {
        Ok(SlowWriter {
            slow: self.clone(),
            owed: 0,
        })
    }
}

impl SinkWriter for SlowWriter {
    type In = (String, u64);

    fn write(&mut self, _record: (String, u64), _time_ms: Option<i64>) -> Result<()> {
        self.owed += self.slow.micros;
        let whole = self.owed / 1000;
        self.owed %= 1000;
        self.slow.clock.advance(i64::try_from(whole).unwrap());
        Ok(())
    }
}

fn job(clock: &Arc<ManualClock>, micros: u64) -> Job {
    let job = Job::new("slow").parallelism(2);
    let clock = Arc::clone(clock);
    job.source(
        "numbers",
        Generator::new(|n| format!("k{}", n % 100)).take(RECORDS),
    )
    .persist_in_flight()
    .key_by_ref(|key: &String| key)
    .process("count", Count::default())
    .persist_in_flight()
    .rebalance()
    .sink("slow", Slow { clock, micros });
    job
}

/// What a run saw of its checkpoints.
#[derive(Default)]
struct Seen {
    completed: Vec<CheckpointStats>,
    failures: Vec<String>,
}

fn run(micros: u64, checkpointing: CoordinatorConfig) -> Seen {
    run_in(CheckpointMode::ExactlyOnce, micros, checkpointing)
}

fn run_in(mode: CheckpointMode, micros: u64, checkpointing: CoordinatorConfig) -> Seen {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let (mut parts, _store) = with_memory(parts());
    let to = Arc::clone(&seen);
    parts.events = Arc::new(move |event: &JobEvent| {
        let mut seen = to.lock().unwrap();
        match event {
            JobEvent::CheckpointCompleted(stats) => seen.completed.push(stats.clone()),
            JobEvent::CheckpointAborted { failure, .. } => {
                seen.failures.push(failure.detail.clone())
            }
            _ => {}
        }
    });
    // A step takes a record or two: nobody waits for a batch of another.
    let mut driver = Driver::new(5).budget(2);
    let job = job(&driver.clock(), micros);
    let settings = ExecutionSettings {
        mode,
        checkpointing: CoordinatorConfig {
            tolerable_failures: CoordinatorConfig::UNLIMITED,
            ..checkpointing
        },
        ..settings(100)
    };
    driver.run(&job, &settings, parts).unwrap();
    assert!(driver.clock().now_ms() > 0);
    std::mem::take(&mut *seen.lock().unwrap())
}

fn every(ms: u64, unaligned: bool) -> CoordinatorConfig {
    CoordinatorConfig {
        interval: Some(Duration::from_millis(ms)),
        unaligned,
        ..settings(100).checkpointing
    }
}

fn slowest(seen: &Seen) -> u64 {
    // The last one comes after the end of the input and waits for nothing.
    let during = &seen.completed[..seen.completed.len() - 1];
    during.iter().map(|stats| stats.duration_ms).max().unwrap()
}

#[test]
fn an_unaligned_checkpoint_takes_no_longer_under_back_pressure() {
    let free = run(50, every(200, true));
    let slow = run(1000, every(1_000, true));
    let bound = (2 * slowest(&free)).max(500);
    assert!(
        slowest(&slow) <= bound,
        "{} ms, without back-pressure {} ms",
        slowest(&slow),
        slowest(&free)
    );
    assert!(slow.completed.len() > 10);
    assert!(
        slow.completed
            .iter()
            .any(|stats| stats.persisted_bytes > 10_000)
    );
    assert!(slow.failures.is_empty(), "{:?}", slow.failures);
}

#[test]
fn an_aligned_checkpoint_under_back_pressure_expires_and_says_what_it_waits_for() {
    for mode in [CheckpointMode::ExactlyOnce, CheckpointMode::AtLeastOnce] {
        let aligned = CoordinatorConfig {
            timeout: Duration::from_millis(500),
            ..every(1_000, false)
        };
        let seen = run_in(mode, 1000, aligned);
        let detail = seen.failures.first().expect("it can't complete in time");
        assert!(detail.contains("waiting for acks"), "{detail}");
        assert!(detail.contains("slow"), "names the operator: {detail}");
        assert!(
            detail.contains("barrier"),
            "says what the operator waits for: {detail}"
        );
        assert!(
            seen.failures.iter().any(|detail| detail.contains(" bytes")),
            "says how far it is: {:?}",
            seen.failures
        );
    }
}

#[test]
fn an_aligned_checkpoint_with_a_timeout_turns_unaligned_under_back_pressure() {
    let timeout = CoordinatorConfig {
        aligned_timeout: Duration::from_millis(300),
        ..every(1_000, true)
    };
    let slow = run(1000, timeout.clone());
    assert!(slowest(&slow) <= 300 + 500, "{} ms", slowest(&slow));
    assert!(
        slow.completed
            .iter()
            .any(|stats| stats.persisted_bytes > 10_000)
    );
    // Where nothing is in the way they complete before, and nothing in flight is written.
    let free = run(1, timeout);
    let first = &free.completed[0];
    assert!(
        first.persisted_bytes == 0 && first.duration_ms < 300,
        "{first:?}"
    );
}

/// Takes ten milliseconds per record.
#[derive(Clone)]
struct SlowSteps {
    clock: Arc<ManualClock>,
}

impl Operator for SlowSteps {
    type In = u64;
    type Out = u64;

    fn process(
        &mut self,
        record: u64,
        _: &mut OperatorStates,
        out: &mut Out<'_, u64>,
    ) -> Result<()> {
        self.clock.advance(10);
        out.emit(record)
    }
}

const SYNC_MS: u64 = 3;
const ASYNC_MS: u64 = 5;

/// A checkpoint of a job in which a fast source and a slow operator feed one sink, as the history has it: what the slow operator, the
/// sink and the fast source contributed.
fn of_the_history(
    mode: CheckpointMode,
    unaligned: bool,
) -> (Arc<CheckpointRecord>, [SubtaskRecord; 3]) {
    let replies: Arc<Mutex<Vec<Reply<JobReport>>>> = Arc::default();
    let ours = Arc::clone(&replies);
    let mut driver = Driver::new(5).budget(2);
    let mut parts = asking(&driver, with_memory(parts()).0, move |control, event| {
        if let JobEvent::CheckpointCompleted(_) = event {
            ours.lock().unwrap().push(control.status());
        }
    });
    // Freezing and writing take their time too.
    let clock = driver.clock();
    parts.failpoints = Failpoints::new(move |point| {
        match point {
            Failpoint::Sync => clock.advance(SYNC_MS as i64),
            Failpoint::Async => clock.advance(ASYNC_MS as i64),
            _ => {}
        }
        false
    });
    let job = Job::new("slow").parallelism(1);
    // More than the slow operator takes, and few enough for the sink to take at once.
    let many = Generator::new(|n| n).take(RECORDS / 8);
    let few = Generator::new(|n| n).take(4_000).per_second(10.0);
    let slow = job
        .source("fed slowly", many)
        .flat_map(|n| vec![n; 8])
        .persist_in_flight()
        .rebalance()
        .operator(
            "slow",
            SlowSteps {
                clock: driver.clock(),
            },
        )
        .persist_in_flight();
    let fast = job.source("fast", few).persist_in_flight();
    let both = slow.union([&fast]);
    both.sink("sink", CollectSink::new());
    let settings = ExecutionSettings {
        mode,
        checkpointing: every(10_000, unaligned),
        ..settings(100)
    };
    driver.run(&job, &settings, parts).unwrap();
    let told = replies.lock().unwrap().drain(..).collect::<Vec<_>>();
    let reports = told.into_iter().filter_map(|reply| now(reply).ok());
    // The first finds the channels empty, the last one waits for nothing.
    let second = reports.filter_map(|report| report.last_completed).nth(1);
    let second = second.expect("there are more than two");
    let of = |name: &str| {
        let mut subtasks = second.subtasks.iter();
        let found = subtasks.find(|subtask| subtask.vertex.contains(name));
        found
            .unwrap_or_else(|| panic!("{name} in {second:?}"))
            .clone()
    };
    let found = ["slow", "sink", "fast"].map(|name| match name {
        // Not its source.
        "slow" => of("rebalance"),
        name => of(name),
    });
    (second, found)
}

#[test]
fn the_history_says_of_each_subtask_what_its_part_of_a_checkpoint_cost() {
    const MS: u64 = 1_000_000;
    for (mode, unaligned) in [
        (CheckpointMode::ExactlyOnce, false),
        (CheckpointMode::AtLeastOnce, false),
        (CheckpointMode::ExactlyOnce, true),
    ] {
        let (record, [slow, sink, fast]) = of_the_history(mode, unaligned);
        assert_eq!(record.subtasks.len(), 4, "{record:?}");
        for subtask in &record.subtasks {
            let cost = &subtask.cost;
            assert!(cost.sync_ns >= SYNC_MS * MS, "{subtask:?}");
            assert!(cost.async_ns >= ASYNC_MS * MS, "{subtask:?}");
            assert!(cost.async_ns < record.duration_ms * MS, "{subtask:?}");
        }
        // A source aligns nothing.
        let of_source = &fast.cost.alignment;
        let nothing = (of_source.duration_ns, of_source.bytes);
        assert_eq!((nothing, of_source.persisted_bytes), ((0, 0), 0));
        let (slow, sink) = (&slow.cost.alignment, &sink.cost.alignment);
        if unaligned {
            // The barrier passes what is queued in front of the slow one, which becomes part of the checkpoint.
            assert!(slow.start_delay_ms < 200, "{slow:?}");
            assert!(slow.persisted_bytes > 1_000, "{slow:?}");
        } else {
            // It waits behind that, and the sink, which has had the one of the fast source, for it.
            assert!(slow.start_delay_ms > 5_000, "{slow:?}");
            assert!(sink.start_delay_ms < slow.start_delay_ms, "{sink:?}");
            assert!(sink.duration_ns > 5_000 * MS, "{sink:?}");
            assert!(sink.bytes > 1_000, "{sink:?}");
            assert_eq!((slow.persisted_bytes, sink.persisted_bytes), (0, 0));
        }
    }
}
