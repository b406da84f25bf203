//! What becomes of each operator when a job starts from a checkpoint, said before it is done.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use job_support::{
    Count, Items, Ledger, asking, expected, lines, now, parts, settings, totals, with_memory,
    wordcount, words,
};
use runtime_core::config::{Configuration, RecoverySettings};
use runtime_core::execution::{OperatorFate, RestorePlan, SavepointFormat};
use runtime_core::testing::Driver;
use runtime_core::{ExecutionSettings, Job, JobEvent, JobParts, MemoryCheckpoints, RestoreFrom};
use state_api::{Error, ErrorKind};

/// A word count whose operators have names; it fails once after `armed` is set.
fn named(
    lines: &[String],
    ledger: &Ledger<(String, u64)>,
    [source, count, sink]: [&str; 3],
    armed: &Arc<AtomicBool>,
) -> Job {
    let job = Job::new("wordcount").parallelism(3);
    let (armed, failed) = (Arc::clone(armed), AtomicBool::new(false));
    job.source(source, Items::new(lines.to_vec(), 4))
        .try_map(move |line: String| {
            if armed.load(Ordering::Relaxed) && !failed.swap(true, Ordering::Relaxed) {
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process(count, Count::default())
        .sink_exactly_once(sink, ledger.clone());
    job
}

fn never() -> Arc<AtomicBool> {
    Arc::default()
}

/// Stops a word count of parallelism 2 in the middle; returns its savepoint.
fn stopped(
    lines: &[String],
    ledger: &Ledger<(String, u64)>,
) -> (JobParts, MemoryCheckpoints, String) {
    let (parts, store) = with_memory(parts());
    let reply = Arc::new(Mutex::new(None));
    let (ours, asked) = (Arc::clone(&reply), AtomicBool::new(false));
    let mut driver = Driver::new(3).budget(4);
    let first = asking(&driver, parts.clone(), move |control, event| {
        if let JobEvent::CheckpointCompleted(_) = event
            && !asked.swap(true, Ordering::Relaxed)
        {
            let stop = control.stop_with_savepoint(false, None, SavepointFormat::Canonical);
            *ours.lock().unwrap() = Some(stop);
        }
    });
    driver
        .run(&wordcount(lines, 2, ledger), &settings(10), first)
        .unwrap();
    let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
    (parts, store, done.path.unwrap())
}

fn from(path: &str) -> ExecutionSettings {
    ExecutionSettings {
        restore: RestoreFrom::Path(path.into()),
        ..settings(10)
    }
}

fn renaming(path: &str, pairs: &[(&str, &str)]) -> ExecutionSettings {
    let pairs = pairs
        .iter()
        .map(|(old, new)| ((*old).into(), (*new).into()));
    ExecutionSettings {
        rename_operators: pairs.collect(),
        ..from(path)
    }
}

#[test]
fn k_435_a_renamed_operator_gets_its_state_and_the_plan_says_so_first() {
    let (lines, ledger) = (lines(3000), Ledger::new());
    let (parts, store, path) = stopped(&lines, &ledger);
    let savepoint = Arc::clone(&store.savepoints()[&path]);
    let armed = never();
    let job = named(&lines, &ledger, ["lines", "tally", "out"], &armed);
    let settings = renaming(&path, &[("count", "tally")]);
    let plan = RestorePlan::new(&job, &settings, &savepoint).unwrap();
    let fates: Vec<_> = plan
        .operators
        .iter()
        .map(|o| (o.uid.as_str(), &o.fate))
        .collect();
    let count = state_api::OperatorUid::new("count").unwrap();
    assert_eq!(
        fates,
        [
            ("lines", &OperatorFate::Restored { renamed_from: None }),
            (
                "tally",
                &OperatorFate::Restored {
                    renamed_from: Some(count)
                }
            ),
            ("out", &OperatorFate::Restored { renamed_from: None }),
        ]
    );
    let text = plan.to_string();
    let mut text = text.lines();
    let first = text.next().unwrap();
    assert_eq!(
        first,
        format!("from savepoint {} of job wordcount:", savepoint.checkpoint)
    );
    let bytes = plan.operators[1].bytes;
    assert!(bytes > 0);
    assert_eq!(
        text.nth(1),
        Some(format!("  tally: restored from count, {bytes} bytes, parallelism 2 -> 3").as_str())
    );

    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (ours, begun) = (Arc::clone(&told), Arc::clone(&armed));
    let parts = JobParts {
        events: Arc::new(move |event: &JobEvent| match event {
            JobEvent::RestorePlanned(plan) => ours.lock().unwrap().push(plan.to_string()),
            JobEvent::CheckpointCompleted(_) => begun.store(true, Ordering::Relaxed),
            _ => {}
        }),
        ..parts
    };
    // Also after a failure, which goes on from a checkpoint that has the new name.
    let outcome = Driver::new(4)
        .budget(4)
        .run(&job, &settings, parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    assert_eq!(*told.lock().unwrap(), [plan.to_string()]);
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn operators_that_are_not_among_those_to_restore_start_empty_once() {
    let (lines, ledger) = (lines(3000), Ledger::new());
    let (parts, store, path) = stopped(&lines, &ledger);
    let armed = never();
    let job = named(&lines, &ledger, ["lines", "count", "out"], &armed);
    let settings = ExecutionSettings {
        restore_only: vec!["lines".into(), "out".into()],
        ..from(&path)
    };
    let plan = RestorePlan::new(&job, &settings, &store.savepoints()[&path]).unwrap();
    assert_eq!(plan.operators[1].fate, OperatorFate::Reset);
    assert!(
        plan.to_string()
            .contains("count: reset: starts empty on purpose, ")
    );
    let begun = Arc::clone(&armed);
    let parts = JobParts {
        events: Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(_) = event {
                begun.store(true, Ordering::Relaxed);
            }
        }),
        ..parts
    };
    let outcome = Driver::new(4)
        .budget(4)
        .run(&job, &settings, parts)
        .unwrap();
    assert_eq!(outcome.restarts, 1);
    // Each word was counted to somewhere twice, from one on: the failure reset nothing.
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (word, count) in ledger.records() {
        counts.entry(word).or_default().push(count);
    }
    for (word, total) in expected(&lines) {
        let mut seen = counts.remove(&word).unwrap();
        seen.sort_unstable();
        assert_eq!(seen.len() as u64, total, "{word}");
        let once = seen
            .iter()
            .filter(|n| seen.iter().filter(|m| m == n).count() == 1);
        let twice = (seen.len() - once.count()) as u64 / 2;
        assert!(twice > 0, "{word}: {seen:?}");
        assert_eq!(seen.iter().max(), Some(&(total - twice)), "{word}");
    }
}

#[test]
fn names_that_fit_nothing_are_refused_with_the_nearest_that_does() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let (parts, store, path) = stopped(&lines, &ledger);
    let savepoint = Arc::clone(&store.savepoints()[&path]);
    let job = |names| named(&lines, &ledger, names, &never());
    let refused = |job: &Job, settings: &ExecutionSettings| {
        let error = RestorePlan::new(job, settings, &savepoint).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(
        &job(["lines", "tally", "out"]),
        &renaming(&path, &[("conut", "tally")]),
    );
    assert_eq!(kind, ErrorKind::Config);
    assert!(
        text.contains("the checkpoint has no operator \"conut\": did you mean \"count\"?"),
        "{text}"
    );
    let (_, text) = refused(
        &job(["lines", "tally", "out"]),
        &renaming(&path, &[("count", "taly")]),
    );
    assert!(
        text.contains("the job has no operator \"taly\": did you mean \"tally\"?"),
        "{text}"
    );
    let (_, text) = refused(
        &job(["lines", "count", "out"]),
        &renaming(&path, &[("out", "count")]),
    );
    assert!(text.contains("would drop state"), "{text}");
    let (kind, text) = refused(&job(["lines", "counts", "out"]), &from(&path));
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(
        text.contains("operator=count, nearest operator without state=counts"),
        "{text}"
    );
    let only = ExecutionSettings {
        restore_only: vec!["outt".into()],
        ..from(&path)
    };
    let (kind, text) = refused(&job(["lines", "count", "out"]), &only);
    assert_eq!(kind, ErrorKind::Config);
    assert!(text.contains("did you mean \"out\"?"), "{text}");

    let each_time = ExecutionSettings {
        restore: RestoreFrom::Latest,
        ..only
    };
    let error = Driver::new(1)
        .run(&job(["lines", "count", "out"]), &each_time, parts)
        .unwrap_err();
    assert!(error.to_string().contains("named by its path"), "{error}");
}

#[test]
fn k_658_what_is_dropped_and_what_starts_empty_is_in_the_plan() {
    let (lines, ledger) = (lines(400), Ledger::new());
    let (_, store, path) = stopped(&lines, &ledger);
    let settings = ExecutionSettings {
        allow_non_restored_state: true,
        ..from(&path)
    };
    let job = named(&lines, &ledger, ["lines", "counts", "out"], &never());
    let plan = RestorePlan::new(&job, &settings, &store.savepoints()[&path]).unwrap();
    let fates: Vec<_> = plan
        .operators
        .iter()
        .map(|o| (o.uid.as_str(), &o.fate))
        .collect();
    assert_eq!(fates[1], ("counts", &OperatorFate::StartsEmpty));
    assert_eq!(fates[3], ("count", &OperatorFate::Dropped));
    assert!(
        plan.to_string()
            .contains("counts: starts empty, parallelism 3")
    );
}

#[test]
fn a_renaming_is_written_with_an_equals_sign() {
    let read = |text: &str| {
        let configuration = Configuration::new().with("execution.state-recovery.rename", text);
        RecoverySettings::from_configuration(&configuration.unwrap())
    };
    let rename = read("a b = c; d=e").unwrap().rename;
    let pairs: Vec<_> = rename
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(pairs, [("a b", "c"), ("d", "e")]);
    for text in ["a", "a=", "=b", "a=b=c", "a=b; a=c"] {
        assert_eq!(read(text).unwrap_err().kind(), ErrorKind::Config, "{text}");
    }
}
