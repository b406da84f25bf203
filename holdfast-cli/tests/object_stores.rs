//! Whole jobs on S3, and the commands on what they left there: a server in this process, asked by the program as any other.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use s3_testkit::{S3Fault, S3Request, S3Server};
use serde_json::Value;
use support::{Worker, arg, every_nth_flight, holdfast, one_error_line, rows, rows_of, text};

/// A server, a folder with an input and an output, and the rows that the job gives when nobody interrupts it.
struct Place {
    server: S3Server,
    folder: tempfile::TempDir,
    input: PathBuf,
    expected: Vec<String>,
}

const CHECKPOINTS: &str = "s3://state/checkpoints";

/// A file that says how a server is reached, as a job's configuration does.
fn config_of(server: &S3Server, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let text = format!(
        "execution.checkpointing.interval: 50 ms\n\
         s3.endpoint: {}\ns3.region: eu-west-1\ns3.access-key: {}\ns3.secret-key: {}\n\
         fs.requests.initial-backoff: 2 ms\nfs.requests.max-backoff: 20 ms\n",
        server.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    std::fs::write(&path, text).unwrap();
    path
}

impl Place {
    fn new() -> Self {
        let server = S3Server::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let input = every_nth_flight(folder.path(), 20);
        config_of(&server, folder.path(), "holdfast.yaml");
        let expected = rows_of(&input, &[]);
        Self {
            server,
            folder,
            input,
            expected,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("holdfast.yaml")
    }

    /// Starts the job with its checkpoints in a folder.
    fn start(&self, checkpoints: &str, more: &[&str]) -> Worker {
        let (config, output) = (self.config(), self.path("out"));
        let common = [
            "--input",
            arg(&self.input),
            "--output",
            arg(&output),
            "--config",
            arg(&config),
            "--checkpoints",
            checkpoints,
        ];
        Worker::start(&[&common[..], more].concat())
    }

    /// Runs the job for a few checkpoints, and kills it.
    fn killed_run(&self, checkpoints: &str, more: &[&str]) {
        let mut worker = self.start(checkpoints, &[&["--rate", "400"], more].concat());
        worker.wait_past_checkpoint();
        worker.wait_past_checkpoint();
        worker.kill();
        assert!(rows(&self.path("out")).len() < self.expected.len());
    }

    /// Lets the job go on from a checkpoint to its end, and compares the rows.
    fn finishes_from(&self, from: &str, checkpoints: &str, more: &[&str]) {
        let mut worker = self.start(checkpoints, &[&["--from", from], more].concat());
        let running = worker.wait_for("running");
        assert!(running["restored"].as_u64().unwrap() >= 2, "{running}");
        worker.finish();
        assert!(rows(&self.path("out")) == self.expected);
    }

    /// Runs a command that knows the server.
    fn command(&self, arguments: &[&str]) -> Output {
        let config = self.config();
        let arguments = [arguments, &["--config", arg(&config)]].concat();
        without_credentials(&holdfast(&arguments).output().unwrap())
    }

    /// Runs a command that must succeed; returns what it printed.
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }
}

/// Checks that nothing that was printed is a secret.
fn without_credentials(output: &Output) -> Output {
    for printed in [&output.stdout, &output.stderr] {
        let printed = text(printed);
        for secret in [S3Server::ACCESS_KEY, S3Server::SECRET_KEY] {
            assert!(!printed.contains(secret), "{printed}");
        }
    }
    output.clone()
}

#[test]
fn a_job_that_is_killed_goes_on_from_its_checkpoint_on_s3_at_another_parallelism_and_backend() {
    for (backend, then) in [("hashmap", "hashmap"), ("fs", "fs")] {
        let place = Place::new();
        place.killed_run(CHECKPOINTS, &["--backend", backend, "--parallelism", "2"]);
        let rest = ["--backend", then, "--parallelism", "3"];
        place.finishes_from("latest", CHECKPOINTS, &rest);
        // The second run has tidied up after the first: what is left, the last checkpoint needs.
        let collected = place.printed(&["gc", CHECKPOINTS, "--dry-run", "--json"]);
        let collected: Value = serde_json::from_str(&collected).unwrap();
        let unreferenced = collected["jobs"][0]["unreferenced"].as_array().unwrap();
        let never = |found: &&Value| found["why"] != "superseded";
        assert_eq!(
            unreferenced.iter().filter(never).count(),
            0,
            "{unreferenced:?}"
        );
        assert_eq!(place.server.open_upload_files(), 0);
    }
}

#[test]
fn a_job_on_a_faulty_s3_that_dies_three_times_gives_the_same_rows() {
    let place = Place::new();
    // A third of all requests is refused, the answer to each tenth is lost though the work is done, each seventh is slow.
    let (count, refused) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let hits = Arc::clone(&refused);
    place.server.judge(move |request| {
        if request.path.contains("/probe-") {
            return None;
        }
        let n = count.fetch_add(1, Ordering::Relaxed);
        let fault = if n % 10 == 3 {
            S3Fault::Vanish
        } else if n % 3 == 1 {
            S3Fault::Refuse {
                status: 503,
                retry_after_s: None,
            }
        } else if n % 7 == 2 {
            S3Fault::Slow(Duration::from_millis(20))
        } else {
            return None;
        };
        hits.fetch_add(1, Ordering::Relaxed);
        Some(fault)
    });
    let more = ["-D", "fs.requests.attempts=20", "--rate", "1500"];
    for strike in ["async:2", "publish:2", "commit:2"] {
        let dies = ["--failpoint", strike, "--from", "latest"];
        let worker = place.start(CHECKPOINTS, &[&more[..], &dies].concat());
        let (_, status, errors) = worker.rest();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(9), "{strike}: {errors}");
    }
    place.finishes_from("latest", CHECKPOINTS, &more[..2]);
    assert!(refused.load(Ordering::Relaxed) > 50);
    place.server.pardon();
    let verified = place.command(&["verify", CHECKPOINTS]);
    assert!(verified.status.success(), "{}", text(&verified.stderr));
}

