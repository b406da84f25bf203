use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use futures_util::StreamExt;
use futures_util::stream;
use state_api::{Attempt, CheckpointId, Error, ErrorKind, JobId, ObjectHandle, Result, Root};

use super::affected::{Affected, uses};
use crate::checkpoint::StoredCheckpoint;
use crate::progress::{Progress, Watcher};
use crate::reader::{Whole, check_object};
use crate::root::StoreRoot;

/// Checks that are made ready at once: each has room for the state of a digest, nearly two KiB.
const AT_HAND: usize = 512;

/// How [`verify_checkpoints`] reads.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Objects that are read at once, at least one; each takes some MiB of memory.
    pub concurrency: usize,
    /// Folders outside the checkpoints' own that they may refer to.
    pub roots: &'a [StoreRoot],
    /// Is told how far it is, after each piece that was read.
    pub watcher: Watcher<'a>,
}

impl Default for VerifyOptions<'_> {
    fn default() -> Self {
        Self {
            concurrency: 8,
            roots: &[],
            watcher: &|_| {},
        }
    }
}

/// What [`verify_checkpoints`] found.
#[derive(Debug, Default)]
pub struct Verification {
    /// The checkpoints, in the order in which they were given.
    pub checkpoints: Vec<VerifiedCheckpoint>,
    /// Number of distinct objects.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that are not what a checkpoint says, in the order in which they are first named.
    pub damaged: Vec<DamagedObject>,
}

/// What became of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCheckpoint {
    /// URL of its folder.
    pub folder: String,
    /// The job that took it.
    pub job: JobId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Number of distinct objects that it needs.
    pub objects: usize,
    /// Places in [`Verification::damaged`] of those that it needs.
    pub damaged: Vec<usize>,
    /// Whether it was deleted meanwhile, as a job does when a newer one completes: that its objects are gone is no damage.
    pub deleted: bool,
}

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// It is not there.
    Missing,
    /// It is shorter or longer than it was.
    Length,
    /// Its bytes are others.
    Digest,
    /// The store could not give it: nothing is known of it.
    Unreadable,
    /// It lies in a folder that nobody named: nothing is known of it.
    NotNamed,
    /// It is whole as it is stored, but encrypted with a key that is not here: nothing is known of what is inside.
    NotOpened,
}

impl Damage {
    /// Returns whether the object is certainly not what it was.
    #[must_use]
    pub fn is_certain(self) -> bool {
        matches!(self, Self::Missing | Self::Length | Self::Digest)
    }

    /// Returns the word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Length => "wrong length",
            Self::Digest => "wrong digest",
            Self::Unreadable => "unreadable",
            Self::NotNamed => "not looked at",
            Self::NotOpened => "not opened",
        }
    }
}

/// An object that is not what the checkpoints that need it say.
#[derive(Debug)]
pub struct DamagedObject {
    /// URL of the folder that its path starts from.
    pub root: String,
    /// The object, as the first checkpoint that needs it says.
    pub object: ObjectHandle,
    /// What is wrong.
    pub damage: Damage,
    /// The same with figures.
    pub reason: Error,
    /// Every checkpoint, operator, subtask and state that it is missed by.
    pub affects: Vec<Affected>,
}

impl Verification {
    /// Returns whether every object of every checkpoint is what it was.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty()
    }

    /// Returns the newest checkpoint of a job of which every object is whole: the highest id of the highest attempt.
    #[must_use]
    pub fn newest_whole(&self, job: &JobId) -> Option<&VerifiedCheckpoint> {
        let whole = self.checkpoints.iter();
        let whole = whole.filter(|c| c.damaged.is_empty() && !c.deleted && c.job == *job);
        whole.max_by_key(|c| (c.attempt, c.checkpoint))
    }
}

/// An object with what it is needed for.
struct Needed<'a> {
    root: String,
    object: &'a ObjectHandle,
    /// Places of the checkpoints in the list.
    checkpoints: Vec<usize>,
    affects: Vec<Affected>,
}

