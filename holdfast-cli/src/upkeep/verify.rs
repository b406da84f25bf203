use checkpoint_storage::{
    Affected, CheckpointState, Damage, DamagedObject, METADATA_NAME, Place, StoreAccess, StoreRoot,
    StoredCheckpoint, Verification, VerifiedCheckpoint, VerifyOptions, survey, verify_checkpoints,
};
use serde_json::{Value, json};
use state_api::{Error, ErrorKind, JobId};

use super::args::VerifyArgs;
use super::{open_roots, until_interrupted};
use crate::failure::{Exit, Failure, plain};
use crate::inspect::{Table, io_runtime};
use crate::progress::Progress;
use crate::run::shown;
use crate::terminal::{self, bytes, counted};

/// A folder whose checkpoint has no metadata that can be read.
struct Unread {
    path: String,
    state: &'static str,
    reason: Option<String>,
    /// URL of the folder that it lies in.
    above: String,
}

/// What is to be verified.
#[derive(Default)]
struct Subject {
    checkpoints: Vec<StoredCheckpoint>,
    unread: Vec<Unread>,
    /// Folders that could not be looked into, with the reason: nothing is known of what lies there.
    unseen: Vec<(String, Error)>,
    /// Folders that belong to what is verified, so that what lies there may be read.
    roots: Vec<StoreRoot>,
    /// Checkpoints that may be whole where the one to be verified is not; `None` if nobody looked for any.
    others: Option<Vec<StoredCheckpoint>>,
}

/// What there is in the place of something damaged.
struct Alternative {
    /// The job of both, if it is known.
    job: Option<JobId>,
    /// The newest whole checkpoint.
    folder: Option<String>,
}

/// Reads what checkpoints need, and says what is damaged.
///
/// # Errors
/// When something is damaged, could not be read, or there is nothing to verify.
pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let access = args.stores.access(io.handle())?;
    let named = open_roots(&args.root, &access)?;
    let (subject, report, alternatives) =
        until_interrupted(io, "interrupted: nothing was changed", async {
            let mut subject = subject(&args.path, &access).await?;
            subject.roots.extend(named);
            let (report, alternatives) = check(&subject, usize::from(args.concurrency)).await;
            Ok((subject, report, alternatives))
        })?;
    let text = if args.json {
        format!("{}\n", as_json(&subject, &report, &alternatives))
    } else {
        as_text(&subject, &report, &alternatives)
    };
    terminal::print(&text)?;
    outcome(&subject, &report).map_err(|failure| {
        let line = format!("{} [path={}]", failure.line(), shown(&args.path));
        Failure::new(failure.exit(), line)
    })
}

/// Says how it went with an exit code.
fn outcome(subject: &Subject, report: &Verification) -> Result<(), Failure> {
    let certain = report
        .damaged
        .iter()
        .filter(|damaged| damaged.damage.is_certain());
    let objects = certain.count() as u64;
    let folders = subject
        .unread
        .iter()
        .filter(|unread| unread.reason.is_some());
    let folders = folders.count() as u64;
    let unknown = report.damaged.len() as u64 - objects;
    if (objects, folders, unknown) == (0, 0, 0) {
        return outcome_of_whole(subject, report);
    }
    match (objects, folders, unknown) {
        (0, 0, unknown) => {
            let line = format!("{} could not be checked", counted(unknown, "object"));
            let mut damaged = report.damaged.iter();
            Err(match damaged.find(|it| it.damage == Damage::NotNamed) {
                Some(unnamed) => Failure::usage(format!(
                    "{line}, since nobody named their folder: try --allow-root {}",
                    shown(&unnamed.root)
                )),
                None => Failure::failed(line),
            })
        }
        (0, folders, _) => Err(Failure::new(
            Exit::Damaged,
            format!(
                "the metadata of {} can't be read",
                counted(folders, "checkpoint")
            ),
        )),
        (objects, folders, _) => {
            let lost = report
                .checkpoints
                .iter()
                .filter(|found| of_checkpoint(found, report).0 > 0);
            let lost = lost.count() as u64 + folders;
            Err(Failure::new(
                Exit::Damaged,
                format!(
                    "{} damaged or missing, {} affected",
                    counted(objects, "object"),
                    counted(lost, "checkpoint")
                ),
            ))
        }
    }
}

