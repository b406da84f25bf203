//! Checkpoints while a sink is far too slow: an unaligned one does not wait for it, an aligned one says what it waits for.
//! The sink takes virtual time for each record, so that the runs are the same everywhere.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use job_support::{Count, parts, settings, with_memory};
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::CheckpointStats;
use runtime_core::sink::{Sink, SinkContext, SinkWriter};
use runtime_core::sources::Generator;
use runtime_core::testing::Driver;
use runtime_core::{CheckpointMode, ExecutionSettings, Job, JobEvent};
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
