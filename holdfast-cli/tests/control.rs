//! A running job is asked over its socket, by the program itself in another process and by worse.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::hanging::Hanging;
use support::place::{INTERRUPTED, Place, ask, left};
use support::{Worker, arg, every_nth_flight, holdfast, one_error_line, run, sockets, text};

const NOT_RUNNING: i32 = 4;
const NO_ANSWER: i32 = 5;

fn status() -> Value {
    serde_json::from_str(&ask(&["status", "--json"]).0).unwrap()
}

/// Checks that the program says in one line that no job runs.
fn not_running(output: &Output) -> String {
    one_error_line(output, NOT_RUNNING)
}

fn socket() -> PathBuf {
    sockets().join("flights.sock")
}

#[test]
fn a_running_job_says_how_it_stands_and_what_its_checkpoints_cost() {
    let place = Place::new();
    let mut worker = place.start(&["--parallelism", "2"]);
    worker.wait_past_checkpoint();
    let (told, errors) = ask(&["status"]);
    assert!(
        told.starts_with(&format!(
            "job         flights, process {}, attempt 1\n",
            worker.id()
        )),
        "{told}"
    );
    assert!(
        told.contains("\nstate       running for ") && told.contains("\nlast        checkpoint "),
        "{told}"
    );
    assert!(
        told.contains(arg(&place.path("checkpoints/flights/chk-"))),
        "{told}"
    );
    assert_eq!(errors, "");
    let report = status();
    assert_eq!(report["process"], worker.id());
    assert!(
        report["records"].as_u64().unwrap() > 0 && report["completed"].as_u64().unwrap() > 0,
        "{report}"
    );
    let (told, _) = ask(&["explain", "flights"]);
    assert!(
        told.contains("newest first") && told.contains("operators"),
        "{told}"
    );
    let history = &report["history"][0];
    assert_eq!(history["given_up"], Value::Null);
    let subtasks = history["subtasks"].as_array().unwrap();
    assert!(
        subtasks
            .iter()
            .any(|subtask| subtask["sync_ns"].as_u64().unwrap() > 0),
        "{history}"
    );
    let first = history["id"].to_string();
    let (told, _) = ask(&["explain", "--checkpoint", &first]);
    assert!(told.starts_with(&format!("checkpoint {first}, ")), "{told}");
    let unknown = run(&["explain", "--checkpoint", "1000000"]);
    assert!(one_error_line(&unknown, 2).contains("it remembers "));
    worker.finish();
    assert_eq!(left(), [""; 0]);
    place.check_rows();
}

#[test]
fn k_775_with_no_job_the_line_says_where_was_looked_and_an_unknown_job_is_told_who_runs() {
    for command in [
        "status",
        "explain",
        "checkpoint",
        "savepoint",
        "stop",
        "cancel",
    ] {
        let told = not_running(&run(&[command]));
        assert!(
            told.contains("no job is running (looked in ") && told.contains(arg(&sockets())),
            "{told}"
        );
        assert!(
            not_running(&run(&[command, "flights"])).contains("job flights is not running"),
            "{command}"
        );
        assert!(
            not_running(&run(&[command, "./no.sock"])).contains("no socket ./no.sock"),
            "{command}"
        );
        assert!(
            one_error_line(&run(&[command, "..x"]), 2).contains("job id"),
            "{command}"
        );
        assert!(
            one_error_line(&run(&[command, "--timeout", "5"]), 2).contains("name a unit"),
            "{command}"
        );
        let help = text(&run(&[command, "--help"]).stdout);
        assert!(
            help.contains("Exit codes:") && help.contains("\n  4    the job that was asked"),
            "{help}"
        );
    }
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_for("running");
    let told = not_running(&run(&[
        "savepoint",
        "flihgts",
        "--target",
        arg(&place.path("s")),
    ]));
    assert!(told.contains("running: flights"), "{told}");
    let missing = run(&[
        "run",
        "flights",
        "--input",
        arg(&place.path("flights.csv")),
        "--from",
        "/no/such/savepoint",
    ]);
    assert!(one_error_line(&missing, 2).contains("/no/such/savepoint"));
    worker.kill();
}

