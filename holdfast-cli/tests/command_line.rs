//! What the program says to people: first lines, summaries, and one clear line for everything that is wrong.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use support::place::ask;
use support::{
    Worker, arg, every_nth_flight, holdfast, january, one_error_line, rows, rows_of, run, text,
};

/// A file of three flights and a line of somebody else's.
fn with_a_bad_line(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("bad.csv");
    let good = std::fs::read_to_string(january()).unwrap();
    let lines: Vec<&str> = good.lines().take(4).collect();
    std::fs::write(
        &path,
        format!("{}\nsee attachment\n{}\n", lines.join("\n"), lines[1]),
    )
    .unwrap();
    path
}

#[test]
fn wrong_arguments_are_one_line_and_exit_code_2() {
    let january = january();
    let input = arg(&january);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let file = arg(&file);
    let empty = arg(folder.path());
    for (arguments, told) in [
        (vec!["run", "flight"], "possible values: wordcount, flights"),
        (
            vec!["run", "flights", "--inptu", "x"],
            "unexpected argument '--inptu'",
        ),
        (vec!["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (vec!["run", "flights"], "--input FILE"),
        (
            vec!["run", "flights", "--input", "/no/such.csv"],
            "/no/such.csv",
        ),
        (vec!["run", "flights", "--input", "-"], "standard input"),
        (
            vec!["run", "wordcount", "--input", "-", "--checkpoints", "c"],
            "does not come twice",
        ),
        (vec!["run", "flights", "--input", file], "missing: year"),
        (
            vec!["run", "flights", "--input", input, "--backend", "hashmop"],
            "did you mean \"hashmap\"?",
        ),
        (
            vec!["run", "flights", "--input", input, "--backend", "rocksdb"],
            "not compiled in",
        ),
        (
            vec!["run", "flights", "--input", input, "--rate", "0"],
            "above 0",
        ),
        (
            vec!["run", "flights", "--input", input, "--parallelism", "0"],
            "--parallelism",
        ),
        (
            vec!["run", "flights", "--input", input, "--interval", "1s"],
            "execution.checkpointing.dir",
        ),
        (
            vec![
                "run",
                "flights",
                "--input",
                input,
                "--interval",
                "soon",
                "--checkpoints",
                "c",
            ],
            "--interval",
        ),
        (
            vec![
                "run",
                "flights",
                "--input",
                input,
                "--config",
                "/no/such.yaml",
            ],
            "/no/such.yaml",
        ),
        (
            vec!["run", "flights", "--input", input, "--from", "latest"],
            "--checkpoints DIR",
        ),
        (
            vec!["run", "flights", "--input", input, "--job-id", "../x"],
            "--job-id",
        ),
        (
            vec![
                "run",
                "flights",
                "--input",
                input,
                "--airlines",
                "/no/airlines.csv",
            ],
            "/no/airlines.csv",
        ),
        (
            vec!["run", "flights", "--input", input, "--output", file],
            "output folder",
        ),
        (
            vec!["run", "flights", "--input", input, "--output", empty],
            "has files in it",
        ),
        (
            vec![
                "run",
                "flights",
                "--input",
                input,
                "--output",
                "/proc/holdfast",
            ],
            "/proc/holdfast",
        ),
        (
            vec!["run", "flights", "--input", input, "--checkpoints", file],
            "checkpoints can't be written",
        ),
        (
            vec![
                "run",
                "flights",
                "--input",
                input,
                "--checkpoints",
                "/proc/holdfast",
            ],
            "checkpoints can't be written",
        ),
        (vec!["demo", "--backend", "rocksdb"], "rocksdb"),
        (vec!["demo", "--rate", "5"], "100..=20000"),
        (vec!["list", "/no/such"], "/no/such"),
        (vec!["list", file], "not a folder"),
        (vec!["show", "/no/such"], "/no/such"),
        (vec!["show", empty], "no complete checkpoint"),
    ] {
        let output = run(&arguments);
        let line = one_error_line(&output, 2);
        assert!(line.contains(told), "{arguments:?}: {line}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{arguments:?}");
    }
}

#[test]
fn help_has_examples_and_the_exit_codes() {
    for command in ["run", "demo", "list", "show"] {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(
            text(&output.stdout).contains("Examples:\n  holdfast "),
            "{command}"
        );
    }
    assert!(text(&run(&["--help"]).stdout).contains("77   a newer run of the job has taken over"));
    assert!(text(&run(&["--version"]).stdout).starts_with("holdfast 0."));
}

#[test]
fn a_line_that_is_no_flight_names_file_and_offset_and_shows_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let input = with_a_bad_line(folder.path());
    let offset = std::fs::read_to_string(&input)
        .unwrap()
        .find("see attachment")
        .unwrap();
    let output = run(&["run", "flights", "--input", arg(&input)]);
    let line = one_error_line(&output, 1);
    assert!(
        line.contains("it has 1 fields, not 19") && line.contains("see attachment"),
        "{line}"
    );
    assert!(
        line.contains("file=bad.csv") && line.contains(&format!("offset={offset}")),
        "{line}"
    );
}

#[test]
fn a_full_disk_is_one_line() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = holdfast(&["run", "flights", "--input", arg(&january())])
        .stdout(full)
        .output()
        .unwrap();
    let line = one_error_line(&output, 1);
    assert!(line.contains("No space left on device"), "{line}");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = holdfast(&["list", "--json"]).stdout(full).output().unwrap();
    assert!(one_error_line(&output, 1).contains("No space left on device"));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let mut child = holdfast(&["run", "flights", "--input", arg(&january())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert!(
        !errors.contains("error") && !errors.contains("panicked"),
        "{errors}"
    );
}

#[test]
fn the_first_line_says_what_becomes_of_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 50);
    let first = |more: &[&str]| {
        let output = run(&[&["run", "flights", "--input", arg(&input)], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr).lines().next().unwrap().to_owned()
    };
    assert!(first(&[]).starts_with("checkpoints: off"));
    let place = folder.path().join("c");
    let told = first(&["--checkpoints", arg(&place)]);
    let expected = format!(
        "checkpoints: every 1s in {}/flights; the last one is kept at finish, failure and Ctrl-C",
        place.display()
    );
    assert!(told.starts_with(&expected), "{told}");
    let told = first(&[
        "--checkpoints",
        arg(&place),
        "--retain",
        "never",
        "--interval",
        "250ms",
    ]);
    assert!(
        told.contains("every 250ms") && told.contains("deleted when the job ends"),
        "{told}"
    );
}

#[test]
fn checkpoints_are_kept_at_the_end_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 50);
    for (retain, kept) in [
        (None, true),
        (Some("on-cancel"), false),
        (Some("never"), false),
        (Some("always"), true),
    ] {
        let place = folder.path().join(retain.unwrap_or("default"));
        let mut arguments = vec![
            "run",
            "flights",
            "--input",
            arg(&input),
            "--checkpoints",
            arg(&place),
        ];
        arguments.extend(retain.iter().flat_map(|retain| ["--retain", retain]));
        assert!(run(&arguments).status.success());
        let shown = run(&["show", &format!("{}/flights", place.display())]);
        assert_eq!(shown.status.success(), kept, "{retain:?}");
    }
}

