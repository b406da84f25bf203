//! Whole jobs on a store of one's own, which die and go on: `HOLDFAST_STORE_URL` names a folder of it, `HOLDFAST_STORE_OPTIONS`
//! has `OPTION=VALUE` in each line.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use checkpoint_storage::{StoreAccess, StoreOptions, StoreRoot};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use support::{Worker, arg, every_nth_flight, holdfast, rows, rows_of, text};

fn options() -> Vec<(String, String)> {
    let lines = std::env::var("HOLDFAST_STORE_OPTIONS").unwrap_or_default();
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let (key, value) = line
                .split_once('=')
                .expect("HOLDFAST_STORE_OPTIONS has OPTION=VALUE in each line");
            (key.trim().to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// A new folder of the store, which is removed in the end, and a local one with a configuration that says how it is reached.
struct Place {
    folder: tempfile::TempDir,
    checkpoints: String,
}

impl Place {
    fn new() -> Self {
        let url = std::env::var("HOLDFAST_STORE_URL")
            .expect("HOLDFAST_STORE_URL names a folder of the store");
        let folder = tempfile::Builder::new()
            .prefix("job-")
            .rand_bytes(12)
            .tempdir()
            .unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let checkpoints = format!("{}/{name}", url.trim_end_matches('/'));
        let mut text = "execution.checkpointing.interval: 100 ms\n".to_owned();
        for (key, value) in options() {
            let value = serde_json::to_string(&value).unwrap();
            text += &format!("{key}: {value}\n");
        }
        std::fs::write(folder.path().join("holdfast.yaml"), text).unwrap();
        Self {
            folder,
            checkpoints,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, input: &Path, output: &Path, more: &[&str]) -> Worker {
        let config = self.path("holdfast.yaml");
        let common = [
            "--input",
            arg(input),
            "--output",
            arg(output),
            "--config",
            arg(&config),
            "--checkpoints",
            &self.checkpoints,
        ];
        Worker::start(&[&common[..], more].concat())
    }

    /// Runs a command that must succeed, and returns what it printed.
    fn printed(&self, arguments: &[&str]) -> String {
        let config = self.path("holdfast.yaml");
        let output = holdfast(&[arguments, &["--config", arg(&config)]].concat())
            .output()
            .unwrap();
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        text(&output.stdout)
    }

    fn remove(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut set = StoreOptions::new();
        for (key, value) in options() {
            set.set(&key, value).unwrap();
        }
        let access = StoreAccess::new(runtime.handle().clone()).with_options(set);
        let root = StoreRoot::open(&self.checkpoints, access).unwrap();
        runtime.block_on(remove_below(&root, String::new()));
    }
}

fn remove_below(root: &StoreRoot, folder: String) -> BoxFuture<'_, ()> {
    async move {
        for entry in root.list(&folder).await.unwrap() {
            let slash = if folder.is_empty() { "" } else { "/" };
            let path = format!("{folder}{slash}{}", entry.name);
            if entry.is_folder {
                remove_below(root, path).await;
            } else {
                root.delete(&path).await.unwrap();
            }
        }
        root.remove_folder(&folder).await.unwrap();
    }
    .boxed()
}

#[test]
#[ignore = "it asks the store that HOLDFAST_STORE_URL names"]
fn a_job_that_dies_over_and_over_gives_the_rows_of_one_that_does_not() {
    for backend in ["hashmap", "fs"] {
        let place = Place::new();
        let input = every_nth_flight(place.folder.path(), 20);
        let expected = rows_of(&input, &[]);
        let output = place.path("out");
        let common = ["--backend", backend, "--from", "latest"];
        let lz4 = "-Dexecution.checkpointing.snapshot-compression=lz4";
        // Killed from outside, some checkpoints on.
        let more = ["--parallelism", "2", "--rate", "400", lz4];
        let mut worker = place.start(&input, &output, &[&common[..], &more].concat());
        worker.wait_past_checkpoint();
        worker.wait_past_checkpoint();
        worker.kill();
        assert!(rows(&output).len() < expected.len());
        // While objects are written, while a checkpoint is published, and before its rows are shown.
        for strike in ["async:2", "publish:2", "commit:2"] {
            let more = ["--rate", "1500", "--failpoint", strike];
            let worker = place.start(&input, &output, &[&common[..], &more].concat());
            let (_, status, errors) = worker.rest();
            assert_eq!(status.signal(), Some(9), "{backend} {strike}: {errors}");
        }
        let mut worker = place.start(
            &input,
            &output,
            &[&common[..], &["--parallelism", "3"]].concat(),
        );
        let running = worker.wait_for("running");
        assert!(running["restored"].as_u64().unwrap() >= 2, "{running}");
        worker.finish();
        assert!(rows(&output) == expected, "{backend}");

        let job = format!("{}/flights", place.checkpoints);
        assert!(
            place
                .printed(&["list", &place.checkpoints])
                .contains("chk-")
        );
        place.printed(&["verify", &place.checkpoints]);
        let copied = format!("{}/copy", place.checkpoints);
        place.printed(&["copy", &job, &copied]);
        place.printed(&["diff", &job, &copied]);
        place.printed(&["gc", &place.checkpoints]);
        place.printed(&["verify", &place.checkpoints]);
        place.remove();
    }
}
