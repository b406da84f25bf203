//! Savepoints, and the ways to end a job from outside: what is kept is gone on from, and the rows are those of an uninterrupted run.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::hanging::Hanging;
use support::place::{INTERRUPTED, Place, ask, left};
use support::{Worker, arg, holdfast, one_error_line, rows, rows_of, run, text};

#[test]
fn a_savepoint_is_a_path_on_the_standard_output_that_another_job_goes_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut words = String::new();
    for n in 0..6000 {
        words.push_str(&format!("word{} and{} the\n", n % 700, n % 13));
    }
    std::fs::write(path("text"), &words).unwrap();
    let common = |output: &str, more: &[&str]| {
        let (text, output, checkpoints) = (path("text"), path(output), path("checkpoints"));
        let arguments = [
            "run",
            "wordcount",
            "--input",
            arg(&text),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
        ];
        let mut command = holdfast(&arguments);
        command.args(more);
        command
    };
    let whole = common("whole", &["--job-id", "whole"]).output().unwrap();
    assert!(whole.status.success());
    let expected = rows(&path("whole"));

    let mut worker = Worker::spawn(&mut common(
        "out",
        &[
            "--events",
            "--rate",
            "2000",
            "--interval",
            "100ms",
            "--parallelism",
            "2",
        ],
    ));
    worker.wait_past_checkpoint();
    for format in ["canonical", "native"] {
        let mut command = holdfast(&[
            "savepoint",
            "wordcount",
            "--target",
            "savepoints",
            "--format",
            format,
        ]);
        // The folder is that of whoever asks.
        let output = command.current_dir(folder.path()).output().unwrap();
        let (told, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{errors}");
        let savepoint = told.strip_suffix('\n').unwrap();
        assert!(
            savepoint.starts_with(arg(&path("savepoints"))) && !savepoint.contains('\n'),
            "{told}"
        );
        assert!(
            errors.starts_with("savepoint ") && errors.contains(" of job wordcount"),
            "{errors}"
        );
        let (shown, _) = ask(&["show", savepoint]);
        assert!(shown.contains("savepoint"), "{shown}");
        let (listed, _) = ask(&["list", arg(&path("savepoints"))]);
        assert!(
            listed.contains(savepoint.rsplit('/').next().unwrap()),
            "{listed}"
        );
        for parallelism in ["1", "3"] {
            let to = format!("from-{format}-{parallelism}");
            let again = common(
                &to,
                &[
                    "--job-id",
                    &to,
                    "--from",
                    savepoint,
                    "--parallelism",
                    parallelism,
                ],
            )
            .output()
            .unwrap();
            assert!(again.status.success(), "{}", text(&again.stderr));
            assert!(rows(&path(&to)) == expected, "{to}");
        }
    }
    let taken: Value = serde_json::from_str(&ask(&["checkpoint", "--full", "--json"]).0).unwrap();
    assert_eq!(taken["kind"], "checkpoint");
    assert!(
        Path::new(taken["path"].as_str().unwrap())
            .join("_metadata")
            .exists(),
        "{taken}"
    );
    worker.finish();
    assert_eq!(rows(&path("out")), expected);
}

#[test]
fn k_482_a_savepoint_needs_a_place() {
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_past_checkpoint();
    let output = run(&["savepoint"]);
    assert!(
        one_error_line(&output, 2).contains("savepoint-dir"),
        "{}",
        text(&output.stderr)
    );
    let file = place.path("flights.csv");
    let output = run(&["savepoint", "--target", arg(&file)]);
    assert!(one_error_line(&output, 1).contains(arg(&file)));
    assert!(output.stdout.is_empty());
    worker.finish();
    place.check_rows();
    let configured = place.path("configured");
    let option = format!(
        "execution.checkpointing.savepoint-dir={}",
        configured.display()
    );
    let other = Place::new();
    let mut worker = other.start(&["-D", &option]);
    worker.wait_for("running");
    let (told, _) = ask(&["savepoint"]);
    assert!(told.starts_with(arg(&configured)), "{told}");
    worker.finish();
    other.check_rows();
}

#[test]
fn k_773_a_job_without_periodic_checkpoints_takes_a_savepoint_and_one_without_a_folder_says_why_not()
 {
    let place = Place::new();
    let arguments = place.arguments();
    let target = place.path("savepoints");
    let take = ["savepoint", "--target", arg(&target)];
    let start =
        |more: &[&str]| Worker::start(&[&arguments[..4], &["--rate", "1500"], more].concat());

    let mut worker = start(&[]);
    worker.wait_for("running");
    let told = one_error_line(&run(&take), 2);
    assert!(told.contains("without a folder of checkpoints"), "{told}");
    ask(&["cancel"]);
    assert_eq!(worker.rest().1.code(), Some(INTERRUPTED));

    let folder = format!("execution.checkpointing.dir={}", place.path("c").display());
    let mut worker = start(&["-D", &folder]);
    worker.wait_for("running");
    let (told, _) = ask(&take);
    assert!(
        Path::new(told.trim_end()).join("_metadata").exists(),
        "{told}"
    );
    worker.finish();
    place.check_rows();
}

