use checkpoint_storage::{
    Fate, GcOptions, GcReport, LeftBeside, Liveness, Place, StoreAccess, StoreRoot, Unreferenced,
    Why, collect_garbage, left_beside, survey,
};
use serde_json::{Value, json};
use state_api::{Error, ErrorKind};

use super::args::GcArgs;
use super::until_interrupted;
use crate::failure::{Exit, Failure, plain};
use crate::inspect::{Table, io_runtime};
use crate::progress::Progress;
use crate::run::shown;
use crate::terminal::{self, bytes, counted};

/// Deletes objects that nothing refers to, or lists them.
///
/// # Errors
/// When a job runs, a checkpoint is damaged, the store fails, or there is no job.
pub(crate) fn gc(args: &GcArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let access = args.stores.access(io.handle())?;
    let Collected {
        reports,
        beside,
        failed,
    } = until_interrupted(
        io,
        "interrupted: what is deleted is deleted, run it again for the rest",
        collect(args, &access),
    )?;
    let text = if args.json {
        format!("{}\n", as_json(&reports, &beside, &failed))
    } else {
        let mut parts: Vec<String> = reports
            .iter()
            .map(|report| as_text(report, args.dry_run))
            .collect();
        parts.extend((!beside.is_empty()).then(|| beside_in_words(&beside)));
        parts.join("\n")
    };
    terminal::print(&text)?;
    for (folder, error) in failed.iter().skip(1) {
        terminal::say(&format!("error: {}: {}", shown(folder), plain(error)));
    }
    if let Some((folder, error)) = failed.into_iter().next() {
        let failure = Failure::from(error);
        let line = format!("{}: {}", shown(&folder), failure.line());
        return Err(Failure::new(failure.exit(), line));
    }
    outcome(&reports)
}

/// What came of the jobs below a folder.
struct Collected {
    reports: Vec<GcReport>,
    beside: Vec<LeftBeside>,
    /// Folders of jobs that could not be cleaned up.
    failed: Vec<(String, Error)>,
}

async fn collect(args: &GcArgs, access: &StoreAccess) -> Result<Collected, Failure> {
    let root = match Place::find(&args.path, access).await? {
        Place::Folder(root) => root,
        Place::Checkpoint(found) => {
            return Err(Failure::usage(format!(
                "this is a checkpoint itself: name the folder of a job [path={}]",
                shown(found.folder.url())
            )));
        }
    };
    let found = survey(&root).await?;
    let jobs = found.folders.into_iter().filter(|folder| folder.is_job);
    let jobs: Vec<StoreRoot> = jobs.map(|folder| folder.root).collect();
    let beside = match jobs.iter().any(|job| job.url() == root.url()) {
        true => Vec::new(),
        false => left_beside(&root).await?,
    };
    if jobs.is_empty() && beside.is_empty() && found.unread.is_empty() {
        let error = Error::not_found("there is no job's folder here, and so nothing to clean up");
        return Err(error.with("path", shown(root.url())).into());
    }
    let progress = Progress::in_pieces("deleting");
    let opener = |url: &str| StoreRoot::open(url, access);
    let options = GcOptions {
        dry_run: args.dry_run,
        take_over: args.take_over,
        others: &jobs,
        opener: &opener,
        concurrency: usize::from(args.concurrency),
        watcher: &|work| progress.objects_of(work),
        ..GcOptions::default()
    };
    let mut collected = Collected {
        reports: Vec::new(),
        beside,
        failed: found.unread,
    };
    for job in &jobs {
        // What goes wrong with one job is no reason to leave the others, nor to keep back what was done.
        match collect_garbage(job, &options).await {
            Ok(report) => collected.reports.push(report),
            Err(error) => collected.failed.push((job.url().to_owned(), error)),
        }
    }
    Ok(collected)
}

/// Says how it went with an exit code.
fn outcome(reports: &[GcReport]) -> Result<(), Failure> {
    let stopped = || reports.iter().flat_map(|report| &report.stopped);
    let of = |kind: ErrorKind| stopped().find(|error| error.kind() == kind);
    // What only a person can mend comes before what passes.
    if let Some(damage) = of(ErrorKind::Corrupt) {
        return Err(Failure::new(Exit::Damaged, plain(damage)));
    }
    if let Some(fenced) = of(ErrorKind::Fenced) {
        return Err(Failure::new(Exit::Fenced, plain(fenced)));
    }
    // Of the rest, `Unsupported` says that the job runs, or may run.
    if let Some(other) = stopped().find(|error| error.kind() != ErrorKind::Unsupported) {
        return Err(Failure::new(Exit::of(other.kind()), plain(other)));
    }
    let fates = reports.iter().flat_map(|report| &report.unreferenced);
    let failed = fates
        .filter(|found| matches!(found.fate, Fate::Failed(_)))
        .count() as u64;
    if failed > 0 {
        return Err(Failure::failed(format!(
            "{} could not be deleted: run it again",
            counted(failed, "object")
        )));
    }
    for report in reports {
        if let Some(runs) = report.stopped.first() {
            let hint = match report.liveness {
                Liveness::Unknown(_) => "; if you know that it does not, --take-over deletes",
                _ => "",
            };
            return Err(Failure::new(
                Exit::Running,
                format!("{}{hint}", runs.message()),
            ));
        }
    }
    Ok(())
}

