use super::*;
use crate::control::report::{Missing, Restored, SubtaskCost};
use crate::operate::explain;

fn ended(id: u64, kind: &str) -> Ended {
    Ended {
        id,
        kind: kind.into(),
        trigger_ms: 1_000_000,
        duration_ms: 12,
        total_bytes: 3 << 20,
        new_bytes: 1024,
        path: Some(format!("/c/{kind}-{id}")),
        subtasks: vec![SubtaskCost {
            subtask: "1/0".into(),
            operators: "count".into(),
            start_delay_ms: 3,
            alignment_ns: 1_500_000,
            sync_ns: 42_000,
            async_ns: 12_000_000,
            ..SubtaskCost::default()
        }],
        ..Ended::default()
    }
}

fn report() -> RunReport {
    let given_up = Ended {
        given_up: Some("the checkpoint expired:\n  1/1 count: aligning".into()),
        path: None,
        ..ended(5, "checkpoint")
    };
    RunReport {
        job: "flights".into(),
        process: 4711,
        now_ms: 1_002_412,
        state: "running".into(),
        attempt: 3,
        restarts: 1,
        uptime_ms: 123_000,
        restored: Some(Restored {
            id: 2,
            path: Some("/c/chk-2".into()),
            bytes_from_copies: 5 << 19,
            bytes_from_store: 1 << 10,
        }),
        records: 120_331,
        checkpoints: "every 1s in /c".into(),
        completed: 2,
        given_up: [("the checkpoint expired".to_owned(), 1)].into(),
        pending: vec![Pending {
            id: 7,
            kind: "checkpoint".into(),
            phase: "waiting for acks".into(),
            age_ms: 300,
            left_ms: 599_700,
            done: 1,
            subtasks: 2,
            missing: vec![Missing {
                subtask: "1/1".into(),
                operators: "count".into(),
                text: "1/1 count: aligning for 0.2 s".into(),
                ..Missing::default()
            }],
        }],
        history: vec![
            ended(4, "checkpoint"),
            given_up.clone(),
            ended(6, "savepoint"),
        ],
        last_completed: Some(ended(4, "checkpoint")),
        last_savepoint: Some(ended(6, "savepoint")),
        last_given_up: Some(given_up),
        ..RunReport::default()
    }
}

#[test]
fn a_status_is_a_fact_a_line() {
    assert_eq!(
        in_words(&report()),
        "\
job         flights, process 4711, attempt 3
state       running for 2 min 3 s, 1 restart
began from  checkpoint 2, /c/chk-2, 2.5 MiB out of local copies and 1.0 KiB out of the store
read        120,331 records
checkpoints every 1s in /c
            2 completed, 1 given up (1 × the checkpoint expired)
last        checkpoint 4, 2.4 s ago: took 12 ms, 3.0 MiB (1.0 KiB new), /c/checkpoint-4
savepoint   savepoint 6, 2.4 s ago: took 12 ms, 3.0 MiB (1.0 KiB new), /c/savepoint-6
given up    checkpoint 5, 2.4 s ago: the checkpoint expired: 1/1 count: aligning
pending     checkpoint 7: waiting for acks for 0.3 s, 1 of 2 subtasks done; expires in 9 min 59 s
"
    );
}

#[test]
fn requests_that_wait_for_deletions_say_so() {
    let mut report = RunReport {
        waiting_requests: 2,
        state: "running".into(),
        ..RunReport::default()
    };
    assert!(in_words(&report).ends_with("waiting     2 requests\n"));
    assert_eq!(under_way(&report).unwrap(), "waiting: 2 requests");
    report.waiting_for_deletions = 3;
    let told = in_words(&report);
    assert!(
        told.ends_with("waiting     2 requests, for the deletion of 3 checkpoints\n"),
        "{told}"
    );
    let told = explain::in_words(&report, None);
    assert!(
        told.starts_with("no checkpoint is under way\nwaiting: 2 requests, for the deletion of 3"),
        "{told}"
    );
}

#[test]
fn an_explanation_names_what_is_missing_and_what_each_part_took() {
    let told = explain::in_words(&report(), None);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines[0],
        "checkpoint 7: waiting for acks for 0.3 s, 1 of 2 subtasks done; expires in 9 min 59 s"
    );
    assert_eq!(lines[1], "  1/1 count: aligning for 0.2 s");
    assert_eq!(lines[3], "the last 3 checkpoints, newest first");
    assert!(lines[5].trim_start().starts_with("6  savepoint"), "{told}");
    assert!(
        lines[6].ends_with("the checkpoint expired: 1/1 count: aligning"),
        "{told}"
    );
    let of_four = explain::in_words(&report(), Some(4));
    assert!(
        of_four.starts_with(
            "checkpoint 4, 2.4 s ago: complete in 12 ms, 3.0 MiB (1.0 KiB new)\n  /c/checkpoint-4\n"
        ),
        "{of_four}"
    );
    assert!(
        of_four.contains("1/0      count       3 ms    1.5 ms"),
        "{of_four}"
    );
    assert!(of_four.contains("0.042 ms  12 ms"), "{of_four}");
    assert_eq!(of_four.lines().count(), 4);
    let empty = explain::in_words(&RunReport::default(), None);
    assert_eq!(empty, "no checkpoint is under way\nnone has ended yet\n");
}

#[test]
fn several_jobs_are_a_line_each() {
    let told = overview(&[
        report(),
        RunReport {
            job: "b".into(),
            state: "starting".into(),
            ..RunReport::default()
        },
    ]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].ends_with("checkpoint 4, 2.4 s ago"), "{told}");
    assert!(
        lines[2].starts_with("b ") && lines[2].ends_with('-'),
        "{told}"
    );
}