#[test]
fn a_job_whose_s3_is_out_of_order_for_a_while_restarts_by_itself() {
    let place = Place::new();
    // Once there are checkpoints, forty writes fail, each for good.
    let left = AtomicU32::new(40);
    let metadata = AtomicU32::new(0);
    place.server.judge(move |request| {
        let publishes = request.creates && request.path.ends_with("/_metadata");
        if publishes {
            metadata.fetch_add(1, Ordering::Relaxed);
        }
        let fails = request.is_upload()
            && metadata.load(Ordering::Relaxed) > 2
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok();
        fails.then_some(S3Fault::Refuse {
            status: 500,
            retry_after_s: None,
        })
    });
    let worker = place.start(
        CHECKPOINTS,
        &[
            "--rate",
            "400",
            "-D",
            "fs.requests.attempts=2",
            "-D",
            "restart-strategy.type=fixed-delay",
            "-D",
            "restart-strategy.fixed-delay.attempts=1000",
            "-D",
            "restart-strategy.fixed-delay.delay=10ms",
        ],
    );
    let (told, status, errors) = worker.rest();
    assert!(status.success(), "{errors}");
    let restarts = told.iter().filter(|e| e["event"] == "restarting").count();
    assert!(restarts > 0, "{told:?}");
    assert!(rows(&place.path("out")) == place.expected);
}

#[test]
fn a_checkpoint_on_s3_restores_on_local_disk_after_copy_and_the_other_way_round() {
    for backend in ["hashmap", "fs"] {
        let place = Place::new();
        let with = ["--backend", backend, "--parallelism", "2"];
        let objects = ["-D", "execution.checkpointing.data-inline-threshold=0"];
        place.killed_run(CHECKPOINTS, &[&with[..], &objects].concat());
        // From S3 to a local folder, where a run goes on without S3.
        let local = place.path("copy");
        let from = format!("{CHECKPOINTS}/flights");
        let told = place.printed(&["copy", &from, arg(&local)]);
        assert_eq!(told.trim_end(), arg(&local));
        place.server.judge(|request| panic!("{request:?}"));
        let checkpoints = place.path("checkpoints");
        let rate = ["--rate", "400", "--from", arg(&local)];
        let mut worker = place.start(arg(&checkpoints), &[&with[..], &objects, &rate].concat());
        worker.wait_past_checkpoint();
        worker.wait_past_checkpoint();
        worker.kill();
        assert!(rows(&place.path("out")).len() < place.expected.len());
        place.server.pardon();
        // And back, where the job ends.
        let up = "s3://state/backup/flights";
        let config = place.config();
        let copied = holdfast(&[
            "copy",
            arg(&checkpoints.join("flights")),
            up,
            "--target-config",
            arg(&config),
        ]);
        let copied = without_credentials(&{ copied }.output().unwrap());
        assert!(copied.status.success(), "{}", text(&copied.stderr));
        assert_eq!(text(&copied.stdout).trim_end(), up);
        std::fs::remove_dir_all(&checkpoints).unwrap();
        std::fs::remove_dir_all(&local).unwrap();
        place.finishes_from(up, "s3://state/elsewhere", &with);
    }
}

