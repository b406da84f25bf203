use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use state_api::{Attempt, Error, ErrorKind, JobId, Result};

use super::evidence::{Evidence, OtherJobs};
use super::inventory::Inventory;
use super::judge::{Fate, GcReport, judge};
use crate::checkpoint::abandonment;
use crate::job_store::JobStore;
use crate::layout::checkpoint_folder;
use crate::liveness::Liveness;
use crate::metadata::METADATA_NAME;
use crate::names::UuidSource;
use crate::progress::{Progress, Watcher};
use crate::root::StoreRoot;
use crate::store::OpenUpload;

/// Objects that are deleted between two looks for a higher attempt.
const BATCH: usize = 256;

/// Opens a folder that a claim names.
pub type RootOpener<'a> = &'a (dyn Fn(&str) -> Result<StoreRoot> + Send + Sync);

/// How [`collect_garbage`] goes about it.
#[derive(Clone)]
pub struct GcOptions<'a> {
    /// Only say what would be deleted.
    pub dry_run: bool,
    /// Take the folder although nobody can tell whether an attempt still runs; one that does is fenced and ends.
    ///
    /// An attempt that certainly runs is never taken from.
    pub take_over: bool,
    /// Folders of other jobs whose references count as well, beside those that claims name.
    pub others: &'a [StoreRoot],
    /// What those folders were seen to refer to: clean-ups that share it read each of them once.
    pub seen: Arc<OtherJobs>,
    /// Opens the folders of jobs that have claimed a checkpoint.
    pub opener: RootOpener<'a>,
    /// Makes the content of the attempt's number.
    pub names: UuidSource,
    /// Calls of the store at once, at least one.
    pub concurrency: usize,
    /// Is told how many of the objects are deleted.
    pub watcher: Watcher<'a>,
}

impl Default for GcOptions<'_> {
    fn default() -> Self {
        Self {
            dry_run: false,
            take_over: false,
            others: &[],
            seen: Arc::default(),
            opener: &|url| {
                Err(Error::config("nothing here opens the folders of other jobs").with("url", url))
            },
            names: UuidSource::machine(),
            concurrency: 8,
            watcher: &|_| {},
        }
    }
}

/// Finds the objects of a job folder that nothing refers to, and deletes them unless that is not safe or not wanted.
///
/// It takes the job's next attempt, as a run does: a run that begins meanwhile fences it. While a job runs in the folder, or
/// when a checkpoint or claim can't be read, it only lists, and the report says why. It may be interrupted at any call, and
/// run again.
///
/// # Errors
/// `Retryable` when the store fails before anything is deleted; `Config` when the folder can't be written.
pub async fn collect_garbage(root: &StoreRoot, options: &GcOptions<'_>) -> Result<GcReport> {
    let liveness = Liveness::of(root).await?;
    let mut stopped = Vec::new();
    if !options.dry_run {
        match liveness {
            Liveness::Runs(attempt) => stopped.push(
                Error::new(
                    ErrorKind::Unsupported,
                    format!("attempt {attempt} of the job runs: its objects are only listed"),
                )
                .with("folder", root.url()),
            ),
            Liveness::Unknown(attempt) if !options.take_over => stopped.push(
                Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "attempt {attempt} of the job has not said that it ended, and this store can't tell whether it runs: \
                         its objects are only listed"
                    ),
                )
                .with("folder", root.url()),
            ),
            _ => {}
        }
    }
    // A gap is known without taking the attempt: a damaged checkpoint is no reason to stop a job.
    if !options.dry_run && stopped.is_empty() {
        let inventory = Inventory::of(root).await?;
        let evidence = Evidence::of(root, &inventory, options).await?;
        stopped.extend(gaps(&evidence));
    }
    if options.dry_run || !stopped.is_empty() {
        return list(root, options, liveness, stopped).await;
    }
    let job = job_of(root)?;
    let store = JobStore::open(root.clone(), job, options.names.clone()).await?;
    let report = delete(&store, options, liveness).await;
    if !matches!(&report, Err(e) if e.kind() == ErrorKind::Fenced)
        && let Err(error) = store.end().await
    {
        tracing::warn!(folder = root.url(), %error, "that the clean-up ended could not be noted");
    }
    report
}

