//! `list` and `show`: what is in a folder of checkpoints and in one of them, and what is wrong with a damaged one.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Worker, arg, every_nth_flight, holdfast, one_error_line, run, text, wait_until};

/// A job that was killed behind a checkpoint whose state lies in objects.
struct Checkpoint {
    folder: tempfile::TempDir,
}

impl Checkpoint {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = every_nth_flight(folder.path(), 20);
        let place = folder.path().join("checkpoints");
        let output = folder.path().join("out");
        let mut worker = Worker::start(&[
            "--input",
            arg(&input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&place),
            "--parallelism",
            "2",
            "--interval",
            "50ms",
            "--rate",
            "1500",
            "-D",
            "execution.checkpointing.data-inline-threshold=0",
        ]);
        worker.wait_past_checkpoint();
        worker.kill();
        Self { folder }
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.path().join("checkpoints")
    }

    fn job(&self) -> PathBuf {
        self.checkpoints().join("flights")
    }

    fn json(&self) -> Value {
        let shown = run(&["show", arg(&self.job()), "--json"]);
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        serde_json::from_slice(&shown.stdout).unwrap()
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(self.json()["path"].as_str().unwrap())
    }

    /// An object, and the operator that it belongs to.
    fn object(&self) -> (PathBuf, String) {
        let shown = self.json();
        for operator in shown["operators"].as_array().unwrap() {
            for part in operator["parts"].as_array().unwrap() {
                if let Some(object) = part["object"].as_str() {
                    return (
                        self.job().join(object),
                        operator["uid"].as_str().unwrap().to_owned(),
                    );
                }
            }
        }
        panic!("no object in {shown}");
    }
}