#[test]
fn a_copy_goes_from_one_server_to_another_each_with_options_of_its_own() {
    let place = Place::new();
    place.killed_run(CHECKPOINTS, &[]);
    let other = S3Server::start().unwrap();
    let endpoint = format!("s3.endpoint={}", other.endpoint());
    let (key, secret) = (
        format!("s3.access-key={}", S3Server::ACCESS_KEY),
        format!("s3.secret-key={}", S3Server::SECRET_KEY),
    );
    let from = format!("{CHECKPOINTS}/flights");
    let mut arguments = vec!["copy", &from, "s3://state/there"];
    for option in [&endpoint, &key, &secret] {
        arguments.extend(["--target-option", option]);
    }
    // Nothing is taken over from the source's options, which have a region.
    let refused = place.command(&arguments);
    let line = one_error_line(&refused, 2);
    assert!(line.contains("s3.region is not set"), "{line}");
    arguments.extend(["--target-option", "s3.region=us-east-1"]);
    place.printed(&arguments);
    assert!(other.bucket().join("there/_metadata").exists());
    assert!(!place.server.bucket().join("there").exists());
    let there = config_of(&other, place.folder.path(), "there.yaml");
    let verified = holdfast(&["verify", "s3://state/there", "--config", arg(&there)]);
    assert!({ verified }.output().unwrap().status.success());
}