/// Says how it went where all that was read is whole.
fn outcome_of_whole(subject: &Subject, report: &Verification) -> Result<(), Failure> {
    if let Some((folder, error)) = subject.unseen.first() {
        return Err(Failure::failed(format!(
            "{} could not be looked into, the first is {}: {}",
            counted(subject.unseen.len() as u64, "folder"),
            shown(folder),
            plain(error)
        )));
    }
    let mut found = report.checkpoints.iter();
    match !report.checkpoints.is_empty() && found.all(|found| found.deleted) {
        true => Err(Failure::failed(
            "what was to be verified was deleted meanwhile, as a job does when a newer checkpoint completes: run it again",
        )),
        false => Ok(()),
    }
}

/// Finds the checkpoints under a path.
async fn subject(path: &str, access: &StoreAccess) -> Result<Subject, Failure> {
    let mut subject = Subject::default();
    let root = match Place::find(path, access).await {
        Ok(Place::Checkpoint(found)) => {
            // What shares nothing with others has no siblings to fall back on.
            if found.own.url() != found.folder.url() {
                let siblings = complete_in(&found.own).await?;
                let other = |other: &StoredCheckpoint| other.folder.url() != found.folder.url();
                subject.others = Some(siblings.into_iter().filter(other).collect());
            }
            subject.checkpoints.push(*found);
            return Ok(subject);
        }
        Ok(Place::Folder(root)) => root,
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            subject.unread.push(Unread {
                path: path.to_owned(),
                state: "damaged",
                reason: Some(plain(&error)),
                above: above(path).to_owned(),
            });
            if let Ok(Place::Folder(above)) = Place::find(above(path), access).await {
                subject.others = Some(complete_in(&above).await?);
            }
            return Ok(subject);
        }
        Err(error) => return Err(error.into()),
    };
    let found = survey(&root).await?;
    // All that there are come with it.
    subject.others = Some(Vec::new());
    subject.unseen = found.unread;
    for folder in found.folders {
        let above = folder.root.url().to_owned();
        subject.roots.push(folder.root);
        for listed in folder.checkpoints {
            let unread = |state, reason| Unread {
                path: shown(&format!("{above}/{}", listed.name)),
                state,
                reason,
                above: above.clone(),
            };
            match listed.state {
                CheckpointState::Complete(found) => subject.checkpoints.push(*found),
                CheckpointState::Incomplete => subject.unread.push(unread("incomplete", None)),
                CheckpointState::Abandoned => subject.unread.push(unread("abandoned", None)),
                CheckpointState::Damaged(error) => {
                    subject.unread.push(unread("damaged", Some(plain(&error))))
                }
            }
        }
    }
    if subject.checkpoints.is_empty() && subject.unread.is_empty() && subject.unseen.is_empty() {
        let error = Error::not_found("there are no checkpoints here, and so nothing to verify");
        return Err(error.with("path", shown(root.url())).into());
    }
    Ok(subject)
}

/// Returns the path above that of a checkpoint or its metadata.
fn above(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(METADATA_NAME).unwrap_or(path);
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((above, _)) => above,
        None => ".",
    }
}

/// Returns the checkpoints of a folder that are complete, the newest first.
async fn complete_in(root: &StoreRoot) -> Result<Vec<StoredCheckpoint>, Failure> {
    let found = survey(root).await?;
    let listed = found
        .folders
        .into_iter()
        .flat_map(|folder| folder.checkpoints);
    let complete = listed.filter_map(|listed| match listed.state {
        CheckpointState::Complete(found) => Some(*found),
        _ => None,
    });
    Ok(complete.collect())
}

/// Verifies the checkpoints, and finds for each job of one that is damaged the newest whole one.
async fn check(subject: &Subject, concurrency: usize) -> (Verification, Vec<Alternative>) {
    let progress = Progress::in_bytes("verifying");
    let options = VerifyOptions {
        concurrency,
        roots: &subject.roots,
        watcher: &|work| progress.bytes_of(work),
    };
    let all: Vec<_> = subject.checkpoints.iter().collect();
    let report = verify_checkpoints(&all, options).await;
    let mut alternatives: Vec<Alternative> = Vec::new();
    for job in damaged_jobs(subject, &report) {
        if alternatives.iter().any(|known| known.job == job) {
            continue;
        }
        let whole = job.as_ref().and_then(|job| report.newest_whole(job));
        let mut folder = whole.map(|whole| whole.folder.clone());
        // Of a single checkpoint that is damaged: the others of its job, from the newest on.
        for other in subject.others.iter().flatten() {
            let is_of_job = job.as_ref().is_none_or(|job| *job == other.metadata.job);
            if folder.is_none()
                && is_of_job
                && verify_checkpoints(&[other], options).await.is_whole()
            {
                folder = Some(other.folder.url().to_owned());
            }
        }
        alternatives.push(Alternative { job, folder });
    }
    (report, alternatives)
}

