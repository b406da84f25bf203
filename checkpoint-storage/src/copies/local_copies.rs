use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{CheckpointId, CheckpointStorage, Error, Executor, JobId, ObjectHandle, Subtask};

use super::copy_file::{copy_name, remove};
use super::folder::CopyFolder;
use super::keeping::KeepingStorage;
use super::second_stream::Of;
use crate::layout::checkpoint_folder;
use crate::names::UuidSource;

/// The most checkpoints that are remembered as given up.
const MAX_GIVEN_UP: usize = 1024;

/// Whether second copies of objects are kept on local disk, whether they are used, and where they lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalCopyOptions {
    /// Whether the objects of checkpoints are copied.
    pub keep: bool,
    /// Whether copies are read when state is restored.
    pub restore: bool,
    /// Folders for copies, used in turn by checkpoint id.
    pub roots: Vec<PathBuf>,
}

impl LocalCopyOptions {
    /// Returns whether there is anything to do.
    #[must_use]
    pub fn any(&self) -> bool {
        self.keep || self.restore
    }
}

/// The copies that a process keeps of the objects of one job's checkpoints. Clones are the same copies.
///
/// Whoever hears of checkpoints tells it what becomes of them; copies that no confirmed checkpoint and none in flight uses are
/// removed in the background. What is there when it is dropped stays, for the next start of the job below the same folders:
/// there [`start_from`](Self::start_from) says which of it are still of use.
#[derive(Clone)]
pub struct LocalCopies {
    shared: Arc<Shared>,
}

/// Takes what goes wrong with copies: nothing of it does any harm.
type Warn = Box<dyn Fn(Error) + Send + Sync>;

struct Shared {
    options: LocalCopyOptions,
    executor: Arc<dyn Executor>,
    warn: Warn,
    parts: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By root: where new copies go.
    current: Vec<CopyFolder>,
    /// Others that dead processes left, in which copies may lie.
    inherited: Vec<CopyFolder>,
    copies: BTreeMap<String, Kept>,
    /// Nothing is kept for a checkpoint before this one.
    confirmed: Option<CheckpointId>,
    /// Later ones that will not complete.
    given_up: BTreeSet<CheckpointId>,
    closed: bool,
    /// The last checkpoint about whose copies something was said.
    warned_of: Option<CheckpointId>,
    /// Whether something was said about copies that a restore wanted to use.
    warned_of_restore: bool,
}

struct Kept {
    path: PathBuf,
    len: u64,
    /// Empty only for what was found and no checkpoint is known to use, and for what is awaited.
    users: BTreeSet<CheckpointId>,
    /// The subtask that wrote it for later checkpoints, of which none has it yet.
    awaited_by: Option<Arc<str>>,
}

impl Kept {
    fn is_wanted(&self) -> bool {
        !self.users.is_empty() || self.awaited_by.is_some()
    }

    fn add_user(&mut self, checkpoint: CheckpointId) {
        self.users.insert(checkpoint);
        self.awaited_by = None;
    }
}

impl LocalCopies {
    /// Opens the copies of a job: takes over what dead processes left below the roots, and makes a folder below each for new ones.
    ///
    /// A root that can't be used is left out, and `warn` is told; `warn` is told of whatever else goes wrong later, too: at most
    /// once a restore, and once a checkpoint.
    #[must_use]
    pub fn open(
        options: LocalCopyOptions,
        job: &JobId,
        names: &UuidSource,
        executor: Arc<dyn Executor>,
        warn: impl Fn(Error) + Send + Sync + 'static,
    ) -> Self {
        let mut state = State::default();
        let mut unusable = Vec::new();
        for root in &options.roots {
            let mut found = CopyFolder::of_the_dead(root, job).into_iter();
            match found
                .next()
                .map_or_else(|| CopyFolder::create(root, job, names), Ok)
            {
                Ok(folder) => state.current.push(folder),
                Err(error) => unusable.push(error),
            }
            state.inherited.extend(found);
        }
        for copy in state
            .folders()
            .flat_map(CopyFolder::scan)
            .collect::<Vec<_>>()
        {
            let kept = Kept {
                path: copy.path,
                len: copy.len,
                users: BTreeSet::new(),
                awaited_by: None,
            };
            state.copies.insert(copy.name, kept);
        }
        let shared = Shared {
            options,
            executor,
            warn: Box::new(warn),
            parts: AtomicU64::new(0),
            state: Mutex::new(state),
        };
        unusable.into_iter().for_each(|error| {
            (shared.warn)(error.with("note", "no local copies are kept there"));
        });
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Removes what dead processes left below folders in which a job keeps no copies any more.
    pub fn remove_leftovers<'a>(roots: impl IntoIterator<Item = &'a Path>, job: &JobId) {
        for folder in roots
            .into_iter()
            .flat_map(|root| CopyFolder::of_the_dead(root, job))
        {
            remove_folder(folder);
        }
    }