#[test]
fn every_command_that_looks_at_checkpoints_reaches_s3_by_options() {
    let place = Place::new();
    let inline = ["-D", "execution.checkpointing.data-inline-threshold=0"];
    place.killed_run(CHECKPOINTS, &[&["--backend", "fs"], &inline[..]].concat());
    let job = format!("{CHECKPOINTS}/flights");
    let listed = place.printed(&["list", CHECKPOINTS, "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(
        listed[0]["path"].as_str().unwrap().starts_with(&job),
        "{listed}"
    );
    assert!(
        place
            .printed(&["show", &job, "--verify"])
            .contains("of job flights")
    );
    assert!(place.printed(&["verify", CHECKPOINTS]).contains("chk-"));
    let dumped = place.printed(&["dump", &job]);
    let entry: Value = serde_json::from_str(dumped.lines().next().unwrap()).unwrap();
    let state = format!(
        "{}/{}",
        entry["operator"].as_str().unwrap(),
        entry["state"].as_str().unwrap()
    );
    let key = entry["key"].to_string();
    assert!(!place.printed(&["get", &job, &state, &key]).is_empty());

    // What writes, writes there too, and what is written is what was read.
    let to = |name: &str| format!("s3://state/new/{name}");
    place.printed(&["convert", &job, "--to", &to("canonical")]);
    place.printed(&[
        "rescale",
        &job,
        "--max-parallelism",
        "256",
        "--to",
        &to("rescaled"),
    ]);
    place.printed(&["edit", &job, "--drop-state", &state, "--to", &to("edited")]);
    let dump = place.path("rows.jsonl");
    place.printed(&["dump", &to("canonical"), "--output", arg(&dump)]);
    for name in ["canonical", "rescaled"] {
        let diff = place.command(&["diff", &job, &to(name)]);
        assert_eq!(
            diff.status.code(),
            Some(0),
            "{name}: {}",
            text(&diff.stdout)
        );
    }
    let diff = place.command(&["diff", &job, &to("edited")]);
    assert_eq!(diff.status.code(), Some(7), "{}", text(&diff.stdout));
    let small = place.path("small.jsonl");
    std::fs::write(&small, "{\"key\":\"AA\",\"value\":7}\n").unwrap();
    let types = [
        "--job",
        "flights",
        "--operator",
        "delays",
        "--state",
        "totals",
    ];
    let types = [&types[..], &["--key-type", "string", "--value-type", "u64"]].concat();
    let target = to("small");
    place.printed(&[&["bootstrap", arg(&small), "--to", &target], &types[..]].concat());
    let got = place.printed(&["get", &target, "delays/totals", "AA"]);
    assert!(got.contains('7'), "{got}");

    // The same by the line alone.
    let options = [
        format!("-Ds3.endpoint={}", place.server.endpoint()),
        "-Ds3.region=x".into(),
        format!("-Ds3.access-key={}", S3Server::ACCESS_KEY),
        format!("-Ds3.secret-key={}", S3Server::SECRET_KEY),
    ];
    let line: Vec<&str> = ["list", CHECKPOINTS]
        .into_iter()
        .chain(options.iter().map(String::as_str))
        .collect();
    let output = without_credentials(&holdfast(&line).output().unwrap());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn wrong_options_are_named_and_no_credential_is_shown() {
    let place = Place::new();
    let from = format!("{CHECKPOINTS}/flights");
    let endpoint = format!("-Ds3.endpoint={}", place.server.endpoint());
    let key = format!("-Ds3.access-key={}", S3Server::ACCESS_KEY);
    let secret = format!("-Ds3.secret-key={}", S3Server::SECRET_KEY);
    let wrong = "-Ds3.secret-key=not-the-secret-of-anybody";
    let all = [endpoint.as_str(), "-Ds3.region=x", &key, &secret];
    for (options, code, told) in [
        (
            vec![endpoint.as_str(), &key, &secret],
            2,
            "s3.region is not set",
        ),
        (
            vec![&endpoint, "-Ds3.region=x", &key],
            2,
            "s3.secret-key is not set",
        ),
        (
            vec![&endpoint, "-Ds3.region=x", &secret],
            2,
            "s3.access-key is not set",
        ),
        (
            vec![&endpoint, "-Ds3.region=x", &key, wrong],
            2,
            "access is denied",
        ),
        (vec!["-Ds3.regoin=x"], 2, "did you mean \"s3.region\"?"),
        (vec!["-Dfs.requests.timeout=soon"], 2, "fs.requests.timeout"),
        (
            vec!["-Dparallelism.default=2"],
            2,
            "parallelism.default is for jobs",
        ),
        (
            vec!["-D", "s3.secret-key"],
            2,
            "-D s3.secret-key: it reads -D OPTION=VALUE",
        ),
        (
            [&all[..], &["-Dfs.upload.part-size=1 mb"]].concat(),
            2,
            "fs.upload.part-size",
        ),
    ] {
        for command in [
            vec!["list"],
            vec!["show"],
            vec!["dump"],
            vec!["gc", "--dry-run"],
        ] {
            let mut line = vec![command[0], from.as_str()];
            line.extend(&command[1..]);
            line.extend(&options);
            let output = holdfast(&line)
                .env_remove("AWS_REGION")
                .env_remove("AWS_DEFAULT_REGION")
                .output();
            let output = without_credentials(&output.unwrap());
            let line = one_error_line(&output, code);
            assert!(line.contains(told), "{command:?} {options:?}: {line}");
            assert!(!line.contains("not-the-secret"), "{line}");
        }
    }
}

#[test]
fn no_level_of_logging_shows_a_credential_or_a_signature() {
    let place = Place::new();
    // Failures are logged too.
    let count = AtomicU32::new(0);
    place.server.judge(move |_| {
        let fails = count.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
        fails.then_some(S3Fault::Refuse {
            status: 500,
            retry_after_s: None,
        })
    });
    let (input, output, config) = (&place.input, place.path("out"), place.config());
    let run = [
        "run",
        "flights",
        "--no-socket",
        "--input",
        arg(input),
        "--output",
        arg(&output),
        "--checkpoints",
        CHECKPOINTS,
        "--config",
        arg(&config),
    ];
    let gc = ["gc", CHECKPOINTS, "--config", arg(&config)];
    let wrong = "-Ds3.secret-key=not-the-secret-of-anybody";
    let refused = ["list", CHECKPOINTS, "--config", arg(&config), wrong];
    let mut all = String::new();
    for command in [&run[..], &gc, &refused] {
        for (verbose, filter) in [
            ("-vvv", ""),
            ("-v", "trace"),
            ("-v", "hyper_util=trace,debug"),
        ] {
            let line = [command, &[verbose]].concat();
            let logged = holdfast(&line).env("HOLDFAST_LOG", filter).output();
            all += &text(&without_credentials(&logged.unwrap()).stderr);
        }
    }
    assert!(all.contains("is tried again"), "nothing is logged");
    for hidden in ["AWS4-HMAC-SHA256", "Signature=", "not-the-secret"] {
        assert!(!all.contains(hidden), "{hidden}");
    }
}

/// What a request is billed as.
fn kind(request: &S3Request) -> &'static str {
    match request.method.as_str() {
        "GET" if request.is_list() => "LIST",
        "GET" => "GET",
        "PUT" => "PUT",
        "HEAD" => "HEAD",
        "DELETE" => "DELETE",
        // Deletions by the batch are billed as nothing.
        _ if request
            .query
            .split('&')
            .any(|part| part == "delete" || part == "delete=") =>
        {
            "DELETE"
        }
        _ => "POST",
    }
}

/// Counts what the checkpoints of a running job ask of the store, from one completion to the next; returns each kind's median.
fn requests_of_checkpoints(more: &[&str]) -> BTreeMap<&'static str, usize> {
    let place = Place::new();
    let paced = ["--rate", "150", "--interval", "200ms"];
    let mut worker = place.start(CHECKPOINTS, &[&paced[..], more].concat());
    worker.wait_for("completed");
    worker.wait_for("completed");
    let mut seen: Vec<BTreeMap<&str, usize>> = Vec::new();
    for _ in 0..5 {
        drop(place.server.take_requests());
        worker.wait_for("completed");
        let mut counts = BTreeMap::new();
        for request in place.server.take_requests() {
            *counts.entry(kind(&request)).or_default() += 1;
        }
        seen.push(counts);
    }
    worker.kill();
    ["PUT", "GET", "LIST", "HEAD", "DELETE", "POST"]
        .into_iter()
        .map(|kind| {
            let mut of_kind: Vec<_> = seen
                .iter()
                .map(|counts| counts.get(kind).copied().unwrap_or(0))
                .collect();
            of_kind.sort_unstable();
            (kind, of_kind[of_kind.len() / 2])
        })
        .collect()
}

