//! A run that is frozen, succeeded by another one and thawed writes and deletes nothing.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::path::Path;

use rustix::process::Signal;
use support::{Worker, arg, every_nth_flight, rows, rows_of, tree};

/// The exit code of a run that a newer one has succeeded.
const FENCED: i32 = 77;

struct Place {
    folder: tempfile::TempDir,
    expected: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = every_nth_flight(folder.path(), 5);
        let expected = rows_of(&input, &[]);
        Self { folder, expected }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn start(&self, more: &[&str]) -> Worker {
        let [input, output, checkpoints] =
            ["flights.csv", "out", "checkpoints"].map(|name| self.path().join(name));
        let common = [
            "--input",
            arg(&input),
            "--output",
            arg(&output),
            "--checkpoints",
            arg(&checkpoints),
        ];
        // Every byte of state is an object of its own, so that there is something to write and to delete.
        let inline = [
            "--parallelism",
            "2",
            "-D",
            "execution.checkpointing.data-inline-threshold=0",
        ];
        Worker::start(&[&common[..], &inline, more].concat())
    }

    /// Starts a run and freezes it behind a checkpoint.
    fn frozen(&self) -> Worker {
        // The next checkpoint is far away: one that is being written when the run is frozen may end its own objects.
        let mut worker = self.start(&["--rate", "1500", "--interval", "1500ms"]);
        worker.wait_past_checkpoint();
        worker.signal(Signal::STOP);
        worker
    }

    fn check_rows(&self) {
        assert_eq!(rows(&self.path().join("out")), self.expected);
    }
}

fn check_fenced(frozen: Worker) {
    let (_, status, errors) = frozen.rest();
    assert_eq!(status.code(), Some(FENCED), "{errors}");
    assert!(errors.starts_with("error: "), "{errors}");
}

#[test]
fn a_run_thawed_after_its_successor_has_finished_changes_no_file() {
    let place = Place::new();
    let frozen = place.frozen();
    place
        .start(&["--from", "latest", "--interval", "300ms"])
        .finish();
    place.check_rows();
    let before = tree(place.path());
    frozen.signal(Signal::CONT);
    check_fenced(frozen);
    // Nothing that was there is changed, but for hidden parts of the thawed run's own.
    let after = tree(place.path());
    for (path, bytes) in &before {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        assert!(
            hidden || after.get(path) == Some(bytes),
            "{} was changed",
            path.display()
        );
    }
    let new: Vec<_> = after
        .keys()
        .filter(|path| !before.contains_key(*path))
        .collect();
    assert!(new.is_empty(), "{new:?}");
    place.check_rows();
}

#[test]
fn a_run_thawed_while_its_successor_runs_leaves_it_alone() {
    let place = Place::new();
    let frozen = place.frozen();
    let mut successor = place.start(&["--from", "latest", "--rate", "2500", "--interval", "300ms"]);
    successor.wait_past_checkpoint();
    frozen.signal(Signal::CONT);
    check_fenced(frozen);
    successor.finish();
    place.check_rows();
}
