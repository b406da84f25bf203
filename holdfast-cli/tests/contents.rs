//! `get`, `dump`, `diff`, `convert`, `rescale`, `edit` and `bootstrap`: on a job that the program has never seen, on a damaged
//! checkpoint, an empty folder, a path that is not there; and what comes of them is a job's start.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

#[path = "../../checkpoint-tools/tests/support/mod.rs"]
mod shop;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use shop::Shop;
use support::{arg, every_nth_flight, holdfast, one_error_line, rows, run, text, tree};

/// A folder with a savepoint of a shop.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self::of(&Shop {
            raw_keyed: false,
            ..Shop::default()
        })
    }

    fn of(shop: &Shop) -> Self {
        let dir = tempfile::tempdir().unwrap();
        shop.write(&dir.path().join("savepoint"), &shop::runtime());
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command that must succeed; returns what it printed.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = holdfast(arguments)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = holdfast(arguments)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        one_error_line(&output, code)
    }

    fn dump(&self, name: &str) -> Vec<String> {
        let dumped = self.ok(&["dump", name]);
        let without_place = |line: &str| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            let fields = value.as_object_mut().unwrap();
            fields.remove("key_group");
            fields.remove("subtask");
            value.to_string()
        };
        let mut lines: Vec<String> = dumped.lines().map(without_place).collect();
        lines.sort();
        lines
    }
}