/// Reads every object that some checkpoints need, each once, and compares length and digest.
///
/// Objects that can't be read or lie in folders that nobody named are in the report too: the others are read all the same.
pub async fn verify_checkpoints(
    checkpoints: &[&StoredCheckpoint],
    options: VerifyOptions<'_>,
) -> Verification {
    let mut needed: Vec<Needed<'_>> = Vec::new();
    let mut known: HashMap<(String, &ObjectHandle), usize> = HashMap::new();
    let mut report = Verification::default();
    for (place, found) in checkpoints.iter().enumerate() {
        let mut objects = 0;
        for (object, affected) in uses(&found.metadata, found.folder.url()) {
            let root = match &object.root {
                Root::Own => found.own.url(),
                Root::Url(url) => url.trim_end_matches('/'),
            };
            let key = (root.to_owned(), object);
            let index = *known.entry(key).or_insert_with(|| {
                needed.push(Needed {
                    root: root.to_owned(),
                    object,
                    checkpoints: Vec::new(),
                    affects: Vec::new(),
                });
                needed.len() - 1
            });
            let needed = &mut needed[index];
            if needed.checkpoints.last() != Some(&place) {
                needed.checkpoints.push(place);
                objects += 1;
            }
            if !needed.affects.contains(&affected) {
                needed.affects.push(affected);
            }
        }
        report.checkpoints.push(VerifiedCheckpoint {
            folder: found.folder.url().to_owned(),
            job: found.metadata.job.clone(),
            attempt: found.metadata.attempt,
            checkpoint: found.metadata.checkpoint,
            objects,
            damaged: Vec::new(),
            deleted: false,
        });
    }
    report.objects = needed.len();
    report.bytes = needed.iter().map(|needed| needed.object.len).sum();
    let progress = Progress::of(report.objects, report.bytes, options.watcher);
    let own: Vec<&StoreRoot> = checkpoints.iter().map(|found| &found.own).collect();
    let mut wrong: HashMap<usize, (Damage, Error)> = HashMap::new();
    for (chunk, objects) in needed.chunks(AT_HAND).enumerate() {
        // Collected, because a closure that is kept across an await makes the future unsendable to the compiler's eyes.
        let checks: Vec<_> = objects
            .iter()
            .enumerate()
            .map(|(index, needed)| {
                let mut roots = own.iter().copied().chain(options.roots);
                let root = roots.find(|root| root.url() == needed.root).cloned();
                let progress = &progress;
                let index = chunk * AT_HAND + index;
                async move { (index, check(root, needed, progress).await) }
            })
            .collect();
        let mut checks = stream::iter(checks).buffer_unordered(options.concurrency.max(1));
        while let Some((index, outcome)) = checks.next().await {
            if let Err(damage) = outcome {
                wrong.insert(index, damage);
            }
        }
    }
    for place in deleted_meanwhile(checkpoints, &needed, &wrong).await {
        report.checkpoints[place].deleted = true;
    }
    let deleted = report.checkpoints.iter().filter(|found| found.deleted);
    let deleted: HashSet<String> = deleted.map(|found| found.folder.clone()).collect();
    for (index, mut needed) in needed.into_iter().enumerate() {
        let Some((damage, reason)) = wrong.remove(&index) else {
            continue;
        };
        (needed.checkpoints).retain(|&place| !report.checkpoints[place].deleted);
        if needed.checkpoints.is_empty() {
            continue;
        }
        for place in needed.checkpoints {
            report.checkpoints[place].damaged.push(report.damaged.len());
        }
        let mut affects = needed.affects;
        affects.retain(|affected| !deleted.contains(&affected.folder));
        affects.sort_by_key(|affected| Reverse(affected.checkpoint));
        report.damaged.push(DamagedObject {
            root: needed.root,
            object: needed.object.clone(),
            damage,
            reason,
            affects,
        });
    }
    report
}

/// Returns the places of checkpoints that miss objects because they were deleted while these were read.
async fn deleted_meanwhile(
    checkpoints: &[&StoredCheckpoint],
    needed: &[Needed<'_>],
    wrong: &HashMap<usize, (Damage, Error)>,
) -> BTreeSet<usize> {
    let certain = wrong.iter().filter(|(_, (damage, _))| damage.is_certain());
    let suspects: BTreeSet<usize> = certain
        .flat_map(|(&index, _)| needed[index].checkpoints.iter().copied())
        .collect();
    let mut deleted = BTreeSet::new();
    for place in suspects {
        // Where the store does not say, the damage is reported.
        if checkpoints[place].was_deleted().await.unwrap_or(false) {
            deleted.insert(place);
        }
    }
    deleted
}

/// Reads an object through.
async fn check(
    root: Option<StoreRoot>,
    needed: &Needed<'_>,
    progress: &Progress<'_>,
) -> Result<(), (Damage, Error)> {
    let object = needed.object;
    let mut read = 0;
    let outcome = match root {
        None => Err((
            Damage::NotNamed,
            Error::config("the object lies in a folder that was not named")
                .with("root", &needed.root),
        )),
        Some(root) => {
            let mut passed = |bytes: u64| {
                read += bytes;
                progress.advanced(bytes);
            };
            match check_object(&root, object, &mut passed).await {
                Ok(Whole::Inside) => Ok(()),
                Ok(Whole::Stored(_, key)) => Err((
                    Damage::NotOpened,
                    Error::config(format!(
                        "the object is whole as it is stored, and encrypted with key {key:?}, which is not here"
                    )),
                )),
                Err(e) if e.kind() == ErrorKind::Corrupt => Err((sort(&root, object).await, e)),
                Err(e) => Err((Damage::Unreadable, e)),
            }
        }
    };
    progress.done(object.len - read);
    outcome
}

/// Tells what sort of damage an object has.
async fn sort(root: &StoreRoot, object: &ObjectHandle) -> Damage {
    match root.fresh_len(object.path.as_str()).await {
        Ok(Some(len)) if len != object.len => Damage::Length,
        Ok(None) => Damage::Missing,
        // Of a sealed object that is cut or damaged at its end nobody knows the length.
        _ => Damage::Digest,
    }
}
