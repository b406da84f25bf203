//! `verify`, `gc` and `copy` on what real jobs leave, whole and damaged.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Worker, arg, every_nth_flight, one_error_line, run, text, tree};

/// What a job left that was killed behind a few checkpoints, of which it keeps two, with their state in objects.
struct Left {
    folder: tempfile::TempDir,
}

impl Left {
    fn new() -> Self {
        Self::over("hashmap")
    }

    fn over(backend: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = every_nth_flight(folder.path(), 20);
        let (checkpoints, output) = (folder.path().join("checkpoints"), folder.path().join("out"));
        let mut worker = Worker::start(&[
            "--backend",
            backend,
            "--input",
            arg(&input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
            "--interval",
            "50ms",
            "--rate",
            "1500",
            "-D",
            "execution.checkpointing.data-inline-threshold=0",
            "-D",
            "execution.checkpointing.num-retained=2",
        ]);
        for _ in 0..3 {
            worker.wait_past_checkpoint();
        }
        worker.kill();
        Self { folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The complete checkpoints, the newest first.
    fn complete(&self) -> Vec<PathBuf> {
        let listed = run(&["list", arg(&self.path("checkpoints")), "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let listed = listed.as_array().unwrap().iter();
        listed
            .filter(|one| one["state"] == "complete")
            .map(|one| PathBuf::from(one["path"].as_str().unwrap()))
            .collect()
    }
}

/// Any object in the folder of a checkpoint.
fn object_in(checkpoint: &Path) -> PathBuf {
    let mut objects: Vec<_> = std::fs::read_dir(checkpoint)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.ends_with("_metadata"))
        .collect();
    objects.sort();
    objects.remove(0)
}

fn flip_a_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn verify_names_what_is_damaged_what_it_affects_and_the_newest_that_is_whole() {
    let left = Left::new();
    let checkpoints = left.path("checkpoints");
    let whole = run(&["verify", arg(&checkpoints)]);
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    let complete = left.complete();
    let (newest, older) = (&complete[0], &complete[1]);
    let object = object_in(newest);
    flip_a_byte(&object);
    // Of the folder, of the job, of the checkpoint itself: always by name, always with the one that is whole.
    for path in [&checkpoints, &left.path("checkpoints/flights"), newest] {
        let damaged = run(&["verify", arg(path)]);
        let line = one_error_line(&damaged, 3);
        assert!(
            line.contains("1 object damaged or missing, 1 checkpoint affected"),
            "{line}"
        );
        let shown = text(&damaged.stdout);
        for part in [
            format!("{}  wrong digest", object.display()),
            format!("needed by {}: operator ", newest.display()),
            format!("newest whole checkpoint: {}", older.display()),
        ] {
            assert!(shown.contains(&part), "{part:?} is missing in\n{shown}");
        }
    }
    let shown = json(&["verify", arg(&checkpoints), "--json"]);
    assert_eq!(shown["whole"], false);
    assert_eq!(shown["damaged"][0]["object"], arg(&object));
    assert_eq!(shown["damaged"][0]["damage"], "wrong digest");
    assert_eq!(shown["newest_whole"], arg(older));
    assert_eq!(shown["alternatives"][0]["job"], "flights");
    assert_eq!(shown["alternatives"][0]["newest_whole"], arg(older));
    // What lies by itself has no others beside it, and that says nothing of the job's.
    let alone = left.path("alone");
    let copied = run(&["copy", arg(older), arg(&alone)]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    flip_a_byte(&object_in(&alone));
    let damaged = run(&["verify", arg(&alone)]);
    one_error_line(&damaged, 3);
    let out = text(&damaged.stdout);
    assert!(out.contains("no other checkpoint was looked for"), "{out}");
    let shown = json(&["verify", arg(&alone), "--json"]);
    assert_eq!(shown["alternatives"][0]["looked_for"], false);
    // Damaged metadata: nothing of the checkpoint can be told, but the other one can.
    flip_a_byte(&newest.join("_metadata"));
    for path in [&checkpoints, newest, &newest.join("_metadata")] {
        let damaged = run(&["verify", arg(path)]);
        one_error_line(&damaged, 3);
        let shown = text(&damaged.stdout);
        assert!(
            shown.contains(&format!("newest whole checkpoint: {}", older.display())),
            "{shown}"
        );
    }
}

#[test]
fn nothing_to_verify_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let line = one_error_line(&run(&["verify", arg(folder.path())]), 2);
    assert!(line.contains("no checkpoints here"), "{line}");
    let line = one_error_line(&run(&["verify", arg(&folder.path().join("not-there"))]), 2);
    assert!(line.contains("not-there"), "{line}");
}

#[test]
fn gc_lists_while_the_job_runs_and_deletes_what_it_left_once_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let input = every_nth_flight(folder.path(), 20);
    let (checkpoints, output) = (folder.path().join("checkpoints"), folder.path().join("out"));
    let mut worker = Worker::start(&[
        "--input",
        arg(&input),
        "--output",
        arg(&output),
        "--checkpoints",
        arg(&checkpoints),
        "--interval",
        "50ms",
        "--rate",
        "500",
        "-D",
        "execution.checkpointing.data-inline-threshold=0",
    ]);
    worker.wait_past_checkpoint();
    let line = one_error_line(&run(&["gc", arg(&checkpoints)]), 6);
    assert!(line.contains("attempt 1 of the job runs"), "{line}");
    let dry = run(&["gc", arg(&checkpoints), "--dry-run"]);
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    // It goes on, with checkpoints.
    worker.wait_past_checkpoint();
    worker.kill();
    // What an attempt leaves that dies in the middle of a checkpoint.
    let job = checkpoints.join("flights");
    let orphan = "1-67e55044-10b1-426f-9247-bb680e5fe0c8";
    for folder in ["chk-999", "shared", "taskowned"] {
        std::fs::create_dir_all(job.join(folder)).unwrap();
        std::fs::write(job.join(folder).join(orphan), "orphan").unwrap();
    }
    std::fs::write(job.join("shared/readme.txt"), "mine").unwrap();
    let dry = run(&["gc", arg(&job), "-n"]);
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    let shown = text(&dry.stdout);
    for part in [
        "attempt 1 is gone",
        "checkpoint 999 was never completed",
        "no checkpoint refers to it",
        "not ours, left alone: shared/readme.txt",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    assert!(job.join("shared").join(orphan).exists());
    let done = json(&["gc", arg(&checkpoints), "--json"]);
    let unreferenced = done["jobs"][0]["unreferenced"].as_array().unwrap();
    assert!(unreferenced.len() >= 3, "{done}");
    for one in unreferenced {
        let of_task = one["object"].as_str().unwrap().starts_with("taskowned/");
        let fate = if of_task { "left to task" } else { "deleted" };
        assert_eq!(one["fate"], fate, "{done}");
    }
    for folder in ["chk-999", "shared"] {
        assert!(!job.join(folder).join(orphan).exists());
    }
    assert!(job.join("taskowned").join(orphan).exists());
    assert!(job.join("shared/readme.txt").exists());
    assert!(run(&["verify", arg(&checkpoints)]).status.success());
    // The job goes on from what is left.
    let go_on = run(&[
        "run",
        "flights",
        "--input",
        arg(&input),
        "--output",
        arg(&output),
        "--checkpoints",
        arg(&checkpoints),
        "--from",
        "latest",
        "--no-socket",
    ]);
    assert!(go_on.status.success(), "{}", text(&go_on.stderr));
    let again = json(&["gc", arg(&checkpoints), "--json"]);
    assert_eq!(again["jobs"][0]["state"], "ended", "{again}");
}

#[test]
fn gc_deletes_nothing_where_a_checkpoint_can_t_be_read() {
    let left = Left::new();
    let newest = &left.complete()[0];
    flip_a_byte(&newest.join("_metadata"));
    let orphan = left.path("checkpoints/flights/shared/1-67e55044-10b1-426f-9247-bb680e5fe0c8");
    std::fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    std::fs::write(&orphan, "orphan").unwrap();
    let line = one_error_line(&run(&["gc", arg(&left.path("checkpoints"))]), 3);
    assert!(line.contains("nothing is deleted"), "{line}");
    assert!(
        line.contains(newest.file_name().unwrap().to_str().unwrap()),
        "{line}"
    );
    assert!(orphan.exists());
    // A checkpoint itself is no place to clean up.
    let line = one_error_line(&run(&["gc", arg(&left.complete()[0])]), 2);
    assert!(line.contains("name the folder of a job"), "{line}");
}

#[test]
fn whatever_takes_the_newest_checkpoint_says_that_it_passes_over_a_damaged_one() {
    let left = Left::new();
    let complete = left.complete();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let (newest, older) = (name(&complete[0]), name(&complete[1]));
    flip_a_byte(&complete[0].join("_metadata"));
    let told = format!(
        "warning: {newest} is newer and can't be read, so checkpoint {} is taken: damaged data",
        older.strip_prefix("chk-").unwrap()
    );
    let (job, checkpoints) = (left.path("checkpoints/flights"), left.path("checkpoints"));
    let (latest, copy) = (left.path("checkpoints/flights/latest"), left.path("copy"));
    let (input, output) = (left.path("flights.csv"), left.path("out"));
    let run_from = [
        "run",
        "flights",
        "--input",
        arg(&input),
        "--output",
        arg(&output),
    ];
    let from = ["--checkpoints", arg(&checkpoints), "--from"];
    for command in [
        vec!["show", arg(&job)],
        vec!["dump", arg(&latest)],
        vec!["copy", arg(&job), arg(&copy)],
        [&run_from[..], &from, &["latest", "--plan"]].concat(),
        [&run_from[..], &from, &[arg(&latest), "--plan"]].concat(),
    ] {
        let output = run(&command);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{command:?}: {errors}");
        assert_eq!(errors.matches(&told).count(), 1, "{command:?}: {errors}");
    }
    // Also where the rows of the damaged one are out already, so that nothing starts.
    let run_on = run(&[&run_from[..], &from, &["latest"]].concat());
    assert!(text(&run_on.stderr).contains(&told));
}

/// A checkpoint that was moved to another disk, with a link in its place, is not followed; what it needs may not go either.
#[test]
fn gc_takes_nothing_from_a_checkpoint_whose_folder_is_a_link() {
    let left = Left::over("fs");
    let newest = left.complete()[0].clone();
    let moved = left.path("elsewhere");
    std::fs::rename(&newest, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &newest).unwrap();
    let before = tree(&left.path("checkpoints/flights/shared"));
    assert!(!before.is_empty());
    for place in ["elsewhere", "away"] {
        let gc = run(&["gc", arg(&left.path("checkpoints"))]);
        let errors = text(&gc.stderr);
        assert!(!gc.status.success(), "{place}: {errors}");
        assert!(errors.contains("link"), "{place}: {errors}");
        assert_eq!(tree(&left.path("checkpoints/flights/shared")), before);
        if place == "elsewhere" {
            std::fs::rename(&moved, left.path("away")).unwrap();
        }
    }
    std::fs::remove_file(&newest).unwrap();
    std::fs::rename(left.path("away"), &newest).unwrap();
    let verified = run(&["verify", arg(&left.path("checkpoints"))]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
    assert!(left.complete().contains(&newest));
}

#[test]
fn gc_tells_of_every_job_though_one_of_them_can_t_be_cleaned_up() {
    let left = Left::new();
    let job = left.path("checkpoints/zzz");
    std::fs::create_dir_all(job.join("chk-1")).unwrap();
    std::fs::write(job.join("attempts"), "no folder").unwrap();
    let output = run(&["gc", arg(&left.path("checkpoints")), "--json"]);
    assert_ne!(output.status.code(), Some(0));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["jobs"][0]["job"], "flights", "{told}");
    let failed = told["failed"][0]["path"].as_str().unwrap();
    assert!(failed.ends_with("zzz"), "{told}");
}

#[test]
fn a_copied_checkpoint_restores_without_what_it_was_copied_from() {
    let left = Left::new();
    let copy = left.path("backup/flights");
    let copied = run(&["copy", arg(&left.path("checkpoints/flights")), arg(&copy)]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert_eq!(text(&copied.stdout).lines().last(), Some(arg(&copy)));
    let again = json(&[
        "copy",
        arg(&left.path("checkpoints/flights")),
        arg(&copy),
        "--json",
    ]);
    assert_eq!(again["already_there"], true, "{again}");
    std::fs::remove_dir_all(left.path("checkpoints")).unwrap();
    assert!(run(&["verify", arg(&copy)]).status.success());
    // Moved, too.
    let moved = left.path("moved");
    std::fs::rename(&copy, &moved).unwrap();
    let start = |from: Option<&Path>, output: &str| {
        let (input, output) = (left.path("flights.csv"), left.path(output));
        let checkpoints =
            left.path(&format!("checkpoints-of-{}", output.display()).replace('/', "-"));
        let mut arguments = vec!["run", "flights", "--no-socket", "--input", arg(&input)];
        arguments.extend(["--output", arg(&output), "--checkpoints", arg(&checkpoints)]);
        arguments.extend(from.into_iter().flat_map(|from| ["--from", arg(from)]));
        let done = run(&arguments);
        assert!(done.status.success(), "{}", text(&done.stderr));
        support::rows(&output)
    };
    // The rows that the killed job had committed by that checkpoint, and those of the rest.
    start(Some(&moved), "out");
    let mut rows = support::rows(&left.path("out"));
    let mut expected = start(None, "uninterrupted");
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected);
}

#[test]
fn a_copy_of_a_damaged_checkpoint_or_into_a_folder_in_use_is_refused() {
    let left = Left::new();
    let newest = &left.complete()[0];
    let line = one_error_line(&run(&["copy", arg(newest), arg(&left.path("out"))]), 2);
    assert!(line.contains("not empty"), "{line}");
    flip_a_byte(&object_in(newest));
    let target = left.path("copy");
    let line = one_error_line(&run(&["copy", arg(newest), arg(&target)]), 3);
    assert!(line.contains("digest"), "{line}");
    assert!(!target.join("_metadata").exists());
}

/// A file of keys, the newest first.
fn key_file(path: &Path, keys: &[(&str, &str)]) {
    let lines = keys
        .iter()
        .map(|(name, byte)| format!("{name} {}\n", byte.repeat(32)));
    std::fs::write(path, lines.collect::<String>()).unwrap();
}

#[test]
fn k_676_k_768_a_job_that_packs_encrypts_and_signs_goes_on_with_other_settings_and_an_older_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let input = every_nth_flight(folder.path(), 40);
    let (checkpoints, keys) = (path("checkpoints"), path("keys"));
    let (out, out2) = (path("out"), path("out2"));
    key_file(&keys, &[("k1", "a1")]);
    let option = |name: &str, value: &str| format!("execution.checkpointing.{name}={value}");
    let encryption = option("encryption.keys-file", arg(&keys));
    let signing = option("signing.keys-file", arg(&keys));
    let packed = option("snapshot-compression", "lz4");
    let small = option("data-inline-threshold", "0");
    let run_job = |more: &[&str]| {
        let line = [
            "run",
            "flights",
            "--input",
            arg(&input),
            "--output",
            arg(&out),
            "--checkpoints",
            arg(&checkpoints),
            "-D",
            &small,
            "-D",
            &encryption,
            "-D",
            &signing,
        ];
        run(&[&line, more].concat())
    };
    let first = run_job(&["-D", &packed, "--interval", "10 min"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let newest = || {
        let shown = run(&["show", arg(&checkpoints.join("flights/latest")), "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        PathBuf::from(shown["path"].as_str().unwrap())
    };
    let before = newest();
    for entry in std::fs::read_dir(&before).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "_metadata" || name.ends_with(".sealed"), "{name}");
    }
    // Another key, another parallelism, nothing packed.
    key_file(&keys, &[("k2", "b2"), ("k1", "a1")]);
    let second = run_job(&["--from", "latest", "--parallelism", "2"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_ne!(newest(), before);
    // The old key alone does not do any more: what is signed with an unknown key is refused.
    key_file(&keys, &[("k1", "a1")]);
    let refused = run_job(&["--from", "latest"]);
    let line = one_error_line(&refused, 2);
    assert!(line.contains("k2") && !line.contains("a1a1"), "{line}");
    // Signing that is required, and checkpoints that are not signed: nothing begins anew by itself.
    let unsigned = path("unsigned");
    let line = [
        "run",
        "flights",
        "--input",
        arg(&input),
        "--output",
        arg(&out2),
    ];
    let at = ["--checkpoints", arg(&unsigned)];
    assert!(run(&[&line[..], &at].concat()).status.success());
    let strict = [&line[..], &at, &["--from", "latest", "-D", &signing]].concat();
    let line = one_error_line(&run(&strict), 3);
    assert!(line.contains("no checkpoint that can be read"), "{line}");
    let lenient = option("signing.required", "false");
    let lenient = run(&[&strict[..], &["-D", &lenient]].concat());
    assert!(lenient.status.success(), "{}", text(&lenient.stderr));
}