fn job_in_words(report: &GcReport) -> String {
    let state = match report.liveness {
        Liveness::NeverRan => "the job never ran".to_owned(),
        Liveness::Ended(last) => format!("attempt {last} has ended"),
        Liveness::Gone(last) => format!("attempt {last} is gone"),
        Liveness::Runs(last) => format!("attempt {last} runs"),
        Liveness::Unknown(last) => format!("attempt {last} may run"),
    };
    let taken = match report.attempt {
        Some(attempt) => format!(", attempt {attempt} was taken to clean up"),
        None => String::new(),
    };
    format!("{}: {state}{taken}\n", shown(&report.folder))
}

fn as_text(report: &GcReport, dry_run: bool) -> String {
    let dry_run = dry_run && report.stopped.is_empty();
    let mut out = job_in_words(report);
    let names: Vec<String> = report
        .evidence
        .checkpoints
        .iter()
        .map(|found| {
            let folder = found.folder.strip_prefix(&report.folder);
            let name = folder.map_or(found.folder.as_str(), |rest| rest.trim_start_matches('/'));
            format!(
                "{} ({})",
                shown(name),
                counted(found.objects as u64, "object")
            )
        })
        .collect();
    out.push_str(&match names.is_empty() {
        true => "  no complete checkpoint refers to anything here\n".to_owned(),
        false => format!("  asked: {}\n", names.join(", ")),
    });
    for claim in &report.evidence.claims {
        out.push_str(&format!(
            "  asked: the claim of job {} in {} on {}\n",
            claim.job,
            shown(&claim.claimer),
            shown(&claim.folder)
        ));
    }
    let mut table = Table::new(&["object", "size", "why nobody needs it", ""], &[1]);
    for found in &report.unreferenced {
        table.row([
            found.path.clone(),
            found.len.map_or_else(|| "-".into(), bytes),
            why(found),
            fate(found, dry_run),
        ]);
    }
    if !table.is_empty() {
        out.push_str(&table.render(2));
    }
    let sum = |of: fn(&Fate) -> bool| {
        let those = report.unreferenced.iter().filter(|found| of(&found.fate));
        let (mut count, mut size) = (0, 0);
        those.for_each(|found| (count, size) = (count + 1, size + found.len.unwrap_or(0)));
        (count, size)
    };
    let listed = match dry_run {
        true => "would be deleted",
        false => "would be deleted, and were not",
    };
    for (of, what) in [
        (
            (|fate| matches!(fate, Fate::Deleted)) as fn(&Fate) -> bool,
            "deleted",
        ),
        (|fate| matches!(fate, Fate::Listed), listed),
        (
            |fate| matches!(fate, Fate::Failed(_)),
            "could not be deleted",
        ),
        (
            |fate| matches!(fate, Fate::MayBePending(_)),
            "may belong to a checkpoint that is being taken",
        ),
        (
            |fate| matches!(fate, Fate::LeftToClaimer),
            "left to the job that claimed the checkpoint",
        ),
        (
            |fate| matches!(fate, Fate::LeftToTask),
            "left to the tasks that made them",
        ),
    ] {
        let (count, size) = sum(of);
        if count > 0 {
            out.push_str(&format!(
                "  {}, {}: {what}\n",
                counted(count, "object"),
                bytes(size)
            ));
        }
    }
    if report.unreferenced.is_empty() {
        out.push_str("  nothing to delete\n");
    }
    out.push_str(&format!(
        "  {} referred to\n",
        counted(report.referenced as u64, "object")
    ));
    if report.unknown > 0 {
        out.push_str(&format!(
            "  {} in folders of checkpoints that can't be read: nobody knows\n",
            counted(report.unknown as u64, "object")
        ));
    }
    if !report.foreign.is_empty() {
        out.push_str(&format!(
            "  not ours, left alone: {}\n",
            report.foreign.join(", ")
        ));
    }
    if let Some(error) = &report.uploads_unseen {
        out.push_str(&format!(
            "  not known whether uploads in parts were left: {}\n",
            plain(error)
        ));
    }
    for error in &report.stopped {
        out.push_str(&format!("  {}\n", plain(error)));
    }
    out
}

