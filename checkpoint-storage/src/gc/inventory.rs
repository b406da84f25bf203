//! Everything that lies in a job folder, by the place where it lies.
use state_api::{Attempt, CheckpointId, Error, ErrorKind, Result};
use uuid::Uuid;

use crate::claim::CLAIM_NAME;
use crate::job_store::ANNOUNCED;
use crate::layout::{ATTEMPTS, SHARED, TASK_OWNED, checkpoint_of_folder, parse_number};
use crate::liveness::ENDED;
use crate::metadata::METADATA_NAME;
use crate::names::attempt_of_name;
use crate::publish::LocalPublish;
use crate::root::StoreRoot;
use crate::stop::is_stop_record;
use crate::store::OpenUpload;

/// What an object is by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Bytes of a snapshot, written by an attempt.
    Snapshot(Attempt),
    /// The same, which the task that wrote it deletes.
    TaskOwned(Attempt),
    /// The number of an attempt, or what it said when it ended.
    Attempt(Attempt),
    /// Says that a checkpoint is about to be completed.
    Announcement,
    /// A file that was to be linked to its name.
    Temporary,
    /// Metadata, claims and records of stops: they speak for themselves.
    Record,
    /// Nothing of ours.
    Foreign,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: String,
    pub(super) sort: Sort,
    /// The checkpoint in whose folder it lies.
    pub(super) folder: Option<CheckpointId>,
    /// Its length in bytes, where the listing told.
    pub(super) len: Option<u64>,
}

/// Everything in a job folder.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) found: Vec<Found>,
    /// Folders of checkpoints in which there is nothing at all.
    pub(super) empty: Vec<String>,
    /// Folders that are not ours; they are not looked into.
    pub(super) foreign_folders: Vec<String>,
    /// Uploads in parts that never ended, with what their objects would be.
    pub(super) uploads: Vec<(OpenUpload, Sort)>,
    /// Why it is not known whether there are uploads.
    pub(super) uploads_unseen: Option<Error>,
}

impl Inventory {
    pub(super) async fn of(root: &StoreRoot) -> Result<Self> {
        let mut inventory = Self::default();
        match root.open_uploads().await {
            Ok(uploads) => {
                for upload in uploads.unwrap_or_default() {
                    let sort = sort_of(&upload.path);
                    inventory.uploads.push((upload, sort));
                }
            }
            // Whoever may list objects may not be allowed to list uploads, and some stores can't.
            Err(error) if matches!(error.kind(), ErrorKind::Config | ErrorKind::Unsupported) => {
                inventory.uploads_unseen = Some(error);
            }
            Err(error) => return Err(error),
        }
        for entry in root.list("").await? {
            let name = entry.name;
            if !entry.is_folder {
                let sort = match is_stop_record(&name) {
                    true => Sort::Record,
                    false => temporary_or_foreign(&name),
                };
                inventory.add(name, sort, None, entry.len);
                continue;
            }
            let folder = checkpoint_of_folder(&name);
            let Some(sort) = sort_in(&name) else {
                inventory.foreign_folders.push(name);
                continue;
            };
            let inside = root.list(&name).await?;
            if inside.is_empty() && folder.is_some() {
                inventory.empty.push(name);
                continue;
            }
            for entry in inside {
                let path = format!("{name}/{}", entry.name);
                match entry.is_folder {
                    true => inventory.foreign_folders.push(path),
                    false => inventory.add(path, sort(&entry.name), folder, entry.len),
                }
            }
        }
        Ok(inventory)
    }

    /// Returns whether an object was listed.
    pub(super) fn has(&self, path: &str) -> bool {
        self.found.iter().any(|found| found.path == path)
    }

    fn add(&mut self, path: String, sort: Sort, folder: Option<CheckpointId>, len: Option<u64>) {
        self.found.push(Found {
            path,
            sort,
            folder,
            len,
        });
    }
}

/// Returns how what lies in a folder is sorted; `None` for a folder that is not ours.
fn sort_in(folder: &str) -> Option<fn(&str) -> Sort> {
    match folder {
        ATTEMPTS => Some(attempt_sort),
        SHARED => Some(snapshot_sort),
        TASK_OWNED => Some(task_owned_sort),
        _ => checkpoint_of_folder(folder).map(|_| in_checkpoint_sort as fn(&str) -> Sort),
    }
}

/// Returns the attempt that writes, or wrote, an object of a path in the job folder, if it is one of a snapshot.
pub(crate) fn attempt_of_path(path: &str) -> Option<Attempt> {
    match sort_of(path) {
        Sort::Snapshot(attempt) | Sort::TaskOwned(attempt) => Some(attempt),
        _ => None,
    }
}

