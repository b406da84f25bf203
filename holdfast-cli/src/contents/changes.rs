//! Commands that write a new checkpoint out of another one.
use checkpoint_storage::{CheckpointMetadata, StoreAccess, StoreRoot};
use checkpoint_tools::{
    CheckpointSource, Edit, EditReport, NewCheckpoint, RescaledOperator, Row, convert, rescale,
};
use serde_json::json;
use state_api::{Attempt, ErrorKind, MaxParallelism, Result};

use super::args::{ConvertArgs, EditArgs, RescaleArgs, TargetArgs};
use super::opened::{interruptible, judged, open};
use super::row_file::{RawRows, json_rows, length};
use super::steps::Steps;
use crate::failure::{Exit, Failure, plain};
use crate::inspect::{Table, io_runtime};
use crate::run::shown;
use crate::terminal::{self, bytes, counted, grouped};

/// Begins the new checkpoint that the command line names; `source` is how the one that is read is reached.
pub(super) async fn begin(
    args: &TargetArgs,
    attempt: Attempt,
    source: &StoreAccess,
) -> Result<NewCheckpoint> {
    let root = StoreRoot::open(&args.to, args.stores.access(source)?)?;
    NewCheckpoint::begin(root, attempt).await
}

/// Checks that the new checkpoint that the command line names can be begun, before anything long is done.
pub(super) async fn check(args: &TargetArgs, access: &StoreAccess) -> Result<()> {
    let root = StoreRoot::open(&args.to, args.stores.access(access)?)?;
    NewCheckpoint::check(&root).await
}

async fn begin_beside(
    args: &TargetArgs,
    source: &CheckpointSource,
    access: &StoreAccess,
) -> Result<(NewCheckpoint, String)> {
    let target = begin(args, source.metadata().attempt, access).await?;
    let path = shown(target.root().url());
    Ok((target, path))
}

/// Tells what was written.
pub(super) fn written(
    metadata: &CheckpointMetadata,
    path: &str,
    as_json: bool,
    mut more: serde_json::Value,
    lines: &str,
) -> std::result::Result<(), Failure> {
    if as_json {
        more["path"] = json!(path);
        more["checkpoint"] = json!(metadata.checkpoint.0);
        more["job"] = json!(metadata.job.as_str());
        more["total_bytes"] = json!(metadata.total_bytes());
        return terminal::print(&format!("{more}\n"));
    }
    terminal::print(&format!(
        "{lines}wrote {} of state, {}, to {path}\n",
        bytes(metadata.total_bytes()),
        counted(metadata.operators.len() as u64, "operator"),
    ))
}

/// Writes a checkpoint anew in the format that every backend reads.
///
/// # Errors
/// When there is no such checkpoint, it is damaged or in an unknown format, or the folder is in use.
pub(crate) fn run_convert(args: &ConvertArgs) -> std::result::Result<(), Failure> {
    let io = io_runtime()?;
    let progress = Steps::new();
    interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let source = open(&args.source, &access, &progress).await?;
        let (target, path) = begin_beside(&args.target, &source, &access).await?;
        let metadata = judged(&source, convert(&source, target).await).await?;
        progress.clear();
        written(&metadata, &path, args.target.json, json!({}), "")
    })
}

/// Writes a checkpoint anew with another number of key groups.
///
/// # Errors
/// As [`run_convert`], and when an operator can't be rescaled.
pub(crate) fn run_rescale(args: &RescaleArgs) -> std::result::Result<(), Failure> {
    let now = MaxParallelism::new(args.max_parallelism)?;
    let io = io_runtime()?;
    let progress = Steps::new();
    interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let source = open(&args.source, &access, &progress).await?;
        let (target, path) = begin_beside(&args.target, &source, &access).await?;
        let done = rescale(&source, target, now).await;
        let (metadata, report) = judged(&source, done).await?;
        progress.clear();
        let more = json!({ "operators": report.iter().map(rescaled_json).collect::<Vec<_>>() });
        let table = rescaled_table(&report);
        written(&metadata, &path, args.target.json, more, &table)
    })
}

fn rescaled_json(operator: &RescaledOperator) -> serde_json::Value {
    let states = operator.entries.iter();
    let states = states.map(|(name, entries)| json!({ "state": name, "entries": entries }));
    json!({
        "uid": operator.operator.as_str(),
        "before": operator.before.get(),
        "now": operator.now.get(),
        "states": states.collect::<Vec<_>>(),
    })
}

