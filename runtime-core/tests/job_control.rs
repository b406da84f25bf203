//! What can be asked of a running job: checkpoints, how it stands, its end.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use job_support::{
    Count, Items, Ledger, asking, expected, lines, now, parts, settings, totals, with_memory,
    without_interval, wordcount, words,
};
use runtime_core::coordinator::{CheckpointKind, CoordinatorConfig, FailureReason, Phase};
use runtime_core::execution::{CheckpointDone, Failpoint, Failpoints, JobReport, JobState, Reply};
use runtime_core::testing::Driver;
use runtime_core::{ExecutionSettings, Job, JobEvent};
use state_api::{CheckpointId, Error, ErrorKind};

#[test]
fn a_checkpoint_on_demand_is_answered_with_what_it_cost_and_where_it_is() {
    let replies: Arc<Mutex<Vec<Reply<CheckpointDone>>>> = Arc::default();
    let ours = Arc::clone(&replies);
    let mut driver = Driver::new(3);
    let parts = asking(&driver, with_memory(parts()).0, move |control, event| {
        if let JobEvent::Running { .. } = event {
            ours.lock().unwrap().push(control.checkpoint(false));
            ours.lock().unwrap().push(control.checkpoint(true));
        }
    });
    let job = wordcount(&lines(400), 2, &Ledger::new());
    driver.run(&job, &without_interval(), parts).unwrap();
    let done: Vec<_> = replies
        .lock()
        .unwrap()
        .drain(..)
        .map(|reply| now(reply).unwrap())
        .collect();
    assert_eq!([done[0].id, done[1].id], [CheckpointId(1), CheckpointId(2)]);
    for done in done {
        assert_eq!(done.kind, CheckpointKind::Checkpoint);
        assert_eq!(done.path, Some(format!("chk-{}", done.id)));
        assert!(done.total_bytes > 0 && done.new_bytes == done.total_bytes);
    }
}

#[test]
fn a_report_tells_state_history_and_costs() {
    let replies: Arc<Mutex<Vec<Reply<JobReport>>>> = Arc::default();
    let ours = Arc::clone(&replies);
    let mut driver = Driver::new(5).budget(2);
    let parts = asking(&driver, with_memory(parts()).0, move |control, event| {
        if let JobEvent::Running { .. } = event {
            (0..14).for_each(|_| drop(control.checkpoint(false)));
        }
        if matches!(
            event,
            JobEvent::RunStarted { .. } | JobEvent::CheckpointCompleted(_)
        ) {
            ours.lock().unwrap().push(control.status());
        }
    });
    let job = wordcount(&lines(6000), 2, &Ledger::new());
    let mut settings = settings(10);
    assert_eq!(settings.history, 10, "Flink's default");
    settings.history = 7;
    let outcome = driver.run(&job, &settings, parts).unwrap();
    let reports: Vec<_> = replies
        .lock()
        .unwrap()
        .drain(..)
        .filter_map(|reply| now(reply).ok())
        .collect();
    let (first, last) = (&reports[0], &reports[reports.len() - 1]);
    assert_eq!(first.state, JobState::Starting);
    assert_eq!((first.completed, first.history.len(), first.run), (0, 0, 0));
    assert!(outcome.checkpoints > 12, "{}", outcome.checkpoints);
    assert!(last.completed > 10);
    assert_eq!(last.history.len(), 7);
    let newest = last.last_completed.as_ref().unwrap();
    assert_eq!(newest.id, CheckpointId(last.completed));
    assert!(newest.failure().is_none());
    let vertices: Vec<_> = newest
        .subtasks
        .iter()
        .map(|s| (s.task.to_string(), s.vertex.as_ref()))
        .collect();
    assert_eq!(vertices.len(), 4, "{vertices:?}");
    assert!(
        vertices[0].1.contains("lines") && vertices[2].1.contains("count"),
        "{vertices:?}"
    );
    let of_subtasks: u64 = newest.subtasks.iter().map(|s| s.total_bytes).sum();
    assert_eq!(of_subtasks, newest.total_bytes);
    assert!(last.last_failed.is_none() && last.last_savepoint.is_none());
}

