use checkpoint_storage::{
    CopyOptions, CopyReport, CopySealing, StoreRoot, StoredCheckpoint, copy_checkpoint,
};
use serde_json::json;
use state_api::ErrorKind;

use super::args::CopyArgs;
use super::{open_roots, until_interrupted};
use crate::failure::Failure;
use crate::inspect::io_runtime;
use crate::progress::Progress;
use crate::run::{find, shown};
use crate::terminal::{self, bytes, counted};

/// Copies a checkpoint with all that it needs.
///
/// # Errors
/// When it is damaged, the folder holds something else, or a store fails.
pub(crate) fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let access = args.stores.access(io.handle())?;
    let roots = open_roots(&args.root, &access)?;
    let to = args.target_stores.access(&access)?;
    let target = StoreRoot::open(args.target.trim_end_matches('/'), to)?;
    let (found, report) = until_interrupted(
        io,
        "interrupted: the copy is not complete, run it again to go on where it stopped",
        async {
            let found = find(&args.checkpoint, &access).await?;
            let progress = Progress::in_bytes("copying");
            let options = CopyOptions {
                concurrency: usize::from(args.concurrency),
                roots: &roots,
                sealing: match args.unsealed {
                    true => CopySealing::Unsealed,
                    false => CopySealing::ByTarget,
                },
                watcher: &|work| progress.bytes_of(work),
            };
            let copied = copy_checkpoint(&found, &target, options).await;
            match copied {
                Ok(report) => Ok((found, report)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
                        && found.was_deleted().await? =>
                {
                    Err(Failure::failed(format!(
                        "checkpoint {} was deleted while it was copied, as its job does when a newer one completes: run it again, or copy a savepoint",
                        found.metadata.checkpoint
                    )))
                }
                Err(error) => Err(Failure::of_roots(error)),
            }
        },
    )?;
    if args.json {
        return terminal::print(&format!("{}\n", as_json(&found, &report)));
    }
    terminal::say(&in_words(&found, &report));
    terminal::print(&format!("{}\n", shown(&report.folder)))
}

fn in_words(found: &StoredCheckpoint, report: &CopyReport) -> String {
    let what = format!(
        "checkpoint {} of job {} ({}, {})",
        found.metadata.checkpoint,
        found.metadata.job,
        counted(report.objects as u64, "object"),
        bytes(report.bytes + found.metadata_len)
    );
    match (report.already_there, report.reused) {
        (true, _) => format!("{what} was there already"),
        (false, 0) => format!("{what} copied"),
        (false, reused) => format!(
            "{what} copied; {} were there already",
            counted(reused as u64, "object")
        ),
    }
}

fn as_json(found: &StoredCheckpoint, report: &CopyReport) -> serde_json::Value {
    json!({
        "path": shown(&report.folder),
        "from": shown(found.folder.url()),
        "job": found.metadata.job.as_str(),
        "id": found.metadata.checkpoint.0,
        "objects": report.objects,
        "bytes": report.bytes,
        "reused": report.reused,
        "already_there": report.already_there,
    })
}