/// Says why nobody needs an object.
fn why(found: &Unreferenced) -> String {
    match found.why {
        Why::NeverCompleted(id) => format!("checkpoint {id} was never completed"),
        Why::NotOf(id) => format!("checkpoint {id} does not refer to it, nor does another"),
        Why::OfNone => "no checkpoint refers to it".into(),
        Why::Temporary => "a write that was cut off".into(),
        Why::NeverUploaded => "an upload in parts that never ended".into(),
        Why::Superseded => "a later attempt has a higher number".into(),
        Why::LeftByClaimer(id) => format!("checkpoint {id} was claimed and deleted in part"),
    }
}

fn fate(found: &Unreferenced, dry_run: bool) -> String {
    match &found.fate {
        Fate::Listed if dry_run => String::new(),
        Fate::Listed => "kept".into(),
        Fate::Deleted => "deleted".into(),
        Fate::Failed(error) => format!("failed: {}", plain(error)),
        Fate::MayBePending(attempt) => format!("attempt {attempt} may need it yet"),
        Fate::LeftToClaimer => "left to the claimer".into(),
        Fate::LeftToTask => "left to its task".into(),
    }
}

fn beside_in_words(beside: &[LeftBeside]) -> String {
    let mut out = String::from("beside the jobs, for you to judge\n");
    for left in beside {
        let objects = counted(left.objects.len() as u64, "object");
        out.push_str(&format!(
            "  {} ({objects}): {}\n",
            shown(&left.folder),
            left.reason
        ));
    }
    out
}

fn as_json(reports: &[GcReport], beside: &[LeftBeside], failed: &[(String, Error)]) -> Value {
    let word = |found: &Unreferenced| match found.why {
        Why::NeverCompleted(_) => "never completed",
        Why::NotOf(_) => "not of its checkpoint",
        Why::OfNone => "of no checkpoint",
        Why::Temporary => "temporary",
        Why::NeverUploaded => "unfinished upload",
        Why::Superseded => "superseded",
        Why::LeftByClaimer(_) => "left by claimer",
    };
    let fate = |found: &Unreferenced| match found.fate {
        Fate::Listed => "listed",
        Fate::Deleted => "deleted",
        Fate::Failed(_) => "failed",
        Fate::MayBePending(_) => "may be pending",
        Fate::LeftToClaimer => "left to claimer",
        Fate::LeftToTask => "left to task",
    };
    let liveness = |report: &GcReport| match report.liveness {
        Liveness::NeverRan => "never ran",
        Liveness::Ended(_) => "ended",
        Liveness::Gone(_) => "gone",
        Liveness::Runs(_) => "runs",
        Liveness::Unknown(_) => "unknown",
    };
    json!({
        "failed": failed.iter().map(|(folder, error)| json!({
            "path": shown(folder),
            "reason": plain(error),
        })).collect::<Vec<_>>(),
        "jobs": reports.iter().map(|report| json!({
            "path": shown(&report.folder),
            "job": report.job.as_ref().map(ToString::to_string),
            "state": liveness(report),
            "last_attempt": report.liveness.attempt().map(|attempt| attempt.0),
            "attempt": report.attempt.map(|attempt| attempt.0),
            "stopped": report.stopped.iter().map(plain).collect::<Vec<_>>(),
            "checkpoints": report.evidence.checkpoints.iter().map(|found| json!({
                "path": shown(&found.folder),
                "id": found.checkpoint.0,
                "attempt": found.attempt.0,
                "objects": found.objects,
            })).collect::<Vec<_>>(),
            "claims": report.evidence.claims.iter().map(|claim| json!({
                "path": shown(&claim.folder),
                "job": claim.job.as_str(),
                "claimer": shown(&claim.claimer),
            })).collect::<Vec<_>>(),
            "referenced": report.referenced,
            "unknown": report.unknown,
            "marks": report.marks,
            "unreferenced": report.unreferenced.iter().map(|found| json!({
                "object": found.path,
                "upload": found.upload,
                "bytes": found.len,
                "why": word(found),
                "fate": fate(found),
                "reason": match &found.fate {
                    Fate::Failed(error) => Some(plain(error)),
                    _ => None,
                },
            })).collect::<Vec<_>>(),
            "foreign": report.foreign,
            "uploads_unseen": report.uploads_unseen.as_ref().map(plain),
        })).collect::<Vec<_>>(),
        "beside": beside.iter().map(|left| json!({
            "path": shown(&left.folder),
            "objects": left.objects,
            "reason": left.reason,
        })).collect::<Vec<_>>(),
    })
}