#[test]
fn a_run_from_the_beginning_does_not_add_to_the_rows_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 50);
    let (output, checkpoints) = (folder.path().join("out"), folder.path().join("c"));
    let arguments = [
        "run",
        "flights",
        "--input",
        arg(&input),
        "--output",
        arg(&output),
        "--checkpoints",
        arg(&checkpoints),
    ];
    assert!(run(&arguments).status.success());
    let before = rows(&output);
    assert!(one_error_line(&run(&arguments), 2).contains("--from latest"));
    let again = run(&[&arguments[..], &["--from", "latest"]].concat());
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(rows(&output), before);
}

/// Rows that a later checkpoint committed would come again.
#[test]
fn a_run_from_an_older_checkpoint_does_not_add_to_the_rows_of_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 50);
    let path = |name: &str| arg(&folder.path().join(name)).to_owned();
    let (input, output, checkpoints) = (arg(&input).to_owned(), path("out"), path("c"));
    let mut worker = Worker::start(&[
        "--input",
        &input,
        "--output",
        &output,
        "--checkpoints",
        &checkpoints,
        "--rate",
        "300",
        "--interval",
        "100ms",
    ]);
    worker.wait_past_checkpoint();
    let (told, _) = ask(&["savepoint", "flights", "--target", &path("savepoints")]);
    worker.finish();
    let (savepoint, before) = (told.trim_end(), rows(Path::new(&output)));
    let from = |output: &str| {
        run(&[
            "run",
            "flights",
            "--input",
            &input,
            "--output",
            output,
            "--checkpoints",
            &checkpoints,
            "--from",
            savepoint,
        ])
    };
    let line = one_error_line(&from(&output), 2);
    assert!(line.contains("committed, from part-"), "{line}");
    assert_eq!(rows(Path::new(&output)), before);
    // Moved away, the rest comes once more, and nothing twice.
    let later = line.split("from ").nth(1).unwrap();
    let first = later.split(' ').next().unwrap();
    for entry in std::fs::read_dir(&output).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap() >= first {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let again = from(&output);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(rows(Path::new(&output)), before);
}