/// Its name, and what it does to a file.
type Damage = (&'static str, fn(&Path));

fn flip_a_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_checkpoint_is_shown_with_operators_states_and_parts() {
    let checkpoint = Checkpoint::new();
    let path = checkpoint.path();
    let metadata = path.join("_metadata");
    for pointer in [&checkpoint.job(), &path, &metadata] {
        let shown = run(&["show", arg(pointer)]);
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        let shown = text(&shown.stdout);
        for part in [
            "of job flights, attempt 1",
            "operator flights",
            "operator delays",
            "operator names",
            "2 subtasks of 128 key groups, hash holdfast-1",
            "struct DayTotals{flights:u64,cancelled:u64,delay_minutes:i64}",
            "aggregating",
            "broadcast",
            "timer",
            "compact",
        ] {
            assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
        }
    }
}

#[test]
fn json_names_schemas_fingerprints_entries_and_digests() {
    let shown = Checkpoint::new().json();
    assert_eq!(shown["job"], "flights");
    let operators = shown["operators"].as_array().unwrap();
    let of = |uid: &str| {
        operators
            .iter()
            .find(|operator| operator["uid"] == uid)
            .unwrap()
    };
    let delays = of("delays");
    assert_eq!(
        (&delays["parallelism"], &delays["max_parallelism"]),
        (&2.into(), &128.into())
    );
    let window = delays["states"]
        .as_array()
        .unwrap()
        .iter()
        .find(|state| state["name"] == "window")
        .unwrap();
    assert_eq!(window["kind"], "aggregating");
    assert_eq!(window["key"]["schema"], "string");
    assert_eq!(window["value"]["fingerprint"].as_str().unwrap().len(), 16);
    let names = of("names")["states"]
        .as_array()
        .unwrap()
        .iter()
        .find(|state| state["name"] == "names")
        .unwrap();
    assert_eq!(names["kind"], "broadcast");
    assert!(
        operators
            .iter()
            .flat_map(|o| o["parts"].as_array().unwrap())
            .any(|part| part["digest"]
                .as_str()
                .is_some_and(|digest| digest.len() == 64))
    );
}

#[test]
fn jobs_and_their_checkpoints_are_listed_from_the_folder_above_and_from_the_job_s_own() {
    let checkpoint = Checkpoint::new();
    for folder in [checkpoint.checkpoints(), checkpoint.job()] {
        let listed = run(&["list", arg(&folder)]);
        let told = text(&listed.stdout);
        assert!(
            listed.status.success() && told.contains("complete"),
            "{told}"
        );
        assert!(told.starts_with(arg(&checkpoint.job())), "{told}");
        let json: Value =
            serde_json::from_slice(&run(&["list", arg(&folder), "--json"]).stdout).unwrap();
        assert_eq!(json[0]["job"], "flights");
        assert_eq!(json[0]["path"].as_str(), checkpoint.path().to_str());
    }
    let empty = tempfile::tempdir().unwrap();
    let listed = run(&["list", arg(empty.path())]);
    assert!(listed.status.success() && text(&listed.stdout).starts_with("no checkpoints in "));
    assert_eq!(
        text(&run(&["list", arg(empty.path()), "--json"]).stdout),
        "[]\n"
    );
}

#[test]
fn whole_objects_are_verified_and_a_flipped_byte_a_missing_and_a_truncated_object_are_named() {
    let damages: [Damage; 3] = [
        ("flipped", flip_a_byte),
        ("missing", |path| std::fs::remove_file(path).unwrap()),
        ("truncated", |path| {
            let len = std::fs::metadata(path).unwrap().len();
            std::fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(len - 1)
                .unwrap();
        }),
    ];
    for (name, damage) in damages {
        let checkpoint = Checkpoint::new();
        let path = checkpoint.path();
        let whole = run(&["show", arg(&path), "--verify"]);
        assert!(
            whole.status.success() && text(&whole.stdout).contains("all of them whole"),
            "{}",
            text(&whole.stdout)
        );
        let (object, operator) = checkpoint.object();
        damage(&object);
        let file = object.file_name().unwrap().to_str().unwrap().to_owned();
        let shown = run(&["show", arg(&path), "--verify"]);
        let line = one_error_line(&shown, 3);
        assert!(
            line.contains(&file) && line.contains(&format!("operator={operator}")),
            "{name}: {line}"
        );
        assert!(text(&shown.stdout).contains("faults"), "{name}");

        let before = support::tree(&checkpoint.job())
            .into_keys()
            .filter(|path| !path.starts_with(checkpoint.job().join("attempts")));
        let before: Vec<PathBuf> = before.collect();
        let input = checkpoint.folder.path().join("flights.csv");
        let resumed = run(&[
            "run",
            "flights",
            "--input",
            arg(&input),
            "--checkpoints",
            arg(&checkpoint.checkpoints()),
            "--from",
            arg(&path),
            "--output",
            arg(&checkpoint.folder.path().join("out")),
        ]);
        let line = one_error_line(&resumed, 3);
        assert!(
            line.contains(&file) && line.contains(&operator),
            "{name}: {line}"
        );
        let after: Vec<PathBuf> = support::tree(&checkpoint.job())
            .into_keys()
            .filter(|path| !path.starts_with(checkpoint.job().join("attempts")))
            .collect();
        assert_eq!(before, after, "{name}: nothing is deleted");
    }
}

#[test]
fn damaged_metadata_is_told_by_list_and_show_and_nothing_else_suffers() {
    let checkpoint = Checkpoint::new();
    let path = checkpoint.path();
    flip_a_byte(&path.join("_metadata"));
    let line = one_error_line(&run(&["show", arg(&path)]), 3);
    assert!(line.contains(arg(&path)), "{line}");
    let listed = run(&["list", arg(&checkpoint.checkpoints())]);
    assert!(
        listed.status.success() && text(&listed.stdout).contains("damaged"),
        "{}",
        text(&listed.stdout)
    );
}

#[test]
fn ob_01_of_an_incremental_checkpoint_show_tells_what_is_new_and_what_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    let (input, checkpoints) = (
        folder.path().join("text"),
        folder.path().join("checkpoints"),
    );
    // Many words in the first line, and then one word again and again while checkpoints are taken.
    let many: String = (0..5000).map(|n| format!("word{n} ")).collect();
    std::fs::write(&input, format!("{many}\n{}", "more\n".repeat(4000))).unwrap();
    let arguments = ["run", "wordcount", "--backend", "fs", "--rate", "40"];
    let job = Worker::spawn(
        holdfast(&arguments)
            .args(["--input", arg(&input), "--checkpoints", arg(&checkpoints)])
            .arg("-Dexecution.checkpointing.incremental=true")
            .arg("-Dexecution.checkpointing.data-inline-threshold=0"),
    );
    let mut counted = 0;
    let mut checkpoint_with_change = |kind: &[&str]| {
        let mut path = String::new();
        wait_until("a checkpoint has counted further", || {
            path = text(&run(&[&["checkpoint", "wordcount"], kind].concat()).stdout);
            let got = run(&["get", path.trim(), "count", "more", "--json"]);
            let got: Value = serde_json::from_slice(&got.stdout).unwrap_or_default();
            let before = std::mem::replace(&mut counted, got["value"].as_u64().unwrap_or(0));
            counted > before
        });
        let shown = run(&["show", path.trim(), "--json"]);
        serde_json::from_slice::<Value>(&shown.stdout).unwrap()
    };
    let full = checkpoint_with_change(&["--full"]);
    let told = checkpoint_with_change(&[]);
    let of = |told: &Value, name: &str| told[name].as_u64().unwrap();
    let (total, new, reused) = (
        of(&told, "total_bytes"),
        of(&told, "new_bytes"),
        of(&told, "reused_bytes"),
    );
    assert_eq!(of(&full, "reused_bytes"), 0, "{full}");
    assert_eq!(new + reused, total, "{told}");
    assert!(0 < new && new < total / 50, "{told}");
    assert!(reused > of(&full, "total_bytes") / 2, "{full} {told}");
    let in_words = text(&run(&["show", told["path"].as_str().unwrap()]).stdout);
    assert!(in_words.contains(&format!(": {new} B new, ")), "{in_words}");
    assert!(!in_words.contains(" 0 B reused"), "{in_words}");
    job.kill();
}
