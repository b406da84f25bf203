use checkpoint_storage::{
    CheckpointFolder, CheckpointState, ListedCheckpoint, METADATA_NAME, StoreEntry, StoreRoot,
    survey,
};
use serde_json::json;
use state_api::{Error, Result, SnapshotKind};

use super::io_runtime;
use super::table::Table;
use crate::args::ListArgs;
use crate::date::time_text;
use crate::failure::{Failure, plain};
use crate::run::shown;
use crate::terminal::{self, bytes};

/// The checkpoints of one job, or the savepoints of one folder.
struct Job {
    folder: String,
    checkpoints: Vec<ListedCheckpoint>,
}

/// Lists the jobs of a folder and their checkpoints.
///
/// # Errors
/// When the folder is missing or can't be read.
pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let root = StoreRoot::open(&args.folder, args.stores.access(io.handle())?)?;
    check_folder(&root)?;
    let jobs = io.block_on(jobs_in(&root))?;
    if args.json {
        let all: Vec<_> = jobs.iter().flat_map(Job::as_json).collect();
        return terminal::print(&format!("{}\n", serde_json::Value::Array(all)));
    }
    if jobs.is_empty() {
        return terminal::print(&format!("no checkpoints in {}\n", shown(root.url())));
    }
    let parts: Vec<String> = jobs.iter().map(Job::as_text).collect();
    terminal::print(&parts.join("\n"))
}

/// A store lists a missing folder as empty; whoever asks for it here mistyped it.
fn check_folder(root: &StoreRoot) -> Result<()> {
    let Some(path) = root.url().strip_prefix("file://") else {
        return Ok(());
    };
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => {
            Err(Error::config("this is a file, not a folder of checkpoints").with("path", path))
        }
        Err(cause) => Err(Error::not_found("there is no such folder")
            .with("path", path)
            .caused_by(cause)),
    }
}

async fn jobs_in(root: &StoreRoot) -> Result<Vec<Job>> {
    let entries = root.list("").await?;
    let is_metadata = |entry: &StoreEntry| !entry.is_folder && entry.name == METADATA_NAME;
    if entries.iter().any(is_metadata) {
        return Err(Error::config(format!(
            "this is a checkpoint itself: see holdfast show {}",
            shown(root.url())
        )));
    }
    let found = survey(root).await?;
    for (folder, error) in &found.unread {
        terminal::say(&format!(
            "note: can't look into {}: {}",
            shown(folder),
            plain(error)
        ));
    }
    let job = |folder: CheckpointFolder| Job {
        folder: shown(folder.root.url()),
        checkpoints: folder.checkpoints,
    };
    Ok(found.folders.into_iter().map(job).collect())
}

/// Names what a checkpoint is.
fn kind(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Checkpoint | SnapshotKind::FullCheckpoint => "checkpoint",
        SnapshotKind::CanonicalSavepoint => "savepoint",
        SnapshotKind::NativeSavepoint => "native savepoint",
    }
}

impl Job {
    fn as_text(&self) -> String {
        let mut out = format!("{}\n", self.folder);
        let mut table = Table::new(
            &[
                "name",
                "kind",
                "job",
                "id",
                "state",
                "created",
                "attempt",
                "operators",
                "size",
                "new",
            ],
            &[3, 6, 7, 8, 9],
        );
        for listed in &self.checkpoints {
            let none = || "-".to_owned();
            match &listed.state {
                CheckpointState::Complete(found) => {
                    let metadata = &found.metadata;
                    table.row([
                        listed.name.clone(),
                        kind(metadata.kind).into(),
                        metadata.job.to_string(),
                        metadata.checkpoint.to_string(),
                        "complete".into(),
                        time_text(metadata.created_ms),
                        metadata.attempt.to_string(),
                        metadata.operators.len().to_string(),
                        bytes(metadata.total_bytes()),
                        bytes(metadata.new_bytes()),
                    ]);
                }
                other => table.row([
                    listed.name.clone(),
                    none(),
                    none(),
                    none(),
                    state(other).into(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ]),
            }
        }
        if table.is_empty() {
            out.push_str("  no checkpoint yet\n");
        } else {
            out.push_str(&table.render(2));
        }
        for listed in &self.checkpoints {
            if let CheckpointState::Damaged(error) = &listed.state {
                out.push_str(&format!("  {}: {}\n", listed.name, plain(error)));
            }
        }
        out
    }

    fn as_json(&self) -> Vec<serde_json::Value> {
        let one = |listed: &ListedCheckpoint| {
            let mut value = json!({
                "folder": self.folder,
                "checkpoint": listed.name,
                "path": format!("{}/{}", self.folder, listed.name),
                "state": state(&listed.state),
            });
            match &listed.state {
                CheckpointState::Complete(found) => {
                    let metadata = &found.metadata;
                    value["kind"] = json!(kind(metadata.kind));
                    value["id"] = json!(metadata.checkpoint.0);
                    value["job"] = json!(metadata.job.as_str());
                    value["attempt"] = json!(metadata.attempt.0);
                    value["created_ms"] = json!(metadata.created_ms);
                    value["operators"] = json!(metadata.operators.len());
                    value["total_bytes"] = json!(metadata.total_bytes());
                    value["new_bytes"] = json!(metadata.new_bytes());
                }
                CheckpointState::Damaged(error) => value["reason"] = json!(plain(error)),
                CheckpointState::Incomplete | CheckpointState::Abandoned => {}
            }
            value
        };
        self.checkpoints.iter().map(one).collect()
    }
}

fn state(state: &CheckpointState) -> &'static str {
    match state {
        CheckpointState::Complete(_) => "complete",
        CheckpointState::Incomplete => "incomplete",
        CheckpointState::Abandoned => "abandoned",
        CheckpointState::Damaged(_) => "damaged",
    }
}