/// A checkpoint goes on with the files that it names, so another one is not what somebody wants.
#[test]
fn a_run_that_goes_on_reads_the_file_that_is_named_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 50);
    let path = |name: &str| arg(&folder.path().join(name)).to_owned();
    let (output, checkpoints) = (path("out"), path("c"));
    let places = ["--output", &output, "--checkpoints", &checkpoints];
    let mut worker = Worker::start(
        &[
            &["--input", arg(&input), "--rate", "300"][..],
            &places,
            &["--interval", "100ms"],
        ]
        .concat(),
    );
    worker.wait_past_checkpoint();
    ask(&["stop", "flights", "--no-savepoint"]);
    drop(worker.rest());
    let other = path("other.csv");
    std::fs::copy(&input, &other).unwrap();
    let go_on = |input: &str| {
        run(&[
            &["run", "flights", "--input", input, "--from", "latest"][..],
            &places,
        ]
        .concat())
    };
    let refused = go_on(&other);
    let line = one_error_line(&refused, 2);
    assert!(
        line.contains("reads another file") && line.contains("flights.csv"),
        "{line}"
    );
    assert!(
        !text(&refused.stderr).contains("go on from it with"),
        "the same would fail again"
    );
    let done = go_on(arg(&input));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut expected = rows_of(&input, &[]);
    expected.sort_unstable();
    assert_eq!(rows(Path::new(&output)), expected);
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_its_command_does() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 9);
    let (output, checkpoints) = (folder.path().join("the rows"), folder.path().join("c"));
    let arguments = [
        "-v",
        "run",
        "flights",
        "--input",
        arg(&input),
        "--output",
        arg(&output),
        "--checkpoints",
        arg(&checkpoints),
        "--interval",
        "50ms",
    ];
    let mut child = holdfast(&[&arguments[..], &["--rate", "1500"]].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(told.any(|line| line.contains("checkpoint completed")));
    kill_process(
        Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(),
        Signal::INT,
    )
    .unwrap();
    let rest: Vec<String> = told.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    let last = rest.last().unwrap();
    assert!(
        last.starts_with("interrupted; the last checkpoint is "),
        "{last}"
    );
    let (_, command) = last.split_once("go on with: ").unwrap();
    assert!(
        command.ends_with(" --from latest") && command.contains("'"),
        "{command}"
    );
    let resumed = std::process::Command::new("sh")
        .args(["-c", command])
        .output()
        .unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert!(
        text(&resumed.stderr).contains("restored checkpoint "),
        "{}",
        text(&resumed.stderr)
    );
    assert_eq!(rows(&output), rows_of(&input, &[]));
}

#[test]
fn wordcount_counts_words_of_files_and_of_the_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "one two two\nthree, Two!").unwrap();
    std::fs::write(folder.path().join("b.txt"), b"two \xff one\n").unwrap();
    let sorted = |output: &std::process::Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut rows: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        rows.sort_unstable();
        rows
    };
    for backend in ["hashmap", "reference"] {
        let counted = run(&[
            "run",
            "wordcount",
            "--input",
            arg(folder.path()),
            "--backend",
            backend,
            "--parallelism",
            "2",
        ]);
        assert_eq!(sorted(&counted), ["one,2", "three,1", "two,4"]);
    }
    let file = std::fs::File::open(folder.path().join("a.txt")).unwrap();
    let piped = holdfast(&["run", "wordcount", "--input", "-"])
        .stdin(file)
        .output()
        .unwrap();
    assert_eq!(sorted(&piped), ["one,1", "three,1", "two,3"]);
}
