//! Runs the program, and follows what it tells.
#![allow(dead_code, reason = "each test uses a part of this")]

pub(crate) mod disk;
pub(crate) mod hanging;
pub(crate) mod place;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The flights of January 2013.
pub(crate) fn january() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/flights-2013-01.csv")
}

/// Writes the header and every `step`-th flight of January into a file: all days, but fewer flights.
pub(crate) fn every_nth_flight(folder: &Path, step: usize) -> PathBuf {
    let text = std::fs::read_to_string(january()).unwrap();
    let mut lines = text.lines();
    let mut some = format!("{}\n", lines.next().unwrap());
    lines
        .step_by(step)
        .for_each(|line| some.extend([line, "\n"]));
    let path = folder.join("flights.csv");
    std::fs::write(&path, some).unwrap();
    path
}

thread_local! {
    /// Where the jobs of a test listen: those of another are not to be found there.
    static SOCKETS: tempfile::TempDir = tempfile::Builder::new().prefix("hf").tempdir().unwrap();
}

/// The folder that the jobs of this test listen in.
pub(crate) fn sockets() -> PathBuf {
    SOCKETS.with(|place| place.path().join("holdfast"))
}

/// Starts to describe a run of the program.
pub(crate) fn holdfast(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command
        .args(arguments)
        .env_remove("HOLDFAST_LOG")
        .env("XDG_RUNTIME_DIR", sockets().parent().unwrap())
        .stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    holdfast(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks that the program ended with a code and one line that begins with `error:`; returns the line.
pub(crate) fn one_error_line(output: &Output, code: i32) -> String {
    let stderr = text(&output.stderr);
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(
        !stderr.contains("panicked") && !stderr.contains("internal error"),
        "{stderr}"
    );
    lines[0].to_owned()
}

/// The path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The visible rows of an output folder, sorted.
pub(crate) fn rows(folder: &Path) -> Vec<String> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with('.') {
            rows.extend(
                std::fs::read_to_string(entry.path())
                    .unwrap()
                    .lines()
                    .map(str::to_owned),
            );
        }
    }
    rows.sort_unstable();
    rows
}

/// Runs `flights` without interruption; returns the sorted rows.
pub(crate) fn rows_of(input: &Path, arguments: &[&str]) -> Vec<String> {
    let output = run(&[&["run", "flights", "--input", arg(input)], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut rows: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// Every file below a folder with its bytes.
pub(crate) fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// Waits for something, at most half a minute.
#[expect(clippy::disallowed_methods, reason = "the wait has a bound")]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        let waited = started.elapsed();
        assert!(
            waited < Duration::from_secs(30),
            "not within {waited:?}: {what}"
        );
        std::thread::yield_now();
    }
}

/// A job in a process that tells what happens; it is killed when this value goes.
pub(crate) struct Worker {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut holdfast(
            &[&["run", "flights", "--events"], arguments].concat(),
        ))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, told }
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Returns the next thing that is told; `None` when the process has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let line = self.told.next()?.ok()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Waits until something of this name is told; the process must not end before.
    pub(crate) fn wait_for(&mut self, name: &str) -> Value {
        while let Some(event) = self.next() {
            if event["event"] == name {
                return event;
            }
        }
        panic!("the process ended before {name:?}: {}", self.errors());
    }

    /// Waits for the first record that is read after a complete checkpoint.
    pub(crate) fn wait_past_checkpoint(&mut self) {
        let left = self.wait_for("completed")["left"].as_u64().unwrap();
        while self.wait_for("progress")["left"].as_u64().unwrap() >= left {}
    }

    /// Waits until the process handles a signal itself, at most half a minute; Linux alone says so.
    #[cfg(target_os = "linux")]
    pub(crate) fn wait_until_it_listens_to(&self, signal: rustix::process::Signal) {
        let handled = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
            let mut lines = status.lines();
            let caught = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
            caught & 1 << (signal.as_raw() - 1) != 0
        };
        wait_until("it listens to the signal", handled);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.id()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns what it complains about, line by line.
    pub(crate) fn error_lines(&mut self) -> impl Iterator<Item = String> + use<> {
        let errors = BufReader::new(self.child.stderr.take().unwrap());
        errors.lines().map_while(Result::ok)
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut text).unwrap();
        }
        text
    }

    /// Reads what is told until the process ends; returns it, with the end and what it complained about.
    pub(crate) fn rest(mut self) -> (Vec<Value>, ExitStatus, String) {
        let told: Vec<Value> = std::iter::from_fn(|| self.next()).collect();
        let errors = self.errors();
        (told, self.child.wait().unwrap(), errors)
    }

    /// Waits for the end, which must be a good one.
    pub(crate) fn finish(self) {
        let (_, status, errors) = self.rest();
        assert!(status.success(), "{status}: {errors}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