#[test]
fn a_job_that_is_stopped_goes_on_from_its_savepoint_or_last_checkpoint() {
    for (how, from) in [
        (&["--target", "TARGET"][..], "savepoint"),
        (&["--no-savepoint"], "checkpoint"),
    ] {
        let place = Place::new();
        // A savepoint is aligned whatever the checkpoints are.
        let mut worker = place.start(&["--parallelism", "2", "--unaligned"]);
        worker.wait_past_checkpoint();
        let target = place.path("savepoints");
        let how = how.iter().map(|word| {
            if *word == "TARGET" {
                arg(&target)
            } else {
                word
            }
        });
        let command: Vec<&str> = ["stop", "flights"].into_iter().chain(how).collect();
        let (told, errors) = ask(&command);
        let (_, status, run_errors) = worker.rest();
        assert_eq!(status.code(), Some(0), "{run_errors}");
        assert!(
            errors.contains(&format!("has stopped with {from}")) && errors.contains("go on with: "),
            "{errors}"
        );
        assert!(
            run_errors.contains(&format!("stopped with {from} ")),
            "{run_errors}"
        );
        assert_eq!(left(), [""; 0]);
        let path = told.trim_end();
        assert!(Path::new(path).join("_metadata").exists(), "{told}");
        assert!(rows(&place.path("out")).len() < place.expected.len());
        // Before it has a checkpoint of its own, a job goes on from what it began with.
        let mut again = place.start(&["--from", path, "--interval", "1h", "--rate", "100"]);
        again.wait_for("running");
        let (told, errors) = ask(&["cancel"]);
        assert_eq!(told.trim_end(), path, "{errors}");
        assert!(errors.contains(&format!("--from {path}")), "{errors}");
        drop(again.rest());
        place.finish(path);
    }
}

/// Names of what is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn k_761_a_savepoint_is_left_alone_or_taken_over_as_the_command_line_says() {
    for mode in [None, Some("no-claim"), Some("claim")] {
        let place = Place::new();
        let mut worker = place.start(&[]);
        worker.wait_past_checkpoint();
        let (told, _) = ask(&["stop", "--target", arg(&place.path("savepoints"))]);
        worker.finish();
        let savepoint = Path::new(told.trim_end());
        let before = names(savepoint);
        // Not from the last checkpoint, though it may be there: the rows up to the savepoint are out.
        let (_, status, errors) = place.start(&["--from", "latest"]).rest();
        assert_eq!(status.code(), Some(2), "{errors}");
        assert!(errors.contains(told.trim_end()), "{errors}");
        let claim = mode.map_or_else(Vec::new, |mode| vec!["--claim-mode", mode]);
        let from = ["--from", told.trim_end(), "--rate", "20000"];
        place.start(&[&from[..], &claim].concat()).finish();
        place.check_rows();
        if mode == Some("claim") {
            let left = if savepoint.exists() {
                names(savepoint)
            } else {
                Vec::new()
            };
            assert!(!left.contains(&"_metadata".to_owned()), "{left:?}");
        } else {
            assert_eq!(names(savepoint), before);
        }
    }
}

/// The files of a native savepoint are the database's; they are the savepoint's own, so that nothing is built upon them: the first
/// checkpoint of the claimer holds everything, and the savepoint goes when that one is there.
#[cfg(feature = "rocksdb")]
#[test]
fn k_761_ic_13_a_claimed_native_savepoint_over_rocksdb_goes_when_the_first_checkpoint_is_there() {
    for (before, after) in [("2", "2"), ("2", "3"), ("3", "1")] {
        let place = Place::new();
        let localdir = place.path("databases");
        let options = format!("state.backend.rocksdb.localdir={}", arg(&localdir));
        let common = [
            "--backend",
            "rocksdb",
            "-D",
            "execution.checkpointing.incremental=true",
            "-D",
            &options,
            "-D",
            "execution.checkpointing.data-inline-threshold=0",
        ];
        let start = |more: &[&str]| -> Worker { place.start(&[&common[..], more].concat()) };
        let mut worker = start(&["--parallelism", before]);
        worker.wait_past_checkpoint();
        let target = place.path("savepoints");
        let stop = ["stop", "--format", "native", "--target", arg(&target)];
        let (told, _) = ask(&stop);
        worker.finish();
        let savepoint = Path::new(told.trim_end());
        let objects = names(savepoint).len();
        assert!(objects > 2, "{:?}", names(savepoint));

        let from = ["--from", told.trim_end(), "--claim-mode", "claim"];
        let mut worker = start(&[&from[..], &["--parallelism", after]].concat());
        let first = worker.wait_for("completed");
        support::wait_until("the savepoint is gone", || !savepoint.exists());
        // Later ones build upon it, and need nothing of the savepoint.
        worker.wait_past_checkpoint();
        worker.kill();
        ask(&["verify", arg(&place.path("checkpoints"))]);
        let mut worker = start(&[
            "--from",
            "latest",
            "--parallelism",
            before,
            "--rate",
            "9000",
        ]);
        let restored = worker.wait_for("running");
        let first = first["checkpoint"].as_u64().unwrap();
        assert!(restored["restored"].as_u64().unwrap() > first, "{restored}");
        worker.finish();
        place.check_rows();
        assert!(names(&target).is_empty() && names(&localdir).is_empty());
    }
}