/// Returns why it can't be said what is referred to.
fn gaps(evidence: &Evidence) -> Vec<Error> {
    let copy = |gap: &Error| {
        Error::new(
            gap.kind(),
            "nothing is deleted, since it is not known what this needs",
        )
        .caused_by(gap.to_string())
    };
    evidence.gaps.iter().map(copy).collect()
}

/// Names the job for errors: by its folder, as long as no checkpoint tells.
fn job_of(root: &StoreRoot) -> Result<JobId> {
    let name = root.url().rsplit('/').next().unwrap_or_default();
    JobId::new(name).or_else(|_| JobId::new("job"))
}

async fn look(
    root: &StoreRoot,
    options: &GcOptions<'_>,
    liveness: Liveness,
) -> Result<(Inventory, GcReport)> {
    // Objects first: what a checkpoint that is completed meanwhile needs is either not listed or referred to.
    let mut inventory = Inventory::of(root).await?;
    let evidence = Evidence::of(root, &inventory, options).await?;
    let report = GcReport {
        folder: root.url().to_owned(),
        job: evidence.job.clone(),
        liveness,
        attempt: None,
        evidence,
        stopped: Vec::new(),
        unreferenced: Vec::new(),
        referenced: 0,
        unknown: 0,
        marks: 0,
        foreign: Vec::new(),
        uploads_unseen: inventory.uploads_unseen.take(),
    };
    Ok((inventory, report))
}

/// Says what would be deleted.
async fn list(
    root: &StoreRoot,
    options: &GcOptions<'_>,
    liveness: Liveness,
    stopped: Vec<Error>,
) -> Result<GcReport> {
    let (inventory, mut report) = look(root, options, liveness).await?;
    let last = liveness.attempt().unwrap_or(Attempt(0));
    let unknown = matches!(liveness, Liveness::Unknown(_));
    let over = liveness.is_over() || (options.take_over && unknown);
    let running = (!over).then_some(last);
    let evidence = std::mem::take(&mut report.evidence);
    judge(&inventory, &evidence, running, last, &mut report);
    report.stopped = match stopped.is_empty() {
        true => gaps(&evidence),
        false => stopped,
    };
    report.evidence = evidence;
    measure(root, options, &mut report).await;
    Ok(report)
}

/// Asks for the lengths of the objects that the listing did not tell, for people.
async fn measure(root: &StoreRoot, options: &GcOptions<'_>, report: &mut GcReport) {
    let unknown: Vec<(usize, String)> = report
        .unreferenced
        .iter()
        .enumerate()
        .filter(|(_, unreferenced)| unreferenced.len.is_none() && unreferenced.upload.is_none())
        .map(|(index, unreferenced)| (index, unreferenced.path.clone()))
        .collect();
    for batch in unknown.chunks(BATCH) {
        let asked: Vec<_> = batch
            .iter()
            .map(|(index, path)| async move { (*index, root.len(path).await) })
            .collect();
        let mut asked = stream::iter(asked).buffer_unordered(options.concurrency.max(1));
        while let Some((index, len)) = asked.next().await {
            report.unreferenced[index].len = len.unwrap_or_default();
        }
    }
}

/// Makes sure that nothing unfinished is completed, and deletes what nothing refers to.
async fn delete(store: &JobStore, options: &GcOptions<'_>, liveness: Liveness) -> Result<GcReport> {
    let root = store.root();
    let attempt = store.attempt();
    let (inventory, mut report) = look(root, options, liveness).await?;
    report.attempt = Some(attempt);
    let mut evidence = std::mem::take(&mut report.evidence);
    let newer = evidence.checkpoints.iter().find(|c| {
        c.attempt >= attempt
            && c.folder
                .strip_prefix(root.url())
                .is_some_and(|rest| rest.starts_with('/'))
    });
    if let Some(newer) = newer {
        evidence.gaps.push(
            Error::corrupt(format!(
                "a checkpoint is of attempt {}, but this is only attempt {attempt}: numbers of attempts were removed",
                newer.attempt
            ))
            .with("checkpoint", &newer.folder),
        );
    }
    report.stopped = gaps(&evidence);
    if report.stopped.is_empty() {
        report
            .stopped
            .extend(abandon(store, &inventory, &evidence).await?);
    }
    judge(&inventory, &evidence, None, attempt, &mut report);
    report.evidence = evidence;
    measure(root, options, &mut report).await;
    if !report.stopped.is_empty() {
        return Ok(report);
    }
    if let Err(error) = delete_listed(store, options, &mut report).await {
        report.stopped.push(error);
        return Ok(report);
    }
    tidy(store, &inventory, &report).await;
    Ok(report)
}

