//! The metadata of a checkpoint: what makes it one.
//!
//! The bytes are described in `docs/formats/metadata.md`.
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use state_api::{
    Attempt, CheckpointId, Error, HashId, JobId, KeyedHandle, MaxParallelism, ObjectHandle,
    OperatorSnapshot, OperatorUid, Result, Root, SnapshotKind, StateHandle,
};

mod decode;
mod encode;
mod encoder;
mod extents;
mod handles;
mod section;
mod signature;
pub mod tags;

pub(crate) use encoder::MetadataEncoder;
pub use section::RawSection;
pub use signature::{Blake3Signer, MetadataSigner};
pub(crate) use signature::{checked, file_of};

/// The name of the object that makes a folder a checkpoint.
pub const METADATA_NAME: &str = "_metadata";

/// The version of the metadata format that this program writes.
pub const FORMAT_VERSION: u16 = 1;

/// What this program calls itself in the metadata it writes.
pub const WRITER: &str = concat!("holdfast ", env!("CARGO_PKG_VERSION"));

/// Where [`Root::Own`] lies, seen from the folder of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnRoot {
    /// The folder of the metadata: a savepoint, or a copy, which holds all its objects itself.
    Folder,
    /// The folder above: a job folder, with objects that several checkpoints share.
    Parent,
}

/// Everything that one checkpoint says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointMetadata {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The job that took it.
    pub job: JobId,
    /// The attempt that took it.
    pub attempt: Attempt,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// Where its own objects lie.
    pub own_root: OwnRoot,
    /// Wall-clock time of the trigger in milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// The program and version that wrote it.
    pub writer: Arc<str>,
    /// URLs of the other roots that handles point into, in ascending order.
    pub roots: Vec<Arc<str>>,
    /// Facts for people and tools.
    pub properties: BTreeMap<String, String>,
    /// What the coordinator's hooks saved.
    pub hooks: Vec<HookState>,
    /// The operators, each uid once.
    pub operators: Vec<OperatorMetadata>,
    /// Optional sections that this version does not know.
    pub unknown: Vec<RawSection>,
}

/// State of a hook of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookState {
    /// Name of the hook, each once.
    pub name: Arc<str>,
    /// Version of the bytes, by the hook's own count.
    pub version: u32,
    /// The bytes.
    pub bytes: Bytes,
}

/// What a checkpoint holds of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorMetadata {
    /// The stable name, by which the state is found again.
    pub uid: OperatorUid,
    /// The name for people, if it has one.
    pub name: Option<Arc<str>>,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The function from key to key group.
    pub hash: HashId,
    /// What the operator's coordinator saved.
    pub coordinator: Option<StateHandle>,
    /// The subtasks, each index at most once; one without state may be missing.
    pub subtasks: Vec<SubtaskMetadata>,
    /// Optional sections that this version does not know.
    pub unknown: Vec<RawSection>,
}

/// What a checkpoint holds of one subtask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubtaskMetadata {
    /// Position among the subtasks, from 0.
    pub index: u32,
    /// Whether the subtask had processed all its input and ended, without state.
    pub finished: bool,
    /// What a subtask that has not ended had been told of the end of its input.
    pub input_end: InputEnd,
    /// The state, shared with the acknowledgement that brought it: there may be very many objects in it.
    pub snapshot: Arc<OperatorSnapshot>,
    /// Optional sections that this version does not know.
    pub unknown: Vec<RawSection>,
}

/// How much of the end of its input an operator's subtask has been told: that need not be said again after a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputEnd {
    /// Nothing: the input goes on.
    #[default]
    Ahead,
    /// That event time is at its end.
    TimeEnded,
    /// That the input is at its end.
    Finished,
}

impl OperatorMetadata {
    /// Creates an operator without state.
    #[must_use]
    pub fn new(
        uid: OperatorUid,
        parallelism: u32,
        max_parallelism: MaxParallelism,
        hash: HashId,
    ) -> Self {
        Self {
            uid,
            name: None,
            parallelism,
            max_parallelism,
            hash,
            coordinator: None,
            subtasks: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Returns whether every subtask had processed all its input.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.all_subtasks(|s| s.told_of_end() == InputEnd::Finished)
    }

    fn all_subtasks(&self, f: impl Fn(&SubtaskMetadata) -> bool) -> bool {
        self.subtasks.len() as u64 == u64::from(self.parallelism) && self.subtasks.iter().all(f)
    }

    /// Returns every pointer to bytes with the subtask it belongs to; `None` is the operator's coordinator.
    pub fn parts(&self) -> impl Iterator<Item = (Option<u32>, &StateHandle)> + '_ {
        let subtasks = self
            .subtasks
            .iter()
            .flat_map(|s| s.snapshot.parts().map(|part| (Some(s.index), part)));
        self.coordinator
            .iter()
            .map(|part| (None, part))
            .chain(subtasks)
    }
}