    /// Takes note of the checkpoint that the job is going to be restored from, with all its objects; `None` if it begins with
    /// nothing. Copies of other objects are removed.
    pub fn start_from<'a>(
        &self,
        checkpoint: Option<CheckpointId>,
        objects: impl IntoIterator<Item = &'a ObjectHandle>,
    ) {
        let named: BTreeSet<String> = objects.into_iter().map(copy_name).collect();
        let mut state = self.lock();
        state.confirmed = checkpoint;
        state.warned_of_restore = false;
        let doomed = state.take_copies(|name, copy| {
            copy.users = checkpoint.into_iter().collect();
            copy.awaited_by = None;
            !copy.users.is_empty() && named.contains(name)
        });
        drop(state);
        self.remove(doomed);
    }

    /// Returns a storage that writes through to another one and keeps copies for a subtask; the same one if none are kept.
    #[must_use]
    pub fn keeping(
        &self,
        inner: Arc<dyn CheckpointStorage>,
        operator: &str,
        subtask: Subtask,
    ) -> Arc<dyn CheckpointStorage> {
        if !self.shared.options.keep {
            return inner;
        }
        let folder = task_folder(operator, subtask);
        Arc::new(KeepingStorage::new(inner, self.clone(), folder))
    }

    /// Takes note of all objects that a subtask refers to in a checkpoint; to be told before it acknowledges.
    pub fn acked<'a>(
        &self,
        checkpoint: CheckpointId,
        objects: impl IntoIterator<Item = &'a ObjectHandle>,
    ) {
        let mut state = self.lock();
        if !state.takes(checkpoint) {
            return;
        }
        for object in objects {
            if let Some(copy) = state.copies.get_mut(&copy_name(object)) {
                copy.add_user(checkpoint);
            }
        }
    }

    /// Takes note that a checkpoint is complete: copies that only older ones used are removed. Late and repeated notices change
    /// nothing. Savepoints are not told: nobody restarts from them without being told to.
    pub fn confirm(&self, checkpoint: CheckpointId) {
        let mut state = self.lock();
        if state.confirmed >= Some(checkpoint) {
            return;
        }
        state.confirmed = Some(checkpoint);
        state.given_up = state.given_up.split_off(&checkpoint);
        let doomed = state.take_copies(|_, copy| {
            copy.users = copy.users.split_off(&checkpoint);
            copy.is_wanted()
        });
        drop(state);
        self.remove(doomed);
    }

    /// Takes note that a checkpoint will not complete: copies that only it used are removed.
    pub fn abort(&self, checkpoint: CheckpointId) {
        let mut state = self.lock();
        if state.confirmed >= Some(checkpoint) {
            return;
        }
        state.given_up.insert(checkpoint);
        if state.given_up.len() > MAX_GIVEN_UP {
            state.given_up.pop_first();
        }
        let doomed =
            state.take_copies(|_, copy| !copy.users.remove(&checkpoint) || copy.is_wanted());
        drop(state);
        self.remove(doomed);
    }

    /// Removes all copies and the folders: the job has ended and nothing is to go on from its checkpoints here. From now on none
    /// is kept or used.
    pub fn dispose(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.copies.clear();
        let folders: Vec<_> = state.take_folders().collect();
        drop(state);
        folders.into_iter().for_each(remove_folder);
    }

    /// Returns the number of copies and their bytes.
    #[must_use]
    pub fn total(&self) -> (usize, u64) {
        let state = self.lock();
        (
            state.copies.len(),
            state.copies.values().map(|copy| copy.len).sum(),
        )
    }

    /// Returns the path of the copy of an object, unproven; `None` if there is none or copies are not for restoring.
    #[must_use]
    pub fn find(&self, object: &ObjectHandle) -> Option<PathBuf> {
        if !self.shared.options.restore {
            return None;
        }
        let state = self.lock();
        let copy = state.copies.get(&copy_name(object))?;
        Some(copy.path.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub(super) fn executor(&self) -> &Arc<dyn Executor> {
        &self.shared.executor
    }

    pub(super) fn keeps(&self) -> bool {
        self.shared.options.keep
    }

    /// Returns where the copies of a checkpoint go; `None` if none are kept of it.
    pub(super) fn folder(&self, checkpoint: CheckpointId, task: &str) -> Option<PathBuf> {
        let state = self.lock();
        let takes = state.takes(checkpoint);
        takes.then(|| state.folder(checkpoint, task))?
    }

    /// Returns where a copy goes; `None` if it is not kept.
    pub(super) fn folder_of(&self, of: &Of) -> Option<PathBuf> {
        let state = self.lock();
        let takes = state.takes_of(of);
        takes.then(|| state.folder(of.checkpoint, &of.task))?
    }

    /// Adds a copy that is whole; removes the file if it is not wanted any more.
    ///
    /// A subtask awaits one object at a time: what it awaited before goes.
    pub(super) fn add_of(&self, of: &Of, object: &ObjectHandle, path: PathBuf) {
        if !of.is_for_later {
            return self.add(of.checkpoint, object, path);
        }
        let mut state = self.lock();
        if !state.takes_of(of) {
            drop(state);
            return self.remove(vec![path]);
        }
        let awaited_by = Some(Arc::clone(&of.task));
        let doomed = state.take_copies(|_, copy| {
            if copy.awaited_by != awaited_by {
                return true;
            }
            copy.awaited_by = None;
            copy.is_wanted()
        });
        let (len, users) = (object.len, BTreeSet::new());
        let kept = Kept {
            path,
            len,
            users,
            awaited_by,
        };
        state.copies.insert(copy_name(object), kept);
        drop(state);
        self.remove(doomed);
    }

    /// Returns a name for a copy that is not whole yet.
    pub(super) fn part_name(&self) -> String {
        format!("part-{}", self.shared.parts.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes note of another user of a copy; returns whether there is one.
    pub(super) fn has(&self, checkpoint: CheckpointId, object: &ObjectHandle) -> bool {
        let mut state = self.lock();
        if !state.takes(checkpoint) {
            return false;
        }
        let copy = state.copies.get_mut(&copy_name(object));
        copy.map(|copy| copy.add_user(checkpoint)).is_some()
    }

    /// Adds a copy that is whole; removes the file if it is not wanted any more.
    pub(super) fn add(&self, checkpoint: CheckpointId, object: &ObjectHandle, path: PathBuf) {
        let mut state = self.lock();
        let name = copy_name(object);
        let unwanted = if !state.takes(checkpoint) {
            Some(path)
        } else if let Some(copy) = state.copies.get_mut(&name) {
            copy.add_user(checkpoint);
            (copy.path != path).then_some(path)
        } else {
            let kept = Kept {
                path,
                len: object.len,
                users: BTreeSet::from([checkpoint]),
                awaited_by: None,
            };
            state.copies.insert(name, kept);
            None
        };
        drop(state);
        self.remove(unwanted.into_iter().collect());
    }

    /// Removes the copy of an object that belongs to no checkpoint.
    pub(super) fn unwanted(&self, object: &ObjectHandle) {
        let removed = self.lock().copies.remove(&copy_name(object));
        self.remove(removed.into_iter().map(|copy| copy.path).collect());
    }

    /// Removes a copy that is not what it should be, and says so once a restore.
    pub(super) fn discard(&self, object: &ObjectHandle, error: Error) {
        let mut state = self.lock();
        let removed = state.copies.remove(&copy_name(object));
        let first = !std::mem::replace(&mut state.warned_of_restore, true);
        drop(state);
        let error = error
            .with("object", object)
            .with("note", "the copy is removed and the object is read");
        if first {
            (self.shared.warn)(error);
        } else {
            tracing::debug!(%error, "a local copy can't be used");
        }
        // At once: the object may be copied again to the same place.
        remove(removed.into_iter().map(|copy| copy.path).collect());
    }

    /// Says, once a checkpoint, that copies of it can't be kept.
    pub(super) fn not_kept(&self, checkpoint: CheckpointId, error: Error) {
        let mut state = self.lock();
        let first = state.warned_of != Some(checkpoint);
        state.warned_of = Some(checkpoint);
        drop(state);
        if first {
            let error = error.with("checkpoint", checkpoint);
            (self.shared.warn)(error.with("note", "the checkpoint goes on without"));
        } else {
            tracing::debug!(%error, "a local copy is not kept");
        }
    }

    fn remove(&self, paths: Vec<PathBuf>) {
        if !paths.is_empty() {
            self.executor().spawn_cpu(Box::new(move || remove(paths)));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn folders(&self) -> impl Iterator<Item = &CopyFolder> {
        self.current.iter().chain(&self.inherited)
    }

    fn take_folders(&mut self) -> impl Iterator<Item = CopyFolder> + use<> {
        let inherited = std::mem::take(&mut self.inherited);
        std::mem::take(&mut self.current)
            .into_iter()
            .chain(inherited)
    }

    /// Returns whether copies may be kept for a checkpoint.
    fn takes(&self, checkpoint: CheckpointId) -> bool {
        !self.closed && Some(checkpoint) >= self.confirmed && !self.given_up.contains(&checkpoint)
    }

    /// As [`takes`](Self::takes); what is for later checkpoints outlives the one that it is written beside.
    fn takes_of(&self, of: &Of) -> bool {
        match of.is_for_later {
            true => !self.closed,
            false => self.takes(of.checkpoint),
        }
    }

    fn folder(&self, checkpoint: CheckpointId, task: &str) -> Option<PathBuf> {
        let turn = checkpoint.0.checked_rem(self.current.len() as u64)?;
        let root = self.current.get(usize::try_from(turn).ok()?)?.path();
        Some(root.join(task).join(checkpoint_folder(checkpoint)))
    }

    /// Takes out the copies that shall not stay, and returns their paths.
    fn take_copies(&mut self, mut stays: impl FnMut(&str, &mut Kept) -> bool) -> Vec<PathBuf> {
        let doomed = self.copies.extract_if(.., |name, copy| !stays(name, copy));
        doomed.map(|(_, copy)| copy.path).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // What holds no copies need not be found by anybody.
        let folders: Vec<_> = state.take_folders().collect();
        for folder in folders {
            let holds = |copy: &Kept| copy.path.starts_with(folder.path());
            if !state.copies.values().any(holds) {
                remove_folder(folder);
            }
        }
    }
}

impl fmt::Debug for LocalCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("LocalCopies")
            .field("options", &self.shared.options)
            .field("copies", &state.copies.len())
            .field("confirmed", &state.confirmed)
            .finish_non_exhaustive()
    }
}

fn remove_folder(folder: CopyFolder) {
    let path = folder.path().to_owned();
    if let Err(error) = folder.remove() {
        tracing::warn!(path = %path.display(), %error, "a folder of local copies can't be removed");
    }
}

/// Names the folder of a subtask, in letters that every file system takes.
pub(super) fn task_folder(operator: &str, subtask: Subtask) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let operator: String = operator.chars().take(48).map(plain).collect();
    format!("{operator}-{}of{}", subtask.index + 1, subtask.parallelism)
}
