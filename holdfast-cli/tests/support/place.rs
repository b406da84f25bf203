//! A folder with a job, and the program asking that job.
use std::path::PathBuf;

use super::{Worker, every_nth_flight, rows, rows_of, run, sockets, text};

/// The exit code of a run that was told to end at once.
pub(crate) const INTERRUPTED: i32 = 130;

/// A folder with flights, and what an uninterrupted run makes of them.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) expected: Vec<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let input = every_nth_flight(folder.path(), 9);
        let expected = rows_of(&input, &[]);
        Self { folder, expected }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a job that takes its time, and a checkpoint now and then.
    pub(crate) fn start(&self, more: &[&str]) -> Worker {
        let mut arguments = self.arguments().to_vec();
        for (option, value) in [("--rate", "1500"), ("--interval", "100ms")] {
            if !more.contains(&option) {
                arguments.extend([option, value]);
            }
        }
        arguments.extend(more);
        Worker::start(&arguments)
    }

    pub(crate) fn arguments(&self) -> [&str; 6] {
        // Leaked: the paths of a test are few.
        let leak =
            |name: &str| -> &'static str { self.path(name).to_str().unwrap().to_owned().leak() };
        [
            "--input",
            leak("flights.csv"),
            "--output",
            leak("out"),
            "--checkpoints",
            leak("checkpoints"),
        ]
    }

    pub(crate) fn check_rows(&self) {
        assert_eq!(rows(&self.path("out")), self.expected);
    }

    /// Goes on without haste at another parallelism, and checks the rows.
    pub(crate) fn finish(&self, from: &str) {
        self.start(&["--from", from, "--parallelism", "3", "--rate", "100000"])
            .finish();
        self.check_rows();
    }
}

/// Runs the program, which must succeed; returns what it writes to its outputs.
pub(crate) fn ask(arguments: &[&str]) -> (String, String) {
    let output = run(arguments);
    let (told, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {told}{errors}");
    (told, errors)
}

/// What is left in the folder of sockets.
pub(crate) fn left() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(sockets()) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