#[test]
fn a_drained_job_gives_the_rows_of_what_it_has_read_and_goes_on_with_the_rest() {
    let place = Place::new();
    let mut worker = place.start(&["--parallelism", "1"]);
    worker.wait_past_checkpoint();
    let target = place.path("savepoints");
    let (told, errors) = ask(&["stop", "--drain", "--target", arg(&target)]);
    assert!(errors.contains("has drained and stopped"), "{errors}");
    let (_, status, run_errors) = worker.rest();
    assert_eq!(status.code(), Some(0), "{run_errors}");
    // The flights are read in order: as many as are counted are the first of the file.
    let flights = |rows: &[String]| -> u64 {
        rows.iter()
            .map(|row| row.rsplit(',').nth(2).unwrap().parse::<u64>().unwrap())
            .sum()
    };
    let drained = rows(&place.path("out"));
    let read = usize::try_from(flights(&drained)).unwrap();
    let all = std::fs::read_to_string(place.path("flights.csv")).unwrap();
    assert!(read > 0 && read < all.lines().count() - 1);
    let some: String = all
        .lines()
        .take(read + 1)
        .flat_map(|line| [line, "\n"])
        .collect();
    std::fs::write(place.path("some.csv"), some).unwrap();
    assert_eq!(drained, rows_of(&place.path("some.csv"), &[]));
    let path = told.trim_end();
    place
        .start(&["--from", path, "--parallelism", "2", "--rate", "100000"])
        .finish();
    assert_eq!(flights(&rows(&place.path("out"))), flights(&place.expected));
}

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
fn sigterm_stops_with_a_last_checkpoint_that_holds_all_that_was_read() {
    stops_with_all_that_was_read(Signal::TERM);
}

/// A terminal that goes takes nothing with it.
#[test]
fn sighup_stops_as_sigterm_does_however_often_it_comes() {
    if ignores_hangups() {
        println!("skipped: whoever started this has it ignore SIGHUP, and so does what it starts");
        return;
    }
    stops_with_all_that_was_read(Signal::HUP);
}

fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// A hangup after the signal, as of a terminal that closes, is no reason to cancel.
fn stops_with_all_that_was_read(signal: Signal) {
    let place = Place::new();
    // Never by itself: what is kept was taken at the signal.
    let mut worker = place.start(&["--interval", "1h", "--parallelism", "2"]);
    while worker.wait_for("progress")["left"].as_u64().unwrap() > 2500 {}
    worker.signal(signal);
    worker.signal(Signal::HUP);
    let (_, status, errors) = worker.rest();
    assert_eq!(status.code(), Some(0), "{errors}");
    let stopping = ": stopping with a last checkpoint, within 60s;";
    let (by, _) = errors
        .split_once(stopping)
        .unwrap_or_else(|| panic!("{errors}"));
    // Signals that come together are heard in any order.
    assert!(["SIGTERM", "SIGHUP"].contains(&by), "{errors}");
    assert!(errors.contains("\nstopped with checkpoint "), "{errors}");
    assert_eq!(left(), [""; 0]);
    assert!(
        !rows(&place.path("out")).is_empty(),
        "what was read is committed"
    );
    place.finish("latest");
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

/// What is found out before anything holds still for the savepoint concerns only who asked.
#[test]
fn a_stop_whose_target_can_t_be_written_leaves_the_job_running() {
    let place = Place::new();
    let mut worker = place.start(&["--rate", "3000"]);
    worker.wait_past_checkpoint();
    let file = place.path("flights.csv");
    for how in [&[][..], &["--drain"]] {
        let stop = run(&[&["stop", "--target", arg(&file)], how].concat());
        assert_eq!(stop.status.code(), Some(1), "{}", text(&stop.stderr));
        worker.wait_past_checkpoint();
    }
    worker.finish();
    place.check_rows();
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
        let said = rest.iter().find(|line| line.contains(expected));
        let said = said.unwrap_or_else(|| panic!("{rest:?}"));
        let why = said.contains("; the last try: checkpoint ") && said.contains("chk-");
        assert!(why || second.is_some(), "{said}");
        let (_, status, _) = worker.rest();
        assert_eq!(status.code(), Some(INTERRUPTED), "{rest:?}");
    }
}

#[test]
fn sigterm_says_what_the_last_checkpoint_waited_for() {
    let mut job = Hanging::start(&["--stop-timeout", "700ms"]);
    kill_process(Pid::from_child(&job.child), Signal::TERM).unwrap();
    let errors = BufReader::new(job.child.stderr.take().unwrap());
    let told = errors
        .lines()
        .map(Result::unwrap)
        .find(|line| line.starts_with("warning: there was no last checkpoint within 700ms"))
        .unwrap();
    assert!(
        told.contains(" waiting for acks for ")
            && told.contains("; 1.0 count -> map -> stdout: no barrier has come for "),
        "{told}"
    );
}