/// Keeps every checkpoint that was begun from being completed; returns why that could not be done.
async fn abandon(
    store: &JobStore,
    inventory: &Inventory,
    evidence: &Evidence,
) -> Result<Option<Error>> {
    for (id, given_up) in &evidence.unfinished {
        let name = checkpoint_folder(*id);
        if *given_up || evidence.claimed.contains(id) || inventory.empty.contains(&name) {
            continue;
        }
        store.check_fenced().await?;
        let folder = store.root().folder(&name);
        match folder
            .publish(METADATA_NAME, abandonment(store.attempt()).into())
            .await
        {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                // A mark of ours of which the store did not say that it was made, or a checkpoint completed this moment.
                match folder.read_all(METADATA_NAME).await? {
                    found if *found == *abandonment(store.attempt()).as_bytes() => {}
                    _ => {
                        return Ok(Some(
                            Error::retryable(
                                "a checkpoint was completed while it was looked at: run it again",
                            )
                            .with("checkpoint", folder.url()),
                        ));
                    }
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

async fn delete_listed(
    store: &JobStore,
    options: &GcOptions<'_>,
    report: &mut GcReport,
) -> Result<()> {
    let listed: Vec<usize> = (0..report.unreferenced.len())
        .filter(|&index| matches!(report.unreferenced[index].fate, Fate::Listed))
        .collect();
    let progress = Progress::of(listed.len(), 0, options.watcher);
    for batch in listed.chunks(BATCH) {
        store.check_fenced().await?;
        let root = store.root();
        let paths: Vec<_> = batch
            .iter()
            .map(|&index| {
                let found = &report.unreferenced[index];
                (index, found.path.clone(), found.upload.clone())
            })
            .collect();
        let deletions: Vec<_> = paths
            .iter()
            .map(|(index, path, upload)| async move {
                let gone = match upload {
                    None => root.delete(path).await,
                    Some(id) => {
                        let upload = OpenUpload {
                            path: path.clone(),
                            id: id.clone(),
                        };
                        root.give_up_upload(&upload).await
                    }
                };
                (*index, gone)
            })
            .collect();
        let mut deletions = stream::iter(deletions).buffer_unordered(options.concurrency.max(1));
        while let Some((index, outcome)) = deletions.next().await {
            report.unreferenced[index].fate = match outcome {
                Ok(()) => Fate::Deleted,
                Err(error) => Fate::Failed(error),
            };
            progress.done(0);
        }
    }
    Ok(())
}

/// Removes folders of checkpoints in which nothing is left, and makes the deletions durable.
async fn tidy(store: &JobStore, inventory: &Inventory, report: &GcReport) {
    let root = store.root();
    let mut folders: BTreeSet<&str> = inventory.empty.iter().map(String::as_str).collect();
    for unreferenced in &report.unreferenced {
        if matches!(unreferenced.fate, Fate::Deleted)
            && unreferenced.upload.is_none()
            && let Some((folder, _)) = unreferenced.path.rsplit_once('/')
        {
            folders.insert(folder);
        }
    }
    for folder in folders {
        let synced = root.sync_folder(folder).await;
        let removed = match crate::layout::checkpoint_of_folder(folder) {
            Some(_) => root.remove_folder(folder).await.map(drop),
            None => Ok(()),
        };
        if let Err(error) = synced.and(removed) {
            tracing::debug!(folder, %error, "a folder is left");
        }
    }
}