/// Returns the job of each checkpoint that is damaged; `None` where it is not known.
fn damaged_jobs(subject: &Subject, report: &Verification) -> Vec<Option<JobId>> {
    let is_damaged = |places: &[usize]| {
        let mut damaged = places.iter().map(|&at| &report.damaged[at]);
        damaged.any(|damaged| damaged.damage.is_certain())
    };
    let damaged = report.checkpoints.iter().filter(|c| is_damaged(&c.damaged));
    let damaged = damaged.map(|c| Some(c.job.clone()));
    let unread = subject.unread.iter().filter(|it| it.reason.is_some());
    let of_folder = |unread: &Unread| {
        // Whose metadata can't be read is of the job that the others of its folder are of.
        let mut read = subject.checkpoints.iter();
        let beside = read.find(|found| found.own.url() == unread.above);
        beside.map(|found| found.metadata.job.clone())
    };
    damaged.chain(unread.map(of_folder)).collect()
}

fn as_text(subject: &Subject, report: &Verification, alternatives: &[Alternative]) -> String {
    let mut table = Table::new(
        &["checkpoint", "state", "id", "attempt", "objects", "damaged"],
        &[2, 3, 4, 5],
    );
    for found in &report.checkpoints {
        let (damaged, not_checked) = of_checkpoint(found, report);
        let state = match (damaged, not_checked) {
            _ if found.deleted => "deleted meanwhile",
            (0, 0) => "whole",
            (0, _) => "not checked",
            _ => "damaged",
        };
        table.row([
            shown(&found.folder),
            state.into(),
            found.checkpoint.to_string(),
            found.attempt.to_string(),
            found.objects.to_string(),
            damaged.to_string(),
        ]);
    }
    let none = || "-".to_owned();
    for unread in &subject.unread {
        table.row([
            unread.path.clone(),
            unread.state.into(),
            none(),
            none(),
            none(),
            none(),
        ]);
    }
    let mut out = table.render(0);
    for (folder, error) in &subject.unseen {
        out.push_str(&format!(
            "\n{}  not looked into\n  {}\n",
            shown(folder),
            plain(error)
        ));
    }
    for unread in &subject.unread {
        if let Some(reason) = &unread.reason {
            out.push_str(&format!("\n{}\n  {reason}\n", unread.path));
        }
    }
    for damaged in &report.damaged {
        out.push_str(&format!(
            "\n{}  {}\n",
            place(damaged),
            damaged.damage.as_str()
        ));
        out.push_str(&format!("  {}\n", damaged.reason.message()));
        if let Some(source) = std::error::Error::source(&damaged.reason) {
            out.push_str(&format!("  {source}\n"));
        }
        for affected in &damaged.affects {
            out.push_str(&format!("  {}\n", in_words(affected)));
        }
    }
    let unknown = report.damaged.iter();
    let unknown: Vec<_> = unknown.filter(|it| !it.damage.is_certain()).collect();
    let unread: u64 = unknown.iter().map(|damaged| damaged.object.len).sum();
    out.push_str(&format!(
        "\n{} of {} read\n",
        counted((report.objects - unknown.len()) as u64, "object"),
        bytes(report.bytes.saturating_sub(unread))
    ));
    if !unknown.is_empty() {
        out.push_str(&format!(
            "{} not checked\n",
            counted(unknown.len() as u64, "object")
        ));
    }
    for Alternative { job, folder } in alternatives {
        let of_job = match job {
            Some(job) if alternatives.len() > 1 => format!(" of job {job}"),
            _ => String::new(),
        };
        out.push_str(&match folder {
            Some(folder) => format!("newest whole checkpoint{of_job}: {}\n", shown(folder)),
            None if subject.looked_for_others() => {
                format!("no other checkpoint{of_job} is whole\n")
            }
            None => "no other checkpoint was looked for: to find one, name the folder of the job\n"
                .to_owned(),
        });
    }
    out
}

