//! Every command for checkpoints on what is none, and on a damaged one of a job that the program has never seen: one line that
//! names the path, the exit code that `docs/operations.md` says, and nothing written or deleted.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

#[path = "../../checkpoint-tools/tests/support/mod.rs"]
mod shop;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use shop::Shop;
use support::{arg, holdfast, one_error_line, text, tree};

/// What the commands are given, by its name in the folder of the test; the codes of [`COMMANDS`] are in this order.
const GIVEN: [&str; 7] = [
    // A folder with nothing in it, and none.
    "empty",
    "not-there",
    // Savepoints: one with the first half of its metadata, one without some objects.
    "cut",
    "holed",
    // Folders of jobs whose only checkpoint is such a one.
    "jobs/of-cut",
    "jobs/of-holed",
    // The folder of a job with a savepoint in place of a checkpoint.
    "jobs/of-stray",
];

/// A command with `PATH` in the place of what it is given.
type Command = (&'static [&'static str], [i32; GIVEN.len()]);

const KEY: &str = r#"{"shop":"south","number":7}"#;

/// What reads the metadata alone doesn't miss an object.
const COMMANDS: [Command; 17] = [
    (&["list", "PATH"], [0, 2, 2, 2, 0, 0, 0]),
    (&["show", "PATH"], [2, 2, 3, 0, 3, 0, 3]),
    (&["show", "PATH", "--verify"], [2, 2, 3, 3, 3, 3, 3]),
    (&["get", "PATH", "totals", KEY], [2, 2, 3, 3, 3, 3, 3]),
    (&["dump", "PATH"], [2, 2, 3, 3, 3, 3, 3]),
    (&["dump", "PATH", "--output", "new"], [2, 2, 3, 3, 3, 3, 3]),
    (&["diff", "PATH", "whole"], [2, 2, 3, 3, 3, 3, 3]),
    (&["diff", "whole", "PATH"], [2, 2, 3, 3, 3, 3, 3]),
    (&["verify", "PATH"], [2, 2, 3, 3, 3, 3, 3]),
    (&["gc", "PATH", "--dry-run"], [2, 2, 3, 2, 3, 0, 2]),
    (&["gc", "PATH"], [2, 2, 3, 2, 3, 0, 2]),
    (&["copy", "PATH", "new"], [2, 2, 3, 3, 3, 3, 3]),
    (&["convert", "PATH", "--to", "new"], [2, 2, 3, 3, 3, 3, 3]),
    (
        &["rescale", "PATH", "--max-parallelism", "64", "--to", "new"],
        [2, 2, 3, 3, 3, 3, 3],
    ),
    (
        &["edit", "PATH", "--drop-state", "totals", "--to", "new"],
        [2, 2, 3, 3, 3, 3, 3],
    ),
    (
        // Of a savepoint it reads a key, to see whether the keys lie where their hash says.
        &["bootstrap", "none.jsonl", "--like", "PATH", "--to", "new"],
        [2, 2, 3, 3, 3, 0, 3],
    ),
    (
        &["bootstrap", "PATH", "--like", "whole", "--to", "new"],
        [2, 2, 2, 2, 2, 2, 2],
    ),
];

/// A folder with all of [`GIVEN`], and a whole savepoint.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let io = shop::runtime();
    let write = |name: &str, in_job| {
        let shop = Shop {
            raw_keyed: false,
            in_job,
            ..Shop::default()
        };
        shop.write(&at(name), &io);
        at(name)
    };
    for name in ["empty", "tmp"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("none.jsonl"), "").unwrap();
    write("whole", false);
    cut(&write("cut", false));
    hole(&write("holed", false));
    cut(&write("jobs/of-cut", true).join("chk-7"));
    hole(&write("jobs/of-holed", true).join("chk-7"));
    write("jobs/of-stray/chk-7", false);
    for job in ["jobs/of-cut", "jobs/of-holed", "jobs/of-stray"] {
        fs::create_dir(at(job).join("attempts")).unwrap();
        fs::write(at(job).join("attempts/3"), "").unwrap();
    }
    for job in ["jobs/of-cut", "jobs/of-stray"] {
        fs::create_dir(at(job).join("shared")).unwrap();
        let unused = "shared/1-67e55044-10b1-426f-9247-bb680e5fe0c8";
        fs::write(at(job).join(unused), "nothing refers to it").unwrap();
    }
    dir
}

fn cut(checkpoint: &Path) {
    let metadata = checkpoint.join("_metadata");
    let bytes = fs::read(&metadata).unwrap();
    fs::write(metadata, &bytes[..bytes.len() / 2]).unwrap();
}

/// Takes away the objects with keyed state, which are the longest.
fn hole(checkpoint: &Path) {
    let found = fs::read_dir(checkpoint).unwrap();
    let found = found.map(|entry| entry.unwrap().path());
    let mut objects: Vec<_> = found.filter(|path| !path.ends_with("_metadata")).collect();
    objects.sort_by_key(|path| fs::metadata(path).unwrap().len());
    for object in objects.split_off(objects.len() - 2) {
        fs::remove_file(object).unwrap();
    }
}

/// Every file, but for the marks of those who tidied up.
fn all_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = tree(dir);
    all.retain(|path, _| !path.components().any(|part| part.as_os_str() == "attempts"));
    all
}

/// Removes a new checkpoint, or what was begun of it, which must say of itself that it is none.
fn remove_new(dir: &Path, is_done: bool) {
    let new = dir.join("new");
    if new.is_dir() {
        assert_eq!(new.join("_metadata").exists(), is_done);
        let marks = ["_unfinished", "_copying"].map(|mark| new.join(mark));
        assert_eq!(marks.iter().any(|mark| mark.exists()), !is_done);
        fs::remove_dir_all(new).unwrap();
    }
}

#[test]
fn what_is_no_checkpoint_or_a_damaged_one_is_named_in_one_line_and_left_as_it_is() {
    let dir = place();
    let before = all_of(dir.path());
    for (command, codes) in COMMANDS {
        for (given, code) in GIVEN.into_iter().zip(codes) {
            let path = dir.path().join(given);
            let arguments = command.iter().map(|part| match *part {
                "PATH" => arg(&path),
                other => other,
            });
            let output = holdfast(&arguments.collect::<Vec<_>>())
                .current_dir(dir.path())
                .env("TMPDIR", dir.path().join("tmp"))
                .output()
                .unwrap();
            let errors = text(&output.stderr);
            let told = format!("{command:?} {given}: {:?} {errors}", output.status.code());
            if code == 0 {
                assert_eq!(
                    (output.status.code(), errors.as_str()),
                    (Some(0), ""),
                    "{told}"
                );
            } else {
                let line = one_error_line(&output, code);
                assert!(line.contains(given), "{told}");
            }
            remove_new(dir.path(), code == 0);
            assert!(all_of(dir.path()) == before, "{told}");
        }
    }
}