fn rescaled_table(report: &[RescaledOperator]) -> String {
    let mut table = Table::new(
        &["operator", "state", "entries", "key groups", "now"],
        &[2, 3, 4],
    );
    for operator in report {
        for (state, entries) in &operator.entries {
            table.row([
                operator.operator.to_string(),
                state.clone(),
                grouped(*entries),
                operator.before.to_string(),
                operator.now.to_string(),
            ]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render(0)
    }
}

/// Writes a checkpoint anew with changes.
///
/// # Errors
/// As [`run_convert`], and when a change can't be made.
pub(crate) fn run_edit(args: &EditArgs) -> std::result::Result<(), Failure> {
    let (changes, row) = changes(args)?;
    if changes.is_empty() && row.is_none() && args.rows.is_none() {
        return Err(Failure::usage(
            "nothing is to be changed: name --drop-state, --rename, --state or --rows (see --help)",
        ));
    }
    let io = io_runtime()?;
    let progress = Steps::new();
    interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let source = open(&args.source, &access, &progress).await?;
        check(&args.target, &access).await?;
        let mut editing = changes.begin(&source)?;
        if let Some(row) = &row {
            editing.row(row)?;
        }
        // Every row is read before the first file is made: a wrong one leaves nothing behind.
        if let Some(path) = &args.rows {
            progress.begin("read rows", length(path));
            let take = &mut |row| editing.row(&row);
            json_rows(path, RawRows::Refused, &progress, take)?;
        }
        let rows = editing.rows();
        let (target, path) = begin_beside(&args.target, &source, &access).await?;
        let (metadata, report) = match editing.finish(target).await {
            Err(error) if args.delete && error.kind() == ErrorKind::NotFound => {
                return Err(Failure::new(Exit::Nothing, plain(&error)));
            }
            done => done?,
        };
        progress.clear();
        let more = json!({
            "dropped": report.dropped.iter()
                .map(|it| json!({
                    "operator": it.operator.as_str(), "state": it.state, "entries": it.entries,
                }))
                .collect::<Vec<_>>(),
            "renamed": report.renamed.iter()
                .map(|(old, new)| json!({ "old": old, "new": new }))
                .collect::<Vec<_>>(),
            "rows": rows,
            "set": report.set,
            "removed": report.removed,
        });
        let lines = edited(&report, rows);
        written(&metadata, &path, args.target.json, more, &lines)
    })
}

fn edited(report: &EditReport, rows: u64) -> String {
    let mut out = String::new();
    for dropped in &report.dropped {
        let entries = match dropped.entries {
            Some(1) => ", 1 entry".to_owned(),
            Some(entries) => format!(", {} entries", grouped(entries)),
            None => String::new(),
        };
        let (operator, state) = (&dropped.operator, &dropped.state);
        out.push_str(&format!("dropped state {operator}/{state}{entries}\n"));
    }
    for (old, new) in &report.renamed {
        out.push_str(&format!("renamed operator {old} to {new}\n"));
    }
    if rows > 0 {
        out.push_str(&format!(
            "read {}: set {}, removed or replaced {}\n",
            counted(rows, "row"),
            grouped(report.set),
            grouped(report.removed)
        ));
    }
    out
}

/// Reads the changes that the command line names, without those of a file.
fn changes(args: &EditArgs) -> std::result::Result<(Edit, Option<Row>), Failure> {
    let mut changes = Edit::new();
    for state in &args.drop_state {
        changes = changes.drop_state(state);
    }
    for rename in &args.rename {
        let (old, new) = rename
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--rename reads OLD=NEW, not {rename:?}")))?;
        changes = changes.rename(old, new);
    }
    let Some(state) = &args.state else {
        return Ok((changes, None));
    };
    if args.value.is_none() && !args.delete && args.time_ms.is_none() {
        return Err(Failure::usage(
            "what becomes of the key: --value JSON or --delete?",
        ));
    }
    if args.delete && args.rows.is_none() {
        changes = changes.must_remove();
    }
    let (operator, state) = match state.rsplit_once('/') {
        Some((operator, state)) => (Some(operator), state),
        None => (None, state.as_str()),
    };
    let row = Row::from_texts(&[
        ("operator", operator),
        ("state", Some(state)),
        ("key", args.key.as_deref()),
        ("namespace", args.namespace.as_deref()),
        ("map_key", args.map_key.as_deref()),
        ("time_ms", args.time_ms.map(|ms| ms.to_string()).as_deref()),
        ("value", args.value.as_deref()),
        ("delete", args.delete.then_some("true")),
    ])?;
    Ok((changes, Some(row)))
}