impl SubtaskMetadata {
    /// Creates the metadata of a running subtask.
    #[must_use]
    pub fn new(index: u32, snapshot: impl Into<Arc<OperatorSnapshot>>) -> Self {
        Self {
            index,
            finished: false,
            input_end: InputEnd::Ahead,
            snapshot: snapshot.into(),
            unknown: Vec::new(),
        }
    }

    /// Returns what the subtask had been told of the end of its input, whether it has ended or not.
    #[must_use]
    pub fn told_of_end(&self) -> InputEnd {
        if self.finished {
            InputEnd::Finished
        } else {
            self.input_end
        }
    }

    /// Creates the metadata of a subtask that had ended.
    #[must_use]
    pub fn finished(index: u32) -> Self {
        Self {
            index,
            finished: true,
            ..Self::default()
        }
    }
}

/// An object of a checkpoint, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUse<'a> {
    /// The operator.
    pub operator: &'a OperatorUid,
    /// The subtask's index; `None` for the operator's coordinator.
    pub subtask: Option<u32>,
    /// The object.
    pub object: &'a ObjectHandle,
}

impl CheckpointMetadata {
    /// Creates the metadata of a checkpoint without state.
    #[must_use]
    pub fn new(
        checkpoint: CheckpointId,
        job: JobId,
        attempt: Attempt,
        kind: SnapshotKind,
        created_ms: i64,
    ) -> Self {
        Self {
            checkpoint,
            job,
            attempt,
            kind,
            own_root: if kind.is_savepoint() {
                OwnRoot::Folder
            } else {
                OwnRoot::Parent
            },
            created_ms,
            writer: WRITER.into(),
            roots: Vec::new(),
            properties: BTreeMap::new(),
            hooks: Vec::new(),
            operators: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Finds an operator by its uid.
    #[must_use]
    pub fn operator(&self, uid: &str) -> Option<&OperatorMetadata> {
        self.operators
            .iter()
            .find(|operator| operator.uid.as_str() == uid)
    }

    /// Returns every use of an object.
    pub fn objects(&self) -> impl Iterator<Item = ObjectUse<'_>> + '_ {
        self.operators.iter().flat_map(|operator| {
            operator.parts().filter_map(move |(subtask, part)| {
                part.object().map(|object| ObjectUse {
                    operator: &operator.uid,
                    subtask,
                    object,
                })
            })
        })
    }

    /// Returns the files that backends share between checkpoints.
    pub fn shared_objects(&self) -> impl Iterator<Item = &ObjectHandle> + '_ {
        let keyed = self
            .operators
            .iter()
            .flat_map(|o| &o.subtasks)
            .flat_map(|s| &s.snapshot.managed_keyed);
        keyed
            .filter_map(|handle| match handle {
                KeyedHandle::Incremental(h) => Some(&h.shared),
                KeyedHandle::KeyGroups(_) => None,
            })
            .flatten()
            .filter_map(|file| file.bytes.object())
    }

    /// Returns all bytes pointed at, those of earlier checkpoints included.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.operators
            .iter()
            .flat_map(|o| o.parts())
            .map(|(_, part)| part.len())
            .sum()
    }

