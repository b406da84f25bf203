//! A job with a checkpoint that hangs, since nobody reads its rows.
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{arg, holdfast, run, wait_until};

/// Counts words, with a checkpoint under way that its last subtask holds up; it is killed when this value goes.
pub(crate) struct Hanging {
    pub(crate) child: Child,
    /// The checkpoint, as the job told of it.
    pub(crate) pending: Value,
    pub(crate) folder: tempfile::TempDir,
}

impl Hanging {
    /// Starts the job and waits until a barrier is missing for more than 700 ms, at most half a minute.
    pub(crate) fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let words: String = (0..40_000).map(|n| format!("word{n}\n")).collect();
        std::fs::write(path("text"), words).unwrap();
        let (input, checkpoints) = (path("text"), path("checkpoints"));
        let arguments = [
            "run",
            "wordcount",
            "--input",
            arg(&input),
            "--checkpoints",
            arg(&checkpoints),
            "--interval",
            "50ms",
        ];
        let child = holdfast(&[&arguments[..], more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut hanging = Self {
            child,
            pending: Value::Null,
            folder,
        };
        // The subtask that writes the rows hangs, and the next checkpoint with it.
        wait_until("a checkpoint hangs", || {
            let report = run(&["status", "--json"]);
            let report: Value = serde_json::from_slice(&report.stdout).unwrap_or_default();
            let hangs = |pending: &&Value| {
                let missing = &pending["missing"][0];
                missing["for_ms"].as_u64().is_some_and(|ms| ms > 700) && missing["phase"].is_null()
            };
            let pending = report["pending"].as_array().map(Vec::as_slice);
            if let Some(pending) = pending.unwrap_or_default().iter().find(hangs) {
                hanging.pending = pending.clone();
                return true;
            }
            assert!(hanging.child.try_wait().unwrap().is_none());
            false
        });
        hanging
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
