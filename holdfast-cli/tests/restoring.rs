//! What of a savepoint a job starts from: told before it happens, some operators alone, others anew, under other names.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use support::place::{INTERRUPTED, ask};
use support::{Worker, arg, every_nth_flight, holdfast, one_error_line, rows, run, text, tree};

/// A word count that was stopped with a savepoint.
struct Stopped {
    folder: tempfile::TempDir,
    savepoint: String,
    /// Words of the input.
    words: u64,
}

impl Stopped {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..6000)
            .map(|n| format!("word{} the\n", n % 500))
            .collect();
        std::fs::write(folder.path().join("text"), lines).unwrap();
        let mut stopped = Self {
            folder,
            savepoint: String::new(),
            words: 12_000,
        };
        let first = stopped.arguments(
            "first",
            &["--events", "--rate", "2000", "--interval", "50ms"],
        );
        let mut worker = Worker::spawn(&mut holdfast(&words(&first)));
        worker.wait_past_checkpoint();
        let (told, _) = ask(&["stop", "--target", arg(&stopped.path("savepoints"))]);
        worker.finish();
        stopped.savepoint = told.trim_end().to_owned();
        stopped
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, output: &str, more: &[&str]) -> Vec<String> {
        let path = |name: &str| arg(&self.path(name)).to_owned();
        let common = ["run", "wordcount", "--input"]
            .map(str::to_owned)
            .into_iter();
        let places = [
            path("text"),
            "--output".into(),
            path(output),
            "--checkpoints".into(),
            path("c"),
            "--job-id".into(),
        ];
        common
            .chain(places)
            .chain([output.to_owned()])
            .chain(more.iter().map(|word| (*word).to_owned()))
            .collect()
    }

    /// Starts from the savepoint and runs to the end.
    fn from(&self, output: &str, more: &[&str]) -> Output {
        run(&words(&self.arguments(
            output,
            &[&["--from", &self.savepoint][..], more].concat(),
        )))
    }

    /// The words that an output counts.
    fn counted(&self, output: &str) -> u64 {
        rows(&self.path(output))
            .iter()
            .map(|row| row.rsplit(',').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn a_plan_is_printed_before_it_is_applied_or_instead() {
    let stopped = Stopped::new();
    let before = tree(stopped.folder.path());
    let planned = stopped.from("planned", &["--plan", "--parallelism", "3"]);
    let told = text(&planned.stdout);
    assert!(
        planned.status.success() && planned.stderr.is_empty(),
        "{}",
        text(&planned.stderr)
    );
    assert!(
        told.starts_with("from savepoint ") && told.contains(" of job first\n"),
        "{told}"
    );
    let line = |uid: &str| {
        told.lines()
            .find(|line| line.trim_start().starts_with(uid))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("count").contains("restored") && line("count").ends_with("1 -> 3"),
        "{told}"
    );
    assert_eq!(
        tree(stopped.folder.path()),
        before,
        "a plan changes nothing"
    );
    let applied = stopped.from("applied", &["--parallelism", "3"]);
    let errors = text(&applied.stderr);
    assert!(applied.status.success(), "{errors}");
    assert!(errors.contains(told.trim_end()), "{errors}");
    assert!(
        errors.find("from savepoint") < errors.find("restored checkpoint"),
        "{errors}"
    );
    assert_eq!(stopped.counted("applied"), stopped.words);
    let empty = stopped.arguments("empty", &["--from", "latest", "--plan"]);
    assert_eq!(
        text(&run(&words(&empty)).stdout),
        "from the beginning: there is no checkpoint yet\n"
    );
}

#[test]
fn some_operators_are_restored_and_others_start_anew() {
    let stopped = Stopped::new();
    let anew = |output: &str, more: &[&str]| {
        let output_of_run = stopped.from(output, more);
        let errors = text(&output_of_run.stderr);
        assert!(output_of_run.status.success(), "{errors}");
        assert!(errors.contains("reset, starts empty"), "{errors}");
        stopped.counted(output)
    };
    // The counts forget what was read before; or the text is read again from its beginning.
    let forgotten = stopped.words - anew("forgotten", &["--reset", "count"]);
    let again = anew("again", &["--reset", "text"]) - stopped.words;
    let only = stopped.words - anew("only", &["--only", "text,files", "--parallelism", "2"]);
    assert!(forgotten > 0);
    assert_eq!((again, only), (forgotten, forgotten));
}

#[test]
fn what_a_job_does_not_have_is_renamed_or_left_behind_and_never_lost_by_mistake() {
    let stopped = Stopped::new();
    let input = every_nth_flight(stopped.folder.path(), 60);
    let flights = |more: &[&str]| {
        let output = stopped.path("flights-out");
        let arguments = [
            "run",
            "flights",
            "--input",
            arg(&input),
            "--output",
            arg(&output),
            "--from",
            &stopped.savepoint,
        ];
        run(&[&arguments[..], more, &["--plan"]].concat())
    };
    let refused = flights(&[]);
    let told = one_error_line(&refused, 2);
    assert!(
        told.contains("an operator that the job does not have") && told.contains("operator=count"),
        "{told}"
    );
    let renamed = flights(&["--rename", "count=delays", "--rename", "text=flights"]);
    let told = text(&renamed.stdout);
    assert!(
        told.contains("restored, was count") && told.contains("restored, was text"),
        "{told}{}",
        text(&renamed.stderr)
    );
    let left = flights(&["--allow-non-restored-state"]);
    assert!(
        text(&left.stdout).contains("left behind, not in the job"),
        "{}",
        text(&left.stderr)
    );
    for (more, told) in [
        (&["--rename", "coutn=delays"][..], "did you mean \"count\"?"),
        (&["--rename", "count=dleays"], "did you mean \"delays\"?"),
        (&["--rename", "count"], "old uid=new uid"),
        (&["--only", "delay"], "did you mean \"delays\"?"),
        (
            &["--allow-non-restored-state", "--reset", "nothing"],
            "the job has no such operator",
        ),
    ] {
        let line = one_error_line(&flights(more), 2);
        assert!(line.contains(told), "{more:?}: {line}");
    }
    for (more, told) in [
        (&["--plan"][..], "name it with --from"),
        (&["--reset", "count"], "name it with --from"),
        (&["--from", "latest", "--only", "count"], "of the job's own"),
    ] {
        let arguments = stopped.arguments("x", more);
        let line = one_error_line(&run(&words(&arguments)), 2);
        assert!(line.contains(told), "{more:?}: {line}");
    }
    assert!(!stopped.path("x").exists());
}

#[test]
fn a_job_that_is_ended_early_goes_on_as_it_was_told_to_start() {
    let stopped = Stopped::new();
    let arguments = stopped.arguments(
        "early",
        &[
            "--events",
            "--rate",
            "100",
            "--interval",
            "1h",
            "--reset",
            "count",
        ],
    );
    let arguments = [words(&arguments), vec!["--from", &stopped.savepoint]].concat();
    let mut worker = Worker::spawn(&mut holdfast(&arguments));
    worker.wait_for("running");
    let (_, errors) = ask(&["cancel"]);
    assert!(
        errors.contains("--reset count")
            && errors.contains(&format!("--from {}", stopped.savepoint)),
        "{errors}"
    );
    assert_eq!(worker.rest().1.code(), Some(INTERRUPTED));
    assert!(Path::new(&stopped.savepoint).exists());
}