/// Returns what an object of a path in the job folder is.
fn sort_of(path: &str) -> Sort {
    match path.split_once('/') {
        Some((folder, name)) => sort_in(folder).map_or(Sort::Foreign, |sort| sort(name)),
        None => temporary_or_foreign(path),
    }
}

fn attempt_sort(name: &str) -> Sort {
    match parse_number(name.strip_suffix(ENDED).unwrap_or(name)) {
        Some(number) => Sort::Attempt(Attempt(number)),
        None => temporary_or_foreign(name),
    }
}

fn snapshot_sort(name: &str) -> Sort {
    match attempt_of_name(name) {
        Some(attempt) => Sort::Snapshot(attempt),
        None => temporary_or_foreign(name),
    }
}

fn task_owned_sort(name: &str) -> Sort {
    match snapshot_sort(name) {
        Sort::Snapshot(attempt) => Sort::TaskOwned(attempt),
        other => other,
    }
}

fn in_checkpoint_sort(name: &str) -> Sort {
    match name {
        METADATA_NAME | CLAIM_NAME => Sort::Record,
        ANNOUNCED => Sort::Announcement,
        _ => snapshot_sort(name),
    }
}

fn temporary_or_foreign(name: &str) -> Sort {
    match is_temporary_of_ours(name) {
        true => Sort::Temporary,
        false => Sort::Foreign,
    }
}

/// Returns whether an object is called as we call those of snapshots, or temporary files.
pub(super) fn is_ours(name: &str) -> bool {
    matches!(snapshot_sort(name), Sort::Snapshot(_) | Sort::Temporary)
}

/// Returns whether this is `.<name>.<uuid>.tmp`: others have temporary files too.
fn is_temporary_of_ours(name: &str) -> bool {
    let inner = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(LocalPublish::TEMPORARY));
    inner
        .and_then(|inner| inner.rsplit_once('.'))
        .is_some_and(|(_, unique)| Uuid::try_parse(unique).is_ok())
}

/// Returns whether a folder is called as we call savepoints: `savepoint-<up to 6 characters>-<12 hex digits>`.
pub(super) fn is_savepoint_name(name: &str) -> bool {
    let Some((job, random)) = name
        .strip_prefix("savepoint-")
        .and_then(|rest| rest.rsplit_once('-'))
    else {
        return false;
    };
    (1..=6).contains(&job.chars().count())
        && random.len() == 12
        && random.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_make_are_ours() {
        let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for (name, sort) in [
            (format!("7-{uuid}"), Sort::Snapshot(Attempt(7))),
            (format!("._metadata.{uuid}.tmp"), Sort::Temporary),
            ("_metadata".into(), Sort::Record),
            ("_claimed".into(), Sort::Record),
            ("_announced".into(), Sort::Announcement),
            (".x.tmp".into(), Sort::Foreign),
            (format!("x.{uuid}.tmp"), Sort::Foreign),
            (format!("+7-{uuid}"), Sort::Foreign),
            (format!("07-{uuid}"), Sort::Foreign),
            (format!("7-{}", uuid.to_uppercase()), Sort::Foreign),
            ("notes.txt".into(), Sort::Foreign),
        ] {
            assert_eq!(in_checkpoint_sort(&name), sort, "{name}");
        }
        for (path, sort) in [
            (format!("shared/7-{uuid}"), Sort::Snapshot(Attempt(7))),
            (format!("chk-3/7-{uuid}"), Sort::Snapshot(Attempt(7))),
            (format!("chk-3/x/7-{uuid}"), Sort::Foreign),
            (format!("chk-x/7-{uuid}"), Sort::Foreign),
            (format!("7-{uuid}"), Sort::Foreign),
        ] {
            assert_eq!(sort_of(&path), sort, "{path}");
        }
        assert_eq!(attempt_sort("12"), Sort::Attempt(Attempt(12)));
        assert_eq!(attempt_sort("12-ended"), Sort::Attempt(Attempt(12)));
        assert_eq!(attempt_sort("012"), Sort::Foreign);
        assert!(is_savepoint_name("savepoint-flight-0123456789ab"));
        assert!(is_savepoint_name("savepoint-a-b-0123456789ab"));
        assert!(!is_savepoint_name("savepoint-flights-0123456789ab"));
        assert!(!is_savepoint_name("savepoint-flight-0123456789az"));
    }
}
