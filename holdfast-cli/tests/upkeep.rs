//! `verify`, `gc` and `copy` on what real jobs leave, whole and damaged.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Worker, arg, every_nth_flight, one_error_line, run, text};

/// What a job left that was killed behind a few checkpoints, of which it keeps two, with their state in objects.
struct Left {
    folder: tempfile::TempDir,
}

impl Left {
    fn new() -> Self {
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