    /// Returns the bytes written for this checkpoint.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        let of_operator = |operator: &OperatorMetadata| {
            let coordinator = operator.coordinator.as_ref().map_or(0, StateHandle::len);
            coordinator
                + operator
                    .subtasks
                    .iter()
                    .map(|s| s.snapshot.new_bytes())
                    .sum::<u64>()
        };
        self.operators.iter().map(of_operator).sum()
    }

    /// Adds the roots that handles point into to [`roots`](Self::roots), in order.
    pub fn collect_roots(&mut self) {
        let mut roots = std::mem::take(&mut self.roots);
        roots.extend(self.objects().filter_map(|used| match &used.object.root {
            Root::Own => None,
            Root::Url(url) => Some(Arc::clone(url)),
        }));
        roots.sort();
        roots.dedup();
        self.roots = roots;
    }

    /// Names the checkpoint's own folder by URL in every handle, so that another job can refer to its objects.
    pub fn rebase(&mut self, own_url: &str) {
        let url: Arc<str> = own_url.trim_end_matches('/').into();
        for operator in &mut self.operators {
            let subtasks = operator
                .subtasks
                .iter_mut()
                .flat_map(|s| parts_mut(Arc::make_mut(&mut s.snapshot)));
            for part in operator.coordinator.iter_mut().chain(subtasks) {
                if let StateHandle::Object(object) = part
                    && object.root == Root::Own
                {
                    object.root = Root::Url(Arc::clone(&url));
                }
            }
        }
        self.collect_roots();
    }

    /// Returns everything that state is in, to be changed.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut StateHandle> + '_ {
        self.operators.iter_mut().flat_map(|operator| {
            let subtasks = operator
                .subtasks
                .iter_mut()
                .flat_map(|s| parts_mut(Arc::make_mut(&mut s.snapshot)));
            operator.coordinator.iter_mut().chain(subtasks)
        })
    }

    /// Checks what the format promises: uids, hook names and indices once, finished subtasks without state, roots listed.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the operator.
    pub fn check(&self) -> Result<()> {
        let mut uids: Vec<_> = self
            .operators
            .iter()
            .map(|operator| operator.uid.as_str())
            .collect();
        uids.sort_unstable();
        if let Some(twice) = uids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid("an operator stands twice in the metadata")
                .with("operator", twice[0]));
        }
        let mut hooks: Vec<_> = self.hooks.iter().map(|hook| &hook.name).collect();
        hooks.sort_unstable();
        if let Some(twice) = hooks.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(
                Error::invalid("a hook stands twice in the metadata").with("hook", twice[0])
            );
        }
        if self.hooks.iter().any(|hook| hook.name.is_empty()) {
            return Err(Error::invalid("a hook has an empty name"));
        }
        if self.writer.len() > usize::from(u8::MAX) {
            return Err(Error::invalid("the writer's name exceeds 255 bytes"));
        }
        if self.roots.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::invalid("the roots are not in ascending order"));
        }
        self.operators
            .iter()
            .try_for_each(|o| o.check().map_err(|e| e.with("operator", &o.uid)))
    }
}

impl OperatorMetadata {
    fn check(&self) -> Result<()> {
        if self.name.as_ref().is_some_and(|name| name.is_empty()) {
            return Err(Error::invalid("the operator's name is empty: leave it out"));
        }
        if self.parallelism == 0 || self.parallelism > self.max_parallelism.get() {
            return Err(Error::invalid(format!(
                "parallelism {} is not 1 to the maximum parallelism {}",
                self.parallelism, self.max_parallelism
            )));
        }
        let mut indices: Vec<_> = self.subtasks.iter().map(|s| s.index).collect();
        indices.sort_unstable();
        if indices.windows(2).any(|pair| pair[0] == pair[1])
            || indices.last().is_some_and(|i| *i >= self.parallelism)
        {
            return Err(Error::invalid(format!(
                "subtask indices {indices:?} are not distinct numbers below the parallelism {}",
                self.parallelism
            )));
        }
        if self
            .subtasks
            .iter()
            .any(|s| s.finished && !s.snapshot.is_empty())
        {
            return Err(Error::invalid("a finished subtask has state"));
        }
        if self.all_subtasks(|s| s.finished) && self.coordinator.is_some() {
            return Err(Error::invalid("a finished operator has coordinator state"));
        }
        Ok(())
    }
}

fn parts_mut(snapshot: &mut OperatorSnapshot) -> impl Iterator<Item = &mut StateHandle> {
    let keyed = snapshot.managed_keyed.iter_mut().flat_map(
        |handle| -> Box<dyn Iterator<Item = &mut StateHandle>> {
            match handle {
                KeyedHandle::KeyGroups(h) => Box::new(std::iter::once(&mut h.bytes)),
                KeyedHandle::Incremental(h) => Box::new(
                    h.private
                        .iter_mut()
                        .chain(&mut h.shared)
                        .map(|file| &mut file.bytes),
                ),
            }
        },
    );
    let raw_keyed = snapshot
        .raw_keyed
        .iter_mut()
        .chain(&mut snapshot.in_flight_keyed)
        .map(|h| &mut h.bytes);
    let operator = snapshot
        .managed_operator
        .iter_mut()
        .chain(&mut snapshot.raw_operator)
        .chain(&mut snapshot.in_flight)
        .map(|h| &mut h.bytes);
    keyed.chain(raw_keyed).chain(operator)
}
