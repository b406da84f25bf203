//! Savepoints, and the ways to end a job from outside: what is kept is gone on from, and the rows are those of an uninterrupted run.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use rustix::process::Signal;
use support::Worker;
use support::place::{INTERRUPTED, Place, ask};

#[test]
fn a_cancelled_job_ends_at_once_and_its_last_checkpoint_stays() {
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_past_checkpoint();
    let (told, errors) = ask(&["cancel"]);
    assert!(
        errors.starts_with("job flights was cancelled; the last checkpoint is "),
        "{errors}"
    );
    let (_, status, run_errors) = worker.rest();
    assert_eq!(status.code(), Some(INTERRUPTED), "{run_errors}");
    assert!(run_errors.contains("go on with: "), "{run_errors}");
    place.finish(told.trim_end());
}

#[test]
fn sigterm_without_checkpoints_says_that_nothing_is_kept() {
    let place = Place::new();
    let arguments = place.arguments();
    let mut worker = Worker::start(&[&arguments[..4], &["--rate", "1500"]].concat());
    worker.wait_for("running");
    worker.signal(Signal::TERM);
    let (_, status, errors) = worker.rest();
    assert_eq!(status.code(), Some(INTERRUPTED), "{errors}");
    assert!(
        errors.contains("checkpoints are off") && errors.contains("nothing is kept"),
        "{errors}"
    );
}

/// Makes every checkpoint of a job fail that has taken none yet.
fn without_storage(place: &Place) {
    for id in 1..60 {
        let path = place.path(&format!("checkpoints/flights/chk-{id}"));
        std::fs::write(path, "in the way").unwrap();
    }
}

#[test]
fn when_there_is_no_last_checkpoint_sigterm_cancels_after_its_bound_or_at_the_next_signal() {
    for second in [None, Some(Signal::TERM), Some(Signal::INT)] {
        let place = Place::new();
        let bound = if second.is_some() { "1h" } else { "300ms" };
        let mut worker =
            place.start(&["--interval", "1h", "--stop-timeout", bound, "--rate", "300"]);
        worker.wait_for("progress");
        without_storage(&place);
        worker.signal(Signal::TERM);
        let mut told = worker.error_lines();
        assert!(told.any(|line| line.starts_with("warning: no last checkpoint yet")));
        if let Some(second) = second {
            worker.signal(second);
        }
        let rest: Vec<String> = told.collect();
        let expected = if second.is_some() {
            "cancelling at once"
        } else {
            "no last checkpoint within 300ms: cancelling"
        };
        assert!(rest.iter().any(|line| line.contains(expected)), "{rest:?}");
        let (_, status, _) = worker.rest();
        assert_eq!(status.code(), Some(INTERRUPTED), "{rest:?}");
    }
}
