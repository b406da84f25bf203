//! Unaligned checkpoints of whole jobs: what a restore does with the records that were in flight.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use job_support::ends::CastEnds;
use job_support::{Count, Hooked, Items, Ledger, expected, lines, parts, settings, totals, words};
use runtime_core::compat::check_compat_with;
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::execution::{CheckpointStats, RestorePlan};
use runtime_core::restart::RestartStrategy;
use runtime_core::sinks::CollectSink;
use runtime_core::testing::{Driver, SteppedJob};
use runtime_core::{
    CheckpointMode, CheckpointStore, ExecutionSettings, Job, JobEvent, JobParts, MemoryCheckpoints,
    RestoreFrom, Stream,
};
use state_api::{CheckpointId, ErrorKind, ManualClock};

/// The words in flight, and how they are read.
fn words_in_flight(parallelism: u32) -> (Job, Stream<String>) {
    let job = Job::new("wordcount").parallelism(parallelism);
    let words = job
        .source("lines", Items::new(lines(2_000), 4))
        .flat_map(words)
        .persist_in_flight();
    (job, words)
}

fn job(parallelism: u32, ledger: &Ledger<(String, u64)>) -> Job {
    let (job, words) = words_in_flight(parallelism);
    words
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

/// Runs a job until a checkpoint with records in flight is complete, and lets the process die.
fn die_with_records_in_flight(job: Job, store: &MemoryCheckpoints) -> CheckpointStats {
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
    let mut run = SteppedJob::start(job, settings, parts, clock).budget(4);
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
        let stats = die_with_records_in_flight(job(3, &ledger), &store);
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
        let stats = die_with_records_in_flight(job(3, &ledger), &store);
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

/// Returns how often each word is there.
fn tally(records: Vec<String>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for word in records {
        *tally.entry(word).or_default() += 1;
    }
    tally
}

#[test]
fn records_in_flight_pass_through_an_operator_that_is_new_in_front_of_theirs() {
    let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
    let (job, words) = words_in_flight(3);
    let of = |words: Stream<String>| {
        words
            .operator("a", Hooked::new())
            .sink_exactly_once("out", ledger.clone());
    };
    of(words.rebalance());
    die_with_records_in_flight(job, &store);
    let (job, words) = words_in_flight(2);
    of(words.rebalance().operator("new", Hooked::new()));
    let parts = parts().checkpoints(Arc::new(store.clone()));
    let settings = unaligned(RestoreFrom::Latest);
    Driver::new(12).run(&job, &settings, parts).unwrap();
    assert_eq!(tally(ledger.records()), expected(&lines(2_000)));
}

/// Expects that a job is not started from the checkpoint, and says so before, unless the records in flight are given up.
fn refused(job: &Job, settings: &ExecutionSettings, store: &MemoryCheckpoints, operator: &str) {
    let checkpoint = store.completed().pop().unwrap();
    let error = RestorePlan::new(job, settings, &checkpoint).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert_eq!(error.context("operator"), Some(operator), "{error}");
    let report = check_compat_with(&checkpoint, job, settings).unwrap();
    let problems = &report.operator(operator).unwrap().problems;
    let told = |problems: &[String]| problems.iter().any(|p| p.contains("records in flight"));
    assert!(told(problems), "{report}");
    let parts = || parts().checkpoints(Arc::new(store.clone()));
    let once = ExecutionSettings {
        restart: RestartStrategy::None,
        ..settings.clone()
    };
    let error = Driver::new(12).run(job, &once, parts()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");

    let settings = ExecutionSettings {
        without_in_flight: Some(checkpoint.checkpoint),
        ..once
    };
    let report = check_compat_with(&checkpoint, job, &settings).unwrap();
    let problems = &report.operator(operator).unwrap().problems;
    assert!(!told(problems), "{report}");
    Driver::new(12).run(job, &settings, parts()).unwrap();
}

#[test]
fn records_in_flight_to_sinks_in_another_order_are_not_lost_in_silence() {
    let (a, b) = (Ledger::new(), Ledger::new());
    let job_of = |sinks: &[(&str, &Ledger<String>)]| {
        let (job, words) = words_in_flight(3);
        let words = words.rebalance();
        for (uid, ledger) in sinks {
            words.sink_exactly_once(uid, (*ledger).clone());
        }
        job
    };
    let store = MemoryCheckpoints::new();
    die_with_records_in_flight(job_of(&[("a", &a), ("b", &b)]), &store);
    let settings = unaligned(RestoreFrom::Latest);
    refused(&job_of(&[("b", &b), ("a", &a)]), &settings, &store, "a");

    // Nor are those that only the other one was to have.
    let store = MemoryCheckpoints::new();
    die_with_records_in_flight(job_of(&[("a", &a), ("b", &b)]), &store);
    let dropping = ExecutionSettings {
        allow_non_restored_state: true,
        ..settings
    };
    refused(&job_of(&[("b", &b)]), &dropping, &store, "a");
}

#[test]
fn records_in_flight_to_an_operator_whose_input_is_of_another_kind_are_not_lost_in_silence() {
    let settings = unaligned(RestoreFrom::Latest);
    let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
    die_with_records_in_flight(job(3, &ledger), &store);
    let (with_broadcast, words) = words_in_flight(3);
    let numbers = with_broadcast.source("numbers", Items::new(vec![1], 1));
    words
        .map(|word| (word, 1))
        .key_by(|(word, _): &(String, u64)| word.clone())
        .connect_broadcast(&numbers, "count", CastEnds)
        .sink_exactly_once("out", ledger.clone());
    refused(&with_broadcast, &settings, &store, "count");

    let plain = |uid: &str| {
        let (job, words) = words_in_flight(3);
        let words = words.rebalance().operator(uid, Hooked::new());
        words.sink("out", CollectSink::<String>::new());
        job
    };
    let (store, ledger) = (MemoryCheckpoints::new(), Ledger::new());
    die_with_records_in_flight(job(3, &ledger), &store);
    refused(&plain("count"), &settings, &store, "count");

    let store = MemoryCheckpoints::new();
    die_with_records_in_flight(plain("count"), &store);
    refused(&job(3, &Ledger::new()), &settings, &store, "count");
}