#[test]
fn k_420_what_is_pending_and_what_a_run_began_from_are_told() {
    type Told = (Option<CheckpointId>, Reply<JobReport>);
    let replies: Arc<Mutex<Vec<Told>>> = Arc::default();
    let (ours, armed) = (Arc::clone(&replies), Arc::new(AtomicBool::new(false)));
    let arm = Arc::clone(&armed);
    let mut driver = Driver::new(4).budget(2);
    let parts = asking(
        &driver,
        with_memory(parts()).0,
        move |control, event| match event {
            JobEvent::Running { restored, .. } => {
                let told = (*restored, control.status());
                ours.lock().unwrap().push(told);
            }
            JobEvent::CheckpointCompleted(stats) if stats.id == CheckpointId(2) => {
                arm.store(true, Ordering::Relaxed);
            }
            _ => {}
        },
    );
    let (lines, ledger) = (lines(2000), Ledger::new());
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.clone(), 4))
        .try_map(
            move |line: String| match armed.swap(false, Ordering::Relaxed) {
                true => Err(Error::user("on purpose")),
                false => Ok(line),
            },
        )
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    driver.run(&job, &settings(10), parts).unwrap();
    let mut told = replies.lock().unwrap();
    let [(None, first), (Some(restored), second)] = &mut told[..] else {
        panic!("{} runs", told.len());
    };
    let now = |reply: &mut Reply<JobReport>| reply.now_or_never().unwrap().unwrap();
    assert_eq!(now(first).restored, None);
    let report = now(second);
    assert_eq!((report.run, report.state), (1, JobState::Running));
    // The failure was on its way when the next one completed, perhaps.
    assert!(*restored >= CheckpointId(2), "{restored}");
    let from = report.restored.unwrap();
    let path = format!("chk-{restored}");
    assert_eq!((from.id, from.path), (*restored, Some(path)));
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn an_expired_checkpoint_names_the_subtasks_that_it_waited_for() {
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let ours = Arc::clone(&failures);
    let reports: Arc<Mutex<Vec<Reply<JobReport>>>> = Arc::default();
    let status = Arc::clone(&reports);
    let mut driver = Driver::new(1);
    let mut parts = asking(
        &driver,
        with_memory(parts()).0,
        move |control, event| match event {
            JobEvent::CheckpointAborted { failure, .. }
                if failure.reason == FailureReason::Expired =>
            {
                ours.lock().unwrap().push(failure.to_string());
                status.lock().unwrap().push(control.status());
                control.cancel();
            }
            _ => {}
        },
    );
    // Publishing never begins, since no upload gets that far.
    let clock = driver.clock();
    parts.failpoints = Failpoints::new(move |point| {
        if point == Failpoint::Async {
            clock.advance(20);
        }
        false
    });
    let settings = settings(10);
    let settings = ExecutionSettings {
        checkpointing: CoordinatorConfig {
            timeout: Duration::from_millis(15),
            tolerable_failures: CoordinatorConfig::UNLIMITED,
            ..settings.checkpointing
        },
        ..settings
    };
    let job = wordcount(&lines(2000), 2, &Ledger::new());
    driver.run(&job, &settings, parts).unwrap();
    let failures = failures.lock().unwrap();
    let first = &failures[0];
    assert!(first.contains("subtasks done; "), "{first}");
    let waits = [
        "no barrier has come for",
        "writing state to the store for",
        "aligning for",
    ];
    assert!(waits.iter().any(|text| first.contains(text)), "{first}");
    assert!(!first.contains('\n'), "{first}");
    let report = now(reports.lock().unwrap().remove(0)).unwrap();
    assert!(report.aborted[&FailureReason::Expired] >= 1);
    let failed = report.last_failed.unwrap();
    assert_eq!(failed.failure().unwrap().reason, FailureReason::Expired);
}

#[test]
fn a_pending_checkpoint_is_reported_with_those_that_are_missing() {
    let replies: Arc<Mutex<Vec<Reply<JobReport>>>> = Arc::default();
    let ours = Arc::clone(&replies);
    let mut driver = Driver::new(1);
    let parts = asking(&driver, with_memory(parts()).0, move |control, event| {
        if let JobEvent::CheckpointTriggered(_) = event {
            ours.lock().unwrap().push(control.status());
        }
    });
    let job = wordcount(&lines(400), 2, &Ledger::new());
    driver.run(&job, &settings(10), parts).unwrap();
    let report = now(replies.lock().unwrap().remove(0)).unwrap();
    let [pending] = report.pending.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(
        (pending.id, pending.phase),
        (CheckpointId(1), Phase::Snapshotting)
    );
    assert_eq!(pending.total(), 4);
    let text = pending.to_string();
    assert!(
        text.starts_with("checkpoint 1: waiting for acks for 0.0 s, "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1 + pending.missing.len());
}

#[test]
fn questions_to_a_job_that_has_ended_or_has_no_storage_are_answered_with_an_error() {
    let mut driver = Driver::new(1);
    let control = driver.control();
    let job = wordcount(&lines(40), 1, &Ledger::new());
    let reply: Arc<Mutex<Option<Reply<CheckpointDone>>>> = Arc::default();
    let ours = Arc::clone(&reply);
    let parts = asking(&driver, parts(), move |control, event| {
        if let JobEvent::RunStarted { .. } = event {
            *ours.lock().unwrap() = Some(control.checkpoint(false));
        }
    });
    driver.run(&job, &without_interval(), parts).unwrap();
    let no_storage = reply.lock().unwrap().take().unwrap().wait().unwrap_err();
    assert_eq!(no_storage.kind(), ErrorKind::Config);
    let late = control.status().wait().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Cancelled);
}

#[test]
fn a_request_is_answered_also_when_the_history_holds_one_checkpoint_and_another_ended_after_it() {
    let mut subsumed = 0;
    for seed in 0..40 {
        let replies: Arc<Mutex<Vec<Reply<CheckpointDone>>>> = Arc::default();
        let ours = Arc::clone(&replies);
        let mut driver = Driver::new(seed);
        let parts = asking(&driver, with_memory(parts()).0, move |control, event| {
            if let JobEvent::Running { .. } = event {
                let mut ours = ours.lock().unwrap();
                ours.extend((0..2).map(|_| control.checkpoint(false)));
            }
        });
        let settings = without_interval();
        let settings = ExecutionSettings {
            checkpointing: CoordinatorConfig {
                max_concurrent: 2,
                ..settings.checkpointing
            },
            history: 1,
            ..settings
        };
        let job = wordcount(&lines(400), 2, &Ledger::new());
        driver.run(&job, &settings, parts).unwrap();
        for reply in replies.lock().unwrap().drain(..) {
            match now(reply) {
                Ok(done) => assert!(done.path.is_some() && done.total_bytes > 0),
                Err(error) => {
                    assert!(error.to_string().contains("a later checkpoint"), "{error}");
                    subsumed += 1;
                }
            }
        }
    }
    assert!(subsumed > 0, "none was subsumed");
}
