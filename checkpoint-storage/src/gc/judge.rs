//! What becomes of each object, by what was consulted.
use state_api::{Attempt, CheckpointId, Error, JobId};

use super::evidence::Evidence;
use super::inventory::{Found, Inventory, Sort};
use crate::claim::CLAIM_NAME;
use crate::liveness::Liveness;

/// What [`collect_garbage`](super::collect_garbage) found in a job folder, and did.
#[derive(Debug)]
pub struct GcReport {
    /// URL of the job folder.
    pub folder: String,
    /// The job, if a checkpoint tells.
    pub job: Option<JobId>,
    /// Whether an attempt ran when it began.
    pub liveness: Liveness,
    /// The attempt that was taken to delete; `None` when it only lists.
    pub attempt: Option<Attempt>,
    /// What was consulted.
    pub evidence: Evidence,
    /// Why nothing was deleted although that was asked for, or nothing more; empty otherwise.
    pub stopped: Vec<Error>,
    /// Objects that nothing refers to, in the order of their paths.
    pub unreferenced: Vec<Unreferenced>,
    /// Number of objects that a complete checkpoint refers to.
    pub referenced: usize,
    /// Number of objects in the folders of checkpoints whose metadata can't be read, so that nobody knows.
    pub unknown: usize,
    /// Number of marks that keep a checkpoint from being completed; they stay.
    pub marks: usize,
    /// What is not ours, by path; a folder has a slash at its end.
    pub foreign: Vec<String>,
    /// Why it is not known whether there are uploads in parts that never ended; `None` if it is, or the store has no such thing.
    pub uploads_unseen: Option<Error>,
}

/// An object that nothing refers to, or an upload in parts that never became one.
#[derive(Debug)]
pub struct Unreferenced {
    /// Its path in the job folder.
    pub path: String,
    /// The store's name of the upload, if it is one: the object of that path, if there is one, is not touched.
    pub upload: Option<String>,
    /// Its length in bytes; `None` if it was gone by the time or could not be asked.
    pub len: Option<u64>,
    /// Why nobody needs it.
    pub why: Why,
    /// What became of it.
    pub fate: Fate,
}

/// Why nobody needs an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It lies in the folder of a checkpoint that was never completed.
    NeverCompleted(CheckpointId),
    /// It lies in the folder of a complete checkpoint, and neither that nor another one refers to it.
    NotOf(CheckpointId),
    /// It lies with objects that several checkpoints or none may use, and none does.
    OfNone,
    /// It was to be linked to its name by a process that died.
    Temporary,
    /// An upload in parts that was neither completed nor given up.
    NeverUploaded,
    /// A later attempt has taken a higher number.
    Superseded,
    /// Another job has claimed the checkpoint, deleted its metadata and not yet the rest.
    LeftByClaimer(CheckpointId),
}

/// What becomes of an object that nothing refers to.
#[derive(Debug)]
pub enum Fate {
    /// It would be deleted.
    Listed,
    /// It is gone.
    Deleted,
    /// It is still there, with the reason; a later run may delete it.
    Failed(Error),
    /// This attempt may need it yet: for a checkpoint that is being taken, or an acknowledgement that is late.
    MayBePending(Attempt),
    /// It is for another job to delete.
    LeftToClaimer,
    /// It is for the task that made it to delete: where its name is, only that task knows.
    LeftToTask,
}

/// Sorts everything in a job folder; `running` is an attempt that may run, `last` the highest that there is.
pub(super) fn judge(
    inventory: &Inventory,
    evidence: &Evidence,
    running: Option<Attempt>,
    last: Attempt,
    report: &mut GcReport,
) {
    for found in &inventory.found {
        let Some(why) = why(found, evidence, last, report) else {
            continue;
        };
        let fate = match (why, found.sort) {
            (Why::LeftByClaimer(_), _) if !evidence.gaps.is_empty() => Fate::LeftToClaimer,
            // Of an attempt that began after the list was made.
            (_, Sort::Snapshot(attempt)) if attempt > last => Fate::MayBePending(attempt),
            (_, Sort::Snapshot(attempt)) if running.is_some_and(|running| attempt >= running) => {
                Fate::MayBePending(attempt)
            }
            (_, Sort::TaskOwned(_)) => Fate::LeftToTask,
            (_, Sort::Announcement | Sort::Temporary) => match running {
                Some(running) => Fate::MayBePending(running),
                None => Fate::Listed,
            },
            _ => Fate::Listed,
        };
        report.unreferenced.push(Unreferenced {
            path: found.path.clone(),
            upload: None,
            len: found.len,
            why,
            fate,
        });
    }
    for (upload, sort) in &inventory.uploads {
        // What an upload became is an object of its own: giving up one that was completed does nothing.
        let fate = match (sort, running) {
            (Sort::Foreign, _) => {
                report.foreign.push(format!("{} (an upload)", upload.path));
                continue;
            }
            (Sort::Snapshot(attempt) | Sort::TaskOwned(attempt), _) if *attempt > last => {
                Fate::MayBePending(*attempt)
            }
            (Sort::Snapshot(attempt) | Sort::TaskOwned(attempt), Some(running))
                if *attempt < running =>
            {
                Fate::Listed
            }
            (_, Some(running)) => Fate::MayBePending(running),
            (_, None) => Fate::Listed,
        };
        report.unreferenced.push(Unreferenced {
            path: upload.path.clone(),
            upload: Some(upload.id.clone()),
            len: None,
            why: Why::NeverUploaded,
            fate,
        });
    }
    let folders = inventory.foreign_folders.iter();
    report
        .foreign
        .extend(folders.map(|folder| format!("{folder}/")));
}

/// Returns why nobody needs an object; `None` if somebody does, or it is not ours.
fn why(found: &Found, evidence: &Evidence, last: Attempt, report: &mut GcReport) -> Option<Why> {
    let unfinished = found
        .folder
        .filter(|id| evidence.unfinished.contains_key(id));
    let claimed = found
        .folder
        .is_some_and(|id| evidence.claimed.contains(&id));
    match found.sort {
        Sort::Foreign => {
            report.foreign.push(found.path.clone());
            None
        }
        Sort::Record if found.path.ends_with(CLAIM_NAME) => match unfinished {
            // As long as something here is needed, it says whose it is.
            Some(id) if claimed && !evidence.refers_into(id) => Some(Why::LeftByClaimer(id)),
            Some(id) if !claimed => Some(Why::NeverCompleted(id)),
            _ => None,
        },
        Sort::Record => {
            let is_mark = unfinished.is_some_and(|id| evidence.unfinished[&id]);
            report.marks += usize::from(is_mark);
            None
        }
        Sort::Attempt(number) => (number < last).then_some(Why::Superseded),
        _ if evidence.referred.contains(&found.path) => {
            report.referenced += 1;
            None
        }
        Sort::Announcement => unfinished.filter(|_| !claimed).map(Why::NeverCompleted),
        Sort::Temporary => Some(Why::Temporary),
        Sort::Snapshot(_)
            if found
                .folder
                .is_some_and(|id| evidence.damaged.contains(&id)) =>
        {
            report.unknown += 1;
            None
        }
        Sort::TaskOwned(_) => Some(Why::OfNone),
        Sort::Snapshot(_) => match (found.folder, unfinished) {
            (_, Some(id)) if claimed => Some(Why::LeftByClaimer(id)),
            (_, Some(id)) => Some(Why::NeverCompleted(id)),
            // What another job has claimed stays as a whole.
            (Some(_), None) if claimed => None,
            (Some(id), None) => Some(Why::NotOf(id)),
            (None, _) => Some(Why::OfNone),
        },
    }
}