/// Prints the table of `docs/performance.md` with `--nocapture`.
#[test]
fn a_checkpoint_of_a_job_keeps_to_its_budget_of_requests() {
    println!(
        "| job | PUT | GET | LIST | HEAD | DELETE | POST |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    let objects = ["-D", "execution.checkpointing.data-inline-threshold=0"];
    let at = |subtasks: &'static str, more: &[&'static str]| {
        [&["--parallelism", subtasks], more].concat()
    };
    for (what, more, put, delete) in [
        ("small state, inline; 1 subtask", at("1", &[]), 2, 3),
        ("small state, inline; 4 subtasks", at("4", &[]), 2, 3),
        ("each state in objects; 1 subtask", at("1", &objects), 9, 11),
        (
            "each state in objects; 4 subtasks",
            at("4", &objects),
            25,
            27,
        ),
        (
            "change streams in objects; 4 subtasks",
            at("4", &[&["--backend", "fs"], &objects[..]].concat()),
            33,
            33,
        ),
    ] {
        let counts = requests_of_checkpoints(&more);
        let of = |kind: &str| counts[kind];
        println!(
            "| {what} | {} | {} | {} | {} | {} | {} |",
            of("PUT"),
            of("GET"),
            of("LIST"),
            of("HEAD"),
            of("DELETE"),
            of("POST")
        );
        assert!((1..=put).contains(&of("PUT")), "{what}: {counts:?}");
        assert!(of("DELETE") <= delete, "{what}: {counts:?}");
        let looks = of("GET") + of("LIST") + of("HEAD");
        assert!(looks <= 11 && of("POST") == 0, "{what}: {counts:?}");
    }
}