#[test]
fn a_checkpoint_that_hangs_is_explained_by_the_subtask_that_holds_it_up() {
    let mut job = Hanging::start(&[]);
    let pending = &job.pending;
    let missing = &pending["missing"][0];
    assert_eq!(
        (missing["subtask"].as_str(), missing["phase"].as_str()),
        (Some("1.0"), None),
        "{pending}"
    );
    assert_eq!(
        (&pending["done"], &pending["subtasks"]),
        (&1.into(), &2.into()),
        "{pending}"
    );
    let (told, _) = ask(&["explain", "--checkpoint", &pending["id"].to_string()]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines[0].contains(": waiting for acks for ") && lines[0].contains("1 of 2 subtasks done"),
        "{told}"
    );
    assert!(
        lines[1].starts_with("  1.0 count -> map -> stdout: no barrier has come for "),
        "{told}"
    );
    let late = run(&["checkpoint", "--timeout", "100ms"]);
    assert!(one_error_line(&late, NO_ANSWER).contains("goes on in the job"));
    // It passes over the limit of checkpoints at a time, and hangs as they do.
    let target = job.folder.path().join("savepoints");
    let late = run(&["savepoint", "--target", arg(&target), "--timeout", "700ms"]);
    let told = one_error_line(&late, NO_ANSWER);
    let savepoint = told.split("; savepoint ").nth(1).unwrap_or_default();
    assert!(
        savepoint.contains(": waiting for acks for ")
            && savepoint.contains("; 1.0 count -> map -> stdout: no barrier has come for "),
        "{told}"
    );
    let mut rows = String::new();
    let rest = job.child.stdout.take();
    rest.unwrap().read_to_string(&mut rows).unwrap();
    assert_eq!(rows.lines().count(), 40_000);
    assert!(job.child.wait().unwrap().success());
}

