use checkpoint_storage::{
    InputEnd, OperatorMetadata, StoreRoot, StoredCheckpoint, VerifyReport, verify,
};
use state_api::{SnapshotKind, StateHandle};

use super::broadcast::BroadcastCounts;
use super::objects::{
    bytes_of, entries_text, hash_text, kind_text, object_text, object_totals, pieces, states,
    types_text,
};
use super::table::Table;
use super::{broadcast, io_runtime, json};
use crate::args::ShowArgs;
use crate::date::time_text;
use crate::failure::{Exit, Failure};
use crate::run::{find, shown};
use crate::terminal::{self, bytes, counted, grouped};

/// Shows what is in a checkpoint.
///
/// # Errors
/// When there is none, or it is damaged: then the error names object and operator.
pub(crate) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let access = args.stores.access(io.handle())?;
    let found = io.block_on(find(&args.checkpoint, access.clone()))?;
    let report = match args.verify {
        true => {
            let roots = args.allow_root.iter();
            let roots = roots.map(|url| StoreRoot::open(url, access.clone()));
            let roots = roots.collect::<Result<Vec<_>, _>>()?;
            Some(io.block_on(verify(&found, roots))?)
        }
        false => None,
    };
    let counts = io.block_on(broadcast::counts(&found));
    let text = if args.json {
        format!("{}\n", json::checkpoint(&found, report.as_ref(), &counts))
    } else {
        in_words(&found, report.as_ref(), &counts, args.objects)
    };
    terminal::print(&text)?;
    match report {
        Some(report) => report
            .into_result()
            .map_err(|e| Failure::from(e.with("checkpoint", found.folder.url()))),
        None => Ok(()),
    }
    .map_err(|failure| Failure::new(Exit::Damaged, failure.line()))
}

fn in_words(
    found: &StoredCheckpoint,
    report: Option<&VerifyReport>,
    counts: &BroadcastCounts,
    with_objects: bool,
) -> String {
    let metadata = &found.metadata;
    let mut out = String::new();
    let mut fact = |name: &str, value: String| out.push_str(&format!("{name:<11} {value}\n"));
    let (kind, format) = match metadata.kind {
        SnapshotKind::Checkpoint | SnapshotKind::FullCheckpoint => ("checkpoint", ""),
        SnapshotKind::CanonicalSavepoint => ("savepoint", ", read by every backend"),
        SnapshotKind::NativeSavepoint => ("savepoint", ", in the backend's own format"),
    };
    fact(
        kind,
        format!(
            "{} of job {}, attempt {}{format}",
            metadata.checkpoint, metadata.job, metadata.attempt
        ),
    );
    fact("path", shown(found.folder.url()));
    fact(
        "created",
        format!("{}, by {}", time_text(metadata.created_ms), metadata.writer),
    );
    let (objects, object_bytes) = object_totals(metadata);
    let reused = metadata.total_bytes().saturating_sub(metadata.new_bytes());
    fact(
        "state",
        format!(
            "{}: {} new, {} reused; {} in {}, the rest within the metadata of {}",
            bytes(metadata.total_bytes()),
            bytes(metadata.new_bytes()),
            bytes(reused),
            bytes(object_bytes),
            counted(objects, "object"),
            bytes(found.metadata_len)
        ),
    );
    for (name, value) in &metadata.properties {
        fact("property", format!("{name} = {value}"));
    }
    for hook in &metadata.hooks {
        fact(
            "hook",
            format!(
                "{}, version {}, {}",
                hook.name,
                hook.version,
                bytes(hook.bytes.len() as u64)
            ),
        );
    }
    for root in &metadata.roots {
        fact("root", root.to_string());
    }
    if let Some(report) = report {
        let faults = report.faults.len() as u64;
        let read = format!(
            "{} of {} read",
            counted(report.objects as u64, "object"),
            bytes(report.bytes)
        );
        fact(
            "verified",
            match faults {
                0 => format!("{read}, all of them whole"),
                n => format!("{read}; {}", counted(n, "fault")),
            },
        );
    }
    for operator in &metadata.operators {
        out.push('\n');
        out.push_str(&operator_in_words(operator, counts, with_objects));
    }
    if let Some(report) = report.filter(|report| !report.faults.is_empty()) {
        out.push_str("\nfaults\n");
        for fault in &report.faults {
            let subtask = fault
                .subtask
                .map(|index| format!(", subtask {index}"))
                .unwrap_or_default();
            out.push_str(&format!(
                "  {}: {} (operator {}{subtask})\n",
                object_text(&fault.object),
                fault.reason,
                fault.operator
            ));
        }
    }
    out
}

fn operator_in_words(
    operator: &OperatorMetadata,
    counts: &BroadcastCounts,
    with_objects: bool,
) -> String {
    let mut out = String::new();
    let (total, new) = bytes_of(operator);
    let finished = operator
        .subtasks
        .iter()
        .filter(|subtask| subtask.told_of_end() == InputEnd::Finished)
        .count() as u64;
    let ended = match finished {
        0 => String::new(),
        n => format!(", {} finished", grouped(n)),
    };
    out.push_str(&format!(
        "operator {}{}\n  {} of {}{ended}, hash {}, {} ({} new)\n",
        operator.uid,
        operator
            .name
            .as_ref()
            .map(|name| format!("  ({name})"))
            .unwrap_or_default(),
        counted(u64::from(operator.parallelism), "subtask"),
        counted(u64::from(operator.max_parallelism.get()), "key group"),
        hash_text(operator.hash),
        bytes(total),
        bytes(new),
    ));
    let mut table = Table::new(
        &[
            "state",
            "kind",
            "entries",
            "ttl",
            "codec",
            "fingerprint",
            "types",
        ],
        &[2],
    );
    for state in states(operator, counts) {
        let meta = state.meta;
        table.row([
            meta.name.to_string(),
            kind_text(&state),
            entries_text(state.entries),
            meta.ttl_ms.map_or_else(
                || "-".into(),
                |ms| format!("{:?}", std::time::Duration::from_millis(ms.unsigned_abs())),
            ),
            meta.value.codec.as_str().to_owned(),
            format!("{:016x}", meta.value.schema.fingerprint()),
            types_text(meta),
        ]);
    }
    if !table.is_empty() {
        out.push_str(&table.render(2));
    }
    let mut table = Table::new(
        &[
            "subtask",
            "part",
            "key groups",
            "size",
            "format",
            "where",
            "digest",
        ],
        &[3],
    );
    for piece in pieces(operator) {
        let (place, digest) = match piece.bytes {
            StateHandle::Inline(_) => ("in the metadata".to_owned(), "-".to_owned()),
            StateHandle::Object(object) => (object_text(object), object.digest.to_string()),
        };
        table.row([
            piece
                .subtask
                .map_or_else(|| "coordinator".into(), |index| index.to_string()),
            piece.what.into(),
            piece
                .groups
                .map_or_else(|| "-".into(), |(first, last)| format!("{first}-{last}")),
            bytes(piece.bytes.len()),
            piece.format.unwrap_or("-").into(),
            place,
            if with_objects {
                digest
            } else {
                digest.chars().take(12).collect()
            },
        ]);
    }
    if !table.is_empty() {
        out.push_str(&table.render(2));
    }
    out
}
