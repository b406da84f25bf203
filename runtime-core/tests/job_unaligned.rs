//! Unaligned checkpoints of whole jobs: what a restore does with the records that were in flight.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::{Arc, Mutex};

use job_support::{Count, Items, Ledger, expected, lines, parts, settings, totals, words};
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::CheckpointStats;
use runtime_core::testing::{Driver, SteppedJob};
use runtime_core::{
    CheckpointMode, CheckpointStore, ExecutionSettings, Job, JobEvent, JobParts, MemoryCheckpoints,
    RestoreFrom,
};
use state_api::{CheckpointId, ErrorKind, ManualClock};

fn job(parallelism: u32, ledger: &Ledger<(String, u64)>) -> Job {
    let job = Job::new("wordcount").parallelism(parallelism);
    job.source("lines", Items::new(lines(2_000), 4))
        .flat_map(words)
        .persist_in_flight()
        .key_by_ref(|word: &String| word)
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}

fn unaligned(restore: RestoreFrom) -> ExecutionSettings {
    let settings = settings(10);
    ExecutionSettings {
        restore,
        checkpointing: CoordinatorConfig {
            unaligned: true,
            ..settings.checkpointing
        },
        ..settings
    }
}

/// Runs the job until a checkpoint with records in flight is complete, and lets the process die.
fn die_with_records_in_flight(
    store: &MemoryCheckpoints,
    ledger: &Ledger<(String, u64)>,
) -> CheckpointStats {
    let found: Arc<Mutex<Option<CheckpointStats>>> = Arc::default();
    let to = Arc::clone(&found);
    let parts = JobParts {
        events: Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(stats) = event
                && stats.persisted_bytes > 0
            {
                to.lock().unwrap().get_or_insert(stats.clone());
            }
        }),
        seed: 11,
        ..parts().checkpoints(Arc::new(store.clone()))
    };
    let clock = Arc::new(ManualClock::at(0));
    let settings = unaligned(RestoreFrom::Nothing);
    let mut run = SteppedJob::start(job(3, ledger), settings, parts, clock).budget(4);
    loop {
        let ended = run.step().unwrap();
        assert!(ended.is_none(), "no checkpoint had records in flight");
        if let Some(stats) = found.lock().unwrap().take() {
            return stats;
        }
    }
}

fn go_on(
    parallelism: u32,
    settings: &ExecutionSettings,
    store: &MemoryCheckpoints,
    ledger: &Ledger<(String, u64)>,
) {
    let parts = parts().checkpoints(Arc::new(store.clone()));
    let job = job(parallelism, ledger);
    Driver::new(12).run(&job, settings, parts).unwrap();
}

#[test]
fn records_in_flight_are_in_the_checkpoint_and_come_back_at_another_parallelism() {
    for parallelism in [1, 2, 3, 5] {
        let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
        let stats = die_with_records_in_flight(&store, &ledger);
        let newest = store.completed().pop().unwrap();
        assert_eq!(newest.checkpoint, stats.id);
        let count = newest.operator("count").unwrap();
        let in_flight: u64 = (count.subtasks.iter())
            .flat_map(|subtask| &subtask.snapshot.in_flight_keyed)
            .map(|handle| handle.bytes.len())
            .sum();
        assert!(in_flight >= stats.persisted_bytes);
        go_on(
            parallelism,
            &unaligned(RestoreFrom::Latest),
            &store,
            &ledger,
        );
        assert_eq!(totals(&ledger.records()), expected(&lines(2_000)));
    }
}

#[test]
fn k_436_a_named_checkpoint_is_restored_without_its_records_in_flight() {
    let all: u64 = expected(&lines(2_000)).values().sum();
    for named in [true, false] {
        let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
        let stats = die_with_records_in_flight(&store, &ledger);
        let id = if named { stats.id } else { CheckpointId(1_000) };
        let settings = ExecutionSettings {
            without_in_flight: Some(id),
            ..unaligned(RestoreFrom::Latest)
        };
        go_on(2, &settings, &store, &ledger);
        let counted: u64 = totals(&ledger.records()).values().sum();
        assert_eq!(counted < all, named, "{counted} of {all}");
        assert!(counted > all / 2, "the rest is there");
    }
}

#[test]
fn unaligned_checkpoints_that_are_not_exactly_once_are_refused() {
    let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
    let settings = ExecutionSettings {
        mode: CheckpointMode::AtLeastOnce,
        ..unaligned(RestoreFrom::Nothing)
    };
    let parts = parts().checkpoints(Arc::new(store) as Arc<dyn CheckpointStore>);
    let refused = Driver::new(1).run(&job(1, &ledger), &settings, parts);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
}