#[test]
fn several_jobs_are_told_apart() {
    let place = Place::new();
    let (mut a, mut b) = (place.start(&["--job-id", "a"]), Place::new());
    a.wait_for("running");
    let input = b.path("flights.csv");
    b.expected.clear();
    let mut other = Worker::start(&[
        "--input",
        arg(&input),
        "--output",
        arg(&b.path("out")),
        "--rate",
        "500",
        "--job-id",
        "b",
    ]);
    other.wait_for("running");
    let (told, _) = ask(&["status"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        lines.len() == 3 && lines[1].starts_with("a ") && lines[2].starts_with("b "),
        "{told}"
    );
    let told = one_error_line(&run(&["cancel"]), 2);
    assert!(
        told.contains("2 jobs are running: name one of a, b"),
        "{told}"
    );
    ask(&["cancel", "b"]);
    assert_eq!(other.rest().1.code(), Some(INTERRUPTED));
    let (told, _) = ask(&["status"]);
    assert!(told.starts_with("job         a, "), "{told}");
    a.finish();
    place.check_rows();
}

#[test]
fn the_second_run_of_a_job_says_who_has_the_socket_and_listens_when_that_one_has_gone() {
    let (place, other) = (Place::new(), Place::new());
    let mut first = place.start(&[]);
    first.wait_for("running");
    let arguments = other.arguments();
    let arguments = [
        &["run", "flights"][..],
        &arguments,
        &["--rate", "400", "--interval", "1h"],
    ]
    .concat();
    let mut second = holdfast(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(second.stderr.take().unwrap());
    let mut lines = Vec::new();
    while !lines
        .iter()
        .any(|line: &String| line.starts_with("warning: "))
    {
        let mut line = String::new();
        assert!(
            std::io::BufRead::read_line(&mut told, &mut line).unwrap() > 0,
            "{lines:?}"
        );
        lines.push(line);
    }
    let warning = lines.last().unwrap();
    assert!(
        warning.contains(&format!(
            "process {} runs a job flights already",
            first.id()
        )),
        "{warning}"
    );
    assert_eq!(status()["process"], first.id());
    let explicit = run(&[
        &arguments[..8],
        &["--output", "/nowhere", "--socket", arg(&socket())],
    ]
    .concat());
    let told = one_error_line(&explicit, 2);
    assert!(
        told.contains("listens at") || told.contains("cannot be used multiple times"),
        "{told}"
    );
    ask(&["cancel"]);
    assert_eq!(first.rest().1.code(), Some(INTERRUPTED));
    let process = || {
        let output = run(&["status", "--json"]);
        serde_json::from_slice::<Value>(&output.stdout)
            .ok()
            .map(|report| report["process"].clone())
    };
    while process() != Some(second.id().into()) {
        assert!(second.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    ask(&["cancel"]);
    assert_eq!(second.wait().unwrap().code(), Some(INTERRUPTED));
}

#[test]
fn the_socket_of_a_killed_run_is_replaced() {
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_past_checkpoint();
    worker.kill();
    assert_eq!(left().len(), 2, "killed: nobody has removed it");
    let told = not_running(&run(&["status"]));
    assert!(
        told.contains("1 socket of a process that has died"),
        "{told}"
    );
    assert!(not_running(&run(&["status", arg(&socket())])).contains("its process has died"));
    let mut worker = place.start(&["--from", "latest", "--parallelism", "3", "--rate", "6000"]);
    worker.wait_for("running");
    assert_eq!(status()["process"], worker.id());
    worker.finish();
    assert_eq!(left(), [""; 0]);
    place.check_rows();
}

#[test]
fn a_runtime_folder_that_is_not_there_leaves_the_one_for_temporary_files() {
    let place = Place::new();
    let temporary = place.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let with = |arguments: &[&str]| {
        let mut command = holdfast(arguments);
        command
            .env("XDG_RUNTIME_DIR", place.path("missing"))
            .env("TMPDIR", &temporary);
        command
    };
    let arguments = [
        &["run", "flights", "--events", "--rate", "300"],
        &place.arguments()[..],
    ];
    let mut worker = Worker::spawn(&mut with(&arguments.concat()));
    worker.wait_for("running");
    let told = with(&["status", "flights"]).output().unwrap();
    assert!(told.status.success(), "{}", text(&told.stderr));
    assert!(text(&told.stdout).contains(&format!("process {}", worker.id())));
    let cancelled = with(&["cancel"]).output().unwrap();
    assert!(cancelled.status.success(), "{}", text(&cancelled.stderr));
    let (_, status, errors) = worker.rest();
    assert_eq!(status.code(), Some(INTERRUPTED), "{errors}");
}

#[test]
fn a_socket_that_cant_be_had_is_a_warning_or_an_error_if_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 60);
    let with = |more: &[&str], runtime: &Path| {
        let mut command = holdfast(&[&["run", "flights", "--input", arg(&input)], more].concat());
        command
            .env("XDG_RUNTIME_DIR", runtime)
            .env("TMPDIR", folder.path().join("open"))
            .output()
            .unwrap()
    };
    // The folder that it falls back to can't hold sockets either.
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let long = folder.path().join("x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    let precious = folder.path().join("precious");
    std::fs::create_dir_all(folder.path().join("holdfast")).unwrap();
    std::fs::set_permissions(
        folder.path().join("holdfast"),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    for path in [&precious, &folder.path().join("holdfast/flights.sock")] {
        std::fs::write(path, "precious").unwrap();
    }
    let missing = folder.path().join("missing");
    for (runtime, told) in [
        (&long, "bytes at most"),
        (&missing, "can't be looked at"),
        (&folder.path().to_owned(), "in the way=a file"),
    ] {
        let output = with(&[], runtime);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(
            errors.contains("warning: this run can be controlled by signals only")
                && errors.contains(told),
            "{errors}"
        );
        let output = with(&["--no-socket"], runtime);
        assert!(
            output.status.success() && !text(&output.stderr).contains("warning"),
            "{}",
            text(&output.stderr)
        );
    }
    let too_long = long.join("a.sock");
    for (path, told) in [
        (&too_long, "and /"),
        (&precious, "in the way=a file"),
        (&missing.join("a.sock"), "folder is missing"),
    ] {
        let output = with(&["--socket", arg(path)], folder.path());
        let line = one_error_line(&output, 2);
        assert!(line.contains(told), "{line}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(
        std::fs::read_to_string(folder.path().join("holdfast/flights.sock")).unwrap(),
        "precious"
    );
}

#[test]
fn a_named_socket_is_asked_by_its_path() {
    let place = Place::new();
    let named = place.path("mine.sock");
    let mut worker = place.start(&["--socket", arg(&named)]);
    worker.wait_for("running");
    not_running(&run(&["status"]));
    let (told, _) = ask(&["status", arg(&named)]);
    assert!(told.contains(&format!("process {}", worker.id())), "{told}");
    ask(&["cancel", arg(&named)]);
    drop(worker.rest());
    assert!(!named.exists() && !place.path("mine.sock.lock").exists());
}

#[test]
fn clients_that_lie_hang_or_send_too_much_do_the_job_no_harm() {
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_past_checkpoint();
    let connect = || UnixStream::connect(socket()).unwrap();
    let hanging: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    let flood = vec![b'{'; 1 << 21];
    for bytes in [
        &b"\0\xff\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"{\"holdfast\":1,\"request\":\"rm -rf\"}\n",
        &flood,
    ] {
        let mut stream = connect();
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        drop(stream.write_all(bytes));
        let mut told = String::new();
        drop(stream.read_to_string(&mut told));
        assert!(
            told.contains("\"reply\":\"failed\"") || bytes.len() == flood.len(),
            "{told}"
        );
    }
    let mut stream = connect();
    stream
        .write_all(b"{\"holdfast\":1,\"request\":\"checkpoint\"}\n")
        .unwrap();
    drop(stream);
    assert_eq!(status()["state"], "running");
    drop(hanging);
    worker.finish();
    place.check_rows();
}

#[test]
fn somebody_elses_socket_is_no_job() {
    std::fs::create_dir_all(sockets()).unwrap();
    std::fs::set_permissions(
        sockets(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let listener = UnixListener::bind(socket()).unwrap();
    let other = std::thread::spawn(move || {
        // Once to see who listens, once to ask.
        for stream in listener.incoming().take(2) {
            drop(stream.unwrap().write_all(b"220 mail.example.com ESMTP\r\n"));
        }
    });
    let told = one_error_line(&run(&["status", "flights"]), 1);
    assert!(told.contains("does not answer as a job does"), "{told}");
    other.join().unwrap();
}

#[test]
fn a_frozen_job_is_told_from_one_that_works_and_ctrl_c_leaves_it_alone() {
    let place = Place::new();
    let mut worker = place.start(&[]);
    worker.wait_past_checkpoint();
    worker.signal(Signal::STOP);
    let told = one_error_line(&run(&["status", "--timeout", "200ms"]), NO_ANSWER);
    assert!(
        told.contains("has not answered \"status\" within 200ms"),
        "{told}"
    );
    #[cfg(target_os = "linux")]
    {
        let target = place.path("savepoints");
        let mut command = holdfast(&["savepoint", "--target", arg(&target)]);
        let client = Worker::spawn(&mut command);
        client.wait_until_it_listens_to(Signal::INT);
        client.signal(Signal::INT);
        let (_, status, told) = client.rest();
        assert_eq!(status.code(), Some(INTERRUPTED), "{told}");
        assert!(told.contains("the savepoint goes on in the job"), "{told}");
    }
    worker.signal(Signal::CONT);
    worker.finish();
    place.check_rows();
}

#[test]
fn another_user_may_not_ask() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        println!("not tried: only root can start a process of another user");
        return;
    }
    let place = Place::new();
    // Where everybody may connect.
    let open = tempfile::Builder::new()
        .prefix("hf")
        .tempdir_in("/tmp")
        .unwrap();
    let mode =
        |mode| -> std::fs::Permissions { std::os::unix::fs::PermissionsExt::from_mode(mode) };
    std::fs::set_permissions(open.path(), mode(0o755)).unwrap();
    let named = open.path().join("job.sock");
    let mut worker = place.start(&["--socket", arg(&named)]);
    worker.wait_for("running");
    std::fs::set_permissions(&named, mode(0o666)).unwrap();
    let program = open.path().join("holdfast");
    std::fs::copy(env!("CARGO_BIN_EXE_holdfast"), &program).unwrap();
    let asked = std::process::Command::new(&program)
        .args(["cancel", arg(&named)])
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let told = one_error_line(&asked, 1);
    assert!(told.contains("user 65534 may not control"), "{told}");
    ask(&["status", arg(&named)]);
    worker.finish();
    place.check_rows();
}