#[test]
fn entries_of_a_job_that_the_program_does_not_know_are_dumped_and_looked_up() {
    let place = Place::new();
    let dumped = place.dump("savepoint");
    assert_eq!(dumped.len(), 20 * 9 + 2 * 2 + 2 + 2);
    let key = r#"{"shop":"south","number":7}"#;
    let got = place.ok(&["get", "savepoint", "totals", key]);
    assert!(got.contains(r#"{"amount":7.5,"last":"item-7"}"#), "{got}");
    let got = place.ok(&["get", "savepoint", "orders/visits", key, "--json"]);
    assert_eq!(got.lines().count(), 2);
    let first: Value = serde_json::from_str(got.lines().next().unwrap()).unwrap();
    assert_eq!(first["value"], "Online");
    assert_eq!(
        place
            .ok(&["get", "savepoint", "rates", "EUR"])
            .lines()
            .nth(1)
            .unwrap()
            .trim(),
        "\"EUR\"    1.0"
    );
    let line = place.fails(
        &[
            "get",
            "savepoint",
            "totals",
            r#"{"shop":"south","number":8}"#,
        ],
        8,
    );
    assert!(line.contains("nothing of key"), "{line}");

    place.ok(&[
        "dump",
        "savepoint",
        "--state",
        "totals",
        "--format",
        "csv",
        "--output",
        "totals.csv",
    ]);
    let table = std::fs::read_to_string(place.path("totals.csv")).unwrap();
    assert!(
        table.starts_with("key.shop,key.number,value.amount,value.last\n"),
        "{table}"
    );
    assert_eq!(table.lines().count(), 21);
    assert_eq!(
        place
            .ok(&["dump", "savepoint", "--limit", "5"])
            .lines()
            .count(),
        5
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::of(&Shop {
        customers: 3000,
        raw_keyed: false,
        ..Shop::default()
    });
    let mut child = holdfast(&["dump", "savepoint"])
        .current_dir(place.dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"operator\":"), "{line}");
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert!(
        ended.status.success() && ended.stderr.is_empty(),
        "{ended:?}"
    );
}

#[test]
fn what_is_not_there_empty_or_mistyped_is_said_in_one_line() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    let commands: [&[&str]; 7] = [
        &["dump", "PATH"],
        &["get", "PATH", "totals", "x"],
        &["diff", "PATH", "savepoint"],
        &["diff", "savepoint", "PATH"],
        &["convert", "PATH", "--to", "new"],
        &["rescale", "PATH", "--max-parallelism", "64", "--to", "new"],
        &["edit", "PATH", "--drop-state", "totals", "--to", "new"],
    ];
    for command in commands {
        for (path, told) in [
            ("empty", "no complete checkpoint"),
            ("missing", "no checkpoint under this path"),
        ] {
            let arguments: Vec<&str> = command
                .iter()
                .map(|part| if *part == "PATH" { path } else { part })
                .collect();
            let line = place.fails(&arguments, 2);
            assert!(line.contains(told), "{arguments:?}: {line}");
        }
    }
    assert!(!place.path("new").exists());
    for (arguments, told) in [
        (
            &["dump", "savepoint", "--state", "totalz"][..],
            "did you mean \"totals\"?",
        ),
        (
            &["dump", "savepoint", "--operator", "order"],
            "did you mean \"orders\"?",
        ),
        (
            &["get", "savepoint", "totals", r#"{"shop":"x","nr":1}"#],
            "no field \"nr\"",
        ),
        (
            &["edit", "savepoint", "--to", "new"],
            "nothing is to be changed",
        ),
        (
            &[
                "edit",
                "savepoint",
                "--to",
                "new",
                "--state",
                "totals",
                "--key",
                "1",
            ],
            "--value JSON or --delete",
        ),
        (
            &["convert", "savepoint", "--to", "savepoint"],
            "holds a checkpoint already",
        ),
        (
            &[
                "rescale",
                "savepoint",
                "--max-parallelism",
                "40000",
                "--to",
                "new",
            ],
            "32768",
        ),
    ] {
        let line = place.fails(arguments, 2);
        assert!(line.contains(told), "{arguments:?}: {line}");
    }
}

#[test]
fn damage_is_named_by_every_command_and_no_checkpoint_comes_of_it() {
    let place = Place::new();
    let shown: Value = serde_json::from_str(&place.ok(&["show", "savepoint", "--json"])).unwrap();
    let orders = &shown["operators"].as_array().unwrap()[1];
    assert_eq!(orders["uid"], "orders");
    let object = orders["parts"][0]["object"].as_str().unwrap().to_owned();
    let path = place.path("savepoint").join(&object);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let commands: [&[&str]; 5] = [
        &["dump", "savepoint"],
        &["diff", "savepoint", "savepoint"],
        &["convert", "savepoint", "--to", "new"],
        &[
            "rescale",
            "savepoint",
            "--max-parallelism",
            "64",
            "--to",
            "new",
        ],
        &["edit", "savepoint", "--drop-state", "totals", "--to", "new"],
    ];
    for command in commands {
        let line = place.fails(command, 3);
        assert!(
            line.contains(&object) && line.contains("operator=orders"),
            "{command:?}: {line}"
        );
        assert!(!place.path("new").join("_metadata").exists());
    }
}

#[test]
fn checkpoints_are_converted_rescaled_edited_and_compared_and_the_old_one_stays() {
    let place = Place::new();
    let before = tree(&place.path("savepoint"));
    place.ok(&["convert", "savepoint", "--to", "converted"]);
    assert_eq!(place.dump("converted"), place.dump("savepoint"));
    let told = place.ok(&[
        "rescale",
        "savepoint",
        "--max-parallelism",
        "1000",
        "--to",
        "rescaled",
    ]);
    assert!(told.contains("basket") && told.contains("1000"), "{told}");
    assert_eq!(place.dump("rescaled"), place.dump("savepoint"));
    let same = place.ok(&["diff", "savepoint", "rescaled", "--json"]);
    let same: Value = serde_json::from_str(&same).unwrap();
    assert!(
        same.as_array()
            .unwrap()
            .iter()
            .all(|s| s["added"] == 0 && s["same"] != 0)
    );

    let key = r#"{"shop":"south","number":7}"#;
    place.ok(&[
        "edit",
        "savepoint",
        "--to",
        "edited",
        "--state",
        "totals",
        "--key",
        key,
        "--value",
        r#"{"amount":70}"#,
    ]);
    let got = place.ok(&["get", "edited", "totals", key]);
    assert!(got.contains(r#"{"amount":70.0,"last":null}"#), "{got}");
    let differs = holdfast(&["diff", "savepoint", "edited", "--entries"])
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    assert_eq!(differs.status.code(), Some(7));
    let line: Value = serde_json::from_slice(&differs.stdout).unwrap();
    assert_eq!(
        (&line["change"], &line["after"]["amount"]),
        (&"changed".into(), &70.0.into())
    );

    let mut child = holdfast(&[
        "edit",
        "savepoint",
        "--to",
        "deleted",
        "--rows",
        "-",
        "--json",
    ])
    .current_dir(place.dir.path())
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, r#"{{"state":"basket","key":{key},"delete":true}}"#).unwrap();
    drop(input);
    let told: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&told["removed"], &told["set"]), (&2.into(), &0.into()));
    assert_eq!(tree(&place.path("savepoint")), before);
}

#[test]
fn an_edit_says_what_it_removed_and_a_bootstrap_what_it_can_t_take() {
    let place = Place::new();
    let key = r#"{"shop":"south","number":7}"#;
    let delete = |key: &str, to: &str| -> Vec<String> {
        let edit = ["edit", "savepoint", "--state", "totals", "--delete", "--to"];
        let edit = edit.map(str::to_owned).into_iter();
        edit.chain([to.to_owned(), "--key".into(), key.to_owned()])
            .collect()
    };
    let there: Vec<String> = delete(key, "deleted");
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let told = place.ok(&there);
    assert!(told.contains("set 0, removed or replaced 1"), "{told}");
    let missing: Vec<String> = delete(r#"{"shop":"south","number":8}"#, "nothing");
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    let line = place.fails(&missing, 8);
    assert!(line.contains("nothing is there to be removed"), "{line}");
    assert!(!place.path("nothing").join("_metadata").exists());
    let told = place.ok(&[
        "edit",
        "savepoint",
        "--to",
        "dropped",
        "--drop-state",
        "rates",
        "--drop-state",
        "sketch",
    ]);
    assert!(
        told.contains("dropped state feed/rates, 2 entries"),
        "{told}"
    );
    assert!(
        told.contains("dropped state orders/sketch, 20 entries"),
        "{told}"
    );

    // A table of one state goes into one with several; a dump with raw bytes needs a word.
    place.ok(&[
        "dump",
        "savepoint",
        "--state",
        "count",
        "--format",
        "csv",
        "--output",
        "count.csv",
    ]);
    place.ok(&[
        "bootstrap",
        "count.csv",
        "--like",
        "savepoint",
        "--operator",
        "orders",
        "--state",
        "count",
        "--to",
        "counts",
    ]);
    let dumped = place.ok(&["dump", "counts"]);
    assert_eq!(dumped.lines().count(), 20, "{dumped}");
    let raw = r#"{"operator":"orders","raw":"raw keyed","subtask":0,"key_group":1,"bytes":10}"#;
    let rows = format!("{}{raw}\n", place.ok(&["dump", "savepoint"]));
    std::fs::write(place.path("rows.jsonl"), rows).unwrap();
    let built = ["bootstrap", "rows.jsonl", "--like", "savepoint", "--to"];
    let line = place.fails(&[&built[..], &["refused"]].concat(), 2);
    assert!(line.contains("the length alone"), "{line}");
    assert!(!place.path("refused").exists());
    let told = place.ok(&[&built[..], &["again", "--skip-raw"]].concat());
    assert!(told.contains("left out 1 row of raw bytes"), "{told}");
    assert_eq!(place.dump("again").len(), place.dump("savepoint").len());

    let one = [
        "bootstrap",
        "count.csv",
        "--job",
        "j",
        "--operator",
        "o",
        "--state",
        "s",
        "--to",
        "new",
        "--key-type",
        "string",
        "--value-type",
        "u64",
    ];
    for (more, told) in [
        (&["--ttl", "5"][..], "name a unit"),
        (&["--ttl", "0s"], "longer than 0"),
        (&["--like", "savepoint"], "cannot be used with"),
        (&["--kind", "operator-list"], "has no key"),
    ] {
        let line = place.fails(&[&one[..], more].concat(), 2);
        assert!(line.contains(told), "{more:?}: {line}");
    }
    for (option, value, told) in [
        ("--key-type", "f64", "can't be keys"),
        ("--key-type", "tuple(u8,list<f32>)", "can't be keys"),
        ("--state", "", "is no name"),
        ("--state", "a\nb", "is no name"),
        ("--to", "chk-7", "belongs to a job"),
    ] {
        let mut arguments = one;
        let place_of = arguments.iter().position(|a| *a == option).unwrap();
        arguments[place_of + 1] = value;
        let line = place.fails(&arguments, 2);
        assert!(line.contains(told), "{option} {value:?}: {line}");
    }
}

#[test]
fn dump_writes_to_what_it_is_told_to_and_replaces_nothing_but_files() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let place = Place::new();
    let all = place.ok(&["dump", "savepoint"]);
    assert_eq!(place.ok(&["dump", "savepoint", "--output", "-"]), all);
    assert!(!place.path("-").exists());

    let pipe = place.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut child = holdfast(&["dump", "savepoint", "--output", "pipe"])
        .current_dir(place.dir.path())
        .spawn()
        .unwrap();
    assert_eq!(std::fs::read_to_string(&pipe).unwrap(), all);
    assert!(child.wait().unwrap().success());
    let still = std::fs::symlink_metadata(&pipe).unwrap();
    assert!(still.file_type().is_fifo());

    std::fs::write(place.path("rows"), "old").unwrap();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(place.path("rows"), mode).unwrap();
    symlink("rows", place.path("link")).unwrap();
    place.ok(&["dump", "savepoint", "--output", "link"]);
    assert!(
        std::fs::symlink_metadata(place.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(std::fs::read_to_string(place.path("rows")).unwrap(), all);
    let mode = std::fs::metadata(place.path("rows")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);
}

#[test]
fn a_signal_ends_work_that_waits_for_rows_and_nothing_is_left_of_it() {
    let place = Place::new();
    let mut child = holdfast(&["bootstrap", "-", "--like", "savepoint", "--to", "new"])
        .args(["--local-dir", "aside"])
        .current_dir(place.dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let aside = place.path("aside");
    let begun = || std::fs::read_dir(&aside).is_ok_and(|mut found| found.next().is_some());
    support::wait_until("it has put something aside", begun);
    let pid = i32::try_from(child.id()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // The standard input stays open until the program has ended.
    let input = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
    let left = std::fs::read_dir(&aside).unwrap().count();
    assert_eq!(left, 0);
    assert!(!place.path("new/_metadata").exists());
}

#[test]
fn what_could_not_be_found_out_is_no_difference() {
    let place = Place::new();
    place.fails(&["diff", "savepoint", "nowhere"], 2);
    place.ok(&["diff", "savepoint", "savepoint"]);
    let raw = Shop::default();
    raw.write(&place.path("raw"), &shop::runtime());
    let output = holdfast(&["diff", "savepoint", "raw"])
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let told = text(&output.stderr);
    assert!(
        told.contains("operator orders has other raw keyed bytes"),
        "{told}"
    );
    if !cfg!(feature = "parquet") {
        let line = place.fails(&["dump", "savepoint", "--format", "parquet"], 2);
        assert!(line.contains("feature \"parquet\""), "{line}");
    }
}

/// Runs `wordcount` to the end of its input with a last checkpoint; returns its rows.
fn count_words(place: &Path, input: &Path, out: &str, more: &[&str]) -> Vec<String> {
    let out = place.join(out);
    let arguments = [
        "run",
        "wordcount",
        "--input",
        arg(input),
        "--output",
        arg(&out),
    ];
    let output = run(&[&arguments[..], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    rows(&out)
}

#[test]
fn a_job_goes_on_from_a_rescaled_checkpoint_with_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let input = every_nth_flight(dir.path(), 10);
    let checkpoints = dir.path().join("checkpoints");
    let mut worker = support::Worker::start(&[
        "--input",
        arg(&input),
        "--output",
        arg(&dir.path().join("first")),
        "--checkpoints",
        arg(&checkpoints),
        "--parallelism",
        "2",
        "--interval",
        "50ms",
        "--rate",
        "3000",
    ]);
    worker.wait_past_checkpoint();
    worker.kill();
    let rescaled = dir.path().join("rescaled");
    let job = checkpoints.join("flights");
    let output = run(&[
        "rescale",
        arg(&job),
        "--max-parallelism",
        "300",
        "--to",
        arg(&rescaled),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let go_on = |from: &Path, groups: &str, parallelism: &str, out: &str| {
        let own = dir.path().join(format!("{out}-checkpoints"));
        let out = dir.path().join(out);
        let output = run(&[
            "run",
            "flights",
            "--input",
            arg(&input),
            "--output",
            arg(&out),
            "--checkpoints",
            arg(&own),
            "--from",
            arg(from),
            "--max-parallelism",
            groups,
            "--parallelism",
            parallelism,
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        rows(&out)
    };
    let expected = go_on(&job.join("latest"), "128", "2", "plain");
    assert!(!expected.is_empty());
    assert_eq!(go_on(&rescaled, "300", "3", "wide"), expected);
}

#[test]
fn a_job_starts_from_a_checkpoint_that_was_built_out_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("text.txt");
    std::fs::write(&input, "one two two\n").unwrap();
    let table = dir.path().join("counts.csv");
    std::fs::write(&table, "key,value\ntwo,40\nthree,7\n").unwrap();
    let built = dir.path().join("built");
    let output = run(&[
        "bootstrap",
        arg(&table),
        "--to",
        arg(&built),
        "--job",
        "wordcount",
        "--operator",
        "count",
        "--state",
        "count",
        "--key-type",
        "string",
        "--value-type",
        "u64",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let got = run(&["get", arg(&built), "count", "three"]);
    assert!(text(&got.stdout).contains('7'), "{}", text(&got.stderr));
    let checkpoints = dir.path().join("checkpoints");
    let more = ["--from", arg(&built), "--checkpoints", arg(&checkpoints)];
    // A word is told when its timer fires, which is set when it comes for the first time: not for those that were there.
    let counted = count_words(dir.path(), &input, "started", &more);
    assert_eq!(counted, ["one,1"]);
    let job = checkpoints.join("wordcount");
    let got = run(&["get", arg(&job), "count", "two", "--json"]);
    let got: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(got["value"], 42);
}