/// Returns how many objects of a checkpoint are damaged, and how many could not be checked.
fn of_checkpoint(found: &VerifiedCheckpoint, report: &Verification) -> (usize, usize) {
    let certain = |at: &&usize| report.damaged[**at].damage.is_certain();
    let damaged = found.damaged.iter().filter(certain).count();
    (damaged, found.damaged.len() - damaged)
}

impl Subject {
    /// Returns whether all of it could be looked at.
    fn is_read(&self) -> bool {
        self.unseen.is_empty() && self.unread.iter().all(|unread| unread.reason.is_none())
    }

    /// Returns whether other checkpoints than a single one that was named were looked for.
    fn looked_for_others(&self) -> bool {
        self.others.is_some()
    }
}

/// Writes where an object is.
fn place(damaged: &DamagedObject) -> String {
    shown(&format!("{}/{}", damaged.root, damaged.object.path))
}

/// Says what is lost with an object.
fn in_words(affected: &Affected) -> String {
    let subtask = match affected.subtask {
        Some(index) => format!("subtask {index}, "),
        None => String::new(),
    };
    let states = match affected.states.is_empty() {
        true => String::new(),
        false => format!(": {}", affected.states.join(", ")),
    };
    format!(
        "needed by {}: operator {}, {subtask}{} state{states}",
        shown(&affected.folder),
        affected.operator,
        affected.part
    )
}

fn as_json(subject: &Subject, report: &Verification, alternatives: &[Alternative]) -> Value {
    let newest = match alternatives {
        [only] => only.folder.as_deref(),
        _ => None,
    };
    json!({
        "whole": report.is_whole() && subject.is_read(),
        "objects": report.objects,
        "bytes": report.bytes,
        "newest_whole": newest.map(shown),
        "alternatives": alternatives.iter().map(|it| json!({
            "job": it.job.as_ref().map(JobId::as_str),
            "newest_whole": it.folder.as_deref().map(shown),
            "looked_for": it.folder.is_some() || subject.looked_for_others(),
        })).collect::<Vec<_>>(),
        "checkpoints": report.checkpoints.iter().map(|found| json!({
            "path": shown(&found.folder),
            "job": found.job.as_str(),
            "id": found.checkpoint.0,
            "attempt": found.attempt.0,
            "objects": found.objects,
            "damaged": of_checkpoint(found, report).0,
            "not_checked": of_checkpoint(found, report).1,
            "deleted": found.deleted,
        })).collect::<Vec<_>>(),
        "unseen": subject.unseen.iter().map(|(folder, error)| json!({
            "path": shown(folder),
            "reason": plain(error),
        })).collect::<Vec<_>>(),
        "unread": subject.unread.iter().map(|unread| json!({
            "path": unread.path,
            "state": unread.state,
            "reason": unread.reason,
        })).collect::<Vec<_>>(),
        "damaged": report.damaged.iter().map(|damaged| json!({
            "object": place(damaged),
            "bytes": damaged.object.len,
            "digest": damaged.object.digest.to_string(),
            "damage": damaged.damage.as_str(),
            "reason": damaged.reason.message(),
            "affects": damaged.affects.iter().map(|affected| json!({
                "path": shown(&affected.folder),
                "id": affected.checkpoint.0,
                "operator": affected.operator.as_str(),
                "subtask": affected.subtask,
                "part": affected.part,
                "states": affected.states.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_looked_into_is_not_whole() {
        let (report, mut subject) = (Verification::default(), Subject::default());
        assert!(outcome(&subject, &report).is_ok());
        subject
            .unseen
            .push(("file:///backup/b".into(), Error::retryable("no permission")));
        let failure = outcome(&subject, &report).unwrap_err();
        assert_eq!(failure.exit(), Exit::Failed);
        assert!(failure.line().contains("/backup/b"), "{}", failure.line());
        let json = as_json(&subject, &report, &[]);
        assert_eq!(json["whole"], false);
        assert!(as_text(&subject, &report, &[]).contains("/backup/b  not looked into"));
    }
}
